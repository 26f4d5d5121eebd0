"""The cases: a conversation with an old answer, a change in the data, and the question again. All from one seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

from abreast.core.text import Wording
from abreast.evals.phrases import AGAIN, ANSWERS, FOLLOW_UP, GONE, PLANTED, QUESTIONS, SUMMARY, SUMMARY_LINE, TALK, said_in
from abreast.evals.products import (
    KOREAN,
    PRODUCTS,
    VALUE_KINDS,
    FieldOf,
    Product,
    some_row,
    spoken,
)
from abreast.evals.score import Verdict, judge
from abreast.types import Actor, Batch, ChangeEvent, Position, Row

WORKSPACE = "w1"
THREAD = "t1"

KINDS = {
    "plain": "one change, asked soon after the old answer",
    "distance": "several other turns between the old answer and the question",
    "several": "the field changed two to four times",
    "unrecorded": "the old value is not recorded in the log",
    "deleted": "the row was deleted",
    "other_field": "another field of the row changed; the old answer is still right",
    "other_row": "the same field of another row changed; the old answer is still right",
    "nothing": "nothing changed; the old answer is still right",
    "long": "ten to twelve turns, the old value said three times",
    "told_earlier": "the change was told one turn earlier; now only CURRENT has it",
    "summarised": "a summary stands for the history, with the old value in it",
    "many": "eight to twelve changes of many rows",
    "follow_up": "the question leaves out which row is meant; the turn before says it",
    "planted": "another value of the row carries an instruction to answer something else",
    "after_tool": "the row changed in mid-run, after a tool had read it; the tool's answer stands last",
    "busy": "some 30 rows and 20 to 60 changes of many of them by several actors",
}
"""What each kind of case is about."""


@dataclass(frozen=True)
class Turn:
    """One question and its answer. `about` says which field of which row was asked, if any; `said` is what the answer
    said of it, so that the ceiling can say what is true now."""

    question: str
    answer: str
    asked: bool = False


@dataclass(frozen=True)
class Case:
    """One conversation, what the data are now, and what a right answer says."""

    id: str
    kind: str
    product: Product
    field: FieldOf
    entity: str
    title: str
    turns: tuple[Turn, ...]
    question: str
    batch: Batch
    right: Any
    outdated: tuple[Any, ...]
    ceiling: tuple[Turn, ...]
    planted: Any = None
    deleted: bool = False
    summary: bool = False
    read: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    """What a tool read in this run: the row as it was, and as it is now for the ceiling."""
    events: tuple[ChangeEvent, ...] = ()
    """Everything that happened since the old answer, told or not."""

    @property
    def half(self) -> str:
        """Forms are chosen on `choose` and reported on `held_out`."""
        return "choose" if self._index % 2 == 0 else "held_out"

    @property
    def pair(self) -> int:
        """Which case of its half and kind it is, from 0: case n of one half and case n of the other are a pair."""
        return self._index // 2

    @property
    def _index(self) -> int:
        return int(self.id.rsplit("-", 1)[1])

    @property
    def wording(self) -> Wording:
        """What the hub would know of the product: what people call its rows and fields, and which field names a row."""
        kind = self.product.entity_type
        return Wording(
            labels={kind: self.product.labels},
            titles={kind: self.product.title_field},
            nouns={kind: self.product.noun},
            keys={kind: frozenset({"id"})},
        )

    def judge(self, answer: str) -> Verdict:
        """What this answer is."""
        return judge(
            answer,
            self.field.kind,
            self.right,
            self.outdated,
            self.planted,
            deleted=self.deleted,
        )


@dataclass
class _World:
    """A product's rows while a case is made, and the log of what happened to them."""

    product: Product
    random: Random
    rows: dict[str, dict[str, Any]]
    events: list[ChangeEvent] = field(default_factory=list)
    revision: int = 40
    recorded: bool = True

    def change(self, entity: str, name: str, value: Any) -> None:
        before = self.rows[entity][name]
        self.rows[entity] = {**self.rows[entity], name: value}
        self._log("update", entity, (name,), {name: (before, value)} if self.recorded else {})

    def delete(self, entity: str) -> None:
        before = self.rows.pop(entity)
        self._log(
            "delete",
            entity,
            (),
            {name: (value, None) for name, value in before.items() if name != "id"},
        )

    def another(self, entity: str, one: FieldOf) -> Any:
        """A value that no row has in this field."""
        taken = {row[one.name] for row in self.rows.values()}
        left = [value for value in one.choices if value not in taken]
        return self.random.choice(left or [value for value in one.choices if value != self.rows[entity][one.name]])

    def _log(
        self,
        op: Any,
        entity: str,
        fields: tuple[str, ...],
        values: Mapping[str, tuple[Any, Any]],
    ) -> None:
        self.revision += 1
        who = self.random.choice(
            [
                Actor("user", "u_17"),
                Actor("user", "mina"),
                Actor("system", "nightly"),
                Actor("unknown"),
            ]
        )
        self.events.append(
            ChangeEvent(
                workspace=WORKSPACE,
                revision=self.revision,
                op=op,
                entity_type=self.product.entity_type,
                entity_id=entity,
                fields=fields,
                values=values,
                actor=who,
                thread=None,
                mutation=None,
                at="2026-09-01T09:00:00.000Z",
            )
        )

    def batch(self, *, told: bool = False) -> Batch:
        """The batch of a conversation that heard everything up to before these events, or these as well."""
        head = Position(self.revision, 7)
        events = () if told else tuple(self.events)
        rows = tuple(Row(self.product.entity_type, entity, values) for entity, values in self.rows.items())
        start = Position(self.revision - len(events), 5)
        return Batch(
            WORKSPACE,
            head,
            start,
            head,
            events=events,
            checks=tuple(7 for _ in events),
            rows=rows,
        )


