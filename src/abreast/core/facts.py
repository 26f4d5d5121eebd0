"""Facts: what a question touches, said in sentences. Pure: the same question and batches give the same sentences.

A small model that finds an old answer in its history repeats it, whatever stands in a table beside it; the same value as a
sentence, before the question and after it, is what it believes (measured: docs/guides/eval.md). Which row is meant is found
by words alone, so a miss costs sentences, never truth: everything said here stands in CURRENT and CHANGES too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from abreast.core.text import Wording, quoted, shortened
from abreast.types import Asked, Batch, Budget, ChangeEvent, CountTokens, Row

Entity = tuple[str, str, str]
"""Workspace, entity type and entity id."""

VALUE = 200
"""Characters of one value in a sentence."""
UNASKED = 60
"""Characters of a value that is said though its field was not asked for."""
MATCHED = 80
"""Characters of a value that somebody would say word for word."""
ROWS = 8
"""Rows that one question can touch; one that touches more is about no row in particular."""

_COMMON = frozenset({"the", "and", "what", "number", "now", "for"})
_WORD = re.compile(r"\w+")
_PARTICLE = re.compile(r"(?<=[가-힣]{2})(?:은|는|이|가|을|를|의)$")
_NONE: frozenset[str] = frozenset()
_HANGUL = re.compile(r"[가-힣]")


@dataclass(frozen=True, slots=True)
class Facts:
    """The sentences, and the entities that the question touches."""

    text: str = ""
    touched: frozenset[Entity] = frozenset()


@dataclass(slots=True)
class _Subject:
    """One row that a question may touch, as it is or, where it is `gone`, as the log recorded it."""

    workspace: str
    row: Row
    changed: Collection[str]
    gone: bool

    @property
    def entity(self) -> Entity:
        return self.workspace, self.row.entity_type, self.row.entity_id


def facts(batches: Sequence[Batch], asked: Asked, say: Wording, budget: Budget, count: CountTokens) -> Facts:
    """What is true now of what the question touches; what changed stands last.

    A row is touched if its title, its id or one of its values stands in the question word for word; or else if it is the
    only one of its type and the question names one of its fields; or else if its title stands in the newest message before
    that has one. Where nothing is touched, the changed fields are said. Of its fields those whose label or name shares the
    most words with the question; where none does, all with short values.
    """
    if budget.facts < 1:
        return Facts()
    subjects = list(_subjects(batches))
    alone = _alone(subjects, batches)
    found = _touched(subjects, alone, asked, say)
    if found:
        fields = _fields(found, asked.question, say)
        lines = [*_unchanged(found, fields, say), *_changed(found, fields, say), *_gone(found, fields, say)]
    else:
        changed = [one for one in subjects if one.changed]
        fields = _fields(changed, asked.question, say)
        asked_for = [one for one in changed if not fields or one.row.entity_type in fields]
        lines = list(_changed(asked_for, fields, say)) if len(asked_for) <= ROWS else []
    return Facts("\n".join(_fitting(lines, budget.facts, count)), frozenset(one.entity for one in found))


def _subjects(batches: Sequence[Batch]) -> Iterator[_Subject]:
    for batch in batches:
        changed: dict[tuple[str, str], set[str]] = {}
        gone: dict[tuple[str, str], ChangeEvent] = {}
        for event in batch.events:
            if not isinstance(event, ChangeEvent):
                continue
            entity = (event.entity_type, event.entity_id)
            if event.op == "delete":
                gone[entity] = event
            else:
                gone.pop(entity, None)
                changed.setdefault(entity, set()).update(event.fields)
        known = set()
        for rows in (batch.rows, batch.now.values()):
            for row in rows:
                entity = (row.entity_type, row.entity_id)
                if entity not in known:
                    known.add(entity)
                    yield _Subject(batch.workspace, row, changed.get(entity, _NONE), False)
        for entity, event in gone.items():
            if entity not in known:
                recorded = {name: values[0] for name, values in event.values.items()}
                yield _Subject(batch.workspace, Row(*entity, recorded), _NONE, True)


# -- which rows and fields ---------------------------------------------------------------------------------------------


def _alone(subjects: Sequence[_Subject], batches: Sequence[Batch]) -> list[_Subject]:
    """The rows that are the only ones of their type; not where loaders choose what is read, or more is there than was."""
    if any(batch.loaded or batch.left_out for batch in batches):
        return []
    by_type: dict[str, list[_Subject]] = {}
    for one in subjects:
        by_type.setdefault(one.row.entity_type, []).append(one)
    return [some[0] for some in by_type.values() if len(some) == 1 and not some[0].gone]


def _touched(subjects: Sequence[_Subject], alone: Sequence[_Subject], asked: Asked, say: Wording) -> list[_Subject]:
    names = _names(subjects, say)
    found = _best(names, asked.question) or _best(_texts(subjects, asked.question, say), asked.question)
    if not found and alone:
        named = _fields(alone, asked.question, say)
        found = [one for one in alone if one.row.entity_type in named]
    for text in asked.earlier if names else ():
        if found:
            break
        found = _best(names, text)
    return found if len(found) <= ROWS else []


_Named = tuple[str, str, _Subject]
"""The first word of a text, the text's words, and the row that has it."""


