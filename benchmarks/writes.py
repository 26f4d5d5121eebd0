"""Writes: what capture adds to the application's own statements."""

from __future__ import annotations

import itertools
import math
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import Session, registry

from benchmarks.databases import Kind
from benchmarks.harness import Bench, Benchmark, Key, Outcome, Outcomes, ratio
from benchmarks.product import WORKSPACE, Product, plain, product, rows, tracked

_ROWS = 200


def _in_turn(number: int = _ROWS) -> Callable[[], str]:
    """Ids of the rows, one after the other, again and again."""
    ids = itertools.cycle(f"row{index:05}" for index in range(number))
    return lambda: next(ids)


# -- one row -----------------------------------------------------------------------------------------------------------


def _transaction(connection: Any, table: str) -> Callable[[], None]:
    """BEGIN, one UPDATE, COMMIT: three statements."""
    next_id = _in_turn()
    text = f"update {table} set n = n + 1 where id = %s"

    def run() -> None:
        connection.execute("begin")
        connection.execute(text, (next_id(),))
        connection.execute("commit")

    return run


def _pg_capture(bench: Bench, name: str, *, durable: bool) -> Outcomes:
    with product(bench.databases.fresh("postgresql"), rows(_ROWS)) as made, made.connect(durable=durable) as connection:
        a, b = _transaction(connection, "tracked"), _transaction(connection, "plain")
        return {name: bench.compare(a, b, pairs=bench.size(300, 10), between=made.tidy)}


def pg_capture_1(bench: Bench) -> Outcomes:
    return _pg_capture(bench, "pg_capture_1", durable=True)


def pg_capture_cpu(bench: Bench) -> Outcomes:
    return _pg_capture(bench, "pg_capture_cpu", durable=False)


def sqlite_capture(bench: Bench) -> Outcomes:
    with product(bench.databases.fresh("sqlite"), rows(_ROWS)) as made, made.connect() as connection:

        def update(table: str) -> Callable[[], Any]:
            next_id, text = _in_turn(), f"update {table} set n = n + 1 where id = ?"
            return lambda: connection.execute(text, (next_id(),))

        return {"sqlite_capture": bench.compare(update("tracked"), update("plain"), pairs=bench.size(300, 10))}


# -- several rows, several writers -------------------------------------------------------------------------------------


