"""G5, who and why: a write carries what its session said, and `unknown` where nobody said anything; it never leaks."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from abreast import ConfigurationError, NotInstalledError, agent, system, user
from house import House, Item, Plan, build, furnish

NOBODY = ("unknown", None, None, None)
U1 = ("user", "u1", None, None)
A1 = ("agent", "a1", "t1", "m1")


@pytest.fixture
def house(database, hubs) -> House:
    made = build(database, hubs)
    furnish(made)
    return made


def who(house: House) -> list[tuple[Any, ...]]:
    """What each new event says about its writer and its reason, with the plan's new title in front."""
    return [
        (event.values.get("title", (None, None))[1], event.actor.type, event.actor.id, event.thread, event.mutation)
        for event in house.events()
    ]


def write(target: Any, title: str, plan: str = "p1") -> None:
    target.execute(sa.text("update plan set title = :title where id = :plan"), {"title": title, "plan": plan})


def test_g5_a_write_without_attribution_is_recorded_as_unknown(house):
    house.run("update plan set title = 'a' where id = 'p1'")
    assert who(house) == [("a", *NOBODY)]


def twice(session: Session) -> None:
    """Fails: the row is there already."""
    session.add(Item(id=1, plan_id="p1", title="twice"))
    session.flush()


def write_and_fail(session: Session, title: str) -> None:
    write(session, title)
    raise KeyError("of the application")


@pytest.mark.parametrize(
    ("actor", "expected"),
    [
        (user("u1"), ("user", "u1")),
        (agent("a"), ("agent", "a")),
        (agent(), ("agent", None)),
        (system("job"), ("system", "job")),
    ],
)
def test_g5_a_session_says_who_in_which_conversation_and_by_which_mutation(house, actor, expected):
    with Session(house.engine) as session, house.hub.attribute(session, actor=actor, thread="t 'ü", mutation="m\n1"):
        session.get_one(Plan, "p1").title = "a"
        session.commit()
    house.run("update plan set title = 'b' where id = 'p1'")
    assert who(house) == [("a", *expected, "t 'ü", "m\n1"), ("b", *NOBODY)]


def test_g5_the_block_ends_inside_a_transaction_and_what_was_pending_before_it_is_not_its_own(house):
    with Session(house.engine) as session:
        plan = session.get_one(Plan, "p1")
        plan.title = "before"
        with house.hub.attribute(session, actor=user("u1")):
            session.get_one(Plan, "p2").title = "inside"
        session.get_one(Plan, "p2").title = "behind"
        session.commit()
    assert who(house) == [("before", *NOBODY), ("inside", *U1), ("behind", *NOBODY)]


def test_g5_a_connection_has_to_begin_and_then_says_who(house):
    with house.engine.connect() as connection:
        with pytest.raises(ConfigurationError, match="begin"), house.hub.attribute(connection, actor=user("u1")):
            pass
        with connection.begin(), house.hub.attribute(connection, actor=agent("a1"), thread="t1", mutation="m1"):
            write(connection, "a")
    with house.engine.begin() as connection:
        write(connection, "b")
        with house.hub.attribute(connection, actor=user("u1")):
            write(connection, "c")
        write(connection, "d")
    assert who(house) == [("a", *A1), ("b", *NOBODY), ("c", *U1), ("d", *NOBODY)]


def test_g5_blocks_may_be_nested_and_the_inner_one_counts(house):
    with Session(house.engine) as session:
        with house.hub.attribute(session, actor=user("u1")):
            write(session, "outer")
            with house.hub.attribute(session, actor=agent("a1"), thread="t1", mutation="m1"):
                write(session, "inner")
                with house.hub.attribute(session):
                    write(session, "nobody")
                write(session, "inner again")
            write(session, "outer again")
        write(session, "behind")
        session.commit()
    assert who(house) == [
        ("outer", *U1),
        ("inner", *A1),
        ("nobody", *NOBODY),
        ("inner again", *A1),
        ("outer again", *U1),
        ("behind", *NOBODY),
    ]


def test_g5_it_holds_for_every_transaction_that_begins_inside(house):
    with Session(house.engine) as session, house.hub.attribute(session, actor=user("u1")):
        write(session, "first")
        session.commit()
        write(session, "lost")
        session.rollback()
        write(session, "second")
        with house.hub.attribute(session, actor=agent("a1"), thread="t1", mutation="m1"):
            session.commit()
            write(session, "third")
            session.commit()
        write(session, "fourth")
        session.commit()
    assert who(house) == [("first", *U1), ("second", *U1), ("third", *A1), ("fourth", *U1)]


