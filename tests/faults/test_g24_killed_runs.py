"""G24: the process that executes a run is killed at every point where something is half done; the next one ends it right."""

from __future__ import annotations

from typing import Any

import pytest

from abreast import DecidedError, Decision
from serving import MINA
from talk import CORNERS
from workers import stretches, types

RENAME = 'rename {"title": "renamed"}'
ADD = 'add {"number": 3}'
PAY = 'pay {"amount": 5}'


@pytest.fixture
def office(offices: Any) -> Any:
    return offices()


@CORNERS
def test_g24_killed_right_behind_a_message_that_it_took_itself_its_run_is_executed_elsewhere(office):
    """The message, its run and that this process has it were stored in one transaction."""
    thread = office.thread()
    worker = office.worker(die="context")
    worker.order("send", thread, ADD)
    worker.died()
    assert (office.status(thread), office.said(thread)) == (["running"], [("user", ADD)])
    told = office.recover(thread)
    assert stretches(told) == ["succeeded"]
    assert types(told).count("run.queued") == 1
    assert (office.changes(), office.attempts(thread)) == (1, [2])
    assert office.said(thread) == [("user", ADD), ("assistant", "It said: added")]


@CORNERS
def test_g24_killed_right_before_the_approval_is_stored_the_person_is_asked_once(office):
    thread = office.thread()
    run = office.call("send", MINA, thread, RENAME)
    office.worker(die="touches").died()
    assert (office.status(thread), office.approvals(thread)) == (["running"], [])
    told = office.recover(thread)
    assert stretches(told) == ["awaiting_approval"]
    assert types(told).count("approval.requested") == 1
    assert (office.title(), office.changes(), office.approvals(thread)) == ("Mapo", 0, ["open"])
    (approval,) = office.call("approvals", MINA, thread=thread).items
    assert (approval.tool, dict(approval.arguments), approval.run) == ("rename", {"title": "renamed"}, run.id)
    office.call("decide", MINA, thread, approval.id, Decision("approve"))
    told = office.settled(thread)
    assert stretches(told) == ["awaiting_approval", "succeeded"]
    assert (office.title(), office.changes()) == ("renamed", 1)
    assert office.said(thread) == [("user", RENAME), ("assistant", "It said: renamed")]


@CORNERS
def test_g24_killed_right_behind_the_stored_approval_the_person_is_asked_once_and_the_stream_says_so(office):
    """The run was not parked: nobody wrote that it waits."""
    thread = office.thread()
    office.call("send", MINA, thread, RENAME)
    office.worker(die="asked").died()
    assert (office.status(thread), office.approvals(thread)) == (["running"], ["open"])
    told = office.recover(thread)
    assert stretches(told) == ["awaiting_approval"]
    assert types(told).count("approval.requested") == 1
    assert (office.status(thread), office.approvals(thread)) == (["awaiting_approval"], ["open"])
    (approval,) = office.call("approvals", MINA, thread=thread).items
    office.call("decide", MINA, thread, approval.id, Decision("approve"))
    assert stretches(office.settled(thread)) == ["awaiting_approval", "succeeded"]
    assert (office.title(), office.changes()) == ("renamed", 1)


@CORNERS
def test_g24_killed_with_an_approval_that_was_decided_before_the_run_was_parked(office):
    thread = office.thread()
    office.call("send", MINA, thread, RENAME)
    office.worker(die="asked").died()
    (approval,) = office.call("approvals", MINA, thread=thread).items
    office.call("decide", MINA, thread, approval.id, Decision("approve"))
    assert office.status(thread) == ["running"]  # of a process that is gone
    told = office.recover(thread)
    assert stretches(told) == ["succeeded"]
    assert (office.title(), office.changes()) == ("renamed", 1)
    assert office.said(thread)[-1] == ("assistant", "It said: renamed")


@CORNERS
@pytest.mark.parametrize("kind", ["approve", "reject"])
def test_g24_killed_right_behind_the_decision_the_run_goes_on_elsewhere(office, kind):
    """Another process than the one that executes decides, and is killed with its reply on its lips. The client asks again."""
    thread, approval = office.asked(RENAME)
    assert office.worker(start=False).do("decide", thread, approval, kind, "die") is None
    assert office.status(thread) == ["queued"]
    again = office.call("decide", MINA, thread, approval, Decision(kind))
    with pytest.raises(DecidedError):
        office.call("decide", MINA, thread, approval, Decision("reject" if kind == "approve" else "approve"))
    told = office.recover(thread)
    assert stretches(told) == ["awaiting_approval", "succeeded"]
    assert types(told).count("approval.decided") == 1
    effects = (("renamed", 1), "approved") if kind == "approve" else (("Mapo", 0), "rejected")
    assert ((office.title(), office.changes()), again.status) == effects
    assert office.attempts(thread) == [1]


@CORNERS
def test_g24_killed_between_the_decision_and_the_resume(office):
    """The process that executes has claimed the run, and has not begun."""
    thread, approval = office.asked(RENAME)
    worker = office.worker(die="context", at=2)  # the first is for whoever decides
    worker.do("decide", thread, approval, "approve")
    worker.died()
    assert office.status(thread) == ["running"]
    told = office.recover(thread)
    assert stretches(told) == ["awaiting_approval", "succeeded"]
    assert (office.title(), office.changes(), office.attempts(thread)) == ("renamed", 1, [2])


@CORNERS
@pytest.mark.parametrize("point", ["inside", "committed"])
def test_g24_killed_inside_the_tool_it_has_written_once(office, point):
    """Before its commit, and right behind it, before the engine knows."""
    thread, approval = office.asked(RENAME)
    office.call("decide", MINA, thread, approval, Decision("approve"))
    office.worker(die=point).died()
    assert (office.title(), office.changes()) == (("Mapo", 0) if point == "inside" else ("renamed", 1))
    told = office.recover(thread)
    assert stretches(told) == ["awaiting_approval", "succeeded"]
    assert (office.title(), office.changes()) == ("renamed", 1)
    assert office.said(thread)[-1] == ("assistant", "It said: renamed")
    assert types(told).count("approval.requested") == 1
    assert [e.data["status"] for e in told if e.type == "tool.completed"] == ["completed"]


@CORNERS
def test_g24_killed_behind_an_effect_elsewhere_it_is_not_made_again(office):
    """Nobody can know whether it was made: the answer says so, and a person looks."""
    thread, approval = office.asked(PAY)
    office.call("decide", MINA, thread, approval, Decision("approve"))
    office.worker(die="paid").died()
    told = office.recover(thread)
    assert stretches(told) == ["awaiting_approval", "succeeded"]
    assert office.visits() == ["paid 5"]
    assert "not repeated" in office.said(thread)[-1][1]


@CORNERS
def test_g24_killed_before_the_answer_is_stored_it_is_stored_once_and_the_model_is_not_asked_again(office):
    thread = office.thread()
    office.call("send", MINA, thread, ADD)
    office.worker(die="answered").died()
    assert office.said(thread) == [("user", ADD)]
    told = office.recover(thread)
    assert stretches(told) == ["succeeded"]
    assert office.said(thread)[1:] == [("assistant", "It said: added")]
    assert types(told).count("assistant.completed") == 1
    assert (office.changes(), office.application.point.passed["model"]) == (1, 0)
    (answer,) = office.messages(thread)[1:]
    assert answer.tools[0].name == "add"
    assert answer.basis is not None
    assert answer.basis.revisions == {"w1": 4}
