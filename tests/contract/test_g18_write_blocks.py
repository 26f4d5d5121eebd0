"""G17 and G18 for `hub.write`: the screen's own code in a governed transaction, with either kind of block."""

from __future__ import annotations

import asyncio
import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import (
    ConfigurationError,
    InputError,
    MutationReusedError,
    RefusedError,
    UnavailableError,
    UnknownEntityError,
    VersionConflictError,
    agent,
    update,
    user,
)
from planner import Item, Plan, declare, planner

WHO = user("u_123")


def block(door, hub, body, **options):
    """Runs a body in a `with` block, or the same in an `async with` block. Returns the transaction and what it returned."""
    options.setdefault("actor", WHO)
    if door.kind == "sync":
        with hub.write("w1", **options) as tx:
            return tx, body(tx)

    async def run():
        async with hub.write("w1", **options) as tx:
            return tx, tx.outcome if tx.repeated else await tx.run(body)

    return door.wait(run())


def plan(engine, key="p1"):
    with Session(engine, expire_on_commit=False) as session:
        return session.get(Plan, key)


def last(hub, number=1):
    return hub.blocking.history("w1", limit=number)


def test_g17_the_screens_write_path(database, hubs):
    hub, engine = planner(database, hubs)
    with hub.write("w1", actor=user("u_123")) as tx:
        tx.get(Plan, "p1", version=1).move_in_date = dt.date(2026, 9, 30)
    assert tx.revision == 4
    assert plan(engine).move_in_date == dt.date(2026, 9, 30)
    (event,) = last(hub)
    assert (event.op, event.fields, event.actor) == ("update", ("move_in_date",), user("u_123"))


def test_g17_the_same_on_an_event_loop(database, hubs, loop):
    hub, _engine = planner(database, hubs)

    async def screen():
        async with hub.write("w1", actor=WHO, thread="t1") as tx:
            found = await tx.get(Plan, "p1", version=1)
            found.title = "theirs"
            tx.add(Item(id=9, plan_id="p1", title="keys"))
            await tx.delete(await tx.get(Item, 2))
        return tx.revision, found.title

    assert asyncio.run_coroutine_threadsafe(screen(), loop).result(60) == (6, "theirs")
    assert {(event.op, event.actor, event.thread) for event in last(hub, 3)} == {
        ("update", WHO, "t1"),
        ("insert", WHO, "t1"),
        ("delete", WHO, "t1"),
    }


def test_g17_add_and_delete_and_the_session(database, hubs, door):
    hub, _engine = planner(database, hubs)

    def body(tx):
        tx.add(Plan(id="p2", workspace_id="w1", title="new"), Item(id=9, plan_id="p1", title="keys"))
        tx.delete(tx.get(Item, 1))
        tx.session.execute(sa.update(Item).where(Item.id == 2).values(done=True))
        return tx.session.scalar(sa.select(sa.func.count()).select_from(Plan))

    tx, counted = block(door, hub, body)
    assert (tx.revision, counted) == (7, 2)
    assert {event.actor for event in last(hub, 4)} == {WHO}
    assert hub.blocking.check() == []


def test_g17_a_row_that_moved_ends_the_block(database, hubs, door):
    hub, _engine = planner(database, hubs)
    hub.blocking.apply("w1", update(Plan, "p1", title="moved"), actor=WHO)

    def body(tx):
        tx.get(Item, 1).title = "not to be kept"
        tx.session.flush()
        tx.get(Plan, "p1", version=1).title = "late"

    with pytest.raises(VersionConflictError) as caught:
        block(door, hub, body)
    assert (caught.value.version, caught.value.row.values["title"]) == (4, "moved")
    assert "resident_number" not in caught.value.row.values
    assert caught.value.row == hub.blocking.row(Plan, "p1", "w1")
    assert len(last(hub, 99)) == 4
    with pytest.raises(UnknownEntityError):
        block(door, hub, lambda tx: tx.get(Plan, "p9"))


def test_g17_a_row_is_locked_before_its_version_is_read(database, hubs):
    """Two screens that read the same version and come at the same time: one wins."""
    hub, _engine = planner(database, hubs)
    other = declare(hubs(database))
    version = 1
    for number in range(6):

        def write(which, one, version=version, number=number):
            try:
                with one.write("w1", actor=user(which)) as tx:
                    tx.get(Plan, "p1", version=version).title = f"{which} {number}"
                return tx.revision
            except VersionConflictError as conflict:
                return conflict

        with ThreadPoolExecutor(2) as threads:
            outcomes = list(threads.map(write, ("a", "b"), (hub, other)))
        (version,) = [one for one in outcomes if isinstance(one, int)]
        (error,) = [one for one in outcomes if isinstance(one, VersionConflictError)]
        assert error.version == version


