"""PostgreSQL: a psycopg pool for each event loop, and an SQLAlchemy engine for threads, snapshots and sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
import sqlalchemy as sa
from psycopg.adapt import PyFormat, Transformer
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy.engine import URL, Engine

from abreast.access.base import Access, Work, drive_on_connection
from abreast.access.batching import Job
from abreast.access.holding import Held
from abreast.access.writes import AsyncWrites, ThreadWrites
from abreast.errors import CaptureError, InputError, NotInstalledError, UnavailableError
from abreast.store.mutations import Outcome
from abreast.store.schema import TABLES, DialectName
from abreast.store.statement import Flow, Statement, pyformat

T = TypeVar("T")

_ATTEMPTS = 3
_RETRY = ("40001", "40P01")  # serialization failure, deadlock: run again
_INSTALLING = 0x616272656173  # "abreas": the key of our advisory lock
_GONE = "The database is not answering. Nothing was written; try again."


class PostgresAccess(Access):
    """One PostgreSQL database.

    The asynchronous door has psycopg connections in autocommit of its own: one statement is one round trip. The
    synchronous door, snapshots and sessions use an SQLAlchemy engine: the application's, if it is a psycopg one.
    """

    dialect: DialectName = "postgresql"

    def __init__(
        self, url: URL, engine: Engine | None = None, *, prepared: bool = True, size: int = 8, timeout: float = 10.0
    ) -> None:
        query = {k: v for k, v in url.query.items() if k not in ("ssl", "prepared_statement_cache_size", "async_fallback")}
        if "ssl" in url.query:
            query.setdefault("sslmode", "require" if url.query["ssl"] in ("true", "True", "1") else str(url.query["ssl"]))
        self.url = url.set(drivername="postgresql+psycopg", query=query)
        self._own_engine = engine is None
        # psycopg prepares a statement that it sees again; an old transaction pooler loses those between two transactions.
        self._connect: dict[str, Any] = {} if prepared else {"prepare_threshold": None}
        timeout = float(str(query.get("connect_timeout", timeout)))
        self._engine = engine or sa.create_engine(self.url, pool_size=size, pool_timeout=timeout, connect_args=self._connect)
        self._size, self._timeout = size, timeout
        self._writes = ThreadWrites(self._engine)
        self._awrites: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncWrites] = WeakKeyDictionary()
        self._pools: dict[asyncio.AbstractEventLoop, AsyncConnectionPool[Any]] = {}
        if hasattr(os, "register_at_fork"):
            known = weakref.ref(self)

            def in_child() -> None:
                if (found := known()) is not None:
                    found._start_anew()

            os.register_at_fork(after_in_child=in_child)

    def _start_anew(self) -> None:
        """In a forked child: the connections are the parent's, and are left to it."""
        self._pools = {}
        self._awrites = WeakKeyDictionary()
        self._engine.dispose(close=False)

    # -- the synchronous door ------------------------------------------------------------------------------------

    def read(self, work: Work[T]) -> T:
        return self._repeat(work, {"isolation_level": "AUTOCOMMIT"})

    def snapshot(self, work: Work[T]) -> T:
        return self._repeat(work, {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True})

    def write(self, work: Work[T]) -> T:
        return self._repeat(work, {"isolation_level": "READ COMMITTED"})

    def _repeat(self, work: Work[T], options: dict[str, Any]) -> T:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with self._engine.connect().execution_options(**options) as connection, connection.begin():
                    return drive_on_connection(work(), connection)
            except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
                _raise_unless_transient(getattr(error, "orig", None) or error, last=attempt == _ATTEMPTS)
        raise UnavailableError(_GONE)

    def script(self, groups: list[list[str]]) -> None:
        for group in groups:
            for attempt in range(1, 11):
                try:
                    with self._engine.begin() as connection:
                        connection.exec_driver_sql("set local lock_timeout = '2s'")
                        # Several processes of an application may install at once; `create or replace` is not made for that.
                        connection.exec_driver_sql(f"select pg_advisory_xact_lock({_INSTALLING})")
                        for text in group:
                            connection.exec_driver_sql(text.replace("%", "%%"))
                    break
                except sa.exc.OperationalError as error:
                    # A lock that is busy for longer would hold up every writer queued behind us: let go and ask again.
                    if getattr(error.orig, "sqlstate", None) not in ("55P03", *_RETRY):
                        raise UnavailableError(f"{_GONE} ({error.orig})") from error
                    if attempt == 10:
                        raise UnavailableError(
                            "A table stayed locked by another transaction; what was installed so far stays. Run install again."
                        ) from error
                    time.sleep(0.1 * attempt)

    def close(self) -> None:
        if self._own_engine:
            self._engine.dispose()

    # -- governed writes -----------------------------------------------------------------------------------------

    @property
    def sql_dialect(self) -> sa.Dialect:
        return self._engine.dialect

    def carried(self, value: Any) -> Any:
        if value is None or type(value) in (str, int, bool):
            return value
        if isinstance(value, psycopg.Binary):
            value = value.obj
        if isinstance(value, bytes | bytearray | memoryview):
            return "\\x" + bytes(value).hex()
        dumped = Transformer().get_dumper(value, PyFormat.TEXT).dump(value)
        return None if dumped is None else bytes(dumped).decode()

    def hold(self) -> Held:
        try:
            return Held(self._engine.connect(), lambda error: _of_session(error))
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            raise UnavailableError(_GONE) from error

    def govern(self, job: Job) -> Outcome:
        return self._writes.submit(job)

    async def agovern(self, job: Job) -> Outcome:
        loop = asyncio.get_running_loop()
        writes = self._awrites.get(loop)
        if writes is None:
            writes = self._awrites[loop] = AsyncWrites(self._pool)
        return await writes.submit(job)

    # -- the asynchronous door -----------------------------------------------------------------------------------

    async def aread(self, work: Work[T]) -> T:
        return await self._arepeat(work, transaction=False)

    async def awrite(self, work: Work[T]) -> T:
        return await self._arepeat(work, transaction=True)

    async def asnapshot(self, work: Work[T]) -> T:
        # Loaders and read rules are plain functions that may take their time: not on the event loop.
        return await asyncio.to_thread(self.snapshot, work)

    async def _arepeat(self, work: Work[T], *, transaction: bool) -> T:
        for attempt in range(1, _ATTEMPTS + 1):
            pool = await self._pool()
            task = asyncio.current_task()
            wanted = task.cancelling() if task is not None else 0
            try:
                async with pool.connection() as connection, connection.transaction() if transaction else contextlib.nullcontext():
                    if task is not None and task.cancelling() > wanted:
                        # `asyncio.wait_for`, with which the pool waits, loses one that comes with the connection (before 3.12).
                        raise asyncio.CancelledError
                    return await _adrive(work(), connection)
            except (psycopg.Error, PoolTimeout) as error:
                # A pool that gave up has waited its whole time already.
                _raise_unless_transient(error, last=attempt == _ATTEMPTS or isinstance(error, PoolTimeout))
                with contextlib.suppress(psycopg.Error):
                    await pool.check()  # a restarted server leaves dead connections behind: drop them all at once
        raise UnavailableError(_GONE)

    async def _pool(self) -> AsyncConnectionPool[Any]:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for gone in [known for known in self._pools if known.is_closed()]:
                _abandon(self._pools.pop(gone))
            # Not the URL as text: libpq does not read a space as SQLAlchemy writes it there.
            _, arguments = self._engine.dialect.create_connect_args(self.url)
            pool = AsyncConnectionPool(
                min_size=0,
                max_size=self._size,
                timeout=self._timeout,
                reconnect_timeout=self._timeout,  # otherwise its pauses between attempts grow to minutes
                open=False,
                kwargs={"autocommit": True, **arguments, **self._connect},
            )
            self._pools[loop] = pool
            await pool.open()
        return pool

    async def aclose(self) -> None:
        writes = self._awrites.pop(asyncio.get_running_loop(), None)
        if writes is not None:
            await writes.close()
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()
        self.close()


