"""The model may book, and the tool node cannot."""

from __future__ import annotations

import itertools
from typing import Any

from langchain.tools import tool
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> RunnableBinding:
        return RunnableBinding(bound=self, kwargs={"tools": [convert_to_openai_tool(one) for one in tools]})


@tool
def hours(day: str) -> str:
    """When the office is open on a day, such as 2026-05-03."""
    return "9 to 5"


@tool
def book(day: str) -> str:
    """Books the lift of the house for a day, such as 2026-05-03."""
    return "booked"


call = {"name": "book", "args": {"day": "2026-05-03"}, "id": "c1"}
said = itertools.cycle([AIMessage("", tool_calls=[call]), AIMessage("It is done.")])
model = Model(messages=said).bind_tools([hours, book])


def chat(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"])]}  # finds AB305


builder = StateGraph(MessagesState)
builder.add_node("chat", chat)
builder.add_node("tools", ToolNode([hours]))
builder.add_edge(START, "chat")
builder.add_conditional_edges("chat", tools_condition)
builder.add_edge("tools", "chat")
graph = builder.compile()


def misbehaves() -> bool:
    """The model calls a tool that it was told of, and reads that there is no such tool."""
    return any("not a valid tool" in str(one.content) for one in graph.invoke({"messages": [("user", "Book it.")]})["messages"])
