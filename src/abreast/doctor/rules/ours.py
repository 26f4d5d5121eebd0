"""The use of abreast itself: its middleware, its triggers, its loaders."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from abreast.doctor.findings import Spot
from abreast.doctor.rule import Found, Rule
from abreast.doctor.sources import Function, Source, tame
from abreast.doctor.subject import Subject
from abreast.hub import Abreast
from abreast.store.capture.postgres_triggers import relation
from abreast.store.schema import own, quote
from abreast.store.tracked import TrackedTable


def not_innermost(subject: Subject) -> Iterator[Found]:
    """`hub.middleware()` is not the last of the agent's middleware that wrap the call of the model.

    One behind it may replace the messages or the system prompt after abreast has put CURRENT and CHANGES into them: the model
    answers without them, and abreast takes them for told. The rule sees agents of `create_agent`.
    """
    if not subject.wrapping:
        return
    from abreast.agents.middleware import SyncMiddleware

    behind: dict[str, None] = {}
    for chain in subject.wrapping:
        ours = [at for at, one in enumerate(chain) if isinstance(one, SyncMiddleware)]
        for one in chain[ours[-1] + 1 :] if ours else ():
            behind[getattr(one, "name", type(one).__name__)] = None
    if behind:
        yield Found("graph", _agent_spot(subject), f"{', '.join(behind)} may change the request after abreast.")


def tracked_without_trigger(subject: Subject) -> Iterator[Found]:
    """A hub tracks a table, and the database that it names has abreast's tables but no trigger on that one.

    Changes of its rows are in no log, and the first run stops with CaptureOutdatedError. The rule reads the database of each
    hub in the application's files, read-only; where it cannot be reached, or nothing is installed, it says nothing. What is
    wrong with triggers that are there says `abreast check`.
    """
    for source, hub in _hubs(subject):
        core = hub._core
        for tracked in _without_trigger(core.access.url, core.schema, tuple(core.tracked.values())):
            name = tracked.table.name
            yield Found("hub", _track_spot(source, hub, tracked), f"{name} has no trigger: its changes are in no log.")


def loader_outside_the_batch(subject: Subject) -> Iterator[Found]:
    """A loader opens a session or a connection of its own to the hub's database.

    It sees another moment than the batch: CURRENT may hold a change that is not told yet, or lack one that is. The rule sees
    `Session(engine)`, a sessionmaker, and `engine.connect()` or `engine.begin()` in a loader's own body, where the engine's
    database is the hub's.
    """
    for _, hub in _hubs(subject):
        for name, loader in hub._core.loaders.items():
            function = subject.sources.function(loader)
            for call in function.nodes if function else ():
                engine = _opens(function, call) if function and isinstance(call, ast.Call) else None
                if function and engine is not None and _same(engine.url, hub._core.access.url):
                    yield Found(f"loader {name}", function.at(call), "it reads at another moment than the batch.")


def _hubs(subject: Subject) -> Iterator[tuple[Source, Abreast]]:
    """The hubs in the application's files; once, for the outermost graph."""
    seen: set[int] = set()
    for source in subject.sources if not subject.place else ():
        for value in source.namespace.values():
            if isinstance(tame(value), Abreast) and id(value) not in seen:
                seen.add(id(value))
                yield source, value


def _agent_spot(subject: Subject) -> Spot | None:
    """The call that makes the agent, where the files have only one."""
    from langchain.agents import create_agent

    made = [
        source.spot(node)
        for source in subject.sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and source.resolve(node.func) is create_agent
    ]
    return made[0] if len(made) == 1 else None


def _track_spot(source: Source, hub: Abreast, tracked: TrackedTable) -> Spot | None:
    """The line that tracks the table, where it is in the file that holds the hub."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "track" and node.args:
            model = source.resolve(node.args[0])
            if source.resolve(node.func.value) is hub and getattr(model, "__table__", model) is tracked.table:
                return source.spot(node)
    return None


def _without_trigger(url: URL, schema: str, tables: tuple[TrackedTable, ...]) -> list[TrackedTable]:
    """Tracked tables that exist without any trigger of ours, in a database where our own tables exist."""
    if url.get_backend_name() == "sqlite":
        return _without_on_sqlite(url, schema, tables)
    return _without_on_postgresql(url, schema, tables)


def _without_on_sqlite(url: URL, schema: str, tables: tuple[TrackedTable, ...]) -> list[TrackedTable]:
    path = Path(str(url.database))
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=2)
        try:
            rows = connection.execute("select lower(name), type, lower(tbl_name) from sqlite_master").fetchall()
        finally:
            connection.close()
    except sqlite3.Error:
        return []
    there = {name for name, kind, _ in rows if kind == "table"}
    triggered = {table for name, kind, table in rows if kind == "trigger" and name.startswith("abreast_")}
    if own("sqlite", "meta", schema) not in there:
        return []
    return [one for one in tables if one.table.name.lower() in there - triggered]


def _without_on_postgresql(url: URL, schema: str, tables: tuple[TrackedTable, ...]) -> list[TrackedTable]:
    engine = sa.create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 2})
    found = sa.text(
        "select to_regclass(:name) is not null and not exists ("
        "select from pg_catalog.pg_trigger t join pg_catalog.pg_proc p on p.oid = t.tgfoid"
        " where t.tgrelid = to_regclass(:name) and p.pronamespace = to_regnamespace(:schema))"
    )
    try:
        with engine.connect() as connection:
            meta = connection.scalar(sa.text("select to_regclass(:name)"), {"name": own("postgresql", "meta", schema)})
            if meta is None:
                return []
            return [one for one in tables if connection.scalar(found, {"name": relation(one), "schema": quote(schema)})]
    except sa.exc.SQLAlchemyError:
        return []


def _opens(function: Function, call: ast.Call) -> Engine | None:
    """The engine whose session or connection this call opens."""
    made = function.resolve(call.func)
    engine: Any = None
    if made is Session:
        given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "bind")]
        engine = function.resolve(given[0]) if given else None
    elif isinstance(made, sessionmaker):
        engine = made.kw.get("bind")
    elif isinstance(call.func, ast.Attribute) and call.func.attr in ("connect", "begin"):
        engine = function.resolve(call.func.value)
    return engine if isinstance(engine, Engine) else None


def _same(one: URL, other: URL) -> bool:
    if one.get_backend_name() != other.get_backend_name():
        return False
    if one.get_backend_name() == "sqlite":
        return bool(one.database) and Path(str(one.database)).resolve() == Path(str(other.database)).resolve()
    return (one.host, one.port, one.database) == (other.host, other.port, other.database)


RULES: tuple[Rule, ...] = (
    Rule("AB601", "abreast's middleware is not innermost", not_innermost, "Put hub.middleware() last in the list."),
    Rule("AB602", "A tracked table without a trigger", tracked_without_trigger, "Run install in the deployment's migration."),
    Rule(
        "AB603",
        "A loader outside the batch's session",
        loader_outside_the_batch,
        "Read with the session that the loader is given.",
    ),
)
