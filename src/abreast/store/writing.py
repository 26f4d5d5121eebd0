"""Writing: changes as the database takes them, and the statements that make them.

A change's values become what an ORM would bind: through the processors of the columns' types, with the defaults that
Python makes. On PostgreSQL they travel as text in one JSON call (`procedures` has the functions that read it), on
SQLite as parameters of statements that are made once for each shape.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from abreast.errors import InputError, UnknownEntityError
from abreast.store.change import Change, entity_id
from abreast.store.rows import WIDEST
from abreast.store.schema import DialectName, own, quote
from abreast.store.statement import Statement
from abreast.store.tracked import Kind, TrackedTable, column_names
from abreast.store.values import RowReader, entity_id_sql, key_parts, reference, row_sql, workspace_condition
from abreast.types import Row

_OF_KIND: dict[Kind, tuple[type, ...]] = {
    "integer": (int,),
    "float": (float, int, Decimal),
    "decimal": (Decimal, int, float),
    "boolean": (bool,),
    "date": (dt.date,),
    "datetime": (dt.datetime,),
    "time": (dt.time,),
    "bytes": (bytes, bytearray, memoryview),
}
"""Python's types for a plain column of a kind. What stands behind a type of the application's own is its own to check."""


@dataclass(frozen=True, slots=True)
class Write:
    """One change as the database takes it: bound values and SQL expressions by column name, in the order of the columns."""

    change: Change
    tracked: TrackedTable
    values: Mapping[str, Any]
    expressions: Mapping[str, str]
    key: Mapping[str, Any]
    """SQLite: the parameters that name the row."""
    payload: Any
    """What the caller wants, as JSON: without defaults, which may differ at a repeat."""

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns that are set, each with its SQL expression if it has one."""
        chosen = {**dict.fromkeys(self.values), **self.expressions}
        return {f.name: chosen[f.name] for f in self.tracked.fields if f.name in chosen}

    @property
    def sort_key(self) -> tuple[str, str]:
        return self.tracked.entity_type, self.change.entity_id or ""


