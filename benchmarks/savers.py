"""Savers: what the fence around LangGraph's savers costs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from operator import add
from typing import Annotated, Any

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from typing_extensions import TypedDict

from abreast import Lease
from abreast.agents.heartbeat import with_token
from benchmarks.databases import Database, Kind
from benchmarks.harness import Bench, Benchmark, Key, Outcome, Outcomes, worse
from benchmarks.product import product, rows

SUPERSTEPS = 10
_OPTIONS: dict[str, Any] = {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0}


class _State(TypedDict):
    said: Annotated[list[str], add]


def _graph(saver: Any) -> Any:
    """A graph of ten steps, one after the other."""
    graph = StateGraph(_State)
    names = [f"step{number}" for number in range(SUPERSTEPS)]
    for name in names:
        graph.add_node(name, lambda state: {"said": ["a line of an answer that says something"]})
    graph.set_entry_point(names[0])
    for name, following in itertools.pairwise(names):
        graph.add_edge(name, following)
    return graph.compile(checkpointer=saver)


@contextmanager
def _stock(database: Database) -> Iterator[Any]:
    """LangGraph's own saver, with a pool where it can have one."""
    if database.kind == "sqlite":
        with SqliteSaver.from_conn_string(database.plain) as saver:
            yield saver
        return
    with ConnectionPool(database.plain, min_size=1, max_size=8, kwargs=_OPTIONS) as pool:
        saver = PostgresSaver(pool)  # type: ignore[arg-type]
        saver.setup()
        yield saver


@asynccontextmanager
async def _astock(database: Database) -> AsyncIterator[Any]:
    """The same for a coroutine."""
    if database.kind == "sqlite":
        async with AsyncSqliteSaver.from_conn_string(database.plain) as saver:
            yield saver
        return
    async with AsyncConnectionPool(database.plain, min_size=1, max_size=8, kwargs=_OPTIONS) as pool:
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
        await saver.setup()
        yield saver


def _leases(thread: str) -> Iterator[Lease]:
    """A new one for each run, as the runner takes them."""
    return (Lease(thread, token, f"run{token}") for token in itertools.count(1))


def _under(lease: Lease) -> dict[str, Any]:
    return {"configurable": with_token({"thread_id": lease.thread}, lease)}


def fenced_saver(bench: Bench) -> Outcomes:
    def on(kind: Kind) -> Outcome:
        pairs, rounds = bench.size(10, 1), bench.rounds(7)
        with product(bench.databases.fresh(kind), rows(1)) as made:
            ours: Any = made.hub.checkpointer()
            fenced = _graph(ours)

            def blocking() -> Outcome:
                with _stock(bench.databases.fresh(kind)) as saver:
                    plain, bare, leases = _graph(saver), {"configurable": {"thread_id": "blocking"}}, _leases("blocking")

                    def with_fence() -> None:
                        lease = next(leases)
                        ours.announce(lease)
                        fenced.invoke({"said": []}, _under(lease), durability="sync")

                    return bench.compare(
                        with_fence,
                        lambda: plain.invoke({"said": []}, bare, durability="sync"),
                        pairs=pairs,
                        rounds=rounds,
                    )

            async def awaited() -> Outcome:
                async with _astock(bench.databases.fresh(kind)) as saver:
                    plain, bare, leases = _graph(saver), {"configurable": {"thread_id": "awaited"}}, _leases("awaited")

                    async def with_fence() -> None:
                        lease = next(leases)
                        await ours.aannounce(lease)
                        await fenced.ainvoke({"said": []}, _under(lease), durability="sync")

                    async def without() -> None:
                        await plain.ainvoke({"said": []}, bare, durability="sync")

                    outcome = await bench.acompare(with_fence, without, pairs=pairs, rounds=rounds)
                await made.hub.close()
                return outcome

            found = {"blocking": blocking(), "awaited": asyncio.run(awaited())}
            return Outcome(worse(found.values()).figures, {f"{door}_{kind}": round(one.median, 3) for door, one in found.items()})

    return bench.on_both("fenced_saver", on)


_WHAT = "a run of ten supersteps, each checkpoint stored, with the hub's saver / with LangGraph's own; the worse door"

BENCHMARKS = (
    Benchmark(
        (
            Key("fenced_saver_postgresql", f"{_WHAT}; PostgreSQL", 1.3),
            Key("fenced_saver_sqlite", f"{_WHAT}; SQLite", 1.3),
            Key("fenced_saver", "the worse of the two", 1.3),
        ),
        fenced_saver,
    ),
)
