"""G1 for what only SQLite has: conflict policies, REPLACE, table forms, attached files, dynamic types."""

from __future__ import annotations

import sqlite3

import pytest
import sqlalchemy as sa

from house import House, build, furnish
from oracle import Watched


@pytest.fixture(params=["recursive triggers off", "recursive triggers on"])
def house(request, sqlite, hubs) -> House:
    """OR REPLACE fires delete triggers only where recursive triggers are on; capture must be right with both."""
    made = build(sqlite, hubs)
    if request.param.endswith("on"):
        sa.event.listen(made.engine, "connect", lambda raw, _: raw.execute("pragma recursive_triggers = on"))
        made.engine.dispose()
    furnish(made)
    return made


@pytest.mark.parametrize("policy", ["", "or abort", "or fail", "or ignore", "or replace", "or rollback"])
def test_g1_the_conflict_policy_of_a_statement_does_not_reach_the_log(house, policy):
    """It overrides the policies of all statements in triggers; a second row in a workspace would be such a conflict."""
    house.run(
        f"insert {policy} into plan (id, workspace_id, title) values ('p8', 'w8', 'a'), ('p9', 'w8', 'b')",
        f"update {policy} plan set title = title || '!' where workspace_id in ('w1', 'w8')",
        f"update {policy} plan set workspace_id = 'w7' where id = 'p8'",
        f"update {policy} plan set id = 'p10' where id = 'p9'",
    )
    assert house.news() == [
        "w1 update plan p1 title",
        "w1 update plan p2 title",
        "w7 insert plan p8",
        "w8 insert plan p8",
        "w8 insert plan p9",
        "w8 update plan p8 title",
        "w8 update plan p9 title",
        "w8 delete plan p8",
        "w8 delete plan p9",
        "w8 insert plan p10",
    ]
    assert house.mistakes() == []


def test_g1_rows_that_a_conflict_skips_leave_no_event_and_the_others_do(house):
    house.run("insert or ignore into plan (id, workspace_id) values ('p1', 'w1'), ('p8', 'w1'), ('p2', 'w1'), ('p9', 'w2')")
    assert house.news() == ["w1 insert plan p8", "w2 insert plan p9"]
    with house.engine.begin() as connection, pytest.raises(sa.exc.IntegrityError):
        connection.exec_driver_sql(
            "insert or fail into plan (id, workspace_id) values ('p20', 'w1'), ('p1', 'w1'), ('p21', 'w1')"
        )
    assert house.news() == ["w1 insert plan p20"]  # FAIL keeps what came before the conflict
    assert house.mistakes() == []


def test_g1_or_rollback_takes_the_events_of_the_whole_transaction(house):
    with house.engine.connect() as connection:
        connection.exec_driver_sql("update plan set title = 'x'")
        with pytest.raises(sa.exc.IntegrityError):
            connection.exec_driver_sql("insert or rollback into plan (id, workspace_id) values ('p1', 'w1')")
        connection.rollback()
    assert house.news() == []
    assert house.mistakes() == []


def _but_for_unknown_old_values(mistakes: list[str]) -> list[str]:
    """Where REPLACE told nobody what it removed, the event of the new row has no old values."""
    return [mistake for mistake in mistakes if not mistake.endswith("not None")]


def test_g1_replace_of_a_row_in_its_place(house):
    house.run("insert or replace into game (id, score, version) values ('00000000000000000000000000000001', 1, 1)")
    house.run("insert or replace into game (id, score, version) values ('00000000000000000000000000000001', 2, 5)")
    news = house.news()
    assert [line.split()[1] for line in news] in (["insert", "update"], ["insert", "delete", "insert"])
    assert house.value("select version from game") == 5
    assert _but_for_unknown_old_values(house.mistakes()) == []


def test_g1_replace_into_another_workspace_and_over_another_key(house):
    with house.engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        raw.execute("pragma foreign_keys = off")  # a parent that is replaced would take its children with it
        for statement in (
            "insert into plan (id, workspace_id, title) values ('a', 'w5', 'a'), ('b', 'w5', 'b')",
            "replace into plan (id, workspace_id, title) values ('a', 'w6', 'a')",
            "replace into plan (id, workspace_id, title) values ('a', 'w0', 'a')",
            "update or replace plan set id = 'a' where id = 'b'",
        ):
            raw.execute(statement)
        raw.commit()
        raw.execute("pragma foreign_keys = on")
    assert _but_for_unknown_old_values(house.mistakes()) == []
    assert house.hub.blocking.check() == []


def test_g1_a_row_that_replace_removes_by_another_unique_key_is_found_by_check(sqlite, hubs):
    """Without recursive triggers SQLite tells nobody; with them it is an event like any other."""
    engine = sqlite.engine()
    table = sa.Table(
        "seat",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace_id", sa.Text),
        sa.Column("place", sa.Text, unique=True),
    )
    table.metadata.create_all(engine)
    hub = hubs(sqlite)
    hub.track(table, workspace="workspace_id", record="all")
    hub.blocking.install()
    house = House(sqlite, hub, engine, (Watched(table, set(table.columns.keys()), lambda row, find: row["workspace_id"]),))
    house.run("insert into seat values (1, 'w1', '12A'), (2, 'w1', '12B')", "replace into seat values (3, 'w1', '12A')")
    (found,) = hub.blocking.check()
    assert (found.code, found.entity_type, list(found.entity_ids)) == ("row_gone_unseen", "seat", ["1"])
    with engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        raw.execute("pragma recursive_triggers = on")
        raw.execute("replace into seat values (4, 'w1', '12B')")
        raw.commit()
        raw.execute("pragma recursive_triggers = off")
    assert [list(found.entity_ids) for found in hub.blocking.check()] == [["1"]]
    assert house.news()[-2:] == ["w1 delete seat 2", "w1 insert seat 4"]


