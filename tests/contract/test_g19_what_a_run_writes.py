"""G19 for what an application's own code writes through the hub while a run goes on; and who holds a thread."""

from __future__ import annotations

from typing import Any

import pytest

from abreast import ConfigurationError, LeaseLostError, Transaction, agent, update, user
from abreast.testing import calls
from planner import CONTEXT, Plan
from talk import CORNERS, TOOL_CALL, Talk, write_tool
from toolcalls import ask, events, read


def lose(talk: Talk, thread: str = "t") -> None:
    """Another run takes the thread."""
    table = "abreast_lease" if talk.engine.dialect.name == "sqlite" else "abreast.lease"
    talk.sql(f"update {table} set token = token + 1, run = 'another' where thread = '{thread}'")


def test_g19_who_holds_a_thread_can_be_asked(database, hubs, door):
    talk = Talk(database, hubs, door)
    seen: list[Any] = []

    def answer(_: Any) -> str:
        seen.append(talk.hub.blocking.holder("t"))
        return "an answer"

    talk.say(answer)
    assert door(talk.hub).holder("t") is None
    result = talk.run()
    (held,) = seen
    assert (held.thread, held.run) == ("t", result.run)
    assert 0 < held.seconds <= 30
    assert door(talk.hub).holder("t") is None


@CORNERS
def test_g19_a_run_that_died_holds_its_thread_no_longer_than_its_lease(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    lose(talk)
    assert door(talk.hub).holder("t").run == "another"
    talk.expire()
    assert door(talk.hub).holder("t") is None


@CORNERS
@pytest.mark.parametrize("thread", [None, "t"], ids=["unnamed", "its own"])
@pytest.mark.parametrize("block", [False, True], ids=["apply", "write"])
def test_g19_what_a_tool_writes_through_the_hub_is_its_runs(database, hubs, door, block, thread):
    """Nobody has to hand the lease on."""
    talk = Talk(database, hubs, door)

    def write() -> None:
        lose(talk)
        if block:
            with talk.hub.write("w1", actor=agent(), thread=thread) as tx:
                tx.get(Plan, "p1").title = "too late"
        else:
            talk.hub.blocking.apply("w1", update(Plan, "p1", title="too late"), actor=agent(), thread=thread)

    talk.say(TOOL_CALL, "an answer")
    with pytest.raises(LeaseLostError) as raised:
        talk.run(agent=talk.build([write_tool(write)]))
    assert raised.value.thread == "t"
    assert (talk.head(), read(talk).values["title"]) == (3, "Mapo")


@CORNERS
def test_g19_a_write_for_another_conversation_is_not_this_runs(database, hubs, door):
    talk = Talk(database, hubs, door)

    def write() -> None:
        lose(talk)
        talk.hub.blocking.apply("w1", update(Plan, "p1", title="theirs"), actor=user("u_1"), thread="other")

    talk.say(TOOL_CALL, "an answer")
    with pytest.raises(LeaseLostError):
        talk.run(agent=talk.build([write_tool(write)]))
    assert read(talk).values["title"] == "theirs"


@CORNERS
def test_g19_nothing_outside_a_run_has_a_lease(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    lose(talk)
    door(talk.hub).apply("w1", update(Plan, "p1", title="the screen's"), actor=user("u_1"), thread="t")
    assert read(talk).values["title"] == "the screen's"


@CORNERS
def test_g5_an_agent_can_write_on_behalf_of_whom_its_run_is_for(database, hubs, door):
    talk = Talk(database, hubs, door)
    tools = talk.hub.tools(actor=lambda context: agent(f"assistant of {context.user}"))

    @talk.hub.tool(actor=lambda context: agent(f"planner of {context.user}"))
    def rename(tx: Transaction, title: str) -> dict[str, str]:
        """Rename the plan."""
        tx.get(Plan, "p1").title = title
        return {"title": title}

    answers = ask(
        talk,
        calls("update_plan", id="p1", version=1, title="new"),
        calls("rename", call_id="c2", title="newer"),
        tools=[*tools, rename],
    )
    assert [status for _, status in answers] == ["success", "success"]
    assert [event.actor for event in events(talk)[:2]] == [
        agent(f"planner of {CONTEXT.user}"),
        agent(f"assistant of {CONTEXT.user}"),
    ]


@CORNERS
def test_g5_who_an_agent_writes_for_is_an_actor(database, hubs, door, caplog):
    talk = Talk(database, hubs, door)
    answers = ask(
        talk, calls("update_plan", id="p1", version=1, title="new"), tools=talk.hub.tools(actor=lambda context: context.user)
    )
    assert answers[0][1] == "error"
    assert read(talk).values["title"] == "Mapo"
    assert any(record.exc_info and record.exc_info[0] is ConfigurationError for record in caplog.records)
