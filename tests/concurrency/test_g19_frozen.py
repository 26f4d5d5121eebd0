"""G19: a process that was frozen for longer than its lease wakes up, and everything that it then does is refused."""

from __future__ import annotations

import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from abreast import ThreadBusyError
from abreast.testing import calls
from holder import ending, there
from leasing import Leased, assert_linear, once_free, until
from planner import Item
from processes import Process
from talk import CORNERS

FOREVER = 600
"""Seconds of a lease whose heartbeat does not come to anybody's help in time."""


def freeze(process: Process) -> None:
    """Stops it as it is, and returns when it stands still."""
    os.kill(process.popen.pid, signal.SIGSTOP)
    _, status = os.waitpid(process.popen.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)


def freeze_between_writes(process: Process, talk: Leased) -> None:
    """`freeze`, but not while it holds the write lock of a SQLite file: a checkpoint may be on its way beside the stage."""
    freeze(process)
    while not _writable(talk):
        os.kill(process.popen.pid, signal.SIGCONT)
        freeze(process)


def _writable(talk: Leased) -> bool:
    if talk.engine.dialect.name != "sqlite":
        return True
    own = str(talk.engine.url.database)
    for path in (own, own.replace("app.db", "app.checkpoints.db")):
        raw = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            raw.execute("begin immediate")
            raw.execute("rollback")
        except sqlite3.OperationalError:
            return False
        finally:
            raw.close()
    return True


def wake(process: Process) -> None:
    """Lets it go on, from its stage too."""
    process.tell("go on")
    os.kill(process.popen.pid, signal.SIGCONT)


def everything(talk: Leased) -> dict[str, list[str]]:
    """Every row of every table: the product's, ours, and those of the checkpoints."""
    if talk.engine.dialect.name == "postgresql":
        with talk.engine.connect() as connection:
            return _rows(
                connection, "select schemaname || '.' || tablename from pg_tables where schemaname in ('public', 'abreast')"
            )
    name = str(talk.engine.url.database).replace("app.db", "app.checkpoints.db")
    beside = sa.create_engine(f"sqlite:///{name}")
    with talk.engine.connect() as own, beside.connect() as checkpoints:
        tables = "select name from sqlite_master where type = 'table'"
        found = {**_rows(own, tables), **_rows(checkpoints, tables)}
    beside.dispose()
    return found


def _rows(connection: sa.Connection, tables: str) -> dict[str, list[str]]:
    names = connection.exec_driver_sql(tables).scalars().all()
    return {name: sorted(map(str, connection.exec_driver_sql(f"select * from {name}").all())) for name in names}


def other(talk: Leased) -> Any:
    """A whole run of somebody else, who writes and answers."""
    version = talk.hub.blocking.row(Item, "2", "w1").version
    talk.say(calls("update_item", id="2", version=version, title="the other's"), "the other's answer")
    result = talk.run("the other asks", agent=talk.build(talk.hub.tools()))
    assert result.status == "succeeded"
    return result


@pytest.mark.parametrize("stage", ["model", "tool", "before", "validator"])
def test_g19_a_process_that_wakes_up_behind_its_lease_changes_nothing(database, hubs, door, stage):
    """Frozen in a model call, in a tool that then writes by every way that the hub hands out, before a tool of the hub's,
    and between answer and cursor. Rows, log, deliveries, cursor and checkpoints are exactly as the other left them."""
    talk = Leased(database, hubs, door)
    talk.run("before")
    talk.change()
    version = talk.hub.blocking.row(Item, "1", "w1").version
    with there(database, door, stage, question="frozen", version=version, lease_seconds=FOREVER) as process:
        freeze_between_writes(process, talk)
        with pytest.raises(ThreadBusyError):
            talk.run("too early")
        talk.expire()
        taken = other(talk)
        left = everything(talk)
        assert len(left) > 10
        wake(process)
        end = ending(process)
    assert end["ended"] == ["LeaseLostError"]
    ways = ("apply", "mutation", "aapply", "write", "awrite") if stage == "tool" else ()
    assert end["tried"] == dict.fromkeys(ways, "LeaseLostError")
    assert everything(talk) == left
    assert talk.place() == taken.told["w1"] == 5
    assert [text for text in talk.said() if "woken" in text] == (["woken"] if stage == "validator" else [])
    assert talk.said()[-1] == "the other's answer"
    assert_linear(talk)
    assert talk.run("and on").status == "succeeded"


