"""SQLite: one writer thread with group commit, reader threads with explicit snapshots, Python's own driver."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool, StaticPool

from abreast.access.base import Access, Work, drive, drive_on_connection
from abreast.access.batching import Job
from abreast.access.holding import Held
from abreast.errors import InputError, NotInstalledError, UnavailableError
from abreast.store.mutations import OTHER_WORKSPACE, Outcome, read_outcome
from abreast.store.schema import DialectName
from abreast.store.statement import Statement
from abreast.store.values import load

T = TypeVar("T")

_TURN = 0.0003
"""Seconds that a task may take for its turn after it was answered."""

_GROUP = 64
"""Jobs in one commit. More adds latency to the first without saving much of a disk flush (measured: PROTOTYPES E)."""


def _after_fork(access: SQLiteAccess) -> None:
    if hasattr(os, "register_at_fork"):
        known = weakref.ref(access)

        def in_child() -> None:
            if (found := known()) is not None:
                found._start_anew()

        os.register_at_fork(after_in_child=in_child)


class SQLiteAccess(Access):
    """One SQLite file. Threads start with the first use; another process may use the file at the same time."""

    dialect: DialectName = "sqlite"

    def __init__(self, url: URL, *, readers: int = 4, timeout: float = 10.0) -> None:
        self.url, self._timeout, self._size = url, float(str(url.query.get("timeout", timeout))), readers
        self._start_anew()
        _after_fork(self)

    def _start_anew(self) -> None:
        """Nothing is open and no thread runs: a new access, or a forked child, where threads and files are the parent's."""
        self._file: tuple[int, int] | None = None
        self._local = threading.local()
        self._opened: list[tuple[sqlite3.Connection, sa.Engine]] = []
        self._readers = ThreadPoolExecutor(self._size, thread_name_prefix="abreast-read")
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._writing = threading.Lock()
        """Held by whoever of this process writes: waiting for it costs less than asking SQLite again and again."""
        self._holds = sa.create_engine("sqlite://", creator=self._open_to_hold, poolclass=NullPool)
        sa.event.listen(self._holds, "begin", lambda connection: connection.exec_driver_sql("begin immediate"))

    # -- both doors ----------------------------------------------------------------------------------------------

    def read(self, work: Work[T]) -> T:
        return self._submit(self._read, work).result()

    def snapshot(self, work: Work[T]) -> T:
        return self._submit(self._snapshot, work).result()

    def write(self, work: Work[T]) -> T:
        return self._enqueue(work).result()

    async def aread(self, work: Work[T]) -> T:
        return await asyncio.wrap_future(self._submit(self._read, work))

    async def asnapshot(self, work: Work[T]) -> T:
        return await asyncio.wrap_future(self._submit(self._snapshot, work))

    async def awrite(self, work: Work[T]) -> T:
        # A cancelled waiter's write still happens; that is why what writes carries an id of its own.
        ticket = _LoopTicket(asyncio.get_running_loop())
        self._put(work, ticket)
        answer: T = await ticket.future
        return answer

    # -- governed writes -----------------------------------------------------------------------------------------

    @property
    def sql_dialect(self) -> sa.Dialect:
        return self._holds.dialect

    def carried(self, value: Any) -> Any:
        return value

    def govern(self, job: Job) -> Outcome:
        try:
            return read_outcome(load(self.write(job.flow)))
        except _REFUSED as error:
            raise InputError(f"The database refused this write: {error}") from error

    async def agovern(self, job: Job) -> Outcome:
        try:
            return read_outcome(load(await self.awrite(job.flow)))
        except _REFUSED as error:
            raise InputError(f"The database refused this write: {error}") from error

    def hold(self) -> Held:
        if self._closed:
            raise UnavailableError("This hub is being closed.")
        if not self._writing.acquire(timeout=self._timeout):
            raise UnavailableError("Another write of this process has not ended. Nothing was written; try again.", retry=True)
        try:
            self._same_file()
            return Held(self._holds.connect(), _of_session, self._writing.release)
        except BaseException as error:
            self._writing.release()
            raise _translate(error) from error

    def _open_to_hold(self) -> sqlite3.Connection:
        raw = self._open()
        raw.text_factory = str
        return raw

    # -- readers -------------------------------------------------------------------------------------------------

    def _submit(self, how: Callable[[Work[T]], T], work: Work[T]) -> Future[T]:
        if self._closed:
            raise UnavailableError("This hub is being closed.")
        return self._readers.submit(how, work)

    def _read(self, work: Work[T]) -> T:
        raw, _ = self._connection()
        return _guarded(raw, lambda: drive(work(), lambda wanted: _execute(raw, wanted)))

    def _snapshot(self, work: Work[T]) -> T:
        raw, engine = self._connection()

        def run() -> T:
            with engine.connect() as connection, connection.begin():
                raw.execute("begin")
                return drive_on_connection(work(), connection)

        return _guarded(raw, run)

    def _connection(self) -> tuple[sqlite3.Connection, sa.Engine]:
        found: tuple[sqlite3.Connection, sa.Engine] | None = getattr(self._local, "connection", None)
        file = self._same_file()
        if found is not None and file != self._local.file:
            found[1].dispose()
            found[0].close()
            self._opened.remove(found)
            found = None
        if found is None:
            raw = self._open()
            self._local.file = self._same_file()
            raw.execute("pragma query_only = on")
            found = (raw, sa.create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool))
            self._local.connection = found
            self._opened.append(found)
        return found

    def _same_file(self) -> tuple[int, int] | None:
        """Which file stands at the path now. An open connection would go on with one that was moved away or replaced by
        a restore, and a new one would make an empty file in its place. Raises UnavailableError if it is gone."""
        try:
            found = os.stat(str(self.url.database))
        except FileNotFoundError:
            if self._file is not None:
                raise UnavailableError(f"The SQLite file {os.path.basename(str(self.url.database))} is gone.") from None
        else:
            self._file = (found.st_dev, found.st_ino)
        return self._file

    def _open(self) -> sqlite3.Connection:
        # Opening with mode=rw would miss a database that install has yet to make; a missing folder is said plainly.
        path = str(self.url.database)
        try:
            raw = sqlite3.connect(
                path, timeout=self._timeout, isolation_level=None, check_same_thread=False, uri=path.startswith("file:")
            )
            # SQLite takes any bytes for text; one row that is not UTF-8 must not keep a workspace from being read.
            raw.text_factory = lambda text: text.decode(errors="replace")
            raw.execute("pragma foreign_keys = on")
            return raw
        except sqlite3.OperationalError as error:
            raise UnavailableError(f"The SQLite file {os.path.basename(path)} cannot be opened: {error}.") from error

    # -- the writer ----------------------------------------------------------------------------------------------

    def _enqueue(self, work: Work[T]) -> Future[T]:
        future: Future[T] = Future()
        self._put(work, future)
        return future

    def _put(self, work: Work[Any], ticket: Future[Any] | _LoopTicket) -> None:
        if self._closed:
            raise UnavailableError("This hub is being closed.")
        if self._writer is None:
            with self._starting:
                if self._writer is None:
                    self._writer = threading.Thread(target=self._write_all, name="abreast-write", daemon=True)
                    self._writer.start()
        self._jobs.put((work, ticket))

    def _write_all(self) -> None:
        raw: sqlite3.Connection | None = None
        file: tuple[int, int] | None = None
        while (job := self._jobs.get()) is not None:
            group = [job]
            stop = False
            while len(group) < _GROUP:
                try:
                    more = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    stop = True
                    break
                group.append(more)
            try:
                if raw is not None and file != self._same_file():
                    raw.close()
                    raw = None
                raw = raw or self._open()
                file = self._same_file()
                self._commit_group(raw, group)
            except BaseException as error:
                _answer([(ticket, None, _translate(error)) for _, ticket in group])
            if stop:
                break
        if raw is not None:
            raw.close()

    def _commit_group(self, raw: sqlite3.Connection, group: list[_Job]) -> None:
        if not self._writing.acquire(timeout=self._timeout):
            raise UnavailableError("Another write of this process has not ended. Nothing was written; try again.", retry=True)
        try:
            outcomes = self._run_group(raw, group)
        finally:
            self._writing.release()
        _answer(outcomes)

    def _run_group(self, raw: sqlite3.Connection, group: list[_Job]) -> list[_Answer]:
        """One transaction. Where a job fails, all are done again with a savepoint each, so that it alone is taken back:
        savepoints for all cost as much as two of their statements."""
        for careful in (False, True):
            outcomes: list[_Answer] = []
            raw.execute("begin immediate")
            try:
                for work, ticket in group:
                    try:
                        if careful:
                            raw.execute("savepoint job")
                        outcomes.append((ticket, drive(work(), lambda wanted: _execute(raw, wanted)), None))
                    except Exception as error:
                        outcomes.append((ticket, None, _translate(error)))
                        if not careful:
                            break
                        raw.execute("rollback to job")
                    if careful:
                        raw.execute("release job")
                if careful or outcomes[-1][2] is None:
                    raw.execute("commit")
                    break
                if raw.in_transaction:  # a trigger of the application may have ended it
                    raw.execute("rollback")
                if len(group) == 1:
                    break
            except BaseException:
                if raw.in_transaction:
                    raw.execute("rollback")
                raise
        return outcomes

    def script(self, groups: list[list[str]]) -> None:
        raw = self._open()
        try:
            # WAL lets readers read while one writes; it is a property of the file and stays.
            raw.execute("pragma journal_mode = wal")
            for group in groups:
                raw.execute("begin immediate")
                try:
                    for text in group:
                        raw.execute(text)
                    raw.execute("commit")
                except BaseException:
                    if raw.in_transaction:
                        raw.execute("rollback")
                    raise
        except sqlite3.OperationalError as error:
            raise _translate(error) from error
        finally:
            raw.close()

    # -- the end -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._closed = True
        self._jobs.put(None)
        if self._writer is not None:
            self._writer.join()
        self._readers.shutdown()
        for raw, engine in self._opened:
            engine.dispose()
            raw.close()
        self._start_anew()  # whoever uses it again opens it again, in the next event loop for example

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)


