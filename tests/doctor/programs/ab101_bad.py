"""A chat node returns its answer; nothing says that messages are kept."""

from __future__ import annotations

from typing import TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph


class State(TypedDict):
    messages: list[AnyMessage]  # finds AB101


def chat(state: State) -> dict:
    return {"messages": [AIMessage("Good morning.")]}


builder = StateGraph(State)
builder.add_node("chat", chat)
builder.add_edge(START, "chat")
graph = builder.compile()


def misbehaves() -> bool:
    """What the person said is gone after the first answer."""
    return len(graph.invoke({"messages": [HumanMessage("Hello.")]})["messages"]) == 1
