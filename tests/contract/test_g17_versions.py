"""G17: a write carries the version that was read. If the row moved, nothing is written and the current values come back."""

from __future__ import annotations

import asyncio
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import (
    InputError,
    NotTrackedError,
    UnknownEntityError,
    VersionConflictError,
    agent,
    constant,
    delete,
    insert,
    update,
    user,
)
from planner import Item, Plan, planner

WHO = agent("helper")


def title(engine, plan="p1"):
    with Session(engine) as session:
        found = session.get(Plan, plan)
        return found.title if found else None


def head(hub):
    return hub.blocking.batch("w1").head.revision


def test_g17_a_write_under_the_version_that_was_read_is_made(database, hubs, door):
    hub, engine = planner(database, hubs)
    read = door(hub).row(Plan, "p1", "w1")
    applied = door(hub).apply("w1", update(Plan, "p1", version=read.version, move_in_date=dt.date(2026, 9, 30)), actor=WHO)
    (row,) = applied.rows
    assert (applied.workspace, applied.revision, applied.repeated, applied.mutation) == ("w1", 4, False, None)
    assert (row.entity_type, row.entity_id, row.version) == ("plan", "p1", 4)
    assert row == door(hub).row(Plan, "p1", "w1")
    assert row.values["move_in_date"] == "2026-09-30"
    assert row.values["budget"] == "1200.50"
    assert "resident_number" not in row.values
    with Session(engine) as session:
        assert session.get(Plan, "p1").move_in_date == dt.date(2026, 9, 30)


def test_g17_a_row_that_moved_is_not_written_and_comes_back_as_it_is(database, hubs, door):
    hub, engine = planner(database, hubs)
    read = door(hub).row(Plan, "p1", "w1")
    with Session(engine) as session, hub.attribute(session, actor=user("u_1")):
        session.get(Plan, "p1").title = "the person's"
        session.commit()
    with pytest.raises(VersionConflictError, match="read it again") as caught:
        door(hub).apply("w1", update(Plan, "p1", version=read.version, title="the agent's"), actor=WHO)
    error = caught.value
    assert (error.entity_type, error.entity_id, error.expected, error.version) == ("plan", "p1", 1, 4)
    assert error.row == door(hub).row(Plan, "p1", "w1")
    assert error.row.values["title"] == "the person's"
    assert "resident_number" not in error.row.values
    assert title(engine) == "the person's"
    assert head(hub) == 4
    with pytest.raises(VersionConflictError):
        door(hub).apply("w1", delete(Plan, "p1", version=read.version), actor=WHO)
    assert title(engine) == "the person's"


def test_g17_without_a_version_nothing_is_compared(database, hubs, door):
    hub, engine = planner(database, hubs)
    for text in ("one", "two"):
        assert door(hub).apply("w1", update(Plan, "p1", title=text), actor=WHO).rows[0].values["title"] == text
    assert title(engine) == "two"


def test_g17_several_changes_are_all_made_or_none(database, hubs, door):
    hub, engine = planner(database, hubs)
    changes = (
        insert(Plan, id="p2", workspace_id="w1", title="second"),
        insert(Item, id=9, plan_id="p2", title="keys"),
        update(Plan, "p1", version=1, title="first"),
        delete(Item, 2, version=3),
    )
    with pytest.raises(VersionConflictError):
        door(hub).apply("w1", *changes, update(Item, 1, version=77, done=True), actor=WHO)
    with pytest.raises(UnknownEntityError):
        door(hub).apply("w1", *changes, update(Item, 77, done=True), actor=WHO)
    with pytest.raises(InputError):
        door(hub).apply("w1", *changes, insert(Item, id=1, plan_id="p1", title="taken"), actor=WHO)
    assert (head(hub), title(engine), title(engine, "p2")) == (3, "Mapo", None)
    applied = door(hub).apply("w1", *changes, update(Item, 1, version=2, done=True), actor=WHO)
    assert applied.revision == 8
    assert [row and (row.entity_id, row.version) for row in applied.rows] == [
        ("p2", 4),
        ("9", 5),
        ("p1", 6),
        None,
        ("1", 8),
    ]
    assert [event.op for event in hub.blocking.history("w1", limit=5)] == ["update", "delete", "update", "insert", "insert"]


