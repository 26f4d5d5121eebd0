"""G7: every model call sees the state as of that call, or the run stops, or the model is told that the state is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.types import Command
from sqlalchemy.engine import make_url

import child
from abreast import ConfigurationError, UnavailableError
from abreast.core.render import UNKNOWN_STATE
from planner import CONTEXT, declare
from talk import CORNERS, TOOL_CALL, Talk, locked, write_tool

APPROVE = Command(resume={"decisions": [{"type": "approve"}]})


def test_g7_a_call_sees_the_start_and_what_somebody_wrote_since(database, hubs, door):
    """The second call of the run sees the write that happened between the two; what the first was told is told again."""
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change("before the run")
    agent = talk.build([write_tool(lambda: talk.sql("update item set done = true where id = 1"))])
    talk.say(TOOL_CALL, "done")
    result = talk.run(agent=agent)
    assert [talk.revisions(1), talk.revisions(2)] == [[4], [4, 5]]
    assert [talk.current(n)["plan"][0]["title"] for n in (1, 2)] == ["before the run", "before the run"]
    assert [talk.current(n)["item"][0]["done"] for n in (1, 2)] == [False, True]
    assert (result.told, talk.place()) == ({"w1": 5}, 5)
    talk.run()
    assert talk.revisions() == []


def test_g7_the_latest_of_several_changes_of_a_field_is_worded(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change("once")
    agent = talk.build([write_tool(lambda: talk.change("twice"))])
    talk.say(TOOL_CALL, "done")
    talk.run(agent=agent)
    assert [talk.revisions(1), talk.revisions(2)] == [[4], [5]]
    assert 'title is now "twice" (was "Mapo")' in talk.block()


# -- after an approval -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runner", [True, False], ids=["hub.run", "invoke"])
def test_g7_a_call_after_an_approval_sees_what_happened_meanwhile(database, hubs, door, checkpointer, runner):
    talk = Talk(database, hubs, door, "hello", TOOL_CALL, saver=checkpointer)
    agent = talk.build([write_tool(lambda: None)], before=[HumanInTheLoopMiddleware({"write": True})])
    go = talk.run if runner else talk.invoke
    go(agent=agent)
    talk.change("told before the pause")
    paused = go(agent=agent)
    assert paused.status == "awaiting_approval" if runner else paused["__interrupt__"]
    assert (talk.revisions(), talk.place()) == ([4], 3)
    talk.sql("update plan set budget = 7 where id = 'p1'")
    resumed = go(APPROVE, agent=agent)
    assert talk.revisions() == [4, 5]
    assert talk.current()["plan"][0]["budget"] == "7.00"
    if runner:
        assert (resumed.status, resumed.told, talk.place()) == ("succeeded", {"w1": 5}, 5)
    else:
        assert talk.place() == 3  # the next run moves it: this one's answer is not in its history yet


@CORNERS
def test_g7_an_approval_is_resumed_by_another_process(database, hubs, door, tmp_path, checkpointer):
    talk = Talk(database, hubs, door, saver=checkpointer)
    talk.run()
    talk.change("told before the pause")
    with child.at(database, tmp_path / "checkpoints.db", t="approval") as (one,):
        assert one.process.wait(30) == 0
    talk.sql("update plan set budget = 7 where id = 'p1'")
    written: list[str] = []
    agent = talk.build([write_tool(lambda: written.append("w"))], before=[HumanInTheLoopMiddleware({"write": True})])
    resumed = talk.run(APPROVE, agent=agent)
    assert (resumed.status, written, talk.revisions(), talk.place()) == ("succeeded", ["w"], [4, 5], 5)


# -- one snapshot for a run --------------------------------------------------------------------------------------------


@CORNERS
def test_g7_refresh_run_pins_one_snapshot(database, hubs, door):
    talk = Talk(database, hubs, door, refresh="run")
    talk.run()
    talk.change("before the run")
    agent = talk.build([write_tool(lambda: talk.change("in mid-run"))])
    talk.say(TOOL_CALL, "done")
    result = talk.run(agent=agent)
    assert talk.block(2) == talk.block(1)
    assert "before the run" in talk.block(2)
    assert (result.told, talk.place()) == ({"w1": 4}, 4)
    talk.run()
    assert (talk.revisions(), talk.current()["plan"][0]["title"]) == ([5], "in mid-run")


@CORNERS
def test_g7_refresh_run_reads_again_after_an_approval_and_for_other_rights(database, hubs, door):
    """A resume through the hub is a run of its own. Without it, the same run may come back with another context."""
    talk = Talk(database, hubs, door, TOOL_CALL, "done", TOOL_CALL, "done", refresh="run")
    agent = talk.build([write_tool(lambda: None)], before=[HumanInTheLoopMiddleware({"write": True})])
    talk.run(agent=agent)
    talk.change("while it waited")
    talk.run(APPROVE, agent=agent)
    assert talk.revisions() == [4]
    talk.invoke(agent=agent, thread="alone")
    talk.change("while it waited again")
    talk.invoke(APPROVE, agent=agent, thread="alone", context=replace(CONTEXT, permissions=frozenset({"less"})))
    assert talk.revisions() == [5]


# -- a state that cannot be read ---------------------------------------------------------------------------------------


@contextmanager
def gone(database: Any) -> Iterator[None]:
    """The database is away: the file moved, or the database closed for connections and all of them ended."""
    if database.kind == "sqlite":
        away = database.path.with_name("away.db")
        database.path.rename(away)
        yield
        away.rename(database.path)
        return
    url = make_url(database.url)
    admin = sa.create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"alter database {url.database} allow_connections false")
        connection.exec_driver_sql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{url.database}'")
        yield
        connection.exec_driver_sql(f"alter database {url.database} allow_connections true")
    admin.dispose()


def impatient(database: Any) -> str:
    """The database's URL, with one second of patience."""
    more = {"timeout": "1"} if database.kind == "sqlite" else {"connect_timeout": "1", "options": "-c lock_timeout=300ms"}
    return make_url(database.url).update_query_dict(more).render_as_string(hide_password=False)


