"""A chat model without a key and without a network, for the demo.

It reads its request and nothing else, as any model does, and it is simple: asked about something, it looks for the last
place in the request where that thing is named with a value, whoever wrote it and in whatever form (an earlier answer, a
tool's result, a JSON object, a sentence), and repeats that value. What its request does not hold it asks a tool for. So
a request that holds only an old value gets an old answer.

Asked for a change it reads the row with a tool, calls the tool that changes it with the row's id and version, and says
what that tool answered. Where the row has moved meanwhile it says what stands there now and who changed it, and waits
for a yes.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from .vocabulary import FIELDS, LISTS, NOT_SET, Field, ListOf, asks, list_of, say, subject
from .wishes import CONTACT, ITEM, Wish, agrees, asks_for_change, wish_of

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


@dataclass(frozen=True)
class _Call:
    """A tool call that stands in a request, with its answer."""

    name: str
    arguments: Mapping[str, Any]
    told: Any

    @property
    def current(self) -> Mapping[str, Any] | None:
        """The row as it is now, where the call was refused because the row had moved."""
        found = self.told.get("current") if isinstance(self.told, Mapping) and "error" in self.told else None
        return found if isinstance(found, Mapping) else None


class _Reading:
    """One request, read once."""

    def __init__(self, messages: Sequence[BaseMessage], tools: Sequence[Mapping[str, Any]]) -> None:
        self.messages = messages
        self.tools = [tool["function"] for tool in tools]
        asked = _asked(messages)
        # What the person said stands last in its message, behind everything that was put around it.
        self.question = next(iter(reversed(list(_texts(messages[asked])))), "") if messages else ""
        self.results = {m.name: _parsed(m) for m in messages[asked + 1 :] if isinstance(m, ToolMessage)}
        self.calls = {call.name: call for call in _calls(messages[asked + 1 :])}
        before = messages[_asked(messages[:asked]) : asked]
        self.refused = next((call for call in reversed(_calls(before)) if call.current is not None), None)
        self.korean = bool(re.search(r"[가-힣]", self.question))

    def answer(self) -> AIMessage:
        """An answer in the question's language, or the call of a tool."""
        if asks("who_changed", self.question):
            return self._who_changed()
        wish = wish_of(self.question)
        if wish is not None:
            return self._change(wish)
        if self.refused is not None and (yes := agrees(self.question)) is not None:
            return self._again(self.refused) if yes else self._said("stays")
        if asks_for_change(self.question):
            return self._said("change_how")
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

    # -- changing ------------------------------------------------------------------------------------------------

    def _change(self, wish: Wish) -> AIMessage:
        """The next step of a change: the tool that reads the row, the one that writes it, or what came of it."""
        tool, reader, found = self._tools_for(wish)
        if tool is None or reader is None:
            return self._said("cannot_change")
        if tool in self.calls:
            return self._outcome(self.calls[tool], self._row(reader, wish))
        if reader not in self.results:
            return _call(reader, **found)
        row = self._row(reader, wish)
        if row is None:
            result = self.results[reader]
            if isinstance(result, Mapping) and "error" in result:
                return self._said("refused", reason=_reason(result))
            return self._said("which_item" if wish.kind in ("item", "delete") else "no_plan")
        values = {name: _dated(value, name, row) for name, value in wish.values.items()}
        if wish.kind in ("add", "add_contact"):
            return _call(tool, plan_id=row["id"], **values)
        if wish.kind == "postpone":
            days = values.get("days") or _days(row.get("move_in_date"), values.get("until"))
            return _call(tool, plan_id=row["id"], version=row["version"], days=days) if days > 0 else self._said("not_later")
        return _call(tool, id=row["id"], version=row["version"], **values)

    def _tools_for(self, wish: Wish) -> tuple[str | None, str | None, dict[str, Any]]:
        """The tool that makes the change, the one that reads the row before it, and the arguments of that one."""
        plans = self._tool("list", "move_in_date")
        if wish.kind == "plan":
            return self._tool("update", *wish.values), plans, {"limit": 1}
        if wish.kind == "postpone":
            return self._tool("postpone", "days"), plans, {"limit": 1}
        if wish.kind in ("add", "add_contact"):
            return self._tool("create", *(ITEM if wish.kind == "add" else CONTACT)), plans, {"limit": 1}
        update = self._tool("update", *ITEM) or ""
        kind = update.removeprefix("update")
        tool = self._named(f"delete{kind}") if wish.kind == "delete" else self._named(update)
        if wish.number is None:
            return tool, self._named(f"list{kind}"), {"limit": _PAGE}
        return tool, self._named(f"get{kind}"), {"id": wish.number}

    def _row(self, reader: str, wish: Wish) -> Mapping[str, Any] | None:
        """The row that is meant, from the answer of the tool that reads it."""
        result = self.results.get(reader)
        rows, _ = _rows(result)
        if rows is None:
            return result if isinstance(result, Mapping) and "id" in result else None
        if wish.name:
            rows = LISTS["items"].meant(rows, wish.name)
        return rows[0] if len(rows) == 1 else None

    def _again(self, refused: _Call) -> AIMessage:
        """A person wants what was refused all the same: on the row that he was told of, and on no other."""
        if refused.name in self.calls:
            return self._outcome(self.calls[refused.name], refused.current)
        assert refused.current is not None
        return _call(refused.name, **{**refused.arguments, "version": refused.current["version"]})

    def _outcome(self, call: _Call, before: Mapping[str, Any] | None) -> AIMessage:
        """What came of a change, in words."""
        told = call.told
        if call.current is not None:
            return self._conflict(call, call.current)
        if not isinstance(told, Mapping) or "error" in told:
            return self._said("refused", reason=_reason(told))
        row = {**(before or {}), **told}
        if call.name.startswith("create"):
            return self._said("added", line=LISTS["items"].line(told, korean=self.korean))
        if call.name.startswith("delete"):
            return self._said("deleted", line=row.get("title", told["deleted"]))
        if "due_dates_moved" in told:
            return self._said("postponed", now=self._now(told, ["move_in_date"]), number=told["due_dates_moved"])
        return self._said("done", now=self._now(row, call.arguments))

    def _conflict(self, call: _Call, current: Mapping[str, Any]) -> AIMessage:
        """Nothing was written: what stands there now, and who changed it, as far as a tool says so."""
        history = self._tool("", "history")
        if history is not None and history not in self.results:
            return _call(history, limit=_PAGE)
        result = self.results.get(history)
        changes = result.get("changes", []) if isinstance(result, Mapping) else []
        last = next((one for one in changes if str(one.get("of", "")).endswith(f" {current['id']}")), None)
        who = say("conflict_who", korean=self.korean, who=last["by"]) if last else ""
        return self._said("conflict", who=who, now=self._now(current, [*call.arguments, *((last or {}).get("fields") or ())]))

    def _now(self, row: Mapping[str, Any], names: Iterable[str]) -> str:
        """What these fields of a row are, in words."""
        if "title" in row and "done" in row:
            return self._text("item_now", line=LISTS["items"].line(row, korean=self.korean))
        known = [field for field in FIELDS if field.name in set(names) & set(row)]
        if not known and "move_in_date" in row:
            known = [FIELDS[0]]
        values = [NOT_SET if row[field.name] is None else str(row[field.name]) for field in known]
        return " ".join(field.sentence(value, korean=self.korean) for field, value in zip(known, values, strict=True))

    # -- who changed what -----------------------------------------------------------------------------------------

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
            arguments = " ".join(tool.get("parameters", {}).get("properties", {}))
            text = f"{tool['name']} {tool.get('description', '')} {arguments}"
            if tool["name"].startswith(kind) and all(re.search(rf"(?<![a-z]){word}(?![a-z])", text) for word in words):
                return str(tool["name"])
        return None

    def _named(self, name: str) -> str | None:
        return name if any(tool["name"] == name for tool in self.tools) else None

    def _text(self, what: str, /, **values: Any) -> str:
        return say(what, korean=self.korean, **values)

    def _said(self, what: str, /, **values: Any) -> AIMessage:
        return AIMessage(self._text(what, **values))