_REFUSED = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, OverflowError)
"""What SQLite and its driver raise about the values of a write."""


def _of_session(error: sa.exc.DBAPIError) -> BaseException | None:
    """What a caller should see for an error in a transaction that he has written himself; None for the error itself."""
    if OTHER_WORKSPACE in str(error.orig):
        return InputError("A row of another workspace was written in this block. Nothing of it was kept.")
    translated = _translate(error)
    return None if translated is error else translated


def _execute(raw: sqlite3.Connection, wanted: Statement) -> list[Any]:
    return raw.execute(wanted.text, wanted.parameters).fetchall()


def _guarded(raw: sqlite3.Connection, run: Callable[[], T]) -> T:
    try:
        return run()
    except (sqlite3.Error, sa.exc.DBAPIError) as error:
        raise _translate(error) from error
    finally:
        if raw.in_transaction:
            raw.rollback()


class _LoopTicket:
    """What a task waits with. It is answered by its event loop, together with the others of its group."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self.future: asyncio.Future[Any] = loop.create_future()


_Job = tuple[Work[Any], "Future[Any] | _LoopTicket"]
_Answer = tuple["Future[Any] | _LoopTicket", Any, "BaseException | None"]


def _answer(answers: list[_Answer]) -> None:
    """Answers a group. Waits a little until the tasks that it wakes have had their turn: they may have more to write, and
    two threads of Python that run at the same time hinder each other at every statement (measured: by a factor of three).
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
    for ticket, result, failure in answers:
        if isinstance(ticket, _LoopTicket):
            by_loop.setdefault(ticket.loop, []).append((ticket.future, result, failure))
        elif ticket.set_running_or_notify_cancel():
            if failure is None:
                ticket.set_result(result)
            else:
                ticket.set_exception(failure)
    for loop, those in by_loop.items():
        woken = threading.Event()
        try:
            loop.call_soon_threadsafe(_wake, loop, those, woken)
        except RuntimeError:  # the loop is closed: nobody waits any more
            continue
        if len(those) > 1:
            woken.wait(_TURN * len(those))


def _wake(
    loop: asyncio.AbstractEventLoop,
    those: list[tuple[asyncio.Future[Any], Any, BaseException | None]],
    woken: threading.Event,
) -> None:
    for future, result, failure in those:
        if future.done():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
    loop.call_soon(woken.set)  # behind the tasks that were just woken


def _translate(error: BaseException) -> BaseException:
    """The error that a caller should see for one of SQLite's."""
    cause = getattr(error, "orig", None) or error
    text = str(cause)
    if isinstance(cause, sqlite3.OperationalError):
        if text.startswith("no such table: abreast_") or text.startswith("no such table: main.abreast_"):
            return NotInstalledError()
        if any(word in text for word in ("locked", "busy", "unable to open", "disk I/O", "disk is full", "readonly")):
            return UnavailableError(f"The SQLite file does not answer: {text}. Nothing was written; try again.")
    return error
