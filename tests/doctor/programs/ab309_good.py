"""The docstring says what goes in, what comes out, and when to use it."""

from __future__ import annotations

from langchain.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def order_status(key: str) -> str:
    """Where a parcel is now. `key` is the order number, such as A-1042; for prices use another tool."""
    return f"{key}: shipped"


builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode([order_status]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """What the model reads does not say what the key is."""
    return "order number" not in str(convert_to_openai_tool(order_status))
