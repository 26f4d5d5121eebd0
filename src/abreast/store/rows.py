"""Rows of tracked tables: the statements that read them as a person may see them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import elements, operators, visitors

from abreast.errors import InputError
from abreast.store.schema import DialectName, own, quote
from abreast.store.statement import Query, Statement, escaped
from abreast.store.tracked import Readable, TrackedTable
from abreast.store.values import (
    comparable,
    entity_id_sql,
    key_condition,
    load,
    reference,
    row_sql,
    rows_values,
    typed_key,
    workspace_condition,
)
from abreast.types import Row

ROWS_OF_A_TABLE = 1000
"""Rows of one table that a batch reads; more than a budget holds, and far less than a large workspace has."""

WIDEST = 1_000_000_000
"""Characters of a text value where none may be cut."""


@dataclass(frozen=True, slots=True)
class RowsRead:
    """The rows of one table that a statement read, and how many more there are."""

    rows: tuple[Row, ...]
    more: int


def listed_sql(dialect: DialectName, tracked: TrackedTable) -> str:
    """Two columns of a batch statement: the table's rows in this workspace, and their number if they are more than that."""
    source, condition = reference(tracked), workspace_condition(dialect, tracked)
    order = ", ".join(f"{source}.{quote(f.name)}" for f in tracked.key)
    row = row_sql(dialect, tracked, entity_id_sql(dialect, tracked))
    picked = f"select {row} as abreast_row from {source} where {condition} order by {order} limit :rows"
    if dialect == "postgresql":
        listed = f"(select coalesce(json_agg(abreast_row), '[]')::text from ({picked}) as abreast_rows)"
    else:
        # Joined as text: json_group_array would parse every row again to see that it is JSON.
        listed = f"(select coalesce('[' || group_concat(abreast_row) || ']', '[]') from ({picked}) as abreast_rows)"
    # The whole table is counted only where it has more rows than are read.
    over = f"(select count(*) from (select 1 from {source} where {condition} limit :rows + 1) as abreast_some) > :rows"
    return f",\n       {listed}, case when {over} then (select count(*) from {source} where {condition}) end"


def read_listed(tracked: TrackedTable, listed: Iterable[Any], dialect: DialectName, width: int) -> tuple[Row, ...]:
    """The rows of a list that `row_sql` made, parsed."""
    return tuple(map(Row, repeat(tracked.entity_type), *rows_values(tracked, listed, dialect, width)))


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
    conditions: list[Any] = [sa.text(escaped(workspace_condition(dialect, tracked))).bindparams(workspace=workspace)]
    if rule.where is not None:
        conditions.append(rule.where)
    if entity_ids is not None:
        conditions.append(_one_of(dialect, tracked, entity_ids, entity_id))
    for name, value in (match or {}).items():
        column = next(c for c in table.columns if c.name == name)
        conditions.append(column.is_(None) if value is None else column == comparable(tracked, name, value))
    key = list(table.primary_key.columns)
    if after is not None:
        conditions.append(_behind(tracked, key, after))
    row = row_sql(dialect, tracked, entity_id).replace(":width", str(int(width)))
    # As text: a driver that parses JSON by itself would make floats of decimals.
    picked: sa.Select[Any] = sa.select(sa.literal_column(f"cast({row} as text)"))
    counted = sa.select(sa.func.count()).select_from(table).where(*conditions)
    return Query(picked.select_from(table).where(*conditions).order_by(*key).limit(limit)), Query(counted)


def _behind(tracked: TrackedTable, key: Sequence[sa.Column[Any]], after: str) -> sa.ColumnElement[bool]:
    """The condition that a row stands behind this id in key order, whether or not that row is still there."""
    values = typed_key(tracked, after)
    if values is None:
        raise InputError(f"{after!r} is not an id of {tracked.entity_type}.")
    return key[0] > values[0] if len(key) == 1 else sa.tuple_(*key) > sa.tuple_(*values)


def read_rows(tracked: TrackedTable, rows: Sequence[Sequence[Any]], dialect: DialectName, width: int) -> tuple[Row, ...]:
    """The rows that a `rows_query` answered."""
    return read_listed(tracked, (load(raw[0]) for raw in rows), dialect, width)


def existing_query(dialect: DialectName, tracked: TrackedTable, entity_ids: Sequence[str]) -> Query:
    """Which of these entities have a row at all, readable or not: their ids."""
    entity_id = entity_id_sql(dialect, tracked)
    picked = sa.select(sa.literal_column(entity_id, sa.Text)).select_from(tracked.table)
    return Query(picked.where(_one_of(dialect, tracked, entity_ids, entity_id)))


def _one_of(dialect: DialectName, tracked: TrackedTable, entity_ids: Sequence[str], entity_id: str) -> Any:
    """The condition that a row is one of these entities, however many they are."""
    keys = _typed_keys(tracked, entity_ids)
    if len(keys) < 2:
        return key_condition(tracked, entity_ids, entity_id)
    text, value = _listed_keys(dialect, tracked, keys)
    source, names = reference(tracked), [quote(f.name) for f in tracked.key]
    row = ", ".join(f"{source}.{name}" for name in names)
    condition = f"({row}) in ({text})"
    if dialect == "postgresql" and len(names) == 1:
        condition = f"{row} = any(array({text}))"
    elif dialect == "postgresql":
        # Where the rows stand is found first, by the index of the key: beside the application's condition the planner would
        # now and then compare each row with each key.
        same = " and ".join(f"abreast_row.{name} = abreast_keys.{name}" for name in names)
        found = f"select abreast_row.ctid from ({text}) as abreast_keys join {source} as abreast_row on {same}"
        condition = f"{source}.ctid = any(array({found})) and ({condition}) is true"  # partitions number their rows alike
    return sa.text(escaped(condition)).bindparams(sa.bindparam("abreast_keys", value, sa.Text))


