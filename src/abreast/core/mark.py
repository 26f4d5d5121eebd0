"""The mark: what a conversation's own history says about what it was told (G9). Pure.

It is stored in the same checkpoint as the answer, so a rewound or forked history brings its own mark along. One entry
a workspace: `[run, from, to, check at from, check at to, flags]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from abreast.errors import MarkError
from abreast.types import Position, Told

Mark = Mapping[str, list[Any]]

# Flags of an entry: a runner decides about success; the two notices stood in the request; the result of a tool that this
# call asked for is the answer.
SETTLED, OUTDATED, GAP, BY_TOOL = 1, 2, 4, 8


@dataclass(frozen=True, slots=True)
class Turn:
    """What is known of a run when one of its model calls is made.

    `run` names it; `settled_by_runner` tells whether somebody decides about its success afterwards. `remembers`:
    its graph has a checkpointer. `earlier`: there are messages before this run's input. `finished`: those end in an
    answer of the model; `tool_result`: they end in what a tool returned, which may be the answer.
    `traces`: anything of an agent or a tool is left among them; a summary may have taken its place.
    """

    run: str
    settled_by_runner: bool
    remembers: bool
    earlier: bool
    finished: bool
    tool_result: bool = False
    traces: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """Where a batch starts: `at` a revision, at the `lower` of it and the stored cursor, at the `cursor`, or at `head`.

    `expected` is the revision with the check number that it had when it was told, `furthest` the last one that the
    history says was told. `confirm` is what the history proves to have been dealt with. `outdated`: the history may hold
    answers from before abreast; without a checkpointer (`remembers` is false) that is so only if no cursor is stored
    either. `gap`: an earlier call of this run, or one that led to no answer, was told that older changes are not listed.
    """

    mode: Literal["at", "lower", "cursor", "head"]
    expected: Position | None = None
    furthest: Position | None = None
    confirm: Position | None = None
    outdated: bool = False
    gap: bool = False
    remembers: bool = True


def entry(told: Told, *, settled_by_runner: bool, by_tool: bool = False) -> list[Any]:
    """One workspace's entry of a mark."""
    flags = SETTLED * settled_by_runner | OUTDATED * told.outdated | GAP * told.gap | BY_TOOL * by_tool
    return [told.run, told.from_revision, told.to_revision, told.from_check, told.to_check, flags]


def merge(old: Mark | None, new: Mark | None) -> dict[str, list[Any]]:
    """The mark after a step: newer entries replace older ones of the same workspace."""
    return {**(old or {}), **(new or {})}


def closed(mark: Mark | None, turn: Turn, now: Mark) -> dict[str, list[Any]]:
    """Entries of workspaces that this run does not follow, as they must stay: their run can be judged only now, while its
    own end is the end of the history. Later the answer of another run would be taken for its."""
    found = {}
    for workspace in (mark or {}).keys() - now.keys():
        told = _parsed((mark or {})[workspace], workspace)
        if told[0] == turn.run or told[1] == told[2]:
            continue
        place = start(mark, workspace, turn)
        if place.expected is not None:
            at = place.expected
            found[workspace] = [told[0], at.revision, at.revision, at.check, at.check, told[5]]
    return found


def start(mark: Mark | None, workspace: str, turn: Turn) -> Start:
    """Where the next batch of a conversation starts. The rules are those of G9 and G10.

    Raises MarkError where the mark's entry is not one that `entry` made.
    """
    if mark and workspace in mark:
        run, from_revision, to_revision, from_check, to_check, flags = _parsed(mark[workspace], workspace)
        began, ended = Position(from_revision, from_check), Position(to_revision, to_check)
        again = Start("at", began, furthest=ended, outdated=bool(flags & OUTDATED), gap=bool(flags & GAP))
        if run == turn.run:
            return again
        if turn.remembers:
            if turn.traces and not turn.finished and not (turn.tool_result and flags & BY_TOOL):
                return replace(again, mode="lower")
            # Without a runner nobody moved the cursor; the finished answer in the history is the proof that counts. Where
            # no trace of any answer is left (a summary took its place), going on is right: to begin at `from` again, at
            # every run, would tell the same changes for ever and never the next.
            return Start("lower", ended, ended) if flags & SETTLED else Start("at", ended, ended, confirm=ended)
    if not turn.remembers:
        return Start("cursor", outdated=turn.earlier, remembers=False)
    if mark:
        return Start("head")  # this conversation begins to follow the workspace now
    return Start("cursor", outdated=turn.earlier)


def _parsed(found: Any, workspace: str) -> tuple[str, int, int, int, int, int]:
    good = (
        isinstance(found, list | tuple)
        and len(found) == 6
        and isinstance(found[0], str)
        and all(isinstance(number, int) and number >= 0 for number in found[1:])
    )
    if not good:
        raise MarkError(
            f"The mark for workspace {workspace!r} is damaged: {found!r}. Remove the key abreast_told from the state."
        )
    return found[0], found[1], found[2], found[3], found[4], found[5]