def test_g17_rows_of_other_workspaces_are_out_of_reach(database, hubs, door):
    hub, engine = planner(database, hubs)
    with Session(engine) as session:
        session.add(Plan(id="q1", workspace_id="w2", title="theirs"))
        session.flush()
        session.add(Item(id=50, plan_id="q1", title="theirs"))
        session.commit()
    for change in (
        update(Plan, "q1", title="mine"),
        delete(Plan, "q1"),
        update(Item, 50, title="mine"),
        update(Item, 51, title="absent"),
        update(Item, "no number", title="absent"),
        delete(Plan, "q\0"),
    ):
        with pytest.raises(UnknownEntityError):
            door(hub).apply("w1", change, actor=WHO)
    for change in (
        insert(Plan, id="q2", workspace_id="w2"),
        insert(Item, id=52, plan_id="q1", title="mine"),
        update(Plan, "p1", workspace_id="w2"),
        update(Item, 1, plan_id="q1"),
    ):
        with pytest.raises(InputError, match="another workspace"):
            door(hub).apply("w1", change, actor=WHO)
    assert head(hub) == 3
    assert hub.blocking.batch("w2").head.revision == 2
    assert hub.blocking.check() == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda: update(Plan, "p1", titel="x"), "titel"),
        (lambda: insert(Plan, id="p3", workspace_id="w1", name="x"), "name"),
        (lambda: update(Plan, "p1", id="p2"), "id"),
        (lambda: update(Plan, "p1", move_in_date="tomorrow"), "move_in_date"),
        (lambda: update(Plan, "p1", move_in_date=dt.datetime(2026, 9, 1, tzinfo=dt.UTC)), "move_in_date"),
        (lambda: update(Plan, "p1", title=7), "title"),
        (lambda: update(Item, 1, done="yes"), "done"),
        (lambda: update(Plan, "p1", title="a\0b"), "title"),
        (lambda: update(Plan, "p1"), "p1"),
        (lambda: update(Plan, "p1", title=sa.func.now()), "title"),
        (lambda: insert(Item, id=77, plan_id="p1"), "title"),
        (lambda: update(Plan, "p1", version="3", title="x"), "version"),
        (lambda: update(Plan, 1.5, title="x"), "id"),
        (lambda: "update", "changes"),
    ],
)
def test_g17_what_cannot_be_written_is_named(database, hubs, change, named):
    hub, engine = planner(database, hubs)
    with pytest.raises(InputError, match=named):
        hub.blocking.apply("w1", change(), actor=WHO)
    assert title(engine) == "Mapo"


def test_g17_calls_that_make_no_sense(database, hubs):
    hub, _ = planner(database, hubs)
    apply = hub.blocking.apply
    for wrong in (
        lambda: apply("w1", actor=WHO),
        lambda: apply("", update(Plan, "p1", title="x"), actor=WHO),
        lambda: apply("w1", update(Plan, "p1", title="x"), update(Plan, "p1", title="y"), actor=WHO),
    ):
        with pytest.raises(InputError):
            wrong()

    class Other(DeclarativeBase):
        pass

    class Stranger(Other):
        __tablename__ = "stranger"
        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(NotTrackedError):
        apply("w1", insert(Stranger, id=1), actor=WHO)


def test_g17_of_two_writers_with_one_version_one_wins(database, hubs, door):
    """No version column in the application: the log's revision is the version."""
    hub, engine = planner(database, hubs)
    other = hubs(database)
    from planner import declare

    declare(other)
    version = 1
    for round_ in range(8):
        barrier = Barrier(2)

        def write(which, hub=hub, version=version, barrier=barrier, round_=round_):
            barrier.wait()
            try:
                change = update(Plan, "p1", version=version, title=f"{which} {round_}")
                return door(hub).apply("w1", change, actor=agent(which))
            except VersionConflictError as error:
                return error

        with ThreadPoolExecutor(2) as threads:
            outcomes = list(threads.map(write, ("a", "b"), (hub, other)))
        (won,) = [one for one in outcomes if not isinstance(one, VersionConflictError)]
        (lost,) = [one for one in outcomes if isinstance(one, VersionConflictError)]
        assert lost.row == won.rows[0]
        assert title(engine) == won.rows[0].values["title"]
        assert won.rows[0].version == version + (3 if round_ == 0 else 1)
        version = won.rows[0].version


