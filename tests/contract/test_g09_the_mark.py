"""G9: the conversation's own history says what it was told, so a rewound or forked history is told again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from abreast import MarkError, RunContext
from abreast.langgraph import SyncState
from abreast.testing import ScriptedModel, calls
from planner import CONTEXT
from talk import CORNERS, TOOL_CALL, Broken, Talk, snapshots, update, write_tool

APPROVE = Command(resume={"decisions": [{"type": "approve"}]})
NOTICE = "This conversation began before its changes were followed"


def at(snapshot: Any) -> dict[str, Any]:
    """The configuration that begins at this checkpoint."""
    return {"configurable": {**snapshot.config["configurable"], "checkpoint_ns": ""}}


def test_g9_the_mark_stands_in_the_checkpoint_of_the_answer(database, hubs, door, checkpointer):
    talk = Talk(database, hubs, door, TOOL_CALL, "done", saver=checkpointer)
    agent = talk.build([write_tool(talk.change)])
    result = talk.run(agent=agent)
    seen = [(one.values["messages"], one.values.get("abreast_told")) for one in reversed(snapshots(door, agent)) if one.values]
    marked = [(messages[-1].type, [entry[:3] for entry in (mark or {}).values()]) for messages, mark in seen if messages]
    assert marked == [
        ("human", []),
        ("ai", [[result.run, 3, 3]]),
        ("tool", [[result.run, 3, 3]]),
        ("ai", [[result.run, 3, 4]]),
    ]


@CORNERS
def test_g9_a_call_that_fails_leaves_the_mark_as_it_was(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    before = talk.mark()
    talk.change()
    talk.say(Broken())
    with pytest.raises(Broken):
        talk.run()
    assert talk.mark() == before


# -- forks and rewinds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runner", [True, False], ids=["hub.run", "invoke"])
def test_g9_a_fork_is_told_again(database, hubs, door, checkpointer, runner):
    """From the first answer on; the stored cursor stays where the furthest run has brought it."""
    talk = Talk(database, hubs, door, saver=checkpointer)
    go = talk.run if runner else talk.invoke
    go()
    first = snapshots(door, talk.agent)[0]
    for title in ("one", "two"):
        talk.change(title)
        go()
    place = talk.place()
    talk.sql("update item set done = true where id = 1")
    if runner:
        talk.run("Once more?", config=at(first))
    else:
        talk.invoke("Once more?", checkpoint_id=first.config["configurable"]["checkpoint_id"], checkpoint_ns="")
    assert (talk.revisions(), talk.current()["plan"][0]["title"]) == ([5, 6], "two")
    assert 'title is now "two" (was "Mapo")' in talk.block()
    assert talk.place() == (6 if runner else place)
    go("And now?")
    assert (talk.revisions(), talk.place()) == ([], 6)


@CORNERS
def test_g9_a_rewound_history_is_told_again(database, hubs, door, checkpointer):
    """`update_state` on an old checkpoint makes a new one, which keeps the old mark."""
    talk = Talk(database, hubs, door, saver=checkpointer)
    talk.run()
    first = snapshots(door, talk.agent)[0]
    talk.change()
    talk.run()
    update(door, talk.agent, at(first), {"messages": [HumanMessage("let me think")]}, as_node="model")
    talk.run("Once more?")
    assert talk.revisions() == [4]


@CORNERS
def test_g9_a_fork_in_the_middle_of_a_run_is_told_what_that_run_was(database, hubs, door, checkpointer):
    """Its history holds no answer that the run's changes went into."""
    talk = Talk(database, hubs, door, saver=checkpointer)
    agent = talk.build([write_tool(lambda: None)])
    talk.run(agent=agent)
    talk.change()
    talk.say(TOOL_CALL, "done")
    assert talk.run(agent=agent).told == {"w1": 4}
    asked = next(one for one in snapshots(door, agent) if one.next == ("tools",))
    result = talk.run(None, agent=agent, config=at(asked))
    assert (talk.revisions(), result.told) == ([4], {"w1": 4})
    talk.run(agent=agent)
    assert talk.revisions() == []


# -- without the runner ------------------------------------------------------------------------------------------------


class Verdict(BaseModel):
    """A structured answer."""

    day: str


class Plain(TypedDict):
    """A structured answer whose value does not know its schema's name."""

    day: str


@tool(return_direct=True)
def direct() -> str:
    """Answers by itself."""
    return "the tool's own answer"


ANSWERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": ("an answer", {}),
    "structured": (calls("Verdict", day="Monday"), {"response_format": ToolStrategy(Verdict)}),
    "a dictionary": (calls("Plain", day="Monday"), {"response_format": ToolStrategy(Plain)}),
    "a tool's own": (calls("direct"), {"tools": [direct]}),
}


