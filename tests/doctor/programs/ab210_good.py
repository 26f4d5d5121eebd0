"""The state has the id; the row is read when it is needed."""

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
    plan_id: str


def load(state: State) -> dict:
    return {"plan_id": "p1"}


builder = StateGraph(State)
builder.add_node("load", load)
builder.add_edge(START, "load")
graph = builder.compile(checkpointer=InMemorySaver())


def misbehaves() -> bool:
    """The row cannot be stored, and the run fails."""
    try:
        graph.invoke({"plan_id": ""}, {"configurable": {"thread_id": "t1"}})
    except TypeError:
        return True
    return False
