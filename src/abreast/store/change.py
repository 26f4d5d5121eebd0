"""A change: one row that a governed write inserts, updates or deletes."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from abreast.errors import InputError
from abreast.types import Operation, Version

SHOWN = re.compile(r"r[0-9]{1,18}")
"""A version as CURRENT names it: the revision as of which a row stood there."""


@dataclass(frozen=True, slots=True)
class Change:
    """One row to write, made by `insert`, `update` or `delete`. Nothing happens until `hub.apply` gets it."""

    op: Operation
    model: Any
    entity_id: str | None
    values: Mapping[str, Any] = field(default_factory=dict)
    version: Version | None = None


def insert(model: Any, /, **values: Any) -> Change:
    """A new row, by field name. What is left out gets the column's default; a key that the database makes is left out."""
    return Change("insert", model, None, values)


def update(model: Any, id: Any, /, *, version: Version | None = None, **values: Any) -> Change:
    """New values for some fields of one row. `version` is the version that was read: if the row has moved since,
    nothing is written. Without it the write is not checked."""
    return Change("update", model, entity_id(id), values, _version(version))


def delete(model: Any, id: Any, /, *, version: Version | None = None) -> Change:
    """The end of one row; `version` as in `update`."""
    return Change("delete", model, entity_id(id), {}, _version(version))


def entity_id(key: Any) -> str:
    """The entity id of a key: an id as it is, or a primary key's value; of a composite key a tuple of its values."""
    if isinstance(key, tuple | list):
        return json.dumps([entity_id(part) for part in key], ensure_ascii=False, separators=(",", ":"))
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, UUID):
        return str(key)
    if isinstance(key, dt.date) and not isinstance(key, dt.datetime):
        return key.isoformat()
    raise InputError(f"An id is a text, a number, a UUID, a date or a tuple of these, not {type(key).__name__}.")


def _version(version: Any) -> Version | None:
    if isinstance(version, str) and SHOWN.fullmatch(version):
        return version
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise InputError(f"A version is a whole number, or in a run the text that CURRENT names (r41), not {version!r}.")
    return version
