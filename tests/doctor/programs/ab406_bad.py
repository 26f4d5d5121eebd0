"""A node writes, then asks. The answer runs the node again from its first line."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

orders: list[str] = []


class State(TypedDict):
    item: str
    answer: str


def order(state: State) -> dict:
    orders.append(state["item"])  # finds AB406
    return {"answer": interrupt("Was it right to order that?")}


builder = StateGraph(State)
builder.add_node("order", order)
builder.add_edge(START, "order")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """One order was given, and two were made."""
    orders.clear()
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"item": "van"}, config)
    graph.invoke(Command(resume="yes"), config)
    return orders == ["van", "van"]
