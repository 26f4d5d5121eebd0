"""A thread's real checkpoints, read without changing a byte: how big each channel is, how it grows, what never changes.

A thread may hold thousands of checkpoints, each as large as all its values. They are read page by page, the newest first, and
of each only sizes and digests are kept; the values are kept of the newest one alone.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INLINE = (str, int, float, bool, type(None))
"""The types that LangGraph's PostgreSQL saver writes into every checkpoint row; others are written once a version."""

PAGE, PAGE_BYTES = 200, 8_000_000
"""The most checkpoints that are asked for at once, and about how many bytes of them: some savers fetch a page as a whole."""

LIMIT = 20_000
"""Checkpoints of a thread that are read; of a longer one the newest, and the report says so."""

_KEPT = ("source", "step")

Said = tuple[str, bytes]
"""One message: its kind, and the digest of its text."""


@dataclass(frozen=True, slots=True)
class Step:
    """One checkpoint: the channels' stored sizes in bytes and the digests of their values.

    `inline` has the channels whose value is of a type that PostgreSQL's saver repeats in every row. `metadata` has every key of
    the config's metadata; but for `source` and `step`, its values are True for a text that is not empty, and else None.
    """

    id: str
    step: int
    sizes: Mapping[str, int]
    digests: Mapping[str, bytes]
    metadata: Mapping[str, Any]
    inline: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a checkpoint added to a channel of messages: how the channel began before, and what came behind its end."""

    begin: tuple[Said, ...]
    new: tuple[Said, ...]


@dataclass(frozen=True)
class Thread:
    """A thread's checkpoints, oldest first. `whole` is true if the saver writes every channel into every checkpoint."""

    id: str
    steps: tuple[Step, ...]
    whole: bool
    namespaces: tuple[str, ...] = field(default=())
    waiting: tuple[str, ...] = ()
    """The nodes in which the newest checkpoint waits for an answer; empty where it cannot be said which ones."""
    newest: Mapping[str, Any] = field(default_factory=dict)
    """The values of the newest checkpoint."""
    conversations: frozenset[str] = frozenset()
    """Channels that hold messages in one checkpoint at least."""
    arrivals: Mapping[str, tuple[Arrival, ...]] = field(default_factory=dict)
    """Channels that only ever held messages, with what each checkpoint added, the oldest first."""
    partial: bool = False
    """True if the thread has older checkpoints, which were not read."""

    def stored(self, channel: str) -> int:
        """The bytes that a channel took in all checkpoints together."""
        total, before = 0, None
        for step in self.steps:
            if channel not in step.sizes:
                continue
            if self.whole or channel in step.inline or step.digests[channel] != before:
                total += step.sizes[channel]
            before = step.digests[channel]
        return total

    @functools.cached_property
    def constant(self) -> Mapping[str, int]:
        """Channels that are the same in every checkpoint since they first appeared, with the number of those checkpoints."""
        found = {}
        for channel in self.steps[-1].digests if self.steps else ():
            digests = [step.digests[channel] for step in self.steps if channel in step.digests]
            if len(set(digests)) == 1:
                found[channel] = len(digests)
        return found

    @functools.cached_property
    def largest(self) -> Mapping[str, int]:
        """Channel to the size of its largest value."""
        found: dict[str, int] = {}
        for step in self.steps:
            for channel, size in step.sizes.items():
                found[channel] = max(size, found.get(channel, 0))
        return found


@contextmanager
def saver_at(where: str, load: Any = None) -> Iterator[Any]:
    """The saver behind a URL: a SQLite file's path or URL, a PostgreSQL URL, or MODULE:OBJECT through `load`.

    A SQLite file is opened read-only, and neither saver's `setup` is run. Raises OSError where nothing can be opened.
    """
    if where.startswith(("postgresql", "postgres:")):
        from langgraph.checkpoint.postgres import PostgresSaver

        scheme, _, rest = where.partition("://")
        with PostgresSaver.from_conn_string(f"{scheme.partition('+')[0]}://{rest}") as saver:
            yield saver
        return
    path = Path(where.removeprefix("sqlite:///"))
    if where.startswith("sqlite:") or path.exists() or "/" in where or ":" not in where or load is None:
        from langgraph.checkpoint.sqlite import SqliteSaver

        if not path.is_file():
            raise FileNotFoundError("there is no such file")
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        try:
            reader = SqliteSaver(connection)
            reader.is_setup = True
            yield reader
        finally:
            connection.close()
        return
    yield load(where)


def thread_of(saver: Any, thread: str, limit: int = LIMIT) -> Thread:
    """The newest checkpoints of a thread's outermost graph, up to `limit`; `partial` if there are more."""
    reading = _Reading(saver.serde)
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    with _reader(saver) as read:
        for page in _pages(read, config, limit, reading):
            for one in page:
                reading.add(one)
        partial = len(reading.steps) >= limit and bool(read(config, reading.oldest, 1))
    return reading.done(thread, whole="Sqlite" in type(saver).__name__, partial=partial)


