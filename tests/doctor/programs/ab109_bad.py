"""A node that has to set a flag returns the whole state with it."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    log: Annotated[list[str], operator.add]
    done: bool


def finish(state: State) -> dict:
    return {**state, "done": True}  # finds AB109


builder = StateGraph(State)
builder.add_node("finish", finish)
builder.add_edge(START, "finish")
graph = builder.compile()


def misbehaves() -> bool:
    """The log doubles, although the node never touched it."""
    return graph.invoke({"log": ["started"], "done": False})["log"] != ["started"]
