"""The block: CHANGES, CURRENT and facts as text for one model call. Pure: the same batches and question give the same
text. How values stand in it: `core.text`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from abreast.core.current import current
from abreast.core.facts import Facts, facts
from abreast.core.fold import FieldChange, Line, fold
from abreast.core.text import HISTORY, Wording, cost, count_bytes, cut, quoted, shortened, word
from abreast.types import Actor, Asked, Batch, Block, Budget, CountTokens, MassChange, Phrasing, Position, Told

CHANGES = "CHANGES SINCE YOUR LAST ANSWER (they outdate what was said before)"
UNKNOWN_STATE = (
    "CURRENT\nunknown: the data could not be read just now. Say that you cannot see the current state; "
    "do not answer from earlier messages."
)


def render(
    batches: Sequence[Batch],
    *,
    run: str,
    thread: str,
    budget: Budget,
    wording: Wording | None = None,
    count: CountTokens = count_bytes,
    asked: Asked | None = None,
    phrasing: Phrasing = "sentences",
) -> Block:
    """The block for one model call, and to where it tells each workspace.

    Where CHANGES would exceed its budget, a batch ends at the last revision that fits; the first line of a part
    always fits, shortened. Where CURRENT has no room for all rows, those that the question touches and those that
    changed come first. With phrasing `lines` no facts are said.
    """
    say = wording or Wording()
    several = len(batches) > 1
    said = facts(batches, asked, say, budget, count) if asked is not None else Facts()
    sentences = said.text if phrasing == "sentences" else ""
    changes, told = _changes(batches, thread, budget, say, count, several)
    parts = []
    if changes:
        parts.append("\n".join([CHANGES, *changes]))
    now, shown = current(batches, budget, say, count, said.touched)
    parts.append(now)
    text = "\n\n".join(parts)
    digest = hashlib.sha256("\n\n".join((text, sentences)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    marks = {
        batch.workspace: Told(
            run, batch.start.revision, to.revision, batch.start.check, to.check, outdated=batch.outdated_history, gap=batch.gap
        )
        for batch, to in zip(batches, told, strict=True)
    }
    return Block(text, marks, count(text) + (count(sentences) if sentences else 0), digest, shown, sentences, said.touched)


# -- CHANGES -----------------------------------------------------------------------------------------------------------


def _changes(
    batches: Sequence[Batch], thread: str, budget: Budget, say: Wording, count: CountTokens, several: bool
) -> tuple[list[str], list[Position]]:
    lines: list[str] = []
    told: list[Position] = []
    left = budget.changes - count(CHANGES)
    for index, batch in enumerate(batches):
        share = left // (len(batches) - index)
        heading = [f"In workspace {word(batch.workspace)}:"] if several else []
        fixed = heading + _notices(batch)
        room = share - cost(fixed, count)
        body, to = _fitting(batch, thread, room, budget, say, count)
        if body or _notices(batch):
            lines += fixed + body
            left -= cost(fixed + body, count)
        told.append(to)
    return lines, told


def _notices(batch: Batch) -> list[str]:
    notices = []
    if batch.outdated_history:
        notices.append(
            "This conversation began before its changes were followed: earlier answers may be out of date. Go by CURRENT."
        )
    if batch.gap:
        notices.append("Older changes are no longer listed, so earlier answers may be out of date in any point. Go by CURRENT.")
    return notices


def _fitting(
    batch: Batch, thread: str, room: int, budget: Budget, say: Wording, count: CountTokens
) -> tuple[list[str], Position]:
    """The lines of the longest run of events, from the start on, that fits; and the position it ends at."""
    rows = {(row.entity_type, row.entity_id): row for row in batch.rows} | dict(batch.now)

    def lines_of(number: int) -> list[str]:
        waiting = batch.head.revision - (batch.to.revision if number == len(batch.events) else batch.events[number - 1].revision)
        if batch.withholds:  # then not every revision behind that is one that is told
            waiting = batch.remaining + sum(one.count if isinstance(one, MassChange) else 1 for one in batch.events[number:])
        lines = [_line(line, say, budget.value) for line in fold(batch.events[:number], rows, thread)]
        outside = batch.outside if number == len(batch.events) else batch.outside_by[number - 1] if batch.outside_by else 0
        if outside:
            lines.append(_outside(outside, say))
        if waiting:
            lines.append(_waiting(waiting, say, exact=not (batch.withholds and batch.remaining)))
        return lines

    everything = lines_of(len(batch.events)) if batch.events or batch.remaining or batch.outside else []
    if not batch.events or cost(everything, count) <= room:
        return everything, batch.to
    low, high = 1, len(batch.events)  # one event always fits; all of them do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(lines_of(middle), count) <= room else (low, middle)
    lines = lines_of(low)
    if low == 1 and cost(lines, count) > room:
        lines = [cut(lines[0], room - cost(lines[1:], count) - 1, count), *lines[1:]]
    return lines, _position(batch, low)


def _position(batch: Batch, number: int) -> Position:
    if number == len(batch.events):
        return batch.to
    return Position(batch.events[number - 1].revision, batch.checks[number - 1] if batch.checks else 0)


def _outside(number: int, say: Wording) -> str:
    tool = f" Look them up with {say.tools[HISTORY]}." if HISTORY in say.tools else ""
    what = "change in this workspace concerns" if number == 1 else "changes in this workspace concern"
    return f"{number} more {what} other things.{tool}"


def _waiting(number: int, say: Wording, *, exact: bool) -> str:
    """What follows later. Where some of that may never be told, its number would count what this person may not know of."""
    tool = f" Look them up with {say.tools[HISTORY]}." if HISTORY in say.tools else ""
    if not exact:
        return f"Later changes are not listed here; CURRENT holds what they led to.{tool}"
    return f"{number} more {'change is' if number == 1 else 'changes are'} not listed here; CURRENT holds what they led to.{tool}"


def _line(line: Line, say: Wording, limit: int) -> str:
    who = "you" if line.own else _actor(line.actor)
    if line.first:
        return _mass(line, who, say)
    what = f"r{line.revision}, {who}, {word(line.entity_type)} {word(line.entity_id)}"
    if line.happened != "changed":
        later = " (it is gone by now)" if line.gone else ""
        return f"{what} was {line.happened}{later}"
    if line.gone:
        names = ", ".join(_name(change.name, line.entity_type, say) for change in line.changes)
        return f"{what}: {names} changed; it is gone by now"
    return f"{what}: " + "; ".join(_field(change, line.entity_type, say, limit) for change in line.changes)


def _mass(line: Line, who: str, say: Wording) -> str:
    rows = f"{word(line.entity_type)} rows were {line.happened}"
    what = f"{rows} {line.count} times" if line.happened == "changed" else f"{line.count} {rows}"
    tool = say.tools.get(HISTORY if line.happened == "deleted" else line.entity_type, say.tools.get(HISTORY))
    return f"r{line.first} to r{line.revision}, {who}, {what}." + (f" Look them up with {tool}." if tool else "")


def _field(change: FieldChange, entity_type: str, say: Wording, limit: int) -> str:
    name = _name(change.name, entity_type, say)
    if change.name in say.redacted.get(entity_type, ()):
        return f"{name} was changed (not shown)"
    if not change.known_now:
        return f"{name} was changed"
    now = quoted(shortened(change.now, limit))
    if not change.known_before:
        return f"{name} is now {now}"
    if change.before == change.now:
        return f"{name} is again {now}"
    return f"{name} is now {now} (was {quoted(shortened(change.before, limit))})"


def _actor(actor: Actor) -> str:
    return f"{actor.type} {word(actor.id)}" if actor.id else actor.type


def _name(name: str, entity_type: str, say: Wording) -> str:
    label = say.labels.get(entity_type, {}).get(name)
    return f"{word(label)} ({word(name)})" if label else word(name)
