"""G22: the first decision wins; the same again gets the same reply, another a conflict, a malformed one leaves it open."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.tools import tool

from abreast import (
    AbsentError,
    Caller,
    DecidedError,
    Decision,
    DecisionError,
    LeaseLostError,
    NotAllowedError,
    Policy,
    RunContext,
)
from abreast.access import perform, write
from abreast.testing import calls
from caller import append, writing
from gated import Asked, foreign, rename, said, together
from planner import declare
from talk import CORNERS

RENAMED = {"id": "p1", "version": 1, "title": "better"}


def test_g22_the_same_decision_again_gets_the_same_reply_and_another_a_conflict(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    first = talk.decide(asked)
    assert talk.decide(asked) == first
    for other in ({"type": "reject"}, {"type": "edit", "arguments": RENAMED}, {"type": "respond", "message": "no"}):
        with pytest.raises(DecidedError) as refused:
            talk.decide(asked, **other)
        assert (refused.value.approval, refused.value.status) == (asked.id, "approved")
    assert talk.go().status == "succeeded"
    assert talk.decide(asked) == first  # the client never heard, and sends it once more
    with pytest.raises(DecidedError):
        talk.decide(asked, "reject")
    assert len(talk.written()) == 1


@CORNERS
def test_g22_a_rejected_approval_is_not_approved_later(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    first = talk.decide(asked, "reject", message="No.")
    assert talk.decide(asked, "reject", message="No.") == first
    with pytest.raises(DecidedError):
        talk.decide(asked)
    with pytest.raises(DecidedError):
        talk.decide(asked, "reject", message="Another reason.")
    assert talk.go().status == "succeeded"
    with pytest.raises(DecidedError):
        talk.decide(asked)
    assert talk.title() == "Mapo"


@CORNERS
def test_g22_two_edits_are_the_same_where_their_arguments_are(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    first = talk.decide(asked, "edit", arguments=RENAMED)
    assert talk.decide(asked, "edit", arguments=dict(reversed(RENAMED.items()))) == first
    with pytest.raises(DecidedError):
        talk.decide(asked, "edit", arguments={**RENAMED, "title": "best"})


MALFORMED: list[Any] = [
    {"approve": True},
    "approve",
    ["approve"],
    None,
    Decision("accept"),  # type: ignore[arg-type]
    Decision(""),  # type: ignore[arg-type]
    Decision(None),  # type: ignore[arg-type]
    Decision("edit"),
    Decision("edit", arguments=[1]),  # type: ignore[arg-type]
    Decision("edit", arguments={}),
    Decision("edit", arguments={"id": "p1", "version": "no number", "title": "x"}),
    Decision("edit", arguments={"id": "p1", "version": 1, "move_in_date": "someday"}),
    Decision("edit", arguments={"id": "p1", "version": 1, "budget": [1]}),
    Decision("edit", arguments={"id": "p1", "version": 1}),
    Decision("edit", arguments={"version": 1, "title": "x"}),
    Decision("edit", arguments={**RENAMED, "workspace_id": "w2"}),
    Decision("edit", arguments={**RENAMED, "runtime": {"context": {"user": "root"}}}),
    Decision("edit", arguments={"name": "delete_plan", "args": {"id": "p1", "version": 1}}),
    Decision("edit", arguments={"action": "delete_plan", **RENAMED}),
    Decision("edit", arguments={**RENAMED, "title": object()}),
    Decision("edit", arguments={**RENAMED, "budget": float("nan")}),
    Decision("approve", arguments=RENAMED),
    Decision("reject", arguments=RENAMED),
    Decision("reject", message={"why": "no"}),
    Decision("respond"),
    Decision("respond", message=""),
    Decision("respond", message=["yes"]),
    Decision("approve", confirmed={"w1": True}),
    Decision("approve", confirmed={"w1": "3"}),  # type: ignore[dict-item]
    Decision("approve", confirmed={"w2": 3}),
    Decision("approve", confirmed={"w1": 10**6}),
    Decision("approve", confirmed=[("w1", 3)]),  # type: ignore[arg-type]
]


@CORNERS
def test_g22_a_malformed_decision_is_refused_and_leaves_it_open(database, hubs, door):
    """M1 and C21: whatever somebody sends, the next one can be answered."""
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    for wrong in MALFORMED:
        with pytest.raises(DecisionError) as refused:
            door(talk.hub).decide("t", asked.id, wrong)
        assert refused.value.fields["approval"] == asked.id, wrong
        assert [one.status for one in talk.waiting(status=None)] == ["open"], wrong
    assert talk.go().status == "awaiting_approval"
    talk.decide(asked, "edit", arguments=RENAMED)
    assert talk.go().status == "succeeded"
    assert talk.title() == "better"


@CORNERS
def test_g22_an_edit_is_held_against_the_schema_of_each_kind_of_tool(database, hubs, door):
    """C22, and a badly typed value loses nothing."""
    talk = Asked(database, hubs, door)

    def pay(amount: int, to: str = "kim") -> str:
        """Pays."""
        return f"{amount} to {to}"

    @tool
    def other(amount: int, to: str = "kim") -> str:
        """Pays."""
        return f"{amount} to {to}"

    tools = [talk.hub.tool(name="pay", policy="ask")(pay), talk.hub.gate(other)]
    asked = talk.ask(together(calls("pay", call_id="a", amount=1), calls("other", call_id="b", amount=1)), tools=tools)
    for one in asked:
        wrongs: list[dict[str, Any]] = [{"amount": "much"}, {"to": "lee"}, {"amount": 2, "name": "pay"}, {"amount": None}]
        for wrong in wrongs:
            with pytest.raises(DecisionError) as refused:
                talk.decide(one, "edit", arguments=wrong)
            assert refused.value.message
        talk.decide(one, "edit", arguments={"amount": 2, "to": "lee"})
    result = talk.go(tools=tools)
    assert sorted(told["answer"] for told, _ in said(result)) == ["2 to lee", "2 to lee"]


@CORNERS
def test_g22_an_edit_where_the_tool_is_not_known_is_refused_and_an_approval_is_not(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    elsewhere = declare(hubs(database))  # a process that has no agents
    with pytest.raises(DecisionError, match="does not know the tool update_plan"):
        door(elsewhere).decide("t", asked.id, Decision("edit", arguments=RENAMED))
    assert door(elsewhere).decide("t", asked.id, Decision("approve")).status == "approved"


@CORNERS
def test_g22_what_is_not_offered_cannot_be_decided(database, hubs, door):
    only = Policy(decisions=frozenset({"approve", "reject"}))
    talk = Asked(database, hubs, door, policy={"update_plan": only})
    (asked,) = talk.ask(rename())
    for wrong in (Decision("edit", arguments=RENAMED), Decision("respond", message="done")):
        with pytest.raises(DecisionError, match="cannot be decided here; there are approve, reject"):
            door(talk.hub).decide("t", asked.id, wrong)
    assert talk.decide(asked).status == "approved"


def test_g22_an_approval_that_is_not_there_is_absent(database, hubs, door):
    """C17: an id that matches nothing decides nothing, and says so."""
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    for thread, approval in (("t", "a_nothing"), ("other", asked.id), ("t", ""), ("", asked.id)):
        with pytest.raises(AbsentError):
            door(talk.hub).decide(thread, approval, Decision("approve"))
        with pytest.raises(AbsentError):
            door(talk.hub).approval(thread, approval)
    assert [one.status for one in talk.waiting(status=None)] == ["open"]


# -- who -------------------------------------------------------------------------------------------------------------

OWNER = Caller("t1", "u_1")


@CORNERS
def test_g22_the_person_and_who_holds_a_role_decide_and_nobody_else(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    assert (asked.tenant, asked.user) == ("t1", "u_1")
    for stranger in (Caller("t1", "u_2"), Caller("t2", "u_1"), Caller("t2", "u_1", frozenset({"approver"}))):
        with pytest.raises(AbsentError):
            talk.decide(asked, caller=stranger)
    with pytest.raises(AbsentError):
        talk.decide(asked, caller=Caller("t1", "u_2", frozenset({"cleaner"})))
    decided = talk.decide(asked, caller=Caller("t1", "boss", frozenset({"approver"})))
    assert decided.decision.by == "boss"


@CORNERS
def test_g22_the_policy_that_was_pinned_says_who_decides(database, hubs, door):
    policy = Policy(own=False, deciders=frozenset({"accountant"}))
    talk = Asked(database, hubs, door, policy={"update_plan": policy})
    (asked,) = talk.ask(rename())
    talk.policy = {"update_plan": "allow"}  # a later deployment thinks otherwise
    for not_allowed in (OWNER, Caller("t1", "boss", frozenset({"approver", "operator"}))):
        with pytest.raises(NotAllowedError):
            talk.decide(asked, caller=not_allowed)
        with pytest.raises(NotAllowedError):
            talk.decide(asked, "reject", caller=not_allowed)
    assert talk.decide(asked, caller=Caller("t1", "sum", frozenset({"accountant"}))).status == "approved"


# -- at the same time ------------------------------------------------------------------------------------------------


def test_g22_of_two_decisions_at_the_same_instant_one_wins_and_the_effect_is_its_own(database, hubs, door):
    talk = Asked(database, hubs, door)
    others = [declare(hubs(database)) for _ in range(2)]  # connections of their own, as two processes have
    version = 1
    wins: set[str] = set()
    for number in range(6):
        (asked,) = talk.ask(rename(f"n{number}", version=version), thread=f"t{number}")
        barrier = threading.Barrier(2)

        def decide(hub: Any, type: Any, asked: Any = asked, barrier: Any = barrier) -> Any:
            barrier.wait()
            try:
                return hub.blocking.decide(asked.thread, asked.id, Decision(type)).status
            except DecidedError as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(decide, others, ("approve", "reject")))
        won = [one for one in results if isinstance(one, str)]
        lost = [one for one in results if isinstance(one, DecidedError)]
        assert (len(won), len(lost)) == (1, 1), results
        assert lost[0].status == won[0]
        wins.add(won[0])
        before = talk.title()
        result = talk.go(thread=asked.thread)
        assert result.status == "succeeded"
        assert talk.title() == (f"n{number}" if won == ["approved"] else before)
        if won == ["approved"]:
            version = talk.head()


def test_g22_of_many_equal_decisions_at_once_all_get_the_same_reply(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: talk.hub.blocking.decide("t", asked.id, Decision("approve", by="u")), range(8)))
    assert {one.decision.at for one in found} == {found[0].decision.at}
    assert talk.go().status == "succeeded"
    assert len(talk.written()) == 1


@CORNERS
def test_g22_a_decision_may_arrive_before_the_run_has_paused(database, hubs, door):
    """A sibling of the gated call is still going on when the person decides."""
    talk = Asked(database, hubs, door)

    def decide(text: str) -> str:
        while not (waiting := talk.hub.blocking.approvals("t").items):
            pass
        talk.hub.blocking.decide("t", waiting[0].id, Decision("approve"))
        return "decided"

    tools = [foreign(decide, "slow"), *talk.tools()]
    talk.say(together(rename(), calls("slow", call_id="s", text="x")))
    paused = talk.go("Please.", tools=tools)
    assert (paused.status, talk.waiting()) == ("awaiting_approval", [])
    result = talk.go(tools=tools)
    assert result.status == "succeeded"
    assert talk.title() == "renamed"


# -- an end without a decision ---------------------------------------------------------------------------------------


def overdue(talk: Any) -> None:
    """Lets the time of every request be over, as time would."""
    table, moment = ("abreast_approval", "'2000-01-01T00:00:00.000Z'"), "'2000-01-01'"
    if talk.engine.dialect.name == "sqlite":
        talk.sql(f"update {table[0]} set expires_at = {table[1]}")
    else:
        talk.sql(f"update abreast.approval set expires_at = {moment}")


def test_g22_what_nobody_decided_in_time_is_expired_and_does_not_run(database, hubs, door):
    talk = Asked(database, hubs, door, policy={"update_plan": Policy(expires=3600.0)})
    (asked,) = talk.ask(rename())
    assert asked.expires_at is not None
    assert asked.expires_at > asked.created_at
    assert talk.go().status == "awaiting_approval"
    overdue(talk)
    assert talk.waiting() == []
    assert [one.status for one in talk.waiting(status="expired")] == ["expired"]
    with pytest.raises(DecidedError) as refused:
        talk.decide(asked)
    assert refused.value.status == "expired"
    result = talk.go()
    assert result.status == "succeeded"
    assert said(result)[0][0]["error"] == "Nobody decided about this call in time. Nothing was done."
    assert talk.title() == "Mapo"
    core = talk.hub._core  # what a service does in the background
    assert [one.id for one in perform(core.access, core.approvals.expire_due())] == [asked.id]
    assert perform(core.access, core.approvals.expire_due()) == []


@CORNERS
def test_g22_what_is_withdrawn_does_not_run_and_is_asked_for_again(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    core = talk.hub._core
    (taken,) = perform(core.access, write(lambda: core.approvals.withdraw("t")))
    assert (taken.id, taken.status) == (asked.id, "withdrawn")
    with pytest.raises(DecidedError):
        talk.decide(asked)
    talk.say("Never mind.")
    assert talk.go("Stop.").status == "succeeded"
    (again,) = talk.ask(rename(call_id="c2"))
    assert again.id != asked.id
    talk.decide(again)
    assert talk.go().status == "succeeded"
    assert len(talk.written()) == 1


@CORNERS
def test_g22_a_run_that_lost_its_thread_asks_for_nothing(database, hubs, door):
    talk = Asked(database, hubs, door)

    class Lost:
        def __call__(self, arguments: Any, context: Any) -> Any:
            talk.hub.blocking.release("t")  # somebody takes the thread, just before the request is stored
            return "ask"

    put = writing(talk, "put", append, policy=Lost())
    talk.say(calls("put", text="!"))
    with pytest.raises(LeaseLostError):
        talk.go("Please.", tools=[put], context=RunContext("t1", "u_1", "w1"))
    assert talk.waiting(status=None) == []
    assert talk.title() == "Mapo"


@CORNERS
def test_g22_what_waits_is_listed_page_by_page(database, hubs, door):
    talk = Asked(database, hubs, door)
    for number in range(5):
        talk.ask(rename(f"n{number}"), thread=f"t{number}")
    seen, after = [], None
    while True:
        page = door(talk.hub).approvals(after=after, limit=2)
        seen += [one.thread for one in page.items]
        if page.next is None:
            break
        after = page.next
    assert seen == ["t4", "t3", "t2", "t1", "t0"]


@CORNERS
def test_g22_the_threads_stream_hears_of_each_request_and_decision_once(database, hubs, door):
    """In the same transaction; and whose request it is says the thread's own row, not what a context claims."""
    talk = Asked(database, hubs, door)
    table = "abreast_{}" if database.kind == "sqlite" else "abreast.{}"
    names, values = "thread, tenant, user_id, workspace, agent", "'t', 't7', 'u_7', 'w1', 'planner'"
    talk.sql(f"insert into {table.format('thread')} ({names}) values ({values})")
    (asked,) = talk.ask(rename())
    assert (asked.tenant, asked.user) == ("t7", "u_7")
    talk.go()
    with pytest.raises(DecisionError):
        talk.decide(asked, "edit", arguments={})
    talk.decide(asked)
    talk.decide(asked)
    talk.go()
    with talk.engine.connect() as connection:
        query = f"select event, type, run, data from {table.format('run_event')} order by event"
        rows = [(event, type, run, json.loads(data)) for event, type, run, data in connection.exec_driver_sql(query)]
    of_all = {"thread": "t", "run": asked.run, "approval": asked.id}
    assert rows == [
        (1, "approval.requested", asked.run, {**of_all, "tool": "update_plan", "arguments": asked.arguments, "call": "c1"}),
        (2, "approval.decided", asked.run, {**of_all, "decision": "approve", "status": "approved", "by": "u_9"}),
    ]
