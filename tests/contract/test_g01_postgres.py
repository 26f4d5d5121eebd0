"""G1 for what only PostgreSQL has: COPY, MERGE, writable CTEs, TRUNCATE, partitions, roles, deferred constraints."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from abreast import CaptureError, via
from house import House, build, furnish
from oracle import Watched


@pytest.fixture
def house(postgres, hubs) -> House:
    made = build(postgres, hubs)
    furnish(made)
    return made


def _copy(house: House, rows: list[tuple[int, str, str, bool]]) -> None:
    statement = "copy item (id, plan_id, title, done) from stdin"
    with psycopg.connect(house.database.plain) as connection, connection.cursor().copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def test_g1_copy(house):
    _copy(house, [(number, "p1" if number % 2 else "p3", "copied", False) for number in range(100, 160)])
    news = house.news()
    assert sorted(news) == sorted(f"{'w1' if n % 2 else 'w2'} insert item {n}" for n in range(100, 160))
    assert house.mistakes() == []


def test_g1_copy_of_one_row_and_of_none(house):
    _copy(house, [(100, "p1", "copied", False)])
    assert house.news() == ["w1 insert item 100"]
    _copy(house, [])
    assert house.news() == []
    assert house.mistakes() == []


def test_g1_merge_inserts_updates_and_deletes_in_one_statement(house):
    house.run(
        "insert into plan (id, workspace_id, title) values ('p4', 'w1', 'four')",
        """merge into plan using (values ('p2', 'due'), ('p4', 'gone'), ('p9', 'new'), ('p3', 'three')) as s (id, title)
        on plan.id = s.id
        when matched and s.title = 'gone' then delete
        when matched then update set title = s.title
        when not matched then insert (id, workspace_id, title) values (s.id, 'w1', s.title)""",
    )
    assert sorted(house.news()) == [
        "w1 delete plan p4",
        "w1 insert plan p4",
        "w1 insert plan p9",
        "w1 update plan p2 title",
    ]
    assert house.mistakes() == []


def test_g1_writable_ctes(house):
    house.run(
        """with a as (update plan set title = 'a' where id = 'p1' returning 1),
                b as (update plan set title = 'b' where id = 'p3' returning 1),
                c as (delete from item where id = 2 returning plan_id)
           insert into item (id, plan_id, title, done) select 200, plan_id, 'moved', true from c"""
    )
    assert sorted(house.news()) == [
        "w1 delete item 2",
        "w1 insert item 200",
        "w1 update plan p1 title",
        "w2 update plan p3 title",
    ]
    assert house.mistakes() == []


def test_g1_truncate_is_a_deletion_of_every_row(house):
    house.run("truncate plan cascade")
    assert sorted(house.news()) == [
        "w1 delete item 1",
        "w1 delete item 2",
        "w1 delete plan p1",
        "w1 delete plan p2",
        'w1 delete tag ["1","a"]',
        'w1 delete tag ["2","b"]',
        "w2 delete item 3",
        "w2 delete plan p3",
        'w2 delete tag ["1","c"]',
    ]
    assert house.mistakes() == []


def test_g1_a_view_and_a_function_write_the_same_rows(house):
    house.run(
        "create view mine as select id, title from plan where workspace_id = 'w1'",
        "create function rename_all() returns void language sql as $$ update plan set title = title || '?' $$",
        "update mine set title = 'through a view' where id = 'p1'",
        "select rename_all()",
        """do $$ begin
            update plan set title = 'kept' where id = 'p2';
            begin
                update plan set title = 'lost'; raise 'no';
            exception when others then null;
            end;
        end $$""",
    )
    assert sorted(house.news()) == [
        "w1 update plan p1 title",
        "w1 update plan p1 title",
        "w1 update plan p2 title",
        "w1 update plan p2 title",
        "w2 update plan p3 title",
    ]
    assert house.mistakes() == []


def _role(house: House) -> sa.Engine:
    """An engine of a role that may write the product's tables and has no right on ours."""
    name = "writer_" + house.database.url.rsplit("/", 1)[1].split("?")[0]
    house.run(f"create role {name} login", f"grant select, insert, update, delete on plan, item, tag to {name}")
    made = sa.create_engine(make_url(house.database.url).set(username=name))
    house.database._engines.append(made)
    return made


