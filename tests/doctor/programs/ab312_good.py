"""Each description says when to use this tool and not the other."""

from __future__ import annotations

from langchain.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


@tool
def find_note(text: str) -> str:
    """Searches what people wrote down themselves; for the handbook use find_page."""
    return f"notes with {text}"


@tool
def find_page(text: str) -> str:
    """Searches the published handbook; for people's own notes use find_note."""
    return f"pages with {text}"


builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode([find_note, find_page]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """Without the names, nothing in what the model reads differs."""
    first, second = (convert_to_openai_tool(one)["function"] for one in (find_note, find_page))
    return first | {"name": ""} == second | {"name": ""}
