"""The scene, step by step: a change that a conversation could not know of, and a change that it makes itself."""

from __future__ import annotations

import datetime as dt

from rich.table import Table
from rich.text import Text

from .agent import CONVERSATIONS, Asked, Conversation, ToolCall
from .race import race
from .seed import MOVE_IN, QUESTION
from .show import Stage, block_text, calls_text, changes_of, framed, plain, what, who, writes
from .vocabulary import written_date

STATEMENT = "update plan set move_in_date = '2026-09-30' where id = 'seongsu'"
TICK = {"en": "Please tick off 15.", "ko": "15번 끝냈어."}
MOVE = {"en": "Move the move-in date to 2 October.", "ko": "입주일을 10월 2일로 바꿔줘."}
INSIST = {"en": "Yes, change it all the same.", "ko": "네, 그래도 바꿔줘."}
MEANWHILE = dt.date(2026, 10, 1)
NUMBER = 15
_BAR = 24


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
    stage.show(_elsewhere(stage, STATEMENT))
    plan = assistant.plan(with_it.workspace)
    now = plan.move_in_date.isoformat() if plan and plan.move_in_date else "-"
    dates = {"date": written_date(now, korean=korean), "old": written_date(MOVE_IN.isoformat(), korean=korean)}
    stage.note(words("act_2_note", **dates))

    stage.act(words("act_3", question=question))
    fresh, stale = stage.ask(with_it, question), stage.ask(without, question)
    stage.show(block_text(fresh.block), words("block"), "cyan")
    stage.note(words("act_3_note", number=len(assistant.said(with_it)), size=assistant.mark_size(with_it)))

    stage.act(words("act_4"))
    stage.show_both(
        framed(fresh.answer or words("no_answer"), words("with"), "green"),
        framed(stale.answer or words("no_answer"), words("without"), "red"),
    )
    stage.note(words("act_4_note"))

    stage.act(words("act_5"))
    behind(stage)
    stage.note(words("act_5_note"))

    _change(stage, with_it)
    second = _conflict(stage, with_it)
    _told(stage, second)
    return second


def _change(stage: Stage, conversation: Conversation) -> None:
    """A person asks for a change: the tool calls, the row, and the line of the log."""
    words, assistant = stage.words, stage.assistant
    request = TICK[words.language]
    stage.act(words("act_6", request=request))
    asked = stage.ask(conversation, request)
    stage.show(calls_text(asked.calls), words("tools_called"), "magenta")
    stage.show(asked.answer or words("no_answer"), conversation.thread, "green")
    statement = f"select id, title, done from checklist_item where id = {NUMBER}"
    stage.show(_elsewhere(stage, statement), words("the_row"))
    (newest,) = assistant.changes(conversation, 1) or [None]
    if newest is not None:
        stage.show(f"r{newest.revision}  {who(newest)}  {what(newest, words)}", words("the_log"), "yellow")
    stage.note(words("act_6_note"))


def _conflict(stage: Stage, conversation: Conversation) -> Asked:
    """The screen is faster: the write is refused, the assistant says so, and tries again once it is told to."""
    words, assistant = stage.words, stage.assistant
    request, workspace = MOVE[words.language], conversation.workspace
    date = written_date(MEANWHILE.isoformat(), korean=words.language == "ko")

    def edit() -> None:
        assistant.edit_plan(workspace, "move_in_date", MEANWHILE, by="junho")
        stage.note(words("between_done", person="junho", date=date))

    stage.act(words("act_7", request=request))
    assistant.between.waiting = edit
    first = stage.ask(conversation, request)
    assistant.between.waiting = None
    asked, written = [first], _answered(stage, conversation, first, "yellow")
    waits = bool(written) and written[-1].failed  # a real model may decide otherwise
    if waits:
        insists = INSIST[words.language]
        stage.console.print(Text.assemble((f"{conversation.user}: ", "bold cyan"), insists))
        asked.append(stage.ask(conversation, insists))
        _answered(stage, conversation, asked[-1], "green")
    changes = assistant.plan_changes(conversation)
    stage.console.print(race(stage, "seongsu", changes, [call for one in asked for call in one.calls]))
    number = sum(change.actor.type == "agent" for change in changes)
    stage.note(words("act_7_note" if waits else "act_7_other", number=number))
    return asked[-1]


def _answered(stage: Stage, conversation: Conversation, asked: Asked, style: str) -> list[ToolCall]:
    """The tool calls that write, which it returns, and the answer."""
    words, written = stage.words, writes(asked.calls)
    if written:
        stage.show(calls_text(written), words("tools_wrote"), "magenta")
    stage.show(asked.answer or words("no_answer"), conversation.thread, style)
    return written


def _told(stage: Stage, last: Asked) -> None:
    """Another conversation hears of it, and of who did it."""
    words, other = stage.words, CONVERSATIONS["A"]
    question = QUESTION[words.language]
    stage.act(words("act_8", question=question))
    asked = stage.ask(other, question)
    stage.show_both(
        framed(block_text(changes_of(asked.block)), words("told_a"), "cyan"),
        framed(block_text(changes_of(last.block)), words("told_b"), "cyan"),
    )
    stage.show(asked.answer or words("no_answer"), other.thread, "green")
    if ", you, " in changes_of(last.block):
        stage.note(words("act_8_note"))


def _elsewhere(stage: Stage, statement: str) -> str:
    """A statement in another process, with its answer, as a terminal shows them."""
    done = stage.assistant.elsewhere(statement)
    return f'$ python examples/movein/elsewhere.py planner.db "{statement}"\n{plain(done.stdout + done.stderr).strip()}'


def behind(stage: Stage) -> None:
    """The table of who is how far behind."""
    words = stage.words
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
        bar = ("█" if stage.drawn else "#") * max(length, int(place.behind > 0))
        mark = Text.assemble(f"{place.behind:>3} ", (bar, "yellow")) if place.behind else Text("  0", style="green")
        table.add_row(*row, f"r{place.revision} / r{place.head}", mark)
    stage.console.print(table)


def conversation_text(stage: Stage, conversation: Conversation) -> Text:
    """What was said in a conversation, one line each."""
    names = {"user": (conversation.user, "bold cyan"), "assistant": (stage.words("assistant"), "bold magenta")}
    lines = []
    for speaker, text in stage.assistant.said(conversation):
        name, style = names[speaker]
        lines.append(Text.assemble((f"{name}: ", style), plain(text)))
    return Text("\n").join(lines)
