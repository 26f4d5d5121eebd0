"""G17: changes that a block of `hub.write` applies in its own transaction, and the versions that it asks for."""

from __future__ import annotations

import asyncio
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import InputError, UnknownEntityError, VersionConflictError, agent, delete, insert, update, user
from planner import Item, Plan, declare, planner

WHO = agent("helper")


def block(door, hub, body, **options):
    """Runs a body in a `with` block, or the same in an `async with` block. Returns the transaction and what it returned."""
    if door.kind == "sync":
        with hub.write("w1", actor=WHO, **options) as tx:
            return tx, body(tx)

    async def run():
        async with hub.write("w1", actor=WHO, **options) as tx:
            return tx, await tx.run(body)

    return door.wait(run())


def test_g17_a_block_applies_changes_in_its_own_transaction(database, hubs, door):
    hub, engine = planner(database, hubs)

    def body(tx):
        mine = tx.get(Plan, "p1", version=1)
        known = tx.get(Item, 2)
        rows = tx.apply(
            update(Plan, "p1", version=1, title="new", move_in_date=dt.date(2026, 9, 30)),
            insert(Item, id=9, plan_id="p1", title="keys"),
            delete(Item, 2, version=3),
        )
        assert mine.title == "new"
        assert known not in tx.session
        assert [row and (row.entity_id, row.values["title"], row.version) for row in rows] == [
            ("p1", "new", None),
            ("9", "keys", None),
            None,
        ]
        assert "resident_number" not in rows[0].values
        return tx.version(Plan, "p1"), tx.version(Item, 9), tx.version(Item, 1), tx.lock(Plan, "p1")

    tx, versions = block(door, hub, body)
    assert versions == (4, 5, 2, 1)
    assert tx.revision == 6
    assert [e.revision for e in hub.blocking.history("w1")] == [6, 5, 4, 3, 2, 1]
    assert {e.actor for e in hub.blocking.history("w1", limit=3)} == {WHO}
    assert hub.blocking.row(Plan, "p1", "w1").version == 4
    assert hub.blocking.check() == []
    with Session(engine) as session:
        assert session.get(Plan, "p1").move_in_date == dt.date(2026, 9, 30)


def test_g17_a_block_writes_on_after_it_asked_for_a_version(database, hubs, door):
    hub, _engine = planner(database, hubs)

    def body(tx):
        versions = []
        for title in ("one", "two", "three"):
            tx.apply(update(Plan, "p1", title=title))
            versions.append(tx.version(Plan, "p1"))
            tx.session.execute(sa.update(Item).where(Item.id == 1).values(title=title))
        return versions

    tx, versions = block(door, hub, body)
    assert versions == [4, 6, 8]
    assert tx.revision == 9
    assert [e.revision for e in hub.blocking.history("w1", limit=6)] == [9, 8, 7, 6, 5, 4]
    assert hub.blocking.row(Item, "1", "w1").version == 9
    assert hub.blocking.check() == []


