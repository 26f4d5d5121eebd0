"""The scene: one change that a conversation could not know of, told step by step."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from .agent import CONVERSATIONS, Asked, Assistant, Conversation
from .seed import MOVE_IN, QUESTION
from .vocabulary import written_date
from .words import Words

STATEMENT = "update plan set move_in_date = '2026-09-30' where id = 'seongsu'"
_BAR = 24
_SIDE_BY_SIDE = 72


@dataclass
class Stage:
    """What the scene and the prompt share: where to print, in which words, and the assistant behind it."""

    console: Console
    words: Words
    assistant: Assistant

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


def play(stage: Stage) -> Asked:
    """Plays the scene and returns what conversation B was answered."""
    words, assistant = stage.words, stage.assistant
    korean = words.language == "ko"
    with_it, without = CONVERSATIONS["B"], CONVERSATIONS["B-without"]
    question = QUESTION[words.language]

    stage.act(words("act_1"))
    stage.show(conversation_text(stage, with_it))
    stage.note(words("act_1_note"))

    stage.act(words("act_2"))
    done = assistant.elsewhere(STATEMENT)
    stage.show(
        Text(f'$ python examples/movein/elsewhere.py planner.db "{STATEMENT}"\n{plain(done.stdout + done.stderr).strip()}')
    )
    plan = assistant.plan(with_it.workspace)
    now = plan.move_in_date.isoformat() if plan and plan.move_in_date else "-"
    dates = {"date": written_date(now, korean=korean), "old": written_date(MOVE_IN.isoformat(), korean=korean)}
    stage.note(words("act_2_note", **dates))

    stage.act(words("act_3", question=question))
    fresh, stale = stage.ask(with_it, question), stage.ask(without, question)
    stage.show(block_text(fresh.block), words("block"), "cyan")
    stage.note(words("act_3_note", number=len(assistant.said(with_it)), size=assistant.mark_size(with_it)))

    stage.act(words("act_4"))
    both = [
        framed(fresh.answer or words("no_answer"), words("with"), "green"),
        framed(stale.answer or words("no_answer"), words("without"), "red"),
    ]
    stage.console.print(side_by_side(both) if stage.console.width >= _SIDE_BY_SIDE else Group(*both))
    stage.note(words("act_4_note"))

    stage.act(words("act_5"))
    behind(stage)
    stage.note(words("act_5_note"))
    return fresh


def behind(stage: Stage) -> None:
    """The table of who is how far behind."""
    words, utf = stage.words, stage.console.encoding.startswith("utf")
    standings = {one.thread: one for one in stage.assistant.standings()}
    most = max((one.behind for one in standings.values()), default=0)
    table = Table(*(words(f"column_{name}") for name in ("conversation", "person", "workspace", "at", "behind")))
    for name, conversation in CONVERSATIONS.items():
        place = standings.get(name)
        row = [Text(name), Text(conversation.user), Text(conversation.workspace)]
        if place is None:
            table.add_row(*row, "-", Text(words("no_place"), style="red"))
            continue
        length = round(_BAR * place.behind / most) if most else 0
        bar = ("█" if utf else "#") * max(length, int(place.behind > 0))
        mark = Text.assemble(f"{place.behind:>3} ", (bar, "yellow")) if place.behind else Text("  0", style="green")
        table.add_row(*row, f"r{place.revision} / r{place.head}", mark)
    stage.console.print(table)


def conversation_text(stage: Stage, conversation: Conversation) -> Text:
    """What was said in a conversation, one line each."""
    names = {"user": (conversation.user, "bold cyan"), "assistant": (stage.words("assistant"), "bold magenta")}
    lines = []
    for who, text in stage.assistant.said(conversation):
        name, style = names[who]
        lines.append(Text.assemble((f"{name}: ", style), plain(text)))
    return Text("\n").join(lines)


def block_text(block: str) -> Text:
    """The block as the model received it; only colours are added."""
    lines = []
    for line in plain(block).split("\n"):
        heading = line[:7] in ("CHANGES", "CURRENT")
        changed = line[:1] == "r" and line[1:2].isdigit()
        lines.append(Text(line, style="bold" if heading else "yellow" if changed else ""))
    return Text("\n").join(lines)


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
