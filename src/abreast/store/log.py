"""The log: statements that read it beside the rows it speaks of, and the reading of their answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from abreast.store.rows import ROWS_OF_A_TABLE, RowsRead, listed_sql, read_listed
from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.store.tracked import Field, TrackedTable
from abreast.store.values import canonical, load, parsed_object, shown
from abreast.types import Actor, ChangeEvent


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation and its log stand, as one batch statement found them.

    `cursor_check` is what the cursor was told with; `start_check`, `cursor_found` and `furthest_found` are what the log
    has at the start, at the cursor and at the furthest revision that the conversation says it was told. None where it
    has nothing.
    """

    known: bool
    head: int
    head_check: int
    horizon: int
    horizon_check: int
    cursor: int | None
    cursor_check: int
    start: int
    start_check: int | None
    cursor_found: int | None
    furthest_found: int | None
    telling: str


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A change event and the check number of its stretch of the log."""

    event: ChangeEvent
    check: int


Shown = Mapping[str, Mapping[str, Field]]
"""By entity type and name: the fields whose recorded values may be shown. One that was redacted since is not among them."""


def shown_fields(tables: Sequence[TrackedTable]) -> Shown:
    """The fields of these tables whose values may be shown."""
    return {tracked.entity_type: {f.name: f for f in shown(tracked)} for tracked in tables}


def batch_statement(
    dialect: DialectName,
    schema: str,
    tables: tuple[TrackedTable, ...],
    *,
    workspace: str,
    thread: str,
    mode: str,
    revision: int | None,
    furthest: int | None,
    limit: int,
    width: int,
) -> Statement:
    """One statement for a whole batch. `tables` are those whose rows are wanted, `limit` is the number of events, `width`
    the characters of a text value."""
    return Statement(
        _batch_text(dialect, schema, tables, limit, width),
        {"workspace": workspace, "thread": thread, "mode": mode, "revision": revision, "furthest": furthest},
    )


@lru_cache(maxsize=128)
def _batch_text(dialect: DialectName, schema: str, tables: tuple[TrackedTable, ...], limit: int, width: int) -> str:
    if dialect == "postgresql":
        event = (
            'json_build_array(x.revision, x.check_number, x.op, x.entity_type, x.entity_id, x.fields, x."values"::text, '
            "x.actor_type, x.actor_id, x.thread, x.mutation, x.at at time zone 'UTC')"
        )
    else:
        event = (
            'json_array(x.revision, x.check_number, x.op, x.entity_type, x.entity_id, json(x.fields), x."values", '
            "x.actor_type, x.actor_id, x.thread, x.mutation, x.at)"
        )
    rows = "".join(listed_sql(dialect, tracked) for tracked in tables)
    (text,) = script(dialect, "batch", schema=quote(schema), event=event, rows=rows)
    # Numbers, not parameters: without them PostgreSQL takes its general plan for dear on a long log and makes a new plan
    # for every batch, which takes longer than the batch.
    for name, number in (("limit", limit), ("width", width), ("rows", ROWS_OF_A_TABLE)):
        text = re.sub(rf"(?<!:):{name}\b", str(int(number)), text)
    return text


def read_batch(
    dialect: DialectName,
    tables: Sequence[TrackedTable],
    fields_of: Shown,
    row: Sequence[Any],
    workspace: str,
    width: int,
) -> tuple[Place, list[LoggedEvent], dict[str, RowsRead]]:
    """What a batch statement answered: the place, the events and the rows."""
    known, head, horizon, horizon_check, cursor, cursor_check, start, start_check = row[:8]
    head_check, cursor_found, furthest_found, telling, events = row[8:13]
    place = Place(
        known=bool(known),
        head=head,
        head_check=_head_check(head_check, head, horizon, horizon_check),
        horizon=horizon,
        horizon_check=horizon_check,
        cursor=cursor,
        cursor_check=cursor_check,
        start=start,
        start_check=0 if start == 0 else horizon_check if start == horizon else start_check,
        cursor_found=cursor_found,
        furthest_found=furthest_found,
        telling=telling or "on",
    )
    logged = [_event(dialect, item, workspace, fields_of) for item in load(events) or []]
    parts = row[13:]
    rows = {}
    for index, tracked in enumerate(tables):
        listed, count = parts[2 * index], parts[2 * index + 1]
        got = read_listed(tracked, load(listed), dialect, width)
        rows[tracked.entity_type] = RowsRead(got, max(0, (count or 0) - len(got)))
    return place, logged, rows


def _head_check(found: int | None, head: int, horizon: int, horizon_check: int) -> int:
    return (horizon_check if head == horizon else 0) if found is None else found


def run_statement(dialect: DialectName, schema: str, event: ChangeEvent, *, thread: str, own: bool) -> Statement:
    """Where the run of changes of one entity type, operation and actor ends that this event is part of: one row with its last
    revision and the check number there. `own`: whether the agent of that thread makes them, or anybody else of that name."""
    (text,) = script(dialect, "run", schema=quote(schema))
    parameters = {
        "workspace": event.workspace,
        "after": event.revision,
        "entity_type": event.entity_type,
        "op": event.op,
        "actor_type": event.actor.type,
        "actor_id": event.actor.id,
        "thread": thread,
        "own": own if dialect == "postgresql" else int(own),
    }
    return Statement(text, parameters)


def look_statement(dialect: DialectName, schema: str, *, workspace: str, thread: str) -> Statement:
    """What of a place may have moved since a batch was read: cheap beside the batch itself."""
    (text,) = script(dialect, "look", schema=quote(schema))
    return Statement(text, {"workspace": workspace, "thread": thread})


def still(place: Place, rows: Sequence[Sequence[Any]]) -> Place | None:
    """The place again, if a look statement found it where it was; None if anything of it moved."""
    if not rows:
        return None
    head, head_check, horizon, horizon_check, cursor, cursor_check, telling = rows[0]
    head_check = _head_check(head_check, head, horizon, horizon_check)
    before = (place.head, place.head_check, place.horizon, place.horizon_check, place.cursor, place.cursor_check)
    if before != (head, head_check, horizon, horizon_check, cursor, cursor_check):
        return None
    return place if telling == place.telling else replace(place, telling=telling or "on")


def _event(dialect: DialectName, raw: Sequence[Any], workspace: str, fields_of: Shown) -> LoggedEvent:
    revision, check, op, entity_type, entity_id, fields, values, actor_type, actor_id, thread, mutation, at = raw
    known = fields_of.get(entity_type, {})
    pairs = {} if values is None else parsed_object(values)
    read = {
        name: (canonical(dialect, known[name], before), canonical(dialect, known[name], after))
        for name, (before, after) in pairs.items()
        if name in known  # what was recorded once and is redacted or dropped since is not to be shown
    }
    event = ChangeEvent(
        workspace,
        revision,
        op,
        entity_type,
        entity_id,
        tuple(fields or ()),
        read,
        Actor(actor_type, actor_id),
        thread,
        mutation,
        at if str(at).endswith("Z") else f"{at}Z",
    )
    return LoggedEvent(event, check)


def history_statement(
    dialect: DialectName,
    schema: str,
    *,
    workspace: str,
    entity_type: str | None,
    entity_id: str | None,
    since: str | None,
    until: str | None,
    before: int | None,
    limit: int,
) -> Statement:
    """Events of a workspace, newest first: of one type or entity, from `since` (included) to `until` (not), ISO 8601 UTC."""
    parameters: dict[str, Any] = {"workspace": workspace, "limit": limit}
    moment = "cast(:{0} as timestamptz)" if dialect == "postgresql" else ":{0}"
    tests = {
        "entity_type": (entity_type, "e.entity_type = :entity_type"),
        "entity_id": (entity_id, "e.entity_id = :entity_id"),
        "since": (since, f"e.at >= {moment.format('since')}"),
        "until": (until, f"e.at < {moment.format('until')}"),
        "before": (before, "b.last - b.last_ord + e.ord < :before" if dialect == "postgresql" else "e.revision < :before"),
    }
    narrowing = ""
    for name, (value, test) in tests.items():
        if value is not None:
            narrowing += f"and {test} "
            parameters[name] = value
    (text,) = script(dialect, "history", schema=quote(schema), **{"and": narrowing})
    return Statement(text, parameters)


def read_history(dialect: DialectName, rows: Sequence[Sequence[Any]], workspace: str, fields_of: Shown) -> list[ChangeEvent]:
    """The events that a history statement answered."""
    return [_event(dialect, load(row[0]), workspace, fields_of).event for row in rows]


def versions_statement(
    dialect: DialectName, schema: str, *, workspace: str, entity_type: str, entity_ids: Sequence[str]
) -> Statement:
    """The version of each entity: the revision of its last event. Entities without an event have no row."""
    (text,) = script(dialect, "versions", schema=quote(schema))
    return Statement(text, {"workspace": workspace, "entity_type": entity_type, "ids": json.dumps(list(entity_ids))})


def telling_statement(dialect: DialectName, schema: str, telling: str) -> Statement:
    """Sets the switch that every process reads with its next batch."""
    meta = own(dialect, "meta", schema)
    return Statement(
        f"insert into {meta} (name, value) values ('telling', :telling) on conflict (name) do update set value = excluded.value",
        {"telling": telling},
    )