class TableWriter:
    """Makes writes of one tracked table. `carried` turns a bound value into what a statement can carry."""

    def __init__(self, tracked: TrackedTable, dialect: sa.Dialect, carried: Callable[[Any], Any] = lambda value: value) -> None:
        self.tracked, self._dialect, self._carried = tracked, dialect, carried
        self.columns = {c.name: c for c in tracked.table.columns}
        self._bindings: dict[str, _Binding] = {}
        self._names: dict[Any, dict[str, str]] = {}
        self._statements: dict[Any, str] = {}
        mapper: Any = None if isinstance(tracked.model, sa.Table) else sa.inspect(tracked.model)
        self._counter = None if mapper is None or mapper.version_id_col is None else mapper.version_id_col.name
        self._made_on_insert = self._made("default")
        self._made_on_update = self._made("onupdate")
        self._key = key = frozenset(f.name for f in tracked.key)
        database: DialectName = "sqlite" if dialect.name == "sqlite" else "postgresql"
        self._read_row = RowReader(tracked, database, WIDEST).read
        types = [c.type for c in tracked.table.primary_key.columns]
        self._text_key = not any(f.kind in ("integer", "uuid") for f in tracked.key)
        self._plain_key = all(f.kind in ("text", "integer", "uuid", "date") for f in tracked.key) and not any(
            isinstance(declared, sa.types.TypeDecorator | sa.Enum) for declared in types
        )
        self.settable = [f.name for f in tracked.fields if f.name not in key]
        self.json_columns = [
            f.name for f in tracked.fields if f.kind == "json" and not isinstance(_base(self.columns[f.name].type), sa.ARRAY)
        ]

    # -- values --------------------------------------------------------------------------------------------------

    def write(self, change: Change) -> Write:
        """The change, resolved. Raises InputError that names the field which is wrong."""
        kind, given = self.tracked.entity_type, self._given(change)
        if change.op == "update":
            if moved := sorted(self._key & given.keys()):
                raise InputError(f"{kind}.{moved[0]} is part of the key. A row keeps its key: delete it and insert another.")
            if not given:
                raise InputError(f"This update of {kind} {change.entity_id} names no field.")
        key: Mapping[str, Any] = {}
        if change.op != "insert":
            parts = self._parts(str(change.entity_id))
            if not self._text_key and (wanted := entity_id(parts[0] if len(parts) == 1 else parts)) != change.entity_id:
                # A number or a UUID may be spelled in several ways, and only one of them has events.
                change = replace(change, entity_id=wanted)
            key = self._key_values(str(change.entity_id), parts) if self._dialect.name == "sqlite" else {}
        values = {name: self._bound(name, value) for name, value in given.items()}
        payload = [change.op, kind, change.entity_id, change.version, {name: _plain(given[name]) for name in sorted(given)}]
        expressions: dict[str, str] = {}
        if change.op != "delete":
            self._complete(change, given, values, expressions)
        return Write(change, self.tracked, values, expressions, key, payload)

    def _given(self, change: Change) -> dict[str, Any]:
        names = self._names.get(change.model)
        if names is None:
            names = self._names[change.model] = column_names(change.model, self.tracked.table)
        given = {}
        for name, value in change.values.items():
            if name not in names:
                known = ", ".join(sorted(set(names.values())))
                raise InputError(f"{self.tracked.entity_type} has no field {name!r}. Its fields: {known}.")
            given[names[name]] = value
        return given

    def _bound(self, name: str, value: Any) -> Any:
        binding = self._bindings.get(name)
        if binding is None:
            binding = self._bindings[name] = _Binding(self.tracked, self.columns[name], self._dialect)
        return binding.bound(value, self._carried)

    def _complete(self, change: Change, given: Mapping[str, Any], values: dict[str, Any], expressions: dict[str, str]) -> None:
        """Adds what Python and the model make by themselves, as the ORM would."""
        inserting = change.op == "insert"
        if not inserting and not self._made_on_update:
            return
        context = _Context({self.columns[name].key: value for name, value in given.items()})
        for name, (constant, call, sql) in (self._made_on_insert if inserting else self._made_on_update).items():
            if name in given:
                continue
            if sql is not None:
                expressions[name] = sql
            else:
                values[name] = self._bound(name, call(context) if call is not None else constant)
        if inserting:
            mapper: Any = None if isinstance(change.model, sa.Table) else sa.inspect(change.model)
            if mapper is not None and mapper.polymorphic_on is not None and mapper.polymorphic_identity is not None:
                kind = str(getattr(mapper.polymorphic_on, "name", None))
                if kind in self.columns and kind not in given:
                    values[kind] = self._bound(kind, mapper.polymorphic_identity)
            for counter in (self.tracked.version_column, self._counter):
                if counter is not None and counter not in (given.keys() | values.keys() | expressions.keys()):
                    values[counter] = 1

    def _made(self, when: str) -> dict[str, tuple[Any, Any, str | None]]:
        """Columns whose value is made when a row is inserted or updated: a constant, a function, or SQL."""
        made: dict[str, tuple[Any, Any, str | None]] = {}
        for name, column in self.columns.items():
            default: Any = getattr(column, when)
            if default is None:
                continue
            if default.is_callable:
                made[name] = None, default.arg, None
            elif default.is_clause_element or default.is_sequence:
                if default.is_sequence and self._dialect.name == "sqlite":
                    continue
                clause = default.next_value() if default.is_sequence else default.arg
                made[name] = None, None, self._sql(clause)
            else:
                made[name] = default.arg, None, None
        if when == "onupdate" and self._counter and self._counter != self.tracked.version_column:
            # The ORM's own version counter: a session that has the row loaded must notice.
            made[self._counter] = None, None, f"{reference(self.tracked)}.{quote(self._counter)} + 1"
        return made

    def _sql(self, clause: Any) -> str:
        # Of the database, not of its driver: the functions in the database are made by whoever installs them.
        base: Any = sqlite.base.SQLiteDialect if self._dialect.name == "sqlite" else postgresql.base.PGDialect
        return str(clause.compile(dialect=base(paramstyle="named"), compile_kwargs={"literal_binds": True}))

    def _parts(self, entity_id: str) -> list[Any]:
        """The key of an entity id: Python values where the kind of a column has any, texts otherwise. Raises
        UnknownEntityError where no row can have this id."""
        try:
            parts = key_parts(self.tracked, entity_id)
            return [_READ.get(f.kind, _text)(part) for f, part in zip(self.tracked.key, parts, strict=True)]
        except (ValueError, InputError):
            raise UnknownEntityError(f"No {self.tracked.entity_type} has the id {entity_id!r}.") from None

    # -- PostgreSQL ----------------------------------------------------------------------------------------------

    def usual_updates(self) -> Iterable[dict[str, str | None]]:
        """The columns of each update of one field, with those that the model updates by itself."""
        for name in self.settable:
            if self.columns[name].computed is not None:
                continue
            chosen: dict[str, str | None] = {column: sql for column, (_, _, sql) in self._made_on_update.items()} | {name: None}
            yield {f.name: chosen[f.name] for f in self.tracked.fields if f.name in chosen}

    def call(self, write: Write) -> dict[str, Any]:
        """The change as `apply` of the database takes it."""
        change = write.change
        made: dict[str, Any] = {"type": self.tracked.entity_type, "op": change.op, "values": dict(write.values)}
        if change.op == "insert":
            made["columns"] = ", ".join(quote(name) for name in write.columns)
            made["set"] = ", ".join(sql or f"($1).{quote(name)}" for name, sql in write.columns.items())
        else:
            made["id"] = change.entity_id
            made["values"] |= self._key_texts(str(change.entity_id))
            if change.version is not None:
                made["version"] = change.version
            if change.op == "update":
                made["set"] = self._assignment(write)
        return made

    def _assignment(self, write: Write) -> str:
        shape = ("set", tuple(write.values), tuple(write.expressions.items()))
        text = self._statements.get(shape)
        if text is None:
            text = self._statements[shape] = assignment(write.columns)
        return text

    def _key_texts(self, entity_id: str) -> dict[str, str]:
        """The key as texts that PostgreSQL reads back into its columns."""
        texts = {}
        for f, part in zip(self.tracked.key, key_parts(self.tracked, entity_id), strict=True):
            zoned = f.kind == "datetime" and getattr(self.columns[f.name].type, "timezone", False)
            texts[f.name] = f"{part}+00" if zoned else part
        return texts

    def lock(self, entity_id: str) -> dict[str, str]:
        """One row of those that a group of calls locks."""
        return self._key_texts(entity_id)

    # -- SQLite --------------------------------------------------------------------------------------------------

    def statement(self, write: Write) -> Statement:
        """The INSERT, UPDATE or DELETE; an INSERT answers with the new row's entity id."""
        change, table = write.change, reference(self.tracked)
        columns = write.columns
        shape = (change.op, tuple(columns.items()))
        text = self._statements.get(shape)
        if text is None:
            places = {name: sql or f":v{i}" for i, (name, sql) in enumerate(columns.items())}
            if change.op == "insert":
                names = ", ".join(quote(name) for name in places)
                body = f"({names}) values ({', '.join(places.values())})" if places else "default values"
                text = f"insert into {table} {body} returning {entity_id_sql('sqlite', self.tracked)}"
            elif change.op == "update":
                settings = ", ".join(f"{quote(name)} = {sql}" for name, sql in places.items())
                text = f"update {table} set {settings} where {self._key_condition()}"
            else:
                text = f"delete from {table} where {self._key_condition()}"
            self._statements[shape] = text
        bound = {f"v{i}": write.values[name] for i, (name, sql) in enumerate(columns.items()) if sql is None}
        return Statement(text, {**bound, **write.key})

    def look_statement(self, schema: str, workspace: str, entity_id: str, key: Mapping[str, Any] | None = None) -> Statement:
        """The row's version if it is in this workspace; then the row itself, as JSON."""
        text = self._statements.get("look")
        if text is None:
            own_version = self.tracked.version_column
            last = (
                f"select max(e.revision) from {own('sqlite', 'event', schema)} e "
                f"where e.entity_type = :entity_type and e.entity_id = :entity_id and e.workspace = :workspace"
            )
            version = f"{reference(self.tracked)}.{quote(own_version)}" if own_version else f"coalesce(({last}), 0)"
            row = row_sql("sqlite", self.tracked, entity_id_sql("sqlite", self.tracked)).replace(":width", str(WIDEST))
            home = workspace_condition("sqlite", self.tracked)
            text = f"select {version}, {row} from {reference(self.tracked)} where {self._key_condition()} and {home}"
            self._statements["look"] = text
        names = {"entity_type": self.tracked.entity_type, "entity_id": entity_id, "workspace": workspace}
        return Statement(text, {**names, **(key or self._key_values(entity_id, self._parts(entity_id)))})

    def _key_condition(self) -> str:
        table = reference(self.tracked)
        if not self._plain_key:
            return f"{entity_id_sql('sqlite', self.tracked)} = :entity_id"
        return " and ".join(f"{table}.{quote(f.name)} = :k{i}" for i, f in enumerate(self.tracked.key))

    def _key_values(self, entity_id: str, parts: list[Any]) -> dict[str, Any]:
        if not self._plain_key:
            return {"entity_id": entity_id}
        key = zip(self.tracked.key, parts, strict=True)
        return {f"k{i}": self._bound(f.name, self._as_declared(f.name, part)) for i, (f, part) in enumerate(key)}

    def _as_declared(self, name: str, part: Any) -> Any:
        return str(part) if isinstance(part, UUID) and not getattr(self.columns[name].type, "as_uuid", True) else part

    # -- what comes back -----------------------------------------------------------------------------------------

    def row(self, raw: Any, version: int) -> Row:
        """A row that `row_sql` selected, parsed."""
        entity_id, values = self._read_row(raw)
        return Row(self.tracked.entity_type, entity_id, values, version)


