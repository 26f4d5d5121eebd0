"""The prompt: ask in a conversation, change rows on the screen or from another process, and look at what came of it."""

from __future__ import annotations

import datetime as dt
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text

from abreast import AbreastError, ThreadBusyError

from .agent import CONVERSATIONS, Asked, Conversation
from .models import Plan
from .policy import REDACTED
from .scene import behind
from .show import Stage, block_text, calls_text, plain, what, who, writes
from .vocabulary import FIELDS, read_date, read_status, statuses, written_date
from .words import Words

_NEWEST = 12
_MUTATION = 12
_PLAN_FIELDS = {field.name: field for field in FIELDS if field.counts is None}


class Refused(Exception):
    """What somebody typed cannot be done; the message says why and what can."""


@dataclass
class Prompt:
    """One sitting at the prompt."""

    stage: Stage
    conversation: Conversation = CONVERSATIONS["B"]
    last: Asked | None = None
    _commands: dict[str, Callable[[str], None]] = field(init=False)

    def __post_init__(self) -> None:
        self._commands = {
            "/thread": self._thread,
            "/edit": self._edit,
            "/sql": self._sql,
            "/between": self._between,
            "/screen": self._screen,
            "/behind": lambda rest: behind(self.stage),
            "/block": self._block,
            "/history": self._history,
            "/help": self._help,
        }

    def run(self) -> None:
        """Reads and answers lines until /quit, the end of the input or an interrupt."""
        self.stage.console.print()
        self.stage.console.print(Text(self.stage.words("prompt"), style="bold"))
        while True:
            try:
                line = input(f"{self.conversation.thread}> ").strip()
            except (EOFError, KeyboardInterrupt):
                self.stage.console.print()
                return
            if not sys.stdin.isatty():
                self.stage.console.print(Text(plain(line)))  # nobody typed it, so nobody has seen it
            if line.lower() in ("/quit", "/exit"):
                return
            if line:
                self.do(line)

    def do(self, line: str) -> None:
        """Does what one line asks for. Whatever goes wrong is said in a sentence, and the prompt goes on."""
        name, _, rest = line.partition(" ")
        try:
            if not line.startswith("/"):
                self._ask(line)
            elif name.lower() in self._commands:
                self._commands[name.lower()](rest.strip())
            else:
                raise Refused(self.stage.words("unknown_command", name=name))
        except Refused as refused:
            self._red(str(refused))
        except ThreadBusyError as busy:
            self._red(busy_text(self.stage.words, busy.thread, busy.seconds))
        except AbreastError as error:
            self._red(error.message)
        except Exception as error:  # a provider may raise anything, and /sql can take any table away
            said = str(error).strip().split("\n")[0]
            self._red(self.stage.words("failed", error=f"{type(error).__name__}: {said}"))

    # -- asking --------------------------------------------------------------------------------------------------

    def _ask(self, question: str) -> None:
        words = self.stage.words
        self.last = asked = self.stage.ask(self.conversation, question)
        style = "green" if self.conversation.in_step else "red"
        if changed := writes(asked.calls):
            self.stage.show(calls_text(changed), words("tools_wrote"), "magenta")
        self.stage.show(asked.answer or words("no_answer"), self.conversation.thread, style)
        if self.stage.assistant.between.waiting is not None:
            self.stage.note(words("between_waits"))
        if asked.reason:
            self.stage.note(words("kept_place", reason=asked.reason))

    def _thread(self, name: str) -> None:
        words, names = self.stage.words, ", ".join(CONVERSATIONS)
        if not name:
            raise Refused(words("needs", name="/thread", usage=words("usage_thread", names=names)))
        found = next((one for one in CONVERSATIONS.values() if one.thread.lower() == name.lower()), None)
        if found is None:
            raise Refused(words("unknown_thread", name=name, names=names))
        self.conversation, self.last = found, None
        self.stage.note(words("thread_is", name=found.thread, person=found.user, workspace=found.workspace))

    def _block(self, rest: str) -> None:
        if self.last is None or not self.last.block:
            raise Refused(self.stage.words("no_block"))
        self.stage.show(block_text(self.last.block), self.stage.words("block"), "cyan")

    # -- changing ------------------------------------------------------------------------------------------------

    def _edit(self, rest: str, by: str = "mina") -> None:
        self._edited(rest, by)()
        self.stage.note(self.stage.words("written", person=by))

    def _edited(self, rest: str, by: str) -> Callable[[], None]:
        """What the screen does. Raises Refused at once for what cannot be understood, and when it is done for what is not
        there."""
        words, workspace = self.stage.words, self.conversation.workspace
        ticked = re.fullmatch(r"#?(\d{1,9})(?:\s+(.*))?", rest)
        if ticked:
            number, state = int(ticked[1]), (ticked[2] or "").lower()
            if state not in ("done", "open", words("done"), words("open")):
                raise Refused(words("bad_done", number=number))

            def tick() -> None:
                if not self.stage.assistant.edit_item(workspace, number, state in ("done", words("done")), by=by):
                    raise Refused(words("no_item", workspace=workspace, number=number))

            return tick
        name, value = self._field_and_value(rest)

        def change() -> None:
            if not self.stage.assistant.edit_plan(workspace, name, value, by=by):
                raise Refused(words("no_plan", workspace=workspace))

        return change

    def _between(self, rest: str) -> None:
        """Keeps an edit for the moment between the model's reading and its tool's writing."""
        words, between = self.stage.words, self.stage.assistant.between
        name, _, given = rest.partition(" ")
        edits = {"/edit": lambda: self._edited(given.strip(), "junho"), "/sql": lambda: lambda: self._sql(given.strip())}
        if name.lower() == "off":
            between.waiting = None
            self.stage.note(words("between_off"))
            return
        if name.lower() not in edits or not given.strip():
            raise Refused(words("needs", name="/between", usage=words("usage_between")))
        edit = edits[name.lower()]()

        def doing() -> None:
            self.stage.note(words("between_now", edit=rest))
            try:
                edit()
            except Exception as error:  # it must not become the tool's
                self._red(str(error).strip().split("\n")[0])

        between.waiting = doing
        self.stage.note(words("between_armed", edit=rest))

    def _field_and_value(self, rest: str) -> tuple[str, Any]:
        words = self.stage.words
        called = {text.lower(): f.name for f in _PLAN_FIELDS.values() for text in (f.name, f.english, f.korean, *f.words)}
        name = next((text for text in sorted(called, key=len, reverse=True) if f"{rest.lower()} ".startswith(f"{text} ")), None)
        if name is None:
            if not rest:
                raise Refused(words("needs", name="/edit", usage=words("usage_edit")))
            raise Refused(words("unknown_field", name=rest.split()[0], fields=self._field_names()))
        value = rest[len(name) :].strip()
        if not value:
            raise Refused(words("needs", name="/edit", usage=words("usage_edit")))
        return called[name], self._value(_PLAN_FIELDS[called[name]].kind, value)

    def _value(self, kind: str, text: str) -> Any:
        words = self.stage.words
        if kind == "date":
            iso = read_date(text)
            if iso is None:
                raise Refused(words("bad_date", value=text))
            if iso.startswith("--"):
                plan = self.stage.assistant.plan(self.conversation.workspace)
                iso = f"{plan.move_in_date.year if plan and plan.move_in_date else 2026}{iso[1:]}"
            return dt.date.fromisoformat(iso)
        if kind == "money":
            amount = re.fullmatch(r"(?:KRW|₩)?\s*(\d[\d,]{0,14})\s*(만)?\s*원?", text, re.IGNORECASE)
            if amount is None:
                raise Refused(words("bad_number", value=text))
            return int(amount[1].replace(",", "")) * (10_000 if amount[2] else 1)
        if kind == "status":
            status = read_status(text)
            if status is None:
                raise Refused(words("bad_status", statuses=statuses(korean=words.language == "ko")))
            return status
        return text

    def _sql(self, statement: str) -> None:
        words = self.stage.words
        if not statement:
            raise Refused(words("needs", name="/sql", usage=words("usage_sql")))
        try:
            done = self.stage.assistant.elsewhere(statement)
        except subprocess.TimeoutExpired:
            raise Refused(words("elsewhere_slow")) from None
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["-"])[-1]
            raise Refused(f"{words('elsewhere', status=done.returncode)}: {said}")
        self.stage.show(done.stdout.strip() or "-", words("elsewhere", status=0))

    # -- looking -------------------------------------------------------------------------------------------------

    def _screen(self, rest: str) -> None:
        words, conversation = self.stage.words, self.conversation
        plan = self.stage.assistant.plan(conversation.workspace)
        if plan is None:
            raise Refused(words("no_plan", workspace=conversation.workspace))
        korean = words.language == "ko"
        table = Table.grid(padding=(0, 2))
        for one in _PLAN_FIELDS.values():
            table.add_row(
                Text(one.korean if korean else one.english, style="bold"), Text(self._on_screen(plan, one.name, korean))
            )
        self.stage.show(table, plain(plan.title))
        items = Table.grid(padding=(0, 2))
        for row in sorted(
            self.stage.assistant.items(conversation), key=lambda row: (row.values["due_on"] or "", int(row.entity_id))
        ):
            done = bool(row.values["done"])
            state = Text(words("done" if done else "open"), style="green" if done else "yellow")
            items.add_row(row.entity_id, state, str(row.values["due_on"] or "-"), Text(plain(str(row.values["title"]))))
        self.stage.console.print(items)

    def _on_screen(self, plan: Plan, name: str, korean: bool) -> str:
        hidden = name in REDACTED or (name == "budget" and "budget" not in self.conversation.permissions)
        value = getattr(plan, name)
        if hidden:
            return f"({self.stage.words('not_shown')})"
        if value is None:
            return "-"
        if isinstance(value, dt.date):
            return written_date(value.isoformat(), korean=korean)
        return plain(f"{value:,}" if isinstance(value, int) else str(value))

    def _history(self, rest: str) -> None:
        words = self.stage.words
        changes = self.stage.assistant.changes(self.conversation, _NEWEST)
        if not changes:
            raise Refused(words("no_changes", person=self.conversation.user))
        table = Table(*(words(f"column_{name}") for name in ("revision", "time", "who", "what", "mutation")))
        for change in changes:
            at = change.at[:19].replace("T", " ")
            mutation = plain(change.mutation or "")[:_MUTATION]
            table.add_row(f"r{change.revision}", at, Text(who(change)), Text(what(change, words)), Text(mutation))
        self.stage.console.print(table)

    def _help(self, rest: str) -> None:
        self.stage.show(self.stage.words("help", names=", ".join(CONVERSATIONS), fields=self._field_names()))

    def _field_names(self) -> str:
        korean = self.stage.words.language == "ko"
        return ", ".join(f.korean if korean else f.name for f in _PLAN_FIELDS.values())

    def _red(self, text: str) -> None:
        self.stage.console.print(Text(plain(text), style="red"))


def busy_text(words: Words, thread: str, seconds: float) -> str:
    """That a conversation is held by a run, and for how long should that run have died."""
    return words("busy", name=thread, seconds=math.ceil(seconds))
