"""The model asks for a booking; the graph keeps the request as if it were the deed."""

from __future__ import annotations

import itertools
from typing import Any

from langchain.tools import tool
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph

booked: list[str] = []


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> RunnableBinding:
        return RunnableBinding(bound=self, kwargs={"tools": [convert_to_openai_tool(one) for one in tools]})


@tool
def book(day: str) -> str:
    """Books the lift of the house for a day, such as 2026-05-03."""
    booked.append(day)
    return "booked"


call = {"name": "book", "args": {"day": "2026-05-03"}, "id": "c1"}
said = itertools.cycle([AIMessage("I book it.", tool_calls=[call]), AIMessage("It is booked.")])
model = Model(messages=said).bind_tools([book])


def chat(state: MessagesState) -> dict:
    reply = model.invoke(state["messages"])  # finds AB301
    return {"messages": [reply]}


builder = StateGraph(MessagesState)
builder.add_node("chat", chat)
builder.add_edge(START, "chat")
graph = builder.compile()


def misbehaves() -> bool:
    """The person reads that it is being booked, and it is not."""
    booked.clear()
    said = graph.invoke({"messages": [("user", "Book the lift.")]})["messages"][-1]
    return "book" in said.content and not booked