def test_g17_a_block_sees_what_it_added_before(database, hubs, door):
    hub, _engine = planner(database, hubs)

    def body(tx):
        tx.add(Plan(id="p2", workspace_id="w1", title="second"))
        return tx.apply(insert(Item.__table__, id=9, plan_id="p2", title="keys"))[0].values["plan_id"], tx.version(Plan, "p2")

    assert block(door, hub, body)[1] == ("p2", 4)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda: update(Plan, "p1", version=7, title="late"), VersionConflictError, "version 7 was read, it is 1"),
        (lambda: update(Plan, "p9", title="x"), UnknownEntityError, "no plan p9"),
        (lambda: delete(Plan, "q1"), UnknownEntityError, "no plan q1"),
        (lambda: update(Item, "seven", title="x"), UnknownEntityError, "seven"),
        (lambda: insert(Item, id=1, plan_id="p1", title="taken"), InputError, "refused"),
        (lambda: insert(Item, id=9, plan_id="none", title="x"), InputError, "refused"),
        (lambda: update(Item, 1, title=None), InputError, "refused"),
        (lambda: insert(Item, id=9, plan_id="q1", title="x"), InputError, "another workspace"),
        (lambda: update(Plan, "p1", workspace_id="w2"), InputError, "another workspace"),
        (lambda: update(Plan, "p1", titel="x"), InputError, "titel"),
        (lambda: "update", InputError, "str"),
    ],
)
def test_g17_what_a_block_may_not_apply_ends_it(database, hubs, door, change, kind, text):
    hub, engine = planner(database, hubs)
    with Session(engine) as session:
        session.add(Plan(id="q1", workspace_id="w2", title="theirs"))
        session.commit()

    def body(tx):
        tx.apply(update(Item, 2, title="not to be kept"))
        tx.apply(change())

    with pytest.raises(kind, match=text) as caught:
        block(door, hub, body)
    if kind is VersionConflictError:
        assert caught.value.row == hub.blocking.row(Plan, "p1", "w1")
    assert hub.blocking.batch("w1").head.revision == 3
    assert hub.blocking.batch("w2").head.revision == 1
    assert hub.blocking.check() == []


def test_g17_a_conflict_in_a_block_is_the_mutations_outcome(database, hubs, door):
    hub, _engine = planner(database, hubs)
    for _ in range(2):
        with pytest.raises(VersionConflictError) as caught:
            block(door, hub, lambda tx: tx.apply(update(Plan, "p1", version=9, title="x")), mutation="m1")
        assert (caught.value.expected, caught.value.version) == (9, 1)
        hub.blocking.apply("w1", update(Plan, "p1", title="moved"), actor=WHO)


def test_g18_a_block_knows_its_mutation(database, hubs, door):
    hub, _engine = planner(database, hubs)
    assert block(door, hub, lambda tx: tx.mutation, mutation="m1")[1] == "m1"
    assert block(door, hub, lambda tx: tx.mutation)[1] is None


def test_g17_all_of_it_is_awaited_on_an_event_loop(database, hubs, loop):
    hub, _engine = planner(database, hubs)

    async def screen() -> Any:
        async with hub.write("w1", actor=WHO, mutation="m") as tx:
            before = await tx.lock(Plan, "p1")
            (row,) = await tx.apply(update(Plan, "p1", version=before, title="x"))
            return before, row.values["title"], await tx.version(Plan, "p1"), tx.mutation

    assert asyncio.run_coroutine_threadsafe(screen(), loop).result(60) == (1, "x", 4, "m")


def test_g17_a_locked_row_waits_for_the_end_of_the_block(database, hubs):
    """Of two blocks that read the same version one wins: the version is compared under the row's lock."""
    hub, _engine = planner(database, hubs)
    other = declare(hubs(database))
    locked = Event()

    def late():
        locked.wait(30)
        other.blocking.apply("w1", update(Plan, "p1", version=1, title="late"), actor=user("u_1"))

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(late)
        with hub.write("w1", actor=WHO) as tx:
            assert tx.lock(Plan, "p1") == 1
            locked.set()
            tx.apply(update(Plan, "p1", version=1, title="first"))
        with pytest.raises(VersionConflictError):
            waiting.result(60)
    assert hub.blocking.row(Plan, "p1", "w1").values["title"] == "first"


def test_g04_a_block_that_asks_for_no_version_moves_no_head_before_its_end(postgres, hubs):
    """Changes in a block leave the workspace to other writers until it ends."""
    hub, _engine = planner(postgres, hubs)
    other = declare(hubs(postgres))
    with hub.write("w1", actor=WHO) as tx:
        tx.apply(update(Plan, "p1", title="slow"))
        assert other.blocking.apply("w1", update(Item, 1, title="quick"), actor=WHO).revision == 4
    assert tx.revision == 5
