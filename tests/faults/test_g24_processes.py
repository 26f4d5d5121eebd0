"""G24, G25: several processes serve one database. Each run is executed once, whoever is killed, stopped or frozen."""

from __future__ import annotations

import signal

import pytest

from abreast import Decision
from serving import MINA
from talk import CORNERS
from workers import stretches, types, until

ADD = 'add {"number": 3}'
RENAME = 'rename {"title": "renamed"}'


@CORNERS
def test_g24_two_processes_execute_each_run_once(offices):
    """Both are at work at the same time."""
    office = offices()
    alone = {"concurrency": 1}
    workers = [office.worker(hold="model", service=alone), office.worker(hold="model", service=alone)]
    threads = [office.thread() for _ in range(8)]
    for number, thread in enumerate(threads):
        office.call("send", MINA, thread, f'add {{"number": {10 + number}}}')
    for worker in workers:
        worker.expect("there")
    for worker in workers:
        worker.tell()
    until(lambda: all(office.status(thread) == ["succeeded"] for thread in threads))
    assert office.changes() == 8
    assert sorted(number for (number,) in office.rows("select id from item")) == [1, 2, *range(10, 18)]
    for thread in threads:
        told = office.settled(thread)
        assert stretches(told) == ["succeeded"]
        assert [types(told).count(one) for one in ("run.started", "assistant.completed", "tool.completed")] == [1, 1, 1]
        assert office.attempts(thread) == [1]


@CORNERS
def test_g24_the_runs_of_a_process_that_is_killed_are_taken_over_when_its_lease_is_over(offices):
    """A lease that really ends, and another process that finds out by itself."""
    office = offices(lease_seconds=1.5)
    thread, other = office.thread(), office.thread()
    office.call("send", MINA, thread, ADD)
    killed = office.worker(hold="committed")
    killed.expect("there")
    heir = office.worker()
    office.call("send", MINA, other, "hello")
    until(lambda: office.status(other) == ["succeeded"])  # the other is at work, and leaves the run to whom it belongs
    assert office.status(thread) == ["running"]
    killed.kill()
    until(lambda: office.status(thread) == ["succeeded"])
    heir.kill()
    told = office.settled(thread)
    assert stretches(told) == ["succeeded"]
    assert types(told).count("assistant.completed") == 1
    assert (office.changes(), office.said(thread)) == (1, [("user", ADD), ("assistant", "It said: added")])


@CORNERS
@pytest.mark.parametrize("point", ["context", "model", "committed", "answered"])
def test_g24_a_process_that_wakes_up_when_its_run_was_taken_over_changes_nothing(offices, point):
    """Frozen before it holds the thread, in a model call, behind a tool's commit, and before the answer is stored. It changes
    neither rows nor events nor messages nor checkpoints, whatever it has still to say."""
    office = offices()
    thread = office.thread()
    office.call("send", MINA, thread, ADD)
    frozen = office.worker(hold=point)
    frozen.expect("there")
    frozen.freeze(office.writable)
    told = office.recover(thread)
    assert stretches(told) == ["succeeded"]
    assert (office.changes(), office.said(thread)) == (1, [("user", ADD), ("assistant", "It said: added")])
    office.call("stop")
    left = office.everything()
    assert len(left) > 10
    frozen.signal(signal.SIGCONT)
    frozen.tell()
    assert frozen.do("rest") == "rests"
    assert office.everything() == left
    frozen.kill()
    office.call("start")
    assert office.ask(thread, "and on").status == "succeeded"
    assert office.said(thread)[-1] == ("assistant", "You said: and on")


@CORNERS
@pytest.mark.parametrize("point", ["model", "adding", "committed", "answered"])
def test_g24_a_process_that_is_stopped_gives_its_runs_back(offices, point):
    """It is asked to stop as `abreast serve` is. The next process goes on at once, and no beginning is counted."""
    office = offices()
    thread = office.thread()
    office.call("send", MINA, thread, ADD)
    worker = office.worker(hold=point)
    worker.expect("there")
    worker.signal(signal.SIGTERM)
    if point == "adding":  # a tool's transaction is not left to itself: it is taken back first
        worker.tell()
    worker.expect("stopped")
    worker.died()
    assert (office.status(thread), office.attempts(thread)) == (["queued"], [1])
    # Let go, the tool may be quicker than the order to stop. What counts is that it is done once in the end.
    assert office.changes() in {"model": (0,), "adding": (0, 1)}.get(point, (1,))
    office.call("start")
    told = office.settled(thread)
    assert stretches(told) == ["succeeded"]
    assert (office.changes(), office.attempts(thread)) == (1, [1])
    assert office.said(thread) == [("user", ADD), ("assistant", "It said: added")]
    kinds = types(told)
    assert [kinds.count(one) for one in ("tool.proposed", "tool.completed", "assistant.completed")] == [1, 1, 1]
    assert kinds.index("tool.proposed") < kinds.index("tool.completed") < kinds.index("assistant.completed")


