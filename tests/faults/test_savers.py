"""The hub's savers when things go wrong (G19): servers that restart, processes that start together, files that are busy."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sqlite3
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from abreast import UnavailableError
from planner import CONTEXT, planner
from processes import started
from server import OwnDatabase
from steps import steps
from talk import locked

PLACE = {"configurable": {"thread_id": "t"}}


def said(graph: Any, config: Any = PLACE) -> list[str]:
    """What a thread holds."""
    return list(graph.get_state(config).values.get("said", []))


def run(door: Any, hub: Any, graph: Any, thread: str = "t") -> Any:
    """One run through the hub; these graphs never answer, so it always counts as failed."""
    return door(hub).run(graph, {"said": ["go"]}, thread=thread, context=CONTEXT)


# -- the tables --------------------------------------------------------------------------------------------------------


def test_g19_processes_that_start_together_make_the_tables_once(database, hubs, tmp_path):
    """PITFALLS: of four processes that make LangGraph's tables in an empty database three fail."""
    planner(database, hubs)
    place = database.url if database.kind == "postgresql" else f"sqlite:///{tmp_path / 'checkpoints.db'}"
    with started("saving.py", *[(database.url, place, f"t{n}") for n in range(4)]) as processes:
        # The leases announce themselves beside the checkpoints, so the tables were made before `ready`, by all four at once.
        for process in processes:
            process.tell("go")
        assert [process.read() for process in processes] == ["5"] * 4
    if database.kind == "postgresql":
        with psycopg.connect(database.plain) as connection:
            invalid = connection.execute("select indexrelid::regclass from pg_index where not indisvalid").fetchall()
            versions = connection.execute("select count(*), count(distinct v) from checkpoint_migrations").fetchone()
        assert (invalid, versions[0]) == ([], versions[1])


@pytest.mark.parametrize("method", ["setup", "list", "get_tuple", "delete_thread", "prune", "get_delta_channel_history"])
def test_g19_whatever_is_asked_first_makes_the_tables(database, hubs, door, method):
    hub, _ = planner(database, hubs)
    if (method, database.kind) == ("prune", "sqlite"):
        return  # LangGraph's SQLite saver has none
    saver = hub.checkpointer()
    arguments: Any = {
        "setup": {},
        "delete_thread": {"thread_id": "t"},
        "prune": {"thread_ids": ["t"]},
        "get_delta_channel_history": {"config": PLACE, "channels": ["said"]},
    }.get(method, {"config": PLACE})

    async def collect() -> Any:
        return [one async for one in saver.alist(**arguments)]

    if door.kind == "sync" or method == "setup":
        found = getattr(saver, method)(**arguments)
    else:
        found = door.wait(collect() if method == "list" else getattr(saver, f"a{method}")(**arguments))
    assert (list(found) if method == "list" else found) in ([], None, {"said": {"writes": []}})
    graph = steps(saver)
    run(door, hub, graph)
    assert said(graph)[-1] == "step 2"


def test_g19_a_role_that_may_not_create_works_where_the_tables_are(postgres, hubs, door):
    """Also where another release has made newer ones."""
    hub, engine = planner(postgres, hubs)
    hub.checkpointer().setup()
    role = f"app_{make_url(postgres.url).database}"
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into checkpoint_migrations (v) select max(v) + 1 from checkpoint_migrations")
        connection.exec_driver_sql("revoke create on schema public from public")
        connection.exec_driver_sql(f"create role {role}")
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes", "abreast_fence"):
            connection.exec_driver_sql(f"grant select, insert, update on {table} to {role}")
        connection.exec_driver_sql(f"grant select on checkpoint_migrations to {role}")
    try:
        place = make_url(postgres.url).update_query_dict({"options": f"-crole={role}"})
        graph = steps(hub.checkpointer(place))
        run(door, hub, graph)
        assert said(graph) == ["go", "step 0", "step 1", "step 2"]
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"drop owned by {role}; drop role {role}")


