"""A tracked table: what `hub.track` declares, resolved against SQLAlchemy metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import NoInspectionAvailable

from abreast.errors import ConfigurationError, NotTrackedError
from abreast.types import Operation

Kind = Literal["text", "integer", "float", "decimal", "boolean", "date", "datetime", "time", "uuid", "bytes", "json"]


@dataclass(frozen=True)
class Field:
    """One column: its name, the family of its type, and what may be done with its value."""

    name: str
    kind: Kind
    scale: int | None = None
    recorded: bool = False
    redacted: bool = False
    label: str | None = None


@dataclass(frozen=True)
class Via:
    """The workspace of a row is its parent's: `columns` of the row hold the parent's primary key."""

    columns: tuple[str, ...]
    parent: Any


@dataclass(frozen=True)
class Constant:
    """All rows of the table belong to one workspace."""

    workspace: str


def via(columns: str | Sequence[str], parent: Any) -> Via:
    """The workspace is found through a foreign key: `via("plan_id", Plan)`. The parent must be tracked too."""
    return Via((columns,) if isinstance(columns, str) else tuple(columns), parent)


def constant(workspace: str) -> Constant:
    """Every row belongs to this one workspace: `track(Game, workspace=constant("kbo-2026"))`."""
    return Constant(workspace)


@dataclass(frozen=True)
class Hop:
    """The foreign-key columns of a row, and the tracked parent whose primary key they hold."""

    columns: tuple[str, ...]
    parent: TrackedTable


@dataclass(frozen=True)
class Readable:
    """What a person may read of one table.

    `where` is an SQLAlchemy condition on the table, or None for all rows. `hide` names fields that this person
    must not see; unlike redacted fields, not even their names are told.
    """

    where: sa.ColumnElement[bool] | None = None
    hide: frozenset[str] = frozenset()

    def __init__(self, where: sa.ColumnElement[bool] | None = None, hide: Collection[str] = ()) -> None:
        object.__setattr__(self, "where", where)
        object.__setattr__(self, "hide", frozenset(hide))


ReadRule = Callable[[Any], "Readable | sa.ColumnElement[bool] | bool"]
"""Run context in; `Readable`, a condition, `True` (all) or `False` (nothing) out. Asked at every read."""


OPERATIONS: tuple[Operation, ...] = ("insert", "update", "delete")


@dataclass(frozen=True)
class Writable:
    """What a person may write of one table through an agent's tools, on top of what he may read.

    `operations` are those allowed. `fields` are the fields that may be set, None for all that he may read; a redacted
    field can be set only if it is named here. `where` is a condition that the row must meet before the write and after
    it.
    """

    operations: frozenset[Operation] = frozenset(OPERATIONS)
    fields: frozenset[str] | None = None
    where: sa.ColumnElement[bool] | None = None

    def __init__(
        self,
        operations: Collection[Operation] = OPERATIONS,
        fields: Collection[str] | None = None,
        where: sa.ColumnElement[bool] | None = None,
    ) -> None:
        for option, given in (("operations", operations), ("fields", fields)):
            if isinstance(given, str):
                raise ConfigurationError(f"{option} takes a set of names: {{{given!r}}}.")
        if unknown := sorted(set(operations) - set(OPERATIONS)):
            raise ConfigurationError(f"{unknown[0]!r} is none of the operations {', '.join(OPERATIONS)}.")
        object.__setattr__(self, "operations", frozenset(operations))
        object.__setattr__(self, "fields", None if fields is None else frozenset(fields))
        object.__setattr__(self, "where", where)


WriteRule = Callable[[Any], "Writable | sa.ColumnElement[bool] | bool"]
"""Run context in; `Writable`, a condition, `True` (what he may read) or `False` (nothing) out. Asked at every write of a
tool."""


@dataclass(frozen=True)
class TrackedTable:
    """One table under watch.

    Exactly one of `workspace_column`, `hop` and `workspace_constant` is set. `key` and `fields` are in column order;
    `fields` are all columns, the key included. `title` is the field that names a row to people, `noun` what they call such
    a row.
    """

    table: sa.Table
    entity_type: str
    key: tuple[Field, ...]
    fields: tuple[Field, ...]
    workspace_column: str | None
    hop: Hop | None
    workspace_constant: str | None
    readable: ReadRule | None
    writable: WriteRule | Writable | None
    version_column: str | None
    without_workspace: Literal["error", "record"]
    model: Any
    title: str | None = None
    noun: str = ""

    def field(self, name: str) -> Field:
        """The field of that name; KeyError if there is none."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


