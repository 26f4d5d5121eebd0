"""G1 stays true: installing on a live database, twice, at once and away again; and finding what capture misses."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from abreast import CaptureOutdatedError, NotInstalledError, UnavailableError, constant, via
from abreast.access.sqlite import SQLiteAccess
from house import Base, House, Plan, build, declare, furnish
from lanes import lanes
from oracle import Watched


@pytest.fixture
def house(database, hubs) -> House:
    made = build(database, hubs)
    furnish(made)
    return made


CORNERS = pytest.mark.parametrize(
    ("database", "door"), [("sqlite", "async"), ("postgresql", "sync")], indirect=True, ids=["sqlite-async", "postgresql-sync"]
)
"""Two of the four combinations: the door makes a difference on the way to the database, not in it."""


def codes(house: House) -> set[tuple[str, str]]:
    return {(finding.code, finding.entity_type) for finding in house.hub.blocking.check()}


def objects(house: House) -> set[str]:
    """What is ours in the database, besides rows."""
    if house.on_sqlite:
        query = "select type || ' ' || name from sqlite_master where name like 'abreast%' or tbl_name like 'abreast%'"
    else:
        query = """
            select 'schema ' || nspname from pg_namespace where nspname = 'abreast'
            union select 'function ' || oid::regprocedure from pg_proc where pronamespace = to_regnamespace('abreast')
            union select 'trigger ' || tgname || ' ' || tgrelid::regclass from pg_trigger
            where strpos(lower(tgname), 'abreast') > 0"""
    with house.engine.connect() as connection:
        return {row[0] for row in connection.exec_driver_sql(query)}


def test_g1_install_works_through_both_doors_and_twice_is_as_good_as_once(database, hubs, door):
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = declare(hubs(database))
    with pytest.raises(NotInstalledError):
        door(hub).batch("w1", after=0)
    with pytest.raises(NotInstalledError):
        door(hub).check()
    door(hub).install()
    house = House(database, hub, engine)
    furnish(house)
    once = objects(house)
    door(hub).install()
    assert objects(house) == once
    assert door(hub).check() == []
    house.run("update plan set title = 'x' where id = 'p1'")
    assert house.news() == ["w1 update plan p1 title"]
    assert house.mistakes() == []


def test_g1_several_processes_that_install_at_once_do_not_disturb_each_other(database, hubs):
    """As the workers of an application do when it starts."""
    engine = database.engine()
    Base.metadata.create_all(engine)
    made = [declare(hubs(database)) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(hub.blocking.install) for hub in made]:
            done.result()
    house = House(database, made[0], engine)
    furnish(house)
    assert house.mistakes() == []
    assert made[1].blocking.check() == []


@CORNERS
def test_g1_uninstall_leaves_the_log_and_install_goes_on_with_it(house, door):
    door(house.hub).uninstall()
    house.run("update plan set title = 'unseen' where id = 'p1'", "delete from item where id = 3")
    with pytest.raises(CaptureOutdatedError):
        door(house.hub).batch("w1", after=0)
    door(house.hub).uninstall()
    door(house.hub).install()
    assert house.news() == []
    assert codes(house) == {("row_changed_unseen", "plan"), ("row_gone_unseen", "item")}
    house.run("update plan set title = 'seen' where id = 'p1'")
    assert house.news() == ["w1 update plan p1 title"]


@CORNERS
def test_g1_uninstall_with_the_log_leaves_nothing_of_ours(house, door):
    before = objects(house)
    door(house.hub).uninstall(log_too=True)
    assert objects(house) == set()
    house.run("update plan set title = 'x', workspace_id = null")
    with pytest.raises(NotInstalledError):
        door(house.hub).batch("w1", after=0)
    house.run("update plan set workspace_id = 'w1'")
    door(house.hub).install()
    assert objects(house) == before
    house.run("update plan set title = 'y' where id = 'p1'")
    assert house.news() == []  # w1 begins anew: its first revision is behind where this house has listened
    assert [event.revision for event in door(house.hub).batch("w1", after=0).events] == [1]


# -- a live database ---------------------------------------------------------------------------------------------------


def test_g1_install_waits_for_an_open_writer_and_loses_nothing_of_the_next(postgres, hubs):
    """It waits two seconds at most, lets go so that nobody queues behind it, and tries again."""
    engine = postgres.engine()
    Base.metadata.create_all(engine)
    hub = declare(hubs(postgres))
    house = House(postgres, hub, engine)
    with lanes(postgres.plain) as made, ThreadPoolExecutor(1) as thread:
        writer, other = made.open(), made.open()
        writer.run("begin", "insert into plan (id, workspace_id) values ('before', 'w1')")
        installing = thread.submit(hub.blocking.install)
        waits: set[str] = set()
        end = time.monotonic() + 60
        while len(waits) < 2 and time.monotonic() < end:  # two attempts, each in a transaction of its own
            assert not installing.done()
            waiting = "wait_event_type = 'Lock' and datname = current_database() and pid <> pg_backend_pid()"
            waits |= {row[0] for row in made.watch.run(f"select xact_start::text from pg_stat_activity where {waiting}")}
        assert len(waits) == 2
        other.start("insert into plan (id, workspace_id) values ('beside', 'w1')").result(timeout=60)  # is let through
        writer.run("commit")
        installing.result(timeout=60)
        other.run("update plan set title = 'behind' where id in ('before', 'beside')")
    assert house.news() == ["w1 update plan before title", "w1 update plan beside title"]
    assert hub.blocking.check() == []


def test_g1_a_second_install_locks_no_table(postgres, hubs):
    house = build(postgres, hubs)
    furnish(house)
    with lanes(postgres.plain) as made:
        writer = made.open()
        writer.run("begin", "update plan set title = 'x'", "update item set done = true", "delete from tag")
        house.hub.blocking.install()
        writer.run("commit")
    assert house.mistakes() == []


def test_g1_install_waits_for_an_open_writer_of_the_file(sqlite, hubs):
    engine = sqlite.engine()
    Base.metadata.create_all(engine)
    hub = declare(hubs(sqlite))
    with engine.connect() as connection, ThreadPoolExecutor(1) as thread:
        connection.exec_driver_sql("insert into plan (id, workspace_id) values ('before', 'w1')")
        installing = thread.submit(hub.blocking.install)
        connection.commit()
        installing.result(timeout=60)
    house = House(sqlite, hub, engine)
    house.run("update plan set title = 'x'")
    assert house.news() == ["w1 update plan before title"]
    access = SQLiteAccess(make_url(sqlite.url), timeout=0.05)
    with engine.connect() as connection:
        connection.exec_driver_sql("update plan set title = 'y'")
        with pytest.raises(UnavailableError):
            access.script([["create table t (id integer)"]])
        connection.rollback()
    access.close()


# -- what no trigger can see -------------------------------------------------------------------------------------------


def test_g1_a_table_that_a_migration_rebuilds_loses_its_triggers_and_the_next_batch_says_so(sqlite, hubs, door):
    """SQLite cannot alter much: a migration copies the table, drops it and renames the copy."""
    house = build(sqlite, hubs)
    furnish(house)
    assert len(door(house.hub).batch("w1", after=0).events) == 6
    with house.engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        raw.execute("pragma foreign_keys = off")
        raw.execute("pragma legacy_alter_table = on")
        parent = "plan_id varchar not null references plan on delete cascade on update cascade"
        for statement in (
            f"create table _tmp_item (id integer primary key, {parent}, title text, done boolean)",
            "insert into _tmp_item select id, plan_id, title, done from item",
            "drop table item",
            "alter table _tmp_item rename to item",
        ):
            raw.execute(statement)
        raw.commit()
        raw.execute("pragma legacy_alter_table = off")
        raw.execute("pragma foreign_keys = on")
    with pytest.raises(CaptureOutdatedError, match="item"):
        door(house.hub).batch("w1", after=0)
    with pytest.raises(CaptureOutdatedError, match="item"):
        door(house.hub).batch("w1", after=0)
    assert {entity_type for _, entity_type in codes(house)} == {"item"}
    door(house.hub).install()
    assert len(door(house.hub).batch("w1", after=0).events) == 6
    house.run("update item set done = true where id = 1")
    assert house.news() == ["w1 update item 1 done"]


def test_g1_a_column_that_came_later_is_found_by_check(house):
    house.run("alter table item add column extra text")
    if house.on_sqlite:
        assert codes(house) == {("column_unwatched", "item")}
    else:
        # PostgreSQL's triggers tell its change by name, though nobody declared it.
        house.run(
            "update item set extra = 'x' where id = 1",
            "update item set extra = 'x' where id = 1",
            "update item set title = title",
        )
        assert house.news() == ["w1 update item 1 extra"]
    house.run("alter table item drop column extra")
    assert codes(house) == set()


def test_g1_a_column_that_is_gone_is_found_by_check(postgres, hubs):
    house = build(postgres, hubs)
    furnish(house)
    house.run("alter table plan drop column remark")
    assert "plan" in {entity_type for _, entity_type in codes(house)}


def test_g1_triggers_that_are_off_missing_or_of_another_declaration_are_found(postgres, hubs, door):
    house = build(postgres, hubs)
    furnish(house)
    ours = (
        "select quote_ident(tgname) from pg_trigger "
        "where tgrelid = '{}'::regclass and strpos(lower(tgname), 'abreast') > 0 limit 1"
    )
    house.run(
        f"alter table plan disable trigger {house.value(ours.format('plan'))}",
        f"drop trigger {house.value(ours.format('item'))} on item",
    )
    assert codes(house) == {("trigger_disabled", "plan"), ("no_trigger", "item")}
    fresh = declare(hubs(postgres))
    with pytest.raises(CaptureOutdatedError):
        door(fresh).batch("w1", after=0)
    door(fresh).install()
    assert door(fresh).check() == []
    assert len(door(fresh).batch("w1", after=0).events) == 6
    other = hubs(postgres)
    other.track(Plan, workspace="workspace_id", record={"remark"})
    assert {(f.code, f.entity_type) for f in door(other).check()} >= {("trigger_outdated", "plan")}
    with pytest.raises(CaptureOutdatedError):
        door(other).batch("w1", after=0)


def test_g1_triggers_that_are_missing_or_of_another_declaration_are_found_on_sqlite(sqlite, hubs, door):
    house = build(sqlite, hubs)
    furnish(house)
    house.run("drop trigger abreast_item_update")
    assert {entity_type for _, entity_type in codes(house)} == {"item"}
    with pytest.raises(CaptureOutdatedError):
        door(declare(hubs(sqlite))).batch("w1", after=0)
    door(house.hub).install()
    assert codes(house) == set()
    other = hubs(sqlite)
    other.track(Plan, workspace="workspace_id", record={"remark"})
    with pytest.raises(CaptureOutdatedError):
        door(other).batch("w1", after=0)


def test_g1_writes_that_replication_hides_are_found_by_check(postgres, hubs):
    """`session_replication_role = replica` runs no trigger: only a comparison of rows and log can tell."""
    house = build(postgres, hubs)
    furnish(house)
    house.run("insert into plan (id, workspace_id) values ('back', 'w1')", "delete from plan where id = 'back'")
    house.run(
        "set local session_replication_role = replica",
        "update plan set title = 'hidden' where id = 'p1'",
        "delete from item where id = 3",
        "insert into plan (id, workspace_id) values ('back', 'w1')",
    )
    found = {(f.code, f.entity_type): list(f.entity_ids) for f in house.hub.blocking.check()}
    assert found == {
        ("row_changed_unseen", "plan"): ["p1"],
        ("row_gone_unseen", "item"): ["3"],
        ("row_back_unseen", "plan"): ["back"],
    }


def test_g1_a_table_that_is_not_there_is_a_finding_and_the_others_are_still_compared(database, hubs):
    engine = database.engine()
    Plan.__table__.create(engine)
    hub = hubs(database)
    hub.track(Plan, workspace="workspace_id", record="all")
    hub.blocking.install()
    house = House(database, hub, engine)
    house.run("insert into plan (id, workspace_id) values ('p1', 'w1')")
    hub.blocking.uninstall()
    house.run("delete from plan")
    fresh = hubs(database)
    fresh.track(Plan, workspace="workspace_id", record="all")
    fresh.track(sa.Table("absent", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True)), workspace=constant("w"))
    found = {finding.entity_type: finding.code for finding in fresh.blocking.check() if "trigger" not in finding.code}
    assert found.keys() == {"plan", "absent"}
    assert found["plan"] == "row_gone_unseen"


def test_g1_a_log_that_is_not_whole_is_found_by_check(house):
    house.run(f"delete from {house.own('event')} where entity_type = 'plan' and entity_id = 'p1'")
    assert ("log_gap", "") in codes(house)


def test_g1_rows_that_were_there_before_install_are_no_finding(database, hubs):
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = declare(hubs(database))
    house = House(database, hub, engine)
    house.run(
        "insert into plan (id, workspace_id, title) values ('p1', 'w1', 'one')",
        "insert into item (id, plan_id, title, done) values (1, 'p1', 'a', false), (2, 'p1', 'b', false)",
        "insert into tag (number, name, item_id) values (1, 'a', 1)",
    )
    hub.blocking.install()
    assert hub.blocking.check() == []
    house.run("update plan set title = 'uno'", "update item set done = true where id = 1")
    assert hub.blocking.check() == []
    house.run("delete from plan where id = 'p1'")
    assert sorted(house.news()) == [
        "w1 delete item 1",
        "w1 delete item 2",
        "w1 delete plan p1",
        'w1 delete tag ["1","a"]',
        "w1 update item 1 done",
        "w1 update plan p1 title",
    ]
    assert hub.blocking.check() == [] or codes(house) == {("without_workspace", "tag")}


# -- names and sizes ---------------------------------------------------------------------------------------------------

NAMES = [
    'a"b',
    "c'd",
    "per%cent %s",
    "col:on :x",
    "question?",
    "back\\slash",
    "가나다",
    "select",
    "new",
    "old",
    "workspace",
    "_old",
    "e",
]


@pytest.mark.parametrize("table_name", ["order", 'the "quoted" table\'s', "x" * 63], ids=["keyword", "quotes", "long"])
def test_g1_any_names_of_tables_and_columns(database, hubs, loop, table_name):
    engine = database.engine()
    metadata = sa.MetaData()
    top = sa.Table(
        table_name,
        metadata,
        sa.Column("group by", sa.Text, primary_key=True),
        sa.Column("where", sa.Text),
        *[sa.Column(name, sa.Text) for name in NAMES],
    )
    below = sa.Table(
        "below",
        metadata,
        sa.Column("from", sa.Integer, primary_key=True),
        sa.Column("to", sa.ForeignKey(top.c["group by"], ondelete="CASCADE")),
    )
    metadata.create_all(engine)
    hub = hubs(database)
    hub.track(top, workspace="where", record="all", name="top")
    hub.track(below, workspace=via("to", top), record="all")
    hub.blocking.install()
    hub.blocking.install()

    def workspace_of(row, find):
        found = find(table_name, row["to"])
        return found["where"] if found else None

    house = House(
        database,
        hub,
        engine,
        (
            Watched(top, [column.name for column in top.columns], lambda row, find: row["where"], "top"),
            Watched(below, ["from", "to"], workspace_of),
        ),
    )
    with engine.begin() as connection:
        connection.execute(sa.insert(top).values({"group by": "1", "where": "w"}))
        connection.execute(sa.insert(below).values({"from": 1, "to": "1"}))
    house.news()
    for name in NAMES:
        with engine.begin() as connection:
            connection.execute(sa.update(top).values({top.c[name]: name}))
        (event,) = house.events()
        assert (event.fields, event.values) == ((name,), {name: (None, name)})
    assert asyncio.run_coroutine_threadsafe(hub.batch("w", after=0), loop).result(60) == hub.blocking.batch("w", after=0)
    page = hub.blocking.rows(top, "w")
    assert {name: page.rows[0].values[name] for name in NAMES} == {name: name for name in NAMES}
    with engine.begin() as connection:
        connection.execute(sa.update(top).values({"where": "v"}))
    assert len(hub.blocking.batch("v", after=0).events) == 2
    assert hub.blocking.check() == []
    with engine.begin() as connection:
        connection.execute(sa.delete(top))
    assert house.mistakes() == []


@CORNERS
def test_g1_a_column_may_have_another_key_in_python(database, hubs, door):
    engine = database.engine()
    metadata = sa.MetaData()
    top = sa.Table(
        "top",
        metadata,
        sa.Column("id", sa.DateTime(timezone=True), primary_key=True, key="k1"),
        sa.Column("workspace id", sa.Text, key="k2"),
        sa.Column("some json", sa.JSON, key="k3"),
    )
    metadata.create_all(engine)
    hub = hubs(database)
    hub.track(top, workspace="k2", record={"some json"}, version=None)
    door(hub).install()
    with engine.begin() as connection:
        connection.execute(sa.insert(top).values(k1=dt.datetime(2026, 9, 30, tzinfo=dt.UTC), k2="w", k3={"a": 1}))
    batch = door(hub).batch("w", after=0)
    assert [dict(event.values) for event in batch.events] == [{"some json": (None, {"a": 1})}]
    assert batch.rows[0].entity_id == batch.events[0].entity_id
    assert door(hub).check() == []


def test_g1_our_tables_may_live_in_another_schema_and_so_may_the_application(postgres, hubs):
    engine = postgres.engine()
    with engine.begin() as connection:
        connection.exec_driver_sql("create schema sales")
    metadata = sa.MetaData(schema="sales")
    lead = sa.Table("lead", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("workspace_id", sa.Text))
    call = sa.Table(
        "call", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("lead_id", sa.ForeignKey("sales.lead.id"))
    )
    metadata.create_all(engine)
    hub = hubs(postgres, schema="audit")
    hub.track(lead, workspace="workspace_id", record="all")
    hub.track(call, workspace=via("lead_id", lead), record="all")
    hub.blocking.install()
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into sales.lead values (1, 'w')")
        connection.exec_driver_sql("insert into sales.call values (1, 1)")
    batch = hub.blocking.batch("w", after=0)
    assert [(event.entity_type, event.entity_id) for event in batch.events] == [("lead", "1"), ("call", "1")]
    assert {row.entity_type for row in batch.rows} == {"lead", "call"}
    assert hub.blocking.check() == []
    hub.blocking.uninstall(log_too=True)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select count(*) from pg_namespace where nspname in ('audit', 'abreast')").scalar() == 0


def test_g1_large_values_and_nul_escapes_stop_no_writer(postgres, hubs):
    house = build(postgres, hubs)
    furnish(house)
    large = "x" * 10_000_000
    with house.engine.begin() as connection:
        connection.execute(sa.update(Plan).where(Plan.id == "p1").values(title=large, remark=large))
    (event,) = house.events()
    assert sorted(event.fields) == ["remark", "title"]
    assert event.values["title"] == ("one", large)
    house.run(
        "update plan set title = 'small' where id = 'p1'",
        # JSON text may say what no text of PostgreSQL can hold.
        """update plan set details = '{"a": "\\u0000", "b": "\\ud800"}' where id = 'p1'""",
        """update plan set details = '{"b": "\\ud800", "a": "\\u0000"}' where id = 'p1'""",
        """update plan set details = '"plain"' where id = 'p1'""",
    )
    news = house.news()
    assert news[:2] == ["w1 update plan p1 title", "w1 update plan p1 details"]
    assert house.hub.blocking.batch("w1", after=0).head.revision == len(news) + 7
    assert house.hub.blocking.check() == []


def test_g1_what_a_writers_session_has_set_does_not_show_in_the_log(postgres, hubs):
    engine = postgres.engine()
    thing = sa.Table(
        "thing",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace_id", sa.Text),
        sa.Column("at", sa.DateTime(timezone=True)),
        sa.Column("day", sa.Date),
        sa.Column("blob", sa.LargeBinary),
        sa.Column("f", sa.Double),
    )
    thing.metadata.create_all(engine)
    hub = hubs(postgres)
    hub.track(thing, workspace="workspace_id", record="all")
    hub.blocking.install()
    with engine.begin() as connection:
        for setting in (
            "timezone = 'Asia/Seoul'",
            "datestyle = 'German'",
            "bytea_output = 'escape'",
            "intervalstyle = 'iso_8601'",
        ):
            connection.exec_driver_sql(f"set local {setting}")
        connection.exec_driver_sql(
            "insert into thing values (1, 'w', '2026-09-30 09:00+09', '2026-09-30', 'abcd'::bytea || '\\x00ff'::bytea, 0.1)"
        )
    (event,) = hub.blocking.batch("w", after=0).events
    assert {name: new for name, (_, new) in event.values.items()} == {
        "id": 1,
        "workspace_id": "w",
        "at": "2026-09-30T00:00:00Z",
        "day": "2026-09-30",
        "blob": "YWJjZAD/",
        "f": 0.1,
    }
    assert hub.blocking.check() == []
