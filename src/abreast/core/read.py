"""Reading on request: rows and history, for tools, screens and tests, under the same rules as batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from abreast.core.mark import Start
from abreast.core.rules import visible_event, visible_row
from abreast.core.sync import Sync, Wanted, check_id
from abreast.errors import InputError, NotTrackedError, UnknownEntityError
from abreast.store import log
from abreast.store import rows as row_store
from abreast.store.statement import Flow
from abreast.store.tracked import Readable, TrackedTable
from abreast.store.values import can_hold, key_parts
from abreast.types import ChangeEvent, Row

WIDTH = 4000
"""Characters of one text value that a reading on request returns."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in key order, and how many more match behind them."""

    rows: tuple[Row, ...]
    more: int


@dataclass(frozen=True)
class Reader:
    """Reads rows and history of one hub's tracked tables. Every flow is for a snapshot."""

    sync: Sync

    def tracked(self, entity_type: str) -> TrackedTable:
        """The tracked table of that name. Raises NotTrackedError."""
        for table in self.sync.tables:
            if table.entity_type == entity_type:
                return table
        known = ", ".join(sorted(t.entity_type for t in self.sync.tables))
        raise NotTrackedError(f"{entity_type!r} is not tracked. Tracked are: {known}.")

    def page(
        self,
        tracked: TrackedTable,
        rule: Readable,
        *,
        workspace: str,
        match: Mapping[str, Any] | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> Flow[Page]:
        """Rows of one table with their versions. `match` compares fields with values; hidden and redacted ones cannot be
        asked about. Raises InputError for an unknown field."""
        self._check(workspace)
        if not can_hold(tracked, workspace):
            return Page((), 0)
        closed = rule.hide | {f.name for f in tracked.fields if f.redacted}
        open_fields = [f.name for f in tracked.fields if f.name not in closed]
        # A model copies what CURRENT shows, and there a labelled field is `name (label)`.
        shown = {f"{f.name} ({f.label})": f.name for f in tracked.fields if f.label}
        match = {shown.get(name, name): value for name, value in (match or {}).items()}
        for name in match:
            if name not in open_fields:
                raise InputError(f"{tracked.entity_type} has no field {name!r} to match. Its fields: {', '.join(open_fields)}.")
        if after is not None:
            key_parts(tracked, after)
        query, count = row_store.rows_query(
            self.sync.dialect,
            tracked,
            rule,
            workspace=workspace,
            width=WIDTH,
            limit=limit + 1,
            match=match,
            after=after,
        )
        rows = row_store.read_rows(tracked, (yield query), self.sync.dialect, WIDTH)
        total = (yield count)[0][0] if len(rows) > limit else len(rows)
        versioned = yield from self._with_versions(tracked, workspace, rows[:limit])
        return Page(tuple(visible_row(row, rule) for row in versioned), max(0, total - limit))

    def row(self, tracked: TrackedTable, rule: Readable, *, workspace: str, entity_id: str) -> Flow[Row]:
        """One row with its version. Raises UnknownEntityError where there is none that this person may read."""
        self._check(workspace)
        check_id(entity_id)
        key_parts(tracked, entity_id)
        if not can_hold(tracked, workspace):
            raise UnknownEntityError(f"There is no {tracked.entity_type} {entity_id!r} here.")
        query, _ = row_store.rows_query(
            self.sync.dialect, tracked, rule, workspace=workspace, width=WIDTH, limit=1, entity_ids=[entity_id]
        )
        rows = row_store.read_rows(tracked, (yield query), self.sync.dialect, WIDTH)
        if not rows:
            raise UnknownEntityError(f"There is no {tracked.entity_type} {entity_id!r} here.")
        (row,) = yield from self._with_versions(tracked, workspace, rows)
        return visible_row(row, rule)

    def history(
        self,
        rules: Mapping[str, Readable],
        *,
        workspace: str,
        entity_type: str | None = None,
        entity_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
        before: int | None = None,
        limit: int = 50,
        context: Any = None,
    ) -> Flow[list[ChangeEvent]]:
        """Events, newest first, of a workspace, a type or an entity, in a period. Only what the rules let this person hear.

        `since` and `until` are ISO 8601; a date alone means its whole day. Raises InputError for anything else.
        """
        self._check(workspace)
        if entity_type is not None:
            self.tracked(entity_type)
        if entity_id is not None:
            check_id(entity_id)
        begin, end = moment(since, end=False), moment(until, end=True)
        found: list[ChangeEvent] = []
        wanted = Wanted(workspace, "", Start("head"), context, limit, 1)
        while len(found) < limit:
            statement = log.history_statement(
                self.sync.dialect,
                self.sync.schema,
                workspace=workspace,
                entity_type=entity_type,
                entity_id=entity_id,
                since=begin,
                until=end,
                before=before,
                limit=limit,
            )
            events = log.read_history(self.sync.dialect, (yield statement), workspace, self.sync.fields_of)
            readable = yield from self.sync.readable(wanted, rules, events, {})
            for event in events:
                seen = visible_event(event, rules.get(event.entity_type))
                if seen is not None and readable((event.entity_type, event.entity_id)):
                    found.append(self.sync.spoken(seen, rules))
            if len(events) < limit:
                break
            before = events[-1].revision
        return found[:limit]

    def _with_versions(self, tracked: TrackedTable, workspace: str, rows: Sequence[Row]) -> Flow[list[Row]]:
        if not rows:
            return []
        if tracked.version_column is not None:
            return [replace(row, version=row.values.get(tracked.version_column)) for row in rows]
        statement = log.versions_statement(
            self.sync.dialect,
            self.sync.schema,
            workspace=workspace,
            entity_type=tracked.entity_type,
            entity_ids=[row.entity_id for row in rows],
        )
        versions = dict((yield statement))
        return [replace(row, version=versions.get(row.entity_id) or 0) for row in rows]

    def _check(self, workspace: str) -> None:
        self.sync.check_workspace(workspace)


def moment(text: str | None, *, end: bool) -> str | None:
    """An ISO 8601 date or time as a UTC moment in the log's form; the end of a day where a date ends a period."""
    if text is None:
        return None
    try:
        if len(text) == 10:
            day = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
            found = day + timedelta(days=1) if end else day
        else:
            given = datetime.fromisoformat(text)
            found = given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InputError(f"{text!r} is not a date or time. Examples: 2026-09-30, 2026-09-30T14:00:00Z.") from None
    return found.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