@CORNERS
def test_g24_a_run_whose_process_dies_three_times_is_given_up_and_its_thread_goes_on(offices):
    office = offices()
    thread = office.thread()
    run = office.call("send", MINA, thread, ADD)
    for number in range(3):
        office.expire()
        office.worker(die="model").died()
        assert (office.status(thread), office.attempts(thread)) == (["running"], [number + 1])
    told = office.recover(thread)
    assert stretches(told) == ["failed"]
    assert types(told)[-2:] == ["error", "done"]
    found = office.call("run", MINA, thread, run.id)
    assert (found.status, found.attempts, found.error["code"]) == ("failed", 3, "gave_up")
    assert office.call("thread", MINA, thread).status == "idle"
    assert (office.changes(), office.said(thread)) == (0, [("user", ADD)])
    assert office.ask(thread, "hello").status == "succeeded"
    assert office.said(thread) == [("user", ADD), ("user", "hello"), ("assistant", "You said: hello")]
    assert stretches(office.settled(thread)) == ["failed", "succeeded"]


@CORNERS
def test_g25_messages_that_wait_for_their_turn_survive_the_process(offices):
    office = offices(service={"on_busy": "enqueue"})
    thread = office.thread()
    office.call("send", MINA, thread, ADD)
    worker = office.worker(hold="model")
    worker.expect("there")
    office.call("send", MINA, thread, "second")
    office.call("send", MINA, thread, "third")
    worker.kill()
    assert office.status(thread) == ["running", "queued", "queued"]
    told = office.recover(thread)
    assert stretches(told) == ["succeeded"] * 3
    said = [(ADD, "It said: added"), ("second", "You said: second"), ("third", "You said: third")]
    assert office.said(thread) == [one for asked, answer in said for one in (("user", asked), ("assistant", answer))]
    assert (office.changes(), office.attempts(thread)) == (1, [2, 1, 1])


@CORNERS
@pytest.mark.parametrize("point", ["asked", "ended"])
def test_g24_recovery_never_answers_an_open_approval(offices, point):
    """Taken up again and again it waits, and its beginnings are not used up."""
    office = offices()
    thread = office.thread()
    office.call("send", MINA, thread, RENAME)
    office.worker(die=point).died()
    for _ in range(3):
        assert stretches(office.recover(thread)) == ["awaiting_approval"]
        assert (office.status(thread), office.attempts(thread), office.approvals(thread)) == (
            ["awaiting_approval"],
            [1],
            ["open"],
        )
        office.call("stop")
    assert (office.title(), office.changes()) == ("Mapo", 0)


@CORNERS
@pytest.mark.parametrize("point", ["context", "asks", "between", "asked", "ended"])
def test_g24_recovery_never_answers_a_question_of_the_application_by_itself(offices, point):
    """A tool with two questions (C18). Its first is answered, and the process is killed at every point behind that: each
    answer reaches the question that it was given to, and no other."""
    office = offices()
    thread = office.thread()
    office.call("send", MINA, thread, "ask {}")
    worker = office.worker()
    office.parked(thread)
    worker.kill()
    answers = {"which floor?": "third", "which door?": "left"}
    asked = []

    def answer() -> None:
        (approval,) = office.call("approvals", MINA, thread=thread).items
        assert approval.kind == "interrupt"
        asked.append(approval.question["value"])
        office.call("decide", MINA, thread, approval.id, Decision("respond", message=answers[asked[-1]]))

    answer()
    office.worker(die=point).died()
    office.recover(thread)
    while office.status(thread) == ["awaiting_approval"]:
        assert len(asked) < 4
        answer()
        office.settled(thread)
    assert office.status(thread) == ["succeeded"]
    assert office.said(thread)[-1] == ("assistant", "It said: third, left")
    assert asked[0] == "which floor?"
    assert asked[-1] == "which door?"
    if point in ("context", "ended"):
        assert asked == ["which floor?", "which door?"]
    ends = stretches(office.settled(thread))
    assert ends == ["awaiting_approval"] * (len(ends) - 1) + ["succeeded"]
    assert len(ends) == len(asked) + 1
