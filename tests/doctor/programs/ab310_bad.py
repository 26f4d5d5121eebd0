"""A tool's parameter has no type: the model sends text where a number is meant, and nothing notices."""

from __future__ import annotations

from langchain.tools import tool
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def price_of(boxes) -> str:  # finds AB310
    """What the move costs, for so many boxes."""
    return str(boxes * 3)


builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode([price_of]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """Twelve boxes at 3 cost 121212."""
    call = {"name": "price_of", "args": {"boxes": "12"}, "id": "c1"}
    answer = graph.invoke({"messages": [AIMessage("", tool_calls=[call])]})["messages"][-1]
    return answer.content == "121212"
