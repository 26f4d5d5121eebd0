"""G19 for what an application's own code writes through the hub while a run goes on; and who holds a thread."""

from __future__ import annotations

from contextvars import Context, copy_context
from typing import Any

import pytest
import sqlalchemy as sa

from abreast import (
    ConfigurationError,
    LeaseLostError,
    RunContext,
    ThreadBusyError,
    Transaction,
    agent,
    insert,
    update,
    user,
)
from abreast.testing import calls
from planner import CONTEXT, Base, Plan, declare
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
@pytest.mark.parametrize("how", ["apply", "an agent", "a run"])
def test_g19_what_a_lost_run_starts_for_another_conversation_is_refused_too(database, hubs, door, how):
    talk = Talk(database, hubs, door)
    inner = talk.build(talk.hub.tools())

    def write() -> None:
        lose(talk)
        if how == "apply":
            talk.hub.blocking.apply("w1", update(Plan, "p1", title="late"), actor=user("u_1"), thread="other")
        elif how == "an agent":
            inner.invoke({"messages": "go"}, {"configurable": {"thread_id": "other"}}, context=CONTEXT)
        else:
            talk.hub.blocking.run(inner, "go", thread="other", context=CONTEXT)

    talk.say(TOOL_CALL, calls("update_plan", version=1, id="p1", title="late"), "an answer", "an answer")
    with pytest.raises(LeaseLostError):
        talk.run(agent=talk.build([write_tool(write)]))
    assert read(talk).values["title"] == "Mapo"
    assert talk.place("other") is None or how == "an agent"


@CORNERS
def test_g19_another_hubs_run_is_none_of_ours(database, hubs, door, tmp_path):
    """Two products in one process: a tool of one writes to the other's database."""
    talk = Talk(database, hubs, door)
    other = declare(hubs(f"sqlite:///{tmp_path / 'other.db'}"))
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    Base.metadata.create_all(engine)
    other.blocking.install()

    def write() -> None:
        other.blocking.apply("w9", insert(Plan, id="p9", workspace_id="w9", title="theirs"), actor=agent())
        inner = talk.build([], hub=other)
        assert other.blocking.run(inner, "go", thread="t", context=RunContext("t1", "u_1", "w9")).status == "succeeded"

    talk.say(TOOL_CALL, "inner", "an answer")
    assert talk.run(agent=talk.build([write_tool(write)])).status == "succeeded"
    assert other.blocking.row(Plan, "p9", "w9").values["title"] == "theirs"
    engine.dispose()


@CORNERS
def test_g19_two_runs_in_one_hold_do_not_share_it_at_once(database, hubs, door):
    talk = Talk(database, hubs, door)
    busy: list[str] = []

    def meanwhile(_: Any) -> str:
        with pytest.raises(ThreadBusyError):
            contextvars_of_the_hold[0].run(talk.hub.blocking.run, talk.agent, "second", thread="t", context=CONTEXT)
        busy.append("second")
        return "first"

    contextvars_of_the_hold: list[Context] = []
    talk.say(meanwhile)
    with talk.hub.lease("t"):
        contextvars_of_the_hold.append(copy_context())
        assert talk.hub.blocking.run(talk.agent, "first", thread="t", context=CONTEXT).answer == "first"
        assert talk.hub.blocking.run(talk.agent, "third", thread="t", context=CONTEXT).status == "succeeded"
    assert busy == ["second"]


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
