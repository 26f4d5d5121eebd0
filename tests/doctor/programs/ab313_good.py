"""A dozen tools with a line each; the manual is what they return when asked."""

from __future__ import annotations

import json

from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

WORDS = 1


def made(number: int) -> StructuredTool:
    def run(query: str) -> str:
        return f"{number}: {query}"

    text = f"Part {number} of the product. " + "More of its manual. " * WORDS
    return StructuredTool.from_function(run, name=f"part_{number}", description=text)


tools = [made(number) for number in range(12)]
builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode(tools))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """One request carries more than 20,000 characters of schemas, before the first word of the conversation."""
    return sum(len(json.dumps(convert_to_openai_tool(one))) for one in tools) > 20_000
