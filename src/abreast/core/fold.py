"""Folding: many events of one entity into the few lines that still explain an old answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from abreast.core.gather import is_own
from abreast.types import Actor, ChangeEvent, MassChange, Row

Happened = Literal[
    "added",
    "deleted",
    "deleted (it is there again)",
    "added and deleted again",
    "added and deleted again (it is there again)",
    "deleted and added again",
    "changed",
]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of an entity: what it is now, and what it was when the conversation last looked.

    `known_now` and `known_before` tell whether those values may be shown and are known.
    """

    name: str
    now: Any = None
    before: Any = None
    known_now: bool = False
    known_before: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """What one entity went through, as of its last event that still counts; or a mass of `count` changes from `first` on,
    which names no entity."""

    revision: int
    actor: Actor
    own: bool
    entity_type: str
    entity_id: str
    happened: Happened
    changes: tuple[FieldChange, ...] = ()
    gone: bool = False
    count: int = 1
    first: int = 0


def fold(events: Sequence[ChangeEvent | MassChange], rows: Mapping[tuple[str, str], Row], thread: str) -> list[Line]:
    """Lines in the order of their revisions. `rows` are the entities' rows in the batch's snapshot; `thread` is the
    conversation that is told: what its own agent did is `own`. Of several changes of one field the latest counts; what it
    was before is the value before the first of them. A mass is a line of its own."""
    by_entity: dict[tuple[str, str], list[ChangeEvent]] = {}
    lines: list[Line] = []
    for event in events:
        if isinstance(event, MassChange):
            lines.append(_mass(event, thread))
        else:
            by_entity.setdefault((event.entity_type, event.entity_id), []).append(event)
    for entity, history in by_entity.items():
        lines.extend(_entity(history, rows.get(entity), thread))
    return sorted(lines, key=lambda line: (line.revision, line.entity_type, line.entity_id))


def _entity(history: list[ChangeEvent], row: Row | None, thread: str) -> list[Line]:
    first, last = history[0], history[-1]
    born = any(event.op == "insert" for event in history)
    if last.op == "delete":
        if row is not None:
            # An import that is told as one line, or that this batch has no room for, has added it again.
            there: Happened = "added and deleted again (it is there again)"
            return [_line(last, thread, there if first.op == "insert" else "deleted (it is there again)", row=row)]
        return [_line(last, thread, "added and deleted again" if first.op == "insert" else "deleted")]
    if born:
        event = next(event for event in reversed(history) if event.op == "insert")
        return [_line(event, thread, "added" if first.op == "insert" else "deleted and added again", row=row)]
    latest: dict[str, ChangeEvent] = {}
    before: dict[str, Any] = {}
    for event in history:
        for name in event.fields:
            latest[name] = event
            if name in event.values:
                before.setdefault(name, event.values[name][0])
    lines = []
    for event in history:
        names = [name for name in event.fields if latest[name] is event]
        if names:
            lines.append(_line(event, thread, "changed", [_change(name, event, before, row) for name in names], row))
    return lines


def _change(name: str, event: ChangeEvent, before: Mapping[str, Any], row: Row | None) -> FieldChange:
    known_now = row is not None and name in row.values
    return FieldChange(
        name=name,
        now=row.values[name] if known_now and row is not None else None,
        before=before.get(name),
        known_now=known_now,
        known_before=name in before,
    )


def _line(
    event: ChangeEvent, thread: str, happened: Happened, changes: Sequence[FieldChange] = (), row: Row | None = None
) -> Line:
    own = is_own(event, thread)
    gone = row is None and happened in ("added", "deleted and added again", "changed")
    return Line(event.revision, event.actor, own, event.entity_type, event.entity_id, happened, tuple(changes), gone)


_HAPPENED: Mapping[str, Happened] = {"insert": "added", "delete": "deleted", "update": "changed"}


def _mass(mass: MassChange, thread: str) -> Line:
    happened = _HAPPENED[mass.op]
    own = is_own(mass, thread)
    return Line(mass.revision, mass.actor, own, mass.entity_type, "", happened, count=mass.count, first=mass.first)