def test_g17_ones_own_changes_do_not_move_the_row(database, hubs, door):
    hub, _ = planner(database, hubs)

    def body(tx):
        tx.get(Plan, "p1", version=1).title = "first"
        tx.session.flush()
        tx.get(Plan, "p1", version=1).title = "second"

    block(door, hub, body)
    assert hub.blocking.row(Plan, "p1", "w1").values["title"] == "second"


def test_g17_what_belongs_to_another_workspace_is_not_kept(database, hubs, door):
    hub, engine = planner(database, hubs)
    with Session(engine) as session:
        session.add(Plan(id="q1", workspace_id="w2", title="theirs"))
        session.commit()
    with pytest.raises(UnknownEntityError):
        block(door, hub, lambda tx: tx.get(Plan, "q1"))
    for body in (
        lambda tx: tx.add(Plan(id="q2", workspace_id="w2")),
        lambda tx: tx.add(Item(id=9, plan_id="q1", title="keys")),
        lambda tx: setattr(tx.get(Plan, "p1"), "workspace_id", "w2"),
        lambda tx: tx.session.execute(sa.text("update plan set title = 'mine'")),
    ):
        with pytest.raises(InputError, match="another workspace"):
            block(door, hub, body)
    assert (plan(engine).title, plan(engine, "q1").title, plan(engine, "q2")) == ("Mapo", "theirs", None)
    block(door, hub, lambda tx: setattr(tx.get(Plan, "p1"), "title", "goes on"))
    assert hub.blocking.check() == []


def test_g17_an_exception_keeps_nothing(database, hubs, door):
    hub, engine = planner(database, hubs)

    def body(tx):
        tx.get(Plan, "p1").title = "not to be kept"
        tx.session.flush()
        raise KeyError("the application's own")

    with pytest.raises(KeyError):
        block(door, hub, body, mutation="m1")
    with pytest.raises(sa.exc.IntegrityError):
        block(door, hub, lambda tx: tx.add(Plan(id="p1", workspace_id="w1")), mutation="m1")
    assert plan(engine).title == "Mapo"
    block(door, hub, lambda tx: setattr(tx.get(Plan, "p1"), "title", "mine"), mutation="m1")
    assert plan(engine).title == "mine"
    with Session(engine) as session:  # who wrote is forgotten
        session.get(Plan, "p1").title = "nobody's"
        session.commit()
    assert last(hub)[0].actor.type == "unknown"


def test_g18_a_block_runs_once(database, hubs, door):
    hub, _engine = planner(database, hubs)
    ran = []

    def body(tx):
        if tx.repeated:
            return tx.outcome
        ran.append(1)
        tx.add(Item(id=9, plan_id="p1", title="keys"))
        return tx.returns({"id": 9})

    outcomes = [block(door, hub, body, mutation="m1") for _ in range(3)]
    assert [outcome for _, outcome in outcomes] == [{"id": 9}] * 3
    assert [tx.repeated for tx, _ in outcomes] == [False, True, True]
    assert {tx.revision for tx, _ in outcomes} == {4}
    assert ran == [1]
    assert [event.mutation for event in last(hub, 2)] == ["m1", None]


def test_g18_who_forgets_that_it_is_a_repeat_is_told(database, hubs):
    hub, engine = planner(database, hubs)
    with hub.write("w1", actor=WHO, mutation="m1") as tx:
        tx.get(Plan, "p1").title = "first"
    with pytest.raises(ConfigurationError, match=r"tx\.repeated"), hub.write("w1", actor=WHO, mutation="m1") as tx:
        tx.get(Plan, "p1").title = "second"
    assert plan(engine).title == "first"


def test_g18_another_payload_is_an_error(database, hubs, door):
    hub, _ = planner(database, hubs)

    def body(tx):
        if not tx.repeated:
            tx.get(Plan, "p1").title = "mine"

    block(door, hub, body, mutation="m1", payload={"title": "mine"})
    block(door, hub, body, mutation="m1", payload={"title": "mine"})
    with pytest.raises(MutationReusedError):
        block(door, hub, body, mutation="m1", payload={"title": "yours"})
    with pytest.raises(MutationReusedError):
        door(hub).apply("w1", update(Plan, "p1", title="mine"), actor=WHO, mutation="m1")
    assert len(last(hub, 99)) == 4


