"""A key for another service is handed to the nodes in `configurable`."""

from __future__ import annotations

from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph


class State(TypedDict):
    answer: str


def ask(state: State, config: RunnableConfig) -> dict:
    return {"answer": "asked with a key" if config["configurable"]["api_key"] else "no key"}


builder = StateGraph(State)
builder.add_node("ask", ask)
builder.add_edge(START, "ask")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """The key stands in the metadata of the checkpoints."""
    config = {"configurable": {"thread_id": "t1", "api_key": "k-123"}}  # finds AB205
    graph.invoke({"answer": ""}, config)
    return "k-123" in str([one.metadata for one in graph.checkpointer.list({"configurable": {"thread_id": "t1"}})])
