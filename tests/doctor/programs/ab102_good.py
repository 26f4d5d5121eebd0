"""A reducer says how two writes of one step become one value."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, StateGraph


class State(TypedDict):
    hits: Annotated[list[str], operator.add]


def search_mail(state: State) -> dict:
    return {"hits": ["mail"]}


def search_files(state: State) -> dict:
    return {"hits": ["file"]}


builder = StateGraph(State)
builder.add_node("mail", search_mail)
builder.add_node("files", search_files)
builder.add_edge(START, "mail")
builder.add_edge(START, "files")
graph = builder.compile()


def misbehaves() -> bool:
    """Both results arrive."""
    try:
        return sorted(graph.invoke({"hits": []})["hits"]) != ["file", "mail"]
    except InvalidUpdateError:
        return True
