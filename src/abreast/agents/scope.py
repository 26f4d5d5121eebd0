"""The run that is going on in this context, and the model calls that returned in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from abreast.core.gate import ReturnedCall
from abreast.errors import LeaseError
from abreast.types import Lease

TOKEN = "__abreast_token"  # noqa: S105 - the name of a key, not a secret
"""Where a run's thread and token travel in `configurable`: LangGraph hands them down to every write of a checkpoint,
sub-agents' included, and does not copy keys that begin with two underscores into a checkpoint's metadata."""


def token_of(config: Mapping[str, Any]) -> int:
    """The token of whoever writes. Raises LeaseError where there is none for this thread.

    The thread stands beside the token: a config that was handed on to another conversation brings no right to it.
    """
    configurable = config.get("configurable", {})
    found = configurable.get(TOKEN)
    if not isinstance(found, tuple) or len(found) != 2 or str(found[0]) != str(configurable.get("thread_id")):
        raise LeaseError(
            "This checkpoint was not written: the hub's saver writes inside hub.run, or under hub.lease(thread) with the "
            "config that it hands out."
        )
    return int(found[1])


def is_fenced(saver: Any) -> bool:
    """Whether this saver is one of the hub's, which writes for the newest lease only."""
    return hasattr(saver, "aannounce")


@dataclass(slots=True)
class RunScope:
    """One `hub.run`. `input_ids` are the ids of its input messages: what stands before them is history. `owner` is the
    access of its hub: another hub's run is none of ours."""

    run: str
    thread: str
    input_ids: frozenset[str]
    lease: Lease | None = None
    owner: Any = None
    calls: list[ReturnedCall] = field(default_factory=list)
    shown: dict[tuple[str, int], set[tuple[str, str]]] = field(default_factory=dict)
    """The rows that stood whole in requests of this run which returned, by workspace and the revision of CURRENT there."""
    person: tuple[str, str] | None = None
    """Tenant and user of the conversation, where it is a service's."""
    approved: dict[str, Callable[[str, str, str], int | None]] = field(default_factory=dict)
    """By mutation, what a person approved: workspace, entity type and id in, the revision on which he saw the row out."""
    watcher: Any = None
    """Who hears that a gated tool runs now: `passed(call, approval=, edited=)`, `noted(...)`. None where nobody streams."""
    holder: str = ""
    """What the lease calls the run; another one each time that a stored run is taken up."""
    heads: dict[str, int] = field(default_factory=dict)
    """HEAD of each workspace as of the last model call that returned."""
    touched: set[tuple[str, str]] = field(default_factory=set)
    """The rows that the person's question touches, as entity type and id."""
    ended: bool = False
    """What outlives the run, a background task for example, is not part of it any more."""
    entered: bool = False
    """A run is going on inside this hold of a thread."""


current: ContextVar[RunScope | None] = ContextVar("abreast_run", default=None)
"""Inherited by everything that the run starts, tools and their threads included; never shared between runs."""


def running(owner: Any) -> RunScope | None:
    """The run, or hold, of this hub in whose code this is, if there is one."""
    scope = current.get()
    return scope if scope is not None and scope.owner is owner and not scope.ended else None
