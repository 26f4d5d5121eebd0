"""The person's id is context: given anew with each call, never stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph


class State(TypedDict):
    turns: int


@dataclass
class Context:
    customer: str


def work(state: State) -> dict:
    return {"turns": state.get("turns", 0) + 1}


saver = InMemorySaver()
builder = StateGraph(State, context_schema=Context)
builder.add_node("work", work)
builder.add_edge(START, "work")
graph = builder.compile(checkpointer=saver)


def thread() -> tuple[InMemorySaver, str]:
    for _ in range(3):
        graph.invoke({"turns": 0}, {"configurable": {"thread_id": "t1"}}, context=Context("c_81"))
    return saver, "t1"


def misbehaves() -> bool:
    """Every step keeps the id once more."""
    saver.delete_thread("t1")
    thread()
    kept = [one.values for one in graph.get_state_history({"configurable": {"thread_id": "t1"}})]
    return sum(values.get("customer") == "c_81" for values in kept) > 1