def _names(subjects: Sequence[_Subject], say: Wording) -> list[_Named]:
    """What somebody calls a row: its title; its id, if that is more than a number."""
    found: list[_Named] = []
    for one in subjects:
        row = one.row
        title = row.values.get(say.titles.get(row.entity_type, ""))
        for text in (title, None if row.entity_id.isdigit() else row.entity_id):
            plain = _plain(text) if type(text) is str else None
            if plain is not None:
                found.append((*plain, one))
    return found


def _texts(subjects: Sequence[_Subject], question: str, say: Wording) -> list[_Named]:
    """The other values of rows, as far as their first letter begins a word of the question."""
    letters = {word[0] for word in _WORD.findall(question.casefold())}
    found: list[_Named] = []
    for one in subjects:
        implied = say.implied.get(one.row.entity_type, ())
        for name, value in one.row.values.items():
            if type(value) is str and value[:1].casefold() in letters and name not in implied:
                plain = _plain(value)
                if plain is not None:
                    found.append((*plain, one))
    return found


def _best(named: Sequence[_Named], text: str) -> list[_Subject]:
    """The rows of the longest of these texts that stand in `text`, in their own order."""
    words = _WORD.findall(text.casefold())
    whole = f" {' '.join(words)} "
    starts = set(words)
    if _HANGUL.search(text):
        # In Korean particles are written onto the word that they follow.
        starts.update(word[:length] for word in words if _HANGUL.search(word) for length in range(2, len(word)))
    longest = 0
    found: dict[Entity, _Subject] = {}
    for first, plain, subject in named:
        if first in starts and len(plain) >= longest and _stands(plain, whole):
            if len(plain) > longest:
                longest, found = len(plain), {}
            found[subject.entity] = subject
    return list(found.values())


def _stands(plain: str, whole: str) -> bool:
    at = whole.find(f" {plain}")
    while at >= 0:
        end = whole[at + len(plain) + 1]
        if end == " " or _HANGUL.match(end):
            return True
        at = whole.find(f" {plain}", at + 1)
    return False


@lru_cache(maxsize=16384)
def _plain(text: str) -> tuple[str, str] | None:
    """The first word and all words of what somebody would say word for word; None for what tells too little or is too
    long for that."""
    if len(text) > MATCHED:
        return None
    words = _WORD.findall(text.casefold())
    plain = " ".join(words)
    telling = len(plain) > 2 or (len(plain) == 2 and (_HANGUL.match(plain) or not (plain.isalpha() or plain.isdigit())))
    return (words[0], plain) if telling else None


def _fields(found: Sequence[_Subject], question: str, say: Wording) -> Mapping[str, frozenset[str]]:
    """By entity type the fields whose label or name shares the most words with the question; a type is absent where none
    shares any."""
    asked = _words(question)
    chosen: dict[str, frozenset[str]] = {}
    # The rows of one type have the same fields, except that of a deleted one only what was recorded is known.
    for kind, some in {one.row.entity_type: one for one in sorted(found, key=lambda one: not one.gone)}.items():
        names = set(_shown(some, say))
        marks = {name: len(asked & _words(f"{name.replace('_', ' ')} {_label(kind, name, say)}")) for name in names}
        best = max(marks.values(), default=0)
        if best:
            chosen[kind] = frozenset(name for name, mark in marks.items() if mark == best)
    return chosen


