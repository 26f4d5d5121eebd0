"""A key for another service is in the context, which is not stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime


class State(TypedDict):
    answer: str


@dataclass
class Context:
    key: str


def ask(state: State, runtime: Runtime[Context]) -> dict:
    return {"answer": "asked with a key" if runtime.context.key else "no key"}


builder = StateGraph(State, context_schema=Context)
builder.add_node("ask", ask)
builder.add_edge(START, "ask")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """The key stands in the metadata of the checkpoints."""
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"answer": ""}, config, context=Context("k-123"))
    return "k-123" in str([one.metadata for one in graph.checkpointer.list({"configurable": {"thread_id": "t1"}})])
