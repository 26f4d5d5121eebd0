"""Loaders: the application's own CURRENT, in the batch's snapshot; alone they need no table of ours."""

from __future__ import annotations

import datetime as dt
import enum
import sqlite3
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from sqlalchemy.orm import Session

from abreast import ConfigurationError, ContextError, InputError, LoaderError, RunContext, UnavailableError
from abreast.core.render import UNKNOWN_STATE
from abreast.testing import ScriptedModel
from planner import CONTEXT, Item, Plan
from talk import CORNERS, TOOL_CALL, Talk, current_of, write_tool


def with_loader(hubs: Any, *loaders: Any) -> Callable[..., Any]:
    """Makes hubs that have these loaders."""

    def make(*given: Any, **options: Any) -> Any:
        hub = hubs(*given, **options)
        for loader in loaders:
            hub.loader(loader)
        return hub

    return make


def alone(database: Any, hubs: Any, loader: Any, **options: Any) -> tuple[Any, ScriptedModel, Any]:
    """A hub with nothing but this loader, and its agent."""
    hub = with_loader(hubs, loader)(database, **options)
    model = ScriptedModel()
    agent = create_agent(model, middleware=[hub.middleware()], context_schema=RunContext, checkpointer=InMemorySaver())
    return hub, model, agent


@CORNERS
def test_snapshot_only_use_needs_no_table_of_ours(database, hubs, door):
    engine = database.engine()
    with engine.begin() as connection:
        connection.exec_driver_sql("create table thing (name text)")
        connection.exec_driver_sql("insert into thing values ('a lamp')")

    def things(session: Session, workspace: str, context: Any) -> Any:
        return {"of": workspace, "for": context.user, "names": session.scalars(sa.text("select name from thing")).all()}

    hub, model, agent = alone(database, hubs, things)
    result = door(hub).run(agent, "q", thread="t", context=CONTEXT)
    assert (result.status, result.told, result.reason) == ("succeeded", {}, None)
    assert current_of(model.last_request) == {"things": {"of": "w1", "for": "u_1", "names": ["a lamp"]}}
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into thing values ('a table')")
        names = sa.inspect(connection).get_table_names()
    door(hub).run(agent, "q", thread="t", context=CONTEXT)
    assert "a table" in model.last_request
    assert names == ["thing"]
    door.invoke(agent, {"messages": [("user", "q")]}, {"configurable": {"thread_id": "u"}}, context=CONTEXT)
    assert "a table" in model.last_request
    assert door.state(agent, {"configurable": {"thread_id": "t"}}).values.get("abreast_told", {}) == {}


@CORNERS
def test_a_snapshot_only_run_fails_as_any_other(database, hubs, door):
    hub, model, agent = alone(database, hubs, lambda session, workspace, context: {})
    with pytest.raises(ContextError):
        door(hub).run(agent, "q", thread="t", context=None)
    with pytest.raises(InputError, match="NUL"):
        door(hub).run(agent, "q", thread="t\0", context=CONTEXT)
    model.script.append("")
    assert door(hub).run(agent, "q", thread="t", context=CONTEXT).status == "failed"


class Mood(enum.Enum):
    GOOD = "fine"


@CORNERS
def test_values_are_converted_to_json(database, hubs, door):
    summer = dt.timezone(dt.timedelta(hours=9))
    given = {
        "date": dt.date(2026, 9, 30),
        "naive": dt.datetime.fromisoformat("2026-09-30T09:00:00"),
        "aware": dt.datetime(2026, 9, 30, 9, 0, tzinfo=summer),
        "time": dt.time(9, 30),
        "decimal": Decimal("1200.50"),
        "uuid": uuid.UUID(int=1),
        "enum": Mood.GOOD,
        "tuple": (1, None, True),
        "mapping": OrderedDict(a=[{"b": 1.5}]),
    }
    hub, model, agent = alone(database, hubs, lambda session, workspace, context: given)
    door(hub).run(agent, "q", thread="t", context=CONTEXT)
    assert current_of(model.last_request)["<lambda>"] == {
        "date": "2026-09-30",
        "naive": "2026-09-30T09:00:00",
        "aware": "2026-09-30T00:00:00Z",
        "time": "09:30:00",
        "decimal": "1200.50",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "enum": "GOOD",
        "tuple": [1, None, True],
        "mapping": {"a": [{"b": 1.5}]},
    }


def bad(session: Session, workspace: str, context: Any) -> Any:
    raise KeyError("secret words")


def wrong_sql(session: Session, workspace: str, context: Any) -> Any:
    return session.scalar(sa.text("select secret_words from nowhere"))


def writes(session: Session, workspace: str, context: Any) -> Any:
    session.execute(sa.text("update plan set title = 'by a loader'"))
    return {}


def returns(value: Any) -> Any:
    def things(session: Session, workspace: str, context: Any) -> Any:
        return value

    return things


async def coroutine() -> None: ...


