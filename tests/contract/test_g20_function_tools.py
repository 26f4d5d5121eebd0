"""G20, with G16, G17 and G19's context, for `hub.tool`: what a model is told, who may call it, and what ends or pauses a run."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from threading import Event
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column

from abreast import (
    AsyncTransaction,
    MutationId,
    Readable,
    Transaction,
)
from abreast.testing import calls
from caller import append, by_hand, kept, request_of, title, writing
from planner import CONTEXT, Plan, declare
from talk import CORNERS, Talk

SECRET = "postgresql://app:hunter2@db/prod"


def told(result) -> dict[str, ToolMessage]:
    return {m.tool_call_id: m for m in result.state["messages"] if isinstance(m, ToolMessage)}


# -- siblings --------------------------------------------------------------------------------------------------------


def test_g20_of_four_tools_at_once_one_writes_one_raises_one_conflicts_and_one_waits_for_a_person(database, hubs, door, caplog):
    """All four end as promised; the resume runs only the one that waited, under the mutation that it had."""
    caplog.set_level(logging.ERROR, logger="abreast")
    talk = Talk(database, hubs, door)
    ran: list[tuple[str, str]] = []

    def note(tx, name):
        ran.append((name, tx.mutation))

    def put(tx, text):
        note(tx, "put")
        return append(tx, text)

    def broken(tx, text):
        note(tx, "broken")
        append(tx, "never")
        raise ValueError(f"cannot reach {SECRET}")

    def stale(tx, text):
        note(tx, "stale")
        append(tx, "never")
        tx.get(Plan, "p2", version=0)

    def asking(tx, text):
        note(tx, "asking")
        answer = interrupt({"sure": text})
        return append(tx, answer)

    bodies = {"put": put, "broken": broken, "stale": stale, "asking": asking}
    tools = [writing(talk, name, body) for name, body in bodies.items()]
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'second')")
    talk.say(AIMessage("", tool_calls=[{"name": name, "args": {"text": "1"}, "id": name} for name in bodies]), "ok")
    built = talk.build(tools)
    paused = talk.run(agent=built)
    assert paused.status == "awaiting_approval"
    assert [one.value for one in paused.interrupts] == [{"sure": "1"}]
    assert sorted(name for name, _ in ran) == sorted(bodies)
    assert title(talk.engine) == "Mapo1"
    result = talk.run(Command(resume="2"), agent=built)
    assert result.status == "succeeded"
    assert sorted(name for name, _ in ran) == sorted([*bodies, "asking"])
    assert len({mutation for name, mutation in ran if name == "asking"}) == 1
    assert title(talk.engine) == "Mapo12"
    answers = told(result)
    assert {name: answer.status for name, answer in answers.items()} == {
        "put": "success",
        "broken": "error",
        "stale": "error",
        "asking": "success",
    }
    assert "hunter2" not in str([answer.content for answer in answers.values()])
    assert "reference" in json.loads(answers["broken"].content)["error"]
    assert json.loads(answers["stale"].content)["current"]["title"] == "second"
    assert any(SECRET in str(record.exc_info) for record in caplog.records)
    assert kept(talk.engine) == 3  # two that wrote, and the conflict
    assert talk.hub.blocking.check() == []


@CORNERS
def test_g20_an_interrupt_in_an_effect_leaves_nothing_and_the_resume_makes_it_under_its_key(database, hubs, door):
    talk = Talk(database, hubs, door)
    keys: list[str] = []
    sent: list[str] = []

    def send(key, to):
        keys.append(key)
        sent.append(f"{to} {interrupt('sure?')}")
        return "sent"

    @talk.hub.tool
    def mail(to: str, key: MutationId) -> str:
        """Sends."""
        return send(key, to)

    @talk.hub.tool
    async def amail(to: str, key: MutationId) -> str:
        """Sends."""
        return send(key, to)

    tool = mail if door.kind == "sync" else amail
    built = talk.build([tool])
    talk.say(calls(tool.name, to="kim"), "ok")
    assert talk.run(agent=built).status == "awaiting_approval"
    assert kept(talk.engine) == 0
    result = talk.run(Command(resume="yes"), agent=built)
    assert told(result)["call_1"].content == "sent"
    assert sent == ["kim yes"]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert kept(talk.engine) == 1


@CORNERS
def test_g20_a_persons_answer_that_does_not_fit_is_not_the_models_fault_and_can_be_given_again(database, hubs, door):
    talk = Talk(database, hubs, door)

    @talk.hub.tool
    def ask() -> str:
        """Asks."""
        return f"{interrupt('how many?', response_schema=int)} rooms"

    built = talk.build([ask])
    talk.say(calls("ask"), "ok")
    talk.run(agent=built)
    with pytest.raises(Exception, match="valid integer"):
        talk.run(Command(resume="many"), agent=built)
    assert told(talk.run(Command(resume=3), agent=built))["call_1"].content == "3 rooms"


# -- cancellation ----------------------------------------------------------------------------------------------------


async def cancelled(talk, built, begun, release=None):
    """A run that is cancelled inside its tool."""
    task = asyncio.ensure_future(talk.hub.run(built, "q", thread="t", context=CONTEXT))
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    if release is not None:
        asyncio.get_running_loop().call_soon(release.set)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("door", ["async"], indirect=True)
def test_g20_a_cancelled_run_has_written_nothing_and_goes_on_with_the_same_write(database, hubs, door):
    talk = Talk(database, hubs, door)
    begun, seen = Event(), []

    @talk.hub.tool
    async def put(tx: AsyncTransaction, text: str) -> str:
        """Writes."""
        await tx.run(lambda tx: append(tx, text))
        seen.append(tx.mutation)
        if len(seen) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "done"

    talk.say(calls("put", text="!"), "ok")
    built = talk.build([put])
    door.wait(cancelled(talk, built, begun))
    assert title(talk.engine) == "Mapo"
    assert kept(talk.engine) == 0
    assert told(talk.run(None, agent=built))["call_1"].content == "done"
    assert title(talk.engine) == "Mapo!"
    assert len(set(seen)) == 1


@pytest.mark.parametrize("door", ["async"], indirect=True)
def test_g20_a_plain_function_whose_run_was_cancelled_is_rolled_back_when_it_returns(database, hubs, door):
    """Nobody can stop its thread; but what it writes is not kept, and the run does not end before that is sure."""
    talk = Talk(database, hubs, door)
    begun, release, seen = Event(), Event(), []

    @talk.hub.tool
    def put(tx: Transaction, text: str) -> str:
        """Writes."""
        append(tx, text)
        seen.append(tx.mutation)
        begun.set()
        assert release.wait(30)
        return "done"

    talk.say(calls("put", text="!"), "ok")
    built = talk.build([put])
    door.wait(cancelled(talk, built, begun, release))
    assert release.is_set()
    assert title(talk.engine) == "Mapo"
    assert kept(talk.engine) == 0
    assert told(talk.run(None, agent=built))["call_1"].content == "done"
    assert title(talk.engine) == "Mapo!"
    assert len(set(seen)) == 1


@pytest.mark.parametrize("door", ["async"], indirect=True)
def test_g18_a_plain_effect_whose_run_was_cancelled_has_its_outcome(database, hubs, door):
    talk = Talk(database, hubs, door)
    begun, release, keys = Event(), Event(), []

    @talk.hub.tool
    def mail(to: str, key: MutationId) -> str:
        """Sends."""
        keys.append(key)
        begun.set()
        assert release.wait(30)
        return "sent"

    talk.say(calls("mail", to="kim"), "ok")
    built = talk.build([mail])
    door.wait(cancelled(talk, built, begun, release))
    assert told(talk.run(None, agent=built))["call_1"].content == "sent"
    assert len(keys) == 1


@pytest.mark.parametrize("door", ["async"], indirect=True)
def test_g18_an_asynchronous_effect_whose_run_was_cancelled_has_an_unknown_outcome(database, hubs, door):
    talk = Talk(database, hubs, door)
    begun, keys = Event(), []

    @talk.hub.tool
    async def mail(to: str, key: MutationId) -> str:
        """Sends."""
        keys.append(key)
        begun.set()
        await asyncio.Event().wait()
        return "sent"

    talk.say(calls("mail", to="kim"), "ok")
    built = talk.build([mail])
    door.wait(cancelled(talk, built, begun))
    answer = told(talk.run(None, agent=built))["call_1"]
    assert (answer.status, json.loads(answer.content)["outcome"]) == ("error", "unknown")
    assert len(keys) == 1


class Told(ThreadPoolExecutor):
    """Threads, and an event that says when one is asked for."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.asked = asyncio.Event()

    def submit(self, *arguments: Any, **named: Any) -> Any:
        self.asked.set()
        return super().submit(*arguments, **named)