@lru_cache(maxsize=1024)
def _words(text: str) -> frozenset[str]:
    """The words of a text that can tell one field from another."""
    found = (_PARTICLE.sub("", one) for one in _WORD.findall(text.casefold()))
    return frozenset(one for one in found if len(one) > (2 if one.isascii() else 1)) - _COMMON


def _shown(subject: _Subject, say: Wording) -> Iterator[str]:
    """The fields of a row that a sentence may be about: not its title or id, which name it, nor its workspace."""
    kind = subject.row.entity_type
    left_out = {say.titles.get(kind), *say.implied.get(kind, ()), *say.keys.get(kind, ())}
    return (name for name in subject.row.values if name not in left_out)


# -- sentences ---------------------------------------------------------------------------------------------------------


def _about(subject: _Subject, fields: Mapping[str, frozenset[str]], say: Wording) -> list[str]:
    wanted = fields.get(subject.row.entity_type)
    if wanted is not None:
        return [name for name in _shown(subject, say) if name in wanted]
    # Where no field was asked for, long texts are left out: a remark is no answer, and the end of a request is no place
    # for what somebody wrote into one.
    return [name for name in _shown(subject, say) if len(str(subject.row.values[name])) <= UNASKED]


def _unchanged(found: Sequence[_Subject], fields: Mapping[str, frozenset[str]], say: Wording) -> Iterator[str]:
    for one in found:
        for name in _about(one, fields, say):
            if not one.gone and name not in one.changed:
                yield _sentence(one, name, "is", found, say)


def _changed(found: Sequence[_Subject], fields: Mapping[str, frozenset[str]], say: Wording) -> Iterator[str]:
    for one in found:
        for name in _about(one, fields, say):
            if not one.gone and name in one.changed:
                yield _sentence(one, name, "is now", found, say)


def _gone(found: Sequence[_Subject], fields: Mapping[str, frozenset[str]], say: Wording) -> Iterator[str]:
    for one in found:
        if not one.gone:
            continue
        named = _named(one, found, say)
        names = _about(one, fields, say) or sorted(fields.get(one.row.entity_type, ()))
        for name in names:
            yield f"The {_label(one.row.entity_type, name, say)} of {named} is gone, because {named} was deleted."
        if not names:
            yield f"{named[0].upper()}{named[1:]} was deleted."


def _sentence(subject: _Subject, name: str, verb: str, among: Sequence[_Subject], say: Wording) -> str:
    value = quoted(shortened(subject.row.values[name], VALUE))
    return f"The {_label(subject.row.entity_type, name, say)} of {_named(subject, among, say)} {verb} {value}."


def _label(kind: str, name: str, say: Wording) -> str:
    return _bare(say.labels.get(kind, {}).get(name) or name.replace("_", " "))


def _named(subject: _Subject, among: Sequence[_Subject], say: Wording) -> str:
    kind = subject.row.entity_type
    noun = _bare(say.nouns.get(kind) or kind.replace("_", " "))
    title: Any = subject.row.values.get(say.titles.get(kind, ""))
    if not isinstance(title, str) or not title.strip():
        return f"the {noun} {quoted(subject.row.entity_id)}"
    named = f"the {noun} {quoted(shortened(title, VALUE))}"
    alike = [one for one in among if one.row.entity_type == kind and one.row.values.get(say.titles[kind]) == title]
    return f"{named} ({quoted(subject.row.entity_id)})" if len(alike) > 1 else named


@lru_cache(maxsize=1024)
def _bare(text: str) -> str:
    """What the application's developers call a thing, without quotes but on one line."""
    return quoted(text)[1:-1]


def _fitting(lines: Sequence[str], room: int, count: CountTokens) -> list[str]:
    """The last of these lines that fit: those about what changed."""
    kept: list[str] = []
    for line in reversed(lines):
        room -= count(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]