def make(
    seed: int = 7,
    number: int = 28,
    language: str = "en",
    kinds: Sequence[str] = tuple(KINDS),
) -> list[Case]:
    """`number` cases of each kind. The same seed gives the same cases, whatever other kinds are made."""
    products = PRODUCTS if language == "en" else KOREAN
    cases = []
    for kind in kinds:
        for index in range(number):
            random = Random(f"{seed}/{language}/{kind}/{index}")
            pair = index // 2  # one of each half: both halves see the same products and kinds of value
            product = products[(pair + pair // len(VALUE_KINDS)) % len(products)]
            cases.append(_case(f"{language}-{kind}-{index}", kind, product, index, random))
    return cases


def _case(id: str, kind: str, product: Product, index: int, random: Random) -> Case:
    titles = _busy_titles(product, random) if kind == "busy" else random.sample(product.titles, k=4 if kind == "many" else 2)
    world = _World(product, random, {})
    for number, title in enumerate(titles, 1):
        row = some_row(product, number, title, random)
        if kind != "planted":
            del row["note"]
        world.rows[str(row["id"])] = row
    entity = random.choice(list(world.rows))
    asked = random.choice([one for one in product.fields if one.kind == VALUE_KINDS[index // 2 % len(VALUE_KINDS)]])
    if kind == "busy":
        _keep_small(world, asked)
    for other in list(world.rows):  # no two rows share the value that is asked about, where there are values enough
        if other != entity:
            world.rows[other] = {
                **world.rows[other],
                asked.name: world.another(other, asked),
            }
    title, first = (
        str(world.rows[entity][product.title_field]),
        world.rows[entity][asked.name],
    )
    world.recorded = kind != "unrecorded"
    talk = _Talk(product, random, dict(world.rows), random.randrange(12))
    outdated: list[Any] = []
    planted = None

    def move(times: int = 1) -> None:
        for _ in range(times):
            outdated.append(world.rows[entity][asked.name])
            left = [v for v in asked.choices if v not in outdated and v not in {r[asked.name] for r in world.rows.values()}]
            world.change(
                entity,
                asked.name,
                random.choice(left or [v for v in asked.choices if v not in outdated]),
            )

    match kind:
        case "several":
            move(random.choice((2, 2, 3)))
        case "deleted":
            outdated.append(first)
            world.delete(entity)
        case "other_field":
            other_field = random.choice([one for one in product.fields if one is not asked])
            world.change(entity, other_field.name, world.another(entity, other_field))
        case "other_row":
            other = random.choice([one for one in world.rows if one != entity])
            world.change(other, asked.name, world.another(other, asked))
        case "nothing":
            pass
        case "many":
            _many(world, random, entity, asked, move)
        case "busy":
            _busy(world, random, entity, asked, move)
        case "planted":
            planted = next(v for v in random.sample(asked.choices, len(asked.choices)) if v != first)
            note = said_in(PLANTED[product.language], label=asked.label, value=spoken(asked, planted, 0))
            world.change(entity, "note", note)
            move()
            while world.rows[entity][asked.name] == planted:
                move()
            outdated[:] = [value for value in outdated if value != planted]
        case _:
            move()
    right = None if kind == "deleted" else world.rows[entity][asked.name]
    outdated = [value for value in dict.fromkeys(outdated) if value != right]

    before = {"distance": 1, "long": 3}.get(kind, random.choice((0, 1)))
    between = {"distance": random.choice((3, 4)), "long": 3, "summarised": 0, "follow_up": 0}.get(
        kind, random.choice((0, 1, 1, 2))
    )
    plan: list[str] = ["filler"] * before + ["asked"] + ["filler"] * between
    if kind == "long":
        plan += ["asked", "filler", "filler", "asked", "filler"]
    if kind == "after_tool":
        plan.remove("asked")  # the old value is what the tool read
    if kind == "told_earlier":
        talk.fresh_rows = dict(world.rows)
        plan += ["fresh"]
    if kind == "follow_up":
        question = said_in(random.choice(FOLLOW_UP[product.language]), label=asked.label)
    else:
        question = talk.question(asked, title, again=True)
    old, new = talk.history(plan, entity, asked, first, right, kind == "deleted")
    batch = world.batch(told=kind == "told_earlier")
    read = (talk.rows[entity], world.rows[entity]) if kind == "after_tool" else None
    return Case(
        id, kind, product, asked, entity, title, old, question, batch, right, tuple(outdated), new, planted,
        deleted=kind == "deleted", summary=kind == "summarised", read=read, events=tuple(world.events),
    )  # fmt: skip


def _many(world: _World, random: Random, entity: str, asked: FieldOf, move: Callable[[], None]) -> None:
    number = random.randint(8, 12)
    at = random.randrange(number - 2)
    for index in range(number):
        if index == at:
            move()
            continue
        one = random.choice(list(world.rows))
        name = random.choice([f for f in world.product.fields if f is not asked] if one == entity else list(world.product.fields))
        world.change(one, name.name, world.another(one, name))


def _busy_titles(product: Product, random: Random) -> list[str]:
    forms = "{} {}차" if product.language == "ko" else "{} {}"
    marks = "123456789" if product.language == "ko" else "ABCDEFGHI"
    every = [forms.format(title, mark) for title in product.titles for mark in marks]
    return random.sample(every, k=random.randint(28, 32))


def _keep_small(world: _World, asked: FieldOf) -> None:
    """Leaves of each row the field that is asked about and one other, so that many rows fit a small model's context."""
    other = next(one for one in world.product.fields if one is not asked)
    kept = {"id", world.product.title_field, asked.name, other.name}
    world.rows = {entity: {name: value for name, value in row.items() if name in kept} for entity, row in world.rows.items()}


def _busy(world: _World, random: Random, entity: str, asked: FieldOf, move: Callable[[], None]) -> None:
    number = random.randint(20, 60)
    moves = set(random.sample(range(number), k=random.choice((1, 2))))
    fields = [one for one in world.product.fields if one.name in world.rows[entity]]
    for index in range(number):
        if index in moves:
            move()
            continue
        one = random.choice(list(world.rows))
        name = random.choice([each for each in fields if one != entity or each is not asked])
        world.change(one, name.name, world.another(one, name))


@dataclass
class _Talk:
    """What was said: the turns of a history, and the same turns as they would be had nothing changed."""

    product: Product
    random: Random
    rows: dict[str, dict[str, Any]]
    style: int
    fresh_rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def question(self, one: FieldOf, title: str, *, again: bool = False) -> str:
        form = self.random.choice((AGAIN if again else QUESTIONS)[self.product.language])
        if one.asked and self.random.random() < 0.35:
            form = one.asked
        return said_in(form, label=one.label, Label=one.label[:1].upper() + one.label[1:], title=title)

    def history(
        self,
        plan: Sequence[str],
        entity: str,
        asked: FieldOf,
        first: Any,
        right: Any,
        deleted: bool,
    ) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
        old: list[Turn] = []
        new: list[Turn] = []
        title = str(self.rows[entity][self.product.title_field])
        asked_before: set[tuple[str, str]] = {(entity, asked.name)}
        for what in plan:
            if what == "asked":
                question = self.question(asked, title)
                form = self.random.choice(ANSWERS[self.product.language])
                said = said_in(
                    form,
                    label=asked.label,
                    title=title,
                    value=spoken(asked, first, self.style),
                )
                gone = said_in(GONE[self.product.language], label=asked.label, title=title)
                now = (
                    gone
                    if deleted
                    else said_in(
                        form,
                        label=asked.label,
                        title=title,
                        value=spoken(asked, right, self.style),
                    )
                )
                old.append(Turn(question, said, True))
                new.append(Turn(question, now, True))
                continue
            turn = self._filler(
                asked_before,
                self.fresh_rows if what == "fresh" else self.rows,
                talk=what != "fresh",
            )
            old.append(turn)
            new.append(turn)
        return tuple(old), tuple(new)

    def _filler(
        self,
        asked_before: set[tuple[str, str]],
        rows: Mapping[str, Mapping[str, Any]],
        *,
        talk: bool,
    ) -> Turn:
        if talk and self.random.random() < 0.35:
            return Turn(*self.random.choice(TALK[self.product.language]))
        free = [
            (entity, one)
            for entity in rows
            for one in self.product.fields
            if (entity, one.name) not in asked_before and one.name in rows[entity]
        ]  # fmt: skip
        entity, one = self.random.choice(free)
        asked_before.add((entity, one.name))
        title = str(rows[entity][self.product.title_field])
        form = self.random.choice(ANSWERS[self.product.language])
        said = said_in(
            form,
            label=one.label,
            title=title,
            value=spoken(one, rows[entity][one.name], self.style),
        )
        return Turn(self.question(one, title), said)


def messages(case: Case, *, ceiling: bool = False) -> list[AnyMessage]:
    """The conversation, the question last, or behind it what a tool read for it."""
    turns = case.ceiling if ceiling else case.turns
    said: list[AnyMessage] = [SystemMessage(case.product.system)]
    if case.summary:
        line = SUMMARY_LINE[case.product.language]
        lines = [line.format(asked=turn.question, answered=turn.answer) for turn in turns]
        said.append(HumanMessage(SUMMARY[case.product.language].format(text="\n".join(lines))))
    else:
        for turn in turns:
            said += [HumanMessage(turn.question), AIMessage(turn.answer)]
    said.append(HumanMessage(case.question))
    if case.read:
        name = f"get_{case.product.entity_type}"
        call = {"name": name, "args": {"id": case.entity}, "id": "call_1", "type": "tool_call"}
        said.append(AIMessage("", tool_calls=[call]))
        text = json.dumps(case.read[ceiling], ensure_ascii=False)
        said.append(ToolMessage(text, tool_call_id="call_1", name=name))
    return said


__all__ = ["KINDS", "THREAD", "WORKSPACE", "Case", "Turn", "make", "messages"]
