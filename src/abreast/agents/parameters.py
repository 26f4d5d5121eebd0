"""The parameters of a write tool, made from a table's columns: a JSON schema for the model, Python values for the write."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import sqlalchemy as sa
from pydantic import AfterValidator, Base64Bytes, BaseModel, ConfigDict, Field, FiniteFloat, NaiveDatetime, create_model
from pydantic import ValidationError as Invalid
from sqlalchemy.dialects import postgresql

from abreast.core.permits import is_made
from abreast.errors import InputError
from abreast.store.tracked import Field as Tracked
from abreast.store.tracked import Kind, TrackedTable

_TAKEN = frozenset({"id", "version", "workspace", "runtime", "config", "run_manager", "callbacks"})
"""Names of arguments that a tool has already, or LangChain has for it."""

_ALLOWED = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Names of arguments that every provider takes."""


@dataclass(frozen=True)
class Own:
    """An argument that is no field: its type, what is said of it, and whether the model is told that it must be given."""

    kind: Any
    said: str
    needed: bool = True


class Parameters:
    """What one write tool asks for. `shown` are the fields in its schema, `accepted` those that somebody may have a right
    to set; `own` are its other arguments."""

    def __init__(
        self,
        tracked: TrackedTable,
        *,
        shown: Collection[str],
        accepted: Collection[str],
        own: Mapping[str, Own],
        creating: bool,
        dialect: sa.Dialect,
    ) -> None:
        self._dialect = dialect
        self._columns = {c.name: c for c in tracked.table.columns}
        self._kinds = {f.name: f.kind for f in tracked.fields}
        keys = {f.name for f in tracked.key} if creating else set()
        fields = [f for f in tracked.fields if f.name in accepted]
        place = {f.name: n for n, f in enumerate(tracked.fields)}
        self.arguments = {f.name: _argument(f.name, place[f.name], plain=f.name in keys) for f in fields}
        """The argument of each field."""
        self._fields = {argument: name for name, argument in self.arguments.items()}
        # A model copies what CURRENT shows, and there a labelled field is `name (label)`.
        self._spellings = {f"{f.name} ({f.label})": self.arguments[f.name] for f in fields if f.label}
        self.required = [f.name for f in fields if creating and is_required(tracked, f.name)]
        # Inner names: a column may be called as pydantic calls something of its own.
        made: dict[str, Any] = {}
        self._outer: dict[str, str] = {}
        for name, one in own.items():
            inner = f"own_{len(made)}"
            made[inner] = (one.kind | None, Field(default=None, alias=name, description=one.said))
            self._outer[inner] = name
        for f in fields:
            inner, default = f"field_{len(made)}", ... if f.name in self.required else None
            made[inner] = (self._type(f), Field(default, alias=self.arguments[f.name], description=self._said(f) or None))
            self._outer[inner] = self.arguments[f.name]
        self._model: type[BaseModel] = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **made)
        self.schema = self._schema({self.arguments[f.name] for f in fields if f.name not in shown}, own)

    def example(self) -> str:
        """One field with a value, as it stands in a call."""
        names = self.required or [name for name, argument in self.arguments.items() if argument in self.schema["properties"]]
        name = next(iter(names), None)
        return "…" if name is None else f'"{self.arguments[name]}": {_EXAMPLES.get(self._kinds[name], _TEXT)}'

    def read(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The tool's own arguments, and Python values by field: a field that was left out is absent, one that was set to
        null is None. Raises InputError that names what is wrong."""
        given = {self._spellings.get(name, name): value for name, value in arguments.items()}
        try:
            model = self._model.model_validate(given)
        except Invalid as error:
            raise InputError(self._wrong(error)) from None
        found = {self._outer[inner]: getattr(model, inner) for inner in model.model_fields_set}
        own = {name: value for name, value in found.items() if name not in self._fields}
        return own, {self._fields[name]: value for name, value in found.items() if name in self._fields}

    def _wrong(self, error: Invalid) -> str:
        said: dict[str, str] = {}
        for one in error.errors(include_url=False, include_input=False, include_context=False):
            name, text = str(one["loc"][0]) if one["loc"] else "", one["msg"]
            if one["type"] == "extra_forbidden":
                known = f"there is no such field; there are {', '.join(self.schema['properties'])}"
                text = "may not be written here" if name in self._columns else known
            said.setdefault(name, text)
        return "; ".join(f"{name}: {text}" for name, text in said.items()) + ". Nothing was written."

    # -- the schema ----------------------------------------------------------------------------------------------

    def _schema(self, hidden: Collection[str], own: Mapping[str, Own]) -> dict[str, Any]:
        schema = self._model.model_json_schema()
        properties = {}
        for name, found in schema["properties"].items():
            if name in hidden:
                continue
            kept = {k: v for k, v in found.items() if k not in ("title", "default")}
            choices = kept.get("anyOf", [])
            if name in own and len(left := [one for one in choices if one != {"type": "null"}]) < len(choices):
                kept = {**({"anyOf": left} if len(left) > 1 else left[0]), **{k: v for k, v in kept.items() if k != "anyOf"}}
            properties[name] = kept
        needed = [name for name, one in own.items() if one.needed] + [self.arguments[name] for name in self.required]
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in needed],
            "additionalProperties": False,
        }

    def _said(self, field: Tracked) -> str:
        column = self._columns[field.name]
        said = [str(text) for text in (field.label, column.comment or column.doc) if text]
        if self.arguments[field.name] != field.name:
            said.insert(0, f"The field {field.name}.")
        if field.kind == "json" and not isinstance(column.type, sa.ARRAY):
            said.append("Any JSON.")
        return " ".join(said)

    def _type(self, field: Tracked) -> Any:
        column = self._columns[field.name]
        kind = _python(column.type, field.kind, self._dialect)
        return kind | None if column.nullable and kind is not Any else kind


def is_required(tracked: TrackedTable, name: str) -> bool:
    """Whether a new row must be given a value of this field."""
    column = next(c for c in tracked.table.columns if c.name == name)
    return not column.nullable and not is_made(column) and column.computed is None


def _argument(name: str, number: int, *, plain: bool) -> str:
    if not _ALLOWED.fullmatch(name):
        return f"field_{number}"
    return f"{name}_" if name in _TAKEN and not (plain and name == "id") else name


def _python(declared: sa.types.TypeEngine[Any], kind: Kind, dialect: sa.Dialect) -> Any:
    """What pydantic makes of a value for a column of this type."""
    if isinstance(declared, sa.Interval | postgresql.INTERVAL):
        return dt.timedelta
    if isinstance(declared, sa.types.TypeDecorator):
        # Reading shows what is stored. Writing takes the same, as the application's type would read it.
        return Annotated[_python(declared.impl_instance, kind, dialect), AfterValidator(partial(_as_read, declared, dialect))]
    if isinstance(declared, sa.Enum) and declared.enums:
        return Literal[tuple(declared.enums)]
    if isinstance(declared, sa.ARRAY):
        return list[Any]
    if kind == "decimal" and isinstance(declared, sa.Numeric):
        return Annotated[Decimal, Field(max_digits=declared.precision, decimal_places=declared.scale)]
    if kind == "uuid" and not getattr(declared, "as_uuid", True):
        return Annotated[UUID, AfterValidator(str)]
    if kind == "datetime":
        return Annotated[dt.datetime, AfterValidator(_utc)] if getattr(declared, "timezone", False) else NaiveDatetime
    if kind == "text" and isinstance(declared, sa.String):
        return Annotated[str, Field(max_length=declared.length), AfterValidator(_storable)]
    return _OF_KIND[kind]


def _as_read(declared: sa.types.TypeDecorator[Any], dialect: sa.Dialect, stored: Any) -> Any:
    if type(declared).process_result_value is sa.types.TypeDecorator.process_result_value:
        return stored
    try:
        return declared.process_result_value(stored, dialect)
    except Exception:
        raise ValueError("this is not what the field holds") from None


def _utc(moment: dt.datetime) -> dt.datetime:
    # SQLite keeps no zone: every moment goes there in the one that it is read in.
    return moment.astimezone(dt.UTC) if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair; no database stores one") from None
    return text


_OF_KIND: dict[Kind, Any] = {
    "text": Annotated[str, AfterValidator(_storable)],
    "integer": int,
    "float": FiniteFloat,
    "decimal": Decimal,
    "boolean": bool,
    "date": dt.date,
    "time": dt.time,
    "uuid": UUID,
    "bytes": Base64Bytes,
    "json": Any,
}

_TEXT = '"…"'
_EXAMPLES: dict[Kind, str] = {
    "integer": "3",
    "float": "1.5",
    "decimal": '"12.50"',
    "boolean": "true",
    "date": '"2026-09-30"',
    "datetime": '"2026-09-30T14:00:00"',
    "time": '"14:00:00"',
    "json": "{}",
}
