"""The hub's saver against LangGraph's own: the same results, and behind them the fence of G19.

Both write through their own methods into tables of their own, or one after the other into the same ones.
"""

from __future__ import annotations

import json
from operator import add
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Interrupt, Send, interrupt
from typing_extensions import TypedDict

from abreast import LeaseLostError
from abreast.testing import ScriptedModel
from planner import CONTEXT, planner
from saved import PLACE, TOKEN, Savers, stock_place
from talk import CORNERS, TOOL_CALL, Broken, Talk, snapshots, update, write_tool


def everything(one: Savers) -> list[Any]:
    """What a saver answers to all that it can be asked."""
    first = one.put(1, source_of="first", user="u_1")
    second = one.put(2, first)
    third = one.put(3, second, user="u_1")
    one.put(4, None, ns="sub:1")
    one.put(3, second, user="u_2")  # the same again: the newer one stays
    here = one.config(checkpoint_id=second)
    one.call("put_writes", here, [("n", 5), ("list", ["a"])], "task_1", "~path")
    one.call("put_writes", here, [("n", 6), ("list", ["b"])], "task_1", "~path")  # again: the first stays
    one.call("put_writes", here, [("__error__", "first")], "task_2")
    one.call("put_writes", here, [("__error__", "second")], "task_2")  # of these kinds the newer one stays
    found = [
        one.get(),
        one.get(checkpoint_id=first),
        one.get(checkpoint_id=second),
        one.get(checkpoint_id=third),
        one.get(checkpoint_id="nowhere"),
        one.get(checkpoint_ns="sub:1"),
        one.get(checkpoint_ns="nowhere"),
        one.list(one.config()),
        one.list({"configurable": {"thread_id": one.thread}}),
        one.list(one.config(), limit=2),
        one.list(one.config(), limit=0),
        one.list(one.config(), filter={"user": "u_2"}),
        one.list(one.config(), filter={"user": "u_1", "step": 1}),
        one.list(one.config(), before=one.config(checkpoint_id=third)),
        one.list(one.config(), before=one.config(checkpoint_id=third), limit=1),
        one.list(None),
        one.list(None, filter={"step": 4}),
        [one.saver.get_next_version(given, None).split(".")[0] for given in (None, 3, "00000000000000000000000000000007.5")],
    ]
    one.call("delete_thread", one.thread)
    return [*found, one.get(), one.list(one.config()), one.list(None)]


def test_g19_the_saver_answers_as_langgraphs_own(database, hub, door, checkpointer, held):
    ours = hub.checkpointer()
    right = {TOKEN: held(hub, "ours").config["configurable"][TOKEN]}
    assert everything(Savers(ours, door, "ours", right)) == everything(Savers(checkpointer, door, "stock"))


def test_g19_either_reads_what_the_other_wrote(database, hub, door, checkpointer, held, tmp_path):
    """In the same file or database, so that one may go over to the hub's saver, and back."""
    ours = hub.checkpointer(stock_place(database, tmp_path))
    right = {TOKEN: held(hub, "t").config["configurable"][TOKEN]}
    mine, stock = Savers(ours, door, "t", right), Savers(checkpointer, door, "t")
    first = stock.put(1)
    stock.call("put_writes", stock.config(checkpoint_id=first), [("n", 1)], "task")
    mine.call("put_writes", mine.config(checkpoint_id=mine.put(2, first)), [("n", 2)], "task")
    stock.put(3, "00000002")
    assert mine.list(mine.config()) == stock.list(stock.config())
    assert [len(one[4]) for one in mine.list(mine.config())] == [0, 1, 1]
    for place in ("00000001", "00000002", "00000003"):
        assert mine.get(checkpoint_id=place) == stock.get(checkpoint_id=place)


# -- graphs ------------------------------------------------------------------------------------------------------------


class _State(TypedDict):
    said: Annotated[list[str], add]


def _inner(**options: Any) -> Any:
    graph = StateGraph(_State)
    graph.add_node("asked", lambda state: {"said": [f"inner heard {interrupt('how many?')}"]})
    graph.add_node("after", lambda state: {"said": [f"inner knows {len(state['said'])}"]})
    graph.add_edge(START, "asked")
    graph.add_edge("asked", "after")
    return graph.compile(**options)


