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
SEARCHED = 2_000
"""Rows whose every value is compared with the question; where there are more, only names are."""
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
_UNKNOWN = object()
_HANGUL = re.compile(r"[가-힣]")


@dataclass(frozen=True, slots=True)
class Facts:
    """The sentences, and the entities that the question touches."""

    text: str = ""
    touched: frozenset[Entity] = frozenset()


@dataclass(slots=True)
class _Subject:
    """One row that a question may touch, as it is or, where it is `gone`, as the log recorded it.

    `whole`: the row stands in CURRENT; otherwise nothing but what changed may be said of it. `formerly` are the titles that
    it had. `alike`: another row has its title.
    """

    workspace: str
    row: Row
    changed: Collection[str]
    gone: bool
    whole: bool
    formerly: tuple[str, ...] = ()
    alike: bool = False

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
    subjects = list(_subjects(batches, say))
    found = _touched(subjects, _alone(subjects, batches), asked, say)
    said = _Sentences(say, several=len(batches) > 1, asked=asked)
    if found:
        fields = _fields(found, asked.question, say)
        lines = [*said.unchanged(found, fields), *said.changed(found, fields), *said.gone(found, fields)]
    else:
        changed = [one for one in subjects if one.changed]
        fields = _fields(changed, asked.question, say)
        asked_for = [one for one in changed if not fields or one.row.entity_type in fields]
        lines = list(said.changed(asked_for, fields)) if len(asked_for) <= ROWS else []
    return Facts("\n".join(_fitting(lines, budget.facts, count)), frozenset(one.entity for one in found))


def _subjects(batches: Sequence[Batch], say: Wording) -> Iterator[_Subject]:
    there: set[tuple[str, str]] = set()
    if any(isinstance(event, ChangeEvent) and event.op == "delete" for batch in batches for event in batch.events):
        there = {(row.entity_type, row.entity_id) for batch in batches for row in (*batch.rows, *batch.now.values())}
    for batch in batches:
        history: dict[tuple[str, str], list[ChangeEvent]] = {}
        for event in batch.events:
            if isinstance(event, ChangeEvent):
                history.setdefault((event.entity_type, event.entity_id), []).append(event)
        made: list[_Subject] = []
        known = set()
        for rows, whole in ((batch.rows, True), (batch.now.values(), False)):
            for row in rows:
                entity = (row.entity_type, row.entity_id)
                if entity in known:
                    continue
                known.add(entity)
                if entity in history:
                    made.append(_that_changed(batch.workspace, row, history[entity], whole, say))
                else:
                    made.append(_Subject(batch.workspace, row, _NONE, False, whole))
        for entity, events in history.items():
            # A row that is gone here may have moved to another workspace that is followed too.
            if events[-1].op == "delete" and entity not in there:
                recorded = {name: values[0] for name, values in events[-1].values.items()}
                made.append(_Subject(batch.workspace, Row(*entity, recorded), _NONE, True, True))
        _tell_apart(made, say)
        yield from made


def _that_changed(workspace: str, row: Row, events: Sequence[ChangeEvent], whole: bool, say: Wording) -> _Subject:
    first: dict[str, Any] = {}
    fields: dict[str, None] = {}
    titles: dict[str, None] = {}
    title = say.titles.get(row.entity_type, "")
    for event in events:
        for name in event.fields:
            fields[name] = None
            if name in event.values:
                first.setdefault(name, event.values[name][0])
                if name == title and isinstance(event.values[name][0], str):
                    titles[event.values[name][0]] = None
            else:
                first.setdefault(name, _UNKNOWN)
    # What is again what it was before is not new to anybody.
    changed = [name for name in fields if first[name] is _UNKNOWN or first[name] != row.values.get(name, _UNKNOWN)]
    formerly = tuple(one for one in titles if one != row.values.get(title))
    return _Subject(workspace, row, changed, False, whole, formerly)


def _tell_apart(subjects: Sequence[_Subject], say: Wording) -> None:
    by_title: dict[tuple[str, Any], _Subject] = {}
    for one in subjects:
        title = one.row.values.get(say.titles.get(one.row.entity_type, ""))
        if isinstance(title, str):
            other = by_title.setdefault((one.row.entity_type, title), one)
            if other is not one:
                one.alike = other.alike = True