def test_g20_a_call_that_was_cancelled_before_a_thread_was_free_does_nothing(database, hubs):
    hub = declare(hubs(database))
    keys: list[str] = []

    @hub.tool
    def mail(key: MutationId) -> str:
        """Sends."""
        keys.append(key)
        return "sent"

    async def crowded() -> None:
        release = Event()
        loop = asyncio.get_running_loop()
        pool = Told(1)
        loop.set_default_executor(pool)
        ahead = loop.run_in_executor(None, release.wait, 30)
        pool.asked.clear()
        call = asyncio.ensure_future(mail.ainvoke(request_of(mail, by_hand())))
        await pool.asked.wait()
        call.cancel()
        loop.call_soon(release.set)
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await ahead

    asyncio.run(crowded())
    assert keys == []


# -- what a model is told --------------------------------------------------------------------------------------------


class Place(Enum):
    HOME = "home"


@dataclass
class Booking:
    day: dt.date
    price: Decimal


class MappedBase(MappedAsDataclass, DeclarativeBase):
    pass


class Hotel(MappedBase):
    """A row that is a dataclass too."""

    __tablename__ = "hotel"
    id: Mapped[int] = mapped_column(primary_key=True)


class Answer(BaseModel):
    bookings: list[Booking]
    at: dt.datetime
    id: uuid.UUID
    place: Place
    secret: str = Field(exclude=True)


