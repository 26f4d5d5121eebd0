"""The functions of governed writes on PostgreSQL, made from the tracked tables: a whole write is one round trip.

They run with the rights of the caller. Their SQL is in `sql/postgresql/`: `write.sql` is what all tables share,
`write_table.sql` what each has of its own, `write_bodies.sql` what both are made of.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from sqlalchemy.dialects import postgresql

from abreast.store.rows import WIDEST
from abreast.store.schema import literal, own, quote, script
from abreast.store.statement import Statement, written_out
from abreast.store.tracked import TrackedTable
from abreast.store.values import entity_id_sql, reference, row_sql, workspace_condition
from abreast.store.writing import TableWriter, assignment

_SHARED = ("apply_several", "apply", "settle")


def function_name(entity_type: str) -> str:
    """The row function of a tracked table; PostgreSQL cuts names at 63 bytes."""
    if len(entity_type.encode()) <= 50:
        return f"row_{entity_type}"
    return f"row_{entity_type.encode()[:40].decode(errors='ignore')}~{hashlib.sha256(entity_type.encode()).hexdigest()[:8]}"


def single_name(entity_type: str) -> str:
    """The function of a tracked table that does a whole write of one change."""
    return "one" + function_name(entity_type).removeprefix("row")


@cache
def _bodies() -> dict[str, str]:
    """The sections of `write_bodies.sql`."""
    text = files("abreast.store").joinpath("sql", "postgresql", "write_bodies.sql").read_text(encoding="utf-8")
    parts = re.split(r"^--- (\w+)\n", text, flags=re.MULTILINE)
    return {name: re.sub(r"--[^\n]*", "", body).strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def install_statements(schema: str, tables: Sequence[TrackedTable], default_schema: str | None = None) -> list[str]:
    """Statements that make or renew the functions, for one transaction."""
    own_schema = quote(schema)
    dialect: Any = postgresql.base.PGDialect()  # type: ignore[no-untyped-call]
    writers = [TableWriter(tracked, dialect) for tracked in tables]
    made = [text for writer in writers for text in _table_functions(writer, own_schema, default_schema)]
    row = _by_table(
        tables,
        "_change ->> 'type'",
        lambda kind: f"_one := {own_schema}.{quote(function_name(kind))}(_workspace, _change, _stage);",
        # A table that another program has installed is called by its name.
        f"execute 'select r.* from ' || {literal(own_schema)} || '.' || quote_ident(_change ->> 'function') || '($1, $2, $3) r' "
        f"into _one using _workspace, _change, _stage;",
    )
    single = _by_table(
        tables,
        "_job #>> '{changes,0,type}'",
        lambda kind: f"_one := {own_schema}.{quote(single_name(kind))}(_workspace, _job, false);",
        f"execute 'select r.* from ' || {literal(own_schema)} || '.' "
        f"|| quote_ident('one' || substr(_job #>> '{{changes,0,function}}', 4)) || '($1, $2, false) r' "
        f"into _one using _workspace, _job;",
    )
    several = f"_one := {own_schema}.apply_several(_workspace, _job, false);"
    either = f"if jsonb_array_length(_job -> 'changes') > 1 then\n{several}\nelse\n{single}\nend if;"
    parts = {name: _bodies()[name] for name in ("begin", "numbered", "stored", "last_place")}
    return [*made, *script("postgresql", "write", write_row=row, write_single=either, **parts, schema=own_schema)]


def _by_table(tables: Sequence[TrackedTable], kind: str, call: Callable[[str], str], other: str) -> str:
    branches = "".join(f"when {literal(t.entity_type)} then {call(t.entity_type)}\n" for t in tables)
    return f"case {kind}\n{branches or 'when null then null;'}else {other}\nend case;"


def uninstall_statement(schema: str) -> str:
    """Removes the functions."""
    names = ", ".join(literal(name) for name in _SHARED)
    return (
        "do $$ declare _found record; begin "
        "for _found in select p.oid::regprocedure as name from pg_catalog.pg_proc p "
        f"where p.pronamespace = pg_catalog.to_regnamespace({literal(quote(schema))}) "
        f"and (p.proname in ({names}) or pg_catalog.starts_with(p.proname, 'row_') or pg_catalog.starts_with(p.proname, 'one_')) "
        "loop execute 'drop function ' || _found.name; end loop; end $$"
    )


def apply_statement(schema: str, workspace: str, calls: Sequence[str], locks: str, careful: bool) -> Statement:
    """One call for one or several writes of a workspace, each as JSON. Answered with one JSON list of their outcomes.
    `careful`: of several, one that fails leaves the others."""
    return Statement(
        f"select {own('postgresql', 'apply', schema)}(:workspace, cast(:calls as jsonb), cast(:locks as jsonb), :careful)::text",
        {"workspace": workspace, "calls": f"[{','.join(calls)}]", "locks": locks, "careful": careful},
    )


def single_statement(schema: str, workspace: str, call: str, entity_type: str) -> Statement:
    """One call for one write of one change. Answered with what became of it and, as JSON, its outcome if that is stored
    under its mutation, otherwise the outcome's body."""
    function = f"{quote(schema)}.{quote(single_name(entity_type))}"
    return Statement(
        f"select r.kind, r.body::text from {function}(:workspace, cast(:call as jsonb), true) r",
        {"workspace": workspace, "call": call},
    )


