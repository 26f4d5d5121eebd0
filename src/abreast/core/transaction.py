"""A governed write made statement by statement: `with hub.write(...) as tx`, the screen's write path."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast.access import Held
from abreast.access.base import drive_on_connection
from abreast.core import changing
from abreast.core.write import Writing, conflict_error, in_key_order, refusal_body, stored_refusal
from abreast.errors import (
    AbreastError,
    ConfigurationError,
    InputError,
    RefusedError,
    UnknownEntityError,
    VersionConflictError,
)
from abreast.store import attribution as attributing
from abreast.store import log, mutations
from abreast.store import rows as row_store
from abreast.store.change import SHOWN, Change, delete
from abreast.store.mutations import Outcome
from abreast.store.procedures import number_statement, settle_statement
from abreast.store.statement import Flow, escaped
from abreast.store.tracked import Readable, TrackedTable
from abreast.store.values import entity_id_sql, key_condition, workspace_condition
from abreast.store.writing import Write
from abreast.types import Attribution, Lease, Row, Version

T = TypeVar("T")
ModelT = TypeVar("ModelT")


class Transaction:
    """One governed transaction. What is written in it is committed when the block ends, or not at all if it raises.

    `session` is an SQLAlchemy session in it, for everything that `get`, `add` and `delete` do not do. Its writes must
    stay in the workspace. `repeated` is True where this mutation was applied before: then nothing can be written,
    `outcome` is what the first one said with `returns`, and the block should end at once:
    `if tx.repeated: return tx.outcome`. `revision` is HEAD after the write; it is known when the block has ended.
    """

    def __init__(
        self,
        writing: Writing,
        workspace: str,
        attribution: Attribution,
        lease: Lease | None,
        payload: Any,
        shown: Callable[[str, int, str, str], bool],
        approved: Callable[[str, str, str], int | None] = lambda workspace, entity_type, entity_id: None,
    ) -> None:
        self.workspace, self._shown, self._approved = workspace, shown, approved
        self.repeated = False
        self.outcome: Any = None
        self.revision: int | None = None
        self._writing, self._attribution, self._lease = writing, attribution, lease
        self._dialect, self._schema = writing.access.dialect, writing.schema
        self._digest = mutations.digest(workspace, ["write", payload])
        self._versions: dict[tuple[str, str], int] = {}
        self._held: Held | None = None

    # -- what the block does -------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session of this transaction."""
        return self._open.session

    def get(self, model: type[ModelT], id: Any, /, *, version: Version | None = None) -> ModelT:
        """The row, locked until the end of the block, as an object of its mapped class.

        Raises UnknownEntityError where it is not in this workspace, and VersionConflictError where `version` was given
        and is not current (see `is_current`).
        """
        held = self._open
        writer = self._writing.writer(model)
        if isinstance(model, sa.Table):
            raise ConfigurationError("get wants a mapped class. Use tx.session.execute for a table.")
        (named,) = self._writing.writes([delete(model, id)])
        tracked, wanted = writer.tracked, str(named.change.entity_id)
        home = sa.text(escaped(workspace_condition(self._dialect, tracked))).bindparams(workspace=self.workspace)
        chosen = sa.select(model).where(key_condition(tracked, [wanted], entity_id_sql(self._dialect, tracked)), home)
        locked = chosen.with_for_update(key_share=True, of=tracked.table).execution_options(populate_existing=True)
        with held.errors():
            found = held.session.scalars(locked).unique().one_or_none()
        if found is None:
            raise UnknownEntityError(
                f"There is no {tracked.entity_type} {wanted} in workspace {self.workspace}.",
                entity_type=tracked.entity_type,
                entity_id=wanted,
            )
        if version is not None:
            self._run(self._expect(tracked, wanted, version))
        return found

    def add(self, *objects: Any) -> None:
        """New rows."""
        self.session.add_all(objects)

    def delete(self, object: Any) -> None:
        """The end of a row that `get` returned."""
        self.session.delete(object)

    def apply(self, *changes: Change) -> tuple[Row | None, ...]:
        """Writes rows as `hub.apply` does, in this transaction. Returns each change's row after it, None for a delete.

        The rows have a version only where the application has a column for it; `version` gives the others. Raises what
        `hub.apply` raises for a version, a row or a value that is wrong; the block should then end.
        """
        held = self._open
        writes = self._writing.writes(changes)
        with held.errors():
            held.session.flush()
        try:
            rows = self._run(self._apply(writes))
        except (sa.exc.DBAPIError, OverflowError) as error:
            raise changing.refusal(error) or error from error
        changing.renew(held.session, writes)
        return rows

    def lock(self, model: Any, id: Any, /) -> int:
        """Locks the row until the block ends. Returns its version as the block first locked it. Raises UnknownEntityError."""
        self.session.flush()
        (write,) = self._writing.writes([delete(model, id)])
        return self._run(self._locked(write))

    def version(self, model: Any, id: Any, /) -> int:
        """The row's version after what this block has written. Raises UnknownEntityError.

        Ask for it last: HEAD moves for it, and other writers of the workspace wait until the block ends.
        """
        self.session.flush()
        (write,) = self._writing.writes([delete(model, id)])
        return self._run(self._version_now(write))

    def is_current(self, model: Any, id: Any, version: Version, /) -> bool:
        """Locks the row. Whether who names this version has seen the row as it is. Raises UnknownEntityError.

        The version may be the row's own, a number. In the code of a run it may be what CURRENT names, `r41`: then the row
        must have stood there whole, in a request of that run, and not have changed since. A table with a version column
        counts by itself.
        """
        self.session.flush()
        (write,) = self._writing.writes([delete(model, id)])
        current = self._run(self._locked(write))
        wanted = str(write.change.entity_id)
        return self._is_current(write.tracked, wanted, current, version) or self._run(self._stands(write.tracked, wanted))

    def returns(self, value: T) -> T:
        """Stores a JSON value as this mutation's outcome, and returns it: `return tx.returns({"id": plan.id})`."""
        try:
            self.outcome = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise InputError(f"The outcome of a mutation is stored as JSON: {error}") from error
        return value

    @property
    def mutation(self) -> str | None:
        """This write's mutation id: the idempotency key for an effect outside."""
        return self._attribution.mutation

    @property
    def _open(self) -> Held:
        if self.repeated:
            raise ConfigurationError(
                "This mutation was applied before. Begin the block with `if tx.repeated: return tx.outcome`."
            )
        if self._held is None:
            raise ConfigurationError("This transaction has ended.")
        return self._held

    def _version(self, tracked: TrackedTable, wanted: str) -> Flow[int]:
        """The version that the row had when it was first locked: later in the block it is one's own."""
        if (tracked.entity_type, wanted) in self._versions:
            return self._versions[tracked.entity_type, wanted]
        if tracked.version_column:
            column = tracked.table.c[tracked.version_column]
            condition = key_condition(tracked, [wanted], entity_id_sql(self._dialect, tracked))
            version = self._open.connection.execute(sa.select(column).where(condition)).scalar_one()
        else:
            ((_, version),) = yield log.versions_statement(
                self._dialect, self._schema, workspace=self.workspace, entity_type=tracked.entity_type, entity_ids=[wanted]
            )
        self._versions[tracked.entity_type, wanted] = version or 0
        return version or 0

    def _is_current(self, tracked: TrackedTable, wanted: str, current: int, version: Version) -> bool:
        if not isinstance(version, str):
            return current == version
        revision = int(version[1:]) if SHOWN.fullmatch(version) and tracked.version_column is None else -1
        return current <= revision and self._shown(self.workspace, revision, tracked.entity_type, wanted)

    def _stands(self, tracked: TrackedTable, wanted: str) -> Flow[bool]:
        """Whether a person approved this write on the row as it is: on a revision since which nothing has changed it."""
        base = self._approved(self.workspace, tracked.entity_type, wanted)
        if base is None:
            return False
        found = yield log.versions_statement(
            self._dialect, self._schema, workspace=self.workspace, entity_type=tracked.entity_type, entity_ids=[wanted]
        )
        return bool(found) and (found[0][1] or 0) <= base

    def _expect(self, tracked: TrackedTable, wanted: str, version: Version) -> Flow[None]:
        """Raises VersionConflictError where this version of a locked row is not current."""
        current = yield from self._version(tracked, wanted)
        if not self._is_current(tracked, wanted, current, version) and not (yield from self._stands(tracked, wanted)):
            raise conflict_error(tracked.entity_type, wanted, version, (yield from self._row(tracked, wanted, current)))

    def _locked(self, write: Write) -> Flow[int]:
        yield from changing.lock(self._writing, self.workspace, write, for_key=False)
        return (yield from self._version(write.tracked, str(write.change.entity_id)))

    def _version_now(self, write: Write) -> Flow[int]:
        tracked, wanted = write.tracked, str(write.change.entity_id)
        first = yield from self._locked(write)
        if self._dialect == "postgresql" and not tracked.version_column:
            yield number_statement(self._schema)
        del self._versions[tracked.entity_type, wanted]
        version = yield from self._version(tracked, wanted)
        self._versions[tracked.entity_type, wanted] = first
        return version

    def _apply(self, writes: list[Write]) -> Flow[tuple[Row | None, ...]]:
        for write in (writes[index] for index in in_key_order(writes)):
            tracked, wanted, expected = write.tracked, str(write.change.entity_id), write.change.version
            yield from changing.lock(self._writing, self.workspace, write)
            yield from self._version(tracked, wanted)  # what it was, before this block writes it
            if expected is not None:
                yield from self._expect(tracked, wanted, expected)
        rows = []
        for write in writes:
            rows.append((yield from changing.make(self._writing, self.workspace, write)))
        return tuple(rows)

    def _row(self, tracked: TrackedTable, wanted: str, version: int) -> Flow[Row]:
        query, _ = row_store.rows_query(
            self._dialect, tracked, Readable(), workspace=self.workspace, width=row_store.WIDEST, limit=1, entity_ids=[wanted]
        )
        (row,) = row_store.read_rows(tracked, (yield query), self._dialect, row_store.WIDEST)
        return Row(row.entity_type, row.entity_id, row.values, version)

    def _run(self, flow: Flow[T]) -> T:
        held = self._open
        with held.errors():
            return drive_on_connection(flow, held.connection)

    # -- its beginning and its end -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Opens the transaction. Raises LeaseLostError, MutationReusedError, or what this mutation ended with before."""
        self._writing.check(self.workspace, self._attribution)
        self._held = self._writing.access.hold()
        try:
            self._begin(self._held)
        except BaseException:
            self._close()
            raise
        if self.repeated:
            self._close()

    def _begin(self, held: Held) -> None:
        outcome = self._run(self._writing.begin(self.workspace, self._attribution, self._lease, self._digest))
        if outcome is not None:
            self._writing.raise_unless_new(outcome, self._attribution.mutation, self._lease)
            self._repeat(mutations.read_outcome(outcome.body))
            return
        self._run(self._writing.look())
        if self._dialect == "sqlite":
            held.execute(mutations.guard_statement(self.workspace).text)
        if self._attribution.mutation is not None:
            held.savepoint()
        self._run(_one(attributing.set_statement(self._dialect, self._attribution)))

    def _repeat(self, first: Outcome) -> None:
        if first.kind == "refused":
            raise stored_refusal(first.body)
        if first.kind == "stale":
            kind, wanted, expected, version, values = first.body
            raise conflict_error(kind, wanted, expected, Row(kind, wanted, values, version))
        self.repeated, self.outcome, self.revision = True, first.body, first.revision

    def end(self, error: BaseException | None) -> None:
        """Commits, or rolls back where the block raised. A refusal is the mutation's outcome and is kept as such."""
        held = self._held
        if held is None:
            return
        try:
            if error is None:
                self._finish(held)
            elif (
                isinstance(error, RefusedError | VersionConflictError) and self._attribution.mutation is not None and held.usable
            ):
                self._refuse(held, error)
            elif isinstance(error, sa.exc.DBAPIError) and not isinstance(error, AbreastError):
                with held.errors():
                    raise error
        finally:
            self._close()

    def _finish(self, held: Held) -> None:
        with held.errors():
            if not held.usable:
                raise ConfigurationError("The block has rolled back its own transaction. Raise an exception instead.")
            held.keep()
            self.revision = self._run(self._settle(Outcome("returned", body=self.outcome)))
            held.commit()
        self._writing.told(self.workspace)

    def _refuse(self, held: Held, error: RefusedError | VersionConflictError) -> None:
        if isinstance(error, RefusedError):
            outcome = Outcome("refused", body=refusal_body(error))
        else:
            row = error.row
            outcome = Outcome("stale", body=[row.entity_type, row.entity_id, error.expected, row.version, dict(row.values)])
        with held.errors():
            held.take_back()
            self._run(self._settle(outcome))
            held.commit()

    def _settle(self, outcome: Outcome) -> Flow[int]:
        mutation = self._attribution.mutation
        if self._dialect == "postgresql":
            answer = yield settle_statement(
                self._schema,
                workspace=self.workspace,
                mutation=mutation,
                digest=self._digest,
                kind=outcome.kind,
                body=json.dumps(outcome.body),
            )
            return int(answer[0][0])
        revision = yield from self._writing.head(self.workspace)
        kept = Outcome(outcome.kind, None, revision, outcome.body)
        yield from self._writing.store(self.workspace, mutation, self._digest, kept.text)
        yield attributing.clear_statement(self._dialect)
        return revision

    def _close(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.close()


def _one(statement: Any) -> Flow[Any]:
    return (yield statement)
