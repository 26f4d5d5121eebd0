"""Everybody's conversation has the same name."""

from __future__ import annotations

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph


def reply(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
graph = builder.compile(checkpointer=InMemorySaver())


def answer(user_id: str, text: str) -> list[str]:
    result = graph.invoke(
        {"messages": [("user", text)]},
        {"configurable": {"thread_id": "main"}},  # finds AB501
    )
    return [message.content for message in result["messages"]]


def misbehaves() -> bool:
    """Bob reads what Ada has written."""
    answer("ada", "My code is 4711.")
    return "My code is 4711." in answer("bob", "Hello!")
