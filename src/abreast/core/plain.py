"""JSON of what the application's functions return: loaders and tools. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID


class NotJsonError(ValueError):
    """A value has no JSON form. The message says what it is, where it stands, and what to return."""


def as_json(value: Any, path: str) -> Any:
    """The JSON form of a value (see `store.values`); dataclasses and pydantic models are objects of their fields. Raises
    NotJsonError with the place that has none."""
    try:
        return _as_json(value, path)
    except RecursionError:
        raise NotJsonError(f"{type(value).__name__} at {path}, which holds itself or is too deep.") from None


def _as_json(value: Any, path: str) -> Any:
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NotJsonError(f"{value} at {path}; JSON has no such number.")
        return value
    if isinstance(value, Mapping):
        bad = next((key for key in value if not isinstance(key, str)), None)
        if bad is not None:
            raise NotJsonError(f"a mapping with the key {bad!r} at {path}; JSON has string keys only.")
        return {key: _as_json(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    fields = _fields(value)
    if fields is not None:
        return {name: _as_json(getattr(value, name), f"{path}.{name}") for name in fields}
    raise NotJsonError(f"{type(value).__name__} at {path}; return JSON (dict, list, str, numbers, bool, None).")


def _fields(value: Any) -> list[str] | None:
    """The fields of a dataclass or of a pydantic model; of a mapped row none, because it may hold what nobody may read."""
    if isinstance(value, type) or hasattr(value, "_sa_instance_state"):
        return None
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    known = getattr(type(value), "model_fields", None)  # without an import: loaders need no pydantic
    if not isinstance(known, Mapping):
        return None
    shown = [name for name, field in known.items() if not field.exclude]
    return [*shown, *getattr(type(value), "model_computed_fields", {})]
