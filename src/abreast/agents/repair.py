"""Repair of histories for a request: every tool call has its one answer, directly behind its message. Pure.

Providers refuse a request whose calls are not answered, and then a conversation that was cut off once is stuck for
ever. The state keeps what happened; only the request is mended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from abreast.agents.call_ids import calls_of, new_names, renamed
from abreast.core.text import quoted

CUT_OFF = quoted(
    {
        "error": "This call was cut off before it was answered. Whether it took effect is not known here: CURRENT, where it "
        "is given, shows what is true now; otherwise read it before you call again."
    }
)
"""What the model reads instead of an answer that never came. Always the same text, which prompt caches need."""

UNREADABLE = quoted({"error": "The arguments of this call could not be read, so it did not run. Call again with valid JSON."})
"""The answer to a call whose arguments were malformed or cut short."""


@dataclass(slots=True)
class _Call:
    """One call of a message. `said` is its id in the history, `id` the one in the request."""

    said: str
    id: str
    name: str
    readable: bool

    def unanswered(self) -> ToolMessage:
        return ToolMessage(CUT_OFF if self.readable else UNREADABLE, tool_call_id=self.id, name=self.name or None, status="error")


@dataclass(slots=True)
class _Turn:
    """A message that is no answer of a tool, its calls, and the answers to them in the order in which they came."""

    message: BaseMessage
    calls: Sequence[_Call] = ()
    answers: dict[int, ToolMessage] = field(default_factory=dict)

    def open(self, answer: ToolMessage) -> int | None:
        """The position of the call that this answers and nobody has answered; of several, the one with its name."""
        found = [n for n, call in enumerate(self.calls) if call.said == answer.tool_call_id and n not in self.answers]
        return min(found, key=lambda n: self.calls[n].name != answer.name, default=None)

    def answered(self, answer: ToolMessage) -> int | None:
        """The position of the call that this answers once more."""
        return next((n for n in self.answers if self.calls[n].said == answer.tool_call_id), None)

    def shown(self) -> Iterator[BaseMessage]:
        yield self.message
        for n, answer in self.answers.items():
            call = self.calls[n]
            yield answer if answer.tool_call_id == call.id else answer.model_copy(update={"tool_call_id": call.id})
        yield from (call.unanswered() for n, call in enumerate(self.calls) if n not in self.answers)


def repaired(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """The messages as a request may have them; the very same object if nothing is wrong with them.

    A call without an answer gets one that says so. An answer that came late is moved behind its call: a real one is
    worth more than a made one. An answer whose call is gone, because the history was summarised, is left out; of two
    to one call the newer stays. Calls of one message that share an id, or have none, get ids that are always the same.
    """
    turns: list[_Turn] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            _put(turns, message)
        elif isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls):
            turns.append(_turn(message, len(turns)))
        else:
            turns.append(_Turn(message))
    shown = [message for turn in turns for message in turn.shown()]
    if len(shown) == len(messages) and all(a is b for a, b in zip(shown, messages, strict=True)):
        return messages
    return cast("list[AnyMessage]", shown)


def _turn(message: AIMessage, place: int) -> _Turn:
    by = message.id or str(place)
    names = new_names(message, lambda position: "call_" + hashlib.sha256(f"{by}\n{position}".encode()).hexdigest()[:32])
    mended = renamed(message, names)
    readable = len(message.tool_calls)
    pairs = zip(calls_of(message), calls_of(mended), strict=True)
    calls = [
        _Call(before.get("id") or "", after["id"], after.get("name") or "", n < readable)
        for n, (before, after) in enumerate(pairs)
    ]
    return _Turn(mended, calls)


def _put(turns: Sequence[_Turn], answer: ToolMessage) -> None:
    """Gives the answer to its call: of the message that it stands behind, or else of the last one that waits for it."""
    last = turns[-1] if turns else None
    if last is not None and last.open(answer) is None and (again := last.answered(answer)) is not None:
        last.answers[again] = answer
        return
    for turn in reversed(turns):
        if (waiting := turn.open(answer)) is not None:
            turn.answers[waiting] = answer
            return