def _of_session(error: sa.exc.DBAPIError) -> BaseException | None:
    """What a caller should see for an error in a transaction that he has written himself; None for the error itself."""
    cause = error.orig
    state = getattr(cause, "sqlstate", None) or ""
    if state == "AB006":
        return InputError("A row of another workspace was written in this block. Nothing of it was kept.")
    if state in _RETRY:
        return UnavailableError("Another transaction was in the way of this one. Nothing was written; do it again.", retry=True)
    if state.startswith(("08", "57P", "53")) or error.connection_invalidated:
        return UnavailableError(_GONE, retry=True)
    if state in ("3F000", "42P01", "42883") and "abreast" in str(cause):
        return NotInstalledError()
    return None


async def _adrive(flow: Flow[T], connection: psycopg.AsyncConnection[Any]) -> T:
    try:
        wanted = next(flow)
        while True:
            if not isinstance(wanted, Statement):
                raise TypeError("this flow needs a snapshot")
            try:
                cursor = await connection.execute(pyformat(wanted.text), wanted.parameters)
                answer = await cursor.fetchall() if _has_rows(cursor) else []
            except Exception as error:
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


def _has_rows(cursor: psycopg.AsyncCursor[Any]) -> bool:
    """Whether the statement returns rows at all. `cursor.description` would describe every column to say so."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def _abandon(pool: AsyncConnectionPool[Any]) -> None:
    """Closes the connections of a pool whose event loop is gone and can close nothing any more."""
    for connection in list(getattr(pool, "_pool", ())):
        connection.pgconn.finish()


def _raise_unless_transient(error: BaseException, *, last: bool) -> None:
    """Returns where another attempt makes sense; raises what the caller should see otherwise."""
    state = getattr(error, "sqlstate", None) or ""
    said = str(error).partition("\n")[0]  # behind it stands the statement, which names our tables whatever is wrong
    if state in ("3F000", "42P01", "42883") and "abreast" in said:
        raise NotInstalledError() from error
    if state == "42501" and ("abreast" in said or said.rpartition(" ")[2] in TABLES):  # "permission denied for table lease"
        raise CaptureError(
            "The hub's database role may not use the tables of abreast. Grant it to the role, or connect as the owner."
        ) from error
    passing = (
        state in _RETRY
        or state.startswith(("08", "57P", "53"))
        or isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | PoolTimeout | sa.exc.TimeoutError)
    )
    if not passing:
        raise error
    # Who waited in vain for a connection has waited long enough.
    if last or isinstance(error, PoolTimeout | sa.exc.TimeoutError):
        raise UnavailableError(_GONE) from error
