"""A node returns the new list as an update."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph


class State(TypedDict):
    notes: list[str]
    done: bool


def work(state: State) -> dict:
    return {"notes": [*state["notes"], "worked"], "done": True}


builder = StateGraph(State)
builder.add_node("work", work)
builder.add_edge(START, "work")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """The stored conversation does not have the note."""
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"notes": [], "done": False}, config)
    return graph.get_state(config).values["notes"] != ["worked"]
