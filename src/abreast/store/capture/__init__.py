"""Capture: one door to the triggers of both databases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from abreast.store.capture import postgres, postgres_triggers, sqlite
from abreast.store.schema import DialectName, quote
from abreast.store.statement import Flow, Statement
from abreast.store.tracked import TrackedTable
from abreast.types import Finding


@dataclass(frozen=True)
class Survey:
    """What the triggers must know of the database they are made for. `default_schema` and `uncomparable` are
    PostgreSQL's: where tables without a schema are, and columns whose type has no equality of its own."""

    default_schema: str | None = None
    uncomparable: dict[tuple[str, str], str] = field(default_factory=dict)


def survey(dialect: DialectName, tables: Sequence[TrackedTable]) -> Flow[Survey]:
    """Asks the database what its triggers must know."""
    if dialect == "sqlite":
        return Survey()
    answer = yield Statement("select current_schema()")
    schema = answer[0][0]
    uncomparable = {}
    for tracked in tables:
        for column, kind in (yield _named(postgres.UNCOMPARABLE_SQL, table=postgres_triggers.relation(tracked, schema))):
            uncomparable[tracked.entity_type, column] = kind
    return Survey(schema, uncomparable)


def install_groups(dialect: DialectName, schema: str, tables: Sequence[TrackedTable], found: Survey) -> list[list[str]]:
    """Statements that make or renew the triggers; each group may run in a short transaction of its own."""
    if dialect == "sqlite":
        return [sqlite.install_statements(tables)]
    return postgres.install_groups(tables, schema, found.uncomparable, found.default_schema)


def uninstall_groups(dialect: DialectName, schema: str, tables: Sequence[TrackedTable], found: Survey) -> list[list[str]]:
    """Statements that remove the triggers and leave the log."""
    if dialect == "sqlite":
        return [sqlite.uninstall_statements(tables)]
    return [[statement] for statement in postgres.uninstall_statements(tables, schema, found.default_schema)]


def trigger_findings(dialect: DialectName, schema: str, tables: Sequence[TrackedTable]) -> Flow[list[Finding]]:
    """What is wrong with the triggers that are there."""
    if dialect == "sqlite":
        triggers = yield Statement(sqlite.TRIGGERS_FOUND_SQL)
        columns = yield Statement(sqlite.COLUMNS_FOUND_SQL)
        return sqlite.findings(tables, [tuple(row) for row in triggers], [tuple(row) for row in columns])
    known = yield from survey(dialect, tables)
    names = [postgres_triggers.relation(tracked, known.default_schema) for tracked in tables]
    rows = yield _named(postgres.TRIGGERS_FOUND_SQL, tables=names, schema=quote(schema))
    wrong = postgres.findings(tables, rows, schema, known.uncomparable, known.default_schema)
    there: dict[str, set[str]] = {}
    for name, column in (yield Statement(_COLUMNS, {"tables": names})):
        there.setdefault(name, set()).add(column)
    for tracked, name in zip(tables, names, strict=True):
        for gone in sorted({f.name for f in tracked.fields} - there[name]) if name in there else ():
            text = (
                f"The column {gone} of {name} is declared but not there: writes of it fail. Correct the model, then run install."
            )
            wrong.append(Finding("column_missing", tracked.entity_type, text))
    return wrong


_COLUMNS = (
    "select n.name, a.attname::text from pg_catalog.unnest(cast(:tables as text[])) n(name) "
    "join pg_catalog.pg_attribute a on a.attrelid = pg_catalog.to_regclass(n.name) and a.attnum > 0 and not a.attisdropped"
)


def _named(text: str, **parameters: object) -> Statement:
    text = re.sub(r"%\((\w+)\)s::([\w\[\]]+)", r"cast(:\1 as \2)", text)
    return Statement(re.sub(r"%\((\w+)\)s", r":\1", text), parameters)
