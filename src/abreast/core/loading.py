"""Loaders: functions of the application whose JSON is CURRENT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast.errors import AbreastError, LoaderError

Loader = Callable[[Session, str, Any], Any]
"""Session of the batch's snapshot, workspace and run context in; JSON out."""


def load(name: str, loader: Loader, session: Session, workspace: str, context: Any) -> Any:
    """What a loader returned, as JSON. Raises LoaderError where it failed or returned something else."""
    try:
        value = loader(session, workspace, context)
    except AbreastError:
        raise
    except Exception as error:
        if isinstance(error, sa.exc.DBAPIError) and _unanswered(error):
            raise  # the database is gone, not the loader wrong
        raise LoaderError(
            f"The loader {name!r} failed with {type(error).__name__}. Nothing was told and no cursor moved."
        ) from error
    return as_json(value, name)


def _unanswered(error: sa.exc.DBAPIError) -> bool:
    """Whether a statement of the application failed because the database does not answer, not because it is wrong.

    SQLite's driver has one class for both, and only the text tells them apart.
    """
    if error.connection_invalidated or isinstance(error, sa.exc.InterfaceError):
        return True
    wrong = ("no such", "syntax error", "ambiguous", "readonly database", "misuse of", "wrong number", "incomplete input")
    return isinstance(error, sa.exc.OperationalError) and not any(text in str(error.orig) for text in wrong)


def as_json(value: Any, path: str) -> Any:
    """The JSON form of a loader's value (see `store.values`). Raises LoaderError with the place that has none."""
    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise LoaderError(f"The loader returned {value} at {path}; JSON has no such number.")
        return value
    if isinstance(value, Mapping):
        bad = next((key for key in value if not isinstance(key, str)), None)
        if bad is not None:
            raise LoaderError(f"The loader returned a mapping with the key {bad!r} at {path}; JSON has string keys only.")
        return {key: as_json(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise LoaderError(
        f"The loader returned {type(value).__name__} at {path}; return JSON (dict, list, str, numbers, bool, None)."
    )
