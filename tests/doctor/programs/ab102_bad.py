"""Two searches run side by side and both write `hits`, a list that can be written once a step."""

from __future__ import annotations

from typing import TypedDict

from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, StateGraph


class State(TypedDict):
    hits: list[str]  # finds AB102


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
    """The step is refused, and both results are lost."""
    try:
        graph.invoke({"hits": []})
    except InvalidUpdateError:
        return True
    return False
