"""Every request compiles the graph, with a checkpointer of its own."""

from __future__ import annotations

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph


def reply(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
graph = builder.compile()


def answer(thread: str, text: str) -> list[str]:
    compiled = builder.compile(checkpointer=InMemorySaver())  # finds AB504
    result = compiled.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": thread}})
    return [message.content for message in result["messages"]]


def misbehaves() -> bool:
    """The second request does not know of the first."""
    answer("t1", "My name is Ada.")
    return "My name is Ada." not in answer("t1", "What is my name?")
