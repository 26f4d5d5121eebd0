"""Problem details (RFC 9457): every error of the HTTP face in one form, and what each error of abreast is there.

Two rules hold for all of them. What is not there and what is not this person's to see look alike, to the byte. What went
wrong inside is not told: it goes to the log, under a reference that the answer names.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from abreast.errors import (
    AbreastError,
    AbsentError,
    DecidedError,
    DecisionError,
    InputError,
    LeaseError,
    OutdatedError,
    RefusedError,
    RereadError,
    ThreadBusyError,
    UnavailableError,
    UnknownEntityError,
    UnknownWorkspaceError,
)
from abreast.server.encoding import encoded
from abreast.telemetry import log

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:abreast:problem:"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of every answer: what it says is one person's, and is what its media type says."""

RETRY_SECONDS = 1
"""What `Retry-After` says, in seconds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem: the end of its type, its status and its title."""

    name: str
    status: int
    title: str

    @property
    def type(self) -> str:
        return PREFIX + self.name


UNAUTHENTICATED = Kind("unauthenticated", 401, "Nobody is authenticated.")
REFUSED = Kind("refused", 403, "This is not allowed.")
ABSENT = Kind("absent", 404, "There is no such thing here.")
METHOD = Kind("method", 405, "This cannot be done here.")
BUSY = Kind("thread-busy", 409, "The conversation is busy.")
DECIDED = Kind("decided", 409, "Another decision was made before.")
OUTDATED = Kind("outdated", 409, "What the call touches has changed since it was proposed.")
REREAD = Kind("reread", 409, "What was read is out of date.")
RUNNING = Kind("request-running", 409, "The first request with this key has not ended.")
TOO_LARGE = Kind("body-too-large", 413, "The body is too large.")
MEDIA = Kind("media-type", 415, "The body is not JSON.")
REQUEST = Kind("invalid-request", 422, "The request is not valid.")
INPUT = Kind("refused-input", 422, "The request asks for something that cannot be.")
DECISION = Kind("decision", 422, "This is not a decision that can be made here.")
REUSED = Kind("key-reused", 422, "The key was used for another request.")
INTERNAL = Kind("internal", 500, "Something went wrong.")
UNAVAILABLE = Kind("unavailable", 503, "This does not work at the moment.")

KINDS = tuple(kind for kind in list(globals().values()) if isinstance(kind, Kind))

_BY_ERROR: tuple[tuple[type[AbreastError], Kind], ...] = (
    *((error, ABSENT) for error in (AbsentError, UnknownWorkspaceError, UnknownEntityError)),
    (DecisionError, DECISION),
    (InputError, INPUT),
    (DecidedError, DECIDED),
    (OutdatedError, OUTDATED),
    (RereadError, REREAD),
    (RefusedError, REFUSED),
    (LeaseError, BUSY),
    (UnavailableError, UNAVAILABLE),
)
"""The first that fits. Everything else went wrong inside."""

_SILENT = (ABSENT, UNAVAILABLE)
"""Kinds of which no more is told than their title."""

_BY_STATUS = {kind.status: kind for kind in (UNAUTHENTICATED, REFUSED, ABSENT, METHOD, TOO_LARGE, MEDIA, REQUEST, UNAVAILABLE)}


class ProblemError(Exception):
    """A problem that the HTTP face itself has found."""

    def __init__(self, kind: Kind, detail: str = "", *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        self.kind, self.detail, self.headers, self.members = kind, detail, dict(headers or {}), members
        super().__init__(detail or kind.title)


@dataclass(frozen=True, slots=True)
class _Told:
    """What is told of an error."""

    kind: Kind
    detail: str = ""
    members: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def answer(error: Exception) -> Response:
    """The answer to a request that ended with this error."""
    told = _told(error)
    kind = told.kind
    body = {"type": kind.type, "title": kind.title, "status": kind.status}
    if told.detail:
        body["detail"] = told.detail
    headers = {**HEADERS, **told.headers}
    if kind in (RUNNING, UNAVAILABLE):
        headers.setdefault("Retry-After", str(RETRY_SECONDS))
    return Response(encoded({**body, **told.members}), kind.status, headers, MEDIA_TYPE)


def _told(error: Exception) -> _Told:
    if isinstance(error, ProblemError):
        return _Told(error.kind, error.detail, error.members, error.headers)
    if isinstance(error, RequestValidationError):
        return _Told(REQUEST, "", {"errors": faults(error.errors())})
    if isinstance(error, HTTPException):
        return _http(error)
    if isinstance(error, AbreastError):
        for known, kind in _BY_ERROR:
            if isinstance(error, known):
                return _Told(kind, "" if kind in _SILENT else error.message, _members(error), _headers(error))
    return _unexpected(error)


def _http(error: HTTPException) -> _Told:
    """What the application raised in its own code around us, or the framework for a route that is not there."""
    if error.status_code >= 500 and error.status_code != UNAVAILABLE.status:
        return _unexpected(error)
    kind = _BY_STATUS.get(error.status_code) or Kind("refused-request", error.status_code, "The request was refused.")
    said = error.detail if isinstance(error.detail, str) and kind not in _SILENT and kind is not METHOD else ""
    return _Told(kind, said, {}, dict(error.headers or {}))


def _unexpected(error: Exception) -> _Told:
    reference = secrets.token_hex(8)
    log.error("A request failed. Its answer names the reference %s.", reference, exc_info=error)
    return _Told(INTERNAL, "The operator of this server finds more in its log.", {"reference": reference})


def _members(error: AbreastError) -> dict[str, Any]:
    if isinstance(error, DecidedError):
        return {"approval": error.fields.get("approval"), "decided": error.fields.get("status")}
    if isinstance(error, OutdatedError):
        return {name: error.fields.get(name) for name in ("approval", "changes", "revisions")}
    if isinstance(error, ThreadBusyError):
        return {"run": error.fields.get("run")}
    return {}


def _headers(error: AbreastError) -> dict[str, str]:
    if not isinstance(error, ThreadBusyError):
        return {}
    seconds = error.fields.get("seconds") or RETRY_SECONDS
    return {"Retry-After": str(max(math.ceil(seconds), RETRY_SECONDS))}


def faults(errors: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What is wrong with a request: where, and in words. What was sent is not repeated."""
    return [
        {"at": ".".join(str(part)[:80] for part in one.get("loc", ())), "message": str(one.get("msg", ""))[:300]}
        for one in errors[:20]
    ]
