"""The run that is going on in this context, and the model calls that returned in it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field

from abreast.core.gate import ReturnedCall


@dataclass(slots=True)
class RunScope:
    """One `hub.run`. `input_ids` are the ids of its input messages: what stands before them is history."""

    run: str
    thread: str
    input_ids: frozenset[str]
    calls: list[ReturnedCall] = field(default_factory=list)


current: ContextVar[RunScope | None] = ContextVar("abreast_run", default=None)
"""Inherited by everything that the run starts, tools and their threads included; never shared between runs."""
