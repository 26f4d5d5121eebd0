"""Upkeep of the log: pruning it, and comparing it with the rows that it speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.store.tracked import TrackedTable
from abreast.store.values import canonical, entity_id_sql, home_condition, load, parsed_object, reference


def add_workspace_statement(dialect: DialectName, schema: str, *, workspace: str) -> Statement:
    """Makes a workspace known, at revision 0, as its first change would. One that is known stays as it is."""
    return Statement(
        f"insert into {own(dialect, 'workspace', schema)} (workspace) values (:workspace) on conflict (workspace) do nothing",
        {"workspace": workspace},
    )


def prune_statements(dialect: DialectName, schema: str, *, workspace: str, horizon: int) -> list[Statement]:
    """Statements that move the horizon and delete events up to it, except the newest of each entity: it is its version.

    They run in one transaction. The horizon never moves back and never passes HEAD.
    """
    parameters = {"workspace": workspace, "horizon": horizon}
    return [Statement(text, parameters) for text in script(dialect, "prune", schema=quote(schema))]


def broken_heads_statement(dialect: DialectName, schema: str) -> Statement:
    """Workspaces whose log is not whole above the horizon: name, number of revisions there, head."""
    (text,) = script(dialect, "broken_heads", schema=quote(schema))
    return Statement(text)


def drift_statements(dialect: DialectName, schema: str, tracked: TrackedTable) -> list[tuple[str, str, Statement]]:
    """Queries for ids where rows and the log disagree: code, what to say behind their number, the query."""
    # One collation on both sides: PostgreSQL compares no texts whose collations differ.
    collation = ' collate "C"' if dialect == "postgresql" else ""
    rows = f"select {entity_id_sql(dialect, tracked)}{collation} from {reference(tracked)}"
    at_home = f"{rows} where {home_condition(tracked)}"  # a row without a workspace has left the log, and is there
    alive, gone = (_last_sql(dialect, schema, test) for test in ("<> 'delete'", "= 'delete'"))
    if dialect == "sqlite":  # the log of each workspace that an entity has left ends with a delete as well
        gone = f"{gone} except {alive}"
    kind = {"entity_type": tracked.entity_type}
    return [
        (
            "row_gone_unseen",
            "row(s) are gone though the log never saw them deleted (INSERT OR REPLACE, disabled triggers, a restore).",
            Statement(f"{alive} except {rows} order by 1", kind),
        ),
        (
            "row_back_unseen",
            "row(s) exist though the log saw them deleted last (disabled triggers, a restore).",
            Statement(f"select * from ({gone}) as abreast_gone intersect {at_home} order by 1", kind),
        ),
    ]


def _last_sql(dialect: DialectName, schema: str, op: str) -> str:
    """Ids of the entities whose last event is one of these; on SQLite, their last event in some workspace."""
    event = own(dialect, "event", schema)
    if dialect == "sqlite":
        last = f"select entity_id, op, max(revision) from {event} where entity_type = :entity_type group by workspace, entity_id"
    else:
        last = (
            f"select distinct on (entity_id) entity_id, op from {event} where entity_type = :entity_type "
            f"order by entity_id, seq desc"
        )
    return f"select entity_id from ({last}) as abreast_last where op {op}"


def recorded_statement(dialect: DialectName, schema: str, tracked: TrackedTable) -> Statement:
    """What the log recorded of a table's rows: entity id, workspace, operation, changed fields, values; oldest first."""
    order = "seq" if dialect == "postgresql" else "workspace, revision"
    fields = "cast(array_to_json(fields) as text)" if dialect == "postgresql" else "fields"
    values = 'cast("values" as text)' if dialect == "postgresql" else '"values"'
    return Statement(
        f"select entity_id, workspace, op, {fields}, {values} from {own(dialect, 'event', schema)} "
        f"where entity_type = :entity_type order by {order}",
        {"entity_type": tracked.entity_type},
    )


def read_recorded(dialect: DialectName, rows: Sequence[Sequence[Any]], tracked: TrackedTable) -> dict[str, dict[str, Any]]:
    """The values that a recorded statement's events leave, by entity; of those that the log has alive, and where it knows."""
    known = {f.name: f for f in tracked.fields if f.recorded}
    alive: dict[tuple[str, str], dict[str, Any]] = {}
    for entity_id, workspace, op, fields, values in rows:
        if op == "delete":
            alive.pop((entity_id, workspace), None)
            continue
        now = alive.setdefault((entity_id, workspace), {})
        for name in load(fields) or ():
            now.pop(name, None)  # a value that was too large to record: the log knows that it changed, not to what
        pairs = {} if values is None else parsed_object(values)
        now.update({name: canonical(dialect, known[name], pair[1]) for name, pair in pairs.items() if name in known})
    return {entity_id: values for (entity_id, _), values in alive.items()}
