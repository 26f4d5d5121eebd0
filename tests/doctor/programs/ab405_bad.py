"""One tool asks twice. After a crash the run is continued, as one does, without a new answer."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

paid: list[tuple[Any, Any]] = []


def pay(amount: int) -> str:
    """Pays an invoice.

    Args:
        amount: Euros.
    """
    manager = interrupt("Does the manager agree?")
    owner = interrupt("Does the owner agree?")  # finds AB405
    paid.append((manager, owner))
    return "paid"


builder = StateGraph(MessagesState)
builder.add_node("tools", ToolNode([pay]))
builder.add_edge(START, "tools")
graph = builder.compile(checkpointer=InMemorySaver())
call = {"name": "pay", "args": {"amount": 900}, "id": "c1", "type": "tool_call"}


def misbehaves() -> bool:
    """The owner was never asked, and has agreed."""
    paid.clear()
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"messages": [AIMessage("", tool_calls=[call])]}, config)
    graph.invoke(Command(resume="yes"), config)
    graph.invoke(None, config)
    return paid == [("yes", "yes")]
