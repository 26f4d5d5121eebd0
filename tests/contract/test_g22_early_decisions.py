"""G22: a decision may arrive before the run is parked, and edits keep what was asked for and what a person made of it."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from abreast import Decision
from abreast.testing import calls
from planner import Plan
from serving import MINA, of_type
from talk import CORNERS

pytestmark = CORNERS


@pytest.fixture
def desk(desk):
    return partial(desk, approvals="writes")


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_g22_a_decision_before_the_run_is_parked(desk, decision):
    entered, opened = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        """Slow."""
        entered.set()
        assert opened.wait(60)
        return "slow"

    both = AIMessage(
        "",
        tool_calls=[
            {"name": "slow", "args": {}, "id": "one"},
            {"name": "update_plan", "args": {"id": "p1", "version": "r3", "title": "Seongsu"}, "id": "two"},
        ],
    )
    one = desk(both, "done", tools=lambda hub: [slow, *hub.tools(Plan)])
    thread = one.thread()
    run = one.call("send", MINA, thread, "go")
    assert entered.wait(60)
    for event in one.events(thread):
        if event.type == "approval.requested":
            break
    (approval,) = one.call("approvals", MINA).items
    one.call("decide", MINA, thread, approval.id, Decision(decision))
    assert one.call("run", MINA, thread, run.id).status == "running"
    opened.set()
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "succeeded"
    assert one.rows("select title from plan") == [("Seongsu" if decision == "approve" else "Mapo",)]
    assert [event.data["status"] for event in of_type(one.settled(thread), "done")] == ["succeeded"]


def test_g22_an_edit_keeps_before_and_after(desk):
    one = desk(calls("update_plan", id="p1", version="r3", title="Seongsu"), "done", tools=lambda hub: hub.tools(Plan))
    thread = one.thread()
    one.ask(thread, "Rename it")
    (approval,) = one.call("approvals", MINA).items
    edited = {"id": "p1", "version": "r3", "title": "Hannam"}
    one.call("decide", MINA, thread, approval.id, Decision("edit", arguments=edited))
    one.settled(thread)
    assert one.rows("select title from plan") == [("Hannam",)]
    (use,) = one.messages(thread)[-1].tools
    assert (use.arguments["title"], use.edited["title"], use.approval) == ("Seongsu", "Hannam", approval.id)
    (kept,) = one.call("approvals", MINA, status="edited").items
    assert (kept.arguments["title"], kept.decision.arguments["title"], kept.decision.by) == ("Seongsu", "Hannam", "mina")
    assert "Hannam" in one.model.requests[-1][-1].text


def test_g22_the_same_decision_again_gets_the_same_answer(desk):
    from abreast import DecidedError

    one = desk(calls("update_plan", id="p1", version="r3", title="Seongsu"), "done", tools=lambda hub: hub.tools(Plan))
    thread = one.thread()
    one.ask(thread, "Rename it")
    (approval,) = one.call("approvals", MINA).items
    first = one.call("decide", MINA, thread, approval.id, Decision("reject", message="no"))
    assert one.call("decide", MINA, thread, approval.id, Decision("reject", message="no")) == first
    one.settled(thread)
    assert one.call("decide", MINA, thread, approval.id, Decision("reject", message="no")) == first
    with pytest.raises(DecidedError) as decided:
        one.call("decide", MINA, thread, approval.id, Decision("approve"))
    assert decided.value.status == "rejected"
    assert one.rows("select title from plan") == [("Mapo",)]
    events = one.settled(thread)
    assert len(of_type(events, "approval.decided")) == 1
    (failed,) = of_type(events, "tool.failed")
    assert (failed.data["error"]["code"], failed.data["approval"]) == ("rejected", approval.id)
    assert not of_type(events, "tool.started")