def test_g18_a_refusal_is_an_outcome(database, hubs, door):
    hub, engine = planner(database, hubs)
    ran = []

    def body(tx):
        ran.append(1)
        tx.get(Plan, "p1").title = "not to be kept"
        tx.session.flush()
        raise RefusedError("The move is too close.", days=2)

    for _ in range(3):
        with pytest.raises(RefusedError, match="too close") as caught:
            block(door, hub, body, mutation="m1")
        assert caught.value.days == 2
    assert ran == [1]
    assert plan(engine).title == "Mapo"
    assert len(last(hub, 99)) == 3
    with pytest.raises(RefusedError):  # without an id nothing is kept of it
        block(door, hub, body)
    assert ran == [1, 1]


def test_g18_a_conflict_is_an_outcome_of_a_block_too(database, hubs, door):
    hub, _ = planner(database, hubs)
    errors = []
    for title in ("a", "b"):
        with pytest.raises(VersionConflictError) as caught:
            block(door, hub, lambda tx: tx.get(Plan, "p1", version=77), mutation="m1")
        errors.append(caught.value)
        hub.blocking.apply("w1", update(Plan, "p1", title=title), actor=WHO)
    assert errors[0].row == errors[1].row
    assert errors[0].row.values["title"] == "Mapo"


def test_g18_the_same_block_at_once_runs_once(database, hubs):
    hub, _ = planner(database, hubs)
    made = [hub, declare(hubs(database))]
    ran = []

    def write(number):
        with made[number % 2].write("w1", actor=WHO, mutation="m1") as tx:
            if tx.repeated:
                return tx.outcome
            ran.append(number)
            tx.add(Item(id=9, plan_id="p1", title="keys"))
            return tx.returns(number)

    with ThreadPoolExecutor(6) as threads:
        outcomes = set(threads.map(write, range(6)))
    assert outcomes == set(ran)
    assert len(ran) == 1


def test_g18_many_blocks_on_an_event_loop_do_not_starve_each_other(database, hubs, loop):
    hub, _ = planner(database, hubs)

    async def one(number):
        async with hub.write("w1", actor=agent(str(number))) as tx:
            found = await tx.get(Plan, "p1")
            found.title = f"{found.title}{number % 10}"
            await asyncio.sleep(0)
            await tx.run(lambda tx: tx.session.flush())
        return tx.revision

    async def all_at_once():
        return await asyncio.gather(*(one(number) for number in range(16)))

    revisions = asyncio.run_coroutine_threadsafe(all_at_once(), loop).result(90)
    assert sorted(revisions) == list(range(4, 20))
    assert len(hub.blocking.row(Plan, "p1", "w1").values["title"]) == len("Mapo") + 16


def test_g17_nothing_blocks_the_event_loop_unseen(database, hubs, loop):
    hub, _ = planner(database, hubs)

    async def touch():
        async with hub.write("w1", actor=WHO) as tx:
            found = await tx.get(Plan, "p1")
            await tx.run(lambda tx: tx.session.expire(found))
            return found.title

    with pytest.raises(ConfigurationError, match=r"tx\.run"):
        asyncio.run_coroutine_threadsafe(touch(), loop).result(60)


def test_g18_a_cancelled_block_keeps_nothing_and_gives_everything_back(database, hubs, loop):
    hub, engine = planner(database, hubs)

    async def cancelled():
        entered = asyncio.Event()

        async def write():
            async with hub.write("w1", actor=WHO) as tx:
                (await tx.get(Plan, "p1")).title = "not to be kept"
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(write())
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run_coroutine_threadsafe(cancelled(), loop).result(60)
    assert plan(engine).title == "Mapo"
    assert hub.blocking.apply("w1", update(Plan, "p1", title="goes on"), actor=WHO).revision == 4


def test_g18_a_deadlock_is_said_to_be_passing(postgres, hubs):
    hub, _ = planner(postgres, hubs)
    from threading import Barrier

    barrier = Barrier(2)

    def write(first, second):
        try:
            with hub.write("w1", actor=WHO) as tx:
                tx.get(Item, first).done = True
                tx.session.flush()
                barrier.wait()
                tx.get(Item, second).title = "x"
            return "written"
        except UnavailableError as error:
            return error.retry

    with ThreadPoolExecutor(2) as threads:
        assert sorted(map(str, threads.map(write, (1, 2), (2, 1)))) == ["True", "written"]


