"""The stream is asked for what the loop shows."""

from __future__ import annotations

import itertools

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

model = GenericFakeChatModel(messages=itertools.repeat(AIMessage("Good morning, Ada.")))


def reply(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
graph = builder.compile()


def shown() -> str:
    text = ""
    for mode, part in graph.stream({"messages": [("user", "Hello!")]}, stream_mode=["messages", "custom"]):
        if mode == "messages":
            text += part[0].content
    return text


def misbehaves() -> bool:
    """The model answers, and nobody sees a word of it."""
    return shown() == ""