@CORNERS
@pytest.mark.parametrize("answer", ANSWERS)
def test_g9_the_next_run_confirms_what_a_finished_answer_shows(database, hubs, door, answer):
    """Nobody judged the run when it ended; its answer in the history is the proof."""
    said, settings = ANSWERS[answer]
    talk = Talk(database, hubs, door)
    talk.invoke()
    talk.change()
    agent = talk.build(**settings)
    talk.say(said)
    talk.invoke(agent=agent)
    assert (talk.revisions(), talk.place()) == ([4], 3)
    talk.invoke()
    assert (talk.revisions(), talk.place()) == ([], 4)


@CORNERS
@pytest.mark.parametrize("ending", ["raises", "raises after a tool", "empty", "paused", "closed early"])
def test_g9_a_run_without_a_finished_answer_confirms_nothing(database, hubs, door, ending):
    talk = Talk(database, hubs, door)
    talk.invoke()
    talk.change()
    before = [HumanInTheLoopMiddleware({"write": True})] if ending == "paused" else []
    agent = talk.build([write_tool(lambda: None)], before)
    scripts: dict[str, list[Any]] = {
        "raises": [Broken()],
        "raises after a tool": [TOOL_CALL, Broken()],
        "empty": [""],
        "paused": [TOOL_CALL],
        "closed early": [TOOL_CALL],
    }
    talk.say(*scripts[ending])
    if "raises" in ending:
        with pytest.raises(Broken):
            talk.invoke(agent=agent)
    elif ending == "closed early":
        close_early(door, agent)
    else:
        talk.invoke(agent=agent)
    assert talk.revisions() == [4]
    for _ in range(2):
        talk.invoke("go on")
        assert talk.place() in (3, 4)
        assert talk.revisions() == ([4] if talk.place() == 3 else [])
    assert talk.place() == 4


def close_early(door: Any, agent: Any) -> None:
    """A client that goes away behind the first step."""
    given: Any = {"messages": [("user", "q")]}
    config: Any = {"configurable": {"thread_id": "t"}}
    if door.kind == "sync":
        stream = agent.stream(given, config, context=CONTEXT, stream_mode="updates")
        next(stream)
        stream.close()
        return

    async def go() -> None:
        stream = agent.astream(given, config, context=CONTEXT, stream_mode="updates")
        await anext(stream)
        await stream.aclose()

    door.wait(go())


@CORNERS
def test_g9_a_sub_agent_confirms_nothing(database, hubs, door):
    """Its history proves nothing about what the conversation has dealt with."""
    talk = Talk(database, hubs, door)
    inner = create_agent(ScriptedModel(), middleware=[talk.hub.middleware()], context_schema=RunContext, checkpointer=True)

    def ask() -> None:
        inner.invoke({"messages": [("user", "inner question")]}, context=CONTEXT)

    agent = talk.build([write_tool(ask)])
    talk.say(TOOL_CALL, "done")
    talk.invoke(agent=agent)
    talk.change()
    talk.say(TOOL_CALL, Broken(), TOOL_CALL, Broken())
    for _ in range(2):
        with pytest.raises(Broken):
            talk.invoke(agent=agent)
        assert talk.place() == 3


@CORNERS
def test_g9_runs_that_no_person_asked_for_are_told_apart_too(database, hubs, door):
    """A job speaks to the agent in system messages."""
    talk = Talk(database, hubs, door)
    for n in (3, 4, 5):
        talk.invoke({"messages": [("system", "Report.")]})
        assert talk.revisions() == ([n] if n > 3 else [])
        talk.change(str(n))


@CORNERS
def test_g9_runs_with_and_without_the_runner_may_follow_each_other(database, hubs, door):
    talk = Talk(database, hubs, door)
    told = []
    for go in (talk.run, talk.invoke, talk.run, talk.invoke, talk.invoke, talk.run):
        go()
        told.append((talk.revisions(), talk.place()))
        talk.change(f"change {len(told)}")
    assert told == [([], 3), ([4], 3), ([5], 5), ([6], 5), ([7], 6), ([8], 8)]


# -- without a checkpointer --------------------------------------------------------------------------------------------


@CORNERS
def test_g9_without_a_checkpointer_only_the_stored_cursor_counts(database, hubs, door):
    talk = Talk(database, hubs, door, saver=None)
    talk.run()
    talk.change()
    history = [HumanMessage("q"), AIMessage("a"), HumanMessage("and now?")]
    assert talk.run(history).told == {"w1": 4}
    assert (talk.revisions(), NOTICE in talk.block()) == ([4], False)
    talk.change("again")
    talk.say(Broken())
    with pytest.raises(Broken):
        talk.run(history)
    talk.run(history)
    assert (talk.revisions(), talk.place()) == ([5], 5)