def _asked(messages: Sequence[BaseMessage]) -> int:
    """Where the question stands: in the last message of a person."""
    return next((index for index in range(len(messages) - 1, -1, -1) if isinstance(messages[index], HumanMessage)), 0)


def _texts(message: BaseMessage) -> Iterator[str]:
    """The paragraphs of a message, in order."""
    parts = [message.content] if isinstance(message.content, str) else message.content
    for part in parts:
        text = part if isinstance(part, str) else part.get("text")
        if isinstance(text, str):
            yield from (paragraph for paragraph in text.split("\n\n") if paragraph.strip())


def _calls(messages: Sequence[BaseMessage]) -> list[_Call]:
    """The tool calls in these messages that were answered, in the order of their answers."""
    asked = {call["id"]: call for m in messages if isinstance(m, AIMessage) for call in m.tool_calls}
    answers = [m for m in messages if isinstance(m, ToolMessage) and m.tool_call_id in asked]
    return [_Call(asked[m.tool_call_id]["name"], asked[m.tool_call_id]["args"], _parsed(m)) for m in answers]


def _dated(value: Any, name: str, row: Mapping[str, Any]) -> Any:
    """A date that names no year is one of the year that the row is about."""
    if not isinstance(value, str) or not value.startswith("--"):
        return value
    known = str(row.get(name) or row.get("move_in_date") or dt.datetime.now(dt.UTC).date())
    return f"{known[:4]}{value[1:]}"


def _days(now: Any, until: Any) -> int:
    """Days from one date to another; 0 where one of them is none."""
    if not (isinstance(now, str) and isinstance(until, str)):
        return 0
    return (dt.date.fromisoformat(until) - dt.date.fromisoformat(now)).days


def _parsed(answer: BaseMessage) -> Any:
    """What a tool answered; the state of the data may stand behind it."""
    text = next(_texts(answer), "")
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


def _call(tool: str, /, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": f"call_{uuid.uuid4().hex[:12]}"}])
