"""The durable events of a run on their way into the database: beside the run, and several at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from abreast.agents.served import Means
from abreast.core.execution import Claimed
from abreast.errors import UnavailableError
from abreast.records import Event
from abreast.telemetry import log

GAP = 0.02
"""Seconds that events of a run wait for others, to be stored in one transaction with them."""


class Recording:
    """The events of one attempt. Previews go to the readers of this process at once and are not stored."""

    def __init__(self, means: Means, claimed: Claimed) -> None:
        self._means, self._claimed = means, claimed
        self._events: list[Event] = []
        self._flushing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def take(self, event: Event) -> None:
        """Takes an event from whichever thread it comes."""
        if event.type == "assistant.delta":
            self._means.previews.publish(self._claimed.thread.id, event)
            return
        self._events.append(event)
        try:
            inside = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            inside = False
        # What a tool is called with is known before a person is asked about it.
        at_once = event.type == "tool.proposed"
        if inside:
            self._begin_flush(at_once)
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin_flush, at_once)

    def _begin_flush(self, at_once: bool) -> None:
        if self._flushing is not None or self._closed or not self._events:
            return
        if not at_once:
            if self._timer is None:
                self._timer = self._loop.call_later(GAP, self._begin_flush, True)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushing = self._loop.create_task(self._flush())

    async def _flush(self) -> None:
        """Stores what has come, in the order in which it came, beside the run: what comes meanwhile goes together."""
        try:
            some, self._events = self._events, []
            await self._append(some)
        finally:
            self._flushing = None
            self._begin_flush(any(event.type == "tool.proposed" for event in self._events))

    async def _append(self, events: Sequence[Event]) -> None:
        """Stores events now; or later, with what ends the attempt: the run itself needs none of them."""
        for attempt in range(5):
            try:
                stored = await self._means.do(self._means.execution.append(self._claimed, events))
                self._means.previews.publish(self._claimed.thread.id, *stored)
                return
            except UnavailableError:
                await asyncio.sleep(0.1 * 2**attempt)
            except Exception:
                log.warning("events of the run %s could not be stored", self._claimed.run.id, exc_info=True)
                break
        self._closed, self._events = True, [*events, *self._events]

    async def rest(self) -> list[Event]:
        """The events that are not stored yet; they go with what ends the attempt."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            with suppress(Exception):
                await asyncio.shield(self._flushing)
        some, self._events = self._events, []
        return some

    def keep(self, events: Sequence[Event]) -> None:
        """Events that could not be stored after all: they come first in the next `rest`."""
        self._events = [*events, *self._events]
