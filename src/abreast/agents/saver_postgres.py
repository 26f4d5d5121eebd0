"""The fence (see `agents.saver`) around LangGraph's PostgreSQL saver: one more statement in the same pipeline, which is
one transaction, so it costs no round trip."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg_pool import ConnectionPool, PoolTimeout

from abreast.agents.saver import Fenced
from abreast.agents.scope import token_of
from abreast.errors import LeaseLostError, UnavailableError
from abreast.store import fence
from abreast.store.statement import Statement, pyformat
from abreast.types import Lease

T = TypeVar("T")

_SETUPS = 20
"""Attempts to make the tables: processes that start together make them at the same time, and all but one are refused."""

_writer: ContextVar[tuple[str, int] | None] = ContextVar("abreast_writer", default=None)


class FencedPostgresSaver(Fenced, PostgresSaver):
    """LangGraph's PostgreSQL saver behind the fence. It makes its tables itself at the first use."""

    threads = 8

    def __init__(self, connect: Callable[[], ConnectionPool[Any]], *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(cast(Any, None), serde=serde)
        self._prepare(connect)
        self.lock = cast(Any, nullcontext())  # the pool gives each caller a connection of his own
        self._ready = False

    def _open(self) -> None:
        pool = self._connect()
        pool.open()
        self.conn, self._ready = pool, False
        weakref.finalize(self, _let_go, pool, os.getpid()).atexit = False

    def _close(self) -> None:
        cast(ConnectionPool[Any], self.conn).close()

    def setup(self) -> None:
        """Makes the tables and the fence, or brings them up to date. Called at the first use; needs the right to create."""
        self._ensure()
        for attempt in range(1, _SETUPS + 1):
            try:
                if not self._is_ready():
                    super().setup()
                    with self._cursor() as cursor:
                        for statement in fence.create_statements("postgresql"):
                            cursor.execute(statement)
                self._ready = True
                return
            except psycopg.Error as error:
                # Somebody made the same thing at the same time (23505, 42P07, 42710, 42701), or is about to (XX000, 40P01).
                if attempt == _SETUPS or error.sqlstate not in ("23505", "42P07", "42710", "42701", "XX000", "40P01"):
                    raise
                time.sleep(0.01 * attempt + 0.001 * (os.getpid() % 50))  # not all at the same moment again

    def _is_ready(self) -> bool:
        ready, newest = fence.ready_statements()
        with self._cursor() as cursor:
            if not cursor.execute(ready.text).fetchone()["ready"]:
                return False
            return bool(cursor.execute(newest.text).fetchone()["newest"] >= len(self.MIGRATIONS) - 1)

    def announce(self, lease: Lease) -> int:
        def call() -> int:
            with self._cursor() as cursor:
                _execute(cursor, fence.announce_statement(lease))
                return int(cursor.fetchone()["token"])

        return self._again(call)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        get = super().get_tuple
        return self._again(lambda: get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        # All at once: whoever reads them may ask this saver for more, and a half-read list would keep its connection.
        found = super().list
        yield from self._again(lambda: [*found(config, filter=filter, before=before, limit=limit)])

    def get_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        get = super().get_delta_channel_history
        return self._again(lambda: get(config=config, channels=channels))

    def delete_thread(self, thread_id: str) -> None:
        delete = super().delete_thread
        self._again(lambda: delete(thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        prune = super().prune
        self._again(lambda: prune(thread_ids, strategy=strategy))

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        put = super().put
        with self._as(config):
            return self._again(lambda: put(config, checkpoint, metadata, new_versions))

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        put_writes = super().put_writes
        with self._as(config):
            self._again(lambda: put_writes(config, writes, task_id, task_path))

    def _again(self, call: Callable[[], T]) -> T:
        """Runs a call, and once more on a fresh connection where the old one was dead: a server or pooler that restarted
        leaves those behind. Reading and writing a checkpoint twice changes nothing."""
        self._ensure()
        for again in (True, False):
            try:
                if not self._ready:
                    self.setup()
                return call()
            except psycopg.OperationalError as error:
                if error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P")):
                    raise
                if not again or isinstance(error, PoolTimeout):
                    raise UnavailableError("The database of the checkpoints did not answer. Try again.") from error
                cast(ConnectionPool[Any], self.conn).check()
        raise AssertionError

    @contextmanager
    def _as(self, config: RunnableConfig) -> Iterator[None]:
        held = _writer.set((str(config["configurable"]["thread_id"]), token_of(config)))
        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate == fence.REFUSED_STATE:
                raise LeaseLostError(thread=str(config["configurable"]["thread_id"])) from None
            raise
        finally:
            _writer.reset(held)

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Any]:
        self._ensure()
        with super()._cursor(pipeline=pipeline) as cursor:
            if pipeline and (writer := _writer.get()) is not None:
                _execute(cursor, fence.check_statement(*writer))
            yield cursor


def _execute(cursor: Any, statement: Statement) -> None:
    cursor.execute(pyformat(statement.text), statement.parameters)


def _let_go(pool: ConnectionPool[Any], opened_by: int) -> None:
    """Closes the pool of a saver that was dropped. In a thread of its own: the collector runs in any thread, also in one of
    the pool's, which cannot wait for itself. A forked child leaves what it inherited to its parent."""
    if not pool.closed and os.getpid() == opened_by:
        threading.Thread(target=pool.close, name="abreast-let-go", daemon=True).start()