@CORNERS
def test_g20_a_return_value_is_converted_as_a_loaders_is(database, hubs, door):
    talk = Talk(database, hubs, door)
    number = uuid.UUID(int=1)
    at = dt.datetime(2026, 9, 30, 9, tzinfo=dt.timezone(dt.timedelta(hours=9)))

    def body(tx, text):
        booking = Booking(dt.date(2026, 9, 30), Decimal("1.50"))
        return Answer(bookings=[booking], at=at, id=number, place=Place.HOME, secret="hunter2")

    talk.say(calls("put", text="a"), "ok")
    answer = told(talk.run(agent=talk.build([writing(talk, "put", body)])))["call_1"]
    assert json.loads(answer.content) == {
        "bookings": [{"day": "2026-09-30", "price": "1.50"}],
        "at": "2026-09-30T00:00:00Z",
        "id": str(number),
        "place": "HOME",
    }


@CORNERS
def test_g20_a_return_value_that_is_no_json_is_rolled_back_and_told_to_the_developer(database, hubs, door, caplog):
    talk = Talk(database, hubs, door)

    def body(tx, text):
        append(tx, text)
        itself: list[Any] = []
        itself.append(itself)
        bad = {
            "object": object(),
            "nan": float("nan"),
            "row": tx.get(Plan, "p1"),
            "hotel": Hotel(1),
            "itself": itself,
            "keys": {1: 2},
        }
        return {"plans": [{"found": bad[text]}]}

    built = talk.build([writing(talk, "put", body)])
    wrong = ("object", "nan", "row", "hotel", "itself", "keys")
    talk.say(*(calls("put", call_id=one, text=one) for one in wrong), "ok")
    result = talk.run(agent=built)
    assert title(talk.engine) == "Mapo"
    assert [answer.status for answer in told(result).values()] == ["error"] * len(wrong)
    assert "JSON" not in str(told(result))
    reasons = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    where = ["the answer" if one == "itself" else "the answer.plans[0].found" for one in wrong]
    assert [f" at {place}" in reason for place, reason in zip(where, reasons, strict=True)] == [True] * len(wrong)
    assert [reason.startswith("The tool put returned what is not JSON") for reason in reasons] == [True] * len(wrong)
    assert kept(talk.engine) == 0


