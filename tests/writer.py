"""A program that writes the house's tables with a plain driver and knows nothing of abreast.

`python -I writer.py KIND WHERE SEED TRANSACTIONS`. It prints `ready`, waits for a line, and then prints a line for each
transaction that the database has confirmed: its number and how many revisions of each workspace it must have made.
Rows are locked in key order, as an application does that wants no deadlock of its own making. The last line is `end`
and the errors it met, as JSON. With TRANSACTIONS 0 it goes on until it is killed.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

PLANS = [f"p{n:02}" for n in range(12)]
WORKSPACES = {plan: f"w{n % 3}" for n, plan in enumerate(PLANS)}


def connect(kind: str, where: str) -> Any:
    if kind == "sqlite":
        import sqlite3

        made = sqlite3.connect(where, isolation_level=None, timeout=60)
        made.execute("pragma foreign_keys = on")
        made.execute("pragma synchronous = normal")
        return made
    import psycopg

    return psycopg.connect(where, autocommit=True)


def steps(chance: random.Random, mark: str) -> Iterator[tuple[str, str | None]]:
    """SQL, and the workspace that gets one revision by it."""
    for nth, plan in enumerate(sorted(chance.sample(PLANS, chance.randint(1, 4)))):
        home = WORKSPACES[plan]
        kind = chance.randrange(6)
        if kind == 0:
            yield f"update plan set title = title where id = '{plan}'", None
        elif kind == 1:
            yield "savepoint s", None
            yield f"update plan set title = 'lost' where id = '{plan}'", None
            yield "rollback to s", None
        elif kind == 2:
            values = f"('{plan}', '{home}', '{mark}.{nth}')"
            yield (
                f"insert into plan (id, workspace_id, title) values {values} "
                "on conflict (id) do update set title = excluded.title",
                home,
            )
        elif kind == 3:
            yield "savepoint s", None
            yield f"update plan set title = '{mark}.{nth}' where id = '{plan}'", home
            yield "release s", None
        else:
            yield f"update plan set title = '{mark}.{nth}', remark = '{mark}' where id = '{plan}'", home
    if chance.random() < 0.4:
        plan = chance.choice(PLANS)
        number = int.from_bytes(mark.encode()[-7:], "big") % 1_000_000_000
        yield f"insert into item (id, plan_id, title, done) values ({number}, '{plan}', '{mark}', false)", WORKSPACES[plan]
        if chance.random() < 0.5:
            yield f"delete from item where id = {number}", WORKSPACES[plan]


def main() -> None:
    kind, where, seed, transactions = sys.argv[1:]
    chance = random.Random(int(seed))
    connection = connect(kind, where)
    print("ready", flush=True)
    sys.stdin.readline()
    errors: list[str] = []
    for number in count(1) if transactions == "0" else range(1, int(transactions) + 1):
        made: Counter[str] = Counter()
        try:
            connection.execute("begin immediate" if kind == "sqlite" else "begin")
            for statement, workspace in steps(chance, f"{seed}-{number}"):
                connection.execute(statement)
                if workspace:
                    made[workspace] += 1
            end = "rollback" if chance.random() < 0.15 else "commit"
            connection.execute(end)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
            connection.execute("rollback")
            continue
        if end == "commit":
            print(json.dumps([number, made]), flush=True)
    print("end", json.dumps(errors), flush=True)


if __name__ == "__main__":
    main()