def test_g1_a_role_without_rights_on_our_tables_writes_its_rows(house):
    engine = _role(house)
    with engine.begin() as connection:
        for statement in (
            "update plan set title = 'x' where id = 'p1'",
            "insert into item (id, plan_id, title, done) values (60, 'p1', 't', false)",
            "update plan set workspace_id = 'w9' where id = 'p3'",
            "delete from plan where id = 'p1'",
            "create temp table event (x int)",  # a name like ours, in front of everything
            "update plan set title = 'y' where id = 'p2'",
        ):
            connection.exec_driver_sql(statement)
    for statement in ("select * from abreast.event", "delete from abreast.workspace", "select abreast.as_jsonb('1')"):
        with engine.connect() as connection, pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
            connection.exec_driver_sql(statement)
    assert house.mistakes() == []
    assert len(house.news()) == 15
    engine.dispose()
    house.run("drop owned by " + engine.url.username, "drop role " + engine.url.username)


def test_g1_a_hub_whose_role_has_no_rights_says_what_to_do(house, hubs):
    from house import declare

    engine = _role(house)
    hub = declare(hubs(engine))
    with pytest.raises(CaptureError, match="Grant"):
        hub.blocking.batch("w1")
    role = engine.url.username
    house.run(f"grant usage on schema abreast to {role}", f"grant select on all tables in schema abreast to {role}")
    with pytest.raises(CaptureError, match="Grant"), hub.lease("t"):
        raise AssertionError
    engine.dispose()
    house.run("drop owned by " + engine.url.username, "drop role " + engine.url.username)


def test_g1_what_a_writer_puts_into_its_search_path_changes_nothing(house):
    house.run(
        "create schema evil",
        "create function evil.eq(text, text) returns boolean language sql as 'select true'",
        "create operator evil.= (leftarg = text, rightarg = text, function = evil.eq)",
        "create table evil.plan (id text)",
        "set local search_path = evil, pg_catalog, public",
        "update public.plan set title = 'x' where id operator(pg_catalog.=) 'p1'",
        "update public.item set title = 'x' where id = 1",
    )
    assert house.news() == ["w1 update plan p1 title", "w1 update item 1 title"]
    assert house.mistakes() == []


def test_g1_deferred_constraints_that_write_at_commit_are_captured(house):
    """Their events come when the revisions of the transaction may be given already."""
    house.run(
        "alter table tag drop constraint tag_item_id_fkey",
        "alter table tag add foreign key (item_id) references item on delete set null deferrable initially deferred",
        """create function late() returns trigger language plpgsql as
        $$ begin update plan set remark = coalesce(remark, '') || '!' where id = new.plan_id; return null; end $$""",
        """create constraint trigger a_late after update on item deferrable initially deferred
        for each row execute function late()""",
        """create constraint trigger zz_late after update on item deferrable initially deferred
        for each row execute function late()""",
    )
    house.run("update item set done = true where id in (1, 3)", "delete from item where id = 1")
    assert house.mistakes() == []
    assert sorted(house.news()) == [
        "w1 delete item 1",
        'w1 delete tag ["1","a"]',
        'w1 delete tag ["2","b"]',
        "w1 update item 1 done",
        "w1 update plan p1 remark",
        "w1 update plan p1 remark",
        "w2 update item 3 done",
        "w2 update plan p3 remark",
        "w2 update plan p3 remark",
    ]


@pytest.fixture
def partitioned(postgres, hubs) -> House:
    """Readings, partitioned by region and then by id, and probes that find their workspace through them."""
    engine = postgres.engine()
    metadata = sa.MetaData()
    reading = sa.Table(
        "reading",
        metadata,
        sa.Column("region", sa.Text, primary_key=True),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace_id", sa.Text),
        sa.Column("level", sa.Integer),
        postgresql_partition_by="list (region)",
    )
    probe = sa.Table(
        "probe",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("region", sa.Text),
        sa.Column("reading_id", sa.Integer),
        sa.ForeignKeyConstraint(
            ["region", "reading_id"], ["reading.region", "reading.id"], ondelete="CASCADE", onupdate="CASCADE"
        ),
    )
    metadata.create_all(engine)
    hub = hubs(postgres)
    hub.track(reading, workspace="workspace_id", record="all")
    hub.track(probe, workspace=via(["region", "reading_id"], reading), record="all")

    def of_reading(row, find):
        found = find("reading", row["region"], row["reading_id"])
        return found["workspace_id"] if found else None

    house = House(
        postgres,
        hub,
        engine,
        (
            Watched(reading, set(reading.columns.keys()), lambda row, find: row["workspace_id"]),
            Watched(probe, set(probe.columns.keys()), of_reading),
        ),
    )
    house.run(
        "create table north partition of reading for values in ('n')",
        "create table south partition of reading for values in ('s') partition by range (id)",
        "create table south_few partition of south for values from (0) to (100)",
    )
    hub.blocking.install()
    assert hub.blocking.check() == []
    house.run(
        "insert into reading values ('n', 1, 'w1', 5), ('s', 2, 'w1', 6), ('s', 3, 'w2', 7)",
        "insert into north values ('n', 4, 'w1', 5)",
        "insert into south_few values ('s', 5, 'w1', 5)",
        "insert into probe values (1, 'n', 1), (2, 's', 2), (3, 's', 3)",
    )
    assert len(house.news()) == 8
    return house


