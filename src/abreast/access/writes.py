"""Governed writes on PostgreSQL: one call of a function in the database, repeated where that is safe."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from sqlalchemy.engine import Engine

from abreast.access.batching import AsyncLines, Job, Settled, ThreadLines
from abreast.errors import AbreastError, CaptureError, InputError, NotInstalledError, UnavailableError
from abreast.store.mutations import Outcome, read_outcome
from abreast.store.procedures import apply_statement, function_name, single_statement
from abreast.store.statement import Statement, pyformat
from abreast.store.values import load

_ATTEMPTS = 6
_WAIT = 0.005
"""Seconds before the second attempt, on average; each further one waits twice as long."""

_CONFLICTS = ("40001", "40P01")
_HELD_UP = "55P03"
_GONE = "The database is not answering. Nothing was written; try again."
_UNKNOWN = (
    "The database stopped answering in the middle of this write: it may have been written or not. "
    "Give writes a mutation id, then the same call again is safe."
)

_jitter = random.SystemRandom()


def refusal(state: str, message: str) -> AbreastError | None:
    """What a caller should see for an error that the database raised about what he wrote; None where it is not about that."""
    if state[:2] in ("22", "23") or state in ("AB002", "AB006", "P0001", "428C9"):
        return InputError(f"The database refused this write: {message.removeprefix('abreast: ')}")
    if state in ("3F000", "42P01", "42883") and "abreast" in message:
        return NotInstalledError()
    if state == "42501":
        return CaptureError(f"The hub's database role lacks a right that this write needs: {message}")
    return None


def after_failure(error: BaseException, attempt: int, *, sent: bool, repeatable: bool) -> float:
    """Seconds until the next attempt. Raises what the caller should see where there is to be none."""
    state = getattr(error, "sqlstate", None) or ""
    message = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    refused = refusal(state, message)
    if refused is not None:
        raise refused from error
    lost = not state or state.startswith("08")
    passing = state in _CONFLICTS or state.startswith(("57P", "53"))
    if lost and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | PoolTimeout | sa.exc.TimeoutError):
        raise error
    if not lost and not passing:
        raise error
    if lost and sent and not repeatable:
        raise UnavailableError(_UNKNOWN, retry=False) from error
    if attempt >= _ATTEMPTS or isinstance(error, PoolTimeout | sa.exc.TimeoutError):
        raise UnavailableError(_UNKNOWN if lost and sent else _GONE, retry=True) from error
    return float(_WAIT * 2 ** (attempt - 1) * _jitter.uniform(0.5, 1.5))


def _statement(jobs: Sequence[Job], careful: bool) -> Statement:
    if len(jobs) == 1:
        (job,) = jobs
        if job.single is not None:
            return single_statement(job.schema, job.workspace, job.call, job.single)
        return apply_statement(job.schema, job.workspace, [job.call], "[]", careful)
    rows: dict[tuple[str, str], Any] = {}
    for job in jobs:
        rows.update(job.locks)
    by_type: dict[str, list[Any]] = {}
    for kind, entity_id in sorted(rows):
        by_type.setdefault(kind, []).append(rows[kind, entity_id])
    locks = [{"type": kind, "function": function_name(kind), "rows": those} for kind, those in by_type.items()]
    return apply_statement(jobs[0].schema, jobs[0].workspace, [job.call for job in jobs], json.dumps(locks), careful)


def _outcomes(answer: Sequence[Any]) -> list[Outcome]:
    """The outcomes in the row that answers `_statement`."""
    if len(answer) == 1:
        return [read_outcome(raw) for raw in load(answer[0])]
    kind, text = answer
    return [read_outcome(load(text)) if kind in ("rows", "conflict") else Outcome(kind, body=load(text))]


def _told_apart(outcomes: Sequence[Outcome]) -> list[Settled]:
    """The answers of a group; None where a job must be done again alone to say what is wrong with it."""
    told: list[Settled] = []
    for outcome in outcomes:
        if outcome.kind == "failed":
            state, message = outcome.body
            told.append(refusal(state, message))
        else:
            told.append(outcome)
    return told


def _after_group(jobs: Sequence[Job], error: BaseException) -> list[Settled]:
    """The answers where a group failed as a whole. Alone, each finds out what its own part in it was; but what may have
    been written is done again only under a mutation id."""
    unknown = isinstance(error, UnavailableError) and not error.fields.get("retry", True)
    return [error if unknown and job.mutation is None else None for job in jobs]


class ThreadWrites:
    """The synchronous door, on an engine's connections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.submit = ThreadLines(self._alone, self._group).submit

    def _alone(self, job: Job) -> Outcome:
        return self._call([job], careful=False)[0]

    def _group(self, jobs: list[Job]) -> list[Settled]:
        try:
            try:
                outcomes = self._call(jobs, careful=False)
            except (InputError, psycopg.Error) as error:
                _raise_if_held_up(error)
                outcomes = self._call(jobs, careful=True)
            return _told_apart(outcomes)
        except (AbreastError, psycopg.Error) as error:
            return _after_group(jobs, error)

    def _call(self, jobs: list[Job], *, careful: bool) -> list[Outcome]:
        wanted = _statement(jobs, careful)
        repeatable = all(job.mutation is not None for job in jobs)
        for attempt in range(1, _ATTEMPTS + 1):
            sent = False
            try:
                with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    sent = True
                    answer = connection.exec_driver_sql(pyformat(wanted.text), dict(wanted.parameters)).one()
                return _outcomes(answer)
            except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
                cause = getattr(error, "orig", None) or error
                time.sleep(after_failure(cause, attempt, sent=sent, repeatable=repeatable))
        raise UnavailableError(_GONE, retry=True)