class _Binding:
    """How values of one column become what is bound."""

    def __init__(self, tracked: TrackedTable, column: sa.Column[Any], dialect: sa.Dialect) -> None:
        field, declared = tracked.field(column.name), column.type
        self._where, self._kind = f"{tracked.entity_type}.{column.name}", field.kind
        self._wraps = getattr(declared, "_has_bind_expression", False)
        allowed = (str,) if type(declared) in _TEXTS else _OF_KIND.get(field.kind, ())
        self._allowed = () if isinstance(declared, sa.types.TypeDecorator) else allowed
        # Python's bool is an int, its datetime a date.
        self._not_meant: Any = {"boolean": (), "date": dt.datetime}.get(field.kind, bool)
        self._names = frozenset(declared.enums) if isinstance(declared, sa.Enum) else None
        self._process = declared.dialect_impl(dialect).bind_processor(dialect)

    def bound(self, value: Any, carried: Callable[[Any], Any]) -> Any:
        """What is bound for a value. Raises InputError that names the field."""
        where = self._where
        if isinstance(value, sa.ClauseElement):
            raise InputError(f"{where} takes a value, not an SQL expression. Use hub.write for those.")
        if self._wraps:
            raise InputError(f"The type of {where} wraps its values in SQL. Use hub.write for it.")
        if value is not None:
            if self._allowed and (isinstance(value, self._not_meant) or not isinstance(value, self._allowed)):
                raise InputError(f"{where} holds {self._kind} values; {type(value).__name__} {value!r} is none.")
            if self._names is not None and isinstance(value, str) and value not in self._names:
                raise InputError(f"{where} is one of {', '.join(sorted(self._names))}, not {value!r}.")
        try:
            bound = carried(self._process(value) if self._process else value)
        except Exception as error:  # of the application's own types too, whatever they raise
            raise InputError(f"{value!r} is not a value of {where}: {error}") from error
        if isinstance(bound, str) and "\0" in bound:
            raise InputError(f"{where} cannot hold a NUL character.")
        return bound


