"""Governed writes: what the hub's own write path costs, and how many writers of one workspace it serves."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiosqlite
import psycopg
import sqlalchemy as sa

from abreast import Lease, agent, update
from abreast.store import leases
from abreast.store.statement import Statement
from benchmarks.databases import Kind
from benchmarks.harness import Bench, Benchmark, Key, Outcome, Outcomes, ratio
from benchmarks.product import WORKSPACE, Product, product, rows, tracked

_ROWS = 200
_PRODUCERS = 64
_ACTOR = agent("assistant")
_mutations = (f"mutation{number:08}" for number in itertools.count())


class _Producer:
    """One who reads a row's version and writes it back under it, with a lease and a mutation, again and again."""

    def __init__(self, made: Product, lease: Lease, ids: list[str]) -> None:
        self._apply, self._lease = made.hub.apply, lease
        self._ids, self._versions = itertools.cycle(ids), dict.fromkeys(ids, 0)
        self._count = itertools.count(1)

    async def learn(self, made: Product) -> None:
        """Reads the versions that the rows have."""
        for entity_id in self._versions:
            self._versions[entity_id] = (await made.hub.row(tracked, entity_id, WORKSPACE)).version or 0

    async def write(self) -> None:
        """One governed write: lease, mutation, version, row and event."""
        entity_id = next(self._ids)
        applied = await self._apply(
            WORKSPACE,
            update(tracked, entity_id, version=self._versions[entity_id], n=next(self._count)),
            actor=_ACTOR,
            thread=self._lease.thread,
            mutation=next(_mutations),
            lease=self._lease,
        )
        self._versions[entity_id] = applied.revision


def _run(bench: Bench, kind: Kind, body: Callable[[Product, Lease], Coroutine[Any, Any, Outcomes]]) -> Outcomes:
    """Runs an asynchronous benchmark on a product whose hub serves one event loop, with a lease taken."""

    async def main(made: Product) -> Outcomes:
        try:
            return await body(made, _lease(made))
        finally:
            await made.hub.close()

    with product(bench.databases.fresh(kind), rows(_ROWS)) as made:
        return asyncio.run(main(made))


def _lease(made: Product) -> Lease:
    wanted = leases.acquire_statement(made.database.kind, "abreast", thread="t1", run="r1", seconds=3600)
    with made.engine.begin() as connection:
        ((token,),) = connection.execute(sa.text(wanted.text), dict(wanted.parameters)).all()
    return Lease("t1", token, "r1")


def _share(producer: int) -> list[str]:
    """The rows of one of the producers."""
    return [f"row{index:05}" for index in range(producer, _ROWS, _PRODUCERS)]


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def pg_write(bench: Bench) -> Outcomes:
    async def body(made: Product, lease: Lease) -> Outcomes:
        producer = _Producer(made, lease, [f"row{index:05}" for index in range(_ROWS)])
        await producer.learn(made)
        ids, count = itertools.cycle([f"row{index:05}" for index in range(_ROWS)]), itertools.count(1)
        async with await psycopg.AsyncConnection.connect(made.database.plain, autocommit=True) as connection:

            async def plain() -> None:
                await connection.execute("begin")
                await connection.execute(
                    "update plain set n = %s, version = version + 1 where id = %s and version >= %s", (next(count), next(ids), 1)
                )
                await connection.execute("commit")

            return {"pg_write": await bench.acompare(producer.write, plain, pairs=bench.size(300, 10))}

    return _run(bench, "postgresql", body)


def pg_write_hot(bench: Bench) -> Outcomes:
    async def body(made: Product, lease: Lease) -> Outcomes:
        producers = [_Producer(made, lease, _share(number)) for number in range(_PRODUCERS)]
        for producer in producers:
            await producer.learn(made)
        each, figures = bench.size(40, 2), []
        for number in range(bench.rounds(9) + 1):
            bench.progress(f"round {number}" if number else "warming up")
            alone = await _seconds([producers[0].write], each * 8)
            together = await _seconds([producer.write for producer in producers], each)
            figures.append((alone / (each * 8)) / (together / (each * _PRODUCERS)))
        return {"pg_write_hot": Outcome(figures[1:])}

    return _run(bench, "postgresql", body)


