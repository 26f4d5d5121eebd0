"""A chat model without a key and without a network, for the demo.

It reads its request and nothing else, as any model does, and it is simple: asked about something, it looks for the last
place in the request where that thing is named with a value, whoever wrote it and in whatever form (an earlier answer, a
tool's result, a JSON object, a sentence), and repeats that value. What its request does not hold it asks a tool for. So
a request that holds only an old value gets an old answer.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from .vocabulary import FIELDS, LISTS, Field, ListOf, asks, list_of, say, subject

_PAGE = 100
_SHOWN = 5


class OfflineModel(BaseChatModel):
    """Answers from the messages and the tools of its request. It keeps nothing between calls."""

    @property
    def _llm_type(self) -> str:
        return "offline"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        """The tools travel in the request, as with any provider."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> ChatResult:
        answer = _Reading(messages, settings.get("tools") or ()).answer()
        return ChatResult(generations=[ChatGeneration(message=answer)])


def latest(field: Field, messages: Sequence[BaseMessage]) -> str | None:
    """The value that stands behind the last mention of a field in these messages; None if it is nowhere mentioned.

    Dates come back as ISO 8601, numbers as digits, NOT_SET and GONE for a field without a value and a row that is gone.
    """
    for message in reversed(messages):
        for text in reversed(list(_texts(message))):
            found = max(field.mentions(text), default=None)
            if found is not None:
                return found[1]
    return None


class _Reading:
    """One request, read once."""

    def __init__(self, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]) -> None:
        self.messages = messages
        self.tools = [tool["function"] for tool in tools]
        asked = _asked(messages)
        self.question = next(_texts(messages[asked]), "") if messages else ""
        self.results = {m.name: _parsed(m.text) for m in messages[asked + 1 :] if isinstance(m, ToolMessage)}
        self.korean = bool(re.search(r"[가-힣]", self.question))

    def answer(self) -> AIMessage:
        """An answer in the question's language, or the call of a tool."""
        if asks("who_changed", self.question):
            return self._who_changed()
        if asks("to_change", self.question):
            return self._said("cannot_change")
        fields = [field for field in FIELDS if field.is_asked(self.question)]
        if fields:
            return self._fields(fields)
        wanted = list_of(self.question)
        if wanted is not None:
            return self._list(wanted)
        return self._item()

    # -- one field -----------------------------------------------------------------------------------------------

    def _fields(self, fields: Sequence[Field]) -> AIMessage:
        answers = []
        for field in fields:
            value = latest(field, self.messages)
            if value is None and field.counts is not None:
                return self._list(LISTS[field.counts])
            if value is None:
                tool = self._tool("list", field.name)
                if tool is not None and tool not in self.results:
                    return _call(tool, limit=_PAGE)
                value = "unknown"
            answers.append(field.sentence(value, korean=self.korean))
        return AIMessage(" ".join(answers))

    # -- several rows --------------------------------------------------------------------------------------------

    def _list(self, wanted: ListOf) -> AIMessage:
        tool = self._tool("list", *wanted.fields)
        if tool is None:
            return self._said("cannot_see")
        if tool not in self.results:
            return _call(tool, limit=_PAGE, **({"match": dict(wanted.match)} if wanted.match else {}))
        rows, more = _rows(self.results[tool])
        if rows is None:
            return self._said("tool_failed", reason=_reason(self.results[tool]))
        named = wanted.meant(rows, self.question)
        if wanted.named_by and rows and not named and subject(self.question):
            return self._said("list_none", number=len(rows) + more)
        shown = sorted(named or rows, key=wanted.order)
        lines = "; ".join(wanted.line(row, korean=self.korean) for row in shown[:_SHOWN])
        number = len(shown) + (0 if named else more)
        rest = number - min(len(shown), _SHOWN)
        answer = say(wanted.heading, korean=self.korean, number=number)
        if lines:
            answer += " " + lines
        return AIMessage(answer + (say("and_more", korean=self.korean, number=rest) if rest else "."))

    def _item(self) -> AIMessage:
        """A question that names neither a field nor a list may name a thing to do."""
        wanted = LISTS["items"]
        tool = self._tool("list", *wanted.fields)
        if tool is None or not subject(self.question):
            return self._said("help")
        if tool not in self.results:
            return _call(tool, limit=_PAGE)
        rows, _ = _rows(self.results[tool])
        named = wanted.meant(rows or [], self.question)
        if not named:
            return self._said("help")
        return AIMessage("; ".join(wanted.line(row, korean=self.korean) for row in named[:_SHOWN]) + ".")

    # -- changes -------------------------------------------------------------------------------------------------

    def _who_changed(self) -> AIMessage:
        tool = self._tool("", "history")
        if tool is None:
            return self._said("cannot_see")
        if tool not in self.results:
            return _call(tool, limit=_PAGE)
        result = self.results[tool]
        if not isinstance(result, Mapping) or "changes" not in result:
            return self._said("tool_failed", reason=_reason(result))
        names = [field.name for field in FIELDS if field.is_asked(self.question)]
        for change in result["changes"]:
            fields = change.get("fields") or {}
            if fields and (not names or set(names) & set(fields)):
                what = ", ".join(name for name in fields if not names or name in names)
                return self._said("changed", who=change["by"], what=what, of=change["of"], at=change["at"][:16].replace("T", " "))
        return self._said("nothing_changed")

    # -- words ---------------------------------------------------------------------------------------------------

    def _tool(self, kind: str, *words: str) -> str | None:
        """The first tool of that kind whose name or description speaks of all these words."""
        for tool in self.tools:
            text = f"{tool['name']} {tool.get('description', '')}"
            if tool["name"].startswith(kind) and all(re.search(rf"(?<![a-z]){word}(?![a-z])", text) for word in words):
                return str(tool["name"])
        return None

    def _said(self, what: str, /, **values: Any) -> AIMessage:
        return AIMessage(say(what, korean=self.korean, **values))


def _asked(messages: Sequence[BaseMessage]) -> int:
    """Where the question stands: the last message of a person. Nobody speaks between a tool's result and the answer, so
    what stands there under a person's name is not one."""
    for index in range(len(messages) - 1, -1, -1):
        behind_tool = index > 0 and isinstance(messages[index - 1], ToolMessage)
        if isinstance(messages[index], HumanMessage) and not behind_tool:
            return index
    return 0


def _texts(message: BaseMessage) -> Iterator[str]:
    """The texts of a message, in order."""
    parts = [message.content] if isinstance(message.content, str) else message.content
    for part in parts:
        text = part if isinstance(part, str) else part.get("text")
        if isinstance(text, str) and text:
            yield text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _rows(result: Any) -> tuple[list[dict[str, Any]] | None, int]:
    if not isinstance(result, Mapping) or not isinstance(result.get("rows"), list):
        return None, 0
    return result["rows"], int(result.get("more") or 0)


def _reason(result: Any) -> str:
    return str(result.get("error", result)) if isinstance(result, Mapping) else str(result)


def _call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{uuid.uuid4().hex[:12]}"}])
