"""The resume brings the context anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt


class State(TypedDict):
    sent: str


@dataclass
class Context:
    name: str


def send(state: State, runtime: Runtime[Context]) -> dict:
    answer = interrupt("Send it?")
    return {"sent": f"{answer}: from {runtime.context.name}"}


builder = StateGraph(State, context_schema=Context)
builder.add_node("send", send)
builder.add_edge(START, "send")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """The context of the first call is not there after the pause."""
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"sent": ""}, config, context=Context("Ada"))
    try:
        graph.invoke(Command(resume="yes"), config, context=Context("Ada"))
    except AttributeError:
        return True
    return False
