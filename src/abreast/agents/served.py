"""What a service executes: its agents, and what their attempts work with."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig

from abreast.access import Access, Operation, aperform
from abreast.access.signals import Signals
from abreast.agents.pauses import Pauses
from abreast.agents.previews import Previews
from abreast.agents.runner import Runner, Validator
from abreast.core.execution import Execution
from abreast.errors import RefusedError
from abreast.records import Acknowledge, Thread

POLL = 1.0
"""Seconds at most until a process hears what another one has stored."""

ContextOf = Callable[[Thread, str], Any]
"""The thread and the person in; the run context out, built anew each time, or None where the person has no access."""

MemoryOf = Callable[[Mapping[str, Any]], Any]
"""Final state in; the working memory that the turn leaves, as JSON, or None for what was there before."""


@dataclass(frozen=True)
class Served:
    """One agent of a service, and how its runs are executed."""

    name: str
    agent: Any
    context: ContextOf
    validate: Sequence[Validator] = ()
    memory: MemoryOf | None = None
    acknowledge: Acknowledge = "run"
    config: RunnableConfig | None = None
    kinds: Callable[[], Mapping[str, str]] = dict


async def context_of(context: ContextOf, thread: Thread, user: str) -> Any:
    """The run context, as the application builds it now; None where this person has no access. A plain function may ask a
    database, and so runs beside the event loop."""
    try:
        if inspect.iscoroutinefunction(context):
            return await context(thread, user)
        made = await asyncio.to_thread(context, thread, user)
        return await made if inspect.isawaitable(made) else made
    except RefusedError:
        return None


@dataclass(frozen=True)
class Means:
    """What an attempt works with."""

    access: Access
    execution: Execution
    runner: Runner
    pauses: Pauses
    previews: Previews
    signals: Signals

    def do(self, operation: Operation[Any]) -> Awaitable[Any]:
        """What an operation returns."""
        return aperform(self.access, operation)
