"""Which write a tool call means. A repeat of the call after a crash, the same call again in one turn, and in any turn the
same call as one that got no answer or nobody knows the outcome of, mean the same write and get the same mutation id;
everything else gets one of its own.

Providers number calls as they like (`put:0` in every turn, twice in one message, not at all), so the id of a tool call
names nothing. What does: the conversation, the model's message, the call's place in it, and what it asks for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from pydantic_core import to_jsonable_python

from abreast.agents.answers import is_unknown, unknown_mutation
from abreast.agents.repair import CUT_OFF


@dataclass(frozen=True, slots=True)
class Intent:
    """What one tool call means.

    `asked` are the arguments that the model gave. `mutation` is None where the tool was called by hand, outside a graph.
    `message` names what made the call. `repeats`: an earlier call meant the same, in the same message if `beside`.
    `place` is the id that this call has by itself, whatever it repeats, and `made_by` that of the model's message.
    """

    asked: Mapping[str, Any]
    mutation: str | None = None
    message: str = ""
    repeats: bool = False
    beside: bool = False
    place: str | None = None
    made_by: str | None = None


EDITED = "changed_by_person"
"""The key under which an answer says that a person changed the arguments of its call."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One call in a history: the message that makes it, and its position there."""

    index: int
    message: AIMessage = field(compare=False)
    position: int

    @property
    def call(self) -> ToolCall:
        return self.message.tool_calls[self.position]


def intent_of(runtime: ToolRuntime[Any, Any], name: str, arguments: Mapping[str, Any], *, repeatable: bool = False) -> Intent:
    """What a tool call means.

    It means the same as an earlier one with the same name and arguments that was cut off or nobody knows the outcome of,
    in whatever turn. Unless `repeatable` it also means the same as an earlier one of its turn, or of its message, that did
    not fail; but not where the agent has written something else since: done, undone and done again are three writes.
    """
    history = messages_of(runtime.state)
    thread, nested, task = _thread(runtime), _nested(runtime), _namespace(runtime)
    place = _find(history, runtime.tool_call_id, name, arguments)
    asked = _asked(place, arguments)
    if place is None:
        # A node that calls the tool by itself: its task has a name that stays the same when it runs again after a crash.
        if not task:
            return Intent(asked)
        named_by_task = _hashed([thread, "task", task, runtime.tool_call_id, name, asked])
        return Intent(asked, named_by_task, task, place=named_by_task)

    def named(message: _Place) -> list[Any] | None:
        if message.message.id:
            return [thread, nested, message.message.id]
        if not thread and not task:
            return None
        # Without a thread the histories of two conversations can be alike to the last word.
        return [thread or task, nested, _digest(history[: message.index + 1])]

    by = named(place)
    meant = _meant(history, place, repeatable=repeatable, writers=_writers(runtime))
    first = named(meant.place)
    if by is None or first is None:
        return Intent(asked)
    mutation = meant.mutation or _hashed([*first, meant.place.position, name, asked])
    repeats = meant.place != place
    return Intent(
        asked,
        mutation,
        _hashed(by),
        repeats,
        repeats and meant.place.index == place.index,
        _hashed([*by, place.position, name, _plain(place.call["args"])]),
        place.message.id,
    )