class Base(DeclarativeBase):
    pass


class Counted(Base):
    __tablename__ = "counted"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    number: Mapped[int] = mapped_column(default=1)
    changed_at: Mapped[dt.datetime | None] = mapped_column(server_default=sa.func.now(), onupdate=sa.func.now())
    seen: Mapped[int] = mapped_column(default=lambda: 5, onupdate=lambda: 6)


def counted(database, hubs):
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = hubs(database)
    hub.track(Counted, workspace=constant("w1"), version="number", record="all")
    hub.blocking.install()
    return hub, engine


def test_g17_the_applications_own_version_column_counts(database, hubs, door):
    hub, engine = counted(database, hubs)
    applied = door(hub).apply("w1", insert(Counted, name="first"), actor=WHO)
    (row,) = applied.rows
    assert (row.entity_id, row.version, row.values["number"]) == ("1", 1, 1)
    applied = door(hub).apply("w1", update(Counted, 1, version=1, name="second"), actor=WHO)
    assert (applied.rows[0].version, applied.rows[0].values["number"]) == (2, 2)
    with Session(engine) as session:
        session.execute(sa.update(Counted).values(name="raw"))
        session.commit()
    with pytest.raises(VersionConflictError) as caught:
        door(hub).apply("w1", update(Counted, 1, version=2, name="third"), actor=WHO)
    assert (caught.value.version, caught.value.row.values["name"]) == (3, "raw")

    barrier = Barrier(2)

    def write(name):
        barrier.wait()
        try:
            return door(hub).apply("w1", update(Counted, 1, version=3, name=name), actor=WHO)
        except VersionConflictError as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(write, ("a", "b")))
    assert sorted(type(one).__name__ for one in outcomes) == ["Applied", "VersionConflictError"]


def test_g17_defaults_are_made_as_the_orm_makes_them(database, hubs, door):
    hub, _ = counted(database, hubs)
    (made,) = door(hub).apply("w1", insert(Counted, name="first"), actor=WHO).rows
    assert made.values["seen"] == 5
    assert made.values["changed_at"]
    (changed,) = door(hub).apply("w1", update(Counted, 1, name="second"), actor=WHO).rows
    assert changed.values["seen"] == 6
    (chosen,) = door(hub).apply("w1", update(Counted, 1, name="third", seen=7), actor=WHO).rows
    assert chosen.values["seen"] == 7


def test_g17_a_change_of_nothing_leaves_the_version(database, hubs, door):
    hub, _ = planner(database, hubs)
    applied = door(hub).apply("w1", update(Plan, "p1", version=1, title="Mapo"), actor=WHO)
    assert (applied.revision, applied.rows[0].version) == (3, 1)


def test_g17_many_at_once_are_answered_each_alone(database, hubs, loop):
    """Writes of one workspace that come together: one conflicts, one breaks a rule of the database, one is absent."""
    hub, _engine = planner(database, hubs)
    changes = [update(Item, 1, title=f"t{index}") for index in range(40)]
    changes[5] = insert(Plan, id="p1", workspace_id="w1")
    changes[7] = update(Item, 1, version=2, title="too late")
    changes[9] = update(Item, 99, title="absent")
    changes[11] = insert(Plan, id="p7", workspace_id="w7")

    async def all_at_once():
        calls = (hub.apply("w1", change, actor=agent(f"a{index}")) for index, change in enumerate(changes))
        return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run_coroutine_threadsafe(all_at_once(), loop).result(60)
    failed = {index: one for index, one in enumerate(outcomes) if isinstance(one, Exception)}
    assert {index: type(one) for index, one in failed.items()} == {
        5: InputError,
        7: VersionConflictError,
        9: UnknownEntityError,
        11: InputError,
    }
    applied = [one for one in outcomes if not isinstance(one, Exception)]
    revisions = [one.revision for one in applied]
    assert sorted(revisions) == list(range(4, 40))
    assert all(one.rows[0].version == one.revision for one in applied)
    events = {event.revision: event for event in hub.blocking.history("w1", limit=100)}
    for index, one in enumerate(outcomes):
        if not isinstance(one, Exception):
            assert events[one.revision].actor == agent(f"a{index}")
            assert events[one.revision].values["title"][1] == f"t{index}"
    assert failed[7].row.version == failed[7].version
    assert hub.blocking.check() == []


