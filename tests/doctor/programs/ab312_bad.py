"""Two tools with one description and the same parameters."""

from __future__ import annotations

from langchain.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def find_note(text: str) -> str:
    """Searches the documents for a text."""
    return f"notes with {text}"


@tool
def find_page(text: str) -> str:  # finds AB312
    """Searches the documents for a text."""
    return f"pages with {text}"


builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode([find_note, find_page]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """Without the names, nothing in what the model reads differs."""
    first, second = (convert_to_openai_tool(one)["function"] for one in (find_note, find_page))
    return first | {"name": ""} == second | {"name": ""}
