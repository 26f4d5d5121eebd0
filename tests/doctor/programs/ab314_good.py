"""The tool returns the one line that was asked for."""

from __future__ import annotations

import itertools
from typing import Any

from langchain.tools import tool
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

PRICES = [f"box {number}: {number * 3} EUR" for number in range(1000)]
sent: list[int] = []


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> RunnableBinding:
        return RunnableBinding(bound=self, kwargs={"tools": [convert_to_openai_tool(one) for one in tools]})


@tool
def prices(number: int) -> str:
    """What a box costs, by the number of its size."""
    return PRICES[number]


call = {"name": "prices", "args": {"number": 7}, "id": "c1"}
said = itertools.cycle([AIMessage("", tool_calls=[call]), *["I see."] * 12])
model = Model(messages=said).bind_tools([prices])


def chat(state: MessagesState) -> dict:
    sent.append(sum(len(one.content) for one in state["messages"]))
    return {"messages": [model.invoke(state["messages"])]}


saver = InMemorySaver()
builder = StateGraph(MessagesState)
builder.add_node("chat", chat)
builder.add_node("tools", ToolNode([prices]))
builder.add_edge(START, "chat")
builder.add_conditional_edges("chat", tools_condition)
builder.add_edge("tools", "chat")
graph = builder.compile(checkpointer=saver)


def thread() -> tuple[InMemorySaver, str]:
    for _ in range(12):
        graph.invoke({"messages": [("user", "And then?")]}, {"configurable": {"thread_id": "t1"}})
    return saver, "t1"


def misbehaves() -> bool:
    """Twelve short questions have sent more than 100,000 characters to the model."""
    saver.delete_thread("t1")
    sent.clear()
    thread()
    return sum(sent) > 100_000
