"""G8: what a conversation has nothing to do with is counted and passed; it uses up no limit. With it G10, G11, G15, G16."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from abreast import Abreast, Budget, ConfigurationError, agent
from abreast.core.render import render
from planner import CONTEXT, Base, Item, Plan, planner
from talk import CORNERS, Broken, Talk


class Asked:
    """An interest that answers this, and remembers what it was asked."""

    __name__ = "asked"

    def __init__(self, answer: Any) -> None:
        self.answer, self.calls = answer, []

    def __call__(self, session: Any, workspace: str, thread: str, context: Any) -> Iterable[Any] | None:
        self.calls.append((workspace, thread, context, session.scalar(sa.select(sa.func.count()).select_from(Item))))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def interested(database: Any, hubs: Any, door: Any, answer: Any, **options: Any) -> tuple[Talk, Asked]:
    """A talk whose hub has this interest."""
    asked = Asked(answer)

    def made(database: Any, **given: Any) -> Abreast:
        hub = hubs(database, **given)
        hub.interest(asked)
        return hub

    return Talk(database, made, door, **options), asked


def counted(talk: Talk) -> list[str]:
    return [line for line in talk.block().splitlines() if "concern" in line]


@CORNERS
def test_g8_what_is_outside_the_interest_is_counted_and_passed(database, hubs, door):
    talk, asked = interested(database, hubs, door, [(Plan, "p1"), ("item", 1)], limit=5)
    talk.run()
    talk.sql(*(f"update item set title = 'box {n}' where id = 2" for n in range(31)))
    talk.sql("update item set done = true where id = 1")
    talk.change()
    assert talk.run().told == {"w1": 36}
    assert talk.revisions() == [35, 36]
    assert counted(talk) == ["31 more changes in this workspace concern other things."]
    assert talk.current()["item"][1]["title"] == "box 30"  # CURRENT is not narrowed
    assert asked.calls[-1] == ("w1", "t", CONTEXT, 2)
    talk.run()
    assert (counted(talk), talk.revisions()) == ([], [])


@CORNERS
def test_g8_whole_types_none_and_nothing(database, hubs, door):
    talk, asked = interested(database, hubs, door, [Item])
    told = []
    for number, answer in enumerate(([Item], [], None, (one for one in [Plan]))):
        asked.answer = answer
        talk.run()
        talk.change(f"title {number}")
        talk.sql("update item set done = not done where id = 1")
        start = talk.head() - 2
        assert talk.run().told == {"w1": start + 2}
        told.append(([one - start for one in talk.revisions()], counted(talk)))
    one = ["1 more change in this workspace concerns other things."]
    two = ["2 more changes in this workspace concern other things."]
    assert told == [([2], one), ([], two), ([1, 2], []), ([1], one)]


@CORNERS
def test_g8_a_conversations_own_changes_are_told_whatever_it_has_to_do_with(database, hubs, door):
    talk, _ = interested(database, hubs, door, [Plan])
    talk.run()
    for thread in ("t", "another"):
        with talk.engine.begin() as connection, talk.hub.attribute(connection, actor=agent("helper"), thread=thread):
            connection.exec_driver_sql(f"update item set title = '{thread}' where id = 1")
    talk.run()
    assert "r4, you, item 1: title is now" in talk.block()
    assert (talk.revisions(), len(counted(talk))) == ([4], 1)


@CORNERS
def test_g8_an_interest_is_asked_only_where_there_is_something_to_tell(database, hubs, door):
    talk, asked = interested(database, hubs, door, [Plan])
    talk.run()
    talk.run()
    door(talk.hub).batch("w1", after=0, context=CONTEXT)  # nobody is told
    assert asked.calls == []
    talk.change()
    talk.run()
    assert len(asked.calls) == 1


@CORNERS
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Broken("secret words"), "The interest 'asked' failed with Broken. Nothing was read."),
        ("plan", "The interest 'asked' returned str;"),
        (Plan, "The interest 'asked' returned DeclarativeAttributeIntercept;"),
        ([("plans", 1)], "The interest 'asked' returned tuple"),
        ([(Plan, 1.5)], "The interest 'asked' returned tuple"),
        ([(Item, "one")], "The interest 'asked' returned tuple"),
        ([(Item, (1, 2))], "The interest 'asked' returned tuple"),
        ([Asked], "The interest 'asked' returned type"),
        (7, "The interest 'asked' returned int;"),
    ],
)
def test_g8_an_interest_that_fails_says_so_and_moves_nothing(database, hubs, door, answer, says):
    talk, _ = interested(database, hubs, door, answer)
    talk.run()
    talk.change()
    with pytest.raises(ConfigurationError, match="Nothing was read") as caught:
        talk.run()
    assert str(caught.value).startswith(says)
    assert "secret words" not in str(caught.value)
    assert (talk.place(), len(talk.model.requests)) == (3, 1)


class Follow(Base):
    __tablename__ = "follow"
    thread: Mapped[str] = mapped_column(primary_key=True)
    plan_id: Mapped[str] = mapped_column(sa.ForeignKey("plan.id", ondelete="CASCADE", onupdate="CASCADE"), primary_key=True)


def followed(session: Any, workspace: str, thread: str, context: Any) -> list[Any]:
    """The plans that a conversation follows, as an application keeps them: with the rows they follow."""
    return [(Plan, plan_id) for plan_id in session.scalars(sa.select(Follow.plan_id).where(Follow.thread == thread))]


@CORNERS
def test_g8_a_deletion_is_told_though_what_named_the_row_went_with_it(database, hubs, door):
    talk, asked = interested(database, hubs, door, None)
    asked.__class__ = type("Following", (Asked,), {"__call__": lambda self, *given: followed(*given)})
    cascading = ["pragma foreign_keys = on"] if database.kind == "sqlite" else []
    add = "insert into plan (id, workspace_id, title) values ('{0}', 'w1', 'new')"
    talk.sql(*(add.format(one) for one in ("p2", "p3")), *(f"insert into follow values ('t', '{p}')" for p in ("p2", "p3")))
    talk.run()
    for statement, said in (
        ("delete from plan where id = 'p2'", ["plan p2 was deleted"]),
        ("update plan set id = 'p4' where id = 'p3'", ["plan p3 was deleted", "plan p4 was added"]),
        ("delete from plan where id = 'p4'", ["plan p4 was deleted"]),  # the last that it followed
    ):
        with talk.engine.connect() as connection:
            for one in (*cascading, statement, "update item set done = not done where id = 1"):
                connection.exec_driver_sql(one)
            connection.commit()
        talk.run()
        told = [line.split(", unknown, ")[-1] for line in talk.block().split("\n\nCURRENT")[0].splitlines()[1:]]
        assert told == [*said, "1 more change in this workspace concerns other things."]


@CORNERS
def test_g8_deletions_are_outside_an_interest_in_whole_types_and_an_import_of_them_is_one_line(database, hubs, door):
    talk, asked = interested(database, hubs, door, [Plan], limit=5)
    talk.run()
    values = ", ".join(f"({n}, 'p1', 'box', false)" for n in range(10, 3010))
    talk.sql(f"insert into item (id, plan_id, title, done) values {values}")
    talk.sql("delete from item where id > 1010")
    talk.run()
    assert (talk.revisions(), counted(talk)) == ([], ["4999 more changes in this workspace concern other things."])
    asked.answer = [(Plan, "p1")]
    talk.sql("delete from item where id > 1")
    talk.run()
    assert "\nr5003 to r6004, unknown, 1002 item rows were deleted." in talk.block()


@CORNERS
def test_g8_ids_of_an_interest_are_read_as_values_of_the_key(database, hubs, door):
    talk, asked = interested(database, hubs, door, None)
    talk.run()
    for key in (1, "1", "01", (1,), sa.select(Item.id).where(Item.id == 1)):
        asked.answer = [(Item, key)]
        if isinstance(key, sa.Select):
            with talk.engine.connect() as connection:
                asked.answer = [(Item, row) for row in connection.execute(key)]
        talk.sql("update item set done = not done where id = 1")
        talk.run()
        assert (len(talk.revisions()), counted(talk)) == (1, [])


@CORNERS
def test_g8_an_interest_that_ends_the_batchs_transaction_is_named(database, hubs, door):
    talk, asked = interested(database, hubs, door, None)

    def rolled_back(session: Any) -> list[Any]:
        session.rollback()
        return [Plan]

    def swallowed(session: Any) -> list[Any]:
        with contextlib.suppress(sa.exc.DBAPIError):
            session.execute(sa.text("select * from nowhere"))
        return [Plan]

    asked.__class__ = type("Acting", (Asked,), {"__call__": lambda self, session, *_: self.answer(session)})
    talk.run()
    talk.change()
    asked.answer = rolled_back
    with pytest.raises(ConfigurationError, match="'asked' ended the transaction"):
        talk.run()
    asked.answer = swallowed
    if database.kind == "postgresql":
        with pytest.raises(ConfigurationError, match="A statement of the interest 'asked' failed"):
            talk.run()
        asked.answer = lambda session: [Plan]
    talk.run()
    assert (talk.revisions(), talk.place()) == ([4], 4)


@CORNERS
def test_g10_an_import_outside_the_interest_is_counted_without_being_read(database, hubs, door):
    talk, _ = interested(database, hubs, door, [Plan, (Item, 1)])
    talk.run()
    values = ", ".join(f"({n}, 'p1', 'somebody')" for n in range(5000))
    talk.sql(f"insert into contact (id, plan_id, name) values {values}")
    values = ", ".join(f"({n}, 'p1', 'box', false)" for n in range(10, 3010))
    talk.sql(f"insert into item (id, plan_id, title, done) values {values}", "update item set done = true where id in (1, 2)")
    assert talk.run().told == {"w1": 8005}
    assert (talk.revisions(), counted(talk)) == ([8004], ["8001 more changes in this workspace concern other things."])


@CORNERS
def test_g10_what_stands_outside_does_not_break_an_import(database, hubs, door):
    talk, _ = interested(database, hubs, door, [Item], limit=5)
    talk.run()
    for n in range(10, 30):
        talk.sql(f"insert into item (id, plan_id, title, done) values ({n}, 'p1', 'box', false)")
        talk.change(f"title {n}")
    talk.run()
    assert "\nr4 to r42, unknown, 20 item rows were added.\n20 more changes" in talk.block()


@CORNERS
def test_g15_a_budget_cut_counts_only_what_stands_before_it(database, hubs, door):
    talk, _ = interested(database, hubs, door, [Item])
    talk.run()
    for n in range(10, 20):
        talk.change(f"title {n}")
        talk.sql(f"insert into item (id, plan_id, title, done) values ({n}, 'p1', 'box', false)")
    batch = door(talk.hub).batch("w1", thread="t", context=CONTEXT)
    for room in range(80, 300, 7):
        block = render([batch], run="r", thread="t", budget=Budget(changes=room))
        told = block.told["w1"].to_revision
        number = (told - 3) // 2
        assert block.text.count("was added") == number
        assert f"\n{number} more change" in block.text
        assert (f"\n{10 - number} more change" in block.text) or number == 10  # of what waits, what will be told


@CORNERS
def test_g16_what_this_person_may_not_read_is_not_counted(database, hubs, door):
    talk, _ = interested(database, hubs, door, [Item], plan={"readable": lambda context: Plan.id == "p1"})
    talk.run()
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'Jongno')", "update plan set title = 'new'")
    assert talk.run().told == {"w1": 6}
    assert counted(talk) == ["1 more change in this workspace concerns other things."]


def test_g8_an_interest_is_declared_once_before_the_first_use(sqlite, hubs):
    hub = hubs(sqlite)
    with pytest.raises(ConfigurationError, match="plain function"):

        @hub.interest
        async def later(session: Any, workspace: str, thread: str, context: Any) -> None: ...

    hub.interest(Asked(None))
    with pytest.raises(ConfigurationError, match="already"):
        hub.interest(Asked(None))
    used, _ = planner(sqlite, hubs)
    with pytest.raises(ConfigurationError, match="before the first use"):
        used.interest(Asked(None))
