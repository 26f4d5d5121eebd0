"""What an answer rests on, and whether that has changed since: the marks on messages that a person reads later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from abreast.core.read import Reader
from abreast.errors import InputError, NotTrackedError
from abreast.records import Basis, Message
from abreast.store import log
from abreast.store.statement import Flow
from abreast.store.tracked import Readable
from abreast.types import ChangeEvent

SHOWN = 20
"""Changes that one message names at most."""

ROWS = 50
"""Rows that one answer rests on at most; one with more rests on the whole workspace."""


def basis_of(revisions: Mapping[str, int], entities: Sequence[tuple[str, str]]) -> Basis:
    """What an answer rests on: what its tools read and wrote, and what its question touched; if that is nothing, all."""
    found = tuple(dict.fromkeys(entities))
    return Basis(dict(revisions), found if 0 < len(found) <= ROWS else None)


@dataclass(frozen=True)
class Marking:
    """Marks the messages of one page, as one person may read what changed."""

    reader: Reader
    context: Any
    rules: Mapping[str, Readable]

    def marked(self, messages: Sequence[Message]) -> Flow[tuple[Message, ...]]:
        """The messages, each answer whose basis has changed since with the changes, newest first."""
        made = []
        last: dict[tuple[str, str, str], int] = {}
        for workspace, kind, ids in _wanted(messages):
            try:
                self.reader.tracked(kind)
            except NotTrackedError:
                continue
            statement = log.versions_statement(
                self.reader.sync.dialect, self.reader.sync.schema, workspace=workspace, entity_type=kind, entity_ids=ids
            )
            last |= {(workspace, kind, wanted): version or 0 for wanted, version in (yield statement)}
        for message in messages:
            changes: list[ChangeEvent] = []
            for workspace, revision in (message.basis.revisions if message.basis else {}).items():
                changes += yield from self._since(workspace, revision, message, last)
            shown = tuple(said(change) for change in sorted(changes, key=lambda c: -c.revision)[:SHOWN])
            made.append(replace(message, outdated=bool(shown), changes=shown))
        return tuple(made)

    def _since(
        self, workspace: str, revision: int, message: Message, last: Mapping[tuple[str, str, str], int]
    ) -> Flow[list[ChangeEvent]]:
        basis = message.basis
        assert basis is not None
        narrowed: list[dict[str, Any]] = (
            [{}]
            if basis.entities is None
            else [
                {"entity_type": kind, "entity_id": wanted}
                for kind, wanted in basis.entities
                if last.get((workspace, kind, wanted), 0) > revision
            ]
        )
        found: list[ChangeEvent] = []
        for narrow in narrowed:
            try:
                events = yield from self.reader.history(
                    self.rules, workspace=workspace, context=self.context, limit=SHOWN, **narrow
                )
            except (InputError, NotTrackedError):
                continue  # a workspace or a kind of row that is not here any more
            found += [event for event in events if event.revision > revision and not _made_by(message, event)]
        return found


def _made_by(message: Message, event: ChangeEvent) -> bool:
    """Whether the turn of this answer made the change itself, behind the last call of its model: the answer tells of it. What
    its conversation wrote since the model was asked and before the answer was stored, no other turn can have written."""
    return event.thread == message.thread and moment_of(event.at) <= moment_of(message.created_at)


def moment_of(text: str) -> datetime:
    """A time of the log or of the service's tables."""
    found = datetime.fromisoformat(text)
    known = found if found.tzinfo else found.replace(tzinfo=UTC)
    return known.replace(microsecond=known.microsecond // 1000 * 1000)  # messages say no more


def _wanted(messages: Sequence[Message]) -> list[tuple[str, str, list[str]]]:
    """The rows of all bases: by workspace and type the ids."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for basis in (message.basis for message in messages if message.basis):
        for workspace in basis.revisions:
            for kind, wanted in basis.entities or ():
                found.setdefault((workspace, kind), {})[wanted] = None
    return [(workspace, kind, list(ids)) for (workspace, kind), ids in found.items()]


def said(change: ChangeEvent) -> Mapping[str, Any]:
    """A change as JSON, for people and screens: values where they may be recorded."""
    return {
        "workspace": change.workspace,
        "revision": change.revision,
        "op": change.op,
        "entity_type": change.entity_type,
        "entity_id": change.entity_id,
        "fields": list(change.fields),
        "values": {name: list(pair) for name, pair in change.values.items()},
        "actor": {"type": change.actor.type, "id": change.actor.id},
        "thread": change.thread,
        "at": change.at,
    }
