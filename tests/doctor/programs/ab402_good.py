"""A web server keeps its conversations in a database."""

from __future__ import annotations

import sqlite3
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph


class State(TypedDict):
    name: str


def remember(state: State) -> dict:
    return {"name": state["name"].title()}


def started(folder: Path) -> Any:
    """What each start of the server does."""
    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    connection = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
    return builder.compile(checkpointer=SqliteSaver(connection))


folder = Path(mkdtemp())
graph = started(folder)


class Page(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        graph.invoke({"name": "ada"}, {"configurable": {"thread_id": self.path}})
        self.send_response(204)


def misbehaves() -> bool:
    """After a restart the conversation is gone."""
    config = {"configurable": {"thread_id": "t1"}}
    started(folder).invoke({"name": "ada"}, config)
    return not started(folder).get_state(config).values
