"""Events, rows and batches made by hand, for tests that need no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abreast import Actor, Batch, ChangeEvent, Row
from abreast.types import Position

SOMEBODY = Actor("user", "u_1")


def event(revision: int, op: Any = "update", entity: tuple[str, str] = ("plan", "p1"), **more: Any) -> ChangeEvent:
    """A change event. `values` maps recorded fields to (old, new); `fields` names them and those that are not recorded."""
    values: Mapping[str, tuple[Any, Any]] = more.pop("values", {})
    fields = tuple(more.pop("fields", values))
    given = {"workspace": "w1", "actor": SOMEBODY, "thread": None, "mutation": None, "at": "2026-09-01T00:00:00.000Z", **more}
    return ChangeEvent(
        revision=revision, op=op, entity_type=entity[0], entity_id=entity[1], fields=fields, values=values, **given
    )


def row(entity: tuple[str, str] = ("plan", "p1"), **values: Any) -> Row:
    """A row as the reader may see it."""
    return Row(entity[0], entity[1], values)


def rows_of(*rows: Row) -> dict[tuple[str, str], Row]:
    """Rows by entity."""
    return {(one.entity_type, one.entity_id): one for one in rows}


def batch(events: Sequence[ChangeEvent] = (), rows: Sequence[Row] = (), **more: Any) -> Batch:
    """A batch whose places follow from its events: everything up to HEAD is told."""
    first = events[0].revision - 1 if events else more.get("start", 0)
    last = events[-1].revision if events else first
    given = {
        "workspace": "w1",
        "head": Position(last + more.get("remaining", 0), 77),
        "start": Position(first, 11),
        "to": Position(last, 22),
        "checks": tuple(100 + one.revision for one in events),
        **more,
    }
    return Batch(events=tuple(events), rows=tuple(rows), **given)
