"""Two reviews of one step are stored under the same key of a merged dict."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    reviews: Annotated[dict[str, str], operator.or_]


def check_price(state: State) -> dict:
    return {"reviews": {"verdict": "too dear"}}  # finds AB104


def check_law(state: State) -> dict:
    return {"reviews": {"verdict": "allowed"}}


builder = StateGraph(State)
builder.add_node("law", check_law)
builder.add_node("price", check_price)
builder.add_edge(START, "law")
builder.add_edge(START, "price")
graph = builder.compile()


def misbehaves() -> bool:
    """One of two verdicts is lost."""
    return len(graph.invoke({"reviews": {}})["reviews"]) < 2
