"""Which gate stands before a call, who may open it, and when a tool has earned to need none. No database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from abreast import Approval, Caller, ConfigurationError, Decision, Policy
from abreast.core.policy import (
    Judged,
    approval_id,
    as_policy,
    by_default,
    digest,
    gate_of,
    malformed,
    may_decide,
    may_see,
    pinned,
    record_of,
    same_decision,
)

NOW = datetime(2026, 9, 1, tzinfo=UTC)

ASKED = Approval(
    "a_1", "t", "r", "pay", {"amount": 1}, "d", "open", tenant="t1", user="u_1", revisions={"w1": 3}, policy=pinned(Policy())
)


def judged(*statuses: str, days: float = 1.0) -> list[Judged]:
    return [Judged(status.rstrip("!"), NOW - timedelta(days=days), status.endswith("!")) for status in statuses]


@pytest.mark.parametrize(
    ("gating", "writes", "gate"),
    [
        ("strict", True, "ask"),
        ("strict", False, "ask"),
        ("writes", True, "ask"),
        ("writes", False, "allow"),
        ("named", True, "allow"),
        ("named", False, "allow"),
    ],
)
def test_what_counts_where_nobody_said_anything(gating, writes, gate):
    assert by_default(gating, writes=writes).gate == gate


def test_a_policy_is_a_gate_a_rule_or_a_policy():
    assert as_policy("deny", "pay") == Policy("deny")
    rule = lambda arguments, context: "ask"  # noqa: E731
    assert as_policy(rule, "pay").gate is rule
    whole = Policy("ask", own=False)
    assert as_policy(whole, "pay") is whole


def test_a_rule_answers_with_a_gate_or_nothing_runs():
    assert gate_of(Policy(lambda arguments, context: context), "pay", {}, "deny") == "deny"
    for wrong in (None, True, "yes"):
        with pytest.raises(ConfigurationError, match="did not run"):
            gate_of(Policy(lambda arguments, context: context), "pay", {}, wrong)


def test_an_id_is_of_one_call_in_one_thread_and_a_digest_of_one_tool_and_its_arguments():
    assert approval_id("t", "call:1") == approval_id("t", "call:1")
    assert len({approval_id("t", "call:1"), approval_id("u", "call:1"), approval_id("t", "call:2")}) == 3
    assert approval_id("t", "c").startswith("a_")
    assert len(approval_id("t", "c")) == 34
    assert digest("pay", {"a": 1, "b": 2}) == digest("pay", {"b": 2, "a": 1})
    assert len({digest("pay", {"a": 1}), digest("pay", {"a": "1"}), digest("send", {"a": 1})}) == 3


def test_who_may_see_and_who_may_decide():
    own, boss = Caller("t1", "u_1"), Caller("t1", "boss", frozenset({"approver"}))
    other, far = Caller("t1", "u_2"), Caller("t2", "u_1", frozenset({"approver", "operator"}))
    assert [may_decide(ASKED, one) for one in (None, own, boss, other, far)] == [True, True, True, False, False]
    assert [may_see(ASKED, one) for one in (None, own, boss, other, far)] == [True, True, True, False, False]
    stern = replace(ASKED, policy=pinned(Policy(own=False, deciders=frozenset({"accountant"}))))
    assert [may_decide(stern, one) for one in (own, boss)] == [False, False]
    assert [may_see(stern, one) for one in (own, boss)] == [True, True]
    assert may_decide(stern, Caller("t1", "sum", frozenset({"accountant"})))
    four_eyes = replace(ASKED, policy=pinned(Policy(own=False)))
    both = Caller("t1", "u_1", frozenset({"approver"}))
    assert (may_decide(four_eyes, both), may_see(four_eyes, both), may_decide(four_eyes, boss)) == (False, True, True)
    nobodys = replace(ASKED, tenant=None, user=None)
    assert not may_see(nobodys, own)


def test_a_question_of_the_applications_own_may_be_answered_with_any_json():
    question = replace(ASKED, kind="interrupt")
    assert malformed(question, Decision("respond", message={"yes": True})) is None
    assert malformed(ASKED, Decision("respond", message={"yes": True})) is not None


def test_decisions_that_say_the_same():
    first = Decision("reject", message="no", by="u", at="now")
    assert same_decision(first, Decision("reject", message="no", confirmed={"w1": 4}))
    assert not same_decision(first, Decision("reject"))
    assert not same_decision(None, first)
    assert not same_decision(first, "reject")
    assert not same_decision(Decision("edit", arguments={"a": 1}), Decision("edit", arguments={"a": object()}))


@pytest.mark.parametrize(
    ("statuses", "in_a_row", "earned"),
    [
        (["approved"] * 20, 20, True),
        (["approved"] * 19, 19, False),
        (["edited", *["approved"] * 20], 20, True),
        ([*["approved"] * 20, "edited"], 0, False),
        ([*["approved"] * 20, "answered"], 0, False),
        ([*["approved"] * 20, "expired", "withdrawn", "open"], 20, True),
        ([*["approved"] * 10, "approved!", *["approved"] * 10], 10, False),
        (["rejected", *["approved"] * 20], 20, False),
    ],
)
def test_a_tool_earns_its_freedom_by_the_written_rule(statuses, in_a_row, earned):
    record = record_of("pay", judged(*statuses), now=NOW)
    assert (record.asked, record.in_a_row, record.earned) == (len(statuses), in_a_row, earned)


def test_a_rejection_counts_for_so_many_days():
    past = judged("rejected", days=31) + judged(*["approved"] * 20)
    assert record_of("pay", past, now=NOW).earned
    assert not record_of("pay", past, now=NOW, days=60).earned
    assert not record_of("pay", past, now=NOW, in_a_row=21).earned
    assert record_of("pay", judged("approved!"), now=NOW).undone == 1
