"""Cursors and deliveries: where conversations stand, and what stood in their model requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abreast.store.schema import DialectName, own
from abreast.store.statement import Statement
from abreast.types import Position, Standing


def start_statement(dialect: DialectName, schema: str, *, workspace: str, thread: str) -> Statement:
    """Gives a conversation its place, at HEAD, if it has none. A conversation that has one keeps it."""
    cursor, head = own(dialect, "cursor", schema), own(dialect, "workspace", schema)
    return Statement(
        f"insert into {cursor} (workspace, thread, revision, check_number) "
        f"select :workspace, :thread, coalesce(w.head, 0), coalesce({_check(dialect, schema, 'w.head')}, 0) "
        f"from (select 1) as one left join {head} w on w.workspace = :workspace "
        f"where 1 = 1 on conflict (workspace, thread) do nothing",
        {"workspace": workspace, "thread": thread},
    )


def place_statement(dialect: DialectName, schema: str, *, workspace: str, thread: str) -> Statement:
    """A conversation's revision in a workspace: one row, or none."""
    return Statement(
        f"select revision from {own(dialect, 'cursor', schema)} where workspace = :workspace and thread = :thread",
        {"workspace": workspace, "thread": thread},
    )


def move_statement(dialect: DialectName, schema: str, *, workspace: str, thread: str, to: Position, run: str) -> Statement:
    """Moves a cursor forward to `to`; never back.

    One exception: a place that the log does not know (it lies beyond a restore from a backup) counts as no place.
    """
    cursor, head = own(dialect, "cursor", schema), own(dialect, "workspace", schema)
    target = f"{cursor}" if dialect == "sqlite" else "place"
    known = _check(dialect, schema, f"{target}.revision")
    now = "now()" if dialect == "postgresql" else "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
    alias = "" if dialect == "sqlite" else " as place"
    return Statement(
        f"insert into {cursor}{alias} (workspace, thread, revision, check_number, run) "
        f"values (:workspace, :thread, :revision, :check_number, :run) "
        f"on conflict (workspace, thread) do update set revision = excluded.revision, check_number = excluded.check_number, "
        f"run = excluded.run, updated_at = {now} "
        f"where {target}.revision < excluded.revision "
        f"or {target}.revision > coalesce((select w.head from {head} w where w.workspace = excluded.workspace), 0) "
        f"or ({target}.revision > 0 and {known} <> {target}.check_number)",
        {"workspace": workspace, "thread": thread, "revision": to.revision, "check_number": to.check, "run": run},
    )


def _check(dialect: DialectName, schema: str, revision: str) -> str:
    """The log's check number at a revision; NULL where the log no longer, or not yet, reaches it."""
    if dialect == "postgresql":
        block = own(dialect, "block", schema)
        return (
            f"(select b.check_number from {block} b where b.workspace = :workspace and b.last >= {revision} "
            f"and b.last - b.n < {revision} order by b.last limit 1)"
        )
    return f"(select e.check_number from {own(dialect, 'event')} e where e.workspace = :workspace and e.revision = {revision})"


def deliver_statement(dialect: DialectName, schema: str, rows: Sequence[Mapping[str, Any]]) -> Statement:
    """Notes what stood in one model request, a row a workspace. Noting it again changes nothing."""
    columns = ("thread", "run", "call", "workspace", "from_revision", "to_revision", "head", "tokens", "digest", "told")
    names, values = [], {}
    for number, row in enumerate(rows):
        names.append("(" + ", ".join(f":{column}_{number}" for column in columns) + ")")
        values.update({f"{column}_{number}": row[column] for column in columns})
    text = (
        f"insert into {own(dialect, 'delivery', schema)} ({', '.join(columns)}) values {', '.join(names)} on conflict do nothing"
    )
    return Statement(text, values)


def deliveries_statement(dialect: DialectName, schema: str, *, thread: str) -> Statement:
    """What stood in a conversation's model requests, oldest first."""
    return Statement(
        f"select run, call, workspace, from_revision, to_revision, head, tokens, digest, told, "
        f"{_text(dialect, 'at')} from {own(dialect, 'delivery', schema)} where thread = :thread order by at, call, workspace",
        {"thread": thread},
    )


def standings_statement(dialect: DialectName, schema: str, *, workspace: str) -> Statement:
    """Every conversation's place in a workspace, the furthest behind first."""
    return Statement(
        f"select c.thread, c.revision, coalesce(w.head, 0) from {own(dialect, 'cursor', schema)} c "
        f"left join {own(dialect, 'workspace', schema)} w on w.workspace = c.workspace "
        f"where c.workspace = :workspace order by c.revision, c.thread",
        {"workspace": workspace},
    )


def read_standings(rows: Sequence[Sequence[Any]], workspace: str) -> list[Standing]:
    """The places that a standings statement answered."""
    return [Standing(workspace, thread, revision, head) for thread, revision, head in rows]


def _text(dialect: DialectName, column: str) -> str:
    return f"cast({column} as text)" if dialect == "postgresql" else column
