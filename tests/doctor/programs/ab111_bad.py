"""A node answers with a dict, and the reducer only appends it."""

from __future__ import annotations

import operator
from typing import Annotated, TypedDict

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph


class State(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


def chat(state: State) -> dict:
    return {"messages": [{"role": "assistant", "content": "Good morning."}]}  # finds AB111


builder = StateGraph(State)
builder.add_node("chat", chat)
builder.add_edge(START, "chat")
graph = builder.compile()


def misbehaves() -> bool:
    """The answer has no content to show."""
    return not hasattr(graph.invoke({"messages": [HumanMessage("Hello.")]})["messages"][-1], "content")
