"""The governed write path: who writes names himself, what he read and what he means; all of it happens or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from abreast.access import Access, Job, Operation, govern
from abreast.core import nesting
from abreast.core.sync import check_id
from abreast.errors import InputError, LeaseLostError, MutationReusedError, RefusedError, UnknownEntityError, VersionConflictError
from abreast.store import attribution as attributing
from abreast.store import leases, mutations
from abreast.store.change import Change
from abreast.store.mutations import Outcome
from abreast.store.procedures import function_name
from abreast.store.statement import Flow
from abreast.store.tracked import TrackedTable
from abreast.store.values import check_workspace
from abreast.store.writing import TableWriter, Write
from abreast.types import Applied, Attribution, Lease, Version

_REMEMBERED = 10_000

MOST = 1000
"""Changes in one call."""


class Writing:
    """Makes governed writes. `find` gives the tracked table of a model, `look` verifies the triggers in a flow, `told` hears
    of each workspace after a commit in it."""

    def __init__(
        self,
        access: Access,
        schema: str,
        tables: Sequence[TrackedTable],
        find: Callable[[Any], TrackedTable],
        look: Callable[[], Flow[Any]],
        told: Callable[[str], None] = lambda workspace: None,
    ) -> None:
        self.access, self.schema, self._find, self.look, self.told = access, schema, find, look, told
        self._checked: set[str] = set()
        self._writers = {t.entity_type: TableWriter(t, access.sql_dialect, access.carried) for t in tables}
        self._functions = {t.entity_type: function_name(t.entity_type) for t in tables}

    def writer(self, model: Any) -> TableWriter:
        """The writer of a model's table. Raises NotTrackedError."""
        return self._writers[self._find(model).entity_type]

    def check(self, workspace: str, attribution: Attribution) -> None:
        """Raises InputError where workspace, mutation or thread cannot be what they are given as, ConfigurationError where
        the actor is none."""
        if not isinstance(workspace, str) or workspace not in self._checked:
            tables = [writer.tracked for writer in self._writers.values()]
            if not isinstance(workspace, str) or not workspace or not check_workspace(tables, workspace):
                raise InputError(f"{workspace!r} cannot be a workspace.")
            check_id(workspace)
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()
            self._checked.add(workspace)
        attributing.check_actor(attribution.actor)
        mutations.check_mutation(attribution.mutation)
        for text in (attribution.actor.id, attribution.thread):
            if text is not None and (not isinstance(text, str) or "\0" in text):
                raise InputError(f"{text!r} cannot be the id of an actor or a thread.")

    def apply(
        self, workspace: str, changes: Sequence[Change], attribution: Attribution, lease: Lease | None
    ) -> Operation[Applied]:
        """All changes or none."""
        nesting.check(self)
        self.check(workspace, attribution)
        if any(isinstance(getattr(change, "version", None), str) for change in changes):
            raise InputError("What CURRENT names as a version (r41) counts inside a run's transaction only: use tx.apply.")
        writes = self.writes(changes)
        digest = mutations.digest(workspace, [write.payload for write in writes]) if attribution.mutation else ""
        outcome = yield from govern(self._job(workspace, writes, attribution, lease, digest))
        self.told(workspace)
        return self._applied(outcome, workspace, writes, attribution.mutation, lease)

    def writes(self, changes: Sequence[Change]) -> list[Write]:
        """The changes of one call, resolved. Raises InputError."""
        if not 0 < len(changes) <= MOST:
            raise InputError(f"apply takes 1 to {MOST} changes, made by insert, update or delete; {len(changes)} were given.")
        if wrong := [c for c in changes if not isinstance(c, Change)]:
            unpack = " Unpack it: apply(..., *changes)." if isinstance(wrong[0], Iterable) else ""
            raise InputError(f"apply takes changes made by insert, update or delete, not {type(wrong[0]).__name__}.{unpack}")
        writes = [self.writer(change.model).write(change) for change in changes]
        named = [write.sort_key for write in writes if write.change.op != "insert"]
        if len(set(named)) < len(named):
            kind, entity_id = next(one for one in named if named.count(one) > 1)
            raise InputError(f"{kind} {entity_id} is changed twice. Put what belongs to one row into one change.")
        return writes

    def _job(self, workspace: str, writes: Sequence[Write], attribution: Attribution, lease: Lease | None, digest: str) -> Job:
        def flow() -> Flow[str]:
            return self._flow(workspace, writes, attribution, lease, digest)

        if self.access.dialect == "sqlite":
            return Job(workspace, attribution.mutation, flow)
        several = len(writes) > 1
        order = in_key_order(writes) if several else [] if writes[0].change.op == "insert" else [0]
        call = {
            "mutation": attribution.mutation,
            "digest": digest,
            "actor_type": attribution.actor.type,
            "actor_id": attribution.actor.id,
            "thread": attribution.thread,
            "lease": [lease.thread, lease.token, lease.run] if lease else None,
            "changes": [self._call(write) for write in writes],
            "order": order,
        }

        def locks() -> dict[tuple[str, str], Any]:
            those = [writes[index] for index in order]
            return {w.sort_key: self._writers[w.tracked.entity_type].lock(str(w.change.entity_id)) for w in those}

        single = None if several else writes[0].tracked.entity_type
        return Job(workspace, attribution.mutation, flow, self.schema, json.dumps(call), locks, single)

    def _call(self, write: Write) -> dict[str, Any]:
        kind = write.tracked.entity_type
        call = self._writers[kind].call(write)
        call["function"] = self._functions[kind]
        return call

    # -- statement by statement ----------------------------------------------------------------------------------

    def _flow(
        self, workspace: str, writes: Sequence[Write], attribution: Attribution, lease: Lease | None, digest: str
    ) -> Flow[str]:
        """One write where the database has no function for it: SQLite, whose transactions come one after the other. Returns
        the outcome as text; whoever asked for it reads it, in a thread of his own."""
        dialect, schema, mutation = self.access.dialect, self.schema, attribution.mutation
        yield from self.look()
        outcome = yield from self.begin(workspace, attribution, lease, digest)
        if outcome is not None:
            return outcome.text
        for index in in_key_order(writes):
            change, writer = writes[index].change, self._writers[writes[index].tracked.entity_type]
            found = yield writer.look_statement(schema, workspace, str(change.entity_id), writes[index].key)
            if not found:
                return Outcome("absent", body=[index, None, None, None]).text
            version, row = found[0]
            if change.version is not None and version != change.version:
                head = yield from self.head(workspace)
                text = f'["conflict",null,{head},[{index},{version},null,{row}]]'
                yield from self.store(workspace, mutation, digest, text)
                return text
        yield attributing.set_statement(dialect, attribution)
        made: list[str | None] = []
        for write in writes:
            answer = yield self._writers[write.tracked.entity_type].statement(write)
            made.append(answer[0][0] if write.change.op == "insert" and answer else write.change.entity_id)
        rows: list[str] = []
        for write, new_id in zip(writes, made, strict=True):
            if write.change.op == "delete":
                rows.append("[null,null,null,null]")
                continue
            found = yield self._writers[write.tracked.entity_type].look_statement(schema, workspace, str(new_id), write.key)
            if not found:
                raise InputError("The row would belong to another workspace.")
            rows.append(f"[null,{found[0][0]},null,{found[0][1]}]")
        head = yield from self.head(workspace)
        text = f'["rows",null,{head},[{",".join(rows)}]]'
        yield from self.store(workspace, mutation, digest, text)
        yield attributing.clear_statement(dialect)
        return text

    def begin(self, workspace: str, attribution: Attribution, lease: Lease | None, digest: str) -> Flow[Outcome | None]:
        """What comes before every write: the lease is held, the mutation is new. Otherwise the outcome that ends it."""
        dialect = self.access.dialect
        if lease is not None and not (yield leases.hold_statement(dialect, self.schema, lease)):
            return Outcome("lost")
        if attribution.mutation is None:
            return None
        named = {"workspace": workspace, "mutation": attribution.mutation}
        if dialect == "postgresql":
            yield mutations.lock_statement(**named)
        return mutations.read_found((yield mutations.find_statement(dialect, self.schema, **named)), digest)

    def store(self, workspace: str, mutation: str | None, digest: str, outcome: str) -> Flow[None]:
        """Keeps the outcome, if there is a mutation to keep it for."""
        if mutation is not None:
            yield mutations.store_statement(
                self.access.dialect, self.schema, workspace=workspace, mutation=mutation, digest=digest, outcome=outcome
            )

    def head(self, workspace: str) -> Flow[int]:
        """HEAD, 0 where nothing was ever written."""
        found = yield mutations.head_statement(self.access.dialect, self.schema, workspace)
        return int(found[0][0]) if found else 0

    # -- what came of it -----------------------------------------------------------------------------------------

    def raise_unless_new(self, outcome: Outcome, mutation: str | None, lease: Lease | None) -> None:
        """Raises what ends every write before it has begun."""
        if outcome.kind == "lost":
            raise LeaseLostError(thread=lease.thread if lease is not None else None)
        if outcome.kind == "reused":
            raise MutationReusedError(mutation=mutation)

    def _applied(
        self, outcome: Outcome, workspace: str, writes: Sequence[Write], mutation: str | None, lease: Lease | None
    ) -> Applied:
        self.raise_unless_new(outcome, mutation, lease)
        repeated = outcome.kind == "repeated"
        if repeated:
            outcome = mutations.read_outcome(outcome.body)
        if outcome.kind in ("absent", "conflict"):
            index, version, position, raw = outcome.body
            change, tracked = writes[index].change, writes[index].tracked
            if outcome.kind == "absent":
                raise UnknownEntityError(
                    f"There is no {tracked.entity_type} {change.entity_id} in workspace {workspace}.",
                    entity_type=tracked.entity_type,
                    entity_id=change.entity_id,
                )
            current = _version(outcome, version, position)
            raise conflict_error(tracked.entity_type, str(change.entity_id), change.version, self._row(tracked, raw, current))
        if outcome.kind != "rows":
            raise MutationReusedError(mutation=mutation)
        rows = tuple(
            None if raw is None else self._row(write.tracked, raw, _version(outcome, version, position))
            for write, (_, version, position, raw) in zip(writes, outcome.body, strict=True)
        )
        return Applied(workspace, outcome.revision, rows, mutation, repeated)

    def _row(self, tracked: TrackedTable, raw: Any, version: int) -> Any:
        return self._writers[tracked.entity_type].row(raw, version)