def _graph(saver: Any, *, remembers: bool = False) -> Any:
    """Parallel nodes, a sub-graph with a namespace of its own, an interrupt in it, and sends."""
    graph = StateGraph(_State)
    graph.add_node("left", lambda state: {"said": ["left"]})
    graph.add_node("right", lambda state: {"said": ["right"]})
    graph.add_node("inner", _inner(checkpointer=True) if remembers else _inner())
    graph.add_node("one", lambda state: {"said": [f"one of {state['of']}"]})
    graph.add_edge(START, "left")
    graph.add_edge(START, "right")
    graph.add_edge(["left", "right"], "inner")
    graph.add_conditional_edges("inner", lambda state: [Send("one", {"of": n}) for n in (1, 2)], ["one"])
    graph.add_edge("one", END)
    return graph.compile(checkpointer=saver)


def _plain(snapshot: Any, known: dict[str, str]) -> Any:
    """A snapshot without what is different each time: ids of checkpoints and tasks get numbers as they appear.

    What comes next in a round that follows another is left out: LangGraph's version numbers end in chance, and it depends.
    """

    def number(config: Any) -> Any:
        found = (config or {}).get("configurable", {})
        place = found.get("checkpoint_id")
        space = [part.split(":")[0] for part in str(found.get("checkpoint_ns", "")).split("|")]
        return None if place is None else (known.setdefault(place, str(len(known))), space)

    metadata = {key: value for key, value in snapshot.metadata.items() if key in ("source", "step")}
    tasks = [
        (task.name, task.error, [one.value for one in task.interrupts], task.result)
        for task in snapshot.tasks
        if task.result or task.interrupts
    ]
    return (snapshot.values, metadata, sorted(tasks, key=str), number(snapshot.config), number(snapshot.parent_config))


@pytest.mark.parametrize("remembers", [False, True], ids=["one call", "checkpointer=True"])
def test_g19_histories_namespaces_interrupts_and_updates_are_those_of_langgraphs_saver(hub, door, checkpointer, held, remembers):
    """The same graph, asked the same: a pause inside a sub-graph, a resume, two rounds, an update, a fork of an old state."""
    found = []
    for thread, saver in (("ours", hub.checkpointer()), ("stock", checkpointer)):
        graph = _graph(saver, remembers=remembers)
        config = held(hub, thread).config if thread == "ours" else {"configurable": {"thread_id": thread}}
        known: dict[str, str] = {}
        seen: list[Any] = []
        for answer in ("three", "four"):
            paused = door.invoke(graph, {"said": ["round"]}, config)
            assert [type(one) for one in paused["__interrupt__"]] == [Interrupt]
            get = {"subgraphs": True}
            inside = graph.get_state(config, **get) if door.kind == "sync" else door.wait(graph.aget_state(config, **get))
            seen.append([_plain(one.state, known)[:3] for one in inside.tasks])
            seen.append(door.invoke(graph, Command(resume=answer), config))
        update(door, graph, config, {"said": ["by hand"]}, as_node="one")
        seen.append([_plain(one, known) for one in snapshots(door, graph, thread)])
        old = next(one for one in snapshots(door, graph, thread) if one.next == ("inner",))
        place = {"configurable": {**config["configurable"], **old.config["configurable"]}}
        door.invoke(graph, None, place)
        door.invoke(graph, Command(resume="five"), config)
        seen.append(door.state(graph, config).values)
        seen.append([_plain(one, known) for one in snapshots(door, graph, thread)])
        found.append(json.loads(json.dumps(seen, default=str)))
    for ours, stock in zip(*found, strict=True):
        for one, other in zip(ours, stock, strict=True):
            assert one == other
    assert "inner heard five" in found[0][-2]["said"]
    assert len(found[0][-1]) > 12


@CORNERS
def test_g19_a_conversation_of_langgraphs_saver_goes_on(database, hubs, door, checkpointer, tmp_path):
    talk = Talk(database, hubs, door, "the first answer", "the second answer", saver=checkpointer)
    talk.run("first")
    talk.saver = talk.hub.checkpointer(stock_place(database, tmp_path))
    talk.agent = talk.build()
    talk.change("meanwhile")
    result = talk.run("second")
    assert [m.text for m in result.state["messages"]] == ["first", "the first answer", "second", "the second answer"]
    assert talk.revisions() == [4]  # the mark of before counts
    talk.saver = checkpointer
    assert len(door.state(talk.build(), {"configurable": {"thread_id": "t"}}).values["messages"]) == 4


