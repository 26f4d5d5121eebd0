"""The stream is asked for updates too, which carry the question."""

from __future__ import annotations

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def ask(state: MessagesState) -> dict:
    return {"messages": [("user", interrupt("Go on?"))]}


builder = StateGraph(MessagesState)
builder.add_node("ask", ask)
builder.add_edge(START, "ask")
graph = builder.compile(checkpointer=InMemorySaver())


def question(thread: str) -> str | None:
    config = {"configurable": {"thread_id": thread}}
    for mode, part in graph.stream({"messages": [("user", "Hello!")]}, config, stream_mode=["messages", "updates"]):
        if mode == "updates" and "__interrupt__" in part:
            return part["__interrupt__"][0].value
    return None


def misbehaves() -> bool:
    """The graph waits for an answer, and nobody has seen the question."""
    seen = question("t1")
    return seen is None and bool(graph.get_state({"configurable": {"thread_id": "t1"}}).interrupts)