def test_g19_a_role_that_may_not_create_is_told_what_is_missing(postgres, hubs):
    hub, engine = planner(postgres, hubs)
    role = f"app_{make_url(postgres.url).database}"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"revoke create on schema public from public; create role {role}")
    try:
        saver = hub.checkpointer(make_url(postgres.url).update_query_dict({"options": f"-crole={role}"}))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            saver.get_tuple(PLACE)
    finally:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"drop owned by {role}; drop role {role}")


# -- servers that go away ----------------------------------------------------------------------------------------------


@pytest.fixture
def own_database(server) -> Any:
    """A fresh database on the server that the test may stop."""
    server.start()
    admin = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql("drop database if exists saved with (force)")
        connection.exec_driver_sql("create database saved")
    admin.dispose()
    database = OwnDatabase(make_url(server.url).set(database="saved").render_as_string(hide_password=False))
    yield database
    server.start()
    database.close()


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_g19_a_server_that_was_restarted_between_two_runs_is_not_noticed(postgres, own_database, hubs, server, door, end):
    """The checkpoints' server alone; rows and log are on another."""
    hub, _ = planner(postgres, hubs)
    graph = steps(hub.checkpointer(own_database.url))
    for _ in range(2):
        run(door, hub, graph)
        getattr(server, end)()
        server.start()
    run(door, hub, graph)
    assert len(said(graph)) == 12


def test_g19_a_server_that_is_restarted_in_mid_run_is_not_noticed(postgres, own_database, hubs, server, door):
    hub, _ = planner(postgres, hubs)

    def restart(step: int) -> None:
        if step == 1:
            server.stop()
            server.start()

    graph = steps(hub.checkpointer(own_database.url), each=restart)
    run(door, hub, graph)
    assert said(graph) == ["go", "step 0", "step 1", "step 2"]


def test_g19_a_server_that_stays_away_ends_the_run_and_gives_the_thread_back(postgres, own_database, hubs, server, door):
    hub, _ = planner(postgres, hubs)
    place = make_url(own_database.url).update_query_dict({"connect_timeout": "2"})
    graph = steps(hub.checkpointer(place), each=lambda step: server.stop() if step == 1 else None)
    with pytest.raises(UnavailableError, match="checkpoints"):
        run(door, hub, graph)
    with pytest.raises(UnavailableError, match="checkpoints"):  # not ThreadBusyError
        run(door, hub, graph)
    server.start()
    assert said(graph)[-1] == "step 0"
    graph = steps(hub.checkpointer(place))
    run(door, hub, graph)
    assert said(graph)[-1] == "step 2"


def test_g19_connections_that_were_killed_between_two_runs_are_not_noticed(postgres, hubs, door):
    """E56: all of them, while they lie in the pool."""
    hub, engine = planner(postgres, hubs)
    saver = hub.checkpointer()
    graph = steps(saver)
    with ThreadPoolExecutor(8) as threads:  # so that there are several
        list(threads.map(lambda n: run(door, hub, graph, f"t{n}"), range(8)))
    with engine.connect() as connection:
        killed = connection.exec_driver_sql(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        ).scalar()
    assert killed > 1
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: run(door, hub, graph, f"t{n}"), range(8)))
    assert [len(said(graph, {"configurable": {"thread_id": f"t{n}"}})) for n in range(8)] == [8] * 8


# -- SQLite ------------------------------------------------------------------------------------------------------------


def test_g19_a_long_transaction_of_the_application_holds_up_no_checkpoint(sqlite, hubs, door):
    """D54: the checkpoints' file is another one. Between taking and giving back the thread a run needs `app.db` for nothing
    but its heartbeats."""
    hub, engine = planner(sqlite, hubs)
    graph = steps(hub.checkpointer(), each=lambda step: None)
    with hub.lease("t") as held:
        with locked(sqlite, engine, "event"):
            door.invoke(graph, {"said": ["go"]}, held.config, durability="sync")
            with engine.connect() as connection:
                connection.exec_driver_sql("pragma busy_timeout = 0")
                with pytest.raises(sa.exc.OperationalError, match="locked"):  # it is held all the while
                    connection.exec_driver_sql("update plan set title = 'x'")
        assert said(graph) == ["go", "step 0", "step 1", "step 2"]
    assert sqlite.path.with_name("app.checkpoints.db").exists()


