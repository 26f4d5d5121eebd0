"""The arms: in which form the data as they are now stand in a request.

Named arms are what the library itself makes (`core.render`, `agents.placing`) under each offered option, and what they are
measured against. Further forms are spelled by their parts, in the order in which they stand in the last message:

    Q   the question, as the person asked it
    D   the changes as abreast words them
    C   CURRENT as abreast words it
    V   the facts as abreast words them
    R   the question again

Before the parts and a colon stands what happens to the history in the request: `as_is`; `fixall` (earlier answers that
hold an outdated value say what is true now); `drop` (without the turns about the row that is asked about); `trim` (only
the last four messages); `none`. So `as_is:D C V Q V R`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from abreast.agents.placing import asked, place, text_of
from abreast.core.current import CURRENT
from abreast.core.fold import fold
from abreast.core.render import render
from abreast.errors import InputError
from abreast.evals.cases import THREAD, Case, messages
from abreast.evals.products import spoken
from abreast.types import Block, Budget, Phrasing, Placement

Messages = list[AnyMessage]
Arm = Callable[[Case, bool], Messages]
"""Makes the request of a case; the flag says whether the block stands inside a tool's answer (`placing.inside_answers`)."""

HISTORIES = ("as_is", "fixall", "drop", "trim", "none")
PARTS = ("Q", "D", "C", "V", "R")


def arm(name: str) -> Arm:
    """The arm of this name, or spelled so."""
    if name in NAMED:
        return NAMED[name]
    history, colon, parts = name.partition(":")
    if not colon or history not in HISTORIES or not parts.split() or not set(parts.split()) <= set(PARTS):
        raise InputError(
            f'There is no arm "{name}". Named arms: {", ".join(NAMED)}. Or spell one as HISTORY:PARTS, with a history of '
            f"{', '.join(HISTORIES)} and parts of {' '.join(PARTS)}, such as as_is:D C V Q V R."
        )
    return lambda case, inside: _spelled(case, history, parts.split(), inside)


# -- what abreast does -------------------------------------------------------------------------------------------------


def block(case: Case, phrasing: Phrasing = "sentences") -> Block:
    """The library's block for this case."""
    return render(
        [case.batch], run="r", thread=THREAD, budget=Budget(), wording=case.wording,
        asked=asked(messages(case)[1:]), phrasing=phrasing,
    )  # fmt: skip


def placed(case: Case, given: Block, placement: Placement, inside: bool) -> Messages:
    """The conversation with a block where the library puts it."""
    system, *history = messages(case)
    assert system.type == "system"
    found, first = place(history, system, given, placement, inside_answers=inside)
    return [first, *found] if first is not None else found


def snapshot(given: Block) -> Block:
    """CURRENT alone."""
    return replace(given, text=CURRENT + given.text.split(CURRENT, 1)[1], facts="")


def _option(placement: Placement, phrasing: Phrasing) -> Arm:
    return lambda case, inside: placed(case, block(case, phrasing), placement, inside)


NAMED: dict[str, Arm] = {
    "no_sync": lambda case, inside: messages(case),
    "ceiling": lambda case, inside: messages(case, ceiling=True),
    "system_snapshot": lambda case, inside: placed(case, snapshot(block(case, "lines")), "system", inside),
    "system_changes": _option("system", "lines"),
    "default": _option("tail", "sentences"),
    "tail_lines": _option("tail", "lines"),
    "before": _option("before", "sentences"),
    "before_lines": _option("before", "lines"),
    "after": _option("after", "sentences"),
    "after_lines": _option("after", "lines"),
    "system": _option("system", "sentences"),
}
"""`default` is placement tail with sentences; `system_changes` is placement system with lines."""


# -- other forms -------------------------------------------------------------------------------------------------------


def _spelled(case: Case, history: str, parts: Sequence[str], inside: bool) -> Messages:
    given = block(case)
    before, current, after = given.text.partition(CURRENT)
    texts = {"Q": case.question, "R": case.question, "D": before.strip(), "C": current + after, "V": given.facts}
    said = messages(case)
    at = next(i for i in range(len(said) - 1, -1, -1) if isinstance(said[i], HumanMessage))
    past, answers = _history(history, case, said[:at]), said[at + 1 :]
    if not answers:
        return [*past, HumanMessage(_joined(texts[part] for part in parts))]
    # After a tool's answer the question has its place already.
    added = _joined(texts[part] for part in parts if part not in ("Q", "R"))
    if not inside:
        return [*past, *said[at:], HumanMessage(added)]
    last = answers[-1]
    return [*past, *said[at:-1], _replaced(last, _joined([text_of(last), added]))]


def _replaced(message: AnyMessage, text: str) -> AnyMessage:
    return message.model_copy(update={"content": text})


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(text for text in texts if text)


# -- the history in the request ----------------------------------------------------------------------------------------


def _history(how: str, case: Case, said: Messages) -> Messages:
    if how == "none":
        return said[:1]
    if how == "drop":
        return said if case.summary else _without(said, case)
    if how == "trim":
        return [said[0], *said[1:][-4:]]
    if how == "fixall":
        theirs = (AIMessage, HumanMessage) if case.summary else (AIMessage,)  # a summary stands in a person's message
        return [_replaced(one, _corrected(text_of(one), case)) if isinstance(one, theirs) else one for one in said]
    return said


def _without(said: Messages, case: Case) -> Messages:
    kept = said[:1]
    for asked_, answered in zip(said[1::2], said[2::2], strict=False):
        if case.title not in text_of(asked_) + text_of(answered):
            kept += [asked_, answered]
    return kept


def _corrected(text: str, case: Case) -> str:
    """An earlier answer, with what is true now where it holds a value that was recorded as changed since."""
    rows = {(row.entity_type, row.entity_id): row for row in case.batch.rows}
    for line in fold(case.events, rows, THREAD):
        for one in line.changes:
            if not one.known_before or one.name not in case.product.labels:
                continue
            about = case.product.field(one.name)
            for style in range(12):
                pattern = rf"(?<![\w,]){re.escape(spoken(about, one.before, style))}(?![\w])"
                if re.search(pattern, text):
                    return re.sub(pattern, spoken(about, one.now, style), text)
    return text
