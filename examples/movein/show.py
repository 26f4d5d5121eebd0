"""What is shown in the terminal, and how: frames, blocks, tool calls, lines of the log."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from abreast import ChangeEvent

from .agent import Asked, Assistant, Conversation, ToolCall
from .words import Words

_SIDE_BY_SIDE = 72
_LONGEST = 700


@dataclass
class Stage:
    """What the scene and the prompt share: where to print, in which words, and the assistant behind it."""

    console: Console
    words: Words
    assistant: Assistant

    @property
    def drawn(self) -> bool:
        """Whether the terminal takes more than letters."""
        return self.console.encoding.startswith("utf")

    def note(self, text: str) -> None:
        """A quiet line."""
        self.console.print(Text(plain(text), style="dim"))

    def act(self, text: str) -> None:
        """A heading."""
        self.console.print()
        self.console.print(Rule(Text(plain(text), style="bold"), align="left"))

    def ask(self, conversation: Conversation, question: str) -> Asked:
        """An answer, with a sign of life while the model works."""
        with self.console.status(self.words("asking")):
            return self.assistant.ask(conversation, question)

    def show(self, what: Any, title: str = "", style: str = "none") -> None:
        """A text or renderable in a frame."""
        self.console.print(framed(what, title, style))

    def show_both(self, left: Panel, right: Panel) -> None:
        """Two frames side by side, where there is room."""
        both = [left, right]
        self.console.print(side_by_side(both) if self.console.width >= _SIDE_BY_SIDE else Group(*both))


def writes(calls: Sequence[ToolCall]) -> list[ToolCall]:
    """The calls that change something."""
    return [call for call in calls if not call.name.startswith(("list_", "get_", "read_"))]


def calls_text(calls: Sequence[ToolCall]) -> Text:
    """Tool calls with what the tools answered, as they stand in the conversation."""
    lines = []
    for call in calls:
        lines.append(Text.assemble((call.name, "bold"), " ", plain(json.dumps(call.arguments, ensure_ascii=False))))
        answer = call.answer if len(call.answer) <= _LONGEST else call.answer[:_LONGEST] + "…"
        lines.append(Text(f"  {plain(answer)}", style="red" if call.failed else "green"))
    return Text("\n").join(lines)


def who(change: ChangeEvent) -> str:
    """Who made a change, and in which conversation."""
    by = f"{change.actor.type} {change.actor.id or ''}".strip()
    return plain(f"{by}, {change.thread}" if change.thread else by)


def what(change: ChangeEvent, words: Words) -> str:
    """What a change did, as far as the log may say so."""
    parts = []
    for name in change.fields:
        was, now = change.values.get(name, (None, None))
        parts.append(f"{name}: {was} -> {now}" if name in change.values else f"{name}: {words('not_shown')}")
    return plain(f"{change.op} {change.entity_type} {change.entity_id}" + (f" ({'; '.join(parts)})" if parts else ""))


def block_text(block: str) -> Text:
    """The block as the model received it; only colours are added."""
    lines = []
    for line in plain(block).split("\n"):
        heading = line[:7] in ("CHANGES", "CURRENT")
        changed = line[:1] == "r" and line[1:2].isdigit()
        lines.append(Text(line, style="bold" if heading else "yellow" if changed else ""))
    return Text("\n").join(lines)


def changes_of(block: str) -> str:
    """The part of a block that says what has changed."""
    first = block.partition("\n\n")[0]
    return first if first.startswith("CHANGES") else "-"


def framed(what: Any, title: str = "", style: str = "none") -> Panel:
    """A panel around a text, or around anything that Rich can print."""
    inside = Text(plain(what)) if isinstance(what, str) else what
    return Panel(inside, title=Text(title) if title else None, title_align="left", border_style=style)


def side_by_side(panels: Sequence[Panel]) -> Table:
    """Panels in columns of one width."""
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in panels:
        grid.add_column(ratio=1)
    grid.add_row(*panels)
    return grid


def plain(text: str) -> str:
    """The text without anything that a terminal would obey: rows and models may hold what they like."""
    return "".join(c if c == "\n" or unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)
