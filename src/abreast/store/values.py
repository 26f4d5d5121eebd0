"""Values of tracked rows on their way out: the SQL that selects them, and the one JSON form they are read into.

The form is the same on both databases: NULL is null, a boolean true or false, integers and floats are numbers, a
decimal is a string with its scale, dates and times are ISO 8601 strings (a timestamp with time zone in UTC with `Z`),
a UUID is its dashed lower-case string, an enum its stored name, bytes are base64, JSON is itself. Other types are
their text.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from itertools import chain, repeat
from math import isfinite
from types import NoneType
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from abreast.errors import InputError
from abreast.store.schema import DialectName, literal, quote
from abreast.store.tracked import Field, Kind, TrackedTable

_CHUNK = 40
"""Columns in one JSON array: both databases limit the number of a function's arguments."""


class _Number(str):
    """A JSON number with a fraction, kept as it was written until its kind says what it is."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_constant=str)

_DEEPEST = 100
"""Levels of JSON that are read as such; Python could not follow a thousand."""

_AS_PARSED: frozenset[Kind] = frozenset({"text", "integer", "date"})
"""Kinds whose strings and integers stand in JSON as they are read."""


def load(text: str | None) -> Any:
    """Parsed JSON; numbers with a fraction keep their digits until `canonical` sees their kind."""
    return None if text is None else _DECODER.decode(text)


def canonical(dialect: DialectName, field: Field, raw: Any) -> Any:
    """The one JSON form of a raw value that a trigger recorded or a row statement selected."""
    if raw is None or (type(raw) in (int, str) and field.kind in _AS_PARSED):
        return raw
    if field.kind == "json":
        # SQLite keeps JSON as text; PostgreSQL's trigger has made it part of the event's own.
        return parsed(raw) if dialect == "sqlite" and isinstance(raw, str) else _shallow(raw)
    read = _READERS.get(field.kind)
    try:
        if field.kind == "bytes":
            return _bytes(dialect, str(raw))
        return _shallow(raw) if read is None else read(raw, field)
    except (ValueError, TypeError, ArithmeticError, InvalidOperation, RecursionError):
        return _shallow(raw)  # the database holds something else than the model says: show it as it is


def parsed(text: str) -> Any:
    """JSON text as a value; text that is none, or is nested deeper than anyone reads, stays text."""
    try:
        return _shallow(load(text))
    except (ValueError, RecursionError):
        return text


def parsed_object(text: str) -> dict[str, Any]:
    """The object of a JSON text, numbers as `load` has them; empty where it is nested too deep for Python."""
    try:
        return dict(load(text))
    except RecursionError:
        return {}


def _shallow(raw: Any) -> Any:
    try:
        return _plain(raw)
    except _TooDeepError:
        return json.dumps(raw, ensure_ascii=False, sort_keys=True)


class _TooDeepError(ValueError):
    """JSON is nested deeper than `_DEEPEST`."""


def _plain(raw: Any, depth: int = _DEEPEST) -> Any:
    if isinstance(raw, _Number):
        return _float(raw)
    if not isinstance(raw, list | dict):
        return raw
    if depth == 0:
        raise _TooDeepError
    if isinstance(raw, list):
        return [_plain(item, depth - 1) for item in raw]
    return {key: _plain(item, depth - 1) for key, item in raw.items()}


_EXACT = Context(prec=150_000)
"""As many digits as PostgreSQL's numeric has; Python would round to 28 by itself."""


def _decimal(raw: Any, field: Field) -> str:
    number = Decimal(str(raw))
    if not number.is_finite():
        return str(number)
    # In plain digits: SQLite writes large numbers with an exponent.
    step = Decimal((0, (1,), number.as_tuple().exponent if field.scale is None else -field.scale))  # type: ignore[arg-type]
    return format(number.quantize(min(step, Decimal(1)) if field.scale is None else step, context=_EXACT), "f")


def _float(raw: Any, field: Field | None = None) -> float | str:
    number = float(raw)
    return number if isfinite(number) else str(raw)  # JSON has neither NaN nor Infinity


def _datetime(raw: Any, field: Field) -> str:
    text = str(raw).replace(" ", "T", 1)
    if re.search(r"(Z|[+-]\d\d(:?\d\d)?)$", text):
        moment = datetime.fromisoformat(text).astimezone(UTC)
        return _short(moment.replace(tzinfo=None).isoformat()) + "Z"
    return _short(text)


def _short(text: str) -> str:
    """Without the zeros at the end of its fraction, which one database writes and the other does not."""
    return re.sub(r"(\.\d*?)0+(?!\d)", lambda found: found[1].rstrip("."), text)


