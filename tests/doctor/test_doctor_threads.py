"""Threads and streams that look like a mistake and are none, and kinds that the programs do not show."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, trim_messages
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from abreast.doctor import examine


def reply(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


builder = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply")
graph = builder.compile(checkpointer=InMemorySaver())
model = FakeListChatModel(responses=["Yes."])
SHARED = "main"
AGAIN = [AIMessage("I see.")]


def found(text: str, code: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The lines of a module of this text where a rule speaks about its graph."""
    path = tmp_path / "threads_under_test.py"
    path.write_text("from test_doctor_threads import *\n" + text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib
    import sys

    sys.modules.pop("threads_under_test", None)
    module = importlib.import_module("threads_under_test")
    try:
        return [one.line for one in examine(module.graph, module="threads_under_test", select=[code]).findings]
    finally:
        del sys.modules["threads_under_test"]


CONVERSATIONS = {
    'def f(user_id, thread):\n    graph.invoke({}, {"configurable": {"thread_id": thread}})\n': [],
    'def f(user_id):\n    graph.invoke({}, {"configurable": {"thread_id": user_id}})\n': [],
    'def f(text):\n    graph.invoke({}, {"configurable": {"thread_id": "1"}})\n': [],
    'def f(user_id, graph):\n    graph.invoke({}, {"configurable": {"thread_id": "1"}})\n': [],
    'def f(user_id, SHARED):\n    graph.invoke({}, {"configurable": {"thread_id": SHARED}})\n': [],
    'def f(user_id):\n    config = {"configurable": {"thread_id": "1"}}\n    config = {}\n    graph.invoke({}, config)\n': [],
    'def f(user_id):\n    graph.invoke({}, {"configurable": {"thread_id": SHARED}})\n': [3],
    'async def f(user_id):\n    config = {"configurable": {"thread_id": "1"}}\n    await graph.ainvoke({}, config=config)\n': [3],
}


@pytest.mark.parametrize(("text", "lines"), CONVERSATIONS.items())
def test_whose_conversation_it_is(text: str, lines: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    assert found(text, "AB501", tmp_path, monkeypatch) == lines


STREAMS = {
    'def f():\n    for part in graph.stream({}, stream_mode="messages"):\n        if "__interrupt__" in part: pass\n': [3],
    'async def f():\n    async for part in graph.astream({}, stream_mode=["custom"]):\n        "__interrupt__" in part\n': [3],
    'def f():\n    for part in graph.stream({}, stream_mode="updates"):\n        if "__interrupt__" in part: pass\n': [],
    'def f():\n    for part in graph.stream({}, stream_mode=["messages", "values"]):\n        "__interrupt__" in part\n': [],
    'def f(mode):\n    for part in graph.stream({}, stream_mode=["messages", mode]):\n        "__interrupt__" in part\n': [],
    'def f(more):\n    for part in graph.stream({}, stream_mode="messages", **more):\n        "__interrupt__" in part\n': [],
    'def f():\n    for part in graph.stream({}):\n        "__interrupt__" in part\n': [],
    'def f():\n    for part in graph.stream({}, stream_mode="messages"):\n        print(part)\n': [],
    'def f(graph):\n    for part in graph.stream({}, stream_mode="messages"):\n        "__interrupt__" in part\n': [],
}


@pytest.mark.parametrize(("text", "lines"), STREAMS.items())
def test_what_a_stream_shows(text: str, lines: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    assert found(text, "AB503", tmp_path, monkeypatch) == lines


CONFIG = '{"configurable": {"thread_id": thread}}'
COMPILED = {
    f"def f(thread):\n    builder.compile(checkpointer=InMemorySaver()).invoke({{}}, {CONFIG})\n": [3],
    f"def f(thread):\n    agent = create_agent(model, checkpointer=InMemorySaver())\n    agent.invoke({{}}, {CONFIG})\n": [3],
    f"def f(thread, saver):\n    builder.compile(checkpointer=saver).invoke({{}}, {CONFIG})\n": [],
    f"def f(thread):\n    builder = StateGraph(MessagesState)\n    builder.compile().invoke({{}}, {CONFIG})\n": [],
    f"def f(thread, tools):\n    agent = create_agent(model, tools)\n    agent.invoke({{}}, {CONFIG})\n": [],
    "def f():\n    return builder.compile(checkpointer=InMemorySaver())\n": [],
    'def f():\n    builder.compile().invoke({}, {"configurable": {"thread_id": "t1"}})\n': [],
    f"def f(thread):\n    graph.invoke({{}}, {CONFIG})\n": [],
}


@pytest.mark.parametrize(("text", "lines"), COMPILED.items())
def test_when_a_graph_is_compiled(text: str, lines: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    assert found(text, "AB504", tmp_path, monkeypatch) == lines


def compiles(state: MessagesState) -> dict:
    return {"messages": create_agent(model).invoke(state)["messages"][-1:]}


def compiles_for_this_state(state: MessagesState) -> dict:
    return {"messages": create_agent(model, system_prompt=str(state["messages"])).invoke(state)["messages"][-1:]}


def of_node(node: Any, schema: Any = MessagesState) -> list[str]:
    made = StateGraph(schema).add_node("node", node).add_edge(START, "node").compile()
    return [one.code for one in examine(made, select=["AB5"]).findings]


def test_a_node_that_makes_an_agent():
    assert of_node(compiles) == ["AB504"]
    assert of_node(compiles_for_this_state) == []


class Replaced(TypedDict):
    messages: list[AnyMessage]


class Kept(TypedDict):
    messages: Annotated[list[AnyMessage], lambda old, new: new]


def last_two(state: Any) -> dict:
    return {"messages": state["messages"][-2:]}


def trimmed_and_new(state: MessagesState) -> dict:
    kept = trim_messages(state["messages"], max_tokens=100, token_counter=len)
    return {"messages": kept + AGAIN}


def last_and_new(state: MessagesState) -> dict:
    return {"messages": [*state["messages"][-2:], AIMessage("I see.")]}


def removed_first(state: MessagesState) -> dict:
    kept = state["messages"][-2:]
    return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept]}


def removed_behind(state: MessagesState) -> dict:
    return {"messages": [*state["messages"][-2:], RemoveMessage(id=str(state["messages"][0].id))]}


def only_for_the_model(state: MessagesState) -> dict:
    return {"messages": [model.invoke(state["messages"][-2:])]}


def last_of_the_answer(state: MessagesState) -> dict:
    return {"messages": graph.invoke(state)["messages"][-2:]}


def test_what_removes_nothing():
    assert [of_node(node) for node in (last_two, trimmed_and_new, last_and_new)] == [["AB502"]] * 3
    assert [of_node(node) for node in (removed_first, removed_behind, only_for_the_model, last_of_the_answer)] == [[]] * 4


def test_without_add_messages_the_rest_is_gone():
    assert of_node(last_two, Replaced) == []
    assert of_node(last_two, Kept) == []
