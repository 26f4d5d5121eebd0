"""Installing capture, taking it away, and finding what it misses."""

from __future__ import annotations

from collections.abc import Sequence

from abreast.errors import CaptureOutdatedError, NotInstalledError
from abreast.store import capture, procedures, upkeep
from abreast.store import rows as row_store
from abreast.store.schema import VERSION, DialectName, create_statements, drop_statements, own
from abreast.store.statement import Flow, Statement
from abreast.store.tracked import TrackedTable
from abreast.types import Finding

Groups = list[list[str]]
"""Statements without parameters; each group runs in a short transaction of its own."""

_UNREADABLE = ("no_table", "table_missing", "column_missing")
"""Findings about a table whose rows cannot be compared with anything."""

_SHOWN = 20
"""Ids that one finding lists; the number is exact."""


def install_plan(dialect: DialectName, schema: str, tables: Sequence[TrackedTable]) -> Flow[Groups]:
    """The statements that make our tables and the triggers of the tracked ones, as this database needs them."""
    known = yield from capture.survey(dialect, tables)
    groups = [create_statements(dialect, schema), *capture.install_groups(dialect, schema, tables, known)]
    if dialect == "postgresql":
        groups.append(procedures.install_statements(schema, tables, known.default_schema))
    return groups


def uninstall_plan(dialect: DialectName, schema: str, tables: Sequence[TrackedTable], *, log_too: bool) -> Flow[Groups]:
    """The statements that remove the triggers, and with `log_too` everything that abreast has kept."""
    known = yield from capture.survey(dialect, tables)
    groups = capture.uninstall_groups(dialect, schema, tables, known)
    if dialect == "postgresql":
        groups.append([procedures.uninstall_statement(schema)])
    return [*groups, drop_statements(dialect, schema)] if log_too else groups


def verify(dialect: DialectName, schema: str, tables: Sequence[TrackedTable]) -> Flow[None]:
    """Raises NotInstalledError or CaptureOutdatedError unless every tracked table is captured as declared."""
    found = yield Statement(f"select value from {own(dialect, 'meta', schema)} where name = 'version'")
    if not found:
        raise NotInstalledError()
    if found[0][0] != VERSION:
        raise CaptureOutdatedError(
            f"The tables of abreast have version {found[0][0]}, this program needs {VERSION}. Run `abreast install`."
        )
    wrong = yield from capture.trigger_findings(dialect, schema, tables)
    serious = [finding for finding in wrong if finding.code not in ("not_tracked", "trigger_order")]
    if serious:
        more = f" (and {len(serious) - 1} more: hub.check() lists them)" if len(serious) > 1 else ""
        raise CaptureOutdatedError(f"{serious[0].message}{more}", findings=serious)


def check(dialect: DialectName, schema: str, tables: Sequence[TrackedTable]) -> Flow[list[Finding]]:
    """Everything that is wrong between the tracked rows and the log: triggers, the log itself, rows against last events."""
    findings = list((yield from capture.trigger_findings(dialect, schema, tables)))
    broken = yield upkeep.broken_heads_statement(dialect, schema)
    findings += [
        Finding("log_gap", "", f"The log of workspace {w!r} has {n} revisions above the horizon, but its head says {head}.")
        for w, n, head in broken
    ]
    unreadable = {finding.entity_type for finding in findings if finding.code in _UNREADABLE}
    for tracked in tables:
        if tracked.entity_type in unreadable:
            continue
        for code, message, statement in upkeep.drift_statements(dialect, schema, tracked):
            ids = [row[0] for row in (yield statement)]
            if ids:
                findings.append(Finding(code, tracked.entity_type, f"{len(ids)} {message}", tuple(ids[:_SHOWN])))
        changed = yield from _unseen_values(dialect, schema, tracked)
        if changed:
            message = f"{len(changed)} row(s) hold other values than the log recorded last: changed where no trigger saw it."
            findings.append(Finding("row_changed_unseen", tracked.entity_type, message, tuple(changed[:_SHOWN])))
    misses = yield Statement(f"select entity_type, count(*) from {own(dialect, 'miss', schema)} group by entity_type")
    findings += [
        Finding("without_workspace", kind, f"{number} change(s) of rows without a workspace were not recorded as events.")
        for kind, number in misses
    ]
    return findings


def _unseen_values(dialect: DialectName, schema: str, tracked: TrackedTable) -> Flow[list[str]]:
    """Ids of rows whose recorded fields differ from what the log saw last."""
    recorded = {f.name for f in tracked.fields if f.recorded}
    if not recorded:
        return []
    last = upkeep.read_recorded(dialect, (yield upkeep.recorded_statement(dialect, schema, tracked)), tracked)
    rows = row_store.read_rows(tracked, (yield row_store.all_rows_statement(dialect, tracked)), dialect, row_store.WIDEST)
    return sorted(
        row.entity_id
        for row in rows
        if any(
            name in last.get(row.entity_id, {})
            and tracked.field(name).kind != "bytes"
            and last[row.entity_id][name] != row.values[name]
            for name in recorded
        )
    )
