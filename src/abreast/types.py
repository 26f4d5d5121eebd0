"""The words of abreast as values: what the floors hand to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

ActorType = Literal["user", "agent", "system", "unknown"]
Operation = Literal["insert", "update", "delete"]
Telling = Literal["on", "shadow", "off"]
Placement = Literal["tail", "before", "after", "system"]
AfterTools = Literal["auto", "message", "answer"]
Phrasing = Literal["sentences", "lines"]
Refresh = Literal["call", "run"]
OnUnavailable = Literal["stop", "warn"]

Version = int | str
"""A row's own version, or `r41`: the row as it stood in CURRENT as of revision 41, as the block names it."""

CountTokens = Callable[[str], int]
"""Text in, number of tokens out."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who made a change."""

    type: ActorType
    id: str | None = None


def user(id: str) -> Actor:
    """A person, by the application's own id."""
    return Actor("user", id)


def agent(id: str | None = None) -> Actor:
    """An assistant, by name."""
    return Actor("agent", id)


def system(id: str | None = None) -> Actor:
    """A job or service, by name."""
    return Actor("system", id)


UNKNOWN = Actor("unknown")
AGENT = Actor("agent")


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who and why, for the writes of one transaction."""

    actor: Actor = UNKNOWN
    thread: str | None = None
    mutation: str | None = None


class MutationId(str):
    """A mutation id. A parameter of this type in a function of `hub.tool` says that it has an effect outside the
    database, and gets the idempotency key to hand on."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class OpenEffect:
    """An effect outside that was started and has no outcome: it is running, or nobody knows whether it was made.

    `mutation` is the key that its function was handed, and what `settle_mutation` wants. `tool` and `arguments` say what was
    called, `thread` in which conversation, `at` when (UTC, ISO 8601).
    """

    workspace: str
    mutation: str
    tool: str
    arguments: Mapping[str, Any]
    thread: str | None
    at: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one run to act for a thread, as long as no newer token exists."""

    thread: str
    token: int
    run: str


@dataclass(frozen=True, slots=True)
class Holder:
    """The run that holds a thread. `seconds`: for how long more at most, should it have died."""

    thread: str
    run: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """One row change of the log.

    `fields` names the changed fields of an update and is empty for an insert and a delete.
    `values` maps a recorded field to `(old, new)`; fields that may not be recorded are absent.
    `at` is UTC, ISO 8601.
    """

    workspace: str
    revision: int
    op: Operation
    entity_type: str
    entity_id: str
    fields: tuple[str, ...]
    values: Mapping[str, tuple[Any, Any]]
    actor: Actor
    thread: str | None
    mutation: str | None
    at: str


@dataclass(frozen=True, slots=True)
class MassChange:
    """An import: more changes of one entity type, operation and actor than a batch may hold, without another between them,
    told as one.

    `first` and `revision` are the first and the last of them, `count` is how many of the revisions in between this person
    is told of. `thread` is the conversation, if its own agent made them.
    """

    workspace: str
    first: int
    revision: int
    count: int
    op: Operation
    entity_type: str
    actor: Actor
    thread: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One tracked row as a person may read it: JSON values by field name, redacted and hidden fields left out."""

    entity_type: str
    entity_id: str
    values: Mapping[str, Any]
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What a governed write did: HEAD after it, and each change's row after it with its version (None for a delete).

    `repeated`: this mutation had been applied before; all of this is its first outcome, and nothing was written again.
    """

    workspace: str
    revision: int
    rows: tuple[Row | None, ...] = ()
    mutation: str | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """One workspace's entry of a conversation's mark: the run that was told, from where, to where.

    `from_check` and `to_check` are the log's check numbers at those revisions (0 at revision 0). `outdated` and `gap`:
    the notices of these names stood there too.
    """

    run: str
    from_revision: int
    to_revision: int
    from_check: int = 0
    to_check: int = 0
    outdated: bool = False
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """A revision and the log's check number there, which tells a restored log from the one that was read."""

    revision: int
    check: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """CURRENT, HEAD and CHANGES of one workspace, read in one database snapshot.

    `events` are the changes to tell, in order, `start < revision <= to`, an import among them as one; `checks` the log's
    check numbers there. `passed` counts those in the same range that concern only what this person may not read,
    `outside` those that the conversation's interest leaves out, and `outside_by` those of them that stand before each
    event (empty if there are none). `remaining` counts the revisions between `to` and `head`;
    `withholds`: some of those may never be told, because this person may not read them or they concern other things.
    `rows` is CURRENT when no loader replaces it, `loaded` what the loaders returned by name.
    `now` holds the rows that `events` name and `rows` does not. `left_out` counts rows by entity type that exist
    but were not read. `gap`: the log no longer reaches back to where this conversation stands.
    """

    workspace: str
    head: Position
    start: Position
    to: Position
    events: tuple[ChangeEvent | MassChange, ...] = ()
    checks: tuple[int, ...] = ()
    rows: tuple[Row, ...] = ()
    now: Mapping[tuple[str, str], Row] = field(default_factory=dict)
    loaded: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    passed: int = 0
    outside: int = 0
    outside_by: tuple[int, ...] = ()
    remaining: int = 0
    withholds: bool = False
    gap: bool = False
    outdated_history: bool = False
    telling: Telling = "on"


@dataclass(frozen=True, slots=True)
class Block:
    """The text for one model call, and to where each workspace is told by it.

    `text` is CHANGES and CURRENT; `facts` says in sentences what the question touches, empty where it touches nothing.
    `tokens` and `digest` are of both. `shown`, where there are tools that write: by workspace the rows, as
    (entity type, id), that stand whole in CURRENT. `touched` are the rows that the question touches, as (workspace, entity
    type, id).
    """

    text: str
    told: Mapping[str, Told]
    tokens: int
    digest: str
    shown: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    facts: str = ""
    touched: frozenset[tuple[str, str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model is asked: the text of the newest message that a person wrote, and the texts before it, newest first."""

    question: str
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens that CURRENT, CHANGES and the facts may take, each for all workspaces together; `value` is characters of one
    value. The facts stand in a request twice and are counted once."""

    current: int = 4000
    changes: int = 1500
    value: int = 500
    facts: int = 300


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run context as the hub reads it by default; an application may bring any class of its own.

    It is built by the server for every run and every resume, never by a client: who asks, in which workspace, with
    which permissions.
    """

    tenant: str
    user: str
    workspace: str
    permissions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one conversation stands in one workspace."""

    workspace: str
    thread: str
    revision: int
    head: int

    @property
    def behind(self) -> int:
        """Revisions that this conversation has not dealt with."""
        return max(0, self.head - self.revision)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that `hub.check()` found: what is wrong, where, and what to do."""

    code: str
    entity_type: str
    message: str
    entity_ids: Sequence[str] = ()