def table_of(model: Any) -> sa.Table:
    """The SQLAlchemy table behind a mapped class or a table."""
    if isinstance(model, sa.Table):
        return model
    try:
        mapper: Any = sa.inspect(model)
    except NoInspectionAvailable:
        raise NotTrackedError(f"{model!r} is neither a mapped class nor an SQLAlchemy Table.") from None
    table = getattr(mapper, "local_table", None)
    if not isinstance(table, sa.Table):
        raise NotTrackedError(f"{model!r} is not mapped to one table.")
    return table


def resolve(
    model: Any,
    *,
    workspace: Any,
    tracked: Mapping[sa.Table, TrackedTable],
    name: str | None = None,
    record: Collection[str] | Literal["all"] = (),
    redact: Collection[str] = (),
    labels: Mapping[str, str] | None = None,
    readable: ReadRule | None = None,
    writable: WriteRule | Writable | None = None,
    version: str | None = None,
    without_workspace: Literal["error", "record"] = "error",
    title: Any = None,
    noun: str | None = None,
) -> TrackedTable:
    """The tracked table that these declarations describe.

    Raises ConfigurationError where a name is not a column, a label or noun is not a text that says something, or the table
    has no primary key; NotTrackedError where a parent is not tracked.
    """
    table = table_of(model)
    names = column_names(model, table)

    def column(given: Any) -> str:
        text = getattr(given, "key", given)
        if text not in names:
            raise ConfigurationError(
                f"{table.name} has no column {text!r}. Its columns: {', '.join(sorted(set(names.values())))}."
            )
        return names[text]

    if not table.primary_key.columns:
        raise ConfigurationError(f"{table.name} has no primary key; a change could not say which row it is about.")
    for option, given in (("record", record), ("redact", redact)):
        if isinstance(given, str) and given != "all":
            raise ConfigurationError(
                f"{option} takes a set of field names{' or all' if option == 'record' else ''}: {{{given!r}}}."
            )
    redacted = {column(item) for item in redact}
    recorded = {c.name for c in table.columns} if record == "all" else {column(item) for item in record}
    said = {column(key): text for key, text in _labels(labels).items()}
    if noun is not None and not _says_something(noun):
        raise ConfigurationError(f"noun is what people call a row of {table.name}: a text, not {noun!r}.")
    if without_workspace not in ("error", "record"):
        raise ConfigurationError(f"without_workspace is 'error' or 'record', not {without_workspace!r}.")
    fields = tuple(
        Field(
            name=c.name,
            kind=kind_of(c.type),
            scale=getattr(c.type, "scale", None) if kind_of(c.type) == "decimal" else None,
            recorded=c.name in recorded - redacted,
            redacted=c.name in redacted,
            label=said.get(c.name),
        )
        for c in table.columns
    )
    by_name = {f.name: f for f in fields}
    for c in table.primary_key.columns:
        if c.name in redacted:
            raise ConfigurationError(
                f"{table.name}.{c.name} is part of the primary key and cannot be redacted: it names the row."
            )
    workspace_column, hop, workspace_constant = None, None, None
    if isinstance(workspace, Constant):
        workspace_constant = workspace.workspace
    elif isinstance(workspace, Via):
        parent_table = table_of(workspace.parent)
        if parent_table not in tracked:
            raise NotTrackedError(
                f"{table.name} finds its workspace through {parent_table.name}, which is not tracked. Track it first."
            )
        parent = tracked[parent_table]
        columns = tuple(column(item) for item in workspace.columns)
        if len(columns) != len(parent.key):
            raise ConfigurationError(
                f"via{columns!r}: {parent_table.name} has {len(parent.key)} key column(s), {len(columns)} given."
            )
        for own, key in zip((by_name[given] for given in columns), parent.key, strict=True):
            if own.kind != key.kind:
                raise ConfigurationError(
                    f"{table.name}.{own.name} holds {own.kind} values, but the key {parent_table.name}.{key.name} is {key.kind}: "
                    f"via(...) takes the foreign key."
                )
        hop = Hop(columns, parent)
    else:
        workspace_column = column(workspace)
        if workspace_column in redacted:
            raise ConfigurationError(f"{table.name}.{workspace_column} names the workspace and cannot be redacted.")
    return TrackedTable(
        table=table,
        entity_type=name or table.name,
        key=tuple(by_name[c.name] for c in table.primary_key.columns),
        fields=fields,
        workspace_column=workspace_column,
        hop=hop,
        workspace_constant=workspace_constant,
        readable=readable,
        writable=_in_columns(writable, column) if isinstance(writable, Writable) else writable,
        version_column=column(version) if version else None,
        without_workspace=without_workspace,
        model=model,
        title=_title(table, fields, column(title) if title is not None else None),
        noun=noun or (name or table.name).replace("_", " "),
    )


