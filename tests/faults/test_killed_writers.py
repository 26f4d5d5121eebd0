"""G1 and G2 where a writer is killed: what it committed is whole in the log, what it did not is nowhere."""

from __future__ import annotations

import json
import random
import time
from collections import Counter

from house import House
from oracle import heads
from processes import Process, started


def wait_until_alone(house: House) -> None:
    """Returns when the database has noticed that the killed programs are gone."""
    if house.on_sqlite:
        return  # locks end with the process
    end = time.monotonic() + 60
    others = "datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'"
    while house.value(f"select count(*) from pg_stat_activity where {others}"):
        assert time.monotonic() < end


def test_g1_killed_at_any_point_inside_its_transactions_a_writer_leaves_only_whole_ones(busy_house):
    house, database = busy_house, busy_house.database
    chance = random.Random(7)
    for turn in range(6):
        before = heads(house)
        confirmed: Counter[str] = Counter(before)
        with started("writer.py", (database.kind, database.plain, 700 + turn, 0), isolated=True) as (writer,):
            writer.tell("go")
            for _ in range(chance.randrange(1, 12)):
                confirmed.update(json.loads(writer.read())[1])
            writer.kill()
            while line := writer.read():  # what it had said before it was killed; the last line may be torn
                if line.endswith("]"):
                    confirmed.update(json.loads(line)[1])
        wait_until_alone(house)
        after = heads(house)
        assert all(after[workspace] >= confirmed[workspace] for workspace in after)
        assert house.mistakes() == []
    assert house.hub.blocking.check() == []


def test_g1_several_writers_killed_one_after_the_other_stop_nobody_else(busy_house):
    house, database = busy_house, busy_house.database
    runs = [(database.kind, database.plain, 800 + n, 0) for n in range(3)]
    with started("writer.py", *runs, isolated=True) as writers:
        for writer in writers:
            writer.tell("go")
        for nth, writer in enumerate(writers):
            for _ in range(3):
                json.loads(writer.read())
            writer.kill()
            for other in writers[nth + 1 :]:
                json.loads(other.read())  # still writes
        wait_until_alone(house)
    assert house.mistakes() == []
    before = heads(house)
    house.run("update plan set title = 'after all' where id = 'p00'")
    assert heads(house)["w0"] == before["w0"] + 1


INSIDE = """
import sys
kind, where = sys.argv[1:]
if kind == "sqlite":
    import sqlite3
    connection = sqlite3.connect(where, isolation_level=None)
    connection.execute("pragma cache_size = 1")  # writes into the file long before it commits
    connection.execute("begin immediate")
else:
    import psycopg
    connection = psycopg.connect(where, autocommit=True)
    connection.execute("begin")
print("ready", flush=True)
for n in range(200):
    connection.execute(f"update plan set title = '{n}' || '" + "x" * 2000 + "'")
if kind != "sqlite":
    connection.execute("set constraints all immediate")  # its revisions are given, and the heads are locked
print("inside", flush=True)
sys.stdin.readline()
"""


def test_g1_killed_with_its_revisions_already_given_a_writer_leaves_nothing_and_blocks_nobody(busy_house, tmp_path):
    house, database = busy_house, busy_house.database
    script = tmp_path / "inside.py"
    script.write_text(INSIDE)
    before = heads(house)
    process = Process(str(script), database.kind, database.plain, isolated=True)
    process.expect("ready")
    process.expect("inside")
    process.close()
    house.run("update plan set title = 'next' where id = 'p00'")
    assert house.news() == ["w0 update plan p00 title"]
    assert heads(house) == {**before, "w0": before["w0"] + 1}
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []
