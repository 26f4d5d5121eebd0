"""G11: being told twice is harmless: the same revisions and rows give the same text."""

from __future__ import annotations

import pytest

from abreast import agent
from talk import CORNERS, Broken, Talk


def changes(talk: Talk) -> None:
    """A bit of everything."""
    talk.sql("update plan set title = 'Seoul', budget = 7 where id = 'p1'")
    talk.sql("insert into item (id, plan_id, title, done) values (3, 'p1', 'boxes', false)", "delete from item where id = 1")
    talk.sql("update item set title = 'gas and water', done = true where id = 2")


@CORNERS
def test_g11_what_was_told_in_vain_is_told_in_the_same_words(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    changes(talk)
    talk.say(Broken(), "")
    with pytest.raises(Broken):
        talk.run()
    talk.run()
    talk.renew(hubs(database))
    talk.run()
    assert talk.revisions(1) == [4, 5, 6, 7]
    assert talk.block(1) == talk.block(2) == talk.block(3)


@CORNERS
def test_g11_two_conversations_at_the_same_place_are_told_the_same(database, hubs, door):
    """Except for what one of them did itself."""
    talk = Talk(database, hubs, door)
    for thread in ("a", "b"):
        talk.run(thread=thread)
    changes(talk)
    for thread in ("a", "b"):
        talk.run(thread=thread)
    assert talk.block(2) == talk.block(3)
    with talk.engine.begin() as connection, talk.hub.attribute(connection, actor=agent("helper"), thread="a"):
        connection.exec_driver_sql("update plan set title = 'Busan' where id = 'p1'")
    for thread in ("a", "b"):
        talk.run(thread=thread)
    line = 'plan p1: title is now "Busan" (was "Seoul")'
    assert [f"r8, you, {line}" in talk.block(4), f"r8, agent helper, {line}" in talk.block(5)] == [True, True]


@CORNERS
def test_g11_now_is_the_rows_value_in_the_same_snapshot(database, hubs, door):
    """The event says what the field became then; the line says what it is."""
    talk = Talk(database, hubs, door, limit=1)
    talk.run()
    for title in ("first", "second", "third"):
        talk.change(title)
    talk.run()
    assert 'r4, unknown, plan p1: title is now "third" (was "Mapo")' in talk.block()
    talk.run()
    assert 'r5, unknown, plan p1: title is now "third" (was "first")' in talk.block()
    talk.change("first")
    talk.run()
    assert 'r6, unknown, plan p1: title is now "first" (was "second")' in talk.block()
    talk.run()
    assert 'r7, unknown, plan p1: title is now "first" (was "third")' in talk.block()
    talk.change("other")
    talk.sql("delete from item", "delete from plan")
    talk.run()
    assert talk.block().splitlines()[1] == "r8, unknown, plan p1: title changed; it is gone by now"


@CORNERS
def test_g11_a_value_that_came_back_is_said_to_be_so(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change("away")
    talk.change("Mapo")
    talk.run()
    assert 'r5, unknown, plan p1: title is again "Mapo"' in talk.block()