@CORNERS
def test_g19_an_approval_waits_in_the_saver(database, hubs, door):
    done: list[str] = []
    talk = Talk(database, hubs, door, TOOL_CALL, "an answer")
    talk.saver = talk.hub.checkpointer()
    gate = HumanInTheLoopMiddleware({"write": True})
    agent = talk.build([write_tool(lambda: done.append("written"))], before=[gate])
    assert (talk.run(agent=agent).status, done) == ("awaiting_approval", [])
    approved = Command(resume={"decisions": [{"type": "approve"}]})
    result = talk.run(approved, agent=agent)
    assert (result.status, result.answer, done) == ("succeeded", "an answer", ["written"])


@CORNERS
def test_g19_what_finished_beside_a_step_that_failed_is_kept(database, hubs, door):
    """Pending writes: of two nodes side by side one fails; the other is not called again."""
    done: list[str] = []
    failures = [Broken()]

    def write(state: Any) -> Any:
        done.append("written")
        return {"said": ["written"]}

    def fail(state: Any) -> Any:
        if failures:
            raise failures.pop()
        return {"said": ["failed no more"]}

    graph = StateGraph(_State)
    for name, function in (("write", write), ("fail", fail)):
        graph.add_node(name, function)
        graph.add_edge(START, name)
    hub = planner(database, hubs)[0]
    made = graph.compile(checkpointer=hub.checkpointer())
    with pytest.raises(Broken):
        door(hub).run(made, {"said": ["go"]}, thread="t", context=CONTEXT)
    pending = [write for task in door.state(made, PLACE).tasks for write in (task.result or {}).get("said", [])]
    door(hub).run(made, None, thread="t", context=CONTEXT)
    assert (sorted(door.state(made, PLACE).values["said"][1:]), done) == (["failed no more", "written"], ["written"])
    assert pending == ["written"]


@CORNERS
def test_g19_answers_of_parallel_tools_are_all_kept(database, hubs, door):
    names = [f"write_{n}" for n in range(5)]
    both = AIMessage("", tool_calls=[{"name": name, "args": {}, "id": name} for name in names])
    talk = Talk(database, hubs, door, both, "an answer")
    talk.saver = talk.hub.checkpointer()
    agent = talk.build([write_tool(lambda: None, name) for name in names])
    talk.run(agent=agent)
    messages = door.state(agent, {"configurable": {"thread_id": "t"}}).values["messages"]
    assert [m.tool_call_id for m in messages if m.type == "tool"] == names


@CORNERS
def test_g19_a_run_may_begin_at_an_older_checkpoint(database, hubs, door):
    talk = Talk(database, hubs, door, "one", "two", "three")
    talk.saver = talk.hub.checkpointer()
    talk.agent = talk.build()
    talk.run("first")
    then = talk.door.state(talk.agent, {"configurable": {"thread_id": "t"}}).config["configurable"]["checkpoint_id"]
    talk.run("second")
    result = talk.run("other", config={"configurable": {"checkpoint_id": then}})
    assert [m.text for m in result.state["messages"]] == ["first", "one", "other", "three"]
    assert len(door.state(talk.agent, {"configurable": {"thread_id": "t"}}).values["messages"]) == 4
    assert len(snapshots(door, talk.agent)) == 9


@CORNERS
def test_g19_a_sub_agent_with_checkpoints_of_its_own_writes_under_its_parents_token(database, hubs, door):
    """It remembers between runs; both namespaces are behind the fence."""
    hub = planner(database, hubs)[0]
    saver = hub.checkpointer()
    graph = StateGraph(MessagesState)
    graph.add_node("inner", create_agent(ScriptedModel("one", "two"), checkpointer=True, name="inner"))
    graph.add_edge(START, "inner")
    made = graph.compile(checkpointer=saver)
    for question in ("first", "second"):
        door(hub).run(made, question, thread="t", context=CONTEXT)
    found = list(saver.list(PLACE))
    assert {one.config["configurable"]["checkpoint_ns"] for one in found} == {"", "inner"}
    inside = next(one for one in found if one.config["configurable"]["checkpoint_ns"] == "inner")
    assert [m.text for m in inside.checkpoint["channel_values"]["messages"]] == ["first", "one", "second", "two"]
    one = Savers(saver, door, "t", {TOKEN: ("t", 1)})
    for space in ("", "inner"):
        with pytest.raises(LeaseLostError):
            one.put(1, ns=space)
