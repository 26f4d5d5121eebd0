"""A node returns the last two messages, and means to drop the others."""

from __future__ import annotations

from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph


def trim(state: MessagesState) -> dict:
    return {"messages": state["messages"][-2:]}  # finds AB502


builder = StateGraph(MessagesState)
builder.add_node("trim", trim)
builder.add_edge(START, "trim")
graph = builder.compile()


def misbehaves() -> bool:
    """All five messages are still there."""
    return len(graph.invoke({"messages": [HumanMessage(str(number)) for number in range(5)]})["messages"]) == 5
