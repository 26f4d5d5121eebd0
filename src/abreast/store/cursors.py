"""Cursors and deliveries: where conversations stand, and what stood in their model requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.types import Position, Standing


def start_statement(dialect: DialectName, schema: str, *, workspace: str, thread: str) -> Statement:
    """Gives a conversation its place, at HEAD, if it has none. A conversation that has one keeps it."""
    (text,) = script(dialect, "start", schema=quote(schema))
    return Statement(text, {"workspace": workspace, "thread": thread})


def place_statement(dialect: DialectName, schema: str, *, workspace: str, thread: str) -> Statement:
    """A conversation's revision in a workspace: one row, or none."""
    return Statement(
        f"select revision from {own(dialect, 'cursor', schema)} where workspace = :workspace and thread = :thread",
        {"workspace": workspace, "thread": thread},
    )


def move_statement(dialect: DialectName, schema: str, *, workspace: str, thread: str, to: Position, run: str) -> Statement:
    """Moves a cursor forward to `to`; never back, unless it stands where the log has never been (a restored backup)."""
    (text,) = script(dialect, "move", schema=quote(schema))
    return Statement(
        text, {"workspace": workspace, "thread": thread, "revision": to.revision, "check_number": to.check, "run": run}
    )


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
