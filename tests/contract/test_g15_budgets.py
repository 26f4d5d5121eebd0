"""G15 through the database: large values, many rows, a caller's counter. The arithmetic is in tests/unit/test_render.py."""

from __future__ import annotations

import re
from typing import Any

from abreast import Budget
from abreast.core.current import CURRENT
from abreast.testing import calls
from planner import CONTEXT
from talk import CORNERS, Talk, said

LARGE = 10 * 1024 * 1024


@CORNERS
def test_g15_a_value_of_10_megabytes_is_cut_where_it_is_read(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    with talk.engine.begin() as connection:
        placeholder = "?" if database.kind == "sqlite" else "%s"
        connection.exec_driver_sql(f"update plan set title = {placeholder} where id = 'p1'", ("x" * LARGE,))
    assert talk.run().told == {"w1": 4}
    title = talk.current()["plan"][0]["title"]
    assert title == "x" * 500 + "…"
    assert f'title is now "{title}"' in talk.block()
    assert len(talk.block()) < 3000
    talk.change("small again")
    talk.run()
    assert 'title is now "small again"' in talk.block()


@CORNERS
def test_g15_rows_without_room_are_counted_and_a_tool_has_them(database, hubs, door):
    talk = Talk(database, hubs, door, budget=Budget(current=300))
    values = ", ".join(f"({n}, 'p1', 'box number {n}', false)" for n in range(10, 1210))
    talk.sql(f"insert into item (id, plan_id, title, done) values {values}")
    talk.say(calls("list_item", after="1208"), "done")
    talk.run(agent=talk.build(talk.hub.tools()))
    shown = len(talk.current(0)["item"])
    assert f"\n{1202 - shown} more of item are not shown here. Look them up with list_item." in talk.block(0)
    assert 3 < shown < 20
    assert "box number 1209" in said(talk.model.requests[-1][-1])


@CORNERS
def test_g15_a_change_of_a_row_behind_those_that_are_read_is_told_with_its_value(database, hubs, door):
    """A batch reads a thousand rows of a table; what changes behind them is looked up by its id."""
    talk = Talk(database, hubs, door)
    values = ", ".join(f"({n}, 'p1', 'box', false)" for n in range(10, 1210))
    talk.sql(f"insert into item (id, plan_id, title, done) values {values}")
    talk.run()
    talk.sql("update item set title = 'the last box' where id = 1209", "delete from item where id = 1208")
    talk.run()
    assert 'item 1209: title is now "the last box" (was "box")' in talk.block()
    assert "item 1208 was deleted" in talk.block()
    batch = door(talk.hub).batch("w1", context=CONTEXT)
    assert batch.left_out == {"item": 201}


@CORNERS
def test_g15_a_callers_counter_is_kept_to(database, hubs, door):
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    talk = Talk(database, hubs, door, budget=Budget(current=700, changes=600), count_tokens=count)
    talk.run()
    values = ", ".join(f"({n}, 'p1', 'box number {n}', false)" for n in range(10, 60))
    talk.sql(f"insert into item (id, plan_id, title, done) values {values}")
    result: Any = talk.run()
    changes, current = talk.block().split("\n\n" + CURRENT)
    assert counted
    assert len(changes) <= 600
    assert len(CURRENT + current) <= 700
    left = int(re.search(r"^(\d+) more changes", changes, re.M)[1])
    assert (result.told["w1"], len(talk.revisions())) == (53 - left, 50 - left)
