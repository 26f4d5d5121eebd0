"""Reads: what a batch costs beside the bare statement that fetches the same, and whether the log's length matters."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg

from abreast.access import Operation, aperform
from abreast.core.mark import Start
from abreast.core.sync import Wanted
from abreast.types import Batch
from benchmarks.databases import Kind
from benchmarks.harness import Bench, Benchmark, Key, Outcome, Outcomes
from benchmarks.product import WORKSPACE, Product, product, rows

ROWS, EVENTS = 200, 50

# -- the bare statements -----------------------------------------------------------------------------------------------

_ROW = "t.id, t.workspace_id, t.move_in, t.memo, t.rrn, t.n, t.version"
_EVENT = (
    'x.revision, x.op, x.entity_type, x.entity_id, {json}(x.fields), {json}(x."values"), '
    "x.actor_type, x.actor_id, x.thread, x.mutation, x.at"
)

_BARE = {
    "postgresql": f"""
        select w.head,
            (select json_agg(json_build_array({_ROW}) order by t.id) from tracked t where t.workspace_id = w.workspace),
            (select json_agg(json_build_array({_EVENT.format(json="")}) order by x.revision) from (
                select b.last - b.last_ord + e.ord as revision, e.*
                from abreast.block b join abreast.event e on e.workspace = b.workspace and e.xact = b.xact
                    and e.ord <= b.last_ord and e.ord > b.last_ord - b.n
                where b.workspace = w.workspace and b.last > %(after)s
                order by b.last, e.ord limit 50) x)
        from abreast.workspace w where w.workspace = %(workspace)s""",
    "sqlite": f"""
        select w.head,
            (select json_group_array(json_array({_ROW})) from (
                select * from tracked where workspace_id = w.workspace order by id) t),
            (select json_group_array(json_array({_EVENT.format(json="json")})) from (
                select * from abreast_event where workspace = w.workspace and revision > :after
                order by revision limit 50) x)
        from abreast_workspace w where w.workspace = :workspace""",
}

_BARE_PLACE = {
    "postgresql": "select w.head, c.revision from abreast.workspace w left join abreast.cursor c "
    "on c.workspace = w.workspace and c.thread = %(thread)s where w.workspace = %(workspace)s",
    "sqlite": "select w.head, c.revision from abreast_workspace w left join abreast_cursor c "
    "on c.workspace = w.workspace and c.thread = :thread where w.workspace = :workspace",
}


@asynccontextmanager
async def _bare(made: Product, text: str, parameters: dict[str, Any]) -> AsyncIterator[Callable[[], Awaitable[list[Any]]]]:
    """The statement on the plain driver and one held connection. On PostgreSQL that driver is asynchronous and parses
    the JSON; on SQLite the call stays in this thread, and the JSON is parsed after it."""
    if made.database.kind == "postgresql":
        async with await psycopg.AsyncConnection.connect(made.database.plain, autocommit=True) as connection:

            async def fetch() -> list[Any]:
                cursor = await connection.execute(text, parameters)
                return await cursor.fetchall()

            yield fetch
        return
    raw = sqlite3.connect(made.database.plain, isolation_level=None)

    async def fetch_here() -> list[Any]:
        found = raw.execute(text, parameters).fetchall()
        return [[json.loads(value) if isinstance(value, str) else value for value in row] for row in found]

    try:
        yield fetch_here
    finally:
        raw.close()


@contextmanager
def _behind(bench: Bench, kind: Kind) -> Iterator[tuple[Product, int]]:
    """A workspace of 200 rows, and the revision that lies 50 events behind its HEAD."""
    with product(bench.databases.fresh(kind), rows(ROWS)) as made:
        after = made.head().revision
        made.change(EVENTS)
        made.tidy()
        yield made, after


# -- batches -----------------------------------------------------------------------------------------------------------


def read_batch(bench: Bench) -> Outcomes:
    async def on(made: Product, after: int) -> Outcome:
        async def batch() -> Any:
            return await made.hub.batch(WORKSPACE, after=after)

        async with _bare(made, _BARE[made.database.kind], {"workspace": WORKSPACE, "after": after}) as fetch:
            found, ((_, listed, logged),) = await batch(), await fetch()
            assert (len(found.rows), len(found.events)) == (len(listed), len(logged)) == (ROWS, EVENTS)
            outcome = await bench.acompare(batch, fetch, pairs=bench.size(100, 5))
        await made.hub.close()
        return outcome

    def run(kind: Kind) -> Outcome:
        with _behind(bench, kind) as (made, after):
            return asyncio.run(on(made, after))

    return bench.on_both("read_batch", run)


def read_idle(bench: Bench) -> Outcomes:
    async def on(made: Product) -> Outcome:
        core, thread = made.hub._core, "t1"
        await aperform(core.access, core.teller.begin(thread, [WORKSPACE]))
        options = core.options
        wanted = Wanted(WORKSPACE, thread, Start("cursor"), None, options.limit, options.budget.value)

        def reading() -> Operation[Batch]:
            """What the middleware asks for at a model call; the first one of the run reads the rows."""
            yield from core.verify()
            return (yield from core.teller.batch(wanted, core.sync.rules(None), run="run"))

        async def batch() -> Batch:
            return await aperform(core.access, reading())

        parameters = {"workspace": WORKSPACE, "thread": thread}
        async with _bare(made, _BARE_PLACE[made.database.kind], parameters) as fetch:
            found, ((head, cursor),) = await batch(), await fetch()
            assert (len(found.rows), len(found.events), found.head.revision, cursor) == (ROWS, 0, head, head)
            outcome = await bench.acompare(batch, fetch, pairs=bench.size(300, 5))
        await made.hub.close()
        return outcome

    def run(kind: Kind) -> Outcome:
        with _behind(bench, kind) as (made, _):
            return asyncio.run(on(made))

    return bench.on_both("read_idle", run)


# -- the log's length --------------------------------------------------------------------------------------------------


def log_size(bench: Bench) -> Outcomes:
    async def on(long: Product, short: Product) -> Outcome:
        async def reading(made: Product) -> Callable[[], Awaitable[Any]]:
            after = made.head().revision - EVENTS

            async def batch() -> Any:
                return await made.hub.batch(WORKSPACE, after=after)

            assert len((await batch()).events) == EVENTS
            return batch

        outcome = await bench.acompare(await reading(long), await reading(short), pairs=bench.size(100, 5))
        await long.hub.close()
        await short.hub.close()
        return outcome

    def run(kind: Kind) -> Outcome:
        with (
            product(bench.databases.fresh(kind), rows(ROWS)) as long,
            product(bench.databases.fresh(kind), rows(ROWS)) as short,
        ):
            _lengthen(bench, long, bench.size(1_000_000, 2_000))
            _lengthen(bench, short, 1_000)
            return asyncio.run(on(long, short))

    return bench.on_both("log_size", run)


def _lengthen(bench: Bench, made: Product, events: int) -> None:
    """Fills the log through the triggers: transactions that change every row, and 50 single changes at the end."""
    with made.connect(durable=False) as connection:
        for number in range(made.head().revision, events, ROWS):
            if number % 20_000 == 0:
                bench.progress(f"{made.database.kind}: {number:,} of {events:,} events in the log")
            connection.execute("update tracked set n = n + 1")
    made.change(EVENTS)
    made.tidy()


_BATCH = "200 rows and 50 events through the hub / the bare statement on the plain driver"
_IDLE = "the same when nothing is new, within a run / the bare statement for head and cursor"
_LOG = "catching up 50 events behind 1,000,000 / behind 1,000"

BENCHMARKS = (
    Benchmark(
        (
            Key("read_batch_postgresql", f"{_BATCH}; PostgreSQL", 2),
            Key("read_batch_sqlite", f"{_BATCH}; SQLite", 4),
        ),
        read_batch,
    ),
    Benchmark(
        (
            Key("read_idle_postgresql", f"{_IDLE}; PostgreSQL", 2),
            Key("read_idle_sqlite", f"{_IDLE}; SQLite"),
        ),
        read_idle,
    ),
    Benchmark(
        (
            Key("log_size_postgresql", f"{_LOG}; PostgreSQL", 1.2),
            Key("log_size_sqlite", f"{_LOG}; SQLite", 1.2),
            Key("log_size", "the worse of the two", 1.2),
        ),
        log_size,
    ),
)