async def _seconds(producers: list[Callable[[], Awaitable[Any]]], each: int) -> float:
    """How long all producers take, each writing so many times, one write after the other."""

    async def produce(write: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(each):
            await write()

    began = time.perf_counter()
    await asyncio.gather(*(produce(write) for write in producers))
    return time.perf_counter() - began


# -- SQLite ------------------------------------------------------------------------------------------------------------


def sqlite_write_64(bench: Bench) -> Outcomes:
    async def body(made: Product, lease: Lease) -> Outcomes:
        producers = [_Producer(made, lease, _share(number)) for number in range(_PRODUCERS)]
        each, plain_each = bench.size(40, 2), bench.size(4, 1)
        figures, slowest = [], []
        async with _per_statement(made, lease) as plain:
            for number in range(bench.rounds(9) + 1):
                bench.progress(f"round {number}" if number else "warming up")
                for producer in producers:  # the plain writers have changed the rows too
                    await producer.learn(made)
                waits: list[list[float]] = []
                took = await _seconds([_timed(producer.write, waits) for producer in producers], each)
                per_producer = [statistics.mean(one) for one in waits]
                slowest.append(max(per_producer) / statistics.median(per_producer))
                other = await _seconds([plain(number) for number in range(_PRODUCERS)], plain_each)
                figures.append(ratio(other / plain_each, took / each))
        unfair = statistics.median(slowest[1:])
        return {"sqlite_write_64": Outcome(figures[1:], {"slowest_producer": round(unfair, 2)}, sound=unfair <= 5)}

    return _run(bench, "sqlite", body)


def _timed(write: Callable[[], Awaitable[Any]], waits: list[list[float]]) -> Callable[[], Awaitable[Any]]:
    """The same, noting how long each write took its producer."""
    mine: list[float] = []
    waits.append(mine)

    async def run() -> None:
        began = time.perf_counter()
        await write()
        mine.append(time.perf_counter() - began)

    return run


@asynccontextmanager
async def _per_statement(made: Product, lease: Lease) -> AsyncIterator[Callable[[int], Callable[[], Awaitable[Any]]]]:
    """Producers of the same statements through the asynchronous driver, which hops to a thread for each of them; one
    connection, one transaction at a time, as SQLite has it."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(aiosqlite.connect(made.database.plain, isolation_level=None, timeout=10))
        await connection.execute("pragma synchronous = full")
        lock, count = asyncio.Lock(), itertools.count(1)

        async def execute(statement: Statement) -> Any:
            async with connection.execute(statement.text, dict(statement.parameters)) as cursor:
                return await cursor.fetchall()

        def producer(number: int) -> Callable[[], Awaitable[Any]]:
            ids = itertools.cycle(_share(number))
            writing = made.hub._core.writing

            async def write() -> None:
                # What the hub's own flow asks for, statement by statement.
                job = _captured_flow(writing, next(ids), next(count), lease)
                async with lock:
                    await connection.execute("begin immediate")
                    answer = None
                    try:
                        wanted = next(job)
                        while True:
                            answer = await execute(wanted)
                            wanted = job.send(answer)
                    except StopIteration:
                        await connection.execute("commit")

            return write

        yield producer


def _captured_flow(writing: Any, entity_id: str, n: int, lease: Lease) -> Any:
    from abreast.types import Attribution

    operation = writing.apply(
        WORKSPACE, (update(tracked, entity_id, n=n),), Attribution(_ACTOR, lease.thread, next(_mutations)), lease
    )
    return next(operation).work.flow()


BENCHMARKS = (
    Benchmark(
        (
            Key(
                "pg_write",
                "a governed write (lease, mutation, version, row, event) through hub.apply / BEGIN, a versioned UPDATE, COMMIT",
                1.5,
            ),
        ),
        pg_write,
    ),
    Benchmark(
        (Key("pg_write_hot", "governed writes a second of 64 producers on one workspace / of one producer", 5, better="higher"),),
        pg_write_hot,
    ),
    Benchmark(
        (
            Key(
                "sqlite_write_64",
                "durable hub writes a second of 64 producers / the same statements through the asynchronous driver",
                10,
                better="higher",
            ),
        ),
        sqlite_write_64,
    ),
)
