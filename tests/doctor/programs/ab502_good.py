"""A node names the messages that go."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.graph import START, MessagesState, StateGraph


def trim(state: MessagesState) -> dict:
    return {"messages": [RemoveMessage(id=message.id) for message in state["messages"][:-2]]}


builder = StateGraph(MessagesState)
builder.add_node("trim", trim)
builder.add_edge(START, "trim")
graph = builder.compile()


def misbehaves() -> bool:
    """All five messages are still there."""
    return len(graph.invoke({"messages": [HumanMessage(str(number)) for number in range(5)]})["messages"]) == 5
