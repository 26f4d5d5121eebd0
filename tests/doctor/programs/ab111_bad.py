"""A node answers with a dict, and the reducer only appends it."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph


class State(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]
    shown: str


def chat(state: State) -> dict:
    return {"messages": [{"role": "assistant", "content": "Good morning."}]}  # finds AB111


def show(state: State) -> dict:
    return {"shown": str(state["messages"][-1].content)}


builder = StateGraph(State)
builder.add_node("chat", chat)
builder.add_node("show", show)
builder.add_edge(START, "chat")
builder.add_edge("chat", "show")
graph = builder.compile()


def misbehaves() -> bool:
    """The answer has no content to show, and the run fails."""
    try:
        graph.invoke({"messages": [HumanMessage("Hello.")]})
    except AttributeError:
        return True
    return False
