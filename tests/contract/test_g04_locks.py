"""G4: capture brings no deadlock and no lock wait, apart from a workspace's head for the moment of commit."""

from __future__ import annotations

import random

import psycopg
import pytest
from psycopg import errors

from house import House, Plan, build, furnish
from lanes import lanes
from oracle import heads


@pytest.fixture
def house(postgres, hubs) -> House:
    made = build(postgres, hubs)
    furnish(made)
    return made


@pytest.fixture
def lane(house):
    """Opens connections that the test moves step by step."""
    with lanes(house.database.plain) as made:
        yield made


def test_g4_a_writer_that_has_not_committed_blocks_no_other_writer_of_its_workspace(house, lane):
    slow, fast = lane.open(), lane.open()
    slow.run("begin", "update plan set title = 'slow' where id = 'p1'", "insert into plan (id, workspace_id) values ('s', 'new')")
    fast.run(
        "set lock_timeout = '1ms'",
        "begin",
        "update plan set title = 'fast' where id = 'p2'",
        "insert into plan (id, workspace_id) values ('f', 'new')",  # the first event of a workspace, twice at once
        "commit",
    )
    assert sorted(house.news()) == ["new insert plan f", "w1 update plan p2 title"]
    slow.run("commit")
    assert sorted(house.news()) == ["new insert plan s", "w1 update plan p1 title"]
    assert house.mistakes() == []


def test_g4_until_commit_no_transaction_touches_a_head(house, lane):
    writer = lane.open()
    writer.run("begin", "update plan set title = 'x'", "delete from plan where id = 'p1'", "insert into plan values ('n', 'w1')")
    assert not lane.locks(writer) & {"abreast.workspace", "abreast.block"}
    writer.run("set constraints all immediate")
    assert "abreast.workspace" in lane.locks(writer), "the control: this is what a lock on a head looks like"
    writer.run("rollback")
    assert house.news() == []


def test_g4_readers_wait_for_no_writer_and_hear_of_nothing_uncommitted(house, lane):
    writer = lane.open()
    writer.run("begin", "update plan set title = 'x'", "set constraints all immediate")
    start = heads(house)["w1"]
    assert house.hub.blocking.batch("w1", after=start).events == ()
    assert {row.values["title"] for row in house.hub.blocking.rows(Plan, "w1").rows} == {"one", "two"}
    writer.run("commit")
    assert len(house.hub.blocking.batch("w1", after=start).events) == 2


CROSSING = ("update plan set title = '{0}' where id = 'p1'", "update plan set title = '{0}' where id = 'p2'")


def _cross(lane, first, second) -> list[psycopg.Error | None]:
    """Two transactions: one writes p1 and then p2, the other only p2, in between. Their rows alone cannot deadlock."""
    first.run("begin", CROSSING[0].format("first"))
    between = second.start("begin", CROSSING[1].format("second"))
    try:
        lane.wait_until_waiting(second, between)
    except AssertionError:
        assert between.done()
    last = first.start(CROSSING[1].format("first"))
    if between.done():
        lane.wait_until_waiting(first, last)  # for p2, as it would without capture
        second.run("commit")
    outcomes = []
    for each, future in ((first, last), (second, between)):
        outcomes.append(future.exception(timeout=60))
        each.run("rollback" if outcomes[-1] else "commit")
    return outcomes


def test_g4_rows_in_key_order_cannot_deadlock_and_with_a_head_that_moves_at_once_they_do(house, lane):
    first, second = lane.open(), lane.open()
    assert _cross(lane, first, second) == [None, None]
    assert sorted(house.news()) == ["w1 update plan p1 title", "w1 update plan p2 title", "w1 update plan p2 title"]
    assert house.mistakes() == []
    house.run(
        "create table counter (workspace text primary key, head integer not null)",
        "insert into counter values ('w1', 0)",
        """create function count_at_once() returns trigger language plpgsql as
        $$ begin update counter set head = head + 1 where workspace = new.workspace_id; return null; end $$""",
        "create trigger count_at_once after update on plan for each row execute function count_at_once()",
    )
    outcomes = _cross(lane, first, second)
    assert [type(outcome) for outcome in outcomes if outcome] == [errors.DeadlockDetected], "the control must deadlock"
    assert house.mistakes() == []


