"""A program without the library that writes as fast as it can: `python storm.py sqlite app.db`.

Each transaction sets the titles of a plan and of an item to the same number, one higher than before.
"""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FIRST = "update plan set title = '{0}' where id = 'p1'"
SECOND = "update item set title = '{0}' where id = 1"


@contextmanager
def over(database: Any) -> Iterator[Callable[[], None]]:
    """Gives a function that starts the program over this database and returns when it has begun; ended with the block."""
    started: list[subprocess.Popen[str]] = []

    def start() -> None:
        child = subprocess.Popen([sys.executable, __file__, database.kind, database.plain], stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"

    yield start
    for child in started:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def main(kind: str, plain: str) -> None:
    if kind == "sqlite":
        raw = sqlite3.connect(plain, timeout=30, isolation_level=None)
        raw.execute("pragma synchronous = off")
        begin = "begin immediate"
    else:
        import psycopg

        raw = psycopg.connect(plain, autocommit=True)  # type: ignore[assignment]
        begin = "begin"
    for number in itertools.count(1):
        for statement in (begin, FIRST.format(number), SECOND.format(number), "commit"):
            raw.execute(statement)
        if number == 1:
            print("ready", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