def test_g17_threads_at_once_are_answered_each_alone(database, hubs):
    hub, _ = planner(database, hubs)

    def write(index):
        try:
            change = insert(Plan, id="p1", workspace_id="w1") if index % 10 == 3 else update(Item, 1, title=f"t{index}")
            return hub.blocking.apply("w1", change, actor=agent(f"a{index}"))
        except InputError as error:
            return error

    with ThreadPoolExecutor(16) as threads:
        outcomes = list(threads.map(write, range(80)))
    assert [isinstance(one, InputError) for one in outcomes] == [index % 10 == 3 for index in range(80)]
    revisions = [one.revision for one in outcomes if not isinstance(one, InputError)]
    assert sorted(revisions) == list(range(4, 76))
    assert hub.blocking.check() == []


def test_g17_a_locked_row_holds_up_only_who_needs_it(postgres, hubs, loop):
    hub, engine = planner(postgres, hubs)

    async def others():
        stuck = asyncio.ensure_future(hub.apply("w1", update(Item, 1, title="stuck"), actor=WHO))
        free = [hub.apply("w1", update(Item, 2, title=f"t{index}"), actor=WHO) for index in range(20)]
        applied = await asyncio.wait_for(asyncio.gather(*free), 30)
        return stuck, applied

    with engine.connect() as connection:
        connection.execute(sa.update(Item).where(Item.id == 1).values(title="a person is typing"))
        stuck, applied = asyncio.run_coroutine_threadsafe(others(), loop).result(60)
        assert len({one.revision for one in applied}) == 20
        assert not stuck.done()
        connection.commit()

    async def wait():
        return await stuck

    assert asyncio.run_coroutine_threadsafe(wait(), loop).result(60).rows[0].values["title"] == "stuck"


def test_g17_values_of_every_kind_are_taken_as_the_orm_takes_them(database, hubs, door):
    hub, engine = planner(database, hubs)
    (row,) = door(hub).apply("w1", update(Plan, "p1", budget=Decimal("99.5"), move_in_date=None), actor=WHO).rows
    assert (row.values["budget"], row.values["move_in_date"]) == ("99.50", None)
    with Session(engine) as session:
        plan = session.get(Plan, "p1")
        assert (plan.budget, plan.move_in_date) == (Decimal("99.50"), None)


def test_g17_a_locked_row_holds_up_no_thread_that_does_not_need_it(postgres, hubs):
    hub, engine = planner(postgres, hubs)
    hub.blocking.apply("w1", update(Item, 2, title="first"), actor=WHO)

    def write(index):
        item = 1 if index % 6 == 5 else 2
        return hub.blocking.apply("w1", update(Item, item, title=f"t{index}"), actor=WHO).rows[0].entity_id

    with ThreadPoolExecutor(12) as threads, engine.connect() as connection:
        connection.execute(sa.update(Item).where(Item.id == 1).values(title="a person is typing"))
        written = [threads.submit(write, index) for index in range(12)]
        free = [one for index, one in enumerate(written) if index % 6 != 5]
        assert [one.result(timeout=30) for one in free] == ["2"] * 10
        assert not any(one.done() for one in written if one not in free)
        connection.commit()
        assert {one.result(timeout=30) for one in written} == {"1", "2"}
    assert hub.blocking.check() == []