def test_g1_partitions_are_captured_through_any_of_their_names(partitioned):
    house = partitioned
    house.run(
        "update north set level = 6 where id = 1",
        "update south set level = 8 where id = 3",
        "update reading set level = 9 where id = 5",
    )
    assert house.news() == [
        'w1 update reading ["n","1"] level',
        'w1 update reading ["s","5"] level',
        'w2 update reading ["s","3"] level',
    ]
    house.run("delete from south_few where id = 2")
    assert sorted(house.news()) == ["w1 delete probe 2", 'w1 delete reading ["s","2"]']
    house.run("truncate north cascade")
    assert sorted(house.news()) == [
        "w1 delete probe 1",
        'w1 delete reading ["n","1"]',
        'w1 delete reading ["n","4"]',
        "w2 delete probe 3",
    ]
    assert house.mistakes() == []


def test_g1_a_row_that_moves_to_another_partition_is_deleted_and_inserted_once(partitioned):
    house = partitioned
    house.run("update reading set region = 's' where id = 1")
    assert sorted(house.news()) == [
        'w1 delete reading ["n","1"]',
        'w1 insert reading ["s","1"]',
        "w1 update probe 1 region",
    ]
    assert house.mistakes() == []


def test_g1_a_partition_that_came_after_install_is_found_by_check(partitioned):
    house = partitioned
    house.run("create table east partition of reading for values in ('e')")
    assert {(finding.code, finding.entity_type) for finding in house.hub.blocking.check()} == {("no_trigger", "reading")}
    house.hub.blocking.install()
    assert house.hub.blocking.check() == []
    house.run("insert into east values ('e', 9, 'w1', 1)")
    assert house.news() == ['w1 insert reading ["e","9"]']
    assert house.mistakes() == []


def test_g1_generated_columns_stop_no_writer(postgres, hubs):
    """A virtual one has no value in the rows that a trigger sees; a stored one has."""
    engine = postgres.engine()
    room = sa.Table(
        "room",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace_id", sa.Text),
        sa.Column("width", sa.Integer),
        sa.Column("stored", sa.Integer, sa.Computed("width * 2", persisted=True)),
        sa.Column("virtual", sa.Integer, sa.Computed("width * 3", persisted=False)),
        sa.Column("version", sa.Integer),
    )
    room.metadata.create_all(engine)
    recorded = {"id", "workspace_id", "width", "stored", "version"}
    hub = hubs(postgres)
    hub.track(room, workspace="workspace_id", record=recorded, version="version")
    hub.blocking.install()
    house = House(postgres, hub, engine, (Watched(room, recorded, lambda row, find: row["workspace_id"]),))
    house.run("insert into room (id, workspace_id, width) values (1, 'w1', 1), (2, 'w1', 5), (3, 'w2', 9)")
    assert len(house.news()) == 3
    house.run("update room set width = 7", "update room set width = 7", "update room set width = 8 where id = 1")
    updates = [(event.entity_id, {"width", "stored", "version"} <= set(event.fields)) for event in house.events()]
    assert sorted(updates) == [("1", True), ("1", True), ("2", True), ("3", True)]
    house.run("update room set workspace_id = 'w3', id = id + 10", "delete from room where id = 11")
    assert house.mistakes() == []
    assert hub.blocking.check() == []


def test_g1_tables_that_inherit_are_captured_as_their_parent(postgres, hubs):
    engine = postgres.engine()
    base = sa.Table(
        "base",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace_id", sa.Text),
        sa.Column("n", sa.Integer),
    )
    base.metadata.create_all(engine)
    hub = hubs(postgres)
    hub.track(base, workspace="workspace_id", record="all")
    house = House(postgres, hub, engine, (Watched(base, set(base.columns.keys()), lambda row, find: row["workspace_id"]),))
    house.run("create table special (extra text) inherits (base)")
    hub.blocking.install()
    house.run(
        "insert into base (id, workspace_id, n) values (1, 'w1', 1)",
        "insert into special (id, workspace_id, n) values (2, 'w1', 2)",
        "update base set n = 7",
        "update special set extra = 'x'",
        "delete from base where id = 2",
    )
    assert sorted(house.news()) == [
        "w1 delete base 2",
        "w1 insert base 1",
        "w1 insert base 2",
        "w1 update base 1 n",
        "w1 update base 2 extra",
        "w1 update base 2 n",
    ]
    assert house.mistakes() == []
