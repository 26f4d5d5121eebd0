"""A hand-made tool node puts everything that a tool returns into a message, a Command too."""

from __future__ import annotations

from langchain.tools import tool
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command


class State(MessagesState):
    step: int


@tool
def next_step(number: int) -> Command:
    """Moves the plan to a step, by its number."""
    return Command(update={"step": number})


TOOLS = {"next_step": next_step}


def run_tools(state: State) -> dict:
    answers = []
    for call in state["messages"][-1].tool_calls:
        result = TOOLS[call["name"]].invoke(call["args"])
        answers.append(ToolMessage(str(result), tool_call_id=call["id"]))  # finds AB303
    return {"messages": answers}


builder = StateGraph(State)
builder.add_node("tools", run_tools)
builder.add_edge(START, "tools")
graph = builder.compile()


def misbehaves() -> bool:
    """The step is never set, and no error says so."""
    call = {"name": "next_step", "args": {"number": 2}, "id": "c1"}
    return graph.invoke({"messages": [AIMessage("", tool_calls=[call])]}).get("step") != 2
