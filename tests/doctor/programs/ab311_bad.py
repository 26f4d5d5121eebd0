"""The model says which tenant it works for, and a sentence in the chat makes it say another."""

from __future__ import annotations

from dataclasses import dataclass

from langchain.tools import tool
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@dataclass
class Context:
    tenant_id: str


@tool
def invoices(month: str, tenant_id: str) -> str:  # finds AB311
    """The invoices of a month, such as 2026-05."""
    return f"invoices of {tenant_id}"


builder = StateGraph(MessagesState, context_schema=Context)
builder.add_node("tools", ToolNode([invoices]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """The run is for tenant A and reads the invoices of tenant B."""
    call = {"name": "invoices", "args": {"month": "2026-05", "tenant_id": "B"}, "id": "c1"}
    said = graph.invoke({"messages": [AIMessage("", tool_calls=[call])]}, context=Context("A"))["messages"][-1]
    return said.content == "invoices of B"
