"""G10: an import counts as one change, is one line, and costs the same whatever its size. With it G8, G11, G12, G15, G16."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from abreast import Budget, agent, system
from abreast.core.render import render
from abreast.testing import calls
from planner import CONTEXT, Plan
from talk import CORNERS, TOOL_CALL, Broken, Talk, write_tool

IMPORT = system("import")


def add(talk: Talk, first: int, number: int, actor: Any = IMPORT, thread: str | None = None) -> None:
    """An import of so many items, in one transaction."""
    values = ", ".join(f"({n}, 'p1', 'box', false)" for n in range(first, first + number))
    with talk.engine.begin() as connection, talk.hub.attribute(connection, actor=actor, thread=thread):
        connection.exec_driver_sql(f"insert into item (id, plan_id, title, done) values {values}")


def lines(talk: Talk, request: int = -1) -> list[str]:
    """The lines of CHANGES."""
    return talk.block(request).split("\n\nCURRENT")[0].splitlines()[1:] if talk.block(request).startswith("CHANGES") else []


@CORNERS
def test_g10_an_import_is_one_line_and_the_cursor_moves_to_its_end(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change("first")
    add(talk, 10, 1200)
    talk.change("last")
    assert talk.run(agent=talk.build(talk.hub.tools(write=False))).told == {"w1": 1205}
    assert lines(talk) == [
        "r5 to r1204, system import, 1200 item rows were added. Look them up with list_item.",
        'r1205, unknown, plan p1: title is now "last" (was "Mapo")',
    ]
    assert (talk.run().told, lines(talk)) == ({"w1": 1205}, [])


@CORNERS
def test_g10_a_mass_is_more_than_the_limit_of_one_type_operation_and_actor(database, hubs, door):
    """Exactly the limit is not yet one, and whoever or whatever comes between ends it."""
    talk = Talk(database, hubs, door, limit=5, budget=Budget(changes=10_000))
    talk.run()
    add(talk, 10, 5)
    assert (talk.run().told, len(talk.revisions())) == ({"w1": 8}, 5)
    add(talk, 20, 6)
    add(talk, 30, 6, system("another"))
    talk.sql("update item set done = true where id between 20 and 26", "delete from item where id between 30 and 36")
    talk.sql("delete from item where id = 10")
    assert talk.run().told == {"w1": 33}
    assert lines(talk) == [
        "r9 to r14, system import, 6 item rows were added.",
        "r15 to r20, system another, 6 item rows were added.",
        "r21 to r26, unknown, item rows were changed 6 times.",
        "r27 to r33, unknown, 7 item rows were deleted.",
    ]


@CORNERS
def test_g10_an_import_counts_as_one_towards_the_limit(database, hubs, door):
    """Wherever it begins: also as the last that has room, and what comes behind it waits."""
    talk = Talk(database, hubs, door, limit=3, budget=Budget(changes=10_000))
    talk.run()
    talk.sql("update item set done = true where id = 1", "delete from item where id = 2")
    add(talk, 10, 5000)
    talk.change()
    assert talk.run().told == {"w1": 5005}
    assert [lines(talk)[2], lines(talk)[3][:21]] == [
        "r6 to r5005, system import, 5000 item rows were added.",
        "1 more change is not ",
    ]
    assert (talk.run().told, talk.revisions()) == ({"w1": 5006}, [5006])
    # One that would begin behind the limit waits whole.
    talk.sql("update item set done = false where id = 1", "delete from item where id = 1", "update plan set budget = 1")
    add(talk, 6000, 100)
    assert (talk.run().told, talk.revisions()) == ({"w1": 5009}, [5008, 5009])
    assert talk.run().told == {"w1": 5109}


@CORNERS
def test_g11_rows_deleted_and_imported_again_are_said_to_be_there(database, hubs, door):
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    talk.sql("delete from item")
    add(talk, 2, 20)  # item 2 among them
    talk.run()
    assert [line.partition(", ")[2] for line in lines(talk)] == [
        "unknown, item 1 was deleted",
        "unknown, item 2 was deleted (it is there again)",
        "system import, 20 item rows were added.",
    ]


@CORNERS
def test_g10_many_changes_of_one_row_are_no_import(database, hubs, door):
    """Somebody who saves one row sixty times says sixty things about it, and the line bridges from the old answer to now."""
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    for n in range(7):
        talk.change(f"title {n}")
    assert (talk.run().told, talk.revisions()) == ({"w1": 8}, [8])
    assert 'title is now "title 6" (was "Mapo")' in talk.block()


@CORNERS
def test_g11_a_mass_is_told_again_in_the_same_words_and_may_grow(database, hubs, door):
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    add(talk, 10, 20)
    talk.say(Broken(), TOOL_CALL, "done")
    with pytest.raises(Broken):
        talk.run()
    assert talk.run(agent=talk.build([write_tool(lambda: add(talk, 100, 30))])).told == {"w1": 53}
    assert lines(talk, 1) == lines(talk, 2) == ["r4 to r23, system import, 20 item rows were added."]
    assert lines(talk, 3) == ["r4 to r53, system import, 50 item rows were added."]


@CORNERS
def test_g8_a_budget_cut_falls_before_or_after_a_mass(database, hubs, door):
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    talk.change("x" * 60)
    add(talk, 10, 20)
    talk.sql(f"update item set title = '{'y' * 150}' where id = 1")
    batch = door(talk.hub).batch("w1", thread="t", context=CONTEXT)
    blocks = [render([batch], run="r", thread="t", budget=Budget(changes=room)) for room in range(40, 160)]
    assert {(block.told["w1"].to_revision, block.text.count("r5 to r24, ")) for block in blocks} == {(4, 0), (24, 1), (25, 1)}
    checks = dict(zip((4, 24, 25), batch.checks, strict=True))
    assert all(checks[block.told["w1"].to_revision] == block.told["w1"].to_check for block in blocks)


@CORNERS
def test_g9_g29_a_mass_ends_with_the_logs_own_check_number(database, hubs, door):
    """So that the next run, which starts there, finds its place in this log and reports no loss."""
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    add(talk, 10, 300)
    talk.sql("delete from item where id = 1", "update plan set budget = 3")
    batch = door(talk.hub).batch("w1", thread="t", context=CONTEXT)
    (mass, *rest), whole = batch.events, door(talk.hub).batch("w1", after=0, limit=1000, context=CONTEXT)
    assert (mass.first, mass.revision, mass.count, len(rest)) == (4, 303, 300, 2)
    assert batch.checks[0] == dict(zip([e.revision for e in whole.events], whole.checks, strict=True))[303]
    talk.say(*["done"] * 2)
    talk.run()
    talk.change()
    talk.run()
    assert ("no longer listed" in talk.block(), talk.revisions()) == (False, [306])


@CORNERS
def test_g12_a_mass_behind_a_pruned_stretch_begins_at_the_horizon(database, hubs, door):
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    add(talk, 10, 100)
    door(talk.hub).prune("w1", horizon=53)
    assert talk.run().told == {"w1": 103}
    assert lines(talk)[0].startswith("Older changes are no longer listed")
    assert lines(talk)[1:] == ["r54 to r103, system import, 50 item rows were added."]


@CORNERS
def test_g16_a_mass_counts_only_what_this_person_may_hear(database, hubs, door):
    """Every third plan is his; the others neither count nor break the run."""
    talk = Talk(database, hubs, door, limit=5, plan={"readable": lambda context: Plan.title == "open"})
    talk.run()
    values = ", ".join(f"('n{n}', 'w1', '{'secret' if n % 3 else 'open'}')" for n in range(3000))
    talk.sql(f"insert into plan (id, workspace_id, title) values {values}")
    assert talk.run().told == {"w1": 3003}
    assert lines(talk) == ["r4 to r3001, unknown, 1000 plan rows were added."]
    values = ", ".join(f"('m{n}', 'w1', '{'secret' if n % 600 else 'open'}')" for n in range(3000))
    talk.sql(f"insert into plan (id, workspace_id, title) values {values}")
    assert (talk.run().told, len(talk.revisions())) == ({"w1": 5404}, 5)  # five of 3000 are no import for him
    assert talk.run().told == {"w1": 6003}


@CORNERS
def test_g7_what_the_conversations_own_agent_did_in_bulk_is_told_as_you(database, hubs, door):
    """And is not one with what the same agent did in another conversation."""
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    add(talk, 10, 100, agent("helper"), "t")
    add(talk, 200, 100, agent("helper"), "another")
    talk.run()
    assert lines(talk) == [
        "r4 to r103, you, 100 item rows were added.",
        "r104 to r203, agent helper, 100 item rows were added.",
    ]


@CORNERS
def test_g10_an_import_of_20000_rows_is_not_read_into_memory(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    add(talk, 10, 20_000)
    tracemalloc.start()
    batch = door(talk.hub).batch("w1", thread="t", context=CONTEXT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [event.count for event in batch.events] == [20_000]
    assert (batch.remaining, batch.now) == (0, {})
    assert peak < 6_000_000  # the thousand rows of CURRENT; twenty thousand events are 20 MB


@CORNERS
def test_g10_who_reads_without_a_conversation_gets_every_change(database, hubs, door):
    talk = Talk(database, hubs, door)
    add(talk, 10, 120)
    revisions: list[int] = []
    while len(revisions) < 123:
        page = door(talk.hub).batch("w1", after=len(revisions), context=CONTEXT)
        revisions += [event.revision for event in page.events]
    assert revisions == list(range(1, 124))


@CORNERS
def test_g15_what_a_mass_does_not_list_can_be_looked_up(database, hubs, door):
    talk = Talk(database, hubs, door, limit=5)
    talk.run()
    add(talk, 10, 30)
    talk.say(calls("list_item", after="38"), "done")
    talk.run(agent=talk.build(talk.hub.tools(write=False)))
    assert "Look them up with list_item." in talk.block(1)
    answer = next(message.text for message in reversed(talk.model.requests[-1]) if message.type == "tool")
    assert json.JSONDecoder().raw_decode(answer)[0]["rows"][0]["id"] == 39
