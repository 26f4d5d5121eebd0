"""A caller keeps the history itself and sends all of it each turn, although the thread has a checkpointer."""

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
    history = []
    for text in ("My name is Ada.", "What is my name?"):
        history.append(("user", text))
        graph.invoke({"messages": history}, {"configurable": {"thread_id": "t1"}})
        history.append(("assistant", "I see."))
    return saver, "t1"


def misbehaves() -> bool:
    """Two questions and two answers have become more than four messages."""
    saver.delete_thread("t1")
    thread()
    return len(graph.get_state({"configurable": {"thread_id": "t1"}}).values["messages"]) > 4
