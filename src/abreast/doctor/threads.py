"""A thread's real checkpoints, read without changing a byte: how big each channel is, how it grows, what never changes."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INLINE = (str, int, float, bool, type(None))
"""The types that LangGraph's PostgreSQL saver writes into every checkpoint row; others are written once a version."""


@dataclass(frozen=True)
class Step:
    """One checkpoint: the channels' values with their stored sizes in bytes, and the config's metadata."""

    id: str
    step: int
    values: Mapping[str, Any]
    sizes: Mapping[str, int]
    digests: Mapping[str, bytes]
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Thread:
    """A thread's checkpoints, oldest first. `whole` is true if the saver writes every channel into every checkpoint."""

    id: str
    steps: tuple[Step, ...]
    whole: bool
    namespaces: tuple[str, ...] = field(default=())
    waiting: tuple[str, ...] = ()
    """The nodes in which the newest checkpoint waits for an answer; empty where it cannot be said which ones."""

    def stored(self, channel: str) -> int:
        """The bytes that a channel took in all checkpoints together."""
        total, before = 0, None
        for step in self.steps:
            if channel not in step.sizes:
                continue
            if self.whole or isinstance(step.values[channel], INLINE) or step.digests[channel] != before:
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


def thread_of(saver: Any, thread: str, limit: int = 1000) -> Thread:
    """The newest checkpoints of a thread's outermost graph, up to `limit`."""
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    tuples = sorted(_listed(saver, config, limit), key=lambda one: str(one.checkpoint["id"]))
    steps = tuple(_step(saver.serde, one) for one in tuples)
    return Thread(thread, steps, whole="Sqlite" in type(saver).__name__, waiting=_waiting(tuples[-1]) if tuples else ())


def _listed(saver: Any, config: Any, limit: int) -> list[Any]:
    async def collect() -> list[Any]:
        return [one async for one in saver.alist(config, limit=limit)]

    if not type(saver).__name__.startswith("Async"):
        with suppress(NotImplementedError):
            return list(saver.list(config, limit=limit))
    return asyncio.run(collect())


def _waiting(newest: Any) -> tuple[str, ...]:
    """The nodes of the next step, if each of them has asked."""
    asked = {task for task, channel, _ in newest.pending_writes or () if channel == "__interrupt__"}
    prefix = "branch:to:"
    values = newest.checkpoint.get("channel_values", {})
    nodes = tuple(name.removeprefix(prefix) for name in values if name.startswith(prefix))
    return nodes if len(nodes) == len(asked) else ()


def _step(serde: Any, one: Any) -> Step:
    import hashlib

    values = {name: value for name, value in one.checkpoint.get("channel_values", {}).items() if not _internal(name)}
    stored = {name: serde.dumps_typed(value)[1] for name, value in values.items()}
    return Step(
        str(one.checkpoint["id"]),
        int(one.metadata.get("step", 0)),
        values,
        {name: len(data) for name, data in stored.items()},
        {name: hashlib.blake2b(data, digest_size=16).digest() for name, data in stored.items()},
        one.metadata,
    )


def _internal(name: str) -> bool:
    return name.startswith(("__", "branch:", "join:"))
