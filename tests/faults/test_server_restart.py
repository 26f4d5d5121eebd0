"""A PostgreSQL server that stops, starts and crashes under the hub: a batch is right, or it says that it is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from abreast import UnavailableError
from house import Plan, declare
from oracle import heads


def again(call: Callable[[], Any]) -> Any:
    """Its result; a few times it may say that the database is not there, and nothing else."""
    for _ in range(5):
        try:
            return call()
        except UnavailableError:
            continue
    return call()


def test_g2_a_restart_between_batches_is_survived_through_both_doors(own_house, server, door):
    house, hub = own_house, own_house.hub
    start = heads(house)["w0"]
    assert door(hub).batch("w0", after=start).events == ()
    for end in (server.stop, server.crash):
        house.run("update plan set title = title || '+' where id = 'p00'")
        end()
        server.start()
        house.engine.dispose()
        batch = again(lambda place=start: door(hub).batch("w0", after=place))
        assert [event.revision - start for event in batch.events] == [1]
        start = batch.head.revision
        assert door(hub).check() == []
    assert house.mistakes() == []


def test_g2_while_the_server_is_down_every_call_says_so(own_house, server):
    hub = own_house.hub.blocking
    hub.batch("w0", after=0)
    server.stop()
    for call in (
        lambda: hub.batch("w0", after=0),
        lambda: hub.check(),
        lambda: hub.rows(Plan, "w0"),
        lambda: hub.standings("w0"),
        lambda: hub.install(),
    ):
        with pytest.raises(UnavailableError):
            call()
    server.start()
    again(lambda: hub.batch("w0", after=0))


def test_g2_a_hub_that_starts_before_its_server_works_when_the_server_does(own_house, server, hubs, door):
    server.stop()
    hub = declare(hubs(own_house.database.url))
    with pytest.raises(UnavailableError):
        door(hub).batch("w0", after=0)
    server.start()
    assert again(lambda: door(hub).batch("w0", after=0)).events


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_g1_g2_a_server_that_goes_away_during_batches_and_writes_loses_nothing_that_was_confirmed(own_house, server, end):
    """One thread writes, two read by cursor; meanwhile the server goes and comes back, twice."""
    house = own_house
    before = heads(house)["w0"]
    over = threading.Event()
    confirmed: list[int] = []
    strange: list[BaseException] = []
    places = [before, before]
    moved = threading.Semaphore(0)

    def write() -> None:
        number = 0
        while not over.is_set():
            try:
                with psycopg.connect(house.database.plain) as connection:
                    while not over.is_set():
                        number += 1
                        connection.execute("update plan set title = %s where id = 'p00'", (str(number),))
                        connection.commit()
                        confirmed.append(number)
                        moved.release()
            except psycopg.OperationalError:
                over.wait(0.02)

    def read(nth: int) -> None:
        while not over.is_set():
            try:
                batch = house.hub.blocking.batch("w0", after=places[nth], limit=20)
            except UnavailableError:
                over.wait(0.02)
                continue
            except BaseException as error:
                strange.append(error)
                return
            revisions = [event.revision for event in batch.events]
            if revisions != list(range(places[nth] + 1, batch.to.revision + 1)):
                strange.append(AssertionError(f"behind {places[nth]}: {revisions}"))
            places[nth] = batch.to.revision

    threads = [threading.Thread(target=write), threading.Thread(target=read, args=(0,)), threading.Thread(target=read, args=(1,))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            for _ in range(25):
                assert moved.acquire(timeout=60)
            getattr(server, end)()
            server.start()
        for _ in range(25):
            assert moved.acquire(timeout=60)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert strange == []
    house.engine.dispose()
    events = again(lambda: house.hub.blocking.batch("w0", after=before, limit=100_000)).events
    titles = [int(event.values["title"][1]) for event in events]
    assert titles == sorted(set(titles))
    assert set(confirmed) <= set(titles)
    assert len(titles) <= len(confirmed) + 2  # a commit whose reply was lost happened, or did not
    assert house.mistakes() == []


def test_g1_a_transaction_that_was_open_when_the_server_crashed_is_nowhere(own_house, server):
    house = own_house
    with house.engine.connect() as connection:
        connection.exec_driver_sql("update plan set title = 'lost'")
        connection.exec_driver_sql("set constraints all immediate")
        server.crash()
        server.start()
        with pytest.raises(sa.exc.OperationalError):
            connection.exec_driver_sql("select 1")
        connection.invalidate()
    assert house.news() == []
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []


def test_g1_g2_a_prepared_transaction_keeps_its_revisions_through_a_crash(own_house, server):
    """Its revisions are given when it is prepared; until it is committed nobody sees them, and its heads stay locked."""
    house = own_house
    start = heads(house)["w0"]
    with psycopg.connect(house.database.plain, autocommit=True) as connection:
        connection.execute("alter system set max_prepared_transactions = 5")
    server.stop()
    server.start()
    try:
        with psycopg.connect(house.database.plain, autocommit=True) as connection:
            connection.execute("begin")
            connection.execute("update plan set title = 'prepared' where id in ('p00', 'p03')")
            connection.execute("prepare transaction 'whole'")
            connection.execute("update plan set title = 'other' where id = 'p01'")  # of another workspace
        server.crash()
        server.start()
        house.engine.dispose()
        assert again(lambda: house.hub.blocking.batch("w0", after=start)).events == ()
        with psycopg.connect(house.database.plain, autocommit=True) as connection:
            connection.execute("set lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute("update plan set title = 'blocked' where id = 'p06'")  # of the same, for its head
            connection.execute("commit prepared 'whole'")
            connection.execute("update plan set title = 'free' where id = 'p06'")
        assert sorted(line for line in house.news() if line.startswith("w0")) == [
            f"w0 update plan {p} title" for p in ("p00", "p03", "p06")
        ]
        assert house.mistakes() == []
    finally:
        with psycopg.connect(house.database.plain, autocommit=True) as connection:
            for (name,) in connection.execute("select gid from pg_prepared_xacts").fetchall():
                connection.execute(f"rollback prepared '{name}'")
            connection.execute("alter system reset max_prepared_transactions")
