"""Every call brings the context that the node reads."""

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
        graph.invoke({"greeting": ""}, context=Context("Ada"))
    except AttributeError:
        return True
    return False
