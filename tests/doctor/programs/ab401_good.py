"""A checkpointer keeps the pause until the person has answered."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt


class State(TypedDict):
    answer: str


def ask(state: State) -> dict:
    return {"answer": interrupt("Send it?")}


builder = StateGraph(State)
builder.add_node("ask", ask)
builder.add_edge(START, "ask")
graph = builder.compile(checkpointer=InMemorySaver())


def main() -> dict:
    return graph.invoke({"answer": ""}, {"configurable": {"thread_id": "t1"}})


def misbehaves() -> bool:
    """The question cannot be answered: there is nothing to resume."""
    try:
        return not graph.get_state({"configurable": {"thread_id": "t1"}}).interrupts if main() else True
    except (RuntimeError, ValueError):
        return True
