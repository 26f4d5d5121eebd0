"""G16 with G8: however many rows change under a read rule, the batch is read; ids travel as one parameter."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from abreast import Budget, RunContext, user
from abreast.testing import ScriptedModel
from talk import CORNERS, block_of

NUMBER = 5000
CONTEXT = RunContext(tenant="t1", user="u", workspace="w1")


class Base(DeclarativeBase):
    pass


class Box(Base):
    __tablename__ = "box"
    id: Mapped[int] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    owner: Mapped[str]
    note: Mapped[str] = mapped_column(default="")


class Place(Base):
    __tablename__ = "place"
    room: Mapped[int] = mapped_column(primary_key=True)
    shelf: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    owner: Mapped[str]
    note: Mapped[str] = mapped_column(default="")


def key_of(model: Any, number: int) -> dict[str, Any]:
    return {"id": number} if model is Box else {"room": number, "shelf": f"s'{number}:x\"%"}


def asking(database: Any, hubs: Any, door: Any, model: Any, rule: Any) -> tuple[sa.Engine, Any]:
    """The engine, and a run of one conversation that returns its CHANGES and where it stands then."""
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = hubs(database)
    hub.track(model, workspace="workspace_id", record="all", readable=lambda context: rule)
    hub.blocking.install()
    scripted = ScriptedModel()
    agent = create_agent(scripted, middleware=[hub.middleware()], context_schema=RunContext, checkpointer=InMemorySaver())

    def run() -> tuple[list[str], dict[str, int]]:
        result = door(hub).run(agent, "What is new?", thread="t", context=CONTEXT)
        block = block_of(scripted.requests[-1]).split("\n\nCURRENT")[0]
        return block.splitlines()[1:] if block.startswith("CHANGES") else [], result.told

    return engine, run


@CORNERS
@pytest.mark.parametrize("model", [Box, Place])
@pytest.mark.parametrize("of_key", [True, False])
def test_g16_thousands_of_updates_and_deletions_under_a_rule(database, hubs, door, model, of_key):
    """A rule of the key alone speaks of deleted rows too; one that looks at the row keeps their deletions back."""
    number = model.id if model is Box else model.room
    engine, run = asking(database, hubs, door, model, number % 2 == 0 if of_key else model.owner == "u")
    common = {"workspace_id": "w1", "note": ""}
    rows = [key_of(model, n) | common | {"owner": "somebody else" if n % 2 else "u"} for n in range(2 * NUMBER)]
    with engine.begin() as connection:
        connection.execute(sa.insert(model), rows)
    run()
    with engine.begin() as connection:
        connection.execute(sa.update(model).where(number < NUMBER).values(note="new"))
    kind, start = model.__tablename__, 2 * NUMBER
    said, told = run()
    assert told == {"w1": start + NUMBER}
    assert [line.partition(", ")[2] for line in said] == [f"unknown, {kind} rows were changed {NUMBER // 2} times."]
    with engine.begin() as connection:
        connection.execute(sa.delete(model).where(number >= NUMBER))
    said, told = run()
    assert told == {"w1": start + 2 * NUMBER}
    assert [line.partition(", ")[2] for line in said] == ([f"unknown, {NUMBER // 2} {kind} rows were deleted."] if of_key else [])


KINDS: dict[str, tuple[Any, list[Any]]] = {
    "text": (sa.String(40), ["a'b", 'c"d', "일", "10", ":keys", "e%s"]),
    "char": (sa.CHAR(8), ["a", "bcd", "10"]),
    "integer": (sa.Integer, [1, -2, 2**31 - 1]),
    "bigint": (sa.BigInteger, [2**62 + 1, -(2**62) - 1, 7]),
    "date": (sa.Date, [dt.date(2026, 1, 2), dt.date(2026, 12, 31), dt.date(1999, 5, 5)]),
    "uuid": (sa.Uuid, [uuid.UUID(int=n) for n in (1, 2**100, 5)]),
    "uuid as text": (sa.Uuid(as_uuid=False), [str(uuid.UUID(int=n)) for n in (1, 2**100, 5)]),
}


@CORNERS
@pytest.mark.parametrize("kind", KINDS)
def test_g16_every_kind_of_key_is_found_among_many(database, hubs, door, kind):
    declared, keys = KINDS[kind]
    base: Any = type("Base", (DeclarativeBase,), {})
    columns = {
        "id": mapped_column(declared, primary_key=True),
        "workspace_id": mapped_column(sa.String(40)),
        "owner": mapped_column(sa.String(40)),
    }
    model: Any = type("Thing", (base,), {"__tablename__": "thing", **columns})
    engine = database.engine()
    base.metadata.create_all(engine)
    hub = hubs(database)
    hub.track(model, workspace="workspace_id", record="all", readable=lambda context: model.id != keys[-1])
    hub.blocking.install()
    with engine.begin() as connection:
        connection.execute(sa.insert(model), [{"id": key, "workspace_id": "w1", "owner": "u"} for key in keys])
    batch = door(hub).batch("w1", after=0, context=CONTEXT)
    found = {event.entity_id for event in batch.events}
    assert (len(found), {row.entity_id for row in batch.now.values()}) == (len(keys) - 1, found)
    with engine.begin() as connection:
        connection.execute(sa.delete(model))
    batch = door(hub).batch("w1", after=len(keys), context=CONTEXT)
    assert {event.entity_id for event in batch.events} == found
    assert batch.passed == 1


@CORNERS
@pytest.mark.parametrize("room", [60, 130])
def test_g16_what_waits_is_not_counted_with_what_this_person_may_not_read(database, hubs, door, room):
    """Three of fifty changes are his: whether the budget ends the batch or the limit, no number speaks of the others."""
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = hubs(database, limit=2 if room == 130 else 50, budget=Budget(changes=room if room == 60 else 6000))
    hub.track(Box, workspace="workspace_id", record="all", readable=lambda context: Box.owner == "u")
    hub.blocking.install()
    rows = [{"id": n, "workspace_id": "w1", "note": "", "owner": "u" if n < 3 else "x"} for n in range(50)]
    with engine.begin() as connection:
        connection.execute(sa.insert(Box), rows)
    scripted = ScriptedModel()
    agent = create_agent(scripted, middleware=[hub.middleware()], context_schema=RunContext, checkpointer=InMemorySaver())
    door(hub).run(agent, "What is there?", thread="t", context=CONTEXT)
    for n in range(50):
        with engine.begin() as connection, hub.attribute(connection, actor=user(f"u_{n % 2}")):
            connection.execute(sa.update(Box).where(Box.id == n).values(note=f"note {n}"))
    door(hub).run(agent, "What is new?", thread="t", context=CONTEXT)
    block = block_of(scripted.requests[-1]).split("\n\nCURRENT")[0]
    assert [line for line in block.splitlines() if "not listed" in line] == [
        "2 more changes are not listed here; CURRENT holds what they led to."
        if room == 60
        else "Later changes are not listed here; CURRENT holds what they led to."
    ]
