"""G19 with several processes: one run a thread, whoever is killed, however late its clock is."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from abreast import ThreadBusyError
from holder import ending, given, there
from leasing import Leased, assert_linear, once_free
from processes import started
from talk import CORNERS

PROCESSES, TURNS = 3, 5


def test_g19_another_process_is_told_who_has_the_thread_and_for_how_long_at_most(database, hubs, door):
    talk = Leased(database, hubs, door)
    with there(database, door, "model", question="first", lease_seconds=20) as process:
        row = talk.lease()
        with pytest.raises(ThreadBusyError) as caught:
            talk.run("second")
        assert (caught.value.thread, caught.value.run) == ("t", row.run)
        assert 0 < caught.value.seconds <= 20
        process.tell("go on")
        assert ending(process)["ended"] == ["succeeded", "woken"]
    assert talk.run("second").status == "succeeded"
    assert talk.said() == ["first", "woken", "second", "ok"]


@CORNERS
def test_g19_processes_that_hammer_one_thread_are_never_in_it_together(database, hubs, door):
    """Every turn of each is in the history, and the history has no branch."""
    talk = Leased(database, hubs, door)
    key = "id integer primary key" if database.kind == "sqlite" else "id serial primary key"
    talk.sql(f"create table visit ({key}, token bigint, run text, what text)")
    doors = ("sync", "async")
    options = {"turns": TURNS, "others": PROCESSES - 1}
    runs = [given(database, doors[number % 2], "hammer", name=f"p{number}", **options) for number in range(PROCESSES)]
    with started("holder.py", *runs) as processes:
        for process in processes:
            process.tell("go")
        ends = [ending(process) for process in processes]
    assert sorted(end["ended"] > 0 for end in ends)[1:] == [True] * (PROCESSES - 1)
    with talk.engine.connect() as connection:
        visits = connection.exec_driver_sql("select token, run, what from visit where what <> 'busy' order by id").all()
    number = PROCESSES * TURNS
    assert [what for _, _, what in visits] == ["enter", "leave"] * number
    assert [one[:2] for one in visits[::2]] == [one[:2] for one in visits[1::2]]
    tokens = [token for token, _, _ in visits[::2]]
    assert all(earlier < later for earlier, later in pairwise(tokens))
    assert len({run for _, run, _ in visits}) == number
    said = talk.said()
    asked = {f"p{process} asks {turn}" for process in range(PROCESSES) for turn in range(TURNS)}
    assert {said[at] for at in range(0, len(said), 4)} == asked
    assert len(said) == 4 * number
    assert all(said[at + 3] == f"to {said[at]}" for at in range(0, len(said), 4))
    assert_linear(talk)
    assert talk.lease().run is None
    assert talk.hub.blocking.check() == []


@pytest.mark.parametrize("stage", ["model", "tool", "validator"])
@CORNERS
def test_g19_the_thread_of_a_process_that_was_killed_is_free_when_its_lease_has_expired(database, hubs, door, stage):
    """By the database's clock, which the test moves. What it had not answered is told again."""
    talk = Leased(database, hubs, door)
    talk.run("before")
    talk.change()
    with there(database, door, stage, question="killed") as process:
        killed = talk.lease()
        process.kill()
    with pytest.raises(ThreadBusyError) as caught:
        talk.run("after")
    assert caught.value.run == killed.run
    assert 0 < caught.value.seconds <= 60
    assert talk.place() == 3
    talk.expire()
    result = talk.run("after")
    assert (result.status, talk.revisions(), talk.place()) == ("succeeded", [4], 4)
    assert talk.lease()[:2] == (killed.token + 1, None)
    said = talk.said()
    assert (said[:3], said[-2:]) == (["before", "ok", "killed"], ["after", "ok"])
    assert_linear(talk)


@CORNERS
def test_g19_a_process_that_was_killed_three_times_in_a_row_leaves_a_conversation_that_goes_on(database, hubs, door):
    """B11."""
    talk = Leased(database, hubs, door)
    for attempt in range(3):
        with there(database, door, "tool", question=f"attempt {attempt}") as process:
            process.kill()
        talk.expire()
    assert talk.run("after").status == "succeeded"
    said = talk.said()
    assert [text for text in said if text.startswith("attempt")] == ["attempt 0", "attempt 1", "attempt 2"]
    assert said[-2:] == ["after", "ok"]
    assert talk.lease()[:2] == (4, None)
    assert_linear(talk)


@CORNERS
@pytest.mark.parametrize("hours", [1, -1], ids=["ahead", "behind"])
def test_g19_a_clock_that_is_an_hour_off_neither_steals_a_thread_nor_loses_it(database, hubs, door, hours):
    talk = Leased(database, hubs, door)
    shift = hours * 3600

    def meanwhile(_: Any) -> str:
        with started("holder.py", given(database, door.kind, "model", shift=shift)) as (thief,):
            thief.tell("go")
            end = ending(thief)
        assert abs(end["time"] - time.time() - shift) < 60  # its clock is off
        ends.append(end["ended"])
        return "kept"

    ends: list[Any] = []
    talk.say(meanwhile)
    result = talk.run("mine")
    ((kind, run, seconds),) = ends
    assert (kind, run, result.answer) == ("ThreadBusyError", result.run, "kept")
    assert 0 < seconds <= 30

    with there(database, door, "model", question="theirs", shift=shift, lease_seconds=20) as process:
        with pytest.raises(ThreadBusyError) as caught:
            talk.run("mine again")
        assert 0 < caught.value.seconds <= 20
        process.tell("go on")
        end = ending(process)
    assert end["ended"] == ["succeeded", "woken"]
    assert abs(end["time"] - time.time() - shift) < 60
    assert talk.said() == ["mine", "kept", "theirs", "woken"]


@CORNERS
@pytest.mark.parametrize("hours", [1, -1], ids=["ahead", "behind"])
def test_g19_a_heart_whose_clock_is_an_hour_off_keeps_its_thread(database, hubs, door, hours):
    """A run that is longer than its lease; and when it is killed, the thread is free after the lease, not an hour later."""
    talk = Leased(database, hubs, door)
    with there(database, door, "model", shift=hours * 3600, lease_seconds=1.0) as process:
        first = talk.lease()
        assert 0 < first.expires_at - first.now <= 1
        while (row := talk.lease()).now < first.expires_at + 0.5:
            pass
        assert (row.token, row.run) == (first.token, first.run)
        assert 0 < row.expires_at - row.now <= 1
        process.kill()
    assert once_free(lambda: talk.run("after"), at_most=1).status == "succeeded"
    assert talk.lease().token == first.token + 1
