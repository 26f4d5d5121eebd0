"""Savers that write a checkpoint only under the current lease of its thread (G19).

They are LangGraph's own savers with one check inside the transaction of each write: the newest token that was announced
for the thread must be the one in the config of whoever writes. The announced tokens are kept beside the checkpoints, so
the fence also holds where these are in another database than the leases.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from abreast.errors import LeaseLostError
from abreast.types import Lease

TOKEN = "__abreast_token"  # noqa: S105 - a key of the config, not a secret
"""Where a run's token travels: LangGraph hands `configurable` down to every write, sub-agents' included, and does not
copy keys that begin with two underscores into a checkpoint's metadata."""

_REFUSED = "abreast: this run does not hold the thread"
_FENCE = "create table if not exists abreast_fence (thread text primary key, token integer not null)"
_ANNOUNCE = (
    "insert into abreast_fence (thread, token) values (?, ?) "
    "on conflict (thread) do update set token = excluded.token where abreast_fence.token < excluded.token"
)


def token_of(config: RunnableConfig) -> int:
    """The token of whoever writes; -1 where there is none, which no fence accepts."""
    found = config.get("configurable", {}).get(TOKEN)
    return found if isinstance(found, int) else -1


# A temporary trigger belongs to this connection alone, so it may call a function of ours; other programs that write the
# same file never see it.
def _triggers() -> list[str]:
    return [
        f"create temp trigger if not exists abreast_fence_{table} before insert on main.{table} "
        f"when coalesce((select token from main.abreast_fence where thread = new.thread_id), -2) is not abreast_token() "
        f"begin select raise(abort, '{_REFUSED}'); end"
        for table in ("checkpoints", "writes")
    ]


class FencedSqliteSaver(SqliteSaver):
    """LangGraph's SQLite saver behind the fence, for synchronous runs."""

    def __init__(self, conn: sqlite3.Connection, **options: Any) -> None:
        super().__init__(conn, **options)
        self._writing = threading.RLock()
        self._token = -1

    def setup(self) -> None:
        fresh = not self.is_setup
        super().setup()
        if fresh:
            self.conn.create_function("abreast_token", 0, lambda: self._token)
            for statement in (_FENCE, *_triggers()):
                self.conn.execute(statement)

    def announce(self, lease: Lease) -> None:
        """Makes this lease's token the one that counts. An older one changes nothing."""
        with self.cursor() as cursor:
            cursor.execute(_ANNOUNCE, (lease.thread, lease.token))

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        with self._as(config):
            return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with self._as(config):
            super().put_writes(config, writes, task_id, task_path)

    @contextmanager
    def _as(self, config: RunnableConfig) -> Iterator[None]:
        with self._writing:
            self._token = token_of(config)
            try:
                yield
            except sqlite3.IntegrityError as error:
                if _REFUSED in str(error):
                    raise LeaseLostError() from None
                raise
            finally:
                self._token = -1


class FencedAsyncSqliteSaver(AsyncSqliteSaver):
    """LangGraph's asynchronous SQLite saver behind the fence."""

    def __init__(self, conn: Any, **options: Any) -> None:
        super().__init__(conn, **options)
        self._writing = asyncio.Lock()
        self._token = -1
        self._fenced = False

    async def setup(self) -> None:
        await super().setup()
        if self._fenced:
            return
        async with self.lock:
            if not self._fenced:
                await self.conn.create_function("abreast_token", 0, lambda: self._token)
                for statement in (_FENCE, *_triggers()):
                    await self.conn.execute(statement)
                await self.conn.commit()
                self._fenced = True

    async def aannounce(self, lease: Lease) -> None:
        """Makes this lease's token the one that counts. An older one changes nothing."""
        await self.setup()
        async with self.lock:
            await self.conn.execute(_ANNOUNCE, (lease.thread, lease.token))
            await self.conn.commit()

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        async with self._as(config):
            return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        async with self._as(config):
            await super().aput_writes(config, writes, task_id, task_path)

    @asynccontextmanager
    async def _as(self, config: RunnableConfig) -> AsyncIterator[None]:
        async with self._writing:
            self._token = token_of(config)
            try:
                yield
            except sqlite3.IntegrityError as error:
                await self.conn.rollback()
                if _REFUSED in str(error):
                    raise LeaseLostError() from None
                raise
            finally:
                self._token = -1
