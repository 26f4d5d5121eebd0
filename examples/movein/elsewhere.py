"""Another program: plain `sqlite3`, one statement of raw SQL. It has never heard of abreast, of the ORM or of the agent.

python examples/movein/elsewhere.py DATABASE STATEMENT
"""

from __future__ import annotations

import sqlite3
import sys

SHOWN = 20


def main(database: str, statement: str) -> int:
    connection = sqlite3.connect(database, timeout=5)
    try:
        with connection:
            answer = connection.execute(statement)
            rows = answer.fetchmany(SHOWN + 1)
        if answer.description is not None:
            print(" | ".join(column[0] for column in answer.description))
            for row in rows[:SHOWN]:
                print(" | ".join("null" if value is None else str(value) for value in row))
            if len(rows) > SHOWN:
                print("...")
        else:
            print(f"rows changed: {max(0, answer.rowcount)}")
    except (sqlite3.Error, sqlite3.Warning) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
