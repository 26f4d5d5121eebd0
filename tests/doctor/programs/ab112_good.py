"""A caller sends what is new; the checkpointer has the rest."""

from __future__ import annotations

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph


def chat(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


saver = InMemorySaver()
builder = StateGraph(MessagesState)
builder.add_node("chat", chat)
builder.add_edge(START, "chat")
graph = builder.compile(checkpointer=saver)


def thread() -> tuple[InMemorySaver, str]:
    for text in ("My name is Ada.", "What is my name?"):
        graph.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": "t1"}})
    return saver, "t1"


def misbehaves() -> bool:
    """Two questions and two answers have become more than four messages."""
    saver.delete_thread("t1")
    thread()
    return len(graph.get_state({"configurable": {"thread_id": "t1"}}).values["messages"]) > 4