def test_g5_a_failure_inside_ends_it(house):
    with Session(house.engine) as session:
        with pytest.raises(sa.exc.IntegrityError), house.hub.attribute(session, actor=user("u1")):
            twice(session)
        session.rollback()
        write(session, "a")
        session.commit()
        with pytest.raises(KeyError), house.hub.attribute(session, actor=user("u1")):
            write_and_fail(session, "kept")
        write(session, "behind")
        session.commit()
    assert who(house) == [("a", *NOBODY), ("kept", *U1), ("behind", *NOBODY)]


def test_g5_savepoints_inside_a_block(house):
    with Session(house.engine) as session, house.hub.attribute(session, actor=user("u1")):
        with session.begin_nested():
            write(session, "released")
        savepoint = session.begin_nested()
        write(session, "lost")
        savepoint.rollback()
        write(session, "behind it")
        with pytest.raises(sa.exc.IntegrityError), session.begin_nested():
            twice(session)
        write(session, "behind a failure")
        session.commit()
    assert who(house) == [("released", *U1), ("behind it", *U1), ("behind a failure", *U1)]


def test_g5_a_block_inside_a_savepoint_that_is_rolled_back(house):
    with Session(house.engine) as session, house.hub.attribute(session, actor=user("u1")):
        write(session, "before")
        savepoint = session.begin_nested()
        with house.hub.attribute(session, actor=agent("a1"), thread="t1", mutation="m1"):
            write(session, "lost")
            savepoint.rollback()
            write(session, "still inside")
        write(session, "outer")
        savepoint = session.begin_nested()
        with house.hub.attribute(session, actor=agent("a1"), thread="t1", mutation="m1"):
            write(session, "lost")
        savepoint.rollback()
        write(session, "outer again")
        session.commit()
    assert who(house) == [("before", *U1), ("still inside", *A1), ("outer", *U1), ("outer again", *U1)]


def test_g5_a_connection_keeps_it_behind_savepoints_and_in_its_next_transaction(house):
    with house.engine.connect() as connection:
        connection.begin()
        with house.hub.attribute(connection, actor=user("u1")):
            savepoint = connection.begin_nested()
            with house.hub.attribute(connection, actor=agent("a1"), thread="t1", mutation="m1"):
                write(connection, "lost")
                savepoint.rollback()
                write(connection, "still inside")
            write(connection, "outer")
            connection.commit()
            write(connection, "next")
            connection.rollback()
            connection.exec_driver_sql("update plan set title = 'the one after' where id = 'p1'")
            connection.commit()
        write(connection, "behind")
        connection.commit()
    assert who(house) == [("still inside", *A1), ("outer", *U1), ("the one after", *U1), ("behind", *NOBODY)]


def test_g5_an_error_that_is_caught_inside_leaves_the_session_to_its_owner(house):
    with Session(house.engine) as session:
        with house.hub.attribute(session, actor=user("u1")), pytest.raises(sa.exc.IntegrityError):
            session.execute(sa.text("insert into plan (id, workspace_id) values ('p1', 'w1')"))
        session.rollback()
        write(session, "a")
        session.commit()
    assert who(house) == [("a", *NOBODY)]


def test_g5_an_asynchronous_session_wants_async_with(house):
    async def run() -> None:
        engine = create_async_engine(_asynchronous(house)[0])
        async with AsyncSession(engine) as session:
            with pytest.raises(ConfigurationError, match="async with"), house.hub.attribute(session, actor=user("u1")):
                pass
        await engine.dispose()

    asyncio.run(run())


def test_g5_a_database_without_our_tables_is_said_and_the_session_stays_whole(database, hubs):
    engine = database.engine()
    Plan.metadata.create_all(engine)
    hub = hubs(database)
    with Session(engine) as session:
        session.execute(sa.select(Plan)).all()
        if database.kind == "sqlite":
            with pytest.raises(NotInstalledError), hub.attribute(session, actor=user("u1")):
                pass
        else:  # settings need no table
            with hub.attribute(session, actor=user("u1")):
                session.add(Plan(id="q", workspace_id="w1"))
        session.add(Plan(id="p", workspace_id="w1"))
        session.commit()


