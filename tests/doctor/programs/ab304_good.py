"""The tool returns the change as a Command, with the answer to its call."""

from __future__ import annotations

from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command


class State(MessagesState):
    step: int


@tool
def next_step(number: int, runtime: ToolRuntime) -> Command:
    """Moves the plan to a step, by its number."""
    answer = ToolMessage("Done.", tool_call_id=runtime.tool_call_id)
    return Command(update={"step": number, "messages": [answer]})


builder = StateGraph(State)
builder.add_node("tools", ToolNode([next_step]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """The model reads that it is done, and the step is what it was."""
    call = {"name": "next_step", "args": {"number": 2}, "id": "c1"}
    return graph.invoke({"messages": [AIMessage("", tool_calls=[call])], "step": 1})["step"] != 2