@CORNERS
def test_g19_a_process_that_wakes_up_ends_by_its_own_heartbeat(database, hubs, door):
    """A short lease that really runs out. A task is cancelled at once; a thread ends when it next asks."""
    talk = Leased(database, hubs, door)
    with there(database, door, "model", question="frozen", lease_seconds=0.9) as process:
        freeze_between_writes(process, talk)
        assert once_free(lambda: talk.run("the other asks"), at_most=0.9).status == "succeeded"
        left = everything(talk)
        if door.kind == "sync":
            wake(process)
        else:
            os.kill(process.popen.pid, signal.SIGCONT)
        assert ending(process)["ended"] == ["LeaseLostError"]
        assert everything(talk) == left
    assert talk.said() == ["frozen", "the other asks", "ok"]


@pytest.mark.parametrize("killed", [False, True], ids=["woken", "killed"])
def test_g19_who_takes_the_thread_waits_for_a_write_that_is_not_committed(postgres, hubs, door, killed):
    """Frozen inside a transaction. Either it commits, while the thread is still its own, and the other begins behind it;
    or it never does. On SQLite it holds the one write lock of the file, and nobody can even ask."""
    talk = Leased(postgres, hubs, door)
    talk.run("before")
    with there(postgres, door, "block", question="frozen", lease_seconds=FOREVER) as process:
        freeze(process)
        with pytest.raises(ThreadBusyError):  # as long as the lease lasts nobody waits
            talk.run("too early")
        talk.expire()
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(Context().run, talk.run, "the other asks")
            until(lambda: waiting(talk) or taking.done())
            assert not taking.done()
            if killed:
                process.kill()
            else:
                wake(process)
            result = taking.result()
        if not killed:
            assert ending(process)["ended"] == ["LeaseLostError"]
    assert result.status == "succeeded"
    assert talk.revisions() == ([] if killed else [4])
    assert talk.current()["plan"][0]["title"] == ("Mapo" if killed else "put")
    assert len(talk.hub.blocking.history("w1")) == talk.place() == (3 if killed else 4)
    assert "woken" not in talk.said()
    assert talk.said()[-2:] == ["the other asks", "ok"]
    assert talk.hub.blocking.check() == []


def test_g19_a_write_that_does_not_end_keeps_nobody_waiting_for_ever(postgres, hubs, door):
    patience = {"options": "-c lock_timeout=300ms"}
    url = make_url(postgres.url).update_query_dict(patience).render_as_string(hide_password=False)
    talk = Leased(postgres, hubs, door, url=url)
    talk.run("before")
    with there(postgres, door, "block", question="frozen", lease_seconds=FOREVER) as process:
        freeze(process)
        talk.expire()
        with pytest.raises(ThreadBusyError, match="has not ended"):
            talk.run("the other asks")
        process.kill()
    result = once_free(lambda: talk.run("the other asks"), at_most=FOREVER)
    assert (result.status, talk.said()[-2:]) == ("succeeded", ["the other asks", "ok"])


def waiting(talk: Leased) -> bool:
    """Whether somebody waits for the lock of a thread."""
    here = "database = (select oid from pg_database where datname = current_database())"
    with talk.engine.connect() as connection:
        asked = f"select count(*) from pg_locks where locktype = 'advisory' and not granted and {here}"
        return bool(connection.exec_driver_sql(asked).scalar_one())
