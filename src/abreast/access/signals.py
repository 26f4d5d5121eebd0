"""Waking readers: who waits for something to happen in the database hears of it at once, and polls slowly in any case.

In the process a signal costs a dictionary and a flag. Between processes PostgreSQL carries it: a NOTIFY that is sent after
the commit, from a connection beside (in the writing transaction it halves the throughput), many signals in one. SQLite
carries nothing. A signal may be lost, or come for nothing, so it is a hint to look, never the news itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from abreast.access.base import Access

if TYPE_CHECKING:
    import psycopg

CHANNEL = "abreast"

GAP = 0.02
"""Seconds between two NOTIFY of one process. The first after a pause goes at once."""

LINGER = 5.0
"""Seconds that the thread stays when nobody waits any more and nothing is to be sent."""

_PAYLOAD = 7000
"""Bytes of topics in one NOTIFY; PostgreSQL takes fewer than 8000."""

_LONGEST = 200
"""Characters of a topic that travels as it is."""

_MOST = 10_000
"""Topics that wait to be sent. Whoever misses one looks again within his own timeout."""

_PAUSES = (0.1, 5.0)
"""Seconds before the first and at most before a later attempt to connect again."""

_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""`select` itself knows no more than 1024 open files."""


class Signals:
    """The signals of one database.

    Topics are free text; the hub's are `thread:{id}`, `workspace:{id}` and `runs`. There is no thread and no connection
    as long as nobody waits and nothing is sent; on SQLite never.
    """

    def __init__(self, access: Access, *, linger: float = LINGER) -> None:
        self._lock = threading.Lock()
        self._watches: dict[str, set[Watch]] = {}
        self._wire: _Wire | None = None
        if access.dialect == "postgresql":
            self._wire = _Wire(access, self._ring, lambda: bool(self._watches), linger)
        if hasattr(os, "register_at_fork"):
            known = weakref.ref(self)

            def in_child() -> None:
                if (found := known()) is not None:
                    found._start_anew()

            os.register_at_fork(after_in_child=in_child)

    def _start_anew(self) -> None:
        """In a forked child: who waited is the parent's, and so are its thread and its connection."""
        self._lock = threading.Lock()
        self._watches = {}
        if self._wire is not None:
            self._wire.start_anew()

    def notify(self, *topics: str) -> None:
        """Wakes whoever waits for these topics, here and in other processes. To be called after the commit, from any
        thread; waits for nothing and raises nothing."""
        keys = [_key(topic) for topic in topics]
        self._ring(keys)
        if self._wire is not None and keys:
            self._wire.send(keys)

    def wake(self, *topics: str) -> None:
        """Wakes whoever waits for these topics in this process, and nobody else: for what no other process could read."""
        self._ring([_key(topic) for topic in topics])

    def watch(self, topic: str) -> Watch:
        """From here on no signal of this topic is missed: look into the database after this, then wait, then look again.
        To be closed, best as `with`."""
        return Watch(self, _key(topic))

    async def wait(self, topic: str, seconds: float) -> bool:
        """Waits for the next signal, at most so long. False: none came. One that came before is missed."""
        with self.watch(topic) as watch:
            return await watch.wait(seconds)

    def block(self, topic: str, seconds: float) -> bool:
        """The same for a thread."""
        with self.watch(topic) as watch:
            return watch.block(seconds)

    def close(self) -> None:
        """Ends the thread and the connection, and wakes all who wait. In the process signals still work."""
        if self._wire is not None:
            self._wire.close()
        self._ring(None)

    async def aclose(self) -> None:
        """The same, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def _ring(self, keys: Iterable[str] | None) -> None:
        """Wakes those who wait for these topics here; None: for any."""
        asleep: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        with self._lock:
            for key in list(self._watches) if keys is None else keys:
                for watch in self._watches.get(key, ()):
                    watch.rung = True
                    waiting, watch.waiting = watch.waiting, None
                    if isinstance(waiting, threading.Event):
                        waiting.set()
                    elif waiting is not None:
                        asleep.setdefault(waiting.get_loop(), []).append(waiting)
        for loop, futures in asleep.items():
            # One call wakes all who wait on a loop: each has its price where it comes from another thread.
            with contextlib.suppress(RuntimeError):  # a loop that is closed has nobody to wake
                loop.call_soon_threadsafe(_wake, futures)

    def enter(self, watch: Watch, waiting: threading.Event | asyncio.Future[None] | None) -> bool:
        """Notes that a watch is there, and that it waits, unless it was rung already: then False."""
        with self._lock:
            first = not self._watches
            self._watches.setdefault(watch.key, set()).add(watch)
            if waiting is not None and watch.rung:
                watch.rung = False
                return False
            watch.waiting = waiting
        if first and self._wire is not None:
            self._wire.look()
        return True

    def awake(self, watch: Watch) -> bool:
        """Whether a watch was rung while it waited."""
        with self._lock:
            rung, watch.rung, watch.waiting = watch.rung, False, None
            return rung

    def leave(self, watch: Watch) -> None:
        """Forgets a watch."""
        with self._lock:
            watches = self._watches.get(watch.key)
            if watches is None:
                return
            watches.discard(watch)
            if watches:
                return
            del self._watches[watch.key]
            last = not self._watches
        if last and self._wire is not None:
            self._wire.look()


class Watch:
    """One who waits for a topic again and again, one wait at a time. A signal that comes between two waits is kept."""

    def __init__(self, signals: Signals, key: str) -> None:
        self._signals, self.key = signals, key
        self.rung = False
        self.waiting: threading.Event | asyncio.Future[None] | None = None
        signals.enter(self, None)

    async def wait(self, seconds: float) -> bool:
        """Waits for a signal, at most so long. False: none came."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if not self._signals.enter(self, future):
            return True
        timer = loop.call_later(seconds, _wake, [future])
        try:
            await future
        except BaseException:
            self.waiting = None  # a signal that came meanwhile is kept for the next wait
            raise
        finally:
            timer.cancel()
        return self._signals.awake(self)

    def block(self, seconds: float) -> bool:
        """The same for a thread."""
        event = threading.Event()
        if not self._signals.enter(self, event):
            return True
        event.wait(seconds)
        return self._signals.awake(self)

    def close(self) -> None:
        """Waits no more."""
        self._signals.leave(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Wire:
    """The connection to PostgreSQL that sends and hears, and the thread that it lives in."""

    def __init__(
        self, access: Access, ring: Callable[[Iterable[str] | None], None], wanted: Callable[[], bool], linger: float
    ) -> None:
        _, arguments = access.sql_dialect.create_connect_args(access.url)
        alive = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "connect_timeout": 10}
        self._arguments: dict[str, Any] = {**alive, **arguments, "autocommit": True, "prepare_threshold": None}
        self._ring, self._wanted, self._linger = ring, wanted, linger
        self.start_anew()

    def start_anew(self) -> None:
        """Nothing is open and no thread runs."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._pending: dict[str, None] = {}
        self._closed = self._poked = False
        self._last_use = time.monotonic()

    def send(self, keys: Iterable[str]) -> None:
        with self._lock:
            if len(self._pending) < _MOST:
                self._pending.update(dict.fromkeys(keys))
            self._poke()

    def look(self) -> None:
        """Whether somebody waits has changed."""
        with self._lock:
            self._last_use = time.monotonic()
            if self._thread is not None or self._wanted():
                self._poke()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread = self._thread
            if thread is not None:
                self._poke()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)  # it may be connecting to a server that does not answer; then it ends by itself

    def _poke(self) -> None:
        """Under the lock: has the thread look, and starts it where there is none."""
        if self._thread is None:
            if self._closed:
                return
            self._bell = socket.socketpair()
            self._poked = False
            self._thread = threading.Thread(target=self._run, args=(self._bell[1],), name="abreast-signals", daemon=True)
            self._thread.start()
        if not self._poked and self._bell is not None:
            self._poked = True
            self._bell[0].send(b"!")

    def _run(self, bell: socket.socket) -> None:
        import psycopg

        connection: psycopg.Connection[Any] | None = None
        listening, sent, pause = False, 0.0, _PAUSES[0]
        try:
            while not self._is_over():
                try:
                    if connection is None:
                        connection = psycopg.connect(**self._arguments)
                        own = connection.info.backend_pid
                        connection.add_notify_handler(partial(self._heard, own))
                        listening = False
                    if self._wanted() and not listening:
                        connection.execute(f"listen {CHANNEL}")
                        listening, pause = True, _PAUSES[0]
                        self._ring(None)  # what was sent before this nobody has heard here
                    rest = sent + GAP - time.monotonic()
                    if self._pending and rest <= 0:
                        for payload in _payloads(self._take()):
                            connection.execute("select pg_notify(%s, %s)", (CHANNEL, payload))
                        sent, pause = time.monotonic(), _PAUSES[0]
                    wait = max(rest, 0.0) if self._pending else (None if self._wanted() else self._linger)
                    self._sleep(bell, connection.fileno(), wait)
                    connection.pgconn.consume_input()
                    while (found := connection.pgconn.notifies()) is not None:
                        self._hear(own, found.be_pid, found.extra.decode())
                except Exception:  # the server is away; a reader's own poll goes on
                    if connection is not None:
                        connection.close()
                        connection = None
                    self._take()  # whoever was to hear of these has looked by the time that this would reach him
                    self._rest(bell, pause)
                    pause = min(pause * 2, _PAUSES[1])
        finally:
            if connection is not None:
                connection.close()

    def _is_over(self) -> bool:
        """Whether the thread has nothing to do any more; then the next who needs one starts another."""
        with self._lock:
            idle = not self._wanted() and not self._pending and time.monotonic() - self._last_use >= self._linger
            if not (self._closed or idle):
                return False
            self._thread = None
            bell, self._bell = self._bell, None
        for end in bell or ():
            end.close()
        return True

    def _take(self) -> list[str]:
        with self._lock:
            taken, self._pending = list(self._pending), {}
            if taken:
                self._last_use = time.monotonic()
            return taken

    def _sleep(self, bell: socket.socket, connection: int | None, seconds: float | None) -> None:
        """Until somebody pokes, the server says something, or the time is over."""
        with _Selector() as selector:
            for end in (bell,) if connection is None else (bell, connection):
                selector.register(end, selectors.EVENT_READ)
            if any(key.fileobj is bell for key, _ in selector.select(seconds)):
                with self._lock:
                    bell.recv(64)
                    self._poked = False

    def _rest(self, bell: socket.socket, seconds: float) -> None:
        """A pause that only `close` cuts short."""
        until = time.monotonic() + seconds
        while not self._closed and (left := until - time.monotonic()) > 0:
            self._sleep(bell, None, left)

    def _heard(self, own: int, found: psycopg.Notify) -> None:
        self._hear(own, found.pid, found.payload)

    def _hear(self, own: int, sender: int, payload: str) -> None:
        if sender == own:
            return  # rung here before it was sent
        with contextlib.suppress(ValueError):  # somebody else's, on a channel of the same name
            topics = json.loads(payload)
            if isinstance(topics, list):
                self._ring([topic for topic in topics if isinstance(topic, str)])


def _payloads(keys: Iterable[str]) -> Iterator[str]:
    """The topics as JSON lists that fit into a NOTIFY each. JSON of ASCII: a NUL or half a character passes too."""
    part: list[str] = []
    size = 0
    for key in keys:
        length = len(json.dumps(key)) + 2
        if part and size + length > _PAYLOAD:
            yield json.dumps(part)
            part, size = [], 0
        part.append(key)
        size += length
    if part:
        yield json.dumps(part)


def _key(topic: str) -> str:
    """The topic as it travels: a long one as its digest."""
    if len(topic) <= _LONGEST:
        return topic
    return "sha256:" + hashlib.sha256(topic.encode("utf-8", "surrogatepass")).hexdigest()


def _wake(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
