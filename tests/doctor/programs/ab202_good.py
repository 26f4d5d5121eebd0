"""A search puts the document's id into the state."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

LIBRARY = {"d1": "All about moving house. " * 2_000}


class State(TypedDict):
    document_id: str
    answer: str


def search(state: State) -> dict:
    return {"document_id": "d1"}


def answer(state: State) -> dict:
    return {"answer": LIBRARY[state["document_id"]][:23]}


saver = InMemorySaver()
builder = StateGraph(State)
builder.add_node("search", search)
builder.add_node("answer", answer)
builder.add_edge(START, "search")
builder.add_edge("search", "answer")
graph = builder.compile(checkpointer=saver)


def thread() -> tuple[InMemorySaver, str]:
    for _ in range(3):
        graph.invoke({"answer": ""}, {"configurable": {"thread_id": "t1"}})
    return saver, "t1"


def misbehaves() -> bool:
    """The thread's checkpoints hold the text over and over."""
    thread()
    steps = graph.get_state_history({"configurable": {"thread_id": "t1"}})
    return sum(len(str(one.values)) for one in steps) > 100_000