def test_g19_a_checkpoint_waits_for_another_writer_of_its_file(sqlite, hubs, door):
    hub, _ = planner(sqlite, hubs)
    graph = steps(hub.checkpointer())
    with hub.lease("t") as held:
        raw = sqlite3.connect(sqlite.path.with_name("app.checkpoints.db"), isolation_level=None)
        with closing(raw), ThreadPoolExecutor(1) as threads:
            raw.execute("begin immediate")
            going = threads.submit(door.invoke, graph, {"said": ["go"]}, held.config, durability="sync")
            assert not futures.wait([going], timeout=0.5).done
            raw.execute("rollback")
            going.result(30)
        assert said(graph)[-1] == "step 2"


def test_g19_a_file_that_cannot_be_used_says_so(sqlite, hubs, door, tmp_path):
    hub, _ = planner(sqlite, hubs)
    graph = steps(hub.checkpointer(f"sqlite:///{tmp_path / 'no folder' / 'checkpoints.db'}"))
    for _ in range(2):
        with pytest.raises(UnavailableError, match="checkpoints"):
            run(door, hub, graph)


# -- processes and loops -----------------------------------------------------------------------------------------------


def in_child(work: Callable[[], Any]) -> str:
    """What a forked process says."""
    source, target = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of every fork with threads
        pid = os.fork()
    if pid == 0:
        signal.alarm(40)  # whatever happens, it ends
        try:
            os.write(target, str(work()).encode())
        except BaseException as error:
            os.write(target, repr(error).encode())
        finally:
            os._exit(0)
    os.close(target)
    with os.fdopen(source, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text


@pytest.mark.parametrize("opening", [False, True], ids=["at rest", "while it opens"])
def test_g19_a_forked_process_has_connections_of_its_own(database, hubs, opening):
    """And waits for no lock that a thread of its parent held at that moment."""
    hub, _ = planner(database, hubs)
    saver = hub.checkpointer()
    graph = steps(saver)
    hub.blocking.run(graph, {"said": ["go"]}, thread="t", context=CONTEXT)

    def work() -> Any:
        for _ in range(3):
            hub.blocking.run(graph, {"said": ["go"]}, thread="child", context=CONTEXT)
            asyncio.run(hub.run(graph, {"said": ["go"]}, thread="child", context=CONTEXT))
        return len(said(graph, {"configurable": {"thread_id": "child"}}))

    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with saver._opening, saver.lock:
            held.set()
            let_go.wait()

    holder = threading.Thread(target=hold)
    try:
        if opening:
            holder.start()
            held.wait()
        text = in_child(work)
    finally:
        let_go.set()
    assert text == "24"
    for _ in range(2):
        hub.blocking.run(graph, {"said": ["go"]}, thread="t", context=CONTEXT)
    assert (len(said(graph)), len(said(graph, {"configurable": {"thread_id": "child"}}))) == (12, 24)


def test_g19_one_saver_serves_every_event_loop(database, hubs):
    """It is made before any runs, as an agent that is built at import is."""
    hub, _ = planner(database, hubs)
    graph = steps(hub.checkpointer())

    async def go() -> None:
        await hub.run(graph, {"said": ["go"]}, thread="t", context=CONTEXT)
        if database.kind == "postgresql":
            await hub.close()  # the hub's own connections belong to the loop

    for _ in range(3):
        asyncio.run(go())
    hub.blocking.run(graph, {"said": ["go"]}, thread="t", context=CONTEXT)
    assert len(said(graph)) == 16


def test_g19_what_is_closed_opens_again(database, hubs, door):
    hub, _ = planner(database, hubs)
    saver = hub.checkpointer()
    graph = steps(saver)
    run(door, hub, graph)
    for _ in range(2):
        saver.close()
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("abreast-saver")]
        if database.kind == "postgresql":
            assert saver.conn.closed
        else:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                saver.conn.execute("select 1")
    run(door, hub, graph)
    assert len(said(graph)) == 8
    door(hub).close()
    if database.kind == "postgresql":
        assert saver.conn.closed
    else:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            saver.conn.execute("select 1")