@pytest.mark.parametrize("policy", ["stop", "warn"])
def test_g7_a_database_that_is_gone_at_the_start(database, hubs, door, policy):
    talk = Talk(database, hubs, door, url=impatient(database), on_unavailable=policy)
    talk.run()
    talk.change("untold")
    with gone(database):
        if policy == "stop":
            with pytest.raises(UnavailableError):
                talk.run()
            assert len(talk.model.requests) == 1
        else:
            result = talk.run()
            assert (result.status, result.told, talk.block()) == ("succeeded", {}, UNKNOWN_STATE)
    talk.renew(hubs(database))
    assert talk.place() == 3
    talk.run()
    assert (talk.revisions(), talk.place()) == ([4], 4)


@pytest.mark.parametrize("policy", ["stop", "warn"])
def test_g7_a_database_that_goes_in_mid_run(database, hubs, door, policy):
    """The first call was told, the second cannot be: nothing counts as told."""
    talk = Talk(database, hubs, door, url=impatient(database), on_unavailable=policy)
    talk.run()
    talk.change("untold")
    with ExitStack() as away:
        agent = talk.build([write_tool(lambda: away.enter_context(gone(database)))])
        talk.say(TOOL_CALL, "I cannot see it")
        if policy == "stop":
            with pytest.raises(UnavailableError):
                talk.run(agent=agent)
            assert len(talk.model.requests) == 2
        else:
            result = talk.run(agent=agent)
            assert (result.status, result.told, talk.block()) == ("succeeded", {}, UNKNOWN_STATE)
        assert talk.revisions(1) == [4]
    talk.renew(hubs(database))
    talk.expire()  # the run could not give it back
    assert talk.place() == 3
    talk.run()
    assert (talk.revisions(), talk.place()) == ([4], 4)


def test_g7_a_database_that_is_locked_for_writing_costs_the_place_not_the_answer(database, hubs, door):
    """What was told is told again; a table that cannot even be read is an unknown state."""
    talk = Talk(database, hubs, door, url=impatient(database))
    talk.run()
    talk.change("untold")
    with ExitStack() as busy:
        agent = talk.build([write_tool(lambda: busy.enter_context(locked(database, talk.engine, "cursor", mode="share")))])
        talk.say(TOOL_CALL, "an answer")
        result = talk.run(agent=agent)
    assert (result.status, result.answer, result.told) == ("succeeded", "an answer", {})
    assert "will be told again" in result.reason
    talk.run()
    assert (talk.revisions(), talk.place()) == ([4], 4)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_g7_a_table_that_is_locked_for_reading_is_an_unknown_state(database, hubs, door):
    """On SQLite nothing keeps a reader from reading."""
    talk = Talk(database, hubs, door, url=impatient(database), on_unavailable="warn")
    talk.run()
    with locked(database, talk.engine, "workspace"):
        assert (talk.run().told, talk.block()) == ({}, UNKNOWN_STATE)


# -- the switch --------------------------------------------------------------------------------------------------------


@CORNERS
def test_g7_telling_can_be_switched_for_all_processes(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    other = declare(hubs(database))  # another process's hub
    for switch, told in (("shadow", 0), ("off", None)):
        talk.change(switch)
        door(other).tell(switch)
        result = talk.run()
        assert (talk.block(), result.status, result.told, talk.place()) == ("", "succeeded", {}, 3)
        with talk.engine.connect() as connection:
            table = "abreast_delivery" if database.kind == "sqlite" else "abreast.delivery"
            noted = connection.exec_driver_sql(f"select told from {table} where run = '{result.run}'").scalars().all()
        assert [int(one) for one in noted] == ([] if told is None else [told])
    door(other).tell("on")
    talk.run()
    assert (talk.revisions(), talk.place()) == ([5], 5)
    with pytest.raises(ConfigurationError, match="'on', 'shadow' or 'off'"):
        door(other).tell("loud")
