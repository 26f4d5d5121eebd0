"""The functions of governed writes on PostgreSQL, made from the tracked tables: a whole write is one round trip.

They run with the rights of the caller. Their SQL is in `sql/postgresql/`: `write.sql` is what all tables share,
`write_table.sql` what each has of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy.dialects import postgresql

from abreast.store.rows import WIDEST
from abreast.store.schema import literal, own, quote, script
from abreast.store.statement import Statement, written_out
from abreast.store.tracked import TrackedTable
from abreast.store.values import entity_id_sql, reference, row_sql, workspace_condition
from abreast.store.writing import TableWriter, assignment

_SHARED = ("apply_one", "apply", "settle")


def function_name(entity_type: str) -> str:
    """The row function of a tracked table; PostgreSQL cuts names at 63 bytes."""
    if len(entity_type.encode()) <= 50:
        return f"row_{entity_type}"
    return f"row_{entity_type.encode()[:40].decode(errors='ignore')}~{hashlib.sha256(entity_type.encode()).hexdigest()[:8]}"


def install_statements(schema: str, tables: Sequence[TrackedTable], default_schema: str | None = None) -> list[str]:
    """Statements that make or renew the functions, for one transaction."""
    own_schema = quote(schema)
    dialect: Any = postgresql.base.PGDialect()  # type: ignore[no-untyped-call]
    made = [_table_function(TableWriter(tracked, dialect), own_schema, default_schema) for tracked in tables]
    branches = "".join(
        f"when {literal(t.entity_type)} "
        f"then _one := {own_schema}.{quote(function_name(t.entity_type))}(_workspace, _change, _stage);\n"
        for t in tables
    )
    # A table that another program has installed is called by its name.
    other = (
        f"execute 'select r.* from ' || {literal(own_schema)} || '.' || quote_ident(_change ->> 'function') || '($1, $2, $3) r' "
        f"into _one using _workspace, _change, _stage;"
    )
    write_row = f"case _change ->> 'type'\n{branches or 'when null then null;'}else {other}\nend case;"
    return [*made, *script("postgresql", "write", schema=own_schema, write_row=write_row)]


def uninstall_statement(schema: str) -> str:
    """Removes the functions."""
    names = ", ".join(literal(name) for name in _SHARED)
    return (
        "do $$ declare _found record; begin "
        "for _found in select p.oid::regprocedure as name from pg_catalog.pg_proc p "
        f"where p.pronamespace = pg_catalog.to_regnamespace({literal(quote(schema))}) "
        f"and (p.proname in ({names}) or pg_catalog.starts_with(p.proname, 'row_')) "
        "loop execute 'drop function ' || _found.name; end loop; end $$"
    )


def apply_statement(schema: str, workspace: str, calls: Sequence[str], locks: str, careful: bool) -> Statement:
    """One call for one or several writes of a workspace, each as JSON. Answered with one JSON list of their outcomes.
    `careful`: of several, one that fails leaves the others."""
    return Statement(
        f"select {own('postgresql', 'apply', schema)}(:workspace, cast(:calls as jsonb), cast(:locks as jsonb), :careful)::text",
        {"workspace": workspace, "calls": f"[{','.join(calls)}]", "locks": locks, "careful": careful},
    )


def settle_statement(schema: str, *, workspace: str, mutation: str | None, digest: str, kind: str, body: str) -> Statement:
    """Ends a write that the caller has made himself: what it wrote must be of the workspace. Numbers it, stores the
    outcome, and answers with the revision."""
    return Statement(
        f"select {own('postgresql', 'settle', schema)}(cast(:workspace as text), cast(:mutation as text), "
        f"cast(:digest as text), cast(:kind as text), cast(:body as json))",
        {"workspace": workspace, "mutation": mutation, "digest": digest, "kind": kind, "body": body},
    )


def _table_function(writer: TableWriter, schema: str, default_schema: str | None) -> str:
    tracked = writer.tracked
    here = tracked.table.schema or default_schema
    table = f"{quote(here)}.{quote(tracked.table.name)}" if here else quote(tracked.table.name)
    name = reference(tracked)
    entity_id = entity_id_sql("postgresql", tracked)
    row = written_out(row_sql("postgresql", tracked, entity_id), width=str(WIDEST))
    home = workspace_condition("postgresql", tracked)
    version, last, at_home = tracked.version_column, _last_event_sql(schema, tracked), written_out(home, workspace="_workspace")
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
    (text,) = script(
        "postgresql",
        "write_table",
        schema=schema,
        function=quote(function_name(tracked.entity_type)),
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
        version_before=f"select {name}.{quote(version)} into version from {table} where {key('_new')} and {at_home};"
        if version
        else f'select v.place, v.known into "position", version from {table} left join lateral ({last}) v on true '
        f"where {key('_new')} and {at_home};",
        version_after="" if version else f'select v.place, v.known into "position", version from ({last}) v;',
    )
    return text


def _last_event_sql(schema: str, tracked: TrackedTable) -> str:
    """The version of an entity: its last event's revision, or the event's place where it has no revision yet."""
    return (
        f"select case when e.xact = pg_current_xact_id_if_assigned() then e.ord end as place, "
        f"case when e.xact is distinct from pg_current_xact_id_if_assigned() then ("
        f"select b.last - b.last_ord + e.ord from {schema}.block b where b.workspace = e.workspace and b.xact = e.xact "
        f"and b.last_ord >= e.ord order by b.last_ord limit 1) end as known "
        f"from {schema}.event e "
        f"where e.entity_type = {literal(tracked.entity_type)} and e.entity_id = entity_id order by e.seq desc limit 1"
    )