def test_g5_only_sessions_and_open_connections_are_taken(house):
    with pytest.raises(ConfigurationError, match="session or connection"), house.hub.attribute(house.engine, actor=user("u1")):
        pass
    url = _asynchronous(house)[0]
    engine = create_async_engine(url)
    with pytest.raises(ConfigurationError, match="open"), house.hub.attribute(engine.connect(), actor=user("u1")):
        pass


def test_g5_a_connection_that_commits_each_statement_is_refused(house):
    """Who and why live in a transaction: without one they would be lost, or on SQLite speak for whoever writes next."""
    engine = house.engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, connection.begin():
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            house.hub.attribute(connection, actor=user("u1")).__enter__()
        write(connection, "a")
    with Session(engine) as session, house.hub.attribute(session, actor=user("u1")):
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            write(session, "a")
        session.rollback()
    house.run("update plan set title = 'b' where id = 'p1'")
    assert who(house)[-1] == ("b", *NOBODY)


# -- asynchronous doors ------------------------------------------------------------------------------------------------


def _asynchronous(house: House) -> list[Any]:
    url = make_url(house.database.url)
    drivers = ["sqlite+aiosqlite"] if house.on_sqlite else ["postgresql+psycopg", "postgresql+asyncpg"]
    return [url.set(drivername=driver) for driver in drivers]


async def _session(house: House, engine: Any) -> None:
    async with AsyncSession(engine) as session:
        async with house.hub.attribute(session, actor=user("u1")):
            plan = await session.get_one(Plan, "p1")
            plan.title = "uno"
            await session.commit()
            await session.execute(sa.text("update plan set title = 'two' where id = 'p1'"))
            async with house.hub.attribute(session, actor=agent("a1"), thread="t1", mutation="m1"):
                await session.execute(sa.text("update plan set title = 'three' where id = 'p1'"))
            savepoint = await session.begin_nested()
            await session.execute(sa.text("update plan set title = 'lost' where id = 'p1'"))
            await savepoint.rollback()
            await session.execute(sa.text("update plan set title = 'four' where id = 'p1'"))
            await session.commit()
        await session.execute(sa.text("update plan set title = 'five' where id = 'p1'"))
        await session.commit()


async def _connection(house: House, engine: Any) -> None:
    async with engine.begin() as connection:
        async with house.hub.attribute(connection, actor=user("u1")):
            await connection.execute(sa.text("update plan set title = 'six' where id = 'p1'"))
        await connection.execute(sa.text("update plan set title = 'seven' where id = 'p1'"))


async def _failing(house: House, engine: Any) -> None:
    async def fail(session: AsyncSession) -> None:
        async with house.hub.attribute(session, actor=user("u1")):
            session.add(Item(id=1, plan_id="p1", title="twice"))
            await session.flush()

    async with AsyncSession(engine) as session:
        with pytest.raises(sa.exc.IntegrityError):
            await fail(session)
        await session.rollback()
        await session.execute(sa.text("update plan set title = 'eight' where id = 'p1'"))
        await session.commit()


def test_g5_asynchronous_sessions_and_connections(house):
    async def all_of_it(engine: Any) -> None:
        for part in (_session, _connection, _failing):
            await part(house, engine)
        await engine.dispose()

    for url in _asynchronous(house):
        asyncio.run(all_of_it(create_async_engine(url)))
        assert who(house) == [
            ("uno", *U1),
            ("two", *U1),
            ("three", *A1),
            ("four", *U1),
            ("five", *NOBODY),
            ("six", *U1),
            ("seven", *NOBODY),
            ("eight", *NOBODY),
        ]


def test_g5_two_tasks_on_one_engine_keep_their_own_names(house):
    """Each with a session of its own, at the same time."""

    async def one(engine: Any, name: str, plan: str, barrier: asyncio.Barrier) -> None:
        async with AsyncSession(engine) as session, house.hub.attribute(session, actor=user(name)):
            await session.execute(sa.select(Plan))
            await barrier.wait()
            await session.execute(sa.text(f"update plan set title = '{name}' where id = '{plan}'"))
            await session.commit()

    async def both(url: Any) -> None:
        engine = create_async_engine(url)
        barrier = asyncio.Barrier(1 if house.on_sqlite else 2)
        if house.on_sqlite:  # one writer at a time: an attributed session writes from its first statement
            await one(engine, "u1", "p1", barrier)
            await one(engine, "u2", "p2", barrier)
        else:
            await asyncio.gather(one(engine, "u1", "p1", barrier), one(engine, "u2", "p2", barrier))
        await engine.dispose()

    for url in _asynchronous(house):
        asyncio.run(both(url))
        assert sorted(who(house)) == [("u1", "user", "u1", None, None), ("u2", "user", "u2", None, None)]
        house.run("update plan set title = null")
        house.events()


