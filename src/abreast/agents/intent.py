"""Which write a tool call means. A repeat of the call after a crash, and the same call again in one turn, mean the same
write and get the same mutation id; everything else gets one of its own.

Providers number calls as they like (`put:0` in every turn, twice in one message, not at all), so the id of a tool call
names nothing. What does: the conversation, the model's message, the call's place in it, and what it asks for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from pydantic_core import to_jsonable_python

from abreast.agents.answers import is_unknown


@dataclass(frozen=True, slots=True)
class _Place:
    """One call in a history: the message that makes it, and its position there."""

    index: int
    message: AIMessage
    position: int

    @property
    def call(self) -> ToolCall:
        return self.message.tool_calls[self.position]


def mutation_of(
    runtime: ToolRuntime[Any, Any], name: str, arguments: Mapping[str, Any], *, repeatable: bool = False
) -> str | None:
    """The mutation id of a tool call; None where the tool was called by hand, outside a graph.

    Unless `repeatable`, a call that an earlier message of the same turn made already, or the same message, gets the id of
    that one, so that it is answered from it: if it did not fail, or if nobody knows whether it did.
    """
    history = messages_of(runtime.state)
    asked = given_arguments(runtime, name, arguments)
    thread, nested, task = _thread(runtime), _nested(runtime), _namespace(runtime)
    place = _find(history, runtime.tool_call_id, name, arguments)
    if place is None:
        # A node that calls the tool by itself: its task has a name that stays the same when it runs again after a crash.
        return _hashed([thread, "task", task, runtime.tool_call_id, name, asked]) if task else None
    if not repeatable:
        place = _first(history, place)
    if place.message.id:
        return _hashed([thread, nested, place.message.id, place.position, name, asked])
    if not thread and not task:
        return None
    # Without a thread the histories of two conversations can be alike to the last word.
    return _hashed([thread or task, nested, _digest(history[: place.index + 1]), place.position, name, asked])


def given_arguments(runtime: ToolRuntime[Any, Any], name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the model gave, as JSON. A default that is made anew at each call (a time, a random key) says
    nothing about what is meant."""
    place = _find(messages_of(runtime.state), runtime.tool_call_id, name, arguments)
    said = place.call["args"] if place is not None else arguments
    return _plain({key: arguments.get(key, value) for key, value in said.items()})  # type: ignore[no-any-return]


def messages_of(state: Any) -> Sequence[BaseMessage]:
    """The messages of a graph's state, whatever it is made of; empty if it has none."""
    if isinstance(state, Mapping):
        candidates = [state.get("messages"), *state.values()]
    elif isinstance(state, list | tuple):
        candidates = [state]
    else:
        candidates = [getattr(state, "messages", None), *(vars(state).values() if hasattr(state, "__dict__") else ())]
    for found in candidates:
        if isinstance(found, list | tuple) and found and all(isinstance(one, BaseMessage) for one in found):
            return found
    return ()


def _thread(runtime: ToolRuntime[Any, Any]) -> str:
    return str(_configurable(runtime).get("thread_id") or "")


def _namespace(runtime: ToolRuntime[Any, Any]) -> str:
    return str(_configurable(runtime).get("checkpoint_ns") or "")


def _nested(runtime: ToolRuntime[Any, Any]) -> str:
    """The tasks around the graph that makes this call: a sub-agent that is called twice may get its messages from a cache."""
    return _namespace(runtime).rpartition("|")[0]


def _configurable(runtime: ToolRuntime[Any, Any]) -> Mapping[str, Any]:
    return (runtime.config or {}).get("configurable") or {}


# -- where the call stands -------------------------------------------------------------------------------------------


def _find(history: Sequence[BaseMessage], call_id: str | None, name: str, arguments: Mapping[str, Any]) -> _Place | None:
    """The newest place of this call. A message names it by id, name and arguments, or by as much of that as is there;
    arguments have been converted and completed since, so it is enough that they hold what was said."""
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if not isinstance(message, AIMessage):
            continue
        named = [n for n, call in enumerate(message.tool_calls) if call["name"] == name]
        same_id = [n for n in named if call_id and message.tool_calls[n]["id"] == call_id]
        for candidates in (same_id, named):
            for fits in (_equal, _holds):
                for n in candidates:
                    if fits(message.tool_calls[n]["args"], arguments):
                        return _Place(index, message, n)
        if same_id:
            return _Place(index, message, same_id[0])
    return None


def _equal(said: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    return bool(_plain(said) == _plain(arguments))


def _holds(said: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether these may be the said arguments after they were converted: what is told apart as text is another call."""
    known = _plain(arguments)
    return all(key not in known or _as_text(value) == _as_text(known[key]) for key, value in _plain(said).items())


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _first(history: Sequence[BaseMessage], place: _Place) -> _Place:
    """The first call of this turn that meant the same and did not fail since; the call itself where there is none."""
    first: _Place | None = None
    for earlier in _earlier(history, place):
        if earlier.call["name"] == place.call["name"] and _equal(earlier.call["args"], place.call["args"]):
            answer = _answer(history, earlier)
            failed = answer is not None and answer.status == "error" and not is_unknown(answer.content)
            first = None if failed else first or earlier
    return first or place


def _earlier(history: Sequence[BaseMessage], place: _Place) -> Iterator[_Place]:
    """The calls of this turn that stand before this one, in order. A turn begins with what was last said to the agent."""
    begin = place.index
    while begin > 0 and isinstance(history[begin - 1], AIMessage | ToolMessage):
        begin -= 1
    for index in range(begin, place.index + 1):
        message = history[index]
        if isinstance(message, AIMessage):
            end = place.position if index == place.index else len(message.tool_calls)
            yield from (_Place(index, message, position) for position in range(end))


def _answer(history: Sequence[BaseMessage], place: _Place) -> ToolMessage | None:
    """The answer to a call: of several calls with one id in a message, the answers come in the same order."""
    same = [n for n, call in enumerate(place.message.tool_calls) if call["id"] == place.call["id"]]
    answers: list[ToolMessage] = []
    for message in history[place.index + 1 :]:
        if not isinstance(message, ToolMessage):
            break
        if message.tool_call_id == (place.call["id"] or ""):
            answers.append(message)
    nth = same.index(place.position)
    return answers[nth] if nth < len(answers) else None


# -- what it is called -----------------------------------------------------------------------------------------------


def _hashed(parts: Sequence[Any]) -> str:
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return "call:" + hashlib.sha256(text.encode()).hexdigest()


def _digest(history: Sequence[BaseMessage]) -> str:
    """A name for a message that has none: its place in the history, and all that stands there up to it."""
    hashed = hashlib.sha256()
    for message in history:
        calls = [[c["name"], c["args"]] for c in message.tool_calls] if isinstance(message, AIMessage) else []
        parts = _plain([message.type, message.id, message.content, calls])
        hashed.update(json.dumps(parts, ensure_ascii=True, sort_keys=True).encode() + b"\n")
    return f"{len(history)}:{hashed.hexdigest()}"


def _plain(value: Any) -> Any:
    """JSON that says the same in every process: sets in order, and no addresses of objects."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return to_jsonable_python(value, fallback=lambda unknown: type(unknown).__qualname__, bytes_mode="base64")
