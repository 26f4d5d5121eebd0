"""A report takes the first of two parallel results for the prices, because that edge was drawn first."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    results: Annotated[list[dict], operator.add]
    report: str


def search_prices(state: State) -> dict:
    return {"results": [{"type": "prices", "text": "12 euros"}]}


def search_news(state: State) -> dict:
    return {"results": [{"type": "news", "text": "rain"}]}


def write(state: State) -> dict:
    prices = state["results"][0]  # finds AB107
    return {"report": "Prices: " + prices["text"]}


builder = StateGraph(State)
builder.add_node("prices", search_prices)
builder.add_node("news", search_news)
builder.add_node("write", write)
builder.add_edge(START, "prices")
builder.add_edge(START, "news")
builder.add_edge(["prices", "news"], "write")
graph = builder.compile()


def misbehaves() -> bool:
    """The news stands where the prices should."""
    return graph.invoke({"results": []})["report"] != "Prices: 12 euros"
