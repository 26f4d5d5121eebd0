"""The run that is going on in this context, and the model calls that returned in it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

from abreast.core.gate import ReturnedCall
from abreast.types import Lease

TOKEN = "__abreast_token"  # noqa: S105 - the name of a key, not a secret
"""Where a run's thread and token travel in `configurable`: LangGraph hands them down to every write of a checkpoint,
sub-agents' included, and does not copy keys that begin with two underscores into a checkpoint's metadata."""


@dataclass(slots=True)
class RunScope:
    """One `hub.run`. `input_ids` are the ids of its input messages: what stands before them is history."""

    run: str
    thread: str
    input_ids: frozenset[str]
    lease: Lease | None = None
    calls: list[ReturnedCall] = field(default_factory=list)
    ended: bool = False
    """What outlives the run, a background task for example, is not part of it any more."""


current: ContextVar[RunScope | None] = ContextVar("abreast_run", default=None)
"""Inherited by everything that the run starts, tools and their threads included; never shared between runs."""
