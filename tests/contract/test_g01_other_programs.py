"""G1: programs that know nothing of abreast are captured like the application itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from house import build, furnish

PROGRAM = """
import sys
kind, where, end = sys.argv[1:]
if kind == "sqlite":
    import sqlite3
    connection = sqlite3.connect(where)
    connection.execute("pragma foreign_keys = on")
else:
    import psycopg
    connection = psycopg.connect(where)
connection.execute("update plan set title = 'by another' where workspace_id = 'w1'")
connection.execute("delete from plan where id = 'p3'")
assert not [name for name in sys.modules if name.split(".")[0] in ("abreast", "sqlalchemy")]
getattr(connection, end)()
"""


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_g1_a_second_program_is_captured(database, hubs, end):
    house = build(database, hubs)
    furnish(house)
    subprocess.run([sys.executable, "-I", "-c", PROGRAM, database.kind, database.plain, end], check=True, timeout=60)
    expected = [
        "w1 update plan p1 title",
        "w1 update plan p2 title",
        "w2 delete item 3",
        "w2 delete plan p3",
        'w2 delete tag ["1","c"]',
    ]
    events = house.events()
    assert sorted(f"{e.workspace} {e.op} {e.entity_type} {e.entity_id}{' title' * len(e.fields)}" for e in events) == (
        expected if end == "commit" else []
    )
    assert {event.actor.type for event in events} <= {"unknown"}
    assert house.mistakes() == []
