"""G22, G24: decisions that come twice, late, together, or to another release of the application than the one that asked."""

from __future__ import annotations

from typing import Any

import pytest

import serving
from abreast import DecidedError, Decision, OutdatedError
from serving import APPROVER, MINA
from talk import CORNERS
from workers import stretches, types

RENAME = 'rename {"title": "renamed"}'


@CORNERS
def test_g22_a_decision_that_comes_again_or_too_late_changes_nothing(offices):
    """Before the run goes on, and when it is long over."""
    office = offices()
    thread, approval = office.asked(RENAME)
    first = office.call("decide", MINA, thread, approval, Decision("reject", message="no"))
    for _ in range(2):
        assert office.call("decide", MINA, thread, approval, Decision("reject", message="no")) == first
        for late in (Decision("approve"), Decision("edit", arguments={"title": "x"}), Decision("reject", message="never")):
            with pytest.raises(DecidedError) as caught:
                office.call("decide", MINA, thread, approval, late)
            assert (caught.value.approval, caught.value.status) == (approval, "rejected")
        if office.status(thread) == ["queued"]:
            office.call("start")
            office.settled(thread)
    assert (office.status(thread), office.approvals(thread)) == (["succeeded"], ["rejected"])
    told = office.settled(thread)
    assert stretches(told) == ["awaiting_approval", "succeeded"]
    assert types(told).count("approval.decided") == 1
    assert (office.title(), office.changes()) == ("Mapo", 0)
    assert "rejected" in office.said(thread)[-1][1]


@CORNERS
def test_g22_of_two_decisions_at_the_same_instant_exactly_one_counts(offices):
    """Two processes decide, a third one executes."""
    office = offices()
    asked = [office.thread() for _ in range(6)]
    worker = office.worker()
    for number, thread in enumerate(asked):
        office.call("send", MINA, thread, f'rename {{"title": "renamed {number}"}}')
        office.parked(thread)
    worker.kill()
    deciders = {kind: office.worker(start=False) for kind in ("approve", "reject")}
    won = []
    for thread in asked:
        (approval,) = office.call("approvals", MINA, thread=thread).items
        for kind, decider in deciders.items():
            decider.order("decide", thread, approval.id, kind)
        said = {kind: decider.answer() for kind, decider in deciders.items()}
        assert sorted(said.values()) == ["decided", "too late"]
        won += [kind for kind, answer in said.items() if answer == "decided"]
        assert office.approvals(thread) == [{"approve": "approved", "reject": "rejected"}[won[-1]]]
        assert office.status(thread) == ["queued"]
    office.call("start")
    for thread in asked:
        told = office.settled(thread)
        assert stretches(told) == ["awaiting_approval", "succeeded"]
        assert types(told).count("approval.decided") == 1
    assert office.changes() == won.count("approve")
    for kind, thread in zip(won, asked, strict=True):
        assert office.said(thread)[-1][1].startswith("It said: renamed" if kind == "approve" else 'It said: {"error"')


RELEASES: dict[str, dict[str, Any]] = {
    "drops the gate": {"policy": "allow"},
    "denies": {"policy": "deny"},
    "renames the tool": {"tool": "retitle"},
    "renames the middleware": {"middleware": ["other"]},
    "removes the middleware": {"middleware": []},
    "adds a middleware": {"middleware": ["around", "more"]},
    "adds a channel": {"middleware": ["around", "more state"]},
    "removes the channel": {"middleware": ["around"]},
}


@CORNERS
@pytest.mark.parametrize("kind", ["approve", "reject"])
def test_g24_between_question_and_answer_another_release_was_deployed(offices, kind):
    """What was approved runs exactly once, or the run ends visibly; what was rejected never runs, whatever the new release
    would ask or allow."""
    office = offices()
    asked = {}
    for worker, releases in (
        (office.worker(), [name for name in RELEASES if name != "removes the channel"]),
        (office.worker(middleware=["around", "more state"]), ["removes the channel"]),
    ):
        for release in releases:
            asked[release] = thread = office.thread()
            office.call("send", MINA, thread, f'rename {{"title": "{release}"}}')
            office.parked(thread)
        worker.kill()
    for number, (release, thread) in enumerate(asked.items()):
        changed = office.changes()
        deployed = offices(fresh=False, **RELEASES[release])
        (approval,) = deployed.call("approvals", MINA, thread=thread).items
        try:
            deployed.call("decide", MINA, thread, approval.id, Decision(kind))
        except OutdatedError as error:  # the one before has renamed the same plan
            assert kind == "approve"
            deployed.call("decide", MINA, thread, approval.id, Decision(kind, confirmed=error.revisions))
        deployed.call("start")
        told = deployed.settled(thread)
        assert stretches(told) == ["awaiting_approval", "succeeded"], (release, number)
        answer = deployed.said(thread)[-1]
        if kind == "approve" and release != "renames the tool":
            assert (deployed.title(), deployed.changes() - changed, answer[1]) == (release, 1, "It said: renamed"), release
        else:
            assert deployed.changes() == changed, release
            assert ("rejected" if release != "renames the tool" else "not a valid tool") in answer[1], release
        deployed.call("stop")


@CORNERS
@pytest.mark.parametrize("renamed", [False, True], ids=["the same", "renamed"])
def test_g24_a_middleware_that_waited_for_an_answer_is_renamed(offices, renamed):
    """The engine stands in a node that is there no more: the run ends visibly, and the tool did not run."""
    office = offices()
    worker = office.worker(middleware=["it asks"])
    thread = office.thread()
    office.call("send", MINA, thread, 'add {"number": 3}')
    office.parked(thread)
    worker.kill()
    deployed = offices(fresh=False, middleware=["that asks" if renamed else "it asks"])
    (approval,) = deployed.call("approvals", MINA, thread=thread).items
    assert (approval.kind, approval.question["value"]) == ("interrupt", "may it?")
    deployed.call("decide", MINA, thread, approval.id, Decision("respond", message="yes"))
    deployed.call("start")
    assert stretches(deployed.settled(thread)) == ["awaiting_approval", "failed" if renamed else "succeeded"]
    assert deployed.changes() == (0 if renamed else 1)
    if renamed:
        (run,) = deployed.call("runs", MINA, thread).items
        assert run.error["code"] == "no_answer"
        assert deployed.ask(thread, "hello").status == "succeeded"
        assert deployed.changes() == 0


@CORNERS
@pytest.mark.parametrize("when", ["before the decision", "behind it"])
def test_g23_the_right_of_the_person_is_withdrawn_while_an_approval_waits(offices, monkeypatch, when):
    office = offices()
    thread, approval = office.asked(RENAME)
    rights = {**serving.RIGHTS, ("t1", "mina"): frozenset()}
    if when == "behind it":
        office.call("decide", APPROVER, thread, approval, Decision("approve"))
    monkeypatch.setattr(serving, "RIGHTS", rights)
    if when == "before the decision":
        office.call("decide", APPROVER, thread, approval, Decision("approve"))
    office.call("start")
    told = office.settled(thread)
    assert stretches(told) == ["awaiting_approval", "failed"]
    assert types(told)[-2:] == ["error", "done"]
    (run,) = office.call("runs", MINA, thread).items
    assert (run.status, run.error["code"]) == ("failed", "not_allowed")
    assert (office.title(), office.changes()) == ("Mapo", 0)
    monkeypatch.undo()
    assert office.ask(thread, "hello").status == "succeeded"
    assert (office.title(), office.changes()) == ("Mapo", 0)
