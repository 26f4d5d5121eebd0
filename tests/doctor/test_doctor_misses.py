"""What looks like a mistake and is none: the rules stay silent where the bad thing is not certain."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime

from abreast.doctor import examine


class State(TypedDict):
    messages: list[AnyMessage]
    drafts: list[AIMessage]
    log: Annotated[list[str], operator.add]
    smooth: Annotated[float, lambda old, new: old * 0.9 + new * 0.1]
    count: int
    names: list[str]
    client: Any
    language: NotRequired[str]


class Narrow(TypedDict):
    count: int


@dataclass
class Context:
    user_id: str


def keeps_history_by_hand(state: State) -> dict:
    return {"messages": [*state["messages"], AIMessage("Yes.")]}


def newest_draft_only(state: State) -> dict:
    return {"drafts": [AIMessage("A draft.")]}


def items_of_another_key(state: State) -> dict:
    return {"log": state["names"] + ["one more"]}


def moving_average_of_one_writer(state: State) -> dict:
    return {"smooth": 1.0}


def counts_without_a_reducer(state: State) -> dict:
    return {"count": state.get("count", 0) + 1}


def whole_state_of_a_narrow_input(state: Narrow) -> dict:
    return {**state, "count": 1}


def changes_and_returns(state: State) -> dict:
    state["names"].append("new")
    return {"names": state["names"]}


def method_of_something_else(state: State) -> dict:
    state["client"].update("row")
    return {"count": 1}


def unknown_update(state: State) -> dict:
    state["names"].append("new")
    return helper(state)


def helper(state: State) -> dict:
    return {"names": state["names"]}


def asks_first(state: State) -> dict:
    return {"count": len(state["language"])} if "language" in state else {}


def expects_the_error(state: State) -> dict:
    try:
        return {"count": len(state["language"])}
    except KeyError:
        return {"count": 0}


def identity_from_context(state: State, runtime: Runtime[Context]) -> dict:
    return {"names": [runtime.context.user_id]}


ALL = [
    keeps_history_by_hand,
    newest_draft_only,
    items_of_another_key,
    moving_average_of_one_writer,
    counts_without_a_reducer,
    whole_state_of_a_narrow_input,
    changes_and_returns,
    method_of_something_else,
    unknown_update,
    asks_first,
    expects_the_error,
    identity_from_context,
]


@pytest.mark.parametrize("node", ALL)
def test_a_node_that_is_fine_is_not_found(node: Any):
    builder = StateGraph(State, context_schema=Context).add_node("node", node).add_edge(START, "node")
    assert examine(builder.compile()).findings == ()


def sometimes(state: State) -> dict | None:
    return {"count": 1} if state["names"] else None


def test_nodes_that_write_only_sometimes_are_not_certain():
    builder = StateGraph(State).add_node("a", sometimes).add_node("b", counts_without_a_reducer)
    assert examine(builder.add_edge(START, "a").add_edge(START, "b")).findings == ()


def test_nodes_one_after_the_other_do_not_write_together():
    builder = StateGraph(State).add_node("a", counts_without_a_reducer).add_node("b", counts_without_a_reducer)
    assert examine(builder.add_edge(START, "a").add_edge("a", "b")).findings == ()


graph = StateGraph(State, context_schema=Context).add_node("node", identity_from_context).add_edge(START, "node").compile()


def calls(options: dict[str, Any]) -> None:
    graph.invoke({}, context=Context("u1"))
    graph.invoke({}, **options)


def test_a_call_with_context_or_with_options_that_cannot_be_read_is_no_finding():
    assert examine(graph, module=__name__).findings == ()