@contextmanager
def _reader(saver: Any) -> Iterator[Any]:
    """A function that lists a page of checkpoints before another one, through whichever door the saver has."""

    async def collect(config: Any, before: Any, limit: int) -> list[Any]:
        return [one async for one in saver.alist(config, before=before, limit=limit)]

    with ExitStack() as stack:
        made: list[asyncio.Runner] = []

        def read(config: Any, before: Any, limit: int) -> list[Any]:
            if not type(saver).__name__.startswith("Async"):
                with suppress(NotImplementedError):
                    return list(saver.list(config, before=before, limit=limit))
            if not made:  # one loop for all pages: an async saver belongs to the loop that it was first used in
                made.append(stack.enter_context(asyncio.Runner()))
            return made[0].run(collect(config, before, limit))

        yield read


def _pages(read: Any, config: Any, limit: int, reading: _Reading) -> Iterator[list[Any]]:
    """Pages of checkpoints, the newest first. They begin small and grow as far as what was read so far allows."""
    number = 4
    while (left := limit - len(reading.steps)) > 0:
        page = read(config, reading.oldest, min(number, left))
        before = reading.oldest
        yield page
        if len(page) < min(number, left) or reading.oldest == before:
            return
        number = max(1, min(PAGE, number * 4, PAGE_BYTES // max(1, reading.widest)))


class _Reading:
    """What is kept of the checkpoints while they pass by, the newest first."""

    def __init__(self, serde: Any) -> None:
        self.serde = serde
        self.steps: list[Step] = []
        self.oldest: Any = None
        self.widest = 0
        self.newest: dict[str, Any] = {}
        self.waiting: tuple[str, ...] = ()
        self.conversations: set[str] = set()
        self._other: set[str] = set()
        self._later: dict[str, list[Said]] = {}
        self._arrivals: dict[str, list[Arrival]] = {}
        self._same: dict[Any, Any] = {}

    def add(self, one: Any) -> None:
        values = {name: value for name, value in one.checkpoint.get("channel_values", {}).items() if not _internal(name)}
        if not self.steps:
            self.newest, self.waiting = values, _waiting(one)
        sizes, digests = {}, {}
        for name, value in values.items():
            data = self.serde.dumps_typed(value)[1]
            sizes[name], digests[name] = len(data), hashlib.blake2b(data, digest_size=16).digest()
            self._message(name, value)
        self.widest = max(self.widest, sum(sizes.values()))
        inline = frozenset(name for name, value in values.items() if isinstance(value, INLINE))
        metadata = {key: value if key in _KEPT else _says(value) for key, value in one.metadata.items()}
        at = int(one.metadata.get("step", 0))
        named = str(one.config["configurable"]["checkpoint_id"])
        self.steps.append(Step(named, at, sizes, self._shared(digests), self._shared(metadata), self._shared(inline)))
        self.oldest = {"configurable": {"checkpoint_id": named}}

    def done(self, thread: str, *, whole: bool, partial: bool) -> Thread:
        for name, first in self._later.items():
            self._arrivals.setdefault(name, []).append(Arrival((), tuple(first)))
        arrivals = {name: tuple(found[::-1]) for name, found in self._arrivals.items() if name not in self._other}
        return Thread(
            thread,
            tuple(self.steps[::-1]),
            whole,
            waiting=self.waiting,
            newest=self.newest,
            conversations=frozenset(self.conversations),
            arrivals=arrivals,
            partial=partial,
        )

    def _message(self, name: str, value: Any) -> None:
        if not isinstance(value, list) or not all(hasattr(one, "content") and hasattr(one, "type") for one in value):
            self._other.add(name)
        elif value:
            self.conversations.add(name)
        if name in self._other or len(value) < 2:
            return
        said = [self._shared((str(one.type), _digest(str(one.content)))) for one in value]
        if name in self._later:
            later = self._later[name]
            self._arrivals.setdefault(name, []).append(Arrival(tuple(said[:2]), tuple(later[len(said) :])))
        self._later[name] = said

    def _shared(self, value: Any) -> Any:
        """One object for all that are equal: thousands of checkpoints repeat the same keys and messages."""
        key = tuple(value.items()) if isinstance(value, dict) else value
        return self._same.setdefault(key, value)


def _says(value: Any) -> bool | None:
    return True if isinstance(value, str) and value else None


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _waiting(newest: Any) -> tuple[str, ...]:
    """The nodes of the next step, if each of them has asked."""
    asked = {task for task, channel, _ in newest.pending_writes or () if channel == "__interrupt__"}
    prefix = "branch:to:"
    values = newest.checkpoint.get("channel_values", {})
    nodes = tuple(name.removeprefix(prefix) for name in values if name.startswith(prefix))
    return nodes if len(nodes) == len(asked) else ()


def _internal(name: str) -> bool:
    return name.startswith(("__", "branch:", "join:"))