def test_g4_two_transactions_over_the_same_workspaces_in_opposite_order_commit_both(house, lane):
    """They wrote other rows of twenty workspaces, one forwards, one backwards; at commit both take the heads in one order."""
    workspaces = [f"x{n:02}" for n in range(20)]
    house.run(
        "insert into plan (id, workspace_id) values "
        + ", ".join(f"('{workspace}-{who}', '{workspace}')" for workspace in workspaces for who in ("a", "b"))
    )
    one, other = lane.open(), lane.open()
    for turn in range(15):
        for each, who, order in ((one, "a", workspaces), (other, "b", workspaces[::-1])):
            each.run("begin", *(f"update plan set title = '{turn}' where id = '{workspace}-{who}'" for workspace in order))
        ends = [one.start("commit"), other.start("commit")]
        assert [end.exception(timeout=60) for end in ends] == [None, None]
    assert house.mistakes() == []


def test_g4_one_transaction_over_many_workspaces_numbers_each_once(house):
    many = 300
    house.run(
        "insert into plan (id, workspace_id) select 'm' || n, 'm' || n from generate_series(1, 300) n",
        *(f"update plan set title = 'x' where id = 'm{n}'" for n in range(1, many + 1)),
        "update plan set title = 'y' where id >= 'm' and id < 'n'",
    )
    assert {workspace: head for workspace, head in heads(house).items() if workspace.startswith("m")} == {
        f"m{n}": 3 for n in range(1, many + 1)
    }
    assert house.value("select count(*) from abreast.block where workspace like 'm%%'") == many
    assert house.mistakes() == []


CONSTRAINTS = {
    "at the start": ["now", "1", "2", "savepoint a", "3", "rollback to a", "4"],
    "in the middle, and deferred again": ["1", "now", "2", "3", "later", "4", "now", "later", "5"],
    "rolled back to before it": ["1", "savepoint a", "2", "now", "3", "rollback to a", "4"],
    "the first event is rolled back with it": ["savepoint a", "1", "now", "2", "rollback to a", "3"],
    "nothing but it is rolled back": ["1", "savepoint a", "now", "rollback to a", "2", "later", "3"],
    "rolled back to behind it": [
        "1",
        "now",
        "savepoint a",
        "2",
        "rollback to a",
        "3",
        "later",
        "savepoint b",
        "4",
        "rollback to b",
        "5",
    ],
    "released": ["1", "savepoint a", "now", "2", "release a", "3", "later", "savepoint b", "4", "rollback to b"],
    "at the end": ["1", "2", "now"],
    "and all settings forgotten": ["1", "reset all", "2", "now", "discard temp", "3"],
}
WORDS = {"now": "set constraints all immediate", "later": "set constraints all deferred"}


def test_g4_set_constraints_keeps_the_log_exact(house, lane):
    """Revisions that are given early, given back and given again."""
    writer = lane.open()
    for name, steps in CONSTRAINTS.items():
        kept: list[str] = []
        marks: dict[str, int] = {}
        writer.run("update plan set title = null")
        house.events()
        writer.run("begin")
        for step in steps:
            if step.isdigit():
                kept.append(step)
                writer.run(f"update plan set title = '{step}'")
                continue
            writer.run(WORDS.get(step, step))
            if step.startswith("savepoint"):
                marks[step[-1]] = len(kept)
            elif step.startswith("rollback"):
                del kept[marks[step[-1]] :]
        writer.run("commit")
        told = [event.values["title"][1] for event in house.events() if event.entity_id == "p3"]
        assert told == kept, name
    assert house.mistakes() == []


def test_g4_set_constraints_among_savepoints_at_random_keeps_the_log_exact(house, lane):
    chance = random.Random(4)
    writer = lane.open()
    for _ in range(60):
        open_savepoints: list[str] = []
        writer.run("begin")
        for nth in range(chance.randrange(2, 20)):
            kind = chance.choices(["write", "move", "savepoint", "rollback", "release", "now", "later"], [9, 2, 3, 3, 1, 2, 2])[0]
            plan = chance.choice(("p1", "p2", "p3"))
            if kind == "write":
                writer.run(f"update plan set title = '{nth}' where id in ('{plan}', 'p1')")
            elif kind == "move":
                writer.run(f"update plan set workspace_id = 'w{chance.randrange(3)}' where id = '{plan}'")
            elif kind == "savepoint":
                open_savepoints.append(f"s{nth}")
                writer.run(f"savepoint s{nth}")
            elif kind == "rollback" and open_savepoints:
                to = chance.randrange(len(open_savepoints))
                writer.run(f"rollback to {open_savepoints[to]}")
                del open_savepoints[to + 1 :]
            elif kind == "release" and open_savepoints:
                to = chance.randrange(len(open_savepoints))
                writer.run(f"release {open_savepoints[to]}")
                del open_savepoints[to:]
            elif kind in WORDS:
                writer.run(WORDS[kind])
        writer.run(chance.choice(("commit", "commit", "commit", "rollback")))
        assert house.mistakes() == []


