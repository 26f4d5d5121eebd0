"""Reading batches: what is current, and what a conversation has not been told, in one database snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from abreast.core.gather import Gathered, Gathering, is_own, kind_of
from abreast.core.interest import Concerns, Interest, ask, concerned
from abreast.core.loading import Loader, load
from abreast.core.mark import Start
from abreast.core.rules import as_readable, visible_event, visible_row
from abreast.errors import AbreastError, ConfigurationError, InputError, UnknownWorkspaceError
from abreast.store import cursors, log
from abreast.store import rows as row_store
from abreast.store.schema import DialectName
from abreast.store.statement import Flow, InSession
from abreast.store.tracked import Readable, TrackedTable
from abreast.store.values import can_hold, check_workspace
from abreast.types import Batch, ChangeEvent, Position, Row

CHUNK = 1000
"""Events of a long stretch of log that are read at once."""


class NeedsSnapshot(Exception):
    """One statement was not enough to answer exactly; the batch must be read in a snapshot of several. `found` is what that
    one found."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found


@dataclass(frozen=True, slots=True)
class Wanted:
    """One batch that somebody wants: of which workspace, for which conversation, from where."""

    workspace: str
    thread: str
    start: Start
    context: Any
    limit: int
    width: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a batch statement found. `to` is where the batch that was made of it ended."""

    place: log.Place
    logged: Sequence[log.LoggedEvent]
    rows: Mapping[str, row_store.RowsRead]
    to: Position | None = None

    def still(self, answer: Any, start: Start) -> Found | None:
        """This, if the answer of a look statement says that a batch from `start` would find the same; None otherwise."""
        place = log.still(self.place, answer)
        if place is None or start_of(start, place) != place.start:
            return None
        furthest = start.furthest
        if furthest is None:
            return replace(self, place=place)
        # The log stands where it stood, so it has there what this run's earlier call was told with.
        return replace(self, place=replace(place, furthest_found=furthest.check)) if furthest == self.to else None


@dataclass(frozen=True)
class Sync:
    """What is tracked and loaded, and how a batch of it is read."""

    dialect: DialectName
    schema: str
    tables: tuple[TrackedTable, ...]
    loaders: Mapping[str, Loader]
    interest: Interest | None = None

    def rules(self, context: Any) -> dict[str, Readable]:
        """What the person of this context may read, by entity type. Raises ConfigurationError where a rule fails."""
        found = {}
        for tracked in self.tables:
            if tracked.readable is None:
                found[tracked.entity_type] = Readable()
                continue
            try:
                answer = tracked.readable(context)
            except AbreastError:
                raise
            except Exception as error:
                raise ConfigurationError(
                    f"The read rule of {tracked.entity_type} failed with {type(error).__name__}. Nothing was read."
                ) from error
            found[tracked.entity_type] = as_readable(answer, tracked)
        return found

    def needs_snapshot(self, rules: Mapping[str, Readable]) -> bool:
        """Whether more than one statement is needed: application code takes part in the reading."""
        return bool(self.loaders) or any(rule.where is not None for rule in rules.values())

    # -- one statement -------------------------------------------------------------------------------------------

    def read_at_once(self, wanted: Wanted, rules: Mapping[str, Readable], earlier: Found | None) -> Flow[tuple[Batch, Found]]:
        """A batch in one statement; where an earlier batch of the same run is at hand, one that looks whether anything
        moved since comes first, and is enough if nothing did. Raises NeedsSnapshot where that cannot be exact."""
        self._check(wanted)
        found = None
        if earlier is not None:
            look = log.look_statement(self.dialect, self.schema, workspace=wanted.workspace, thread=wanted.thread)
            found = earlier.still((yield look), wanted.start)
        if found is None:
            held = self.holding(wanted.workspace)
            answer = yield self._statement(wanted, held, wanted.start, wanted.limit + 1)
            found = Found(*log.read_batch(self.dialect, held, self.fields_of, answer[0], wanted.workspace, wanted.width))
            if not found.place.known:
                yield from self.must_exist(wanted.workspace)
        batch = self._made(wanted, rules, found)
        return batch, replace(found, to=batch.to)

    def _made(self, wanted: Wanted, rules: Mapping[str, Readable], found: Found) -> Batch:
        place, logged, rows = found.place, found.logged, found.rows
        shown = {kind: RowsShown(read, rules[kind]) for kind, read in rows.items()}
        gap, lost = self._gap(place, wanted.start)
        gathering, seen = Gathering(wanted.limit, wanted.thread), place.start
        logged = [] if lost else logged
        if logged and self._chooses(wanted):
            raise NeedsSnapshot(found)  # the application says what this conversation has to do with
        for item in logged:
            if gathering.full(place.head - seen):
                break
            event = visible_event(item.event, rules.get(item.event.entity_type))
            if event is None or not self._ruled(event.entity_type):
                gathering.skip()
            elif not gathering.tell(event, item.check):
                break
            seen = item.event.revision
        else:
            if logged and seen < place.head and not gathering.full(place.head - seen):
                raise NeedsSnapshot(found)  # an import goes on, or what this person may not read would use up the limit
        told = gathering.finish()
        for entity in gathering.named:
            table = shown.get(entity[0])
            if table is not None and table.more and entity not in table.by_key:
                raise NeedsSnapshot(found)  # the row stands behind those that were read
        listed = tuple(chain.from_iterable(table.rows for table in shown.values()))
        return self._batch(wanted, place, told, gap, listed, {kind: table.more for kind, table in shown.items() if table.more})

    # -- one snapshot --------------------------------------------------------------------------------------------

    def read_in_snapshot(self, wanted: Wanted, rules: Mapping[str, Readable], earlier: Found | None = None) -> Flow[Batch]:
        """A batch with read rules and loaders, in one snapshot of several statements. What one statement found `earlier` for
        the same batch is not read again if nothing moved since."""
        self._check(wanted)
        plain = not self.needs_snapshot(rules)
        held = self.holding(wanted.workspace) if plain else ()
        place = None
        if earlier is not None and plain:
            look = log.look_statement(self.dialect, self.schema, workspace=wanted.workspace, thread=wanted.thread)
            place, logged, read = log.still(earlier.place, (yield look)), earlier.logged, earlier.rows
        if place is None:
            answer = yield self._statement(wanted, held, wanted.start, wanted.limit + 1)
            place, logged, read = log.read_batch(self.dialect, held, self.fields_of, answer[0], wanted.workspace, wanted.width)
        if not place.known:
            yield from self.must_exist(wanted.workspace)
        gap, lost = self._gap(place, wanted.start)
        told, now = yield from self._gathered(wanted, rules, place, [] if lost else logged)
        rows: list[Row] = []
        left_out: dict[str, int] = {}
        loaded: dict[str, Any] = {}
        if self.loaders:
            for name, loader in self.loaders.items():
                loaded[name] = yield self._load(name, loader, wanted)
        elif plain:
            shown = {kind: RowsShown(found, rules[kind]) for kind, found in read.items()}
            rows.extend(chain.from_iterable(table.rows for table in shown.values()))
            left_out = {kind: table.more for kind, table in shown.items() if table.more}
        else:
            for tracked in self.holding(wanted.workspace):
                got, more = yield from self._rows(wanted, tracked, rules[tracked.entity_type])
                rows.extend(got)
                if more:
                    left_out[tracked.entity_type] = more
        return self._batch(wanted, place, told, gap, tuple(rows), left_out, now=now, loaded=loaded)

    def _gathered(
        self, wanted: Wanted, rules: Mapping[str, Readable], place: log.Place, chunk: Sequence[log.LoggedEvent]
    ) -> Flow[tuple[Gathered, dict[tuple[str, str], Row]]]:
        """What of the log this conversation is told, and the rows that it names. A long stretch is read in chunks and
        kept no longer than that; where all of it is told or left out alike, its end is asked of the database."""
        gathering, seen, size = Gathering(wanted.limit, wanted.thread), place.start, wanted.limit + 1
        now: dict[tuple[str, str], Row] = {}
        concerns: Concerns | None = None
        if chunk and (interest := self._chooses(wanted)):
            concerns = yield InSession(
                lambda session: ask(interest, session, wanted.workspace, wanted.thread, wanted.context, self.tables)
            )
        while chunk:
            read: dict[tuple[str, str], Row] = {}
            readable = yield from self.readable(wanted, rules, [item.event for item in chunk], read)
            going = True
            for item in chunk:
                if gathering.full(place.head - seen):
                    going = False
                    break
                event = visible_event(item.event, rules.get(item.event.entity_type))
                if event is None or not readable((event.entity_type, event.entity_id)):
                    gathering.skip()
                elif not concerned(concerns, event, wanted.thread):
                    gathering.count()
                elif not gathering.tell(self.spoken(event, rules), item.check):
                    going = False
                    break
                seen = item.event.revision
            now |= {entity: read[entity] for entity in gathering.named if entity in read}
            if not going or seen >= place.head:
                break
            last = chunk[-1].event
            alike = self._alike(last, rules, concerns, wanted.thread)
            kind = kind_of(last, wanted.thread)
            if alike and gathering.mass == kind:
                end, check = (yield self._run(last, kind[3], wanted.thread))[0]
                gathering.lengthen(end - seen, end, check)
                seen = end
            elif alike is False and all(kind_of(item.event, wanted.thread) == kind for item in chunk[-wanted.limit :]):
                end, _ = (yield self._run(last, kind[3], wanted.thread))[0]
                gathering.count(end - seen)
                seen = end
            if seen >= place.head:
                break
            size = min(2 * size, max(CHUNK, wanted.limit + 1))
            answer = yield self._statement(wanted, (), Start("at", Position(seen)), size)
            _, chunk, _ = log.read_batch(self.dialect, (), self.fields_of, answer[0], wanted.workspace, wanted.width)
        named = gathering.named
        return gathering.finish(), {entity: row for entity, row in now.items() if entity in named}

    def _run(self, event: ChangeEvent, own: bool, thread: str) -> Any:
        return log.run_statement(self.dialect, self.schema, event, thread=thread, own=own)

    def _alike(self, event: ChangeEvent, rules: Mapping[str, Readable], concerns: Concerns | None, thread: str) -> bool | None:
        """Whether all changes of this one's kind are told (True) or outside this conversation's interest (False); None
        where that depends on the row or, with hidden fields, on the change."""
        rule = rules.get(event.entity_type)
        if rule is not None and (rule.where is not None or (rule.hide and event.op == "update")):
            return None
        if not self._ruled(event.entity_type):
            return None
        return True if concerns is None or is_own(event, thread) else concerns.whole(event)

    def _chooses(self, wanted: Wanted) -> Interest | None:
        """What says what this conversation has to do with; nobody who reads without one has an interest."""
        return self.interest if wanted.thread else None

    def _withholds(self, wanted: Wanted) -> bool:
        """Whether some changes might not be told: this person may not read them, or they concern other things."""
        return self._chooses(wanted) is not None or any(tracked.readable is not None for tracked in self.tables)

    def _batch(
        self,
        wanted: Wanted,
        place: log.Place,
        told: Gathered,
        gap: bool,
        rows: tuple[Row, ...],
        left_out: Mapping[str, int],
        **more: Any,
    ) -> Batch:
        to = Position(*told.end) if told.end is not None else Position(place.head, place.head_check)
        return Batch(
            workspace=wanted.workspace,
            head=Position(place.head, place.head_check),
            start=self._start(place, wanted.start),
            to=to,
            events=told.events,
            checks=told.checks,
            rows=rows,
            left_out=left_out,
            passed=told.passed,
            outside=told.outside,
            outside_by=told.outside_by,
            remaining=place.head - to.revision,
            withholds=self._withholds(wanted),
            gap=gap,
            outdated_history=wanted.start.outdated and (place.cursor is None or wanted.start.remembers),
            telling=_telling(place.telling),
            **more,
        )

    def load_only(self, wanted: Wanted) -> Flow[Batch]:
        """CURRENT from loaders alone: nothing is tracked, no table of ours is needed (snapshot-only use)."""
        self._check(wanted)
        loaded = {}
        for name, loader in self.loaders.items():
            loaded[name] = yield self._load(name, loader, wanted)
        nowhere = Position(0)
        return Batch(workspace=wanted.workspace, head=nowhere, start=nowhere, to=nowhere, loaded=loaded)

    @staticmethod
    def _load(name: str, loader: Loader, wanted: Wanted) -> InSession:
        return InSession(lambda session: load(name, loader, session, wanted.workspace, wanted.context))

    # -- places --------------------------------------------------------------------------------------------------

    def without_place(self, thread: str, workspaces: Sequence[str]) -> Flow[list[str]]:
        """Those of the workspaces in which the conversation has no cursor yet."""
        missing = []
        for workspace in workspaces:
            check_id(workspace, thread)
            found = yield cursors.place_statement(self.dialect, self.schema, workspace=workspace, thread=thread)
            if not found:
                missing.append(workspace)
        return missing

    def give_place(self, thread: str, workspaces: Sequence[str]) -> Flow[None]:
        """Puts the conversation at HEAD. Raises UnknownWorkspaceError, and then keeps nothing."""
        for workspace in workspaces:
            yield from self.must_exist(workspace)
            yield cursors.start_statement(self.dialect, self.schema, workspace=workspace, thread=thread)

    def readable(
        self, wanted: Wanted, rules: Mapping[str, Readable], events: Sequence[ChangeEvent], now: dict[tuple[str, str], Row]
    ) -> Flow[Callable[[tuple[str, str]], bool]]:
        """Reads the rows that events name into `now`, and answers which entities this person may hear of."""
        accepted: set[tuple[str, str]] = set()
        for tracked in self.holding(wanted.workspace):
            kind, rule = tracked.entity_type, rules[tracked.entity_type]
            ids = sorted({event.entity_id for event in events if event.entity_type == kind})
            if not ids:
                continue
            query, _ = row_store.rows_query(
                self.dialect, tracked, rule, workspace=wanted.workspace, width=wanted.width, limit=len(ids), entity_ids=ids
            )
            for row in row_store.read_rows(tracked, (yield query), self.dialect, wanted.width):
                now[kind, row.entity_id] = visible_row(row, rule)
                accepted.add((kind, row.entity_id))
            absent = [one for one in ids if (kind, one) not in accepted]
            if absent and rule.where is None:
                accepted.update((kind, one) for one in absent)
            elif absent:
                existing = {row[0] for row in (yield row_store.existing_query(self.dialect, tracked, absent))}
                gone = [one for one in absent if one not in existing]
                bare = row_store.bare_query(self.dialect, tracked, rule, gone)
                if bare is not None:
                    accepted.update((kind, row[0]) for row in (yield bare))
        return lambda entity: entity in accepted if entity[0] in rules else self._ruled(entity[0])

    def _rows(self, wanted: Wanted, tracked: TrackedTable, rule: Readable) -> Flow[tuple[list[Row], int]]:
        limit = row_store.ROWS_OF_A_TABLE
        query, count = row_store.rows_query(
            self.dialect, tracked, rule, workspace=wanted.workspace, width=wanted.width, limit=limit + 1
        )
        rows = [visible_row(row, rule) for row in row_store.read_rows(tracked, (yield query), self.dialect, wanted.width)]
        if len(rows) <= limit:
            return rows, 0
        total = (yield count)[0][0]
        return rows[:limit], total - limit

    # -- common --------------------------------------------------------------------------------------------------

    def _ruled(self, entity_type: str) -> bool:
        """False for a type that is no longer tracked, where others have read rules: nothing says who may hear of it."""
        return entity_type in self.fields_of or not any(tracked.readable for tracked in self.tables)

    @cached_property
    def fields_of(self) -> log.Shown:
        """The fields whose recorded values may be shown, by entity type and name."""
        return log.shown_fields(self.tables)

    def _check(self, wanted: Wanted) -> None:
        check_id(wanted.thread)
        self.check_workspace(wanted.workspace)

    def spoken(self, event: ChangeEvent, rules: Mapping[str, Readable]) -> ChangeEvent:
        """The event as this person may hear it. Under a rule that looks at the row, its values of another time are not
        told: the rule speaks of the row as it is now."""
        rule = rules.get(event.entity_type)
        tracked = next((t for t in self.tables if t.entity_type == event.entity_type), None)
        if rule is None or tracked is None or not event.values or not row_store.looks_at_row(tracked, rule):
            return event
        return replace(event, values={})

    def holding(self, workspace: str) -> tuple[TrackedTable, ...]:
        """The tables that could have rows of this workspace: others are not asked, their columns are of another type."""
        return tuple(tracked for tracked in self.tables if can_hold(tracked, workspace))

    def check_workspace(self, workspace: str) -> None:
        """Raises an error for an id that no workspace of these tables can have; asks no database."""
        check_id(workspace)
        if not check_workspace(self.tables, workspace):
            raise unknown_workspace(workspace)

    def must_exist(self, workspace: str) -> Flow[None]:
        self.check_workspace(workspace)
        found = yield row_store.exists_statement(self.dialect, self.schema, self.holding(workspace), workspace)
        if not found[0][0]:
            raise unknown_workspace(workspace)

    def _statement(self, wanted: Wanted, tables: tuple[TrackedTable, ...], start: Start, limit: int) -> Any:
        return log.batch_statement(
            self.dialect,
            self.schema,
            tables,
            workspace=wanted.workspace,
            thread=wanted.thread,
            mode=start.mode,
            revision=start.expected.revision if start.expected else None,
            furthest=start.furthest.revision if start.furthest else None,
            limit=limit,
            width=wanted.width,
        )

    @staticmethod
    def _start(place: log.Place, start: Start) -> Position:
        """The start with the check number that it was told with, so that a loss is noticed again in the next call."""
        if start.expected is not None and start.expected.revision == place.start:
            return start.expected
        if place.cursor is not None and place.cursor == place.start:
            return Position(place.start, place.cursor_check)
        return Position(place.start, place.start_check or 0)

    @staticmethod
    def _gap(place: log.Place, start: Start) -> tuple[bool, bool]:
        """Whether changes that this conversation should hear of are no longer listed; and whether the start itself is not
        in this log, so that what follows it here follows something else."""

        def unknown(revision: int, check: int, found: int | None) -> bool:
            if revision > place.head:
                return True
            if not check or revision < place.horizon:
                return False  # somebody named a bare revision, or its number is pruned: there is nothing to compare
            return check != (found if revision > place.horizon else place.horizon_check)

        lost = place.start > place.head
        gap = start.gap or place.start < place.horizon
        if start.expected is not None and start.expected.revision == place.start:
            lost = lost or unknown(place.start, start.expected.check, place.start_check)
        if place.cursor is not None and start.mode in ("lower", "cursor"):
            if place.cursor == place.start:
                lost = lost or unknown(place.cursor, place.cursor_check, place.start_check)
            else:
                gap = gap or unknown(place.cursor, place.cursor_check, place.cursor_found)
        if start.furthest is not None:
            gap = gap or unknown(start.furthest.revision, start.furthest.check, place.furthest_found)
        return gap or lost, lost


@dataclass(frozen=True)
class RowsShown:
    """The rows of one table as a rule without a condition shows them."""

    read: row_store.RowsRead
    rule: Readable

    @property
    def more(self) -> int:
        return self.read.more

    @property
    def rows(self) -> Iterable[Row]:
        return self.read.rows if not self.rule.hide else (visible_row(row, self.rule) for row in self.read.rows)

    @property
    def by_key(self) -> set[tuple[str, str]]:
        return {(row.entity_type, row.entity_id) for row in self.read.rows}


def start_of(start: Start, place: log.Place) -> int:
    """The revision at which a batch starts, as the batch statement finds it."""
    revision = start.expected.revision if start.expected is not None else None
    if start.mode == "at":
        assert revision is not None
        return revision
    if start.mode == "lower":
        return min(one for one in (place.cursor, revision) if one is not None)
    return place.cursor if start.mode == "cursor" and place.cursor is not None else place.head


def unknown_workspace(workspace: str) -> UnknownWorkspaceError:
    """The error that names it."""
    return UnknownWorkspaceError(
        f"There is no workspace {workspace!r}: no tracked row belongs to it, and no change of one was ever logged. "
        f"A new one is made known by hub.add_workspace(...).",
        workspace=workspace,
    )


def check_id(*ids: str) -> None:
    """Raises InputError for an id that no database stores."""
    for one in ids:
        try:
            one.encode()
        except UnicodeEncodeError:
            raise InputError("An id holds half a surrogate pair; no database stores one.") from None
        if "\0" in one:
            raise InputError("An id holds a NUL character; no database stores one.")


def _telling(text: str) -> Any:
    return text if text in ("on", "shadow", "off") else "on"
