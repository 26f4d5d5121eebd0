"""What the OpenAPI document says of errors and streams. FastAPI describes one media type an answer; ours have two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from abreast.records import EventType
from abreast.server.models import Problem
from abreast.server.problems import (
    ABSENT,
    BUSY,
    DECIDED,
    DECISION,
    INPUT,
    INTERNAL,
    MEDIA,
    MEDIA_TYPE,
    OUTDATED,
    REFUSED,
    REQUEST,
    REREAD,
    REUSED,
    RUNNING,
    TOO_LARGE,
    UNAUTHENTICATED,
    UNAVAILABLE,
    Kind,
)

Responses = dict[int | str, dict[str, Any]]

_MEMBERS: Mapping[str, Mapping[str, Any]] = {
    REQUEST.name: {"errors": [{"at": "body.text", "message": "Field required"}]},
    BUSY.name: {"run": "r_0190f3c1a2b47c3d8e4f5a6b7c8d9e11"},
    DECIDED.name: {"approval": "a_4fb1c8a0e2d34f6f9a7b5c3d1e0f2a4b", "decided": "rejected"},
    OUTDATED.name: {
        "approval": "a_4fb1c8a0e2d34f6f9a7b5c3d1e0f2a4b",
        "changes": [{"entity_type": "plan", "entity_id": "p1", "revision": 42}],
        "revisions": {"w1": 42},
    },
    TOO_LARGE.name: {"limit": 262144},
    INTERNAL.name: {"reference": "9f86d081884c7d65"},
}


def _schema() -> dict[str, Any]:
    # In place: a router that is included in another application cannot add to that one's components.
    return {key: value for key, value in Problem.model_json_schema().items() if key != "examples"}


def problems(*kinds: Kind) -> Responses:
    """The answers to requests that end with one of these problems."""
    found: Responses = {}
    for kind in sorted(kinds, key=lambda one: one.status):
        entry = found.setdefault(kind.status, {"description": "", "content": {MEDIA_TYPE: {"schema": _schema(), "examples": {}}}})
        entry["description"] = f"{entry['description']} {kind.title}".strip()
        example = {"type": kind.type, "title": kind.title, "status": kind.status, **_MEMBERS.get(kind.name, {})}
        entry["content"][MEDIA_TYPE]["examples"][kind.name] = {"summary": kind.title, "value": example}
    return found


ALL = (UNAUTHENTICATED, REFUSED, ABSENT, REQUEST, INPUT, INTERNAL, UNAVAILABLE)
"""What any request may end with."""

READ = problems(*ALL)
POSTED = problems(*ALL, RUNNING, REUSED, BUSY, REREAD, TOO_LARGE)
"""Of a request without a body that does something."""
WRITTEN = problems(*ALL, RUNNING, REUSED, BUSY, REREAD, TOO_LARGE, MEDIA)
PUT = problems(*ALL, BUSY, REREAD, TOO_LARGE, MEDIA)
DECIDING = problems(*ALL, RUNNING, REUSED, BUSY, REREAD, DECIDED, OUTDATED, DECISION, TOO_LARGE, MEDIA)


def stream(description: str, types: Sequence[str], example: str) -> Responses:
    """The answer of a stream of server-sent events. The schema is that of one event, as tools that know streams read it."""
    event = {
        "type": "object",
        "description": "One event. `data` is JSON.",
        "properties": {
            "id": {"type": "string", "description": "Send it as Last-Event-ID to go on behind this event."},
            "event": {"type": "string", "enum": list(types)},
            "data": {"type": "string", "contentMediaType": "application/json"},
            "retry": {"type": "integer"},
        },
    }
    content = {"text/event-stream": {"schema": event, "examples": {"events": {"summary": description, "value": example}}}}
    return {200: {"description": description, "content": content}, **READ}


THREAD_STREAM = stream(
    "Events until the client goes.",
    get_args(EventType),
    'retry: 2000\n\nid: 7\nevent: run.started\ndata: {"thread":"t_1","run":"r_1"}\n\n'
    'event: assistant.delta\ndata: {"thread":"t_1","run":"r_1","message":"m_2","delta":"You move in"}\n\n: heartbeat\n\n',
)
CHANGE_STREAM = stream(
    "Changes until the client goes.",
    ("change", "gap"),
    'retry: 2000\n\nid: 42\nevent: change\ndata: {"workspace":"w1","revision":42,"op":"update","entity_type":"plan",'
    '"entity_id":"p1","fields":["move_in_date"],"values":{"move_in_date":["2026-09-28","2026-09-30"]},'
    '"actor":{"type":"user","id":"u_1"},"thread":null,"at":"2026-09-20T08:30:00.000Z"}\n\n',
)