# -- no leak ------------------------------------------------------------------------------------------------------------


def _commit(connection: sa.Connection) -> None:
    connection.commit()


def _rollback(connection: sa.Connection) -> None:
    connection.rollback()


def _close(connection: sa.Connection) -> None:
    connection.close()


@pytest.mark.parametrize("end", [_commit, _rollback, _close], ids=lambda end: end.__name__.strip("_"))
def test_g5_an_attribution_never_speaks_for_the_next_writer(house, end: Callable[[sa.Connection], None]):
    """However the block's transaction ends, and also while the block is still open."""
    connection = house.engine.connect()
    connection.begin()
    block = house.hub.attribute(connection, actor=user("u1"))
    block.__enter__()
    write(connection, "inside", "p2")
    end(connection)
    house.run("update plan set title = 'next' where id = 'p1'")
    block.__exit__(None, None, None)
    connection.close()
    with house.engine.begin() as connection:  # the same one of the pool, perhaps
        with house.hub.attribute(connection, actor=agent("a1"), thread="t1", mutation="m1"):
            write(connection, "other", "p3")
        write(connection, "last", "p3")
    told = who(house)
    assert ("next", *NOBODY) in told
    assert ("other", *A1) in told
    assert ("last", *NOBODY) in told
    assert ("inside", *U1) in told or end is not _commit


def test_g5_a_session_that_is_left_open_or_committed_inside_leaks_nothing(house):
    session = Session(house.engine)
    with house.hub.attribute(session, actor=user("u1")):
        write(session, "inside", "p2")
        session.commit()
        house.run("update plan set title = 'in between' where id = 'p1'")
        session.execute(sa.select(Plan)).all()
        session.rollback()
        house.run("update plan set title = 'again' where id = 'p1'")
    house.run("update plan set title = 'behind' where id = 'p1'")
    session.close()
    assert sorted(who(house)) == [
        ("again", *NOBODY),
        ("behind", *NOBODY),
        ("in between", *NOBODY),
        ("inside", *U1),
    ]


def test_g5_a_pooled_connection_forgets_who_used_it(postgres, hubs):
    house = build(postgres, hubs)
    furnish(house)
    engine = postgres.engine(pool_size=1, max_overflow=0)
    with Session(engine) as session, house.hub.attribute(session, actor=user("u1")):
        write(session, "a")
        session.commit()
    with engine.begin() as connection:
        write(connection, "b")
    assert who(house) == [("a", *U1), ("b", *NOBODY)]


# -- programs that know nothing of abreast ------------------------------------------------------------------------------

STRANGE = [
    ("user", "u1", "t", "m"),
    ("agent", "", "", ""),
    ("root", "u1", "t", None),
    ("", "", "", ""),
    ("User", "x" * 10_000, "ü", "'"),
]


def test_g5_a_foreign_program_may_say_who_in_its_own_sql(house):
    connection: Any = sqlite3.connect(house.database.plain) if house.on_sqlite else psycopg.connect(house.database.plain)
    for number, (actor_type, actor_id, thread, mutation) in enumerate(STRANGE):
        if house.on_sqlite:
            connection.execute("insert into abreast_context values (1, ?, ?, ?, ?)", (actor_type, actor_id, thread, mutation))
        else:
            names = ("actor_type", "actor_id", "thread", "mutation")
            for name, value in zip(names, STRANGE[number], strict=True):
                connection.execute("select set_config(%s, %s, true)", (f"abreast.{name}", value or ""))
        connection.execute(f"update plan set title = '{number}' where id = 'p1'")
        if house.on_sqlite:
            connection.execute("delete from abreast_context")
        connection.commit()
    connection.execute("update plan set title = 'end' where id = 'p1'")
    connection.commit()
    connection.close()
    assert who(house) == [
        ("0", "user", "u1", "t", "m"),
        ("1", "agent", None, None, None),
        ("2", "unknown", "u1", "t", None),
        ("3", *NOBODY),
        ("4", "unknown", "x" * 10_000, "ü", "'"),
        ("end", *NOBODY),
    ]
