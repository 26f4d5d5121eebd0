"""The id of the thread is read where it is true: from the config."""

from __future__ import annotations

from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph


class State(TypedDict):
    link: str


def share(state: State, config: RunnableConfig) -> dict:
    return {"link": "/threads/" + config["configurable"]["thread_id"]}


builder = StateGraph(State)
builder.add_node("share", share)
builder.add_edge(START, "share")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """A thread that continues from a copied state links to the thread that it was copied from."""
    first = {"configurable": {"thread_id": "t1"}}
    copy = {"configurable": {"thread_id": "t2"}}
    graph.invoke({"link": ""}, first)
    return graph.invoke(graph.get_state(first).values, copy)["link"] != "/threads/t2"