def row_statement(schema: str, workspace: str, call: str, stage: str, entity_type: str) -> Statement:
    """One stage of one row's write, inside a transaction of the caller's. Answered with kind, entity id and the row."""
    return Statement(
        f'select r.kind, r.entity_id, r."row"::text from {quote(schema)}.{quote(function_name(entity_type))}'
        f"(cast(:workspace as text), cast(:call as jsonb), cast(:stage as text)) r",
        {"workspace": workspace, "call": call, "stage": stage},
    )


def number_statement(schema: str) -> Statement:
    """Gives the events of this transaction their revisions now, and those that follow as they come. Nobody else numbers
    events of the workspace until it ends."""
    return Statement(f"set constraints {quote(schema)}.abreast_number immediate")


def settle_statement(schema: str, *, workspace: str, mutation: str | None, digest: str, kind: str, body: str) -> Statement:
    """Ends a write that the caller has made himself: what it wrote must be of the workspace. Numbers it, stores the
    outcome, and answers with the revision."""
    return Statement(
        f"select {own('postgresql', 'settle', schema)}(cast(:workspace as text), cast(:mutation as text), "
        f"cast(:digest as text), cast(:kind as text), cast(:body as json))",
        {"workspace": workspace, "mutation": mutation, "digest": digest, "kind": kind, "body": body},
    )


def _table_functions(writer: TableWriter, schema: str, default_schema: str | None) -> list[str]:
    tracked = writer.tracked
    here = tracked.table.schema or default_schema
    table = f"{quote(here)}.{quote(tracked.table.name)}" if here else quote(tracked.table.name)
    name = reference(tracked)
    entity_id = entity_id_sql("postgresql", tracked)
    row = written_out(row_sql("postgresql", tracked, entity_id), width=str(WIDEST))
    home = workspace_condition("postgresql", tracked)
    version, at_home = tracked.version_column, written_out(home, workspace="_workspace")
    returned = 'entity_id, "row", _home' + (", version" if version else "")

    def key(new: str) -> str:
        return " and ".join(f"{name}.{quote(f.name)} = {new}.{quote(f.name)}" for f in tracked.key)

    def returning(where: str) -> str:
        return f"{entity_id}, {row}, {where}" + (f", {name}.{quote(version)}" if version else "")

    places = {tracked.workspace_column, *(tracked.hop.columns if tracked.hop else ())}
    updates = []
    for columns in writer.usual_updates():
        checked = at_home if places & set(columns) else "true"
        settings = ", ".join(f"{quote(c)} = {sql or '_new.' + quote(c)}" for c, sql in columns.items())
        updates.append(
            f"when {literal(assignment(columns))} then\n                update {table} set {settings} where {key('_new')} "
            f"returning {returning(checked)} into {returned};"
        )
    if not updates:  # a table of nothing but its key
        updates.append("when null then null;")
    bodies = _bodies()
    own_version = f"select {name}.{quote(version)} into version from {table} where {key('_new')};" if version else ""
    # Sections are filled in first: what stands in them is filled in with the rest.
    parts = {name: bodies[name] for name in ("write", "begin", "numbered", "stored")} | {
        "version_before": own_version or bodies["version_of_event"],
        "version_after": "" if version else bodies["version_of_event"],
        "place_after": bodies["last_place"] if version else bodies["place_of_event"],
    }
    return script(
        "postgresql",
        "write_table",
        **parts,
        schema=schema,
        function=quote(function_name(tracked.entity_type)),
        single=quote(single_name(tracked.entity_type)),
        table=table,
        source=quote(tracked.table.name),
        json_columns="\n    ".join(
            f"_new.{quote(column)} := _change -> 'values' ->> {literal(column)};" for column in writer.json_columns
        ),
        key=key("_new"),
        given_key=key("_given"),
        key_columns=", ".join(f"{name}.{quote(f.name)}" for f in tracked.key),
        key_text=literal(key("($1)")),
        home=at_home,
        row=row,
        table_text=literal(table),
        returned=returned,
        returning_text=literal(returning(written_out(home, workspace="$2"))),
        updates="\n            ".join(updates),
        entity_type=literal(tracked.entity_type),
    )
