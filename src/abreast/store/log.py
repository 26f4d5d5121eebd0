"""The log: statements that read it beside the rows it speaks of, and the reading of their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Query, Statement
from abreast.store.tracked import Readable, TrackedTable
from abreast.store.values import (
    canonical,
    key_condition,
    key_sql,
    load,
    reference,
    row_sql,
    row_values,
    typed_key,
    workspace_condition,
)
from abreast.types import Actor, ChangeEvent, Row

ROWS_OF_A_TABLE = 1000
"""Rows of one table that a batch reads; more than a budget holds, and far less than a large workspace has."""


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


@dataclass(frozen=True, slots=True)
class RowsRead:
    """The rows of one table that a statement read, and how many more there are."""

    rows: tuple[Row, ...]
    more: int


def entity_id_sql(dialect: DialectName, tracked: TrackedTable, source: str | None = None) -> str:
    """The entity id of a row of `source` (default: the table itself), the same text that the triggers write."""
    source = source or reference(tracked)
    texts = [key_sql(dialect, f, f"{source}.{quote(f.name)}") for f in tracked.key]
    if len(texts) == 1:
        return texts[0]
    if dialect == "sqlite":
        return f"json_array({', '.join(texts)})"
    return "('[' || " + " || ',' || ".join(f"to_json({text})::text" for text in texts) + " || ']')"


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
    rows = "".join(_rows_text(dialect, tracked) for tracked in tables)
    if "{{" in schema:
        raise ValueError(schema)
    (text,) = script(dialect, "batch", schema=quote(schema), event=event, rows=rows)
    return text


def _rows_text(dialect: DialectName, tracked: TrackedTable) -> str:
    entity_id = entity_id_sql(dialect, tracked)
    source, condition = reference(tracked), workspace_condition(dialect, tracked)
    order = ", ".join(f"{source}.{quote(f.name)}" for f in tracked.key)
    row = row_sql(dialect, tracked, entity_id)
    picked = f"select {row} as abreast_row from {source} where {condition} order by {order} limit :rows"
    if dialect == "postgresql":
        listed = f"(select coalesce(json_agg(abreast_row), '[]')::text from ({picked}) as abreast_rows)"
        same = "p.head = cast(:known_head as bigint)"
    else:
        listed = f"(select json_group_array(json(abreast_row)) from ({picked}) as abreast_rows)"
        same = "p.head = :known_head"
    # The whole table is counted only where it has more rows than are read.
    over = f"(select count(*) from (select 1 from {source} where {condition} limit :rows + 1) as abreast_some) > :rows"
    count = f"case when {over} then (select count(*) from {source} where {condition}) end"
    return f",\n       case when {same} then null else {listed} end, case when {same} then null else {count} end"


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
        got = tuple(_row(tracked, raw, dialect, width) for raw in load(listed))
        rows[tracked.entity_type] = RowsRead(got, max(0, (count or 0) - len(got)))
    return place, logged, rows


def _row(tracked: TrackedTable, raw: Any, dialect: DialectName, width: int) -> Row:
    entity_id, values = row_values(tracked, raw, dialect, width)
    return Row(tracked.entity_type, entity_id, values)


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


def exists_statement(dialect: DialectName, schema: str, tables: Sequence[TrackedTable], workspace: str) -> Statement:
    """Whether the workspace has a head or any tracked row: one row with one boolean."""
    head = f"exists (select 1 from {own(dialect, 'workspace', schema)} where workspace = :workspace)"
    some = [f"exists (select 1 from {reference(t)} where {workspace_condition(dialect, t)})" for t in tables]
    return Statement(f"select {' or '.join([head, *some])}", {"workspace": workspace})


def rows_query(
    dialect: DialectName,
    tracked: TrackedTable,
    rule: Readable,
    *,
    workspace: str,
    width: int,
    limit: int,
    entity_ids: Sequence[str] | None = None,
    match: Mapping[str, Any] | None = None,
    after: str | None = None,
) -> tuple[Query, Query]:
    """The rows of one table that a rule lets through, and their number. For a snapshot: the rule is the application's.

    `entity_ids` narrows to these, `match` to rows whose columns equal these texts, `after` to keys behind that id.
    """
    entity_id = entity_id_sql(dialect, tracked)
    table = tracked.table
    conditions: list[Any] = [sa.text(workspace_condition(dialect, tracked)).bindparams(workspace=workspace)]
    if rule.where is not None:
        conditions.append(rule.where)
    if entity_ids is not None:
        conditions.append(key_condition(tracked, entity_ids, entity_id))
    for name, value in (match or {}).items():
        column = next(c for c in table.columns if c.name == name)
        conditions.append(column.is_(None) if value is None else sa.cast(column, sa.Text) == str(value))
    key = list(table.primary_key.columns)
    counted = sa.select(sa.func.count()).select_from(table).where(*conditions)
    if after is not None:
        anchor = sa.select(*key).where(key_condition(tracked, [after], entity_id)).subquery()
        bound = [sa.select(anchor.c[c.key]).scalar_subquery() for c in key]
        conditions.append(key[0] > bound[0] if len(key) == 1 else sa.tuple_(*key) > sa.tuple_(*bound))
    picked = sa.select(sa.literal_column(row_sql(dialect, tracked, entity_id).replace(":width", str(int(width)))))
    return Query(picked.select_from(table).where(*conditions).order_by(*key).limit(limit)), Query(counted)


def read_rows(tracked: TrackedTable, rows: Sequence[Sequence[Any]], dialect: DialectName, width: int) -> tuple[Row, ...]:
    """The rows that a `rows_query` answered."""
    return tuple(_row(tracked, raw[0] if isinstance(raw[0], list) else load(raw[0]), dialect, width) for raw in rows)


def existing_query(dialect: DialectName, tracked: TrackedTable, entity_ids: Sequence[str]) -> Query:
    """Which of these entities have a row at all, readable or not: their ids."""
    entity_id = entity_id_sql(dialect, tracked)
    picked = sa.select(sa.literal_column(entity_id, sa.Text)).select_from(tracked.table)
    return Query(picked.where(key_condition(tracked, entity_ids, entity_id)))


def bare_query(dialect: DialectName, tracked: TrackedTable, rule: Readable, entity_ids: Sequence[str]) -> Query | None:
    """Which of these ids the rule accepts when nothing but the id is known: every other column is NULL.

    The ids stand in a common table expression that takes the table's name, so that the application's condition reads
    them instead of rows. None where nothing can be asked: no id of this table's form.
    """
    keys = [typed for one in entity_ids if (typed := typed_key(tracked, one)) is not None]
    if rule.where is None or not keys:
        return None
    primary = {column.name: position for position, column in enumerate(tracked.table.primary_key.columns)}
    rows = [
        sa.select(
            *(
                sa.cast(sa.literal(key[primary[c.name]], c.type) if c.name in primary else sa.null(), c.type).label(c.name)
                for c in tracked.table.columns
            )
        )
        for key in keys
    ]
    bare = sa.union_all(*rows).cte(tracked.table.name)
    entity_id = entity_id_sql(dialect, tracked, quote(tracked.table.name))
    picked = sa.select(sa.literal_column(entity_id, sa.Text)).select_from(tracked.table).where(rule.where).add_cte(bare)
    return Query(picked.execution_options(schema_translate_map={tracked.table.schema: None}))


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
    conditions = ["e.workspace = :workspace"]
    parameters: dict[str, Any] = {"workspace": workspace, "limit": limit}
    given = {"entity_type": entity_type, "entity_id": entity_id, "since": since, "until": until, "before": before}
    moment = "cast(:{0} as timestamptz)" if dialect == "postgresql" else ":{0}"
    tests = {
        "entity_type": "e.entity_type = :entity_type",
        "entity_id": "e.entity_id = :entity_id",
        "since": f"e.at >= {moment.format('since')}",
        "until": f"e.at < {moment.format('until')}",
        "before": "b.last - b.last_ord + e.ord < :before" if dialect == "postgresql" else "e.revision < :before",
    }
    for name, value in given.items():
        if value is not None:
            conditions.append(tests[name])
            parameters[name] = value
    where = " and ".join(conditions)
    if dialect == "postgresql":
        block, event = own(dialect, "block", schema), own(dialect, "event", schema)
        text = (
            f"select json_build_array(b.last - b.last_ord + e.ord, b.check_number, e.op, e.entity_type, e.entity_id, e.fields, "
            f"e.\"values\", e.actor_type, e.actor_id, e.thread, e.mutation, e.at at time zone 'UTC')::text "
            f"from {event} e join {block} b on b.workspace = e.workspace and b.xact = e.xact "
            f"and e.ord <= b.last_ord and e.ord > b.last_ord - b.n where {where} order by b.last desc, e.ord desc limit :limit"
        )
    else:
        text = (
            f"select json_array(e.revision, e.check_number, e.op, e.entity_type, e.entity_id, json(e.fields), "
            f'json(e."values"), e.actor_type, e.actor_id, e.thread, e.mutation, e.at) '
            f"from {own(dialect, 'event')} e where {where} order by e.revision desc limit :limit"
        )
    return Statement(text, parameters)


def read_history(rows: Sequence[Sequence[Any]], workspace: str, by_type: Mapping[str, TrackedTable]) -> list[ChangeEvent]:
    """The events that a history statement answered."""
    return [_event(load(row[0]), workspace, by_type).event for row in rows]


def versions_statement(
    dialect: DialectName, schema: str, *, workspace: str, entity_type: str, entity_ids: Sequence[str]
) -> Statement:
    """The version of each entity: the revision of its last event. Entities without an event have no row."""
    parameters: dict[str, Any] = {"workspace": workspace, "entity_type": entity_type, "ids": json.dumps(list(entity_ids))}
    if dialect == "postgresql":
        block, event = own(dialect, "block", schema), own(dialect, "event", schema)
        return Statement(
            f"select wanted.id, (select b.last - b.last_ord + e.ord from {event} e "
            f"join {block} b on b.workspace = e.workspace and b.xact = e.xact and e.ord <= b.last_ord and e.ord > b.last_ord - b.n "
            f"where e.workspace = :workspace and e.entity_type = :entity_type and e.entity_id = wanted.id order by e.seq desc limit 1) "
            f"from json_array_elements_text(cast(:ids as json)) as wanted(id)",
            parameters,
        )
    return Statement(
        f"select wanted.value, (select max(e.revision) from {own(dialect, 'event')} e where e.entity_type = :entity_type "
        f"and e.entity_id = wanted.value and e.workspace = :workspace) from json_each(:ids) as wanted",
        parameters,
    )


def prune_statements(dialect: DialectName, schema: str, *, workspace: str, horizon: int) -> list[Statement]:
    """Statements that move the horizon and delete events up to it, except the newest of each entity: it is its version.

    They run in one transaction. The horizon never moves back and never passes HEAD.
    """
    parameters = {"workspace": workspace, "horizon": horizon}
    head, event = own(dialect, "workspace", schema), own(dialect, "event", schema)
    if dialect == "sqlite":
        return [
            Statement(
                f"update {head} set horizon = min(:horizon, head), horizon_check = coalesce((select e.check_number from {event} e "
                f"where e.workspace = :workspace and e.revision = min(:horizon, head)), horizon_check) "
                f"where workspace = :workspace and horizon < :horizon",
                parameters,
            ),
            Statement(
                f"delete from {event} where workspace = :workspace and revision <= (select horizon from {head} where workspace = :workspace) "
                f"and exists (select 1 from {event} newer where newer.workspace = {event}.workspace and newer.entity_type = {event}.entity_type "
                f"and newer.entity_id = {event}.entity_id and newer.revision > {event}.revision)",
                parameters,
            ),
        ]
    block = own(dialect, "block", schema)
    return [
        Statement(
            f"update {head} w set horizon = least(cast(:horizon as bigint), w.head), horizon_check = coalesce((select b.check_number from {block} b "
            f"where b.workspace = w.workspace and b.last >= least(cast(:horizon as bigint), w.head) order by b.last limit 1), w.horizon_check) "
            f"where w.workspace = :workspace and w.horizon < :horizon",
            parameters,
        ),
        Statement(
            f"delete from {event} e using {block} b, {head} w where w.workspace = :workspace and b.workspace = w.workspace "
            f"and b.last - b.n < w.horizon and e.workspace = b.workspace and e.xact = b.xact and e.ord <= b.last_ord and e.ord > b.last_ord - b.n "
            f"and b.last - b.last_ord + e.ord <= w.horizon and exists (select 1 from {event} newer where newer.workspace = e.workspace "
            f"and newer.entity_type = e.entity_type and newer.entity_id = e.entity_id and newer.seq > e.seq)",
            parameters,
        ),
        Statement(
            f"delete from {block} b using {head} w where w.workspace = :workspace and b.workspace = w.workspace and b.last <= w.horizon "
            f"and not exists (select 1 from {event} e where e.workspace = b.workspace and e.xact = b.xact and e.ord <= b.last_ord "
            f"and e.ord > b.last_ord - b.n)",
            parameters,
        ),
    ]


def telling_statement(dialect: DialectName, schema: str, telling: str) -> Statement:
    """Sets the switch that every process reads with its next batch."""
    meta = own(dialect, "meta", schema)
    return Statement(
        f"insert into {meta} (name, value) values ('telling', :telling) on conflict (name) do update set value = excluded.value",
        {"telling": telling},
    )


WIDEST = 1_000_000_000
"""Characters of a text value where none may be cut."""


def broken_heads_statement(dialect: DialectName, schema: str) -> Statement:
    """Workspaces whose log is not whole above the horizon: name, number of revisions there, head."""
    head = own(dialect, "workspace", schema)
    if dialect == "sqlite":
        counted = f"select count(*) from {own(dialect, 'event')} e where e.workspace = w.workspace and e.revision > w.horizon"
        beyond = f"select max(e.revision) from {own(dialect, 'event')} e where e.workspace = w.workspace"
    else:
        block, event = own(dialect, "block", schema), own(dialect, "event", schema)
        joined = (
            f"from {event} e join {block} b on b.workspace = e.workspace and b.xact = e.xact "
            f"and e.ord <= b.last_ord and e.ord > b.last_ord - b.n where e.workspace = w.workspace"
        )
        counted = f"select count(*) {joined} and b.last - b.last_ord + e.ord > w.horizon"
        beyond = f"select max(b.last) from {block} b where b.workspace = w.workspace"
    return Statement(
        f"select w.workspace, ({counted}), w.head from {head} w "
        f"where ({counted}) <> w.head - w.horizon or coalesce(({beyond}), w.horizon) > w.head"
    )


def drift_statements(dialect: DialectName, schema: str, tracked: TrackedTable) -> list[tuple[str, str, Statement]]:
    """Queries for ids where rows and the log disagree: code, what to say behind their number, the query."""
    event, source = own(dialect, "event", schema), reference(tracked)
    order = "e.seq desc" if dialect == "postgresql" else "e.revision desc"
    entity_id = entity_id_sql(dialect, tracked)
    rows = f"select {entity_id} as abreast_id from {source}"
    kind = {"entity_type": tracked.entity_type}
    last = f"(select e.op from {event} e where e.entity_type = :entity_type and e.entity_id = abreast_rows.abreast_id order by {order} limit 1)"
    newest = (
        f"select d.entity_id, (select e.op from {event} e where e.entity_type = :entity_type and e.entity_id = d.entity_id "
        f"order by {order} limit 1) as op from (select distinct entity_id from {event} where entity_type = :entity_type) d"
    )
    return [
        (
            "row_gone_unseen",
            "row(s) are gone though the log never saw them deleted (INSERT OR REPLACE, disabled triggers, a restore).",
            Statement(
                f"select n.entity_id from ({newest}) n where n.op <> 'delete' and n.entity_id not in ({rows}) order by 1", kind
            ),
        ),
        (
            "row_back_unseen",
            "row(s) exist though the log saw them deleted last (disabled triggers, a restore).",
            Statement(f"select abreast_rows.abreast_id from ({rows}) as abreast_rows where {last} = 'delete' order by 1", kind),
        ),
    ]


def recorded_statement(dialect: DialectName, schema: str, tracked: TrackedTable) -> Statement:
    """Every recorded value of a table's rows, oldest first."""
    order = "seq" if dialect == "postgresql" else "workspace, revision"
    values = 'cast("values" as text)' if dialect == "postgresql" else '"values"'
    return Statement(
        f"select entity_id, op, {values} from {own(dialect, 'event', schema)} where entity_type = :entity_type order by {order}",
        {"entity_type": tracked.entity_type},
    )


def read_recorded(rows: Sequence[Sequence[Any]], tracked: TrackedTable) -> list[tuple[str, dict[str, Any]]]:
    """Entity id and the new values of each event that a recorded statement answered."""
    read = []
    for entity_id, _, values in rows:
        pairs = load(values) or {}
        known = {f.name: f for f in tracked.fields if f.recorded}
        read.append((entity_id, {name: canonical(known[name], pair[1]) for name, pair in pairs.items() if name in known}))
    return read


def all_rows_statement(dialect: DialectName, tracked: TrackedTable) -> Statement:
    """All rows of a table, of every workspace."""
    row = row_sql(dialect, tracked, entity_id_sql(dialect, tracked)).replace(":width", str(WIDEST))
    text = f"cast({row} as text)" if dialect == "postgresql" else row
    return Statement(f"select {text} from {reference(tracked)}")
