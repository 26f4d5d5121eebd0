"""The reducer counts; the node says by how much."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    tries: Annotated[int, operator.add]


def attempt(state: State) -> dict:
    return {"tries": 1}


builder = StateGraph(State)
builder.add_node("attempt", attempt)
builder.add_edge(START, "attempt")
graph = builder.compile()


def misbehaves() -> bool:
    """The fourth try is counted as the seventh."""
    return graph.invoke({"tries": 3})["tries"] != 4
