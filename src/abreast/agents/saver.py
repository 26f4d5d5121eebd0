"""Savers that write a checkpoint only under the current lease of its thread (G19).

They are LangGraph's own savers with one check inside the transaction of each write: the token in the config of whoever
writes must be the newest that was announced for the thread. The announced tokens are kept beside the checkpoints, so the
fence also holds where these are in another database than the leases.

One object serves both doors. It opens what it needs at its first use, and anew in a forked process; `close` ends that.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.base import id as ids

from abreast.types import Lease

T = TypeVar("T")


def followed(found: CheckpointTuple | None) -> CheckpointTuple | None:
    """Lets the ids that LangGraph makes in this process from now on sort behind the one that was read.

    It makes them from the clock of whoever writes, and takes the greatest for a thread's newest checkpoint: turns of a
    process whose clock is a little behind would be lost. It keeps a floor of its own, which is raised here.
    """
    if found is not None:
        with suppress(ValueError):  # not one of its ids
            seen = ids.UUID(found.checkpoint["id"])
            if seen.version == 6 and seen.time > (getattr(ids, "_last_v6_timestamp", None) or 0):
                ids._last_v6_timestamp = cast(Any, seen.time)
    return found


class Fenced(BaseCheckpointSaver[str]):
    """What our savers share: they are opened late, and their asynchronous door is the synchronous one in a thread.

    A thread hop costs less than the asynchronous drivers do (`fenced_saver` in the benchmarks), and an agent that is
    built at import, before any event loop runs, can be handed one.
    """

    threads: int
    """Threads of the asynchronous door, which is connections too."""

    def _prepare(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._clones: dict[frozenset[tuple[str, ...]], Fenced] = {}
        self._executor: ThreadPoolExecutor
        self._start_anew()
        if hasattr(os, "register_at_fork"):
            known = weakref.ref(self)

            def in_child() -> None:
                if (found := known()) is not None:
                    found._start_anew()

            os.register_at_fork(after_in_child=in_child)

    def _start_anew(self) -> None:
        """Nothing is open: a new saver, or a forked child, where connections, threads and who holds a lock are the parent's."""
        self._opening = threading.RLock()
        self._is_open = False

    @abstractmethod
    def announce(self, lease: Lease) -> int:
        """Makes this lease's token the one that counts, unless a newer one does. Returns the one that does."""

    @abstractmethod
    def _open(self) -> None:
        """Opens the connections of this process."""

    @abstractmethod
    def _close(self) -> None:
        """Closes them."""

    def _ensure(self) -> None:
        """Opens what this process needs, if it has not yet."""
        if self._is_open:
            return
        with self._opening:
            if not self._is_open:
                self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="abreast-saver")
                self._open()
                self._is_open = True

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[str]:
        """LangGraph's strict mode wants a saver that reads more types: one with connections of its own, closed with this.
        It asks at each compilation and run, so the same types get the same saver."""
        types = frozenset(extra_allowlist)
        with self._opening:
            if types not in self._clones:
                clone = super().with_allowlist(extra_allowlist)
                if clone is self:
                    return self
                kind: Any = type(self)
                self._clones[types] = kind(self._connect, serde=clone.serde)
            return self._clones[types]

    def close(self) -> None:
        """Closes the connections and threads. The next use opens them again."""
        with self._opening:
            if self._is_open:
                self._executor.shutdown()  # what is under way there still finds everything open
                self._close()
                self._is_open = False
            clones = list(self._clones.values())
        for clone in clones:
            clone.close()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return followed(super().get_tuple(config))

    # -- the asynchronous door -----------------------------------------------------------------------------------

    async def _threaded(self, call: Callable[[], T]) -> T:
        self._ensure()
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._executor, context.run, call)

    async def aannounce(self, lease: Lease) -> int:
        """See `announce`."""
        return await self._threaded(partial(self.announce, lease))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._threaded(partial(self.get_tuple, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in await self._threaded(lambda: list(self.list(config, filter=filter, before=before, limit=limit))):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        return await self._threaded(partial(self.put, config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._threaded(partial(self.put_writes, config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._threaded(partial(self.delete_thread, thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._threaded(partial(self.delete_for_runs, run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._threaded(partial(self.copy_thread, source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._threaded(partial(self.prune, thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._threaded(partial(self.get_delta_channel_history, config=config, channels=channels))
