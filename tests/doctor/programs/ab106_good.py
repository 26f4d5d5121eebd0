"""The reducer collects; who needs the average computes it from all scores."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    scores: Annotated[list[float], operator.add]


def rate_style(state: State) -> dict:
    return {"scores": [4.0]}


def rate_facts(state: State) -> dict:
    return {"scores": [8.0]}


def build(style: str, facts: str):
    builder = StateGraph(State)
    builder.add_node(style, rate_style)
    builder.add_node(facts, rate_facts)
    builder.add_edge(START, style)
    builder.add_edge(START, facts)
    return builder.compile()


graph = build("style", "facts")


def misbehaves() -> bool:
    """Another name for a node gives another score."""
    first, second = (one.invoke({"scores": [6.0]})["scores"] for one in (graph, build("a_style", "facts")))
    return sum(first) / len(first) != sum(second) / len(second)