def _bytes(dialect: DialectName, text: str) -> str:
    if dialect == "sqlite":
        data = bytes.fromhex(text)
    elif text.startswith("\\x"):
        data = bytes.fromhex(text[2:])
    else:  # PostgreSQL's older form, of a writer that has set bytea_output = escape
        plain = re.sub(r"\\(\\|[0-3][0-7]{2})", lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 8)), text)
        data = plain.encode("latin-1")
    return base64.b64encode(data).decode()


_READERS: dict[Kind, Any] = {
    "decimal": _decimal,
    "datetime": _datetime,
    "time": lambda raw, field: _short(str(raw)),
    "uuid": lambda raw, field: str(UUID(str(raw))),
    "boolean": lambda raw, field: bool(int(raw)) if not isinstance(raw, bool) else raw,
    "float": _float,
}


def canonical_row(field: Field, raw: Any, dialect: DialectName, width: int) -> Any:
    """Like `canonical`, for a value that a row statement selected with at most `width` characters."""
    if field.kind == "bytes":
        return None if raw is None else f"({raw} bytes)"
    value = parsed(raw) if field.kind == "json" and isinstance(raw, str) else canonical(dialect, field, raw)
    if isinstance(value, str) and len(value) > width:
        return value[:width] + "…"
    return value


def reference(tracked: TrackedTable) -> str:
    """The table's quoted name as its columns are written in a statement."""
    schema = tracked.table.schema
    return (quote(schema) + "." if schema else "") + quote(tracked.table.name)


def key_sql(dialect: DialectName, tracked: TrackedTable, field: Field, expression: str) -> str:
    """One key column as the text that stands in `entity_id`: what the triggers write, whatever the session's settings."""
    if dialect == "postgresql":
        if field.kind in ("text", "integer", "uuid"):
            return f"{expression}::text"
        if field.kind == "bytes":
            return f"('\\x' || encode({expression}, 'hex'))"
        column = next(c for c in tracked.table.columns if c.name == field.name)
        if field.kind == "datetime" and getattr(column.type, "timezone", False):
            expression = f"({expression} at time zone 'UTC')"
        return f"(to_jsonb({expression}) #>> '{{}}')"
    text = f"iif(typeof({expression})='blob',hex({expression}),cast({expression} as text))"
    if field.kind == "uuid":
        parts = "||'-'||".join(f"substr(t,{start},{length})" for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)))
        return f"(select iif(length(t)=32,lower({parts}),t) from (select {text} as t))"
    if field.kind in ("float", "decimal"):
        # SQLite writes 15 digits of a real; two keys may differ in the 17th.
        inexact = f"typeof({expression})='real' and cast(cast({expression} as text) as real)<>{expression}"
        return f"iif({inexact},printf('%!.17g',{expression}),{text})"
    return text


def entity_id_sql(dialect: DialectName, tracked: TrackedTable, source: str | None = None) -> str:
    """The entity id of a row of `source` (default: the table itself), the same text that the triggers write."""
    source = source or reference(tracked)
    texts = [key_sql(dialect, tracked, f, f"{source}.{quote(f.name)}") for f in tracked.key]
    if len(texts) == 1:
        return f"coalesce({texts[0]}, '')" if dialect == "sqlite" else texts[0]  # SQLite lets a primary key be NULL
    if dialect == "sqlite":
        return f"(json_array({', '.join(texts)}) || '')"  # text, not JSON: it must not become an array inside another
    return "('[' || " + " || ',' || ".join(f"to_json({text})::text" for text in texts) + " || ']')"


def row_sql(dialect: DialectName, tracked: TrackedTable, entity_id: str) -> str:
    """A JSON array: the entity id, unless a value is it, then every field that is not redacted; text is cut to `:width`
    + 1. A row of many columns is an array of such arrays."""
    source = reference(tracked)
    key = _key_among_values(dialect, tracked)
    parts = [entity_id] if key is None else []
    for position, f in enumerate(shown(tracked)):
        column = f"{source}.{quote(f.name)}"
        if dialect == "sqlite":
            cut = f"iif(length({column}) > :width, substr({column}, 1, :width + 1), {column})" if f.kind == "text" else column
            parts.append(f"length({column})" if f.kind == "bytes" else _sqlite_safe(column, cut))
        elif f.kind == "bytes":
            parts.append(f"octet_length({column})")
        elif f.kind == "text":
            # Bytes are known without looking at the text, characters must be counted: nearly all texts are short.
            cut = f"case when octet_length({column}::text) > :width then left({column}::text, :width + 1) else {column}::text end"
            parts.append(f"{column}::text" if position == key else cut)
        elif f.kind == "json":
            parts.append(f"to_json({column})::text")  # text: one value that cannot be parsed must not spoil the batch
        else:
            parts.append(column)
    function = "json_build_array" if dialect == "postgresql" else "json_array"
    chunks = [f"{function}({', '.join(parts[i : i + _CHUNK])})" for i in range(0, len(parts), _CHUNK)]
    return chunks[0] if len(chunks) == 1 else f"{function}({', '.join(chunks)})"


