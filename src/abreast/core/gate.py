"""The gate: whether a run succeeded, and how far its conversation may move (G8). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from abreast.core.mark import Mark
from abreast.types import Told


@dataclass(frozen=True, slots=True)
class ReturnedCall:
    """A model call that returned: its answer's message ids, what its request told, and whether it ends a run.

    `finished`: an answer to the person (text or a structured one), not a call of tools; `tool_calls` are the ids of
    those whose result may be the answer. `nested`: made by a graph inside another graph's node.
    """

    message_ids: frozenset[str]
    told: Mapping[str, Told]
    finished: bool
    tool_calls: frozenset[str]
    nested: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """What a graph left when it returned: the ids of all its messages, its mark, and how its last message looks.

    `answered`: the last message is an answer with content, or a structured answer is there. `answered_call` is the id
    of the tool call that the last message answers, where a tool's result is the answer.
    """

    paused: bool
    answered: bool
    answered_call: str | None
    message_ids: Collection[str]
    mark: Mark | None


def moved(calls: Sequence[ReturnedCall], ending: Ending, run: str) -> tuple[Mapping[str, Told], str | None]:
    """What the run was told and may count as dealt with; empty, with the reason, where nothing may.

    A sub-agent's calls never count: their messages are not in the run's own state. A call whose answer was replaced by
    an outer middleware counts, because the mark that it left is there. An answer that no returned call ended in (from a
    cache, a limit, a swallowed error) counts for nothing.
    """
    if ending.paused:
        return {}, "the run is paused"
    own = [call for call in calls if _is_own(call, ending, run)]
    if not own:
        return {}, "the model was not asked through hub.middleware() or hub.prepare(), or its answer is not in the run's state"
    last = own[-1]
    direct = ending.answered_call is not None and ending.answered_call in last.tool_calls
    if not (last.finished and ending.answered) and not direct:
        return {}, "the run ended without an answer of the model"
    return last.told, None


def _is_own(call: ReturnedCall, ending: Ending, run: str) -> bool:
    if any(one in ending.message_ids for one in call.message_ids):
        return True
    marked = {w: entry for w, entry in (ending.mark or {}).items() if entry[0] == run}
    return (
        not call.nested
        and bool(call.told)
        and all(workspace in marked and marked[workspace][2] == told.to_revision for workspace, told in call.told.items())
    )
