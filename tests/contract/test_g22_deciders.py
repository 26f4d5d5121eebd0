"""G22 and G26: who decides in a service, where the policy names roles of the application's own; and what a list tells."""

from __future__ import annotations

import pytest
from langchain_core.tools import tool

from abreast import AbsentError, Caller, Decision, Policy
from abreast.testing import calls
from serving import JUNHO, MINA, STRANGER, of_type
from talk import CORNERS

pytestmark = CORNERS

LEAD = Caller("t1", "lee", frozenset({"lead"}))
FAR = Caller("t2", "lee", frozenset({"lead"}))
OTHER = Caller("t1", "lee", frozenset({"cleaner"}))


def asking(policy):
    @tool
    def put(x: int) -> str:
        """Put."""
        return f"put {x}"

    return lambda hub: [hub.gate(put, policy=policy)]


def test_g22_a_role_that_the_policy_names_decides_and_sees_nothing_else(desk):
    one = desk(calls("put", x=1), "done", tools=asking(Policy(own=False, deciders=frozenset({"lead"}))))
    thread = one.thread()
    run = one.ask(thread)
    (asked,) = one.call("approvals", LEAD).items
    assert [found.id for found in one.call("approvals", LEAD, thread=thread, limit=1).items] == [asked.id]
    assert one.call("approval", LEAD, thread, asked.id) == asked
    for nobody in (FAR, OTHER, JUNHO):
        assert one.call("approvals", nobody).items == ()
        for refused in (
            lambda nobody=nobody: one.call("approvals", nobody, thread=thread),
            lambda nobody=nobody: one.call("approval", nobody, thread, asked.id),
            lambda nobody=nobody: one.call("decide", nobody, thread, asked.id, Decision("approve")),
        ):
            with pytest.raises(AbsentError):
                refused()
    for whole in ("thread", "messages", "runs"):
        with pytest.raises(AbsentError):
            one.call(whole, LEAD, thread)
    assert one.call("decide", LEAD, thread, asked.id, Decision("approve")).decision.by == "lee"
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "succeeded"


def test_g22_a_role_lists_page_by_page_what_it_decides(desk):
    one = desk(*[calls("put", x=n) for n in range(5)], tools=asking(Policy(deciders=frozenset({"lead"}))))
    threads = [one.thread() for _ in range(5)]
    for thread in threads:
        one.ask(thread)
    found, place = [], None
    while True:
        page = one.call("approvals", LEAD, after=place, limit=2)
        found += [asked.thread for asked in page.items]
        place = page.next
        if place is None:
            break
    assert found == threads[::-1]


def test_g26_where_a_list_of_requests_begins_says_nothing_about_those_of_others(desk, door):
    one = desk(calls("put", x=1), calls("put", x=2), tools=asking("ask"))
    door(one.hub).add_workspace("w2")
    one.ask(one.thread())
    foreign = one.thread(STRANGER, "w2")
    one.ask(foreign, caller=STRANGER)
    (theirs,) = one.call("approvals", STRANGER).items
    for caller in (MINA, Caller("t1", "ana", frozenset({"approver"})), LEAD):
        unknown = one.call("approvals", caller, after="a_there_is_none")
        assert one.call("approvals", caller, after=theirs.id) == unknown


def test_g27_a_request_whose_time_is_over_ends_before_its_run(desk):
    one = desk(calls("put", x=1), tools=asking(Policy(expires=0.05)), lease_seconds=60)
    thread = one.thread()
    run = one.ask(thread)
    (asked,) = one.call("approvals", MINA, status=None).items
    while one.call("approval", MINA, thread, asked.id).status == "open":
        pass
    one.call("cancel", MINA, thread, run.id)
    events = [event for event in one.events(thread, until_done=True) if event.id is not None]
    assert events[-1].type == "done"
    assert [event.data["status"] for event in of_type(events, "approval.decided")] == ["expired"]