def test_g4_who_writes_on_after_set_constraints_holds_the_head_until_commit(house, lane):
    """This is what G4 says is given up: another writer of the workspace waits; of another workspace it does not."""
    early, late = lane.open(), lane.open()
    early.run("begin", "update plan set title = 'early' where id = 'p1'", "set constraints all immediate")
    late.run("update plan set title = 'other' where id = 'p3'")
    waiting = late.start("update plan set title = 'late' where id = 'p2'")
    lane.wait_until_waiting(late, waiting)
    early.run("update plan set title = 'early again' where id = 'p1'", "commit")
    waiting.result(timeout=60)
    assert [line for line in house.news() if line.startswith("w1")] == ["w1 update plan p1 title"] * 2 + [
        "w1 update plan p2 title"
    ]
    assert house.mistakes() == []


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_g4_at_higher_isolation_writers_of_one_workspace_conflict_and_a_retry_converges(house, lane, level):
    one, other = lane.open(), lane.open()
    start = heads(house)["w1"]
    write = f"begin isolation level {level}", "select count(*) from game", "update plan set title = title || '+' where id = 'p1'"
    one.run(*write)
    other.run("update plan set title = 'two+' where id = 'p2'")
    with pytest.raises(errors.SerializationFailure):
        one.run("commit")
    assert heads(house)["w1"] == start + 1
    one.run(*write, "commit")  # the same again, as every application at this level must be ready to do
    one.run(*write)
    other.run("update plan set title = 'other' where id = 'p3'")  # another workspace is no conflict
    one.run("commit")
    assert [line for line in house.news() if line.startswith("w1")] == [
        "w1 update plan p2 title",
        "w1 update plan p1 title",
        "w1 update plan p1 title",
    ]
    assert house.mistakes() == []


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_g4_at_higher_isolation_savepoints_moves_and_new_workspaces_are_exact(house, lane, level):
    writer = lane.open()
    writer.run(
        f"begin isolation level {level}",
        "update plan set title = 'a' where id = 'p1'",
        "savepoint a",
        "update plan set title = 'b' where id = 'p1'",
        "rollback to a",
        "update plan set workspace_id = 'new' || id",
        "delete from item where id = 1",
        "insert into plan (id, workspace_id) values ('p9', 'other')",
        "commit",
    )
    assert house.mistakes() == []


# -- parents that move take locks of their own: their children must not be left behind --------------------------------

CHILD_WRITES = {
    "insert": "insert into item (id, plan_id, title, done) values (99, 'p1', 'late', false)",
    "update": "update item set title = 'late' where id = 1",
    "delete": "delete from item where id = 1",
}


@pytest.mark.parametrize("write", CHILD_WRITES)
def test_g4_a_child_written_while_its_parent_moves_ends_up_where_its_parent_is(house, lane, write):
    mover, writer = lane.open(), lane.open()
    mover.run("begin", "update plan set workspace_id = 'w9' where id = 'p1'")
    late = writer.start("begin", CHILD_WRITES[write], "commit")
    lane.wait_until_waiting(writer, late)
    mover.run("commit")
    late.result(timeout=60)
    assert house.mistakes() == []


@pytest.mark.parametrize("write", CHILD_WRITES)
def test_g4_a_parent_that_moves_while_a_child_is_written_takes_it_along(house, lane, write):
    mover, writer = lane.open(), lane.open()
    writer.run("begin", CHILD_WRITES[write])
    move = mover.start("begin", "update plan set workspace_id = 'w9' where id = 'p1'", "commit")
    lane.wait_until_waiting(mover, move)
    writer.run("commit")
    move.result(timeout=60)
    assert house.mistakes() == []
