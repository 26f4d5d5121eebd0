"""One turn, read from a graph's messages: the answer as people see it, its tools, what it cites and what it rests on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from abreast.agents import messages as reading
from abreast.records import ToolUse
from abreast.store.change import entity_id

LONGEST = 4_000
"""Characters of a tool's result that are kept with a message."""


@dataclass(frozen=True)
class TurnRead:
    """What a turn left: the text of its answer, empty if there is none; the tools it used, in order; what it cites; and the
    rows that the hub's own tools showed or wrote."""

    text: str = ""
    citations: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[ToolUse, ...] = ()
    entities: tuple[tuple[str, str], ...] = ()
    partial: str = field(default="", compare=False)


def turn_of(messages: Sequence[BaseMessage], question: str, kinds: Mapping[str, str], heard: Sequence[ToolUse] = ()) -> TurnRead:
    """The turn that answers the message with this id. `kinds` maps the hub's tools to the entity types they are about,
    `heard` is what was heard of the tools as they ran: which approval let them, and what a person put in its arguments' place.
    """
    at = next((index for index, message in enumerate(messages) if message.id == question), len(messages))
    mine = messages[at + 1 :]
    calls = list(_calls(mine))
    left = list(heard)
    tools = [_joined(_use(call, answer), left) for call, answer in calls]
    entities = dict.fromkeys(
        pair for tool, (_, answer) in zip(tools, calls, strict=True) for pair in _entities(tool, kinds, answer)
    )
    last = mine[-1] if mine else None
    if isinstance(last, ToolMessage) and reading.answered_call(mine) is not None:
        return TurnRead(last.text, (), tuple(tools), tuple(entities))
    spoken = last if isinstance(last, AIMessage) else None
    text = spoken.text if spoken is not None and not spoken.tool_calls else ""
    return TurnRead(text, tuple(_citations(spoken)) if text else (), tuple(tools), tuple(entities))


def _calls(messages: Sequence[BaseMessage]) -> Iterator[tuple[Any, ToolMessage | None]]:
    """The calls of these messages with their answers. An id may come again in a later message, and twice in one."""
    for at, message in enumerate(messages):
        if not isinstance(message, AIMessage):
            continue
        ids = {call["id"] or "" for call in message.tool_calls}
        behind = messages[at + 1 :]
        again = next(
            (n for n, m in enumerate(behind) if isinstance(m, AIMessage) and ids & {c["id"] or "" for c in m.tool_calls}), None
        )
        answers: dict[str, list[ToolMessage]] = {}
        for one in behind[:again]:
            if isinstance(one, ToolMessage):
                answers.setdefault(one.tool_call_id, []).append(one)
        for call in message.tool_calls:
            mine = answers.get(call["id"] or "", [])
            yield call, mine.pop(0) if mine else None


def _use(call: Mapping[str, Any], answer: ToolMessage | None) -> ToolUse:
    arguments = json.loads(json.dumps(call["args"], default=str))
    if answer is None:
        return ToolUse(call["id"] or "", call["name"], "stopped", arguments)
    return ToolUse(
        call["id"] or "",
        call["name"],
        "failed" if answer.status == "error" else "completed",
        arguments,
        result_of(answer.text),
    )


def _joined(use: ToolUse, heard: list[ToolUse]) -> ToolUse:
    """A tool call of the history with what was heard of it; each that was heard belongs to one call."""
    found = next((one for one in heard if (one.id, one.name) == (use.id, use.name)), None)
    if found is None:
        return use
    heard.remove(found)
    return replace(use, edited=found.edited, approval=found.approval)


def result_of(text: str) -> Any:
    """What a tool answered, as JSON where it is JSON, cut where it is long."""
    if len(text) > LONGEST:
        return text[:LONGEST] + "…"
    try:
        return json.loads(text)
    except ValueError:
        return text


def _entities(tool: ToolUse, kinds: Mapping[str, str], answer: ToolMessage | None) -> Iterator[tuple[str, str]]:
    kind = kinds.get(tool.name)
    if kind is None or answer is None:
        return
    for wanted in _ids(answer.text, tool.arguments):
        yield kind, wanted


def _ids(text: str, arguments: Mapping[str, Any]) -> Collection[str]:
    """The ids of the rows in an answer of the hub's own tools, and of the one that was asked for."""
    found: dict[str, None] = {}
    try:
        told = json.loads(text)
    except ValueError:
        told = {}
    rows = told.get("rows", ()) if isinstance(told, dict) else ()
    for row in (arguments, told, told.get("current") if isinstance(told, dict) else None, *rows):
        for name in ("id", "deleted"):
            value = row.get(name) if isinstance(row, Mapping) else None
            if isinstance(value, str | int) and not isinstance(value, bool):
                found[entity_id(value)] = None
    return found


def _citations(message: AIMessage | None) -> Iterator[Mapping[str, Any]]:
    """What the model says its text rests on, in LangChain's own form, whichever provider it came from."""
    for block in message.content_blocks if message is not None and isinstance(message.content, list) else ():
        notes: Any = block.get("annotations") if block["type"] == "text" else None
        for note in notes or ():
            if isinstance(note, Mapping) and note.get("type") == "citation":
                kept = {k: note[k] for k in ("url", "title", "cited_text", "start_index", "end_index") if note.get(k) is not None}
                yield json.loads(json.dumps({"type": "citation", **kept}, default=str))
