"""The synchronous door of a service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from abreast.records import Approval, Caller, Decision, Event, Listing, Message, Run, Thread

if TYPE_CHECKING:
    from abreast.core.feed import Fed
    from abreast.hub.service import Service

T = TypeVar("T")


class BlockingService:
    """A service for synchronous applications. Its event loop lives in a thread of its own, from the first call until the hub
    is closed."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def create_thread(self, caller: Caller, **named: Any) -> Thread:
        """See `Service.create_thread`."""
        return self._wait(self._service.create_thread(caller, **named))

    def threads(self, caller: Caller, **named: Any) -> Listing:
        """See `Service.threads`."""
        return self._wait(self._service.threads(caller, **named))

    def thread(self, caller: Caller, thread: str) -> Thread:
        """See `Service.thread`."""
        return self._wait(self._service.thread(caller, thread))

    def messages(self, caller: Caller, thread: str, **named: Any) -> Listing:
        """See `Service.messages`."""
        return self._wait(self._service.messages(caller, thread, **named))

    def message(self, caller: Caller, thread: str, message: str) -> Message:
        """See `Service.message`."""
        return self._wait(self._service.message(caller, thread, message))

    def send(self, caller: Caller, thread: str, text: str, **named: Any) -> Run:
        """See `Service.send`."""
        return self._wait(self._service.send(caller, thread, text, **named))

    def select(self, caller: Caller, thread: str, message: str) -> Thread:
        """See `Service.select`."""
        return self._wait(self._service.select(caller, thread, message))

    def receipt(self, caller: Caller, thread: str, message: str) -> None:
        """See `Service.receipt`."""
        self._wait(self._service.receipt(caller, thread, message))

    def runs(self, caller: Caller, thread: str, **named: Any) -> Listing:
        """See `Service.runs`."""
        return self._wait(self._service.runs(caller, thread, **named))

    def run(self, caller: Caller, thread: str, run: str) -> Run:
        """See `Service.run`."""
        return self._wait(self._service.run(caller, thread, run))

    def cancel(self, caller: Caller, thread: str, run: str) -> Run:
        """See `Service.cancel`."""
        return self._wait(self._service.cancel(caller, thread, run))

    def approvals(self, caller: Caller, **named: Any) -> Listing:
        """See `Service.approvals`."""
        return self._wait(self._service.approvals(caller, **named))

    def approval(self, caller: Caller, thread: str, approval: str) -> Approval:
        """See `Service.approval`."""
        return self._wait(self._service.approval(caller, thread, approval))

    def decide(self, caller: Caller, thread: str, approval: str, decision: Decision) -> Approval:
        """See `Service.decide`."""
        return self._wait(self._service.decide(caller, thread, approval, decision))

    def stream(self, caller: Caller, thread: str, **named: Any) -> Iterator[Event]:
        """See `Service.stream`."""
        yield from self._iterated(self._service.stream(caller, thread, **named))

    def changes(self, caller: Caller, workspace: str, **named: Any) -> Iterator[Fed]:
        """See `Service.changes`."""
        yield from self._iterated(self._service.changes(caller, workspace, **named))

    def start(self) -> None:
        """See `Service.start`."""
        self._wait(self._service.start())

    def stop(self) -> None:
        """See `Service.stop`."""
        self._wait(self._service.stop())

    def close(self) -> None:
        """Ends the thread and its connections. Closing the hub does it."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._service.access.aclose(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def __enter__(self) -> BlockingService:
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def _iterated(self, events: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T:
            return await anext(events)

        try:
            while True:
                try:
                    yield self._wait(following())
                except StopAsyncIteration:
                    return
        finally:
            self._wait(events.aclose())  # type: ignore[attr-defined]

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="abreast-service", daemon=True)
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop).result()
