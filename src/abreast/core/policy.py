"""Which gate stands before a tool call, who may open it, and which tools have earned to need none. Pure.

A tool has earned `allow` by this rule: the newest so many requests that people decided about (20, unless another number is
given) were all approved unchanged and none of them was undone by a person later, and none was rejected for so many days
(30). Requests that expired or were withdrawn say nothing about the tool and are passed over.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, get_args

from abreast.errors import ConfigurationError
from abreast.records import Approval, ApprovalStatus, Caller, Decision, DecisionType, Gate, GateRecord, Gating, Policy, Rule

Given = Gate | Rule | Policy
"""What an application says of one tool."""

GATES: tuple[str, ...] = get_args(Gate)
DECISIONS: frozenset[str] = frozenset(get_args(DecisionType))

LONGEST = 1e9
"""Seconds after which a request may expire at most."""

STATUS: Mapping[DecisionType, ApprovalStatus] = {
    "approve": "approved",
    "edit": "edited",
    "reject": "rejected",
    "respond": "answered",
}
"""What an approval becomes by each decision."""


def as_policy(given: Any, tool: str) -> Policy:
    """What an application said of a tool, as a policy. Raises ConfigurationError for what says nothing."""
    if not isinstance(given, Policy):
        if not callable(given) and given not in GATES:
            raise ConfigurationError(
                f"The policy of {tool} is {given!r}. It is 'ask', 'allow', 'deny', a function of arguments and run context "
                f"that returns one of them, or a Policy."
            )
        return Policy(gate=given)
    if not callable(given.gate) and given.gate not in GATES:
        raise ConfigurationError(f"The gate of {tool}'s policy is {given.gate!r}; it is 'ask', 'allow', 'deny' or a function.")
    if isinstance(given.deciders, str) or isinstance(given.decisions, str):
        raise ConfigurationError(f"deciders and decisions of {tool}'s policy are sets of names, not one text.")
    if unknown := sorted(set(given.decisions) - DECISIONS):
        raise ConfigurationError(f"{unknown[0]!r} is no decision. There are: {', '.join(sorted(DECISIONS))}.")
    if not given.decisions:
        raise ConfigurationError(f"The policy of {tool} leaves no decision to make.")
    if given.expires is not None and not 0 < given.expires <= LONGEST:
        raise ConfigurationError(f"expires of {tool}'s policy is in seconds, more than 0 and at most {LONGEST:.0f}.")
    if not given.own and not given.deciders:
        raise ConfigurationError(f"Nobody could decide about {tool}: own is False, and there are no deciders.")
    return given


def by_default(gating: Gating, *, writes: bool) -> Policy:
    """The policy of a tool of which the application said nothing."""
    asks = gating == "strict" or (gating == "writes" and writes)
    return Policy("ask" if asks else "allow")


def gate_of(policy: Policy, tool: str, arguments: Mapping[str, Any], context: Any) -> Gate:
    """The gate before one call. Raises ConfigurationError where the rule fails or answers something else: then nothing runs."""
    if not callable(policy.gate):
        return policy.gate
    try:
        answer: Any = policy.gate(arguments, context)
    except Exception as error:
        raise ConfigurationError(f"The policy of {tool} failed with {type(error).__name__}. The tool did not run.") from error
    if inspect.iscoroutine(answer):
        answer.close()
        raise ConfigurationError(f"The policy of {tool} is asynchronous; it is a plain function. The tool did not run.")
    if answer not in GATES:
        raise ConfigurationError(f"The policy of {tool} returned {answer!r}, not 'ask', 'allow' or 'deny'. The tool did not run.")
    return answer  # type: ignore[no-any-return]


def pinned(policy: Policy) -> dict[str, Any]:
    """The policy that was in force, as JSON: it counts for this request whatever is deployed later."""
    return {
        "gate": "ask",
        "own": policy.own,
        "deciders": sorted(policy.deciders),
        "expires": policy.expires,
        "decisions": sorted(policy.decisions),
    }


def digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """What tells this call of this tool from any other."""
    text = json.dumps([tool, arguments], ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def approval_id(thread: str, call: str) -> str:
    """The id of the request of one call, the same whenever that call is made again."""
    text = json.dumps([thread, call], ensure_ascii=True, separators=(",", ":"))
    return "a_" + hashlib.sha256(text.encode()).hexdigest()[:32]


# -- who, and what ---------------------------------------------------------------------------------------------------


def may_see(approval: Approval, by: Caller | None) -> bool:
    """Whether this person may know of the request. None is the application itself."""
    if by is None:
        return True
    if approval.tenant != by.tenant:
        return False
    return approval.user == by.user or bool(by.roles & (frozenset({"approver", "operator"}) | _deciders(approval)))


def may_decide(approval: Approval, by: Caller | None) -> bool:
    """Whether the policy that was pinned lets this person decide."""
    if by is None:
        return True
    if not may_see(approval, by):
        return False
    if approval.user == by.user:
        return bool(approval.policy.get("own", True))  # where four eyes are wanted, a role does not make two of one's own
    return bool(by.roles & _deciders(approval))


def _deciders(approval: Approval) -> frozenset[str]:
    return frozenset(approval.policy.get("deciders", ()))


def malformed(approval: Approval, decision: Any) -> str | None:
    """What is wrong with a decision, apart from an edit's arguments; None if nothing is."""
    if not isinstance(decision, Decision):
        return f"A decision is a Decision, not {type(decision).__name__}."
    offered = approval.policy.get("decisions", sorted(DECISIONS))
    if decision.type not in offered:
        return f"{decision.type!r} cannot be decided here; there are {', '.join(offered)}."
    if decision.type == "edit":
        if not isinstance(decision.arguments, Mapping):
            return "An edit names all arguments of the call, as an object."
    elif decision.arguments is not None:
        return f"Arguments belong to an edit; with {decision.type} they would be ignored."
    if not _is_json(decision.arguments) or not _is_json(decision.message):
        return "Arguments and message are JSON."
    if decision.type == "respond" and (decision.message is None or decision.message == ""):
        return "A response needs a message: it is the answer that the model gets."
    of_tool = approval.kind == "tool" or decision.type != "respond"
    if of_tool and decision.message is not None and not isinstance(decision.message, str):
        return "The message is a text."
    return _wrong_revisions(approval, decision.confirmed)