def _key_among_values(dialect: DialectName, tracked: TrackedTable) -> int | None:
    """The position of the value that is the entity id by itself, so that it need not be read twice. SQLite's values have
    types of their own, so there the text of the id is always asked for."""
    if dialect == "sqlite" or len(tracked.key) > 1 or tracked.key[0].kind not in ("text", "integer", "uuid"):
        return None
    return shown(tracked).index(tracked.key[0])


def _sqlite_safe(column: str, expression: str) -> str:
    # SQLite types belong to values, not columns: a blob in a text column must not break the JSON of a whole batch.
    # A real is written with 15 digits unless asked for more, and JSON has no infinity.
    named = f"when {column} = 9e999 then 'Infinity' when {column} = -9e999 then '-Infinity'"
    inexact = f"when cast(cast({column} as text) as real) <> {column} then json(printf('%!.17g', {column}))"
    real = f"case {named} {inexact} else {column} end"
    return f"iif(typeof({column}) in ('blob', 'real'), iif(typeof({column}) = 'blob', hex({column}), {real}), {expression})"


def shown(tracked: TrackedTable) -> tuple[Field, ...]:
    """The fields whose values may be read at all."""
    return tuple(f for f in tracked.fields if not f.redacted)


def rows_values(
    tracked: TrackedTable, rows: Iterable[Sequence[Any]], dialect: DialectName, width: int
) -> tuple[Iterable[str], Iterable[dict[str, Any]]]:
    """Entity ids, and JSON values by name, of the rows that `row_sql` selected."""
    fields, key = shown(tracked), _key_among_values(dialect, tracked)
    names, first = [f.name for f in fields], 1 if key is None else 0
    chunked = first + len(fields) > _CHUNK
    columns = list(zip(*((chain.from_iterable(raw) for raw in rows) if chunked else rows), strict=True))
    if not columns:
        return (), ()
    read = [_column(f, values, dialect, width) for f, values in zip(fields, columns[first:], strict=True)]
    ids = columns[0] if key is None else map(str, columns[key])
    return ids, map(dict, map(zip, repeat(names), zip(*read, strict=True)))


class RowReader:
    """`rows_values` of one row at a time, for whoever reads rows of one table again and again."""

    def __init__(self, tracked: TrackedTable, dialect: DialectName, width: int) -> None:
        fields, self._key = shown(tracked), _key_among_values(dialect, tracked)
        self._names: list[str | None] = [*([None] if self._key is None else []), *(f.name for f in fields)]
        self._chunked = len(self._names) > _CHUNK
        self._as_parsed = frozenset(f.name for f in fields if f.kind in _AS_PARSED)
        self._fields, self._dialect, self._width = {f.name: f for f in fields}, dialect, width

    def read(self, raw: Sequence[Any]) -> tuple[str, dict[str, Any]]:
        """The entity id, and JSON values by name."""
        flat = list(chain.from_iterable(raw)) if self._chunked else raw
        values: dict[Any, Any] = dict(zip(self._names, flat, strict=True))
        entity_id = values.pop(None) if self._key is None else str(flat[self._key])
        for name, value in values.items():
            plain = name in self._as_parsed and (type(value) is int or (type(value) is str and len(value) <= self._width))
            if not plain and value is not None:
                values[name] = canonical_row(self._fields[name], value, self._dialect, self._width)
        return entity_id, values


def _column(field: Field, values: Sequence[Any], dialect: DialectName, width: int) -> Sequence[Any]:
    """`canonical_row` of all values of one field. A batch reads thousands, and nearly all are what they should be: a call
    for each would cost more than the statement that fetched them."""
    if field.kind in _AS_PARSED:
        types = set(map(type, values))
        texts = [value for value in values if type(value) is str] if str in types else ()
        if types <= {int, str, NoneType} and max(map(len, texts), default=0) <= width:
            return values
    return [canonical_row(field, value, dialect, width) for value in values]