COLUMNS = "id integer primary key, workspace_id text, n integer, twice integer as (n * 2)"
FORMS = {
    "integer key": f"create table form ({COLUMNS} stored)",
    "without rowid": f"create table form ({COLUMNS}) without rowid",
    "strict": f"create table form ({COLUMNS}) strict",
    "strict, without rowid": f"create table form ({COLUMNS} stored) strict, without rowid",
}


@pytest.mark.parametrize("form", FORMS)
def test_g1_every_form_of_table(sqlite, hubs, form):
    engine = sqlite.engine()
    table = sa.Table(
        "form",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace_id", sa.Text),
        sa.Column("n", sa.Integer),
        sa.Column("twice", sa.Integer, sa.Computed("n * 2")),
    )
    hub = hubs(sqlite)
    hub.track(table, workspace="workspace_id", record="all")
    house = House(sqlite, hub, engine, (Watched(table, set(table.columns.keys()), lambda row, find: row["workspace_id"]),))
    house.run(FORMS[form])
    hub.blocking.install()
    house.run(
        "insert into form (id, workspace_id, n) values (1, 'w1', 1), (2, 'w1', 2)",
        "update form set n = 5 where id = 1",
        "update form set id = 7 where id = 2",
        "update form set workspace_id = 'w2' where id = 1",
        "delete from form where id = 7",
    )
    assert house.news() == [
        "w1 insert form 1",
        "w1 insert form 2",
        "w1 update form 1 n twice",
        "w1 delete form 2",
        "w1 insert form 7",
        "w1 delete form 1",
        "w1 delete form 7",
        "w2 insert form 1",
    ]
    if "rowid" not in form:
        house.run("update form set rowid = 9 where id = 1")
        assert house.news() == ["w2 delete form 1", "w2 insert form 9"]
    assert house.mistakes() == []
    assert hub.blocking.check() == []


def test_g1_a_program_that_attaches_the_file_is_captured(house, tmp_path):
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("attach ? as app", (house.database.plain,))
    other.execute("create temp table abreast_event (x)")  # a name like ours, in front of everything
    other.execute("create temp table plan (id, workspace_id)")
    other.execute("update app.plan set title = 'x' where id = 'p1'")
    other.execute("delete from app.item where id = 2")
    other.commit()
    assert other.execute("select count(*) from temp.abreast_event").fetchone() == (0,)
    other.close()
    assert house.news() == ["w1 update plan p1 title", "w1 delete item 2"]


def test_g1_capture_survives_vacuum_rename_and_a_copy_of_the_file(house, hubs, tmp_path):
    with sqlite3.connect(house.database.plain, isolation_level=None) as raw:
        raw.execute("vacuum")
        raw.execute("vacuum into ?", (str(tmp_path / "copy.db"),))
        raw.execute("alter table plan rename to draft")
        raw.execute("update draft set title = 'x' where id = 'p1'")
        raw.execute("alter table draft rename to plan")
    raw.close()
    assert house.news() == ["w1 update plan p1 title"]
    assert house.mistakes() == []
    with sqlite3.connect(tmp_path / "copy.db") as raw:
        raw.execute("update plan set title = 'y' where id = 'p2'")
        assert raw.execute("select entity_id from abreast_event order by workspace = 'w1', revision").fetchall()[-1] == ("p2",)
    raw.close()


def test_g1_no_value_that_sqlite_can_hold_stops_a_writer_or_a_reader(house):
    """Types belong to values, not to columns: a blob in a text column, text in a number, JSON that is none."""
    values = [
        b"\xff\x00", "a\0b", "", 0, -1, 2**63 - 1, -(2**63), 0.1 + 0.2, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"),
        "\U0001f600", '"\\\n\x01', '{"a":', "[1,2]", "[" * 2000 + "]" * 2000, "5", "1e5", None,
    ]  # fmt: skip
    with house.engine.begin() as connection:
        raw = connection.connection.dbapi_connection
        for value in values:
            for column in ("title", "move_in_date", "budget", "details", "secret", "remark"):
                raw.execute(f"update plan set {column} = ? where id = 'p1'", (value,))
            raw.execute("update game set score = ?, version = ?", (value, value))
    house.run("update plan set title = cast(x'ff' as text) where id = 'p1'")  # not UTF-8
    head = house.value("select head from abreast_workspace where workspace = 'w1'")
    assert house.value("select count(*) from abreast_event where workspace = 'w1'") == head
    assert head > len(values) * 6 / 2
    batch = house.hub.blocking.batch("w1", after=0, limit=100_000)
    assert len(batch.events) == head
    house.run("delete from plan where id = 'p1'")


def test_g1_a_value_of_ten_megabytes_is_captured_and_told_by_its_name(house):
    large = "x" * 10_000_000
    with house.engine.begin() as connection:
        connection.execute(sa.text("update plan set title = :t, details = :d where id = 'p1'"), {"t": large, "d": f'["{large}"]'})
    (event,) = house.events()
    assert (event.op, sorted(event.fields)) == ("update", ["details", "title"])
    house.run("update plan set title = 'small' where id = 'p1'")
    assert house.news() == ["w1 update plan p1 title"]
    assert house.hub.blocking.check() == []
