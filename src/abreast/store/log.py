"""The log: statements that read it beside the rows it speaks of, and the reading of their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from abreast.store.rows import ROWS_OF_A_TABLE, RowsRead, listed_sql, read_listed
from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.store.tracked import TrackedTable
from abreast.store.values import canonical, load
from abreast.types import Actor, ChangeEvent


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation and its log stand, as one batch statement found them."""

    known: bool
    head: int
    head_check: int
    horizon: int
    horizon_check: int
    cursor: int | None
    cursor_check: int
    start: int
    start_check: int | None
    telling: str


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A change event and the check number of its stretch of the log."""

    event: ChangeEvent
    check: int


def batch_statement(
    dialect: DialectName,
    schema: str,
    tables: tuple[TrackedTable, ...],
    *,
    workspace: str,
    thread: str,
    mode: str,
    revision: int | None,
    limit: int,
    width: int,
    known_head: int | None,
) -> Statement:
    """One statement for a whole batch. `tables` are those whose rows are wanted; they are read only if HEAD is not
    `known_head`. `limit` is the number of events, `width` the characters of a text value."""
    return Statement(
        _batch_text(dialect, schema, tables),
        {
            "workspace": workspace,
            "thread": thread,
            "mode": mode,
            "revision": revision,
            "limit": limit,
            "width": width,
            "known_head": known_head,
            "rows": ROWS_OF_A_TABLE,
        },
    )


@lru_cache(maxsize=128)
def _batch_text(dialect: DialectName, schema: str, tables: tuple[TrackedTable, ...]) -> str:
    if dialect == "postgresql":
        event = (
            'json_build_array(x.revision, x.check_number, x.op, x.entity_type, x.entity_id, x.fields, x."values", '
            "x.actor_type, x.actor_id, x.thread, x.mutation, x.at at time zone 'UTC')"
        )
    else:
        event = (
            'json_array(x.revision, x.check_number, x.op, x.entity_type, x.entity_id, json(x.fields), json(x."values"), '
            "x.actor_type, x.actor_id, x.thread, x.mutation, x.at)"
        )
    rows = "".join(listed_sql(dialect, tracked) for tracked in tables)
    (text,) = script(dialect, "batch", schema=quote(schema), event=event, rows=rows)
    return text


def read_batch(
    dialect: DialectName,
    tables: Sequence[TrackedTable],
    by_type: Mapping[str, TrackedTable],
    row: Sequence[Any],
    workspace: str,
    width: int,
) -> tuple[Place, list[LoggedEvent], dict[str, RowsRead] | None]:
    """What a batch statement answered: the place, the events, and the rows (None where HEAD is still `known_head`)."""
    known, head, horizon, horizon_check, cursor, cursor_check, start, start_check, head_check, telling, events = row[:11]
    place = Place(
        known=bool(known),
        head=head,
        head_check=(horizon_check if head == horizon else 0) if head_check is None else head_check,
        horizon=horizon,
        horizon_check=horizon_check,
        cursor=cursor,
        cursor_check=cursor_check,
        start=start,
        start_check=0 if start == 0 else horizon_check if start == horizon else start_check,
        telling=telling or "on",
    )
    logged = [_event(item, workspace, by_type) for item in load(events) or []]
    parts = row[11:]
    if tables and parts[0] is None:
        return place, logged, None
    rows = {}
    for index, tracked in enumerate(tables):
        listed, count = parts[2 * index], parts[2 * index + 1]
        got = read_listed(tracked, load(listed), dialect, width)
        rows[tracked.entity_type] = RowsRead(got, max(0, (count or 0) - len(got)))
    return place, logged, rows


def _event(raw: Sequence[Any], workspace: str, by_type: Mapping[str, TrackedTable]) -> LoggedEvent:
    revision, check, op, entity_type, entity_id, fields, values, actor_type, actor_id, thread, mutation, at = raw
    tracked = by_type.get(entity_type)
    read: dict[str, tuple[Any, Any]] = {}
    for name, pair in (values or {}).items():
        try:
            field = tracked.field(name) if tracked else None
        except KeyError:
            field = None
        if field is None or field.redacted:  # recorded once, redacted or dropped since: not to be shown
            continue
        read[name] = (canonical(field, pair[0]), canonical(field, pair[1]))
    at = at if str(at).endswith("Z") else f"{at}Z"
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
        at,
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


def read_history(rows: Sequence[Sequence[Any]], workspace: str, by_type: Mapping[str, TrackedTable]) -> list[ChangeEvent]:
    """The events that a history statement answered."""
    return [_event(load(row[0]), workspace, by_type).event for row in rows]


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


