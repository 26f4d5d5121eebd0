"""G12 and G29: where the log does not reach back, or was restored, that is said; it never looks like "nothing changed"."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from talk import CORNERS, TOOL_CALL, Broken, Talk, write_tool

NOTICE = "Older changes are no longer listed, so earlier answers may be out of date in any point. Go by CURRENT."


@pytest.mark.parametrize("runner", [True, False], ids=["hub.run", "invoke"])
def test_g12_a_log_that_was_pruned_past_the_place(database, hubs, door, runner):
    """It is said in each call of the run, and not again after it; CURRENT is complete."""
    talk = Talk(database, hubs, door)
    go = talk.run if runner else talk.invoke
    go()
    for title in ("one", "two", "three"):
        talk.change(title)
    door(talk.hub).prune("w1", horizon=5)
    talk.say(TOOL_CALL, "done")
    go(agent=talk.build([write_tool(lambda: None)]))
    for request in (1, 2):
        assert NOTICE in talk.block(request)
        assert talk.revisions(request) == [6]
        assert talk.current(request)["plan"][0]["title"] == "three"
        assert len(talk.current(request)["item"]) == 2
    assert talk.mark()["w1"][2] == 6
    go()
    assert (NOTICE in talk.block(), talk.revisions()) == (False, [])
    if runner:
        assert talk.place() == 6


@CORNERS
def test_g12_a_log_that_was_pruned_up_to_the_place_is_no_gap(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.change("one")
    talk.run()
    talk.change("two")
    door(talk.hub).prune("w1", horizon=4)
    talk.run()
    assert (NOTICE in talk.block(), talk.revisions()) == (False, [5])


@CORNERS
def test_g12_a_log_of_which_everything_was_pruned(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change("one")
    door(talk.hub).prune("w1", horizon=999)
    assert talk.run().told == {"w1": 4}
    assert (NOTICE in talk.block(), talk.revisions(), talk.current()["plan"][0]["title"]) == (True, [], "one")
    assert door(talk.hub).batch("w1", after=3).gap
    assert not door(talk.hub).batch("w1", after=4).gap


@CORNERS
def test_g12_a_gap_is_told_again_until_a_run_ends_in_an_answer(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change("one")
    door(talk.hub).prune("w1", horizon=4)
    talk.say(Broken(), "", TOOL_CALL, Broken(), "an answer")
    agent = talk.build([write_tool(lambda: None)])
    for raises in (True, False, True, False):
        if raises:
            with pytest.raises(Broken):
                talk.run(agent=agent)
        else:
            talk.run(agent=agent)
        assert NOTICE in talk.block()
    talk.run()
    assert NOTICE not in talk.block()


# -- after a restore ---------------------------------------------------------------------------------------------------


class Backup:
    """A copy of a database: a copied file, or a database made from this one as its template."""

    def __init__(self, database: Any, close: Callable[[], None]) -> None:
        self._database, self._close = database, close
        close()
        if database.kind == "sqlite":
            self._copy = database.path.with_name("backup.db")
            shutil.copy(database.path, self._copy)
        else:
            self._copy_of(make_url(database.url).database, "backup")

    def restore(self) -> None:
        """Puts the copy in the database's place."""
        self._close()
        if self._database.kind == "sqlite":
            shutil.copy(self._copy, self._database.path)
        else:
            name = make_url(self._database.url).database
            self._admin(f"drop database {name} with (force)", f"create database {name} template {name}_backup")

    def drop(self) -> None:
        """Removes the copy."""
        if self._database.kind == "postgresql":
            self._admin(f"drop database {make_url(self._database.url).database}_backup with (force)")

    def _copy_of(self, name: str | None, suffix: str) -> None:
        self._admin(f"create database {name}_{suffix} template {name}")

    def _admin(self, *statements: str) -> None:
        engine = sa.create_engine(make_url(self._database.url).set(database="postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()


@pytest.fixture
def restored(database, hubs, door):
    """A conversation that was told up to r5 of a log which is then restored to r3: the talk, and what to do between the
    restore and the next run. The checkpoints are not part of what is restored."""
    backups: list[Backup] = []

    def make(*, runner: bool, meanwhile: tuple[str, ...] = ()) -> Talk:
        talk = Talk(database, hubs, door)

        def close() -> None:
            door.wait(talk.hub.close())
            talk.engine.dispose()

        go = talk.run if runner else talk.invoke
        go()
        backups.append(Backup(database, close))
        talk.renew(hubs(database))
        for title in ("lost", "lost too"):
            talk.change(title)
        go()
        assert talk.revisions() == [5]
        backups[-1].restore()
        talk.renew(hubs(database))
        for title in meanwhile:
            talk.change(title)
        return talk

    yield make
    for backup in backups:
        backup.drop()


@pytest.mark.parametrize("runner", [True, False], ids=["hub.run", "invoke"])
@pytest.mark.parametrize("written", [0, 1, 2, 3], ids=lambda n: f"{n} written since")
def test_g29_a_restored_log_is_told_as_a_gap(restored, runner, written):
    """Whether or not its numbers have reached again what the conversation was told."""
    new = tuple(f"new {n}" for n in range(written))
    talk = restored(runner=runner, meanwhile=new)
    go = talk.run if runner else talk.invoke
    talk.say(TOOL_CALL, "done")
    go(agent=talk.build([write_tool(lambda: None)]))
    assert [NOTICE in talk.block(-2), NOTICE in talk.block()] == [True, True]
    assert talk.current()["plan"][0]["title"] == (new[-1] if new else "Mapo")
    assert talk.mark()["w1"][2] == 3 + written
    talk.change("after it")
    go()
    assert (NOTICE in talk.block(), talk.revisions()) == (False, [4 + written])


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_g29_a_file_that_is_replaced_under_a_running_hub_is_noticed(database, hubs, door):
    """An open connection would go on with the old file for ever."""
    talk = Talk(database, hubs, door)
    talk.run()
    copy = database.path.with_name("backup.db")
    with closing(sqlite3.connect(database.path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    talk.change("lost")
    talk.run()
    assert talk.revisions() == [4]
    talk.engine.dispose()
    for suffix in ("-wal", "-shm"):
        database.path.with_name(database.path.name + suffix).unlink(missing_ok=True)
    copy.replace(database.path)
    talk.run()
    assert (NOTICE in talk.block(), talk.current()["plan"][0]["title"], talk.place()) == (True, "Mapo", 3)
    talk.change("found")
    talk.run()
    assert (NOTICE in talk.block(), talk.revisions(), talk.place()) == (False, [4], 4)


@CORNERS
@pytest.mark.parametrize("revision", [9, 3, 2], ids=["beyond HEAD", "at HEAD", "below HEAD"])
def test_g29_a_cursor_that_outlived_the_log_is_told_as_a_gap(database, hubs, door, revision):
    """Without a checkpointer: the place lies beyond HEAD, or at a revision that is another one now."""
    talk = Talk(database, hubs, door, saver=None)
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'Jongno')")
    talk.run()
    table = "abreast_cursor" if database.kind == "sqlite" else "abreast.cursor"
    talk.sql(f"update {table} set revision = {revision}, check_number = 1 where thread = 't'")
    assert talk.run().told == {"w1": 4}
    assert (NOTICE in talk.block(), talk.revisions(), talk.place()) == (True, [], 4)
    talk.change()
    talk.run()
    assert (NOTICE in talk.block(), talk.revisions(), talk.place()) == (False, [5], 5)
