"""What must be true between rows and log, worked out a second time, from the outside.

Rows are read as an application reads them, events as `hub.batch` returns them; workspace, entity id and values of a
row are worked out in Python. Nothing of how capture does it is used.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from abreast import Abreast, ChangeEvent

Entity = tuple[str, str, str]
"""Workspace, entity type, entity id."""


@dataclass(frozen=True)
class Watched:
    """A tracked table as a test knows it. `workspace` finds a row's workspace; it gets the row and `find(table, key)`."""

    table: Any
    recorded: Collection[str]
    workspace: Callable[[Any, Callable[..., Any]], str | None]
    entity_type: str | None = None

    @property
    def name(self) -> str:
        return self.entity_type or str(self.table.name)


def plain(value: Any) -> Any:
    """A Python value in the one JSON form that events and rows have."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z" if value.tzinfo else value.isoformat()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def entity_id(table: Any, row: Any) -> str:
    """The id that a row should have in the log."""
    texts = [str(plain(row[column.name])) for column in table.primary_key.columns]
    return texts[0] if len(texts) == 1 else json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


def heads(house: Any) -> dict[str, int]:
    """HEAD of every workspace."""
    with house.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"select workspace, head from {house.own('workspace')} order by workspace").fetchall()
    return {workspace: head for workspace, head in rows}


def events(hub: Abreast, workspace: str, *, after: int = 0) -> tuple[ChangeEvent, ...]:
    """All events of a workspace behind a revision."""
    return hub.blocking.batch(workspace, after=after, limit=1_000_000).events


def live(house: Any) -> dict[Entity, dict[str, Any]]:
    """Every row that has a workspace, with its recorded values."""
    with house.engine.connect() as connection:
        rows = {
            w.table.name: [
                {column.name: value for column, value in zip(w.table.columns, row, strict=True)}
                for row in connection.execute(sa.select(w.table))
            ]
            for w in house.watched
        }
    by_key = {
        (w.table.name, *(row[column.name] for column in w.table.primary_key.columns)): row
        for w in house.watched
        for row in rows[w.table.name]
    }

    def find(table: str, *key: Any) -> Any:
        return by_key.get((table, *key))

    found = {}
    for watched in house.watched:
        for row in rows[watched.table.name]:
            workspace = watched.workspace(row, find)
            if workspace is not None:
                values = {name: plain(row[name]) for name in watched.recorded}
                found[str(plain(workspace)), watched.name, entity_id(watched.table, row)] = values
    return found


def replay(logged: Iterable[ChangeEvent], state: dict[Entity, dict[str, Any]], wrong: list[str]) -> None:
    """Applies events to a state; writes down what cannot be."""
    for event in logged:
        entity = (event.workspace, event.entity_type, event.entity_id)
        said = f"r{event.revision} {event.op} {entity}"
        if event.op == "insert" and entity in state:
            wrong.append(f"{said}: it was there already")
        if event.op != "insert" and entity not in state:
            wrong.append(f"{said}: it was not there")
        if event.op == "update" and not event.fields:
            wrong.append(f"{said}: no field changed")
        if event.op != "update" and event.fields:
            wrong.append(f"{said}: names fields {event.fields}")
        values = state.setdefault(entity, {})
        for name, (old, new) in event.values.items():
            if event.op == "update" and (name not in event.fields or json.dumps(old) == json.dumps(new)):
                wrong.append(f"{said}: {name} has not changed")
            if event.op != "insert" and values.get(name) != old:
                wrong.append(f"{said}: {name} was {values.get(name)!r}, not {old!r}")
            values[name] = new
        if event.op == "delete":
            del state[entity]


def mistakes(house: Any) -> list[str]:
    """What is wrong between rows and log, in words; empty if nothing is.

    Revisions are 1 to HEAD without a gap, no event is without a revision, every event can follow the one before it,
    and all events together make the rows that are there, each in its one workspace and with its recorded values.
    """
    wrong: list[str] = []
    state: dict[Entity, dict[str, Any]] = {}
    total = 0
    for workspace, head in heads(house).items():
        logged = events(house.hub, workspace)
        total += len(logged)
        if [event.revision for event in logged] != list(range(1, head + 1)):
            wrong.append(f"{workspace}: HEAD is {head}, revisions are {[event.revision for event in logged]}")
        replay(logged, state, wrong)
    stored = house.value(f"select count(*) from {house.own('event')}")
    if stored != total:
        wrong.append(f"{stored} events are stored, {total} have a revision")
    rows = live(house)
    for entity in sorted(rows.keys() | state.keys()):
        if entity not in state:
            wrong.append(f"{entity}: has a row, and the log does not know it")
        elif entity not in rows:
            wrong.append(f"{entity}: has no row, and the log has it alive")
        elif rows[entity] != state[entity]:
            wrong.append(f"{entity}: the row is {rows[entity]}, the log says {state[entity]}")
    homes = defaultdict(set)
    for workspace, *entity in state:
        homes[tuple(entity)].add(workspace)
    wrong += [f"{entity}: alive in {sorted(places)}" for entity, places in homes.items() if len(places) > 1]
    return wrong
