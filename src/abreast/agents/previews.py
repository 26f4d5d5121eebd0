"""Previews: the text of an answer as it is written, for whoever reads along in this process. Readers slow nobody."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from abreast.access.signals import Signals, Watch
from abreast.records import Event

KEPT = 2000
"""Events that a reader may be behind. Who is slower loses previews, and takes durable events from the database."""


class Reader:
    """One reader of one thread."""

    def __init__(self, watch: Watch, poll: float) -> None:
        self._watch, self._poll = watch, poll
        self._waiting: deque[Event] = deque(maxlen=KEPT)
        self.stale = False
        """There is something in the database that nobody has handed on."""

    def put(self, event: Event) -> None:
        self._waiting.append(event)

    async def until_signal(self, seen: int, *, until_done: bool = False) -> AsyncIterator[Event]:
        """What has come, and what comes, until the database may have more to read. `seen` is the last durable event that the
        reader has: one that follows it directly is handed on; at a gap the reader must look there, and where `until_done` is
        set behind the end of a run."""
        while True:
            if self._waiting:
                self._watch.rung = False  # what rang is here; otherwise each event would be looked for again
            while self._waiting:
                event = self._waiting.popleft()
                if event.id is None:
                    yield event
                elif event.id == seen + 1:
                    seen = event.id
                    yield event
                    if until_done and event.type == "done":
                        return
                elif event.id > seen:
                    return
            if self.stale:
                self.stale = False
                return
            if not await self._watch.wait(self._poll) or not self._waiting:
                return


class Previews:
    """The readers of one hub's service in this process."""

    def __init__(self, signals: Signals, poll: float) -> None:
        self._signals, self._poll = signals, poll
        self._readers: dict[str, set[Reader]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def subscribed(self, thread: str) -> Iterator[Reader]:
        """A reader, while the block runs."""
        with self._signals.watch(f"thread:{thread}") as watch:
            reader = Reader(watch, self._poll)
            with self._lock:
                self._readers.setdefault(thread, set()).add(reader)
            try:
                yield reader
            finally:
                with self._lock:
                    self._readers[thread].discard(reader)
                    if not self._readers[thread]:
                        del self._readers[thread]

    def publish(self, thread: str, *events: Event) -> None:
        """Hands events to the readers of this process. Of durable ones those of other processes are told that they are there."""
        with self._lock:
            readers = tuple(self._readers.get(thread, ()))
        for reader in readers:
            for event in events:
                reader.put(event)
        if any(event.id is not None for event in events):
            self._signals.notify(f"thread:{thread}")
        elif readers:
            self._signals.wake(f"thread:{thread}")

    def signal(self, thread: str) -> None:
        """There is something new in the database, for readers of every process."""
        with self._lock:
            for reader in self._readers.get(thread, ()):
                reader.stale = True
        self._signals.notify(f"thread:{thread}")