def _wrong_revisions(approval: Approval, confirmed: Any) -> str | None:
    if not isinstance(confirmed, Mapping):
        return "`confirmed` maps workspaces to the revisions that were shown."
    for workspace, revision in confirmed.items():
        if workspace not in approval.revisions:
            return f"{workspace!r} is none of the workspaces that this call has to do with."
        if not isinstance(revision, int) or isinstance(revision, bool) or revision < 0:
            return f"The revision confirmed of {workspace} is a whole number, not {revision!r}."
    return None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value if not isinstance(value, Mapping) else dict(value), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def same_decision(first: Decision | None, again: Any) -> bool:
    """Whether a decision says the same as the one that was made; who says it and what was confirmed does not count."""
    if first is None or not isinstance(again, Decision):
        return False

    def said(one: Decision) -> Any:
        return [one.type, None if one.arguments is None else dict(one.arguments), one.message or None]

    try:
        return json.dumps(said(first), sort_keys=True) == json.dumps(said(again), sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return False


# -- records ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """One request as its tool's record counts it. `undone`: it was approved, and a person took its change back later."""

    status: str
    at: datetime
    undone: bool = False


def record_of(tool: str, judged: Sequence[Judged], *, now: datetime, in_a_row: int = 20, days: float = 30) -> GateRecord:
    """A tool's record from all its requests, oldest first, and whether it has earned `allow`."""
    counts = {status: sum(one.status == status for one in judged) for status in get_args(ApprovalStatus)}
    newest = 0
    for one in reversed(judged):
        if one.status in ("open", "expired", "withdrawn"):
            continue
        if one.status != "approved" or one.undone:
            break
        newest += 1
    since = now - timedelta(days=days)
    rejected = any(one.status == "rejected" and one.at > since for one in judged)
    record = GateRecord(
        tool=tool,
        asked=len(judged),
        approved=counts["approved"],
        edited=counts["edited"],
        rejected=counts["rejected"],
        answered=counts["answered"],
        expired=counts["expired"],
        withdrawn=counts["withdrawn"],
        undone=sum(one.undone for one in judged),
        in_a_row=newest,
    )
    return replace(record, earned=newest >= in_a_row and not rejected)
