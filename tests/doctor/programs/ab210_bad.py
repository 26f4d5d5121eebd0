"""A node copies a row of the product into the state."""

from __future__ import annotations

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Plan(Base):
    __tablename__ = "doctor_plan"
    id: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[int]


class State(TypedDict):
    plan: Plan  # finds AB210


def load(state: State) -> dict:
    return {"plan": Plan(id="p1", day=28)}


builder = StateGraph(State)
builder.add_node("load", load)
builder.add_edge(START, "load")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """The row cannot be stored, and the run fails."""
    try:
        graph.invoke({"plan": None}, {"configurable": {"thread_id": "t1"}})
    except TypeError:
        return True
    return False
