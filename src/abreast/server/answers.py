"""The service's records as the JSON that clients read: see `models` for what each field means.

Written by hand and not through the models: what a model or a tool has said may hold half characters, which JSON can
carry and Pydantic refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abreast import records
from abreast.server import paging
from abreast.types import ChangeEvent

Json = dict[str, Any]


def thread(one: records.Thread) -> Json:
    return {
        "id": one.id,
        "user": one.user,
        "workspace": one.workspace,
        "agent": one.agent,
        "title": one.title,
        "status": one.status,
        "run": one.run,
        "leaf": one.leaf,
        "memory": one.memory,
        "created_at": one.created_at,
        "last_message_at": one.last_message_at,
        "last_event": one.last_event,
    }


def message(one: records.Message) -> Json:
    return {
        "id": one.id,
        "thread": one.thread,
        "role": one.role,
        "content": one.content,
        "parent": one.parent,
        "run": one.run,
        "status": one.status,
        "citations": list(one.citations),
        "tools": [tool(use) for use in one.tools],
        "basis": None if one.basis is None else basis(one.basis),
        "memory": one.memory,
        "siblings": list(one.siblings),
        "outdated": one.outdated,
        "changes": list(one.changes),
        "created_at": one.created_at,
    }


def tool(one: records.ToolUse) -> Json:
    return {
        "id": one.id,
        "name": one.name,
        "status": one.status,
        "arguments": one.arguments,
        "result": one.result,
        "edited": one.edited,
        "approval": one.approval,
    }


def basis(one: records.Basis) -> Json:
    return {"revisions": one.revisions, "entities": one.entities}


def run(one: records.Run) -> Json:
    return {
        "id": one.id,
        "thread": one.thread,
        "user": one.user,
        "status": one.status,
        "message": one.message,
        "answer": one.answer,
        "attempts": one.attempts,
        "error": one.error,
        "created_at": one.created_at,
        "started_at": one.started_at,
        "ended_at": one.ended_at,
    }


def approval(one: records.Approval) -> Json:
    return {
        "id": one.id,
        "thread": one.thread,
        "run": one.run,
        "user": one.user,
        "kind": one.kind,
        "tool": one.tool,
        "arguments": one.arguments,
        "schema": one.schema,
        "question": one.question,
        "status": one.status,
        "policy": one.policy,
        "revisions": one.revisions,
        "touches": one.touches,
        "changes": list(one.changes),
        "decision": None if one.decision is None else decision(one.decision),
        "created_at": one.created_at,
        "expires_at": one.expires_at,
    }


def decision(one: records.Decision) -> Json:
    return {
        "type": one.type,
        "arguments": one.arguments,
        "message": one.message,
        "confirmed": one.confirmed,
        "by": one.by,
        "at": one.at,
    }


def change(one: ChangeEvent) -> Json:
    """One change of a workspace; a recorded field's values are old and new."""
    return {
        "workspace": one.workspace,
        "revision": one.revision,
        "op": one.op,
        "entity_type": one.entity_type,
        "entity_id": one.entity_id,
        "fields": list(one.fields),
        "values": {name: list(pair) for name, pair in one.values.items()},
        "actor": {"type": one.actor.type, "id": one.actor.id},
        "thread": one.thread,
        "at": one.at,
    }


def page(listing: records.Listing, item: Callable[[Any], Json], kind: str) -> Json:
    """One page, and where the next one begins."""
    return {
        "items": [item(one) for one in listing.items],
        "next": None if listing.next is None else paging.cursor(kind, listing.next),
    }
