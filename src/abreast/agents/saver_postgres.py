"""The fence (see `agents.saver`) around LangGraph's PostgreSQL savers: one more statement in the same pipeline, which is
one transaction, so it costs no round trip."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

from abreast.agents.saver import token_of
from abreast.errors import LeaseLostError
from abreast.store.schema import script
from abreast.types import Lease

_REFUSED_STATE = "AB001"
_ANNOUNCE = (
    "insert into abreast_fence as known (thread, token) values (%s, %s) "
    "on conflict (thread) do update set token = excluded.token where known.token < excluded.token"
)
_CHECK = "select abreast_check_fence(%s, %s)"

_writer: ContextVar[tuple[str, int] | None] = ContextVar("abreast_writer", default=None)


def _write(config: RunnableConfig) -> tuple[str, int]:
    return str(config["configurable"]["thread_id"]), token_of(config)


@contextmanager
def _as(config: RunnableConfig) -> Iterator[None]:
    held = _writer.set(_write(config))
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == _REFUSED_STATE:
            raise LeaseLostError() from None
        raise
    finally:
        _writer.reset(held)


class FencedPostgresSaver(PostgresSaver):
    """LangGraph's PostgreSQL saver behind the fence, for synchronous runs."""

    def setup(self) -> None:
        super().setup()
        with self._cursor() as cursor:
            for statement in script("postgresql", "fence"):
                cursor.execute(statement)

    def announce(self, lease: Lease) -> None:
        """Makes this lease's token the one that counts. An older one changes nothing."""
        with self._cursor() as cursor:
            cursor.execute(_ANNOUNCE, (lease.thread, lease.token))

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        with _as(config):
            return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with _as(config):
            super().put_writes(config, writes, task_id, task_path)

    @contextmanager
    def _cursor(self, *, pipeline: bool = False) -> Iterator[Any]:
        with super()._cursor(pipeline=pipeline) as cursor:
            if pipeline and (writer := _writer.get()) is not None:
                cursor.execute(_CHECK, writer)
            yield cursor


class FencedAsyncPostgresSaver(AsyncPostgresSaver):
    """LangGraph's asynchronous PostgreSQL saver behind the fence."""

    async def setup(self) -> None:
        await super().setup()
        async with self._cursor() as cursor:
            for statement in script("postgresql", "fence"):
                await cursor.execute(statement)

    async def aannounce(self, lease: Lease) -> None:
        """Makes this lease's token the one that counts. An older one changes nothing."""
        async with self._cursor() as cursor:
            await cursor.execute(_ANNOUNCE, (lease.thread, lease.token))

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: ChannelVersions
    ) -> RunnableConfig:
        with _as(config):
            return await super().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        with _as(config):
            await super().aput_writes(config, writes, task_id, task_path)

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncIterator[Any]:
        async with super()._cursor(pipeline=pipeline) as cursor:
            if pipeline and (writer := _writer.get()) is not None:
                await cursor.execute(_CHECK, writer)
            yield cursor