def workspace_condition(dialect: DialectName, tracked: TrackedTable) -> str:
    """The condition that a row belongs to workspace `:workspace`, written so that an index on the column serves it."""
    source = reference(tracked)
    if tracked.workspace_constant is not None:
        return f":workspace = {literal(tracked.workspace_constant)}"
    if tracked.workspace_column is not None:
        return _is_workspace(dialect, tracked, f"{source}.{quote(tracked.workspace_column)}")
    assert tracked.hop is not None
    return _path_condition(dialect, tracked, source, 0)


def _path_condition(dialect: DialectName, tracked: TrackedTable, source: str, depth: int) -> str:
    if tracked.workspace_constant is not None:
        return f":workspace = {literal(tracked.workspace_constant)}"
    if tracked.workspace_column is not None:
        return _is_workspace(dialect, tracked, f"{source}.{quote(tracked.workspace_column)}")
    hop = tracked.hop
    assert hop is not None
    alias = f"abreast_parent_{depth}"
    own_columns = ", ".join(f"{source}.{quote(name)}" for name in hop.columns)
    parent_columns = ", ".join(f"{alias}.{quote(field.name)}" for field in hop.parent.key)
    inner = _path_condition(dialect, hop.parent, alias, depth + 1)
    return f"({own_columns}) in (select {parent_columns} from {reference(hop.parent)} as {alias} where {inner})"


def home_condition(tracked: TrackedTable, source: str | None = None, depth: int = 0) -> str:
    """The condition that a row belongs to some workspace."""
    source = source or reference(tracked)
    if tracked.workspace_column is not None:
        return f"{source}.{quote(tracked.workspace_column)} is not null"
    if tracked.hop is None:
        return "1 = 1"
    alias, parent = f"abreast_home_{depth}", tracked.hop.parent
    pairs = zip(parent.key, tracked.hop.columns, strict=True)
    joined = " and ".join(f"{alias}.{quote(key.name)} = {source}.{quote(column)}" for key, column in pairs)
    above = home_condition(parent, alias, depth + 1)
    return f"exists (select 1 from {reference(parent)} as {alias} where {joined} and {above})"


def _is_workspace(dialect: DialectName, tracked: TrackedTable, column: str) -> str:
    field = tracked.field(str(tracked.workspace_column))
    if field.kind == "integer":
        return f"{column} = cast(:workspace as {'bigint' if dialect == 'postgresql' else 'integer'})"
    if field.kind == "uuid":
        return f"{column} = " + ("cast(:workspace as uuid)" if dialect == "postgresql" else "replace(:workspace, '-', '')")
    if dialect == "sqlite":
        return f"{column} = :workspace"
    declared: Any = next(c.type for c in tracked.table.columns if c.name == field.name)
    while isinstance(declared, sa.types.TypeDecorator):
        declared = declared.impl_instance
    # Enumerations, dates and the like have no equality with a text of their own.
    as_text = not isinstance(declared, sa.String) or isinstance(declared, sa.Enum)
    return f"{key_sql(dialect, tracked, field, column) if as_text else column} = cast(:workspace as text)"


def _home(tracked: TrackedTable) -> TrackedTable:
    """The table at the end of the path: the one that says itself which workspace its rows belong to."""
    while tracked.hop is not None:
        tracked = tracked.hop.parent
    return tracked


def _home_kind(tracked: TrackedTable) -> Kind | None:
    """The family of the column that holds the workspace; None where it is a constant."""
    home = _home(tracked)
    return None if home.workspace_column is None else home.field(home.workspace_column).kind


def can_hold(tracked: TrackedTable, workspace: str) -> bool:
    """Whether rows of the table could belong to this workspace: an integer column has no workspace `abc`."""
    constant = _home(tracked).workspace_constant
    if constant is not None:
        return workspace == constant
    form = _FORMS.get(_home_kind(tracked))
    try:
        return form is None or form(workspace) == workspace
    except ValueError:
        return False


def canonical_workspace(tables: Sequence[TrackedTable], workspace: Any) -> str:
    """A workspace's id in the one form that the log has: `UUID(...)` and `42`, and other spellings of them, as their
    column's text. What no table could hold comes back as it is."""
    text = str(workspace)
    if any(can_hold(tracked, text) for tracked in tables):
        return text
    kinds = {_home_kind(tracked) for tracked in tables}
    for kind, form in _FORMS.items():
        if kind in kinds:
            with contextlib.suppress(ValueError):
                return form(text)
    return text


def _integer_form(text: str) -> str:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return str(number)


_FORMS: dict[Kind | None, Callable[[str], str]] = {"integer": _integer_form, "uuid": lambda text: str(UUID(text))}


