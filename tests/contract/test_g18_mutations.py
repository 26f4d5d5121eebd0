"""G18: one mutation, one effect. A repeat returns the first outcome; the same id for another write is an error."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import (
    InputError,
    LeaseLostError,
    MutationReusedError,
    RereadError,
    UnavailableError,
    UnknownEntityError,
    VersionConflictError,
    agent,
    delete,
    insert,
    update,
    user,
)
from abreast.store import leases
from abreast.types import Lease
from planner import Item, Plan, declare, planner
from relay import relay

WHO = agent("helper")


def history(hub, **narrowed):
    return hub.blocking.history("w1", limit=200, **narrowed)


def test_g18_a_repeat_returns_the_first_outcome_and_writes_nothing(database, hubs, door):
    hub, engine = planner(database, hubs)
    changes = update(Plan, "p1", version=1, title="mine"), insert(Item, plan_id="p1", title="keys", id=9), delete(Item, 2)
    first = door(hub).apply("w1", *changes, actor=WHO, thread="t1", mutation="m1")
    assert not first.repeated
    with Session(engine) as session:
        session.get(Plan, "p1").title = "somebody else's"
        session.commit()
    again = door(hub).apply("w1", *changes, actor=WHO, thread="t1", mutation="m1")
    assert again.repeated
    assert (again.revision, again.rows, again.mutation) == (first.revision, first.rows, first.mutation)
    with Session(engine) as session:
        assert session.get(Plan, "p1").title == "somebody else's"
    assert [event.revision for event in history(hub) if event.mutation == "m1"] == [6, 5, 4]


def test_g18_who_why_and_for_what_stand_in_the_log_once(database, hubs, door):
    hub, _ = planner(database, hubs)
    for _ in range(3):
        door(hub).apply("w1", update(Plan, "p1", title="mine"), actor=WHO, thread="t1", mutation="m1")
    door(hub).apply("w1", update(Plan, "p1", title="yours"), actor=user("u_2"))
    last, before = history(hub)[:2]
    assert (before.op, before.actor, before.thread, before.mutation) == ("update", WHO, "t1", "m1")
    assert (last.actor, last.thread, last.mutation) == (user("u_2"), None, None)
    assert before.values["title"] == ("Mapo", "mine")
    with Session(database.engine()) as session:  # who came before does not speak for who comes after
        session.get(Plan, "p1").title = "nobody's"
        session.commit()
    assert history(hub)[0].actor.type == "unknown"


def test_g18_the_same_id_for_another_write_is_an_error(database, hubs, door):
    hub, engine = planner(database, hubs)
    door(hub).apply("w1", update(Plan, "p1", version=1, title="mine"), actor=WHO, mutation="m1")
    for change in (
        update(Plan, "p1", version=1, title="other"),
        update(Plan, "p1", title="mine"),
        update(Item, 1, title="mine"),
        delete(Plan, "p1", version=1),
    ):
        with pytest.raises(MutationReusedError):
            door(hub).apply("w1", change, actor=WHO, mutation="m1")
    with Session(engine) as session:
        session.add(Plan(id="q1", workspace_id="w2"))
        session.commit()
    # Ids are a workspace's own.
    assert not door(hub).apply("w2", update(Plan, "q1", title="mine"), actor=WHO, mutation="m1").repeated
    assert len(history(hub)) == 4


def test_g18_a_conflict_is_an_outcome_and_stays_one(database, hubs, door):
    hub, engine = planner(database, hubs)
    late = update(Plan, "p1", version=7, title="late")
    errors = []
    for text in ("a", "b", "c"):
        with pytest.raises(VersionConflictError) as caught:
            door(hub).apply("w1", late, actor=WHO, mutation="m1")
        errors.append(caught.value)
        with Session(engine) as session:
            session.get(Plan, "p1").title = text
            session.commit()
    assert errors[0].row.values["title"] == "Mapo"
    assert errors[1].row == errors[2].row == errors[0].row
    assert {error.version for error in errors} == {1}


def test_g18_a_passing_failure_and_a_refusal_of_the_database_are_none(database, hubs, door):
    hub, engine = planner(database, hubs)
    add = insert(Item, id=1, plan_id="p1", title="taken")
    with pytest.raises(InputError):
        door(hub).apply("w1", add, actor=WHO, mutation="m1")
    with pytest.raises(UnknownEntityError):
        door(hub).apply("w1", update(Item, 77, title="x"), actor=WHO, mutation="m2")
    with Session(engine) as session:
        session.delete(session.get(Item, 1))
        session.add(Item(id=77, plan_id="p1", title="now there"))
        session.commit()
    assert not door(hub).apply("w1", add, actor=WHO, mutation="m1").repeated
    assert not door(hub).apply("w1", update(Item, 77, title="x"), actor=WHO, mutation="m2").repeated


def test_g18_a_delete_is_repeated_as_one(database, hubs, door):
    hub, _ = planner(database, hubs)
    first = door(hub).apply("w1", delete(Item, 1), actor=WHO, mutation="m1")
    again = door(hub).apply("w1", delete(Item, 1), actor=WHO, mutation="m1")
    assert first.rows == again.rows == (None,)
    assert again.repeated


@pytest.mark.parametrize("mutation", ["", " ", "x" * 201, "a\0b", 7])
def test_g18_what_cannot_be_a_mutation_id(database, hubs, mutation):
    hub, _ = planner(database, hubs)
    with pytest.raises(InputError, match="mutation id"):
        hub.blocking.apply("w1", update(Plan, "p1", title="x"), actor=WHO, mutation=mutation)
    assert len(history(hub)) == 3


def test_g18_without_an_id_each_call_is_a_write_of_its_own(database, hubs, door):
    hub, _ = planner(database, hubs)
    revisions = [door(hub).apply("w1", update(Plan, "p1", title=text), actor=WHO).revision for text in ("a", "b", "a")]
    assert revisions == [4, 5, 6]


def test_g18_the_same_call_many_times_at_once_is_made_once(database, hubs, loop):
    hub, _ = planner(database, hubs)
    others = [declare(hubs(database)) for _ in range(2)]
    change = insert(Item, plan_id="p1", title="keys", id=9)

    async def all_at_once():
        calls = (one.apply("w1", change, actor=WHO, mutation="m1") for one in (hub, *others) for _ in range(10))
        return await asyncio.gather(*calls)

    outcomes = asyncio.run_coroutine_threadsafe(all_at_once(), loop).result(60)
    assert len({(one.revision, one.rows[0].version) for one in outcomes}) == 1
    assert sum(not one.repeated for one in outcomes) == 1
    assert len(history(hub)) == 4


def test_g18_a_lost_answer_is_asked_for_again(postgres, hubs, door):
    hub, _engine = planner(postgres, hubs)
    with relay(postgres.url) as between:
        far = declare(hubs(between.url))
        door(far).apply("w1", update(Item, 1, title="connected"), actor=WHO)
        between.lose_answer("keys")
        applied = door(far).apply("w1", insert(Item, id=9, plan_id="p1", title="keys"), actor=WHO, mutation="m1")
        assert between.lost == 1
        assert applied.repeated
        assert applied.rows[0].values["title"] == "keys"
        between.lose_answer("no id")
        with pytest.raises(UnavailableError, match="may have been written or not"):
            door(far).apply("w1", insert(Item, id=10, plan_id="p1", title="no id"), actor=WHO)
        assert between.lost == 2
        door(far).apply("w1", update(Item, 1, title="goes on"), actor=WHO)
    assert [event.entity_id for event in history(hub) if event.op == "insert"] == ["10", "9", "2", "1", "p1"]


def test_g18_lost_answers_of_writes_that_went_together(postgres, hubs, loop):
    hub, _ = planner(postgres, hubs)
    with relay(postgres.url) as between:
        far = declare(hubs(between.url))

        async def write():
            await far.apply("w1", update(Item, 1, title="connected"), actor=WHO)
            between.lose_answer("t12")
            calls = [
                far.apply("w1", update(Item, 1, title=f"t{i}"), actor=WHO, mutation=f"m{i}" if i % 4 else None) for i in range(24)
            ]
            tasks = [asyncio.ensure_future(call) for call in calls]
            return await asyncio.gather(*tasks, return_exceptions=True)

        outcomes = asyncio.run_coroutine_threadsafe(write(), loop).result(60)
    assert between.lost == 1
    failed = [index for index, one in enumerate(outcomes) if isinstance(one, Exception)]
    assert all(isinstance(outcomes[index], UnavailableError) and index % 4 == 0 for index in failed)
    assert failed
    assert [event.mutation for event in history(hub) if event.mutation].count("m1") == 1
    assert len(history(hub)) == 3 + 1 + 24  # also what could not be answered was written, once


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_g18_conflicts_between_transactions_are_repeated(postgres, hubs, door, isolation):
    """Where the database is set to an isolation that lets one of two writers fail, the hub writes again."""
    _hub, engine = planner(postgres, hubs)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        name = connection.exec_driver_sql("select current_database()").scalar_one()
        connection.exec_driver_sql(f"alter database {name} set default_transaction_isolation = '{isolation}'")
    made = [declare(hubs(postgres)) for _ in range(3)]

    async def write(one, index):
        return [await one.apply("w1", update(Plan, "p1", title=f"{index} {n}"), actor=WHO) for n in range(6)]

    async def all_at_once():
        return await asyncio.gather(*(write(one, index) for index, one in enumerate(made)))

    applied = door.wait(all_at_once())
    assert sorted(one.revision for those in applied for one in those) == list(range(4, 22))


def test_g18_groups_of_several_processes_do_not_deadlock(postgres, hubs, loop):
    """Two hubs write the same rows in different orders, many at once: a group locks its rows in one order."""
    hub, engine = planner(postgres, hubs)
    with Session(engine) as session:
        session.add_all(Item(id=100 + number, plan_id="p1", title="") for number in range(24))
        session.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        name = connection.exec_driver_sql("select current_database()").scalar_one()
        # Sooner than a group gives up waiting for a row: no deadlock goes by unseen.
        connection.exec_driver_sql(f"alter database {name} set deadlock_timeout = '10ms'")
    engine.dispose()
    hub = declare(hubs(postgres))
    other = declare(hubs(postgres))

    async def write(one, choice):
        for turn in range(12):
            numbers = choice.sample(range(24), 24)
            await asyncio.gather(*(one.apply("w1", update(Item, 100 + n, title=f"{turn}"), actor=WHO) for n in numbers))

    async def both():
        await asyncio.gather(write(hub, Random(1)), write(other, Random(2)))
        await asyncio.gather(hub.close(), other.close())  # the server counts what a session did when that ends

    asyncio.run_coroutine_threadsafe(both(), loop).result(90)
    with engine.connect() as connection:
        others = "datname = current_database() and pid <> pg_backend_pid() and query like '%%.apply($1%%'"
        sessions = f"select count(*) from pg_stat_activity where {others}"
        while connection.exec_driver_sql(sessions).scalar_one():
            connection.rollback()
        counted = "select deadlocks from pg_stat_database where datname = current_database()"
        assert connection.exec_driver_sql(counted).scalar_one() == 0


def acquire(hub, database, run, thread="t1", seconds=60.0):
    wanted = leases.acquire_statement(database.kind, "abreast", thread=thread, run=run, seconds=seconds)
    engine = database.engine()
    with engine.begin() as connection:
        rows = connection.execute(sa.text(wanted.text), dict(wanted.parameters)).all()
    return Lease(thread, rows[0][0], run) if rows else None


def test_g19_without_its_lease_a_run_writes_nothing(database, hubs, door):
    hub, _engine = planner(database, hubs)
    lease = acquire(hub, database, "r1", seconds=-1)
    change = update(Plan, "p1", title="mine")
    assert door(hub).apply("w1", change, actor=WHO, lease=lease, mutation="m1").revision == 4  # expired, but nobody took it
    taken = acquire(hub, database, "r2")
    assert taken.token == lease.token + 1
    for again in (change, update(Item, 1, title="x")):
        with pytest.raises(LeaseLostError):
            door(hub).apply("w1", again, actor=WHO, lease=lease, mutation="m1")
    with pytest.raises(LeaseLostError):
        door(hub).apply("w1", change, actor=WHO, lease=Lease("t9", 1, "r1"))
    with pytest.raises(LeaseLostError), hub.write("w1", actor=WHO, lease=lease) as tx:
        tx.get(Plan, "p1").title = "x"
    assert len(history(hub)) == 4
    assert door(hub).apply("w1", update(Item, 1, title="x"), actor=WHO, lease=taken).revision == 5


def test_g19_who_takes_a_lease_waits_for_the_write_under_it(postgres, hubs, loop):
    hub, engine = planner(postgres, hubs)
    lease = acquire(hub, postgres, "r1", seconds=-1)
    with engine.connect() as person, engine.connect() as other:
        person.execute(sa.update(Plan).values(title="a person is typing"))

        async def begin():
            return asyncio.ensure_future(hub.apply("w1", update(Plan, "p1", title="mine"), actor=WHO, lease=lease))

        async def end(task):
            return await task

        task = asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ShareLock' and granted"
        while not other.exec_driver_sql(waiting).scalar_one():
            other.rollback()
        other.rollback()
        other.exec_driver_sql("set lock_timeout = '300ms'")
        wanted = leases.acquire_statement("postgresql", "abreast", thread="t1", run="r2", seconds=60)
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
            other.execute(sa.text(wanted.text), dict(wanted.parameters))
        other.rollback()
        person.commit()
        assert asyncio.run_coroutine_threadsafe(end(task), loop).result(30).rows[0].values["title"] == "mine"
        assert other.execute(sa.text(wanted.text), dict(wanted.parameters)).all() == [(lease.token + 1,)]
        other.commit()


def test_g18_reread_is_the_branch_of_a_conflict(database, hubs, door):
    hub, _ = planner(database, hubs)
    with pytest.raises(RereadError):
        door(hub).apply("w1", update(Plan, "p1", version=9, title="x"), actor=WHO)
