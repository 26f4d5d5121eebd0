"""A person asks for erasure, and the whole thread is deleted."""

from __future__ import annotations

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph


def reply(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


saver = InMemorySaver()
builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
graph = builder.compile(checkpointer=saver)


def erase_personal_data(thread: str) -> None:
    """Erases what a person has written."""
    saver.delete_thread(thread)


def misbehaves() -> bool:
    """What was erased still stands in the history."""
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"messages": [("user", "My code is 4711.")]}, config)
    erase_personal_data("t1")
    return any("4711" in str(one.values) for one in graph.get_state_history(config))