@CORNERS
def test_g20_what_the_database_refuses_is_told_and_nothing_of_it_stays(database, hubs, door):
    talk = Talk(database, hubs, door)

    def body(tx, text):
        append(tx, text)
        tx.add(Plan(id="p1", workspace_id="w1"))
        tx.session.expunge(tx.session.get(Plan, "p1"))
        tx.add(Plan(id="p1", workspace_id="w1"))
        tx.session.flush()

    talk.say(calls("put", text="!"), "ok")
    answer = told(talk.run(agent=talk.build([writing(talk, "put", body)])))["call_1"]
    assert "The database refused this write" in answer.content
    assert answer.status == "error"
    assert title(talk.engine) == "Mapo"


@CORNERS
def test_g20_a_tool_without_a_write_is_told_its_errors_and_is_not_tried_again(database, hubs, door):
    talk = Talk(database, hubs, door)
    runs: list[str] = []

    def fail(what: str) -> dict[str, str]:
        runs.append(what)
        if what == "network":
            raise ConnectionResetError(SECRET)
        if what == "bug":
            raise KeyError(SECRET)
        return {"found": what}

    @talk.hub.tool
    def look(what: str) -> dict[str, str]:
        """Looks."""
        return fail(what)

    @talk.hub.tool
    async def alook(what: str) -> dict[str, str]:
        """Looks."""
        return fail(what)

    tool = look if door.kind == "sync" else alook
    talk.say(*(calls(tool.name, call_id=what, what=what) for what in ("network", "bug", "it")), "ok")
    answers = told(talk.run(agent=talk.build([tool])))
    assert runs == ["network", "bug", "it"]
    assert [answers[what].status for what in runs] == ["error", "error", "success"]
    assert answers["it"].content == '{"found": "it"}'
    assert "hunter2" not in str(answers)
    assert kept(talk.engine) == 0


@CORNERS
def test_g16_a_conflict_shows_only_what_this_person_may_read(database, hubs, door):
    def readable(context):
        return Readable(Plan.id != "p2", hide={"budget"})

    talk = Talk(database, hubs, door, plan={"readable": readable})
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'hidden canary')")

    def body(tx, text):
        tx.get(Plan, text, version=0)

    talk.say(calls("move", call_id="a", text="p1"), calls("move", call_id="b", text="p2"), "ok")
    answers = told(talk.run(agent=talk.build([writing(talk, "move", body)])))
    current = json.loads(answers["a"].content)["current"]
    assert (current["id"], current["version"], current["title"]) == ("p1", 1, "Mapo")
    assert "budget" not in current
    assert "resident_number" not in current
    assert "canary" not in answers["b"].content
    assert "There is no plan" in answers["b"].content


@CORNERS
def test_g17_after_a_conflict_the_call_with_the_new_version_is_a_new_write(database, hubs, door):
    talk = Talk(database, hubs, door)

    def body(tx, text):
        tx.get(Plan, "p1", version=int(text)).title = "moved"
        return "done"

    talk.say(
        calls("move", call_id="a", text="0"), calls("move", call_id="b", text="0"), calls("move", call_id="c", text="1"), "ok"
    )
    answers = told(talk.run(agent=talk.build([writing(talk, "move", body)])))
    assert [answers[one].status for one in "abc"] == ["error", "error", "success"]
    assert title(talk.engine) == "moved"
