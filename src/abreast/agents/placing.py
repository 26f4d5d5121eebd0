"""Placing: where the block stands in a request. Pure on message lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from abreast.types import AfterTools, Asked, Block, Placement

MessageT = TypeVar("MessageT", bound=BaseMessage)

EARLIER = 12
"""Messages before the question in which the row that it speaks of is looked for."""
LONGEST = 2_000
"""Characters of a message that are looked at."""
AGAIN = 1_000
"""Characters of a question that is said again."""
FREE_ORDER = ("api.openai.com", "api.x.ai")
"""Where a user message may follow tool answers, as far as published: docs/guides/prompt-caches.md has the sources."""


def place(
    messages: Sequence[AnyMessage],
    system: SystemMessage | None,
    block: Block,
    placement: Placement,
    *,
    inside_answers: bool = True,
) -> tuple[list[AnyMessage], SystemMessage | None]:
    """The messages and the system message of a request, with the block in its place; the given ones stay untouched.

    In the last message if a person wrote it: around the question, before or after it. After tool answers it stands
    inside the last of them or, not `inside_answers`, in a message of its own; so it does behind everything else. Nothing
    before the last message changes, which is what prompt caches need, and text stays text: some providers refuse lists.
    `system`: at the end of the system message, also where that stands among the messages.
    """
    placed = list(messages)
    everything = _joined(block.text, block.facts)
    if not everything:
        return placed, system
    if placement == "system":
        if system is not None:
            return placed, _with(system, behind=everything)
        # A second system message would be refused by some, so one among the messages is used.
        there = next((i for i, message in enumerate(placed) if isinstance(message, SystemMessage)), None)
        if there is None:
            return placed, SystemMessage(content=everything)
        placed[there] = _with(placed[there], behind=everything)
        return placed, None
    at = len(placed) - 1
    while at >= 0 and _is_paused(placed[at]):
        at -= 1  # the provider goes on in that very message, which so must stay the last
    last = placed[at] if at >= 0 else None
    if isinstance(last, HumanMessage):
        if placement == "after":
            placed[at] = _with(last, behind=everything)
        elif placement == "before" or not block.facts:
            placed[at] = _with(last, before=everything)
        else:
            question = text_of(last).strip()
            again = question if len(question) <= AGAIN else ""
            placed[at] = _with(last, before=everything, behind=_joined(block.facts, again))
    elif isinstance(last, ToolMessage) and inside_answers:
        placed[at] = _with(last, behind=everything)
    else:
        placed.insert(at + 1, HumanMessage(content=everything))
    return placed, system


def inside_answers(model: Any, after_tools: AfterTools = "auto") -> bool:
    """Whether the block stands inside the last tool answer of a request to this model, or in a message behind it.

    Inside an answer is legal everywhere. A message leaves the answer as it was, and is used where the provider is known to
    take one. What a model is called says little, because many servers speak OpenAI's protocol: its address is asked.
    """
    if after_tools != "auto":
        return after_tools == "answer"
    return not all(_address(one) in FREE_ORDER for one in _models(model))


def _models(model: Any) -> list[Any]:
    """The chat models that a request may go to, wrappers taken off."""
    if isinstance(model, RunnableBindingBase):
        return _models(model.bound)
    if isinstance(model, RunnableWithFallbacks):
        return [one for wrapped in (model.runnable, *model.fallbacks) for one in _models(wrapped)]
    return [model]


def _address(model: Any) -> str:
    """The host that a chat model of OpenAI's protocol speaks to; empty for all others."""
    if not isinstance(model, BaseChatModel):
        return ""
    client = getattr(model, "root_client", None) or getattr(model, "root_async_client", None)
    host = urlsplit(str(getattr(client, "base_url", ""))).hostname or ""
    # Its regions: eu.api.openai.com and the like.
    return next((known for known in FREE_ORDER if host == known or host.endswith("." + known)), host)


def asked(messages: Sequence[BaseMessage]) -> Asked:
    """What the model is asked by these messages."""
    at = next((i for i in range(len(messages) - 1, -1, -1) if isinstance(messages[i], HumanMessage)), None)
    if at is None:
        return Asked("")
    earlier = [one for one in messages[max(0, at - EARLIER) : at] if not isinstance(one, SystemMessage)]
    return Asked(text_of(messages[at])[:LONGEST], tuple(text_of(one)[:LONGEST] for one in reversed(earlier)))


def text_of(message: BaseMessage) -> str:
    """The text that a message says, its other parts left out."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(
        part if isinstance(part, str) else str(part.get("text", ""))
        for part in message.content
        if isinstance(part, str) or part.get("type") == "text"
    )


def _is_paused(message: BaseMessage) -> bool:
    """Whether the provider broke off in the middle of this message, at work with tools of its own."""
    return isinstance(message, AIMessage) and message.response_metadata.get("stop_reason") == "pause_turn"


def _with(message: MessageT, *, before: str = "", behind: str = "") -> MessageT:
    """A copy of a message with text around its content; text stays text, and a list keeps its parts as they are."""
    # `content`, not `content_blocks`: the latter gives images new ids and rewrites documents at every call.
    content = message.content
    if isinstance(content, str):
        new: Any = _joined(before, content, behind)
    else:
        space = "\n\n" if content else ""
        new = [
            *([{"type": "text", "text": before + space}] if before else []),
            *content,
            *([{"type": "text", "text": space + behind}] if behind else []),
        ]
    return message.model_copy(update={"content": new})


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)