def check_workspace(tables: Sequence[TrackedTable], workspace: str) -> bool:
    """Whether any of these tables could have rows of this workspace."""
    return not tables or any(can_hold(tracked, workspace) for tracked in tables)


def key_condition(tracked: TrackedTable, entity_ids: Sequence[str], entity_id: str) -> sa.ColumnElement[bool]:
    """The condition that a row is one of these entities; by typed key where an index can serve it."""
    columns = list(tracked.table.primary_key.columns)
    if not has_typed_key(tracked):
        return sa.literal_column(entity_id, sa.Text).in_(list(entity_ids))
    wanted = [typed for one in entity_ids if (typed := typed_key(tracked, one)) is not None]
    if len(columns) == 1:
        return columns[0].in_([one[0] for one in wanted])
    return sa.or_(sa.false(), *(sa.and_(*(c == v for c, v in zip(columns, one, strict=True))) for one in wanted))


_TYPED: dict[Kind, Any] = {"text": str, "integer": int, "uuid": UUID, "date": date.fromisoformat}


def has_typed_key(tracked: TrackedTable) -> bool:
    """Whether ids of the table can be read as values of its key."""
    columns = tracked.table.primary_key.columns
    plain = all(not isinstance(column.type, sa.types.TypeDecorator | sa.Enum) for column in columns)
    return plain and all(f.kind in _TYPED for f in tracked.key)


def typed_key(tracked: TrackedTable, entity_id: str) -> tuple[Any, ...] | None:
    """The key's Python values, as the columns' types want them; None where no row can have such an id."""
    if not has_typed_key(tracked):
        return None
    try:
        parts = key_parts(tracked, entity_id)
        values = tuple(_TYPED[f.kind](part) for f, part in zip(tracked.key, parts, strict=True))
    except (ValueError, InputError):
        return None
    if any(isinstance(v, int) and not -(2**63) <= v < 2**63 for v in values) or any("\0" in part for part in parts):
        return None
    columns = list(tracked.table.primary_key.columns)
    return tuple(
        str(v) if isinstance(v, UUID) and not getattr(c.type, "as_uuid", True) else v
        for c, v in zip(columns, values, strict=True)
    )


def comparable(tracked: TrackedTable, name: str, value: Any) -> Any:
    """A JSON value as the Python value that this field's column is compared with. Raises InputError where it is none."""
    field = tracked.field(name)
    read = _TYPED.get(field.kind) or _MATCHED.get(field.kind)
    if read is None:
        raise InputError(f"Rows of {tracked.entity_type} cannot be matched by {name}.")
    try:
        found = read(str(value))
    except (ValueError, TypeError, ArithmeticError, KeyError):
        raise InputError(f"{value!r} is not a value of {tracked.entity_type}.{name}, which holds {field.kind} values.") from None
    declared = next(column.type for column in tracked.table.columns if column.name == name)
    if isinstance(declared, sa.Enum) and declared.enums and str(value) not in declared.enums:
        raise InputError(f"{value!r} is not a value of {tracked.entity_type}.{name}. Its values: {', '.join(declared.enums)}.")
    bits = 15 if isinstance(declared, sa.SmallInteger) else 63 if isinstance(declared, sa.BigInteger) else 31
    if isinstance(found, Decimal | float) and not math.isfinite(found):
        raise InputError(f"{value!r} is not a value of {tracked.entity_type}.{name}.")
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise InputError(f"A value of {name} holds half a surrogate pair; no database stores one.") from None
    if (isinstance(found, str) and "\0" in found) or (isinstance(found, int) and not -(2**bits) <= found < 2**bits):
        raise InputError(f"No row of {tracked.entity_type} can have this value of {name}.")
    return found


_MATCHED: dict[Kind, Any] = {
    "boolean": lambda value: {"true": True, "1": True, "false": False, "0": False}[str(value).lower()],
    "decimal": Decimal,
    "float": float,
    "datetime": datetime.fromisoformat,
    "time": time.fromisoformat,
}


def key_parts(tracked: TrackedTable, entity_id: str) -> list[str]:
    """The key texts that an entity id is made of. Raises InputError where it is not one of this table."""
    if len(tracked.key) == 1:
        return [entity_id]
    try:
        parts = json.loads(entity_id)
    except ValueError:
        parts = None
    if not isinstance(parts, list) or len(parts) != len(tracked.key) or not all(isinstance(part, str) for part in parts):
        example = json.dumps([f.name for f in tracked.key], ensure_ascii=False, separators=(",", ":"))
        raise InputError(f"The id of a {tracked.entity_type} is a JSON list of its key: {example}.")
    return parts
