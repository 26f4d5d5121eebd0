"""A tool writes into the state that it was given."""

from __future__ import annotations

from langchain.tools import ToolRuntime, tool
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


class State(MessagesState):
    step: int


@tool
def next_step(number: int, runtime: ToolRuntime) -> str:
    """Moves the plan to a step, by its number."""
    runtime.state["step"] = number  # finds AB304
    return "Done."


builder = StateGraph(State)
builder.add_node("tools", ToolNode([next_step]))
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """The model reads that it is done, and the step is what it was."""
    call = {"name": "next_step", "args": {"number": 2}, "id": "c1"}
    return graph.invoke({"messages": [AIMessage("", tool_calls=[call])], "step": 1})["step"] != 2
