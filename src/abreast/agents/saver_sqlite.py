"""The fence (see `agents.saver`) around LangGraph's SQLite saver: two temporary triggers."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from abreast.agents.saver import Fenced
from abreast.agents.scope import token_of
from abreast.errors import LeaseLostError, UnavailableError
from abreast.store import fence
from abreast.types import Lease

_AWAY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL)


class FencedSqliteSaver(Fenced, SqliteSaver):
    """LangGraph's SQLite saver behind the fence."""

    threads = 1

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(cast(Any, None), serde=serde)
        self._parents: list[Any] = []
        self._prepare(connect)
        self._token = -1

    def _start_anew(self) -> None:
        super()._start_anew()
        self.lock, self._writing = threading.Lock(), threading.RLock()
        # A connection that a process has inherited must not even be closed there (SQLite, "How to corrupt", 2.6).
        self._parents.append(self.conn)

    def _open(self) -> None:
        self.conn, self.is_setup = self._connect(), False

    def _close(self) -> None:
        self.conn.close()

    def setup(self) -> None:
        """Makes the tables and the fence where they are missing. Called at the first use."""
        self._ensure()
        if self.is_setup:
            return
        super().setup()
        known = weakref.ref(self)  # a connection that kept its saver would keep it for ever
        self.conn.create_function(fence.TOKEN_FUNCTION, 0, lambda: saver._token if (saver := known()) else None)
        for statement in fence.create_statements("sqlite"):
            self.conn.execute(statement)
        self.conn.commit()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        self._ensure()
        try:
            with super().cursor(transaction) as found:
                yield found
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in _AWAY:
                raise UnavailableError(f"The file of the checkpoints cannot be used: {error}. Try again.") from error
            raise

    def announce(self, lease: Lease) -> int:
        statement = fence.announce_statement(lease)
        with self.cursor() as cursor:
            ((token,),) = cursor.execute(statement.text, dict(statement.parameters)).fetchall()
        return int(token)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        # All at once: whoever reads them may ask this saver for more, and a half-read list would keep its lock.
        yield from [*super().list(config, filter=filter, before=before, limit=limit)]

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        with self._as(config):
            return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        with self._as(config):
            super().put_writes(config, writes, task_id, task_path)

    @contextmanager
    def _as(self, config: RunnableConfig) -> Iterator[None]:
        token = token_of(config)
        self._ensure()
        with self._writing:
            self._token = token
            try:
                yield
            except sqlite3.IntegrityError as error:
                if fence.REFUSED in str(error):
                    raise LeaseLostError(thread=str(config["configurable"]["thread_id"])) from None
                raise
            finally:
                self._token = -1