# -- blocks in blocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nested", ["apply", "block"])
def test_g18_a_write_inside_a_block_is_refused_at_once(database, hubs, door, nested):
    """It would wait for the block, and the block for it: on SQLite until the time is out, on PostgreSQL for ever where they
    touch the same row."""
    hub, engine = planner(database, hubs)
    change = update(Plan, "p1", title="inner")

    def inner(_):
        if nested == "apply":
            hub.blocking.apply("w1", change)
        else:
            with hub.write("w1"):
                raise AssertionError

    async def ainner():
        if nested == "apply":
            await hub.apply("w1", change)
        else:
            async with hub.write("w1"):
                raise AssertionError

    def refused(tx):
        tx.get(Plan, "p1").title = "outer"
        with pytest.raises(ConfigurationError, match=r"Write with tx\.apply"):
            inner(tx)
        tx.apply(update(Item, 1, done=True))

    async def arefused():
        async with hub.write("w1") as tx:
            (await tx.get(Plan, "p1")).title = "outer"
            with pytest.raises(ConfigurationError, match=r"Write with tx\.apply"):
                await ainner()
            await tx.apply(update(Item, 1, done=True))

    block(door, hub, refused)
    assert plan(engine).title == "outer"
    if door.kind == "async":
        door.wait(arefused())
    # The block is over, whatever became of it.
    with pytest.raises(RefusedError):
        block(door, hub, fails)
    hub.blocking.apply("w1", change)
    assert plan(engine).title == "inner"


def fails(tx):
    raise RefusedError


def test_g18_another_task_waits_for_an_open_block(database, hubs, loop):
    """One that was started in the block is not the block's own code, though it has its context."""
    hub, engine = planner(database, hubs)

    async def run():
        async with hub.write("w1") as tx:
            (await tx.get(Plan, "p1")).title = "block"
            await tx.run(lambda tx: tx.session.flush())
            later = asyncio.create_task(hub.apply("w1", update(Plan, "p1", title="task"), actor=WHO))
            await asyncio.sleep(0)  # it has been begun
        assert tx.revision == 4
        return await later

    assert asyncio.run_coroutine_threadsafe(run(), loop).result(timeout=30).revision == 5
    assert [plan(engine).title, last(hub)[0].actor] == ["task", WHO]


def test_g18_blocks_of_two_hubs_stand_in_each_other(sqlite, postgres, hubs):
    one, _ = planner(sqlite, hubs)
    two, engine = planner(postgres, hubs)
    with one.write("w1") as outer, two.write("w1") as inner:
        outer.get(Plan, "p1").title = "one"
        inner.get(Plan, "p1").title = "two"
        for hub in (one, two):
            with pytest.raises(ConfigurationError, match="is open here"):
                hub.blocking.apply("w1", update(Plan, "p1", title="x"))
    with two.write("w1"):
        one.blocking.apply("w1", update(Plan, "p1", title="x"))
    assert plan(engine).title == "two"


# -- what a caller can get wrong ---------------------------------------------------------------------------------------


def test_g18_who_writes_is_an_actor(database, hubs, door):
    hub, engine = planner(database, hubs)
    change = update(Plan, "p1", title="x")
    for wrong in ("u_1", None, ("user", "u_1")):
        with pytest.raises(ConfigurationError, match=r"An actor is made by user\(…\), agent\(…\) or system\(…\), not "):
            door(hub).apply("w1", change, actor=wrong)
        with pytest.raises(ConfigurationError, match="An actor is made by"):
            block(door, hub, fails, actor=wrong)
        with Session(engine) as session, pytest.raises(ConfigurationError, match="An actor is made by"):
            hub.attribute(session, actor=wrong)
        with pytest.raises(ConfigurationError, match="An actor is made by"):
            hub.tools(actor=wrong)
        with pytest.raises(ConfigurationError, match="An actor is made by"):
            hub.tool(actor=wrong)
    assert len(last(hub, 9)) == 3


def test_g18_changes_are_named_one_by_one(database, hubs, door):
    hub, _engine = planner(database, hubs)
    changes = [update(Plan, "p1", title="x")]
    with pytest.raises(InputError, match=r"not list\. Unpack it: apply\(\.\.\., \*changes\)\.$"):
        door(hub).apply("w1", changes)
    with pytest.raises(InputError, match=r"not Plan\.$"):
        door(hub).apply("w1", Plan(id="p1"))
    with pytest.raises(InputError, match=r"item\.done holds boolean values; str 'yes' is none"):
        door(hub).apply("w1", update(Item, 1, done="yes"))
