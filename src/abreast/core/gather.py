"""Gathering: the changes of one batch, counted towards its limit, with the imports among them as one each. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from abreast.types import Actor, ChangeEvent, MassChange

Kind = tuple[str, str, Actor, bool]
"""What the changes of one run have in common: entity type, operation, actor, and whether this conversation made them."""


def is_own(event: ChangeEvent | MassChange, thread: str) -> bool:
    """Whether the agent of this conversation made the change."""
    return event.actor.type == "agent" and event.thread is not None and event.thread == thread


def kind_of(event: ChangeEvent, thread: str) -> Kind:
    """The kind of run that this change belongs to."""
    return event.entity_type, event.op, event.actor, is_own(event, thread)


@dataclass(slots=True)
class _Unit:
    """One change or mass, the check number where it ends, and what was passed or stood outside up to there."""

    item: ChangeEvent | MassChange
    check: int
    passed: int
    outside: int


class Gathering:
    """Takes the changes of a log in their order, until it is full.

    More than `limit` changes of one kind that follow each other, each of another row, are a mass and count as one; more of
    the same kind behind them make it longer. Whether the last changes become a mass is seen only by what follows them, so
    somewhat more than `limit` may be held meanwhile; `finish` leaves out what is too many. What is passed or outside
    stands between them without breaking a run; a change of the conversation's own is told as such, and breaks it. Without
    a `thread` nobody is told, and nothing is a mass.
    """

    def __init__(self, limit: int, thread: str) -> None:
        self._limit, self._thread = limit, thread
        self._units: list[_Unit] = []
        self._kind: Kind | None = None
        self._first = 0  # where the rows begin that are all different
        self._places: dict[str, int] = {}
        self._passed = self._outside = 0

    @property
    def mass(self) -> Kind | None:
        """The kind of the mass that goes on with the next change of its kind; None where there is none."""
        return self._kind if self._units and isinstance(self._units[-1].item, MassChange) else None

    @property
    def named(self) -> set[tuple[str, str]]:
        """The entities of the changes that are told one by one."""
        return {(one.item.entity_type, one.item.entity_id) for one in self._units if isinstance(one.item, ChangeEvent)}

    def full(self, remaining: int) -> bool:
        """Whether nothing of the `remaining` revisions can change what this batch tells."""
        number = len(self._units)
        if number < self._limit or self.mass is not None:
            return False
        return not self._thread or self._first >= self._limit or number - self._first + remaining <= self._limit

    def skip(self, number: int = 1) -> None:
        """Changes that this person may not hear of."""
        self._passed += number

    def count(self, number: int = 1) -> None:
        """Changes that do not concern this conversation."""
        self._outside += number

    def lengthen(self, number: int, revision: int, check: int) -> None:
        """So many more changes of the mass, the last of them at this revision."""
        last = self._units[-1]
        assert isinstance(last.item, MassChange)
        mass = replace(last.item, revision=revision, count=last.item.count + number)
        self._units[-1] = _Unit(mass, check, self._passed, self._outside)

    def tell(self, event: ChangeEvent, check: int) -> bool:
        """Takes a change; False if it does not belong to this batch any more."""
        kind = kind_of(event, self._thread)
        if kind == self._kind:
            if self.mass is not None:
                self.lengthen(1, event.revision, check)
                return True
        elif len(self._units) >= self._limit:
            return False
        else:
            self._kind, self._first, self._places = kind, len(self._units), {}
        self._first = max(self._first, self._places.get(event.entity_id, -1) + 1)
        self._places[event.entity_id] = len(self._units)
        self._units.append(_Unit(event, check, self._passed, self._outside))
        count = len(self._units) - self._first
        if self._thread and count > self._limit:
            begun = self._units[self._first].item
            assert isinstance(begun, ChangeEvent)
            thread = self._thread if kind[3] else None
            mass = MassChange(
                event.workspace, begun.revision, event.revision, count, event.op, event.entity_type, event.actor, thread
            )
            self._units[self._first :] = [_Unit(mass, check, self._passed, self._outside)]
        return True

    def finish(self) -> Gathered:
        """What the batch tells."""
        units = self._units[: self._limit]
        cut = len(units) == self._limit
        last = units[-1] if cut else None
        return Gathered(
            events=tuple(one.item for one in units),
            checks=tuple(one.check for one in units),
            outside_by=tuple(one.outside for one in units) if self._outside else (),
            passed=last.passed if last else self._passed,
            outside=last.outside if last else self._outside,
            end=(last.item.revision, last.check) if last else None,
        )


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a batch tells. `end`: revision and check number where a full batch ends; None if it ends at HEAD."""

    events: tuple[ChangeEvent | MassChange, ...]
    checks: tuple[int, ...]
    outside_by: tuple[int, ...]
    passed: int
    outside: int
    end: tuple[int, int] | None
