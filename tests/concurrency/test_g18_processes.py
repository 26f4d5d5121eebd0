"""G18 with several processes: each intention takes effect once, and whoever asks hears the same."""

from __future__ import annotations

import json

from planner import planner
from processes import started

NUMBER, PROCESSES = 30, 4


def test_g18_processes_with_the_same_ids_in_the_same_order(database, hubs):
    hub, _ = planner(database, hubs)
    runs = [(database.url, "once", NUMBER)] * PROCESSES
    with started("applied.py", *runs) as processes:
        for process in processes:
            process.tell("go")
        answers = [json.loads(process.read()) for process in processes]
    assert all(one == answers[0] for one in answers)
    assert [one[0] for one in answers[0]] == ["applied", "applied", "conflict"] * (NUMBER // 3)
    events = hub.blocking.history("w1", limit=200)
    assert [event.mutation for event in reversed(events[:-3])] == [f"m{i}" for i in range(NUMBER) if i % 3 < 2]
    assert {(event.actor.id, event.thread) for event in events[:-3]} == {("helper", "t1")}
    assert hub.blocking.check() == []


def test_g18_a_process_that_is_killed_has_written_each_intention_once_or_not(database, hubs):
    hub, _ = planner(database, hubs)
    for kills in range(4):
        with started("applied.py", (database.url, "forever", 4000)) as (process,):
            process.tell("go")
            for _ in range(3 + 7 * kills):
                process.read()
            process.kill()
    done = len(hub.blocking.history("w1", limit=4000)) - 3
    with started("applied.py", (database.url, "forever", done + 5)) as (process,):
        process.tell("go")
        for index in range(done + 5):
            assert process.read() == str(index)
        answers = json.loads(process.read())
    assert [one[0] for one in answers] == ["applied"] * (done + 5)
    assert [one[1] for one in answers] == list(range(4, done + 9))
    mutations = [event.mutation for event in reversed(hub.blocking.history("w1", limit=4000))][3:]
    assert mutations == [f"m{index}" for index in range(done + 5)]
    assert hub.blocking.check() == []
