"""The state carries the id of its thread."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph


class State(TypedDict):
    thread_id: str  # finds AB203
    link: str


def share(state: State) -> dict:
    return {"link": "/threads/" + state["thread_id"]}


builder = StateGraph(State)
builder.add_node("share", share)
builder.add_edge(START, "share")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """A thread that continues from a copied state links to the thread that it was copied from."""
    first = {"configurable": {"thread_id": "t1"}}
    copy = {"configurable": {"thread_id": "t2"}}
    graph.invoke({"thread_id": "t1", "link": ""}, first)
    return graph.invoke(graph.get_state(first).values, copy)["link"] != "/threads/t2"
