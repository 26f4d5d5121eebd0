"""A graph of a few steps that needs no model, for what is about its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from operator import add
from typing import Annotated, Any

from langgraph.graph import StateGraph
from typing_extensions import TypedDict


class Said(TypedDict):
    said: Annotated[list[str], add]


def steps(saver: Any, count: int = 3, each: Callable[[int], Any] = lambda step: None) -> Any:
    """A graph of `count` steps, one after the other; `each` is called in each of them."""
    graph = StateGraph(Said)
    names = [f"step{number}" for number in range(count)]
    for number, name in enumerate(names):

        def step(state: Said, number: int = number) -> Any:
            each(number)
            return {"said": [f"step {number}"]}

        graph.add_node(name, step)
    graph.set_entry_point(names[0])
    for name, following in pairwise(names):
        graph.add_edge(name, following)
    return graph.compile(checkpointer=saver)
