"""A person asks for erasure, and the newest checkpoint alone forgets."""

from __future__ import annotations

from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES


def reply(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


saver = InMemorySaver()
builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
graph = builder.compile(checkpointer=saver)


def erase_personal_data(thread: str) -> None:
    """Erases what a person has written."""
    config = {"configurable": {"thread_id": thread}}
    graph.update_state(config, {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]})  # finds AB506


def misbehaves() -> bool:
    """What was erased still stands in the history."""
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"messages": [("user", "My code is 4711.")]}, config)
    erase_personal_data("t1")
    return any("4711" in str(one.values) for one in graph.get_state_history(config))