def _typed_keys(tracked: TrackedTable, entity_ids: Sequence[str]) -> list[tuple[Any, ...]]:
    return [typed for one in entity_ids if (typed := typed_key(tracked, one)) is not None]


_CAST: dict[DialectName, dict[str, str]] = {
    "postgresql": {"integer": "bigint", "date": "date", "uuid": "uuid"},
    "sqlite": {"integer": "integer"},
}
"""What a key's text becomes; everything else stays text, as SQLite keeps dates and UUIDs too."""


def _listed_keys(dialect: DialectName, tracked: TrackedTable, keys: Sequence[tuple[Any, ...]]) -> tuple[str, str]:
    """A query that lists the keys, one column each, and its parameter `:abreast_keys`. All travel as one: both databases
    limit how many terms and how deep an expression may be, and the text of the statement is the same for any number."""
    picked, sent = [], []
    for position, (column, field) in enumerate(zip(tracked.table.primary_key.columns, tracked.key, strict=True)):
        bare = field.kind == "uuid" and (dialect == "sqlite" or not getattr(column.type, "native_uuid", True))
        kind = "text" if bare else _CAST[dialect].get(field.kind, "text")
        value = f"value ->> {position}" if dialect == "postgresql" else f"json_extract(value, '$[{position}]')"
        picked.append(f"cast({value} as {kind}) as {quote(column.name)}")
        sent.append([str(key[position]).replace("-", "") if bare else str(key[position]) for key in keys])
    source = "json_each(:abreast_keys)"
    if dialect == "postgresql":
        source = "json_array_elements(cast(:abreast_keys as json)) as abreast_listed(value)"
    return f"select {', '.join(picked)} from {source}", json.dumps(list(zip(*sent, strict=True)))


def _of_key_alone(tracked: TrackedTable, condition: Any) -> Any:
    """The condition with every test that looks at more than the key made unknown; `and`, `or` and `not` stay.

    A NULL in the column's place would not do: `deleted_at is null` would say yes to a row that nobody may know of.
    """
    if isinstance(condition, elements.BooleanClauseList):
        parts = [_of_key_alone(tracked, part) for part in condition.clauses]
        return sa.and_(*parts) if condition.operator is operators.and_ else sa.or_(*parts)
    if isinstance(condition, elements.Grouping):
        return _of_key_alone(tracked, condition.element)
    if isinstance(condition, elements.UnaryExpression) and condition.operator is operators.inv:
        return sa.not_(_of_key_alone(tracked, condition.element))
    return sa.cast(sa.null(), sa.Boolean) if _mentions_row(tracked, condition) else condition


def looks_at_row(tracked: TrackedTable, rule: Readable) -> bool:
    """Whether a rule depends on more of a row than its key. Such a rule cannot speak of the values that a row had at
    another time: it might have been somebody else's then."""
    return rule.where is not None and _mentions_row(tracked, rule.where)


def _mentions_row(tracked: TrackedTable, condition: Any) -> bool:
    # The workspace is the same for all that one log says of a row: a row that moves leaves one and enters another.
    names = {column.name for column in tracked.table.primary_key.columns} | {tracked.workspace_column}
    for part in visitors.iterate(condition):
        table = getattr(part, "table", None)
        while isinstance(table, sa.Alias):
            if table.element is tracked.table:
                return True  # the table under another name: it looks at rows, whichever columns it names
            table = table.element
        if table is tracked.table and getattr(part, "name", None) not in names:
            return True
    return False


def bare_query(dialect: DialectName, tracked: TrackedTable, rule: Readable, entity_ids: Sequence[str]) -> Query | None:
    """Which of these ids the rule accepts when nothing but the id is known: every other column is NULL.

    The ids stand in a common table expression that takes the table's place in the application's condition, and its name
    for what the condition says in text. None where nothing can be asked: no id of this table's form.
    """
    keys = _typed_keys(tracked, entity_ids)
    if rule.where is None or not keys:
        return None
    where = _of_key_alone(tracked, rule.where)
    text, value = _listed_keys(dialect, tracked, keys)
    key = tracked.table.primary_key.columns
    bound = sa.text(escaped(text)).bindparams(sa.bindparam("abreast_keys", value, sa.Text))
    listed = bound.columns(*(sa.column(column.name, column.type) for column in key)).subquery("abreast_keys")
    primary = {column.name for column in key}

    def known(column: sa.Column[Any]) -> Any:
        if column.name not in primary:
            return sa.cast(sa.null(), column.type)
        # On SQLite a cast to a date would make its year of it.
        return sa.cast(listed.c[column.name], column.type) if dialect == "postgresql" else listed.c[column.name]

    bare = sa.select(*(known(column).label(column.name) for column in tracked.table.columns)).cte(tracked.table.name)

    def stand_in(element: Any, **_: Any) -> Any:
        if isinstance(element, sa.Table) and element.key == tracked.table.key:
            return bare
        if isinstance(element, sa.Column) and isinstance(element.table, sa.Table) and element.table.key == tracked.table.key:
            return bare.c[element.name]
        return None

    condition = visitors.replacement_traverse(where, {}, stand_in)
    entity_id = entity_id_sql(dialect, tracked, quote(tracked.table.name))
    return Query(sa.select(sa.literal_column(entity_id, sa.Text)).select_from(bare).where(condition))


def all_rows_statement(dialect: DialectName, tracked: TrackedTable) -> Statement:
    """All rows of a table, of every workspace."""
    row = row_sql(dialect, tracked, entity_id_sql(dialect, tracked)).replace(":width", str(WIDEST))
    text = f"cast({row} as text)" if dialect == "postgresql" else row
    return Statement(f"select {text} from {reference(tracked)}")
