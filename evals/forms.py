"""The arms: where the data as they are now stand in a request, in which order, and in which words.

Most arms are spelled by their parts, in the order in which they stand in the last message:

    Q   the question, as the person asked it
    D   the changes as abreast words them (`core.render`)
    C   the rows as one JSON object, as abreast words them
    S   the changes as sentences
    F   the rows as sentences
    T   the rows that the question touches, as sentences
    V   the facts that the question touches and what became of them, the changed ones last
    R   the question again
    N   a line that says that earlier answers may be out of date

After the letter of sentences: `n` values and titles bare, as people write them; `q` quoted, dates as people write them;
`0` without what a field was before; `w` always "is now".

Before a colon stands what happens to the history in the request: `as_is`; `fix` (earlier answers that hold an outdated
value say what is true now) and `fixall` (what was told in earlier turns, too); `mark` (such answers carry a note);
`drop` (without the turns about what the question touches); `trim` (only the last four messages); `none`; `sys` (CURRENT
in the system message); `note` (the last part is said by the assistant, before the question).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from abreast.agents.messages import place
from abreast.core.fold import FieldChange, Line, fold
from abreast.core.render import CHANGES, CURRENT, quoted, render
from abreast.types import Budget, Row
from evals.cases import THREAD, Case, messages
from evals.products import FieldOf, spoken

Messages = list[tuple[str, str]]
Arm = Callable[[Case], Messages]
BUDGET = Budget()


# -- what abreast does -------------------------------------------------------------------------------------------------


def block(case: Case) -> str:
    """The block of abreast as it is."""
    return render([case.batch], run="r", thread=THREAD, budget=BUDGET, wording=case.wording).text


def placed(case: Case, text: str, placement: Any) -> Messages:
    """The conversation with a text where abreast puts it."""
    said = messages(case)
    history: list[Any] = [HumanMessage(text) if role == "user" else AIMessage(text) for role, text in said[1:]]
    given, system = place(history, SystemMessage(said[0][1]), text, placement)
    everything = [system, *given] if system else given
    roles = {"system": "system", "human": "user", "ai": "assistant"}
    return [(roles[one.type], _text(one.content)) for one in everything]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def snapshot(case: Case) -> str:
    """CURRENT alone."""
    return CURRENT + block(case).split(CURRENT, 1)[1]


PROPOSED = "as_is:D C V0 Q V0 R"
"""The block as it is, what the question touches, the question, and both once more."""

NAMED: dict[str, Arm] = {
    "no_sync": messages,
    "ceiling": lambda case: messages(case, ceiling=True),
    "system_snapshot": lambda case: placed(case, snapshot(case), "system"),
    "system_changes": lambda case: placed(case, block(case), "system"),
    "default": lambda case: placed(case, block(case), "tail"),
    "proposed": lambda case: _spelled(case, PROPOSED),
    "proposed_corrected": lambda case: _spelled(case, PROPOSED.replace("as_is", "fixall")),
    "tail_snapshot": lambda case: placed(case, snapshot(case), "tail"),
}


# -- other forms -------------------------------------------------------------------------------------------------------


def arm(name: str) -> Arm:
    """The arm of this name."""
    return NAMED[name] if name in NAMED else lambda case: _spelled(case, name)


def _spelled(case: Case, name: str) -> Messages:
    history, _, parts = name.partition(":")
    said = messages(case)
    question = said[-1][1]
    texts = [text for part in parts.split() for text in [_part(part, case, question)] if text]
    past = _history(history, case, said[:-1])
    if history.startswith("sys"):
        past[0] = ("system", f"{past[0][1]}\n\n{snapshot(case)}")
    if history.endswith("note"):  # the last part is what the assistant says before the question
        past += [("user", "What is true now?"), ("assistant", texts.pop())]
    return [*past, ("user", "\n\n".join(texts))]


def _part(part: str, case: Case, question: str) -> str:
    lines = fold(
        case.batch.events,
        {(r.entity_type, r.entity_id): r for r in case.batch.rows},
        THREAD,
    )
    part, plain = part.rstrip("0"), part.endswith("0")  # 0: without what it was before
    if plain:
        lines = [
            replace(
                line,
                changes=tuple(replace(c, known_before=False) for c in line.changes),
            )
            for line in lines
        ]
    match part:
        case "Q" | "R":
            return question
        case "D":
            text = block(case).split("\n\n" + CURRENT)[0]
            return text if text.startswith(CHANGES) else ""
        case "C":
            return snapshot(case)
        case "S" | "Sn" | "Sp" | "Sq":
            said = [one for line in lines for one in change_sentences(line, case, part[1:])]
            return "\n".join(["What changed since you last answered:", *said]) if said else ""
        case "F" | "Fn" | "Fp":
            said = [row_sentence(row, case, part[1:]) for row in case.batch.rows]
            return "\n".join(["What is true now:", *said])
        case "T" | "Tn" | "Tp":
            said = touched(case, question, part[1:])
            return "\n".join(["What is true now:", *said]) if said else ""
        case _ if part.startswith("V"):
            return "\n".join(last_facts(lines, case, question, part[1:]))
        case "N":
            return "Earlier answers may be out of date. What is written here is true now."
    raise ValueError(f"There is no part {part}.")


def value_text(one: FieldOf, value: Any, how: str) -> str:
    """A value in a sentence: as JSON, `p` bare, `n` as people write it."""
    if how in ("n", "w"):
        return spoken(one, value, 0)
    if how == "q" and one.kind == "date":
        return quoted(spoken(one, value, 0))
    if how == "b" and one.kind == "date":
        return f"{quoted(value)} ({spoken(one, value, 0)})"
    return str(value) if how == "p" else quoted(value)


def _name(title: Any, case: Case, how: str) -> str:
    noun = case.product.noun
    return f"the {noun} {quoted(title)}" if how in ("", "q", "b") else f"the {title}"


def change_sentences(line: Line, case: Case, how: str) -> list[str]:
    """What one entity went through, as sentences."""
    rows = {row.entity_id: row for row in case.batch.rows}
    row = rows.get(line.entity_id)
    named = _name(row.values[case.product.title_field], case, how) if row else f"the {case.product.noun} {line.entity_id}"
    if line.happened != "changed":
        return [f"{named[0].upper()}{named[1:]} was {line.happened}."]
    return [_change(one, named, case, how) for one in line.changes]


def _change(one: FieldChange, named: str, case: Case, how: str) -> str:
    if one.name not in case.product.labels:
        return f"The {one.name} of {named} is now {quoted(one.now)}."
    about = case.product.field(one.name)
    was = f" (it was {value_text(about, one.before, how)})" if one.known_before else ""
    return f"The {about.label} of {named} is now {value_text(about, one.now, how)}{was}."


def row_sentence(row: Row, case: Case, how: str, only: Sequence[str] = ()) -> str:
    """A row as one sentence a field, on one line."""
    named = _name(row.values[case.product.title_field], case, how)
    said = []
    for name, value in row.values.items():
        if name in case.product.labels and (not only or name in only):
            about = case.product.field(name)
            said.append(f"The {about.label} of {named} is {value_text(about, value, how)}.")
    return " ".join(said)


def words(text: str) -> set[str]:
    """The words of a text that can tell one thing from another, without Korean particles."""
    found = {re.sub(r"(?<=[가-힣]{2})(?:은|는|이|가|을|를|의)$", "", one) for one in re.findall(r"\w+", text.casefold())}
    return {one for one in found if len(one) > (2 if one.isascii() else 1)} - _COMMON


_COMMON = frozenset({"the", "and", "what", "number", "now", "for"})


def touched_rows(case: Case, question: str, rows: Sequence[Row] | None = None) -> list[Row]:
    """The rows of which a value stands in the question, word for word: those with the longest."""
    asked = " ".join(re.findall(r"\w+", question.casefold()))
    best, found = 2, []
    for row in case.batch.rows if rows is None else rows:
        said = [" ".join(re.findall(r"\w+", value.casefold())) for value in row.values.values() if isinstance(value, str)]
        longest = max(
            (len(one) for one in said if re.search(rf"(?<!\w){re.escape(one)}(?![^\W가-힣])", asked)),
            default=0,
        )
        if longest > best:
            best, found = longest, [row]
        elif longest == best:
            found.append(row)
    return found


def touched_fields(case: Case, question: str) -> list[str]:
    """The fields whose label or name shares the most words with the question, if any does."""
    asked = words(question)
    marks = {name: len(asked & words(f"{name.replace('_', ' ')} {label}")) for name, label in case.product.labels.items()}
    best = max(marks.values())
    return [name for name, mark in marks.items() if mark == best and best > 0]


def touched(case: Case, question: str, how: str) -> list[str]:
    """Sentences about what the question touches."""
    rows, fields = touched_rows(case, question), touched_fields(case, question)
    return [row_sentence(row, case, how, fields) for row in rows]


def last_facts(lines: Sequence[Line], case: Case, question: str, how: str) -> list[str]:
    """Sentences about what the question touches, and what became of it; the changed ones last."""
    fields = touched_fields(case, question)
    meant = _meant(case, question)
    changed = {(line.entity_id, one.name): one for line in lines for one in line.changes}
    said: list[str] = []
    later: list[str] = []
    for row in touched_rows(case, meant):
        named = _name(row.values[case.product.title_field], case, how)
        for name in fields or case.product.labels:
            about = case.product.field(name)
            one = changed.get((row.entity_id, name))
            if one:
                later.append(_change(one, named, case, how))
            else:
                now = "is now" if how == "w" else "is"
                said.append(f"The {about.label} of {named} {now} {value_text(about, row.values[name], how)}.")
    return [*said, *later, *gone(case, meant, how, fields)]


def _meant(case: Case, question: str) -> str:
    """The question, or the newest message before it, whichever touches a row."""
    for _, text in [("user", question), *reversed(messages(case)[1:])]:
        if touched_rows(case, text) or gone(case, text, ""):
            return text
    return question


def gone(case: Case, question: str, how: str, fields: Sequence[str] = ()) -> list[str]:
    """Sentences about deleted rows that the question touches, by what the log recorded of them."""
    rows = [
        Row(
            one.entity_type,
            one.entity_id,
            {name: before for name, (before, _) in one.values.items()},
        )
        for one in case.batch.events
        if one.op == "delete"
    ]
    said = []
    for row in touched_rows(case, question, rows):
        named = _name(row.values[case.product.title_field], case, how)
        for name in fields or touched_fields(case, question) or row.values:
            said.append(f"The {case.product.labels.get(name, name)} of {named} is gone, because {named} was deleted.")
    return said


# -- the history in the request ----------------------------------------------------------------------------------------


def _history(how: str, case: Case, said: Messages) -> Messages:
    if how == "none":
        return said[:1]
    if how.startswith("drop"):
        return _without_touched(said, case)
    if how == "trim":
        return [said[0], *said[1:][-4:]]
    if how in ("fix", "fixall", "mark"):
        theirs = ("assistant", "user") if case.summary else ("assistant",)  # a summary stands in a person's message
        return [(role, _corrected(text, case, how) if role in theirs else text) for role, text in said]
    return said


def _without_touched(said: Messages, case: Case) -> Messages:
    """The history without the turns that were about a row that the question touches: its rows say it anew."""
    titles = {str(row.values[case.product.title_field]) for row in touched_rows(case, case.question)}
    kept = said[:1]
    for asked, answered in zip(said[1::2], said[2::2], strict=False):
        if not any(title in asked[1] or title in answered[1] for title in titles):
            kept += [asked, answered]
    return said if case.summary else kept


def _corrected(text: str, case: Case, how: str) -> str:
    """An earlier answer, corrected where it holds a value that was recorded as changed since."""
    rows = {(r.entity_type, r.entity_id): r for r in case.batch.rows}
    deleted = gone(case, text, "n")
    if deleted:
        return deleted[0] if how.startswith("fix") else f"{text} [Outdated: {deleted[0]}]"
    for line in fold(case.events if how == "fixall" else case.batch.events, rows, THREAD):
        for one in line.changes:
            if not one.known_before or one.name not in case.product.labels:
                continue
            about = case.product.field(one.name)
            for style in range(12):
                old, new = (
                    spoken(about, one.before, style),
                    spoken(about, one.now, style),
                )
                pattern = rf"(?<![\w,]){re.escape(old)}(?![\w])"
                if re.search(pattern, text):
                    if how.startswith("fix"):
                        return re.sub(pattern, new, text)
                    return f"{text} [Outdated: it is now {new}.]"
    return text
