"""Ids of tool calls: an answer finds its call by id, so within one message each call needs one of its own. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

Key = tuple[str, str, int]
"""What a call or a block is known by before it has an id of its own: its id or "", its name, and which of these it is."""

_BLOCKS = {"tool_use": "id", "tool_call": "id", "invalid_tool_call": "id", "function_call": "call_id"}
"""The types of content blocks in which providers repeat the calls, and the key under which each keeps the call's id."""


def given_ids(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """A model's answer whose calls can be told apart: absent, empty and repeated ids are replaced by fresh ones.

    A structured answer brings its own ToolMessages; they go with their calls.
    """
    done: list[BaseMessage] = []
    names: Mapping[Key, str] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for message in messages:
        if isinstance(message, AIMessage):
            names, seen = new_names(message, lambda _: f"call_{uuid4().hex}"), Counter()
            message = renamed(message, names)
        elif isinstance(message, ToolMessage):
            name = names.get(_counted(seen, message.tool_call_id, message.name))
            message = message.model_copy(update={"tool_call_id": name}) if name is not None else message
        done.append(message)
    return done


def new_names(message: AIMessage, name: Callable[[int], str]) -> dict[Key, str]:
    """The new ids of those calls of a message that cannot be told from another, or not be named at all.

    `name` makes one from a call's position in the message. Empty for nearly every message.
    """
    named: dict[Key, str] = {}
    taken: set[str] = set()
    seen: Counter[tuple[str, str]] = Counter()
    for position, call in enumerate(calls_of(message)):
        key = _counted(seen, call.get("id"), call.get("name"))
        if key[0] and key[0] not in taken:
            taken.add(key[0])
        else:
            named[key] = name(position)
            taken.add(named[key])
    return named


def renamed(message: AIMessage, names: Mapping[Key, str]) -> AIMessage:
    """The message with these ids, also in the provider's own content blocks; the same object if there are none."""
    if not names:
        return message
    # One count over both lists: an id is unique in the message, not in each of them.
    seen: Counter[tuple[str, str]] = Counter()
    update: dict[str, Any] = {
        field: [
            {**call, "id": names.get(_counted(seen, call.get("id"), call.get("name")), call.get("id"))}
            for call in getattr(message, field)
        ]
        for field in ("tool_calls", "invalid_tool_calls")
    }
    if isinstance(message.content, list):
        update["content"] = list(_renamed_blocks(message.content, names))
    return message.model_copy(update=update)


def calls_of(message: AIMessage) -> list[Mapping[str, Any]]:
    """All calls of a message, those whose arguments could not be read last."""
    return [*message.tool_calls, *message.invalid_tool_calls]


def _renamed_blocks(content: Sequence[Any], names: Mapping[Key, str]) -> Iterator[Any]:
    seen: Counter[tuple[str, str]] = Counter()
    for block in content:
        place = _BLOCKS.get(str(block.get("type"))) if isinstance(block, dict) else None
        if place is None:
            yield block
            continue
        name = names.get(_counted(seen, block.get(place), block.get("name")))
        yield {**block, place: name} if name is not None else block


def _counted(seen: Counter[tuple[str, str]], given: Any, name: Any) -> Key:
    key = (given or "", name or "")
    seen[key] += 1
    return (*key, seen[key])
