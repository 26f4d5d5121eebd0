"""The reducer appends the answer to what was said."""

from __future__ import annotations

from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def chat(state: State) -> dict:
    return {"messages": [AIMessage("Good morning.")]}


builder = StateGraph(State)
builder.add_node("chat", chat)
builder.add_edge(START, "chat")
graph = builder.compile()


def misbehaves() -> bool:
    """What the person said is gone after the first answer."""
    return len(graph.invoke({"messages": [HumanMessage("Hello.")]})["messages"]) == 1
