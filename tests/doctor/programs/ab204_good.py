"""Who the person is comes from the context, which the server makes of the authenticated caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

ORDERS = {"ada": ["a lamp"], "bob": ["a chair"]}


class State(TypedDict, total=False):
    orders: list[str]


@dataclass
class Context:
    user_id: str


def list_orders(state: State, runtime: Runtime[Context]) -> dict:
    return {"orders": ORDERS[runtime.context.user_id]}


builder = StateGraph(State, context_schema=Context)
builder.add_node("list_orders", list_orders)
builder.add_edge(START, "list_orders")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """Bob, who comes after Ada in the same thread and does not say who he is, sees her orders."""
    thread = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"orders": []}, thread, context=Context("ada"))
    return graph.invoke({"orders": []}, thread, context=Context("bob"))["orders"] == ["a lamp"]