def conflict_error(entity_type: str, entity_id: str, expected: Version | None, row: Any) -> VersionConflictError:
    """The error for a row that has moved; it carries the row as it is now."""
    return VersionConflictError(
        f"{entity_type} {entity_id} has changed since it was read: version {expected} was read, it is {row.version} now. "
        f"Nothing was written; read it again.",
        entity_type=entity_type,
        entity_id=entity_id,
        expected=expected,
        version=row.version,
        row=row,
    )


def stored_refusal(body: Sequence[Any]) -> RefusedError:
    """The refusal that a mutation ended with."""
    message, fields = body
    return RefusedError(message, **fields)


def refusal_body(error: RefusedError) -> list[Any]:
    """A refusal as it is stored. Raises InputError where its fields are not JSON."""
    try:
        fields: Mapping[str, Any] = json.loads(json.dumps(error.fields))
    except (TypeError, ValueError) as wrong:
        raise InputError(f"The fields of a RefusedError are stored as JSON: {wrong}") from error
    return [error.message, fields]


def in_key_order(writes: Sequence[Write]) -> list[int]:
    """The positions of the changes whose rows are there already, in the order in which rows are locked."""
    return sorted((i for i, w in enumerate(writes) if w.change.op != "insert"), key=lambda i: writes[i].sort_key)


def _version(outcome: Outcome, version: int | None, position: int | None) -> int:
    """A version that was known, or that followed from the place of its event."""
    return int(version or 0) if position is None else int(outcome.base or 0) + position
