"""Several connections to PostgreSQL that a test moves step by step; a lane may wait for a lock while the others go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg

PATIENCE = 60.0
"""Seconds after which a test gives up: far more than anything here takes."""


class Lane:
    """One connection, in a thread of its own; no transaction but those that the test begins."""

    def __init__(self, conninfo: str) -> None:
        self.connection = psycopg.connect(conninfo, autocommit=True)
        self.pid = self.connection.info.backend_pid
        self._thread = ThreadPoolExecutor(1)

    def start(self, *statements: str) -> Future[Any]:
        """Sends statements, one after the other; the future holds the rows of the last."""
        return self._thread.submit(self._run, statements)

    def run(self, *statements: str) -> Any:
        """As `start`, and waits. Raises what the database raised."""
        return self.start(*statements).result(timeout=PATIENCE)

    def _run(self, statements: tuple[str, ...]) -> Any:
        rows: Any = None
        for statement in statements:
            cursor = self.connection.execute(statement)  # type: ignore[call-overload]
            rows = cursor.fetchall() if cursor.description else None
        return rows

    def close(self) -> None:
        self.connection.close()
        self._thread.shutdown()


class Lanes:
    """Makes lanes; `watch` looks at the others."""

    def __init__(self, conninfo: str, stack: ExitStack) -> None:
        self._conninfo, self._stack = conninfo, stack
        self.watch = self.open()

    def open(self) -> Lane:
        made = Lane(self._conninfo)
        self._stack.callback(made.close)
        return made

    def wait_until_waiting(self, lane: Lane, future: Future[Any]) -> None:
        """Returns when this lane's statement waits for a lock."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert not future.done(), f"it did not wait: {future}"
            if self.watch.run(f"select 1 where cardinality(pg_blocking_pids({lane.pid})) > 0"):
                return
        raise AssertionError("it neither waited nor ended")

    def locks(self, lane: Lane) -> set[str]:
        """The relations in which this lane's transaction has written or locked rows."""
        written = "relation is not null and mode <> 'AccessShareLock'"
        return {
            row[0]
            for row in self.watch.run(f"select relation::regclass::text from pg_locks where pid = {lane.pid} and {written}")
        }


@contextmanager
def lanes(conninfo: str) -> Iterator[Lanes]:
    """Lanes that are closed at the end, their open transactions rolled back."""
    with ExitStack() as stack:
        yield Lanes(conninfo, stack)
