"""Two scores of one step are averaged by the reducer."""

from __future__ import annotations

from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


def average(old: float, new: float) -> float:
    return (old + new) / 2


class State(TypedDict):
    score: Annotated[float, average]  # finds AB106


def rate_style(state: State) -> dict:
    return {"score": 4.0}


def rate_facts(state: State) -> dict:
    return {"score": 8.0}


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
    return graph.invoke({"score": 6.0})["score"] != build("a_style", "facts").invoke({"score": 6.0})["score"]
