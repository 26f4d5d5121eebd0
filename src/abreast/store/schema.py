"""The tables of abreast: their names on each database, and the SQL that makes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Literal

DialectName = Literal["sqlite", "postgresql"]

VERSION = "2"
"""Version of the table layout, kept in `meta`."""

TABLES = (
    *("meta", "workspace", "context", "event", "block", "cursor", "delivery", "miss", "lease", "mutation", "gone"),
    *("thread", "message", "run", "run_event", "approval", "reply"),
)


def quote(name: str) -> str:
    """An SQL identifier, quoted for both databases."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string literal, for names that become part of a trigger's text."""
    return "'" + text.replace("'", "''") + "'"


def own(dialect: DialectName, name: str, schema: str = "abreast") -> str:
    """The full name of one of our tables: `"abreast".event` on PostgreSQL, `abreast_event` on SQLite."""
    return f"{quote(schema)}.{name}" if dialect == "postgresql" else f"abreast_{name}"


@lru_cache(maxsize=512)
def script(dialect: DialectName, name: str, **replacements: str) -> list[str]:
    """The statements of one SQL file of ours, placeholders `{{name}}` filled in."""
    text = files("abreast.store").joinpath("sql", dialect, f"{name}.sql").read_text(encoding="utf-8")
    statements = list(split(text))  # before the filling: a column's name may hold what looks like an end or a comment
    for key, value in replacements.items():
        statements = [statement.replace("{{" + key + "}}", value) for statement in statements]
    return statements


def split(text: str) -> Iterator[str]:
    """The statements of an SQL text; `$$` bodies and quoted strings stay whole, comments go."""
    text = re.sub(r"--[^\n]*", "", text)
    start, inside = 0, False
    for match in re.finditer(r"\$\$|;|'(?:[^']|'')*'", text):
        if match.group() == "$$":
            inside = not inside
        elif match.group() == ";" and not inside:
            statement = text[start : match.start()].strip()
            if statement:
                yield statement
            start = match.end()
    rest = text[start:].strip()
    if rest:
        yield rest


def create_statements(dialect: DialectName, schema: str = "abreast") -> list[str]:
    """Statements that make our tables where they are missing, and write down their version."""
    meta = own(dialect, "meta", schema)
    return [
        *script(dialect, "tables", schema=quote(schema)),
        f"insert into {meta} as known (name, value) values ('version', '{VERSION}') "
        f"on conflict (name) do update set value = excluded.value where known.value <> excluded.value",
        f"insert into {meta} (name, value) values ('telling', 'on') on conflict (name) do nothing",
    ]


def drop_statements(dialect: DialectName, schema: str = "abreast") -> list[str]:
    """Statements that remove our tables and all that is in them."""
    if dialect == "postgresql":
        return [f"drop schema if exists {quote(schema)} cascade"]
    views = [f"drop view if exists {own(dialect, name)}" for name in ("change", "entry")]
    return [*views, *(f"drop table if exists {own(dialect, name)}" for name in TABLES if name != "block")]