def _spoken(asked: Asked) -> str:
    return "\n".join((asked.question, *asked.earlier)).casefold()


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
    found = _best(names, asked.question)
    if not found and len(subjects) <= SEARCHED:
        found = _best(_texts(subjects, asked.question, say), asked.question)
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
    """What somebody calls a row: its title, also the one it had; its id, behind its noun if it is only a number."""
    found: list[_Named] = []
    for one in subjects:
        row = one.row
        title = row.values.get(say.titles.get(row.entity_type, ""))
        id = f"{_noun(row.entity_type, say)} {row.entity_id}" if row.entity_id.isdigit() else row.entity_id
        for text in (title, id, *one.formerly):
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
                if plain is not None and _words(plain[1]):  # "what is the" names nothing
                    found.append((*plain, one))
    return found


def _best(named: Sequence[_Named], text: str) -> list[_Subject]:
    """The rows whose text stands in `text`, in their own order; not where it is only part of a longer one that does."""
    words = _WORD.findall(text.casefold())
    whole = f" {' '.join(words)} "
    starts = set(words)
    if _HANGUL.search(text):
        # In Korean particles are written onto the word that they follow.
        starts.update(word[:length] for word in words if _HANGUL.search(word) for length in range(2, len(word)))
    standing = [(plain, subject) for first, plain, subject in named if first in starts and _stands(plain, whole)]
    longer = {plain for plain, _ in standing}
    if len(longer) > ROWS:
        return []  # a text that names so much is about nothing in particular
    meant = {plain for plain in longer if not any(plain != other and plain in other for other in longer)}
    return list({subject.entity: subject for plain, subject in standing if plain in meant}.values())


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


@dataclass(frozen=True)
class _Sentences:
    """`several`: workspaces are named. `asked`: what was said, so that a title that stands nowhere else is not told."""

    say: Wording
    several: bool
    asked: Asked

    def unchanged(self, found: Sequence[_Subject], fields: Mapping[str, frozenset[str]]) -> Iterator[str]:
        for one in found:
            if one.whole and not one.gone:
                for name in self._about(one, fields):
                    if name not in one.changed:
                        yield self._sentence(one, name, "is")

    def changed(self, found: Sequence[_Subject], fields: Mapping[str, frozenset[str]]) -> Iterator[str]:
        for one in found:
            if not one.gone:
                for name in self._about(one, fields):
                    if name in one.changed:
                        yield self._sentence(one, name, "is now")

    def gone(self, found: Sequence[_Subject], fields: Mapping[str, frozenset[str]]) -> Iterator[str]:
        for one in found:
            if not one.gone:
                continue
            named = self._named(one)
            names = self._about(one, fields) or sorted(fields.get(one.row.entity_type, ()))
            for name in names:
                yield f"The {self._label(one, name)} of {named} is gone, because {named} was deleted."
            if not names:
                yield f"{named[0].upper()}{named[1:]} was deleted."

    def _about(self, subject: _Subject, fields: Mapping[str, frozenset[str]]) -> list[str]:
        wanted = fields.get(subject.row.entity_type)
        if wanted is not None:
            return [name for name in _shown(subject, self.say) if name in wanted]
        # Where no field was asked for, long texts are left out: a remark is no answer, and the end of a request is no place
        # for what somebody wrote into one.
        return [name for name in _shown(subject, self.say) if len(str(subject.row.values[name])) <= UNASKED]

    def _sentence(self, subject: _Subject, name: str, verb: str) -> str:
        value = quoted(shortened(subject.row.values[name], VALUE))
        return f"The {self._label(subject, name)} of {self._named(subject)} {verb} {value}."

    def _label(self, subject: _Subject, name: str) -> str:
        return _bare(_label(subject.row.entity_type, name, self.say))

    def _named(self, subject: _Subject) -> str:
        row = subject.row
        noun = _bare(_noun(row.entity_type, self.say))
        where = f" in workspace {quoted(subject.workspace)}" if self.several else ""
        title: Any = row.values.get(self.say.titles.get(row.entity_type, ""))
        if not isinstance(title, str) or not title.strip() or not (subject.whole or title.casefold() in _spoken(self.asked)):
            return f"the {noun} {quoted(row.entity_id)}{where}"
        id = f" ({quoted(row.entity_id)})" if subject.alike else ""
        was = f" (formerly {quoted(shortened(subject.formerly[0], UNASKED))})" if subject.formerly else ""
        return f"the {noun} {quoted(shortened(title, UNASKED))}{id}{was}{where}"


def _label(kind: str, name: str, say: Wording) -> str:
    return say.labels.get(kind, {}).get(name) or name.replace("_", " ")


def _noun(kind: str, say: Wording) -> str:
    return say.nouns.get(kind) or kind.replace("_", " ")


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
