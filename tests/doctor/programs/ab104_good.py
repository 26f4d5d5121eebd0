"""Each review has a key of its own."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    reviews: Annotated[dict[str, str], operator.or_]


def check_price(state: State) -> dict:
    return {"reviews": {"price": "too dear"}}


def check_law(state: State) -> dict:
    return {"reviews": {"law": "allowed"}}


builder = StateGraph(State)
builder.add_node("law", check_law)
builder.add_node("price", check_price)
builder.add_edge(START, "law")
builder.add_edge(START, "price")
graph = builder.compile()


def misbehaves() -> bool:
    """One of two verdicts is lost."""
    return len(graph.invoke({"reviews": {}})["reviews"]) < 2