def _whole(part: str) -> int:
    number = int(part)
    if not -(2**63) <= number < 2**63:
        raise ValueError(part)
    return number


def _text(part: str) -> str:
    if "\0" in part:
        raise ValueError(part)
    return part


_READ: dict[Kind, Callable[[str], Any]] = {"integer": _whole, "uuid": UUID, "date": dt.date.fromisoformat}

_TEXTS = (sa.String, sa.Text, sa.Unicode, sa.UnicodeText, sa.VARCHAR, sa.TEXT, sa.CHAR, sa.NVARCHAR)


class _Context:
    """What a default that looks at the other values of its row is given."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.current_parameters = parameters

    def get_current_parameters(self, isolate_multiinsert_groups: bool = True) -> Mapping[str, Any]:
        return self.current_parameters


def assignment(columns: Mapping[str, str | None]) -> str:
    """The SET part of an update, with the new row as `$1`. The functions in the database know the usual ones by it."""
    return ", ".join(f"{quote(name)} = {sql or '($1).' + quote(name)}" for name, sql in columns.items())


def _base(declared: Any) -> Any:
    while isinstance(declared, sa.types.TypeDecorator):
        declared = declared.impl_instance
    return declared


def _plain(value: Any) -> Any:
    """A Python value as JSON that is the same whenever the value is."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)