def test_g19_a_saver_that_nobody_has_any_more_is_gone(database, hubs, door):
    """With its connections and threads: an application may make one for each request."""
    hub, _ = planner(database, hubs)
    saver = hub.checkpointer()
    run(door, hub, steps(saver))
    known = weakref.ref(saver)
    pool = saver.conn if database.kind == "postgresql" else None  # whose own end could be found by one of its threads
    del saver
    gc.collect()
    assert known() is None
    for thread in threading.enumerate():
        if thread.name.startswith(("abreast-saver", "abreast-let-go")):
            thread.join(30)
            assert not thread.is_alive()
    assert pool is None or pool.closed


def test_g19_a_saver_that_is_closed_while_it_works_ends_what_is_under_way(database, hubs, door):
    hub, _ = planner(database, hubs)
    saver = hub.checkpointer()
    run(door, hub, steps(saver))
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(door.wait, saver.aget_tuple(PLACE)) for _ in range(20)]
        closed = threads.submit(saver.close)
        assert not futures.wait([closed], timeout=30).not_done
        found = [one.exception(timeout=30) or one.result() for one in asked]
    assert all(getattr(one, "checkpoint", None) or "shutdown" in str(one) for one in found)


# -- many at once ------------------------------------------------------------------------------------------------------


def test_g19_sixty_runs_at_once_on_as_many_threads(database, hubs, door):
    """Their connections are fewer: they wait for each other, and none fails."""
    hub, _ = planner(database, hubs)
    graph = steps(hub.checkpointer())
    if door.kind == "sync":
        with ThreadPoolExecutor(60) as threads:
            list(threads.map(lambda n: run(door, hub, graph, f"t{n}"), range(60)))
    else:

        async def all_of_them() -> None:
            named = [{"thread": f"t{n}", "context": CONTEXT} for n in range(60)]
            await asyncio.gather(*(hub.run(graph, {"said": ["go"]}, **one) for one in named))

        door.wait(all_of_them())
    assert [len(said(graph, {"configurable": {"thread_id": f"t{n}"}})) for n in range(60)] == [4] * 60


def test_g19_whoever_reads_a_list_may_ask_for_more_meanwhile(database, hubs):
    """As many readers as connections, each in the middle of a list: none keeps a connection, or a lock, from the others."""
    hub, _ = planner(database, hubs)
    saver = hub.checkpointer()
    hub.blocking.run(steps(saver), {"said": ["go"]}, thread="t", context=CONTEXT)
    together = threading.Barrier(8)

    def read(_: int) -> int:
        count = 0
        for one in saver.list(PLACE):
            if count == 0:
                together.wait(30)
            assert saver.get_tuple(one.config) == one
            count += 1
        return count

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(read, range(8))) == [5] * 8


def test_g19_sixty_four_coroutines_that_want_the_saver_all_get_it(database, hubs, door):
    """More than it has threads or connections, reading and writing in turn."""
    hub, _ = planner(database, hubs)
    saver = hub.checkpointer()
    run(door, hub, steps(saver))

    async def ask(n: int) -> int:
        found = 0
        for _ in range(5):
            found += len([one async for one in saver.alist(PLACE)])
            found += (await saver.aget_tuple(PLACE)) is not None
        return found

    async def all_of_them() -> list[int]:
        return list(await asyncio.gather(*(ask(n) for n in range(64))))

    assert door.wait(all_of_them()) == [30] * 64
