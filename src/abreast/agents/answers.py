"""Errors as answers: what a model is told where a tool could not do what it was asked, and what must not become an answer.

A tool that raises ends the run, cancels its siblings and leaves a call without an answer. An answer lets the model
decide again. What it says is ours: the text of an exception may hold a password or somebody else's data.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from langchain_core.tools import ToolException
from langgraph.errors import GraphBubbleUp, is_invalid_resume

from abreast.access import Operation, snapshot
from abreast.core.changing import refusal
from abreast.core.read import Reader
from abreast.core.text import quoted
from abreast.errors import (
    InputError,
    LeaseError,
    MutationReusedError,
    RefusedError,
    UnavailableError,
    UnknownEntityError,
    VersionConflictError,
)
from abreast.store.statement import Flow
from abreast.telemetry import log
from abreast.types import Row

ATTEMPTS = 3
"""How often a tool of the hub's is tried, in all, where an error may pass."""

_WAIT = 0.05
"""Seconds before the second attempt, on average; each further one waits twice as long."""

_PASSING_STATES = ("40001", "40P01")
_PASSING_CLASSES = ("08", "53", "57P")
"""SQLSTATEs of serialization failures and deadlocks; classes of lost connections, lack of resources and shutdowns."""

_jitter = random.SystemRandom()


def answer_of(error: BaseException) -> str | None:
    """What the model is told of an error, as JSON with `error` in it; None where the error must go on: it pauses, cancels
    or ends the run.

    An error that nobody expected is logged with its traceback under the reference that the answer holds.
    """
    if must_pass(error):
        return None
    return quoted(_told(error))


def must_pass(error: BaseException) -> bool:
    """Whether an error is the run's own, not the tool's: an interrupt, a cancellation, a lost lease."""
    return own_of(error) is not None


def own_of(error: BaseException) -> BaseException | None:
    """The run's own error: this one, or one in a group, which LangGraph does not look into."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := own_of(one)) is not None), None)
    if isinstance(error, asyncio.CancelledError | GraphBubbleUp | LeaseError) or not isinstance(error, Exception):
        return error
    return error if is_invalid_resume(error) else None


def _told(error: BaseException) -> dict[str, Any]:
    if isinstance(error, VersionConflictError):
        row = error.row
        current: dict[str, Any] = {"id": error.entity_id, "version": error.version}
        return {
            "error": f"{error.entity_type} {error.entity_id} has changed since it was read. Nothing was written.",
            "current": {**current, **row.values} if row is not None else current,
            "do": f"Decide again on these values. If the change is still right, call again with version {error.version}.",
        }
    if isinstance(error, UnknownEntityError):
        return {"error": error.message, "do": "Nothing was written. Take the id from CURRENT or from a list tool."}
    if isinstance(error, RefusedError):
        return {"error": error.message, **({"details": error.fields} if error.fields else {})}
    if isinstance(error, MutationReusedError):
        return {"error": "This call stands for another write already. Nothing was written.", "do": "Make a new call."}
    if isinstance(error, InputError):
        return {"error": error.message}
    if isinstance(error, UnavailableError):
        if error.fields.get("retry") is False:
            return unknown("The database stopped answering. It is not known whether this was done.", "Look before you repeat it.")
        return unknown(
            "The database does not answer just now.", "Make the same call once more: it is done once at most. Or say so."
        )
    if isinstance(error, ToolException):  # its text was written for the model
        return {"error": str(error)}
    if isinstance(error, sa.exc.DBAPIError) and (refused := refusal(error)) is not None:
        return {"error": refused.message}
    reference = noted(error)
    if passing(error):
        return unknown(f"What this tool needs did not answer (reference {reference}).", "Look before you repeat it, or say so.")
    return {"error": f"This tool failed (reference {reference}).", "do": "Go on without it, or say so."}


def as_read(reader: Reader, workspace: str, context: Any, error: VersionConflictError) -> Operation[Exception]:
    """The conflict with the row as this person may read it now; the error itself shows the whole row (G16).

    An UnknownEntityError where he may not read it.
    """

    def flow() -> Flow[Row]:
        rule = reader.sync.rules(context)[error.entity_type]
        tracked = reader.tracked(error.entity_type)
        return (yield from reader.row(tracked, rule, workspace=workspace, entity_id=error.entity_id))

    fields = dict(error.fields)
    try:
        row = yield from snapshot(flow)
        fields.update(row=row, version=row.version)
    except UnknownEntityError as unreadable:
        return unreadable
    except Exception as failed:
        noted(failed)
        fields["row"] = None
    return VersionConflictError(error.message, **fields)


def noted(error: BaseException) -> str:
    """Logs an error with its traceback, and returns the reference under which it stands there."""
    reference = secrets.token_hex(4)
    log.error("a tool failed (reference %s)", reference, exc_info=error)
    return reference


def unknown(error: str, do: str, **more: Any) -> dict[str, Any]:
    """An answer that says that nobody knows whether the tool did it. The same call again then means the same write."""
    return {"error": error, "outcome": "unknown", **more, "do": do}


def is_unknown(content: Any) -> bool:
    """Whether an answer says so."""
    return _unknown(content) is not None


def unknown_mutation(content: Any) -> str | None:
    """The mutation of the effect whose outcome an answer says is unknown, if it names one."""
    mutation = (_unknown(content) or {}).get("mutation")
    return mutation if isinstance(mutation, str) and mutation.startswith("call:") else None


def _unknown(content: Any) -> Mapping[str, Any] | None:
    if not isinstance(content, str) or '"outcome"' not in content:
        return None
    try:
        told = json.loads(content)
    except ValueError:
        return None
    return told if isinstance(told, Mapping) and told.get("outcome") == "unknown" else None


def passing(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later: a connection that broke, a deadlock, a service that was away."""
    if isinstance(error, UnavailableError):
        return error.fields.get("retry", True) is not False
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"TransportError", "ConnectTimeout", "ConnectError"} or _is_requests(error, names):
        return True
    original = getattr(error, "orig", None)  # SQLAlchemy's, around the driver's
    if original is not None:
        return bool(getattr(error, "connection_invalidated", False)) or _of_driver(original)
    return _of_driver(error)


def _of_driver(error: BaseException) -> bool:
    state = getattr(error, "sqlstate", None)
    if state:
        return state in _PASSING_STATES or str(state).startswith(_PASSING_CLASSES)
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__}
    if ("sqlite3", "OperationalError") in kinds:
        return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
    return ("psycopg", "OperationalError") in kinds


def _is_requests(error: BaseException, names: set[str]) -> bool:
    """The same of the library `requests`, whose errors have common names."""
    module = type(error).__module__.partition(".")[0]
    return module == "requests" and bool(names & {"ConnectionError", "Timeout"})


def pause(attempt: int) -> float:
    """Seconds to wait after this attempt (1 is the first), so that several do not come back at once."""
    return float(_WAIT * 2 ** (attempt - 1) * _jitter.uniform(0.5, 1.5))
