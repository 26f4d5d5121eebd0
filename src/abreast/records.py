"""The words of the service as values: threads, messages, runs, events, approvals, and who may do what with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

RunStatus = Literal["queued", "running", "awaiting_approval", "succeeded", "failed", "cancelled"]
ThreadStatus = Literal["idle", "busy", "awaiting_approval"]
Role = Literal["user", "assistant"]
MessageStatus = Literal["complete", "stopped"]
OnBusy = Literal["reject", "enqueue", "interrupt", "rollback"]
Acknowledge = Literal["run", "client"]
ApprovalStatus = Literal["open", "approved", "edited", "rejected", "answered", "expired", "withdrawn"]
DecisionType = Literal["approve", "edit", "reject", "respond"]
Gate = Literal["ask", "allow", "deny"]
Gating = Literal["strict", "writes", "named"]

EventType = Literal[
    "run.queued",
    "run.started",
    "stage.changed",
    "tool.proposed",
    "tool.started",
    "tool.completed",
    "tool.failed",
    "approval.requested",
    "approval.decided",
    "assistant.delta",
    "assistant.completed",
    "conversation.updated",
    "error",
    "done",
]


class _Keep(Enum):
    KEEP = "keep"


KEEP = _Keep.KEEP
"""In place of a message's parent: it goes on where the shown branch ends."""

APPROVER = "approver"
OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, as the application's own authentication found it; never from what a client sends.

    `roles` are what is granted beyond one's own conversations, in the same tenant: `approver` reads all and decides
    approvals, `operator` reads all, cancels runs and decides.
    """

    tenant: str
    user: str
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Thread:
    """One conversation. `status` is derived from its runs, `run` the one that is going on or waiting, if there is one.

    `leaf` is the newest message of the branch that is shown, `memory` the working memory that the turns of that branch left.
    `last_event` is where its stream stands: who has read the thread and its messages follows from there.
    """

    id: str
    tenant: str
    user: str
    workspace: str
    agent: str
    title: str = ""
    status: ThreadStatus = "idle"
    run: str | None = None
    leaf: str | None = None
    memory: Any = None
    created_at: str = ""
    last_message_at: str | None = None
    last_event: int = 0


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of a turn, kept with its answer: `status` is `completed`, `failed`, or `stopped` where it got none.

    `arguments` and `result` are as the model gave and read them, `edited` the arguments that a person put in their place.
    """

    id: str
    name: str
    status: Literal["completed", "failed", "stopped"]
    arguments: Mapping[str, Any]
    result: Any = None
    edited: Mapping[str, Any] | None = None
    approval: str | None = None


@dataclass(frozen=True, slots=True)
class Basis:
    """What an answer rests on: the revision of each workspace as of which it was given, and the rows it has to do with.

    `entities` are pairs of entity type and id; None stands for the whole workspace.
    """

    revisions: Mapping[str, int]
    entities: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a person sees it. `parent` is the one before it, so that branches are a tree.

    `outdated`: what an answer rests on has changed since; `changes` says what. `stopped` answers are parts of one.
    """

    id: str
    thread: str
    role: Role
    content: str
    parent: str | None = None
    run: str | None = None
    status: MessageStatus = "complete"
    citations: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[ToolUse, ...] = ()
    basis: Basis | None = None
    memory: Any = None
    siblings: tuple[str, ...] = ()
    outdated: bool = False
    changes: tuple[Mapping[str, Any], ...] = ()
    created_at: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One invocation of an agent for a thread, with all its attempts. `error` is a code and a text for people.

    `message` is the one that it answers, `answer` its own. `attempts` counts beginnings after a crash, not resumes.
    """

    id: str
    thread: str
    user: str
    status: RunStatus
    message: str | None = None
    answer: str | None = None
    attempts: int = 0
    error: Mapping[str, Any] | None = None
    created_at: str = ""
    started_at: str | None = None
    ended_at: str | None = None

    @property
    def ended(self) -> bool:
        """Whether it goes on no more."""
        return self.status in ("succeeded", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a thread's stream. Durable ones have an `id`, which counts up in the thread; previews (text as it is
    written) have none. `data` is JSON and always names `thread` and, but for a thread's own, `run`."""

    type: EventType
    data: Mapping[str, Any]
    id: int | None = None
    at: str = ""


Rule = Callable[[Mapping[str, Any], Any], Gate]
"""Arguments and run context in; `ask`, `allow` or `deny` out."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What must be done before a tool runs.

    `gate` is `ask`, `allow`, `deny`, or a rule over arguments and run context. `deciders` names the roles that may decide
    beside the person whose conversation it is; `own` is False where that person may not. `expires` is in seconds.
    `decisions` are those that a person may choose from.
    """

    gate: Gate | Rule = "ask"
    deciders: frozenset[str] = frozenset({APPROVER, OPERATOR})
    own: bool = True
    expires: float | None = None
    decisions: frozenset[DecisionType] = frozenset({"approve", "edit", "reject", "respond"})


@dataclass(frozen=True, slots=True)
class Approval:
    """A stored request to let one tool call run.

    `arguments` are exactly what was asked for and `digest` tells them apart. `revisions` maps each workspace to HEAD as it
    was proposed, `touches` are the rows it has to do with as (type, id, version), None for the whole workspace.
    `policy` is the one that was in force. `decision` is what came of it, `schema` the tool's own of its arguments.
    `kind` is `tool`, `node` (a graph that stops before its tools) or `interrupt` (a question of the application's own).
    """

    id: str
    thread: str
    run: str
    tool: str
    arguments: Mapping[str, Any]
    digest: str
    status: ApprovalStatus
    kind: Literal["tool", "node", "interrupt"] = "tool"
    tenant: str | None = None
    user: str | None = None
    call: str | None = None
    question: Any = None
    revisions: Mapping[str, int] = field(default_factory=dict)
    touches: tuple[tuple[str, str, int | None], ...] | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    decision: Decision | None = None
    changes: tuple[Mapping[str, Any], ...] = ()
    created_at: str = ""
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided. `arguments` replace the proposed ones (edit), `message` is a reason (reject) or the answer
    (respond). `confirmed` maps a workspace to the revision that the person was shown, where something had changed."""

    type: DecisionType
    arguments: Mapping[str, Any] | None = None
    message: Any = None
    confirmed: Mapping[str, int] = field(default_factory=dict)
    by: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class GateRecord:
    """One tool's record: how often it was asked for, and what people decided. `in_a_row` counts the newest approvals
    without a change; `earned`: by the written rule it may be set to `allow`."""

    tool: str
    asked: int = 0
    approved: int = 0
    edited: int = 0
    rejected: int = 0
    answered: int = 0
    expired: int = 0
    withdrawn: int = 0
    undone: int = 0
    in_a_row: int = 0
    earned: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """One page. `next` is where the next one begins, None at the end."""

    items: Sequence[Any]
    next: str | None = None
