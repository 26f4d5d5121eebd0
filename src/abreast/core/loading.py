"""Loaders: functions of the application whose JSON is CURRENT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast.core.plain import NotJsonError, as_json
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
        if isinstance(error, sa.exc.DBAPIError) and unanswered(error):
            raise  # the database is gone, not the loader wrong
        raise LoaderError(
            f"The loader {name!r} failed with {type(error).__name__}. Nothing was told and no cursor moved."
        ) from error
    try:
        return as_json(value, name)
    except NotJsonError as error:
        raise LoaderError(f"The loader returned {error}") from None


def unanswered(error: sa.exc.DBAPIError) -> bool:
    """Whether a statement of the application failed because the database does not answer, not because it is wrong.

    SQLite's driver has one class for both, and only the text tells them apart.
    """
    if error.connection_invalidated or isinstance(error, sa.exc.InterfaceError):
        return True
    wrong = ("no such", "syntax error", "ambiguous", "readonly database", "misuse of", "wrong number", "incomplete input")
    return isinstance(error, sa.exc.OperationalError) and not any(text in str(error.orig) for text in wrong)