def _asked(place: _Place | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the model gave, as JSON. A default that is made anew at each call (a time, a random key) says
    nothing about what is meant."""
    said = place.call["args"] if place is not None else arguments
    return _plain({key: arguments.get(key, value) for key, value in said.items()})  # type: ignore[no-any-return]


def beside(schema: Mapping[str, Any] | None, asked: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a call has though the model did not give them, where they are not the tool's own defaults: what a
    middleware has put in. A default that is made anew at each call cannot be told from that, and does not count."""
    properties: Mapping[str, Any] = (schema or {}).get("properties") or {}
    required: Collection[str] = (schema or {}).get("required") or ()
    found: dict[str, Any] = _plain({key: value for key, value in arguments.items() if key in properties and key not in asked})
    return {
        key: value
        for key, value in found.items()
        if key in required or ("default" in properties[key] and properties[key]["default"] != value)
    }


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


# -- what it repeats ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Meant:
    """The call that a call stands for, and the mutation that an answer to that one has named."""

    place: _Place
    mutation: str | None = None


def _writers(runtime: ToolRuntime[Any, Any]) -> frozenset[str]:
    """The names of the tools beside this one that write through the hub."""
    tools = [one for one in getattr(runtime, "tools", None) or () if (one.metadata or {}).get("abreast") in ("write", "function")]
    return frozenset(one.name for one in tools)


def _meant(history: Sequence[BaseMessage], place: _Place, *, repeatable: bool, writers: Collection[str]) -> _Meant:
    """The earlier call that this one stands for; the call itself where there is none.

    Each call of the history stands for the oldest that is still open then, which is closed by the answer to it. Of a
    `repeatable` tool two calls that were cut off are two writes, so each later one stands for another of them.
    """
    opened: list[_Meant] = []  # by earlier messages
    done: _Meant | None = None  # in this turn
    beside: list[tuple[_Place, _Meant]] = []  # the calls of one message, which run at the same time
    index = -1
    for one in _alike(history, place):
        if one.index != index:
            opened, done = _after(history, beside, opened, done, begin=_turn(history, one.index))
            if done is not None and _wrote_otherwise(history, range(index, one.index), place.call, writers):
                done = None
            beside, index = [], one.index
        taken = {meant.place for _, meant in beside}
        free = [meant for meant in opened if not (repeatable and meant.place in taken)]
        stands = free[0] if free else None if repeatable else beside[0][1] if beside else done
        beside.append((one, stands or _Meant(one)))
    return beside[-1][1]


def _after(
    history: Sequence[BaseMessage],
    beside: Sequence[tuple[_Place, _Meant]],
    opened: Sequence[_Meant],
    done: _Meant | None,
    *,
    begin: int,
) -> tuple[list[_Meant], _Meant | None]:
    """What is open, and what was done in the turn that begins at `begin`, once the calls of one message were answered."""
    still = {meant.place: meant for meant in opened}
    if beside and beside[0][0].index < begin:
        done = None
    answered = [(meant, _answer(history, one)) for one, meant in beside]
    # Of calls of one message that mean the same, one that succeeded says what came of it, and one that failed says least.
    for meant, answer in sorted(answered, key=lambda pair: _said(pair[1])):
        said = _said(answer)
        if said != _OPEN:
            still.pop(meant.place, None)
        else:
            named = unknown_mutation(answer.content) if answer is not None else None
            still[meant.place] = _Meant(meant.place, named or meant.mutation)
        if beside[0][0].index >= begin:
            done = None if said in (_FAILED, _CHANGED) else done or meant
    return list(still.values()), done


def _wrote_otherwise(history: Sequence[BaseMessage], places: range, call: ToolCall, writers: Collection[str]) -> bool:
    """Whether a tool that writes was called with something else in these messages, and did not fail."""
    wanted = _plain(call["args"])
    for index in places:
        message = history[index]
        for position, other in enumerate(message.tool_calls if isinstance(message, AIMessage) else ()):
            if other["name"] in writers and (other["name"] != call["name"] or _plain(other["args"]) != wanted):
                assert isinstance(message, AIMessage)
                if _said(_answer(history, _Place(index, message, position))) != _FAILED:
                    return True
    return False


_FAILED, _OPEN, _SUCCEEDED, _CHANGED = range(4)
"""`_CHANGED`: it was made with other arguments, which a person put there. Nothing was done with those that the model gave, so
the same call after it is not a repeat."""


def _said(answer: ToolMessage | None) -> int:
    """What an answer says of its call; that it is open, too, where there is none or nobody knows."""
    if answer is None or answer.content == CUT_OFF:
        return _OPEN
    if answer.status != "error":
        return _CHANGED if _is_changed(answer.content) else _SUCCEEDED
    return _OPEN if is_unknown(answer.content) else _FAILED


def _is_changed(content: Any) -> bool:
    if not isinstance(content, str) or EDITED not in content:
        return False
    try:
        told = json.loads(content)
    except ValueError:
        return False
    return isinstance(told, Mapping) and EDITED in told


def _alike(history: Sequence[BaseMessage], place: _Place) -> Iterator[_Place]:
    """The calls with the name and the arguments of this one, in order, up to it."""
    name, wanted = place.call["name"], _plain(place.call["args"])
    for index in range(place.index + 1):
        message = history[index]
        if isinstance(message, AIMessage):
            end = place.position + 1 if index == place.index else len(message.tool_calls)
            for position in range(end):
                call = message.tool_calls[position]
                if call["name"] == name and _plain(call["args"]) == wanted:
                    yield _Place(index, message, position)


def _turn(history: Sequence[BaseMessage], index: int) -> int:
    """Where the turn of a message begins: behind what was last said to the agent."""
    while index > 0 and isinstance(history[index - 1], AIMessage | ToolMessage):
        index -= 1
    return index


def _answer(history: Sequence[BaseMessage], place: _Place) -> ToolMessage | None:
    """The answer to a call, also where it came late: of several calls with one id in a message, the answers come in the
    same order."""
    wanted = place.call["id"] or ""
    nth = [n for n, call in enumerate(place.message.tool_calls) if (call["id"] or "") == wanted].index(place.position)
    answers: list[ToolMessage] = []
    for message in history[place.index + 1 :]:
        if isinstance(message, AIMessage) and any((call["id"] or "") == wanted for call in message.tool_calls):
            break  # what comes now answers that one
        if isinstance(message, ToolMessage) and message.tool_call_id == wanted:
            answers.append(message)
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