def _says_something(given: Any) -> bool:
    return isinstance(given, str) and bool(given.strip())


def _labels(given: Any) -> Mapping[Any, str]:
    """The labels by field. Raises ConfigurationError for what is no mapping, and for a label that is empty or no text."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"labels takes what people call each field, {{field: label}}, not {given!r}.")
    for field, label in given.items():
        if not _says_something(label):
            raise ConfigurationError(f"labels: what people call {getattr(field, 'key', field)} is a text, not {label!r}.")
    return given


TITLES = ("title", "name", "label", "subject")
"""Fields that name a row to people, where nobody said which one does."""


def _title(table: sa.Table, fields: Sequence[Field], given: str | None) -> str | None:
    """The field that names a row to people. Raises ConfigurationError for one that may not be shown."""
    by_name = {f.name: f for f in fields}
    if given is not None and by_name[given].redacted:
        raise ConfigurationError(
            f"{table.name}.{given} is redacted, so it cannot be the title: it would name the row to the model."
        )
    if given is not None:
        return given
    return next((one for one in TITLES if one in by_name and by_name[one].kind == "text" and not by_name[one].redacted), None)


def _in_columns(rule: Writable, column: Callable[[Any], str]) -> Writable:
    """The rule with its fields as column names. Raises ConfigurationError for one that is none."""
    return rule if rule.fields is None else Writable(rule.operations, {column(item) for item in rule.fields}, rule.where)


def kind_of(declared: sa.types.TypeEngine[Any]) -> Kind:
    """The family of a column type; what is in no family is read as text."""
    base: Any = declared
    while isinstance(base, sa.types.TypeDecorator):
        if isinstance(base, sa.Interval):  # a moment since 1970 on SQLite, and none on PostgreSQL
            return "text"
        base = base.impl_instance
    families: tuple[tuple[Any, Kind], ...] = (
        (sa.Boolean, "boolean"),
        (sa.Enum, "text"),
        (sa.Uuid, "uuid"),
        (sa.JSON, "json"),
        (sa.ARRAY, "json"),
        (sa.Float, "float"),
        (sa.Numeric, "decimal"),
        (sa.Integer, "integer"),
        (sa.DateTime, "datetime"),
        (sa.Date, "date"),
        (sa.Time, "time"),
        (sa.LargeBinary, "bytes"),
    )
    for family, kind in families:
        if isinstance(base, family):
            return kind
    return "text"


def column_names(model: Any, table: sa.Table) -> dict[str, str]:
    """Column names by what a developer may write: the column's name, its key, or the mapped attribute."""
    names = {c.key: c.name for c in table.columns} | {c.name: c.name for c in table.columns}
    if not isinstance(model, sa.Table):
        mapper: Any = sa.inspect(model)
        for attribute in mapper.column_attrs:
            for c in attribute.columns:
                if getattr(c, "table", None) is table:
                    names.setdefault(attribute.key, c.name)
    return names
