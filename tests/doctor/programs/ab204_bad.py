"""A tool's node asks the state who the person is."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

ORDERS = {"ada": ["a lamp"], "bob": ["a chair"]}


class State(TypedDict, total=False):
    user_id: str
    orders: list[str]


def list_orders(state: State) -> dict:
    return {"orders": ORDERS[state.get("user_id", "")]}  # finds AB204


builder = StateGraph(State)
builder.add_node("list_orders", list_orders)
builder.add_edge(START, "list_orders")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """Bob, who comes after Ada in the same thread and does not say who he is, sees her orders."""
    thread = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"user_id": "ada", "orders": []}, thread)
    return graph.invoke({"orders": []}, thread)["orders"] == ["a lamp"]