class _Writers:
    """Eight writers at once, each with a connection and a thread of its own. A transaction updates three rows of one
    workspace, in key order, so that the application's own locks cannot become a deadlock."""

    number = 8

    def __init__(self, made: Product, transactions: int) -> None:
        self._connections = [psycopg.connect(made.database.plain, autocommit=True) for _ in range(self.number)]
        self._transactions = transactions
        self.deadlocks = 0
        self.written = 0

    def seconds(self, table: str, seed: int) -> float:
        """How long all transactions took, from the start that all writers wait for to the end of the last."""
        start, lock = threading.Barrier(self.number + 1), threading.Lock()
        failures: list[BaseException] = []

        def write(connection: psycopg.Connection[Any], choice: random.Random) -> None:
            deadlocks = 0
            start.wait()
            try:
                for _ in range(self._transactions // self.number):
                    try:
                        connection.execute("begin")
                        for index in sorted(choice.sample(range(_ROWS), 3)):
                            connection.execute(f"update {table} set n = n + 1 where id = %s", (f"row{index:05}",))
                        connection.execute("commit")
                    except psycopg.errors.DeadlockDetected:
                        deadlocks += 1
                        connection.execute("rollback")
            except BaseException as error:
                failures.append(error)
            with lock:
                self.deadlocks += deadlocks

        threads = [
            threading.Thread(target=write, args=(connection, random.Random(seed + index)))
            for index, connection in enumerate(self._connections)
        ]
        for thread in threads:
            thread.start()
        start.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        if failures:
            raise failures[0]
        if table == "tracked":
            self.written += self._transactions // self.number * self.number
        return took

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def pg_capture_multirow(bench: Bench) -> Outcomes:
    rounds = bench.rounds(9)
    with product(bench.databases.fresh("postgresql"), rows(_ROWS)) as made:
        # The round that warms up counts too when deadlocks are counted: 10,000 captured transactions in all.
        writers = _Writers(made, bench.size(math.ceil(10_000 / (rounds + 1) / 8) * 8, 16))
        figures = []
        try:
            for number in range(rounds + 1):
                bench.progress(f"round {number} of {rounds}" if number else "warming up")
                made.tidy()
                captured = writers.seconds("tracked", seed=number * 100)
                figures.append(ratio(captured, writers.seconds("plain", seed=number * 100)))
        finally:
            writers.close()
        extra = {"deadlocks": writers.deadlocks, "transactions": writers.written}
        return {"pg_capture_multirow": Outcome(figures[1:], extra, sound=writers.deadlocks == 0)}


# -- many rows ---------------------------------------------------------------------------------------------------------


def pg_capture_bulk(bench: Bench) -> Outcomes:
    number = bench.size(20_000, 200)
    with product(bench.databases.fresh("postgresql"), rows(number)) as made, made.connect() as connection:

        def update(table: str) -> Callable[[], Any]:
            return lambda: connection.execute(f"update {table} set n = n + 1 where workspace_id = %s", (WORKSPACE,))

        return {"pg_capture_bulk": bench.compare(update("tracked"), update("plain"), pairs=1, between=made.tidy)}


def pg_capture_workspaces(bench: Bench) -> Outcomes:
    number = bench.size(4_000, 40)
    with product(bench.databases.fresh("postgresql"), rows(number, workspace=None)) as made, made.connect() as connection:

        def update(table: str) -> Callable[[], None]:
            text = f"update {table} set n = n + 1 where id = %s"

            def run() -> None:
                connection.execute("begin")
                for index in range(number):
                    connection.execute(text, (f"row{index:05}",))
                connection.execute("commit")

            return run

        found = bench.compare(update("tracked"), update("plain"), pairs=1, rounds=5, between=made.tidy)
        return {"pg_capture_workspaces": found}


# -- through SQLAlchemy ------------------------------------------------------------------------------------------------


class Tracked:
    """A row of the table under watch, as an application maps it."""


class Plain:
    """A row of the table that is not."""


def orm_capture(bench: Bench) -> Outcomes:
    mapped = registry()
    mapped.map_imperatively(Tracked, tracked)
    mapped.map_imperatively(Plain, plain)

    def on(kind: Kind) -> Outcome:
        with product(bench.databases.fresh(kind), rows(_ROWS)) as made:

            def work(model: type[Any]) -> Callable[[], None]:
                next_id = _in_turn()

                def run() -> None:
                    with Session(made.engine) as session:
                        row = session.get(model, next_id())
                        assert row is not None
                        row.n += 1
                        session.commit()

                return run

            return bench.compare(work(Tracked), work(Plain), pairs=bench.size(200, 10), between=made.tidy)

    try:
        return bench.on_both("orm_capture", on)
    finally:
        mapped.dispose()


# -- how many conversations --------------------------------------------------------------------------------------------


def threads(bench: Bench) -> Outcomes:
    def on(kind: Kind) -> Outcome:
        with (
            product(bench.databases.fresh(kind), rows(_ROWS)) as many,
            product(bench.databases.fresh(kind), rows(_ROWS)) as few,
            many.connect() as busy,
            few.connect() as quiet,
        ):
            _converse(many, bench.size(10_000, 100))
            _converse(few, 10)

            def write(made: Product, connection: Any) -> Callable[[], Any]:
                next_id, text = _in_turn(), f"update tracked set n = n + 1 where id = {made.id_parameter}"
                return lambda: connection.execute(text, (next_id(),))

            return bench.compare(write(many, busy), write(few, quiet), pairs=bench.size(300, 10))

    return bench.on_both("threads", on)


def _converse(made: Product, number: int) -> None:
    """Gives so many conversations a place at HEAD of the workspace."""
    cursor = "abreast.cursor" if made.database.kind == "postgresql" else "abreast_cursor"
    head = made.head()
    places = [{"w": WORKSPACE, "t": f"thread{index:05}", "r": head.revision, "c": head.check} for index in range(number)]
    with made.engine.begin() as connection:
        text = f"insert into {cursor} (workspace, thread, revision, check_number) values (:w, :t, :r, :c)"
        connection.execute(sa.text(text), places)
    assert len(made.hub.blocking.standings(WORKSPACE)) == number
    made.tidy()


def _both(name: str, what: str, bound: float) -> tuple[Key, ...]:
    return (
        Key(f"{name}_postgresql", f"{what}; PostgreSQL", bound),
        Key(f"{name}_sqlite", f"{what}; SQLite", bound),
        Key(name, "the worse of the two", bound),
    )


_ONE = "BEGIN, one captured UPDATE, COMMIT / the same without capture"

BENCHMARKS = (
    Benchmark((Key("pg_capture_1", f"{_ONE}; one writer, durable", 1.5),), pg_capture_1),
    Benchmark((Key("pg_capture_cpu", f"{_ONE}; synchronous_commit=off", 1.8),), pg_capture_cpu),
    Benchmark(
        (
            Key(
                "pg_capture_multirow",
                "three-row transactions, eight writers, one workspace: throughput without capture / with; no deadlock",
                1.8,
            ),
        ),
        pg_capture_multirow,
    ),
    Benchmark((Key("pg_capture_bulk", "one UPDATE of 20,000 rows with capture / without", 3.5),), pg_capture_bulk),
    Benchmark(
        (
            Key(
                "pg_capture_workspaces",
                "4,000 one-row UPDATEs over 4,000 workspaces in one transaction with capture / without",
                4,
            ),
        ),
        pg_capture_workspaces,
    ),
    Benchmark(_both("orm_capture", "an ORM get, set and commit with capture / without", 1.3), orm_capture),
    Benchmark((Key("sqlite_capture", "a captured UPDATE / a plain one; synchronous=FULL", 1.6),), sqlite_capture),
    Benchmark(_both("threads", "one write with 10,000 conversations on the workspace / with 10", 1.1), threads),
)