@CORNERS
@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (bad, "The loader 'bad' failed with KeyError"),
        (wrong_sql, "The loader 'wrong_sql' failed with"),
        (writes, "The loader 'writes' failed with"),
        (returns(object()), "returned object at things"),
        (returns({"a": [1, {2}]}), r"returned set at things.a\[1\]"),
        (returns({1: "a"}), "the key 1 at things"),
        (returns([float("nan")]), r"returned nan at things\[0\]"),
        (returns(float("inf")), "returned inf at things"),
        (returns(b"a"), "returned bytes at things"),
        (returns(dt.timedelta(1)), "returned timedelta at things"),
    ],
    ids=["raises", "wrong SQL", "writes", "object", "set", "key", "nan", "inf", "bytes", "timedelta"],
)
def test_a_loader_that_fails_stops_the_run_and_moves_nothing(database, hubs, door, loader, said):
    talk = Talk(database, with_loader(hubs, loader), door, on_unavailable="warn")
    with pytest.raises(LoaderError, match=said) as raised:
        talk.run()
    assert "secret words" not in str(raised.value)
    assert (talk.model.requests, talk.place()) == ([], 3)
    with talk.engine.connect() as connection:
        assert connection.exec_driver_sql("select title from plan").scalar_one() == "Mapo"


def test_an_asynchronous_loader_is_refused_at_once(sqlite, hubs):
    hub = hubs(sqlite)

    with pytest.raises(ConfigurationError, match="plain function"):

        @hub.loader
        async def things(session: Session, workspace: str, context: Any) -> Any:
            return {}


@CORNERS
def test_a_loader_in_disguise_is_told_what_it_returned(database, hubs, door):
    made = coroutine()
    hub, _, agent = alone(database, hubs, returns(made))
    with pytest.raises(LoaderError, match="returned coroutine"):
        door(hub).run(agent, "q", thread="t", context=CONTEXT)
    made.close()


@CORNERS
def test_the_session_reads_the_batchs_own_snapshot(database, hubs, door):
    """What is written while the loaders run is in none of the batch's parts."""
    talk: Talk

    def first(session: Session, workspace: str, context: Any) -> Any:
        before = session.scalars(sa.select(Plan.title)).one()
        if writing:
            writing.pop()
            talk.change("written meanwhile")
        return before

    def second(session: Session, workspace: str, context: Any) -> Any:
        return [session.scalars(sa.select(Plan.title)).one(), session.scalars(sa.select(Item.title).order_by(Item.id)).all()]

    writing: list[int] = []
    talk = Talk(database, with_loader(hubs, first, second), door)
    talk.run()
    talk.change("written before")
    writing.append(1)
    result = talk.run()
    assert talk.current() == {"first": "written before", "second": ["written before", ["internet", "gas"]]}
    assert (talk.revisions(), result.told) == ([4], {"w1": 4})
    assert 'title is now "written before"' in talk.block()
    talk.run()
    assert (talk.revisions(), talk.current()["first"]) == ([5], "written meanwhile")


@CORNERS
def test_a_loader_is_asked_at_every_call(database, hubs, door):
    """It may read what no trigger sees."""
    asked: list[int] = []

    def count(session: Session, workspace: str, context: Any) -> Any:
        asked.append(1)
        return len(asked)

    talk = Talk(database, with_loader(hubs, count), door, TOOL_CALL, "done")
    talk.run(agent=talk.build([write_tool(lambda: None)]))
    assert [talk.current(0), talk.current(1)] == [{"count": 1}, {"count": 2}]


def cut_off(session: Session, workspace: str, context: Any) -> Any:
    """Loses its connection, unless it is spared."""
    if not context.permissions:
        session.execute(sa.text("select pg_terminate_backend(pg_backend_pid())"))
    return session.scalars(sa.select(Plan.title)).one()


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_loader_that_loses_its_connection_is_not_wrong(database, hubs, door):
    talk = Talk(database, with_loader(hubs, cut_off), door)
    with pytest.raises(UnavailableError):
        talk.run()
    talk.run(context=replace(CONTEXT, permissions=frozenset({"spared"})))
    assert talk.current() == {"cut_off": "Mapo"}


@pytest.mark.parametrize("policy", ["stop", "warn"])
def test_a_loader_that_meets_a_lock_is_not_wrong(sqlite, hubs, loop, tmp_path, policy):
    """It reads a second file, which another connection has locked."""
    other = tmp_path / "other.db"
    holder = sqlite3.connect(other, isolation_level=None)
    holder.execute("create table thing (name text)")

    def things(session: Session, workspace: str, context: Any) -> Any:
        session.execute(sa.text(f"attach database '{other}' as a{uuid.uuid4().hex}"))
        return session.scalars(sa.text("select name from thing")).all()

    hub, model, agent = alone(
        sqlite, lambda given, **options: hubs(f"{given.url}?timeout=0.2", **options), things, on_unavailable=policy
    )
    holder.execute("begin exclusive")
    if policy == "stop":
        with pytest.raises(UnavailableError):
            hub.blocking.run(agent, "q", thread="t", context=CONTEXT)
        assert model.requests == []
    else:
        hub.blocking.run(agent, "q", thread="t", context=CONTEXT)
        assert UNKNOWN_STATE in model.last_request
    holder.execute("rollback")
    hub.blocking.run(agent, "q", thread="t", context=CONTEXT)
    assert current_of(model.last_request) == {"things": []}
    holder.close()
