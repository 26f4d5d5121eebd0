"""A node reads the context, and a caller has forgotten it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime


class State(TypedDict):
    greeting: str


@dataclass
class Context:
    name: str


def greet(state: State, runtime: Runtime[Context]) -> dict:
    return {"greeting": f"Hello, {runtime.context.name}."}


builder = StateGraph(State, context_schema=Context)
builder.add_node("greet", greet)
builder.add_edge(START, "greet")
graph = builder.compile()


def misbehaves() -> bool:
    """The context is None, and the node fails in the middle of the run."""
    try:
        graph.invoke({"greeting": ""})  # finds AB206
    except AttributeError:
        return True
    return False
