"""A reducer extends the old list in place."""

from __future__ import annotations

from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph


def collect(old: list[str], new: list[str]) -> list[str]:
    old.extend(new)  # finds AB105
    return old


class State(TypedDict):
    log: Annotated[list[str], collect]


def work(state: State) -> dict:
    return {"log": ["worked"]}


builder = StateGraph(State)
builder.add_node("work", work)
builder.add_edge(START, "work")
graph = builder.compile()


def misbehaves() -> bool:
    """The state that was streamed before the node ran has changed by the time it is looked at."""
    before, _ = list(graph.stream({"log": ["started"]}, stream_mode="values"))
    return before["log"] != ["started"]
