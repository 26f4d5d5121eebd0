"""The person's id travels in the state."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph


class State(TypedDict):
    customer: str  # finds AB201
    turns: int


def work(state: State) -> dict:
    return {"turns": state.get("turns", 0) + 1}


saver = InMemorySaver()
builder = StateGraph(State)
builder.add_node("work", work)
builder.add_edge(START, "work")
graph = builder.compile(checkpointer=saver)


def thread() -> tuple[InMemorySaver, str]:
    for _ in range(3):
        graph.invoke({"customer": "c_81"}, {"configurable": {"thread_id": "t1"}})
    return saver, "t1"


def misbehaves() -> bool:
    """Every step keeps the id once more."""
    saver.delete_thread("t1")
    thread()
    kept = [one.values for one in graph.get_state_history({"configurable": {"thread_id": "t1"}})]
    return sum(values.get("customer") == "c_81" for values in kept) > 1
