"""Sixty tools, each with the whole manual of its part of the product, go along with every call of the model."""

from __future__ import annotations

import json

from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

WORDS = 80


def made(number: int) -> StructuredTool:
    def run(query: str) -> str:
        return f"{number}: {query}"

    text = f"Part {number} of the product. " + "More of its manual. " * WORDS
    return StructuredTool.from_function(run, name=f"part_{number}", description=text)


tools = [made(number) for number in range(60)]
builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode(tools))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """One request carries more than 20,000 characters of schemas, before the first word of the conversation."""
    return sum(len(json.dumps(convert_to_openai_tool(one))) for one in tools) > 20_000