@CORNERS
def test_g9_without_checkpointer_and_runner_every_call_starts_at_head(database, hubs, door):
    """There is nowhere to keep a place; earlier answers are said to be possibly out of date each time."""
    talk = Talk(database, hubs, door, saver=None)
    for thread in (None, "t"):
        talk.invoke(thread=thread)
        assert (talk.revisions(), NOTICE in talk.block()) == ([], False)
        talk.change(str(thread))
        talk.invoke({"messages": [HumanMessage("q"), AIMessage("a"), HumanMessage("and now?")]}, thread=thread)
        assert (talk.revisions(), NOTICE in talk.block()) == ([], True)
        assert talk.place() is None


# -- where it is seen, and what is not believed ------------------------------------------------------------------------


def hand_made(talk: Talk, **settings: Any) -> Any:
    """A graph of one model node."""

    def model(state: SyncState, config: RunnableConfig) -> dict[str, Any]:
        call = talk.hub.blocking.prepare(state, config, context=CONTEXT)
        return call.answered(talk.model.invoke(call.messages))

    graph = StateGraph(SyncState, context_schema=RunContext)
    graph.add_node("model", model)
    graph.add_edge("__start__", "model")
    return graph.compile(checkpointer=talk.saver, **settings)


@CORNERS
def test_g9_the_mark_is_in_no_output_and_no_schema(database, hubs, door):
    talk = Talk(database, hubs, door)
    assert set(talk.invoke()) == {"messages"}
    assert set(talk.run().state) == {"messages"}
    for schema in (talk.agent.get_input_jsonschema(), talk.agent.get_output_jsonschema()):
        assert "abreast_told" not in json.dumps(schema)
    assert set(talk.run(agent=hand_made(talk), thread="graph").state) == {"messages"}
    assert talk.mark("graph")


@CORNERS
def test_g9_a_mark_in_the_input_is_ignored(database, hubs, door):
    """Believed, it would make the next run start at HEAD."""
    talk = Talk(database, hubs, door)

    def forged() -> dict[str, Any]:
        return {"messages": [("user", "q")], "abreast_told": {"w1": ["r", 0, talk.head(), 0, 0, 0]}}

    for thread, agent in (("agent", talk.agent), ("graph", hand_made(talk))):
        talk.run(thread=thread, agent=agent)
        talk.change(thread)
        talk.run(forged(), thread=thread, agent=agent)
        assert talk.revisions() == [talk.head()]
    talk.invoke(thread="alone")
    talk.change("alone")
    talk.invoke(forged(), thread="alone")
    assert talk.revisions() == [talk.head()]


@CORNERS
def test_g9_a_damaged_mark_is_an_error_that_says_what_to_do(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    config = {"configurable": {"thread_id": "t"}}
    update(door, talk.agent, config, {"abreast_told": {"w1": ["r", "three"]}}, as_node="model")
    asked = len(talk.model.requests)
    for go in (talk.run, talk.invoke):
        with pytest.raises(MarkError, match=r"damaged.*'three'.*abreast_told"):
            go()
    assert (len(talk.model.requests), talk.place()) == (asked, 3)


# -- several workspaces ------------------------------------------------------------------------------------------------


def of(*workspaces: str) -> RunContext:
    """A context of these workspaces."""
    return RunContext("t1", "u_1", ",".join(workspaces))


@CORNERS
def test_g9_a_workspace_that_a_conversation_begins_to_follow_starts_at_head(database, hubs, door):
    talk = Talk(database, hubs, door, workspaces=lambda context: context.workspace.split(","))
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w2', 'Jongno')")
    talk.run(context=of("w1"))
    talk.change("in w1")
    talk.sql("update plan set title = 'before it was followed' where id = 'p2'")
    result = talk.run(context=of("w1", "w2"))
    assert ("In workspace w1:\nr4, " in talk.block(), talk.revisions()) == (True, [4])
    assert result.told == {"w1": 4, "w2": 2}
    assert {w: entry[1:3] for w, entry in talk.mark().items()} == {"w1": [3, 4], "w2": [2, 2]}
    talk.sql("update plan set title = 'since' where id = 'p2'")
    assert talk.run(context=of("w2", "w1")).told == {"w1": 4, "w2": 3}
    assert "In workspace w2:\nr3, " in talk.block()
    # A history that never heard of w2 begins to follow it now, whatever is stored.
    first = next(one for one in reversed(snapshots(door, talk.agent)) if one.values.get("abreast_told"))
    talk.sql("update plan set title = 'once more' where id = 'p2'")
    talk.run(context=of("w1", "w2"), config=at(first))
    assert ("In workspace w2" in talk.block(), talk.revisions()) == (False, [4])


@CORNERS
def test_g9_the_mark_of_another_workspace_is_left_alone(database, hubs, door):
    """A conversation may turn to another workspace and come back."""
    talk = Talk(database, hubs, door)
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w2', 'Jongno')")
    talk.run(context=of("w1"))
    talk.change("in w1")
    assert talk.run(context=of("w2")).told == {"w2": 1}
    assert talk.revisions() == []
    assert talk.run(context=of("w1")).told == {"w1": 4}
    assert (talk.revisions(), talk.place(), talk.place(workspace="w2")) == ([4], 4, 1)
