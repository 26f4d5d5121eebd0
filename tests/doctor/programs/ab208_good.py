"""What may be absent is read as such."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from langgraph.graph import START, StateGraph


class State(TypedDict):
    question: str
    language: NotRequired[str]
    answer: NotRequired[str]


def reply(state: State) -> dict:
    return {"answer": {"ko": "네"}.get(state.get("language"), "Yes")}


builder = StateGraph(State)
builder.add_node("reply", reply)
builder.add_edge(START, "reply")
graph = builder.compile()


def misbehaves() -> bool:
    """An input that the declaration allows breaks the run."""
    try:
        graph.invoke({"question": "Is it open?"})
    except KeyError:
        return True
    return False
