"""Write rules: what a person may write of a table, and the writes of a tool under them, inside its own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from abreast.core.read import WIDTH
from abreast.core.rules import visible_row
from abreast.core.sync import Sync
from abreast.core.transaction import Transaction
from abreast.core.write import conflict_error
from abreast.errors import AbreastError, ConfigurationError, RefusedError, UnknownEntityError, VersionConflictError
from abreast.store.change import Change, entity_id
from abreast.store.rows import WIDEST, read_rows, rows_query
from abreast.store.statement import Flow
from abreast.store.tracked import Readable, TrackedTable, Writable
from abreast.store.values import can_hold, key_parts
from abreast.types import Operation, Row, Version

_DONE: dict[Operation, str] = {"insert": "create", "update": "update", "delete": "delete"}


def as_writable(answer: Any, tracked: TrackedTable) -> Writable:
    """What a write rule answered, as a Writable. Raises ConfigurationError for anything that is not an answer."""
    if isinstance(answer, Writable):
        unknown = (answer.fields or frozenset()) - {f.name for f in tracked.fields}
        if unknown:
            raise ConfigurationError(
                f"The write rule of {tracked.entity_type} names {sorted(unknown)}, which are not its columns."
            )
        return answer
    if answer is True or answer is False:
        return Writable() if answer else Writable(operations=())
    if isinstance(answer, sa.ColumnElement):
        return Writable(where=answer)
    raise ConfigurationError(
        f"The write rule of {tracked.entity_type} returned {type(answer).__name__}; "
        f"it returns Writable(...), a condition, True or False."
    )


def settable(tracked: TrackedTable) -> frozenset[str]:
    """The fields that a tool may set at all: not what names the row, its workspace or its version, and not what the
    database or the model keeps by itself. A key that nobody else makes is given when a row is made, and never changed."""
    mapper: Any = None if isinstance(tracked.model, sa.Table) else sa.inspect(tracked.model)
    counter = None if mapper is None or mapper.version_id_col is None else mapper.version_id_col.name
    kept = {tracked.workspace_column, tracked.version_column, counter}
    kept |= {c.name for c in tracked.table.columns if c.computed is not None or c.onupdate or c.server_onupdate}
    kept |= {c.name for c in tracked.table.primary_key.columns if is_made(c)}
    return frozenset(f.name for f in tracked.fields if f.name not in kept)


def spelled(tracked: TrackedTable, wanted: str) -> str | None:
    """A row's id as the log has it, of an id that a model or an application gave; None where nobody can say. The database
    takes other spellings of a number or a UUID for the same key."""
    try:
        parts = key_parts(tracked, wanted)
        known = [_spelled(f.kind, part) for f, part in zip(tracked.key, parts, strict=True)]
    except (AbreastError, ValueError):
        return None
    if None in known:
        return None
    return entity_id(known[0] if len(known) == 1 else tuple(known))


def _spelled(kind: str, text: str) -> str | None:
    if kind == "integer":
        return str(int(text))
    if kind == "uuid":
        return str(UUID(text))
    return text if kind == "text" else None


def is_made(column: sa.Column[Any]) -> bool:
    """Whether a new row gets a value of this column by itself."""
    counted = isinstance(column.table, sa.Table) and column.table.autoincrement_column is column
    return bool(counted or column.default is not None or column.server_default is not None or column.identity is not None)


@dataclass(frozen=True)
class Permits:
    """Gives the permit of a person for a table, asked anew at each call."""

    sync: Sync

    def of(self, tracked: TrackedTable, context: Any) -> Permit:
        """What the person of this context may do. Raises ConfigurationError where a rule fails."""
        readable = self.sync.rules(context)
        rule = tracked.writable
        if rule is None or isinstance(rule, Writable):
            return Permit(self.sync, tracked, readable, rule or Writable())
        try:
            answer = rule(context)
        except AbreastError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"The write rule of {tracked.entity_type} failed with {type(error).__name__}. Nothing was written."
            ) from error
        return Permit(self.sync, tracked, readable, as_writable(answer, tracked))


@dataclass(frozen=True)
class Written:
    """What one write of a tool did: the row's id and version, and the fields that it set or moved, as they are now."""

    entity_id: str | int
    version: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Permit:
    """One person's permit for one table at one moment."""

    sync: Sync
    tracked: TrackedTable
    readable: Mapping[str, Readable]
    writable: Writable

    @property
    def hidden(self) -> frozenset[str]:
        """Fields that this person must not see."""
        return self.readable[self.tracked.entity_type].hide

    def check(self, op: Operation, names: Sequence[str]) -> None:
        """Raises RefusedError where this person may not do this, or not to one of these fields, which it names."""
        kind = self.tracked.entity_type
        if op not in self.writable.operations:
            raise RefusedError(f"This person may not {_DONE[op]} rows of {kind}. Nothing was written.")
        named, possible = self.writable.fields, settable(self.tracked) - self.hidden
        redacted = {f.name for f in self.tracked.fields if f.redacted}
        # A key is what the row is called, not what is said of it: whoever may create may choose it.
        keys = {f.name for f in self.tracked.key} if op == "insert" else set()
        allowed = possible - redacted if named is None else possible & (named | keys)
        if refused := [name for name in names if name not in allowed]:
            raise RefusedError(f"{kind}.{refused[0]} may not be written here. Nothing was written.", field=refused[0])

    def can_hold(self, workspace: str) -> bool:
        """Whether rows of the table could belong to this workspace."""
        return can_hold(self.tracked, workspace)

    def create(self, tx: Transaction, values: Mapping[str, Any], workspaces: Sequence[str]) -> Written:
        """A new row. Raises RefusedError where this person could not write it once it is there."""
        self._references(tx, values, {}, workspaces)
        column = self.tracked.workspace_column
        given = {**values, **({column: self._workspace(column, tx.workspace)} if column else {})}
        (made,) = tx.apply(Change("insert", self.tracked.model, None, given))
        assert made is not None
        row = self._after(tx, made.entity_id)
        told = {k: v for k, v in row.values.items() if k in values or (v is not None and k != column)}
        return Written(self._named(row), tx.version(self.tracked.model, made.entity_id), self._short(told))

    def update(
        self, tx: Transaction, entity_id: str, version: Version, values: Mapping[str, Any], workspaces: Sequence[str]
    ) -> Written:
        """New values for fields of a row. Raises UnknownEntityError, VersionConflictError or RefusedError."""
        before = self._before(tx, entity_id, version)
        self._references(tx, values, before.values, workspaces)
        tx.apply(Change("update", self.tracked.model, before.entity_id, values))
        row = self._after(tx, before.entity_id)
        told = {k: v for k, v in row.values.items() if k in values or v != before.values.get(k)}
        return Written(self._named(row), tx.version(self.tracked.model, before.entity_id), self._short(told))

    def delete(self, tx: Transaction, entity_id: str, version: Version) -> str | int:
        """The end of a row. Returns its id. Raises what `update` raises."""
        row = self._before(tx, entity_id, version)
        tx.apply(Change("delete", self.tracked.model, row.entity_id, {}))
        return self._named(row)

    def absent(self, tracked: TrackedTable, entity_id: str) -> UnknownEntityError:
        """The error for a row that is not there, or is not for this person: nobody can tell which."""
        return UnknownEntityError(
            f"There is no {tracked.entity_type} {entity_id!r} here.", entity_type=tracked.entity_type, entity_id=entity_id
        )

    def seen(self, error: VersionConflictError) -> VersionConflictError:
        """The error with as much of the row as this person may see."""
        row = error.row
        return conflict_error(row.entity_type, error.entity_id, error.expected, visible_row(row, self.readable[row.entity_type]))

    def referred(self, values: Mapping[str, Any]) -> tuple[tuple[str, str, int | None], ...] | None:
        """The tracked rows that a new row with these values refers to; None where one cannot be named by its id."""
        found: list[tuple[str, str, int | None]] = []
        for constraint in self.tracked.table.foreign_key_constraints:
            parent = next((t for t in self.sync.tables if t.table is constraint.referred_table), None)
            given = {element.column.name: values.get(element.parent.name) for element in constraint.elements}
            if parent is None or None in given.values():
                continue
            if set(given) != {f.name for f in parent.key}:
                return None
            known = spelled(parent, _id_of([given[f.name] for f in parent.key]))
            if known is None:
                return None
            found.append((parent.entity_type, known, None))
        return tuple(found)

    def reach(self, entity_id: str, workspaces: Sequence[str]) -> Flow[None]:
        """Raises UnknownEntityError or RefusedError where a write of this row could not be made, as `update` would: so that
        nobody is asked about it. Locks nothing; the write looks again."""
        readable = self.readable[self.tracked.entity_type].where
        seen = False
        for workspace in workspaces:
            for more in (self.writable.where, None):
                conditions = [one for one in (readable, more) if one is not None]
                query, _ = rows_query(
                    self.sync.dialect,
                    self.tracked,
                    Readable(sa.and_(*conditions) if conditions else None),
                    workspace=workspace,
                    width=1,
                    limit=1,
                    entity_ids=[entity_id],
                )
                if (yield query):
                    if more is self.writable.where:
                        return
                    seen = True
        if not seen:
            raise self.absent(self.tracked, entity_id)
        raise self._unwritable()

    def _unwritable(self) -> RefusedError:
        kind = self.tracked.entity_type
        return RefusedError(f"This {kind} may not be written by this person. Nothing was written.")

    # -- around the write ----------------------------------------------------------------------------------------

    def _before(self, tx: Transaction, entity_id: str, version: Version) -> Row:
        """The row, locked, as this person may read and write it at this version. Who may read it and not write it is told
        so; to others it is absent."""
        key_parts(self.tracked, entity_id)  # says what an id looks like where this is none
        try:
            current = tx.is_current(self.tracked.model, entity_id, version)
        except UnknownEntityError:
            raise self.absent(self.tracked, entity_id) from None
        row = self._row(tx, entity_id, WIDEST)
        if row is None:
            readable = Readable(self.readable[self.tracked.entity_type].where)
            if self._look(tx, self.tracked, readable, entity_id, tx.workspace, 1) is None:
                raise self.absent(self.tracked, entity_id)
            raise self._unwritable()
        if row.entity_id != entity_id:
            current = tx.is_current(self.tracked.model, row.entity_id, version)  # another spelling of a key has no events
        if not current:
            shown = replace(self._row(tx, row.entity_id, WIDTH) or row, version=tx.lock(self.tracked.model, row.entity_id))
            raise conflict_error(self.tracked.entity_type, row.entity_id, version, shown)
        return row

    def _named(self, row: Row) -> str | int:
        """The row's id as reading shows it: a key column `id` keeps its type."""
        own: str | int = row.values.get("id", row.entity_id) if [f.name for f in self.tracked.key] == ["id"] else row.entity_id
        return own

    def _after(self, tx: Transaction, entity_id: str) -> Row:
        row = self._row(tx, entity_id, WIDEST)
        if row is None:
            raise RefusedError(
                f"After this the {self.tracked.entity_type} would not be one that this person may write. Nothing was written."
            )
        return row

    def _row(self, tx: Transaction, entity_id: str, width: int) -> Row | None:
        """The row, if read rule and write rule let it through."""
        rule, more = self.readable[self.tracked.entity_type], self.writable.where
        conditions = [one for one in (rule.where, more) if one is not None]
        return self._look(
            tx, self.tracked, Readable(sa.and_(*conditions) if conditions else None), entity_id, tx.workspace, width
        )

    def _look(
        self, tx: Transaction, tracked: TrackedTable, rule: Readable, entity_id: str | None, workspace: str, width: int
    ) -> Row | None:
        query, _ = rows_query(
            self.sync.dialect,
            tracked,
            rule,
            workspace=workspace,
            width=width,
            limit=1,
            entity_ids=None if entity_id is None else [entity_id],
        )
        found = [tuple(row) for row in tx.session.execute(query.query)]
        rows = read_rows(tracked, found, self.sync.dialect, width)
        return rows[0] if rows else None

    def _references(
        self, tx: Transaction, values: Mapping[str, Any], before: Mapping[str, Any], workspaces: Sequence[str]
    ) -> None:
        """What the row is made to refer to among the tracked rows must be there for this person. The row that says the
        workspace must be in it; others may be in any workspace of the run, or public to all."""
        hop = self.tracked.hop
        for constraint in self.tracked.table.foreign_key_constraints:
            columns = tuple(element.parent.name for element in constraint.elements)
            parent = next((t for t in self.sync.tables if t.table is constraint.referred_table), None)
            given = {element.column.name: {**before, **values}.get(element.parent.name) for element in constraint.elements}
            if parent is None or not set(columns) & values.keys() or None in given.values():
                continue
            by_key = set(given) == {f.name for f in parent.key}
            wanted = _id_of([given[f.name] for f in parent.key]) if by_key else None
            home = hop is not None and hop.parent is parent and set(hop.columns) == set(columns)
            where = [tx.workspace] if home else [*workspaces, *([parent.workspace_constant] if parent.workspace_constant else [])]
            readable = self.readable[parent.entity_type].where
            referred = [] if by_key else [parent.table.c[name] == value for name, value in given.items()]
            rule = Readable(sa.and_(*referred, *([] if readable is None else [readable])) if referred else readable)
            if not any(can_hold(parent, one) and self._look(tx, parent, rule, wanted, one, 1) for one in where):
                raise self.absent(parent, wanted or ", ".join(map(str, given.values())))

    def _workspace(self, column: str, workspace: str) -> Any:
        """The run's workspace as a value of the column that holds it."""
        kind = self.tracked.field(column).kind
        if kind == "integer":
            return int(workspace)
        if kind == "uuid" and getattr(_column(self.tracked, column).type, "as_uuid", True):
            return UUID(workspace)
        return workspace

    def _short(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values for an answer: long texts cut, without the version, which is told beside them. What this person may not
        see is left out when it is told: an outcome that is kept may be told later."""
        cut = {k: v[:WIDTH] + "…" if isinstance(v, str) and len(v) > WIDTH else v for k, v in values.items()}
        cut.pop(self.tracked.version_column or "", None)
        return cut


def _column(tracked: TrackedTable, name: str) -> sa.Column[Any]:
    return next(c for c in tracked.table.columns if c.name == name)


def _id_of(key: Sequence[Any]) -> str:
    return entity_id(key[0] if len(key) == 1 else tuple(key))
