"""Upkeep of the log: pruning it, and comparing it with the rows that it speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.store.tracked import TrackedTable
from abreast.store.values import canonical, entity_id_sql, load, reference


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
    event, source = own(dialect, "event", schema), reference(tracked)
    order = "e.seq desc" if dialect == "postgresql" else "e.revision desc"
    entity_id = entity_id_sql(dialect, tracked)
    rows = f"select {entity_id} as abreast_id from {source}"
    kind = {"entity_type": tracked.entity_type}
    last = (
        f"(select e.op from {event} e where e.entity_type = :entity_type and e.entity_id = abreast_rows.abreast_id "
        f"order by {order} limit 1)"
    )
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
