"""A node returns the old list with one item more, and the reducer appends all of it."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def work(state: State) -> dict:
    return {"log": state["log"] + ["worked"]}  # finds AB103


builder = StateGraph(State)
builder.add_node("work", work)
builder.add_edge(START, "work")
graph = builder.compile()


def misbehaves() -> bool:
    """The first entry is there twice."""
    return graph.invoke({"log": ["started"]})["log"].count("started") > 1
