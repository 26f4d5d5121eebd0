"""A tool's docstring repeats its name; the model has nothing else to choose by."""

from __future__ import annotations

from langchain.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def order_status(key: str) -> str:  # finds AB309
    """The order status."""
    return f"{key}: shipped"


builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode([order_status]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """What the model reads does not say what the key is."""
    return "order number" not in str(convert_to_openai_tool(order_status))
