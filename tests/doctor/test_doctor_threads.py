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
from langgraph.types import Send

from abreast.doctor import examine


def reply(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


builder = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply")
graph = builder.compile(checkpointer=InMemorySaver())


class Told(TypedDict):
    text: str


def again(state: Told) -> dict:
    return {"text": state["text"]}


forgetful = StateGraph(Told).add_node("again", again).add_edge(START, "again").compile(checkpointer=InMemorySaver())
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
    'C = {"configurable": {"thread_id": "1"}}\ndef f(user_id):\n    graph.invoke({}, C)\n': [2],
    'def f(user_id):\n    graph.invoke({}, {"configurable": dict(thread_id="1")})\n': [3],
    # Without a checkpointer nothing is kept, and what is deleted or has a name of its own below is nobody else's.
    'graph = builder.compile()\ndef f(user_id):\n    graph.invoke({}, {"configurable": {"thread_id": "1"}})\n': [],
    'def f(user_id):\n    graph.invoke({}, {"configurable": {"thread_id": "1"}})\n    saver.delete_thread("1")\n': [],
    'def f(user_id):\n    graph.invoke({}, {"configurable": {"thread_id": "1", "checkpoint_ns": user_id}})\n': [],
    'C = {"configurable": {"thread_id": "1"}}\ndef f(user_id):\n    C["configurable"]["thread_id"] = user_id\n'
    "    graph.invoke({}, C)\n": [],
    'graph = forgetful\ndef f(user_id):\n    graph.invoke({"text": user_id}, {"configurable": {"thread_id": "1"}})\n': [],
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


BEGIN = "from langchain_core.messages import AIMessageChunk, ToolMessage\nasync def f(more=None):\n    "
LISTENING = {
    'for mode, part in graph.stream({}, stream_mode=["updates", "custom"]):\n        if mode == "messages": pass\n': [4],
    'async for mode, part in graph.astream({}, stream_mode=["values"]):\n        if mode in ("messages", "custom"): pass\n': [4],
    'for ns, mode, part in graph.stream({}, stream_mode=["updates"], subgraphs=True):\n        mode == "messages"\n': [4],
    'for part in graph.stream({}, stream_mode="updates"):\n        if isinstance(part, AIMessageChunk): pass\n': [4],
    'for part in graph.stream({}, stream_mode="messages"):\n        isinstance(part, (AIMessageChunk, ToolMessage))\n': [4],
    "for part in graph.stream({}):\n        if isinstance(part, ToolMessage): pass\n": [4],
    # These get what they wait for, or may.
    'for mode, part in graph.stream({}, stream_mode=["updates", "messages"]):\n        if mode == "messages": pass\n': [],
    'for mode, part in graph.stream({}, stream_mode=["debug"]):\n        if mode in ("tasks", "debug"): pass\n': [],
    'for mode, part in graph.stream({}, stream_mode=["updates"]):\n        if mode != "messages": pass\n': [],
    'for mode, part in graph.stream({}, stream_mode=["updates", more]):\n        if mode == "messages": pass\n': [],
    'for mode, part in graph.stream({}, stream_mode=["updates"], **more):\n        if mode == "messages": pass\n': [],
    'for part in graph.stream({}, stream_mode="custom"):\n        if isinstance(part, AIMessageChunk): pass\n': [],
    'for part, meta in graph.stream({}, stream_mode="messages"):\n        if isinstance(part, AIMessageChunk): pass\n': [],
    'for part in graph.stream({}, stream_mode="messages"):\n        part = part[0]\n        isinstance(part, ToolMessage)\n': [],
    'for part in graph.stream({}, stream_mode="messages"):\n        isinstance(part[0], AIMessageChunk)\n': [],
    'for part in graph.stream({}, stream_mode="updates"):\n        isinstance(part, (AIMessageChunk, dict))\n': [],
    'for part in graph.stream({}, stream_mode=["updates"], version="v2"):\n        isinstance(part, AIMessageChunk)\n': [],
}


@pytest.mark.parametrize(("text", "lines"), LISTENING.items())
def test_what_a_loop_waits_for(text: str, lines: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    assert found(BEGIN + text, "AB505", tmp_path, monkeypatch) == lines


def test_no_part_of_a_stream_is_a_message_by_itself():
    for mode in ("updates", "values", "messages", "tasks", "checkpoints", "debug", ["updates", "messages"]):
        parts = list(graph.stream({"messages": []}, {"configurable": {"thread_id": str(mode)}}, stream_mode=mode))
        assert parts
        assert not [part for part in parts if isinstance(part, AIMessage)]


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
    # Made once and kept: in a global, in a dict, in an object, by a helper.
    f"made = None\ndef f(thread):\n    global made\n    if made is None:\n        made = builder.compile()\n"
    f"    made.invoke({{}}, {CONFIG})\n": [],
    f"kept = {{}}\ndef f(thread):\n    if 'g' not in kept:\n        one = builder.compile()\n        kept['g'] = one\n"
    f"    one = kept['g']\n    one.invoke({{}}, {CONFIG})\n": [],
    f"class F:\n    def f(self, thread):\n        self.g = self.g or builder.compile()\n"
    f"        self.g.invoke({{}}, {CONFIG})\n": [],
    f"def f(thread):\n    one = builder.compile()\n    remember(one)\n    one.invoke({{}}, {CONFIG})\n": [],
    # Not the same each time: a global that is set again, a list that grows, a call that may give another.
    f"def change(to):\n    global model\n    model = to\ndef f(thread):\n    create_agent(model).invoke({{}}, {CONFIG})\n": [],
    f"tools = []\ndef plug(one):\n    tools.append(one)\ndef f(thread):\n"
    f"    create_agent(model, tools).invoke({{}}, {CONFIG})\n": [],
    f"def today():\n    return 'Monday'\ndef f(thread):\n"
    f"    create_agent(model, system_prompt=today()).invoke({{}}, {CONFIG})\n": [],
}


@pytest.mark.parametrize(("text", "lines"), COMPILED.items())
def test_when_a_graph_is_compiled(text: str, lines: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    assert found(text, "AB504", tmp_path, monkeypatch) == lines


def compiles(state: MessagesState) -> dict:
    return {"messages": create_agent(model).invoke(state)["messages"][-1:]}


def compiles_for_this_state(state: MessagesState) -> dict:
    return {"messages": create_agent(model, system_prompt=str(state["messages"])).invoke(state)["messages"][-1:]}


agent: Any = None
agents: dict[str, Any] = {}


def made_once(state: MessagesState) -> dict:
    global agent
    if agent is None:
        agent = create_agent(model)
    return {"messages": agent.invoke(state)["messages"][-1:]}


def made_once_in_a_dict(state: MessagesState) -> dict:
    try:
        made = agents["a"]
    except KeyError:
        made = agents["a"] = create_agent(model)
    return {"messages": made.invoke(state)["messages"][-1:]}


def of_node(node: Any, schema: Any = MessagesState) -> list[str]:
    made = StateGraph(schema).add_node("node", node).add_edge(START, "node").compile()
    return [one.code for one in examine(made, select=["AB5"]).findings]


def test_a_node_that_makes_an_agent():
    assert of_node(compiles) == ["AB504"]
    assert [of_node(node) for node in (compiles_for_this_state, made_once, made_once_in_a_dict)] == [[]] * 3


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


def chosen(state: MessagesState) -> dict:
    return {"messages": [one for one in state["messages"] if one.type != "tool"]}


def copied(state: MessagesState) -> dict:
    kept = state["messages"][-3:]
    return {"messages": list(kept)}


def asked_and_kept(state: MessagesState) -> dict:
    kept = state["messages"][-3:]
    return {"messages": [*kept, model.invoke(kept)]}


def handed_on(state: MessagesState) -> dict:
    return {"messages": state["messages"][-1:]}


def everything(state: MessagesState) -> dict:
    return {"messages": state["messages"][:]}


def marked(state: MessagesState) -> dict:
    seen = state["messages"][-3:]
    for one in seen:
        one.additional_kwargs["seen"] = True
    return {"messages": seen}


def from_a_mark_on(state: MessagesState) -> dict:
    first = len(state["messages"]) // 2
    return {"messages": state["messages"][first:]}


def changed_ones(state: MessagesState) -> dict:
    return {"messages": [one.model_copy(update={"name": "a"}) for one in state["messages"][-3:]]}


def fan_out(state: MessagesState) -> list[Send]:
    return [Send("work", {"messages": [AIMessage("x"), AIMessage(str(number)), AIMessage("y")]}) for number in range(2)]


def test_what_send_carries_is_not_the_state():
    made = StateGraph(MessagesState).add_node("work", last_two).add_conditional_edges(START, fan_out, ["work"]).compile()
    assert [one.code for one in examine(made, select=["AB502"]).findings] == []
    assert [one.content for one in made.invoke({"messages": [("user", "hi")]})["messages"]] == ["hi", "0", "y", "1", "y"]


def test_what_is_chosen_copied_or_read_on_the_way_removes_nothing_either():
    assert [of_node(node) for node in (chosen, copied, asked_and_kept)] == [["AB502"]] * 3


def test_what_is_handed_on_or_changed_is_no_trimming():
    assert [of_node(node) for node in (handed_on, everything, marked, from_a_mark_on, changed_ones)] == [[]] * 5


def test_what_removes_nothing():
    assert [of_node(node) for node in (last_two, trimmed_and_new, last_and_new)] == [["AB502"]] * 3
    assert [of_node(node) for node in (removed_first, removed_behind, only_for_the_model, last_of_the_answer)] == [[]] * 4


def test_without_add_messages_the_rest_is_gone():
    assert of_node(last_two, Replaced) == []
    assert of_node(last_two, Kept) == []
