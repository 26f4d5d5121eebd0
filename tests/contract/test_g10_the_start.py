"""G10: where a conversation starts, what an old one is told once, and how the limit counts."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Command

from abreast import ConfigurationError, RunContext
from talk import CORNERS, TOOL_CALL, Broken, Talk, update, write_tool

NOTICE = "This conversation began before its changes were followed: earlier answers may be out of date. Go by CURRENT."


@pytest.mark.parametrize("runner", [True, False], ids=["hub.run", "invoke"])
def test_g10_a_new_conversation_starts_at_head(database, hubs, door, runner):
    talk = Talk(database, hubs, door)
    talk.change()
    (talk.run if runner else talk.invoke)()
    assert "CHANGES" not in talk.block()
    assert talk.current()["plan"][0]["title"] == "changed"
    assert talk.mark()["w1"][1:3] == [4, 4]
    assert talk.place() == (4 if runner else None)


def old_conversation(talk: Talk) -> None:
    """A history from before the hub: an agent of the same model and saver without the middleware."""
    before = create_agent(talk.model, context_schema=RunContext, checkpointer=talk.saver)
    talk.invoke(agent=before)


@pytest.mark.parametrize("runner", [True, False], ids=["hub.run", "invoke"])
def test_g10_an_old_conversation_is_told_once_that_it_may_be_out_of_date(database, hubs, door, runner):
    """Once means in one run: each of its calls is told, because the answer comes out of the last."""
    talk = Talk(database, hubs, door)
    old_conversation(talk)
    talk.change()
    talk.say(TOOL_CALL, "done")
    go = talk.run if runner else talk.invoke
    go(agent=talk.build([write_tool(lambda: None)]))
    assert [NOTICE in talk.block(n) for n in (0, 1, 2)] == [False, True, True]
    assert talk.revisions() == []  # nobody knows what it was told; it starts at HEAD
    talk.change("later")
    go()
    assert (NOTICE in talk.block(), talk.revisions()) == (False, [5])


@CORNERS
def test_g10_the_notice_is_told_again_until_a_run_ends_in_an_answer(database, hubs, door):
    talk = Talk(database, hubs, door)
    old_conversation(talk)
    talk.say(Broken())
    with pytest.raises(Broken):
        talk.run()
    agent = talk.build([write_tool(lambda: None)], before=[HumanInTheLoopMiddleware({"write": True})])
    talk.say(TOOL_CALL, "done")
    assert talk.run(agent=agent).status == "awaiting_approval"
    assert talk.run(Command(resume={"decisions": [{"type": "approve"}]}), agent=agent).status == "succeeded"
    assert [NOTICE in talk.block(n) for n in (1, 2, 3)] == [True, True, True]
    talk.run()
    assert NOTICE not in talk.block()


@CORNERS
def test_g10_an_imported_history_is_an_old_one(database, hubs, door):
    talk = Talk(database, hubs, door)
    config = {"configurable": {"thread_id": "t"}}
    update(door, talk.agent, config, {"messages": [HumanMessage("q"), AIMessage("28 September")]}, as_node="model")
    talk.run()
    assert NOTICE in talk.block()


@CORNERS
def test_g10_the_input_of_a_first_run_is_no_history(database, hubs, door):
    """However many messages it has, and whoever runs it."""
    talk = Talk(database, hubs, door)
    talk.run([HumanMessage("context"), AIMessage("understood"), HumanMessage("q")])
    assert NOTICE not in talk.block()
    talk.invoke({"messages": [("system", "be brief"), ("user", "one"), ("user", "two")]}, thread="alone")
    assert NOTICE not in talk.block()


@CORNERS
def test_g10_the_limit_counts_events_before_they_are_folded(database, hubs, door):
    """Sixty changes of one field are one line, and still two batches."""
    talk = Talk(database, hubs, door)
    talk.run()
    for n in range(60):
        talk.change(f"title {n}")
    assert (talk.run().told, talk.revisions()) == ({"w1": 53}, [53])
    assert "\n10 more changes are not listed here; CURRENT holds what they led to." in talk.block()
    assert 'title is now "title 59" (was "Mapo")' in talk.block()
    assert (talk.run().told, talk.revisions()) == ({"w1": 63}, [63])
    assert 'title is now "title 59" (was "title 49")' in talk.block()


@CORNERS
def test_g10_a_runs_batch_grows_only_up_to_the_limit(database, hubs, door):
    talk = Talk(database, hubs, door, limit=3)
    talk.run()
    talk.sql("update item set done = true")  # two rows, two events
    agent = talk.build([write_tool(lambda: [talk.sql(f"update item set title = '{n}'") for n in range(3)])])
    talk.say(TOOL_CALL, "done")
    assert talk.run(agent=agent).told == {"w1": 6}
    assert [talk.revisions(1), talk.revisions(2)] == [[4, 5], [4, 5, 6]]
    assert [talk.run().told for _ in range(3)] == [{"w1": 9}, {"w1": 11}, {"w1": 11}]


@pytest.mark.parametrize("limit", [0, -1])
def test_g10_a_limit_of_none_is_refused(sqlite, hubs, limit):
    with pytest.raises(ConfigurationError, match="at least 1"):
        hubs(sqlite, limit=limit)


# More than `limit` consecutive events of one type, operation and actor as one line (an import) is a later step.
