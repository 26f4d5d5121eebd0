"""Messages: what a history shows. Pure on message lists."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


def split(messages: Sequence[BaseMessage], input_ids: Collection[str] | None) -> int:
    """The number of messages that were there before this run's input.

    `input_ids` are the ids of the input, empty for a resume; None where nobody said: then the input is the last
    message that was said to the agent, and those directly before it that it did not answer.
    """
    if input_ids is not None:
        found = [index for index, message in enumerate(messages) if message.id in input_ids]
        if found or not input_ids:
            return found[0] if found else len(messages)
    last = next((i for i in range(len(messages) - 1, -1, -1) if _is_input(messages[i])), None)
    if last is None:
        return len(messages)
    while last > 0 and _is_input(messages[last - 1]):
        last -= 1
    return last


def turn_key(messages: Sequence[BaseMessage]) -> str:
    """A name for a run that nobody named: its last input message. It stays the same when the run is resumed."""
    return next((f"turn:{m.id}" for m in reversed(messages) if _is_input(m) and m.id), "turn:")


def _is_input(message: BaseMessage) -> bool:
    """Whether somebody said this to the agent: a person, or a job that speaks through a system message."""
    return not isinstance(message, AIMessage | ToolMessage)


def without_unanswered(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The messages up to the last one that an agent or a tool wrote: what a failed run left unanswered says nothing of
    the run before it. Empty where no such message is left, because the history was summarised or trimmed."""
    last = next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], AIMessage | ToolMessage)), -1)
    return messages[: last + 1]


def ends_answered(messages: Sequence[BaseMessage]) -> bool:
    """Whether these messages end in an answer of the model."""
    return bool(messages) and isinstance(messages[-1], AIMessage) and is_answer(messages[-1])


def answered_call(messages: Sequence[BaseMessage]) -> str | None:
    """The id of the tool call whose result ends these messages, if it did not fail and is not empty: a tool that returns
    directly, or the schema of a structured answer. Whether it is the answer, only who asked for it knows."""
    last = messages[-1] if messages else None
    good = isinstance(last, ToolMessage) and last.status != "error" and has_content(last.content)
    return last.tool_call_id if good and isinstance(last, ToolMessage) else None


def is_answer(message: AIMessage) -> bool:
    """Whether the model said something to the person, and wants nothing more."""
    return not message.tool_calls and not message.invalid_tool_calls and has_content(message.content)


def why_unanswered(messages: Sequence[BaseMessage]) -> str:
    """In words, why these messages do not end in an answer of the model."""
    last = messages[-1] if messages else None
    if isinstance(last, AIMessage) and last.invalid_tool_calls:
        names = ", ".join(dict.fromkeys(call.get("name") or "a tool" for call in last.invalid_tool_calls))
        return f"the model called {names} with arguments that could not be read"
    return "the run ended with an empty answer"


def has_content(content: str | list[Any]) -> bool:
    """Whether a message's content is more than emptiness and thinking."""
    if isinstance(content, str):
        return bool(content.strip())
    for part in content:
        if isinstance(part, str) and part.strip():
            return True
        if isinstance(part, dict):
            kind = part.get("type")
            if kind in ("thinking", "reasoning", "redacted_thinking", "tool_use", "function_call"):
                continue
            if kind != "text" or str(part.get("text", "")).strip():
                return True
    return False