class AsyncWrites:
    """The asynchronous door, for one event loop; `pool` gives its connections."""

    def __init__(self, pool: Callable[[], Awaitable[AsyncConnectionPool[Any]]]) -> None:
        self._pool = pool
        self.submit = AsyncLines(self._alone, self._group).submit
        # Kept from one write to the next: the plans of its connection are made, and handing that in and out of a pool costs
        # as much as a quarter of the write (measured).
        self._spare: psycopg.AsyncCursor[Any] | None = None

    async def close(self) -> None:
        """Gives the kept connection back."""
        spare, self._spare = self._spare, None
        if spare is not None:
            await (await self._pool()).putconn(spare.connection)

    async def _alone(self, job: Job) -> Outcome:
        return _outcomes(await self._call([job], careful=False))[0]

    async def _group(self, jobs: list[Job]) -> Callable[[], list[Settled]]:
        try:
            try:
                answer = await self._call(jobs, careful=False)
            except (InputError, psycopg.Error) as error:
                _raise_if_held_up(error)
                answer = await self._call(jobs, careful=True)
            return lambda: _told_apart(_outcomes(answer))
        except (AbreastError, psycopg.Error) as error:
            return partial(_after_group, jobs, error)

    async def _call(self, jobs: list[Job], *, careful: bool) -> Sequence[Any]:
        wanted = _statement(jobs, careful)
        repeatable = all(job.mutation is not None for job in jobs)
        for attempt in range(1, _ATTEMPTS + 1):
            sent = False
            cursor, self._spare = self._spare, None
            try:
                if cursor is None:
                    cursor = (await (await self._pool()).getconn()).cursor()
                sent = True
                await cursor.execute(pyformat(wanted.text), wanted.parameters)
                answer: Sequence[Any]
                (answer,) = await cursor.fetchall()
                return answer
            except (psycopg.Error, PoolTimeout) as error:
                wait = after_failure(error, attempt, sent=sent, repeatable=repeatable)
                if not getattr(error, "sqlstate", None):
                    # A restarted server leaves dead connections behind: drop them all at once.
                    await (await self._pool()).check()
                await asyncio.sleep(wait)
            finally:
                if cursor is not None:
                    if self._spare is None and cursor.connection.pgconn.transaction_status == TransactionStatus.IDLE:
                        self._spare = cursor
                    else:
                        await (await self._pool()).putconn(cursor.connection)
        raise UnavailableError(_GONE, retry=True)


def _raise_if_held_up(error: BaseException) -> None:
    """Raises the error again where a group has waited too long for a row that somebody else has locked."""
    if getattr(error, "sqlstate", None) == _HELD_UP:
        raise error
