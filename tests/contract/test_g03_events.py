"""G3: what changes nothing leaves no event, what changes leaves exactly one, and HEAD grows by their number."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

import pytest
import sqlalchemy as sa

from abreast import constant, via
from house import House, Plan, build, furnish
from oracle import Watched


@pytest.fixture
def house(database, hubs) -> House:
    made = build(database, hubs)
    furnish(made)
    return made


def test_g3_a_write_that_changes_nothing_leaves_no_event(house):
    for statement in (
        "update plan set title = title",
        "update plan set title = 'one' where id = 'p1'",
        "update plan set title = 'x' where id = 'nobody'",
        "update plan set workspace_id = workspace_id, id = id",
        "update item set plan_id = plan_id",
        "update plan set budget = null, details = null",
        "delete from item where id = 999",
        "insert into item (id, plan_id, title, done) select id, plan_id, title, done from item where id = 999",
        "update game set score = score",
    ):
        house.run(statement)
        assert house.news() == [], statement
    assert house.mistakes() == []


def test_g3_only_the_rows_that_changed_leave_an_event(house):
    house.run("update plan set title = case id when 'p2' then 'due' else title end")
    assert house.news() == ["w1 update plan p2 title"]


def test_g3_only_the_fields_that_changed_are_named_and_recorded(house):
    house.run("update plan set title = 'uno', budget = null, move_in_date = '2026-09-30', remark = 'x' where id = 'p1'")
    (event,) = house.events()
    assert sorted(event.fields) == ["move_in_date", "remark", "title"]
    assert event.values == {"title": ("one", "uno"), "move_in_date": (None, "2026-09-30")}


def test_g3_null_is_a_value_and_absent_is_none(house):
    house.run(
        "insert into plan (id, workspace_id, title) values ('n', 'w1', '')",
        "update plan set title = null where id = 'n'",
        "update plan set title = '' where id = 'n'",
        "delete from plan where id = 'n'",
    )
    inserted, to_null, from_null, deleted = house.events()
    assert inserted.fields == ()
    assert inserted.values["title"] == (None, "")
    assert inserted.values["budget"] == (None, None)
    assert "remark" not in inserted.values
    assert "secret" not in inserted.values
    assert to_null.values == {"title": ("", None)}
    assert from_null.values == {"title": (None, "")}
    assert deleted.values["title"] == ("", None)


def test_g3_one_statement_over_many_rows_is_one_step_of_the_head(house):
    house.run(
        "insert into plan (id, workspace_id) values " + ", ".join(f"('m{n:03}', 'w{n % 3}')" for n in range(300)),
    )
    assert len(house.news()) == 300
    heads = {w: house.value(f"select head from {house.own('workspace')} where workspace = '{w}'") for w in ("w0", "w1", "w2")}
    before = dict(heads)
    house.run("update plan set remark = 'all' where id >= 'm' and id < 'n'")
    news = house.news()
    assert len(news) == len(set(news)) == 300
    after = {w: house.value(f"select head from {house.own('workspace')} where workspace = '{w}'") for w in heads}
    assert {w: after[w] - before[w] for w in heads} == {"w0": 100, "w1": 100, "w2": 100}
    if not house.on_sqlite:
        assert house.value("select count(*) from abreast.block where workspace = 'w0'") == 2  # one for each statement
    assert house.mistakes() == []


SAVEPOINTS = {
    "first is rolled back": ["savepoint a", "1", "rollback to a", "2"],
    "last is rolled back": ["1", "savepoint a", "2", "rollback to a"],
    "middle is rolled back": ["1", "savepoint a", "2", "3", "rollback to a", "4"],
    "all is rolled back": ["savepoint a", "1", "2", "rollback to a"],
    "released": ["1", "savepoint a", "2", "savepoint b", "3", "release b", "release a", "4"],
    "inner is rolled back, outer released": ["savepoint a", "1", "savepoint b", "2", "rollback to b", "3", "release a"],
    "inner is released, outer rolled back": ["savepoint a", "1", "savepoint b", "2", "release b", "rollback to a", "3"],
    "twice to the same": ["1", "savepoint a", "2", "rollback to a", "3", "rollback to a", "4", "rollback to a", "5"],
    "nested, places used again": [
        *("savepoint a", "1", "savepoint b", "2", "rollback to b", "3"),
        *("rollback to a", "4", "savepoint c", "5", "rollback to c", "6"),
    ],
}


def test_g3_a_rolled_back_savepoint_leaves_no_event(house):
    for name, steps in SAVEPOINTS.items():
        kept: list[str] = []
        marks: dict[str, int] = {}
        house.run("update plan set title = null, remark = null")
        house.news()
        with house.engine.begin() as connection:
            raw = connection.connection.cursor()
            if house.on_sqlite:
                raw.execute("begin")  # Python's driver begins with the first write, which may stand behind a savepoint
            for step in steps:
                if step.isdigit():
                    kept.append(step)
                    raw.execute(f"update plan set title = '{step}', remark = '{step}' where id in ('p1', 'p3')")
                    continue
                raw.execute(step)
                if step.startswith("savepoint"):
                    marks[step[-1]] = len(kept)
                elif step.startswith("rollback"):
                    del kept[marks[step[-1]] :]
        told = [(event.workspace, event.values["title"][1]) for event in house.events()]
        assert told == [(workspace, step) for workspace in ("w1", "w2") for step in kept], name
        assert house.mistakes() == [], name


def test_g3_a_key_change_is_a_deletion_and_an_insertion(house):
    house.run("update plan set id = 'q2', title = 'due' where id = 'p2'")
    deleted, inserted = house.events()
    assert (deleted.op, deleted.entity_id, deleted.values["title"]) == ("delete", "p2", ("two", None))
    assert (inserted.op, inserted.entity_id, inserted.values["title"]) == ("insert", "q2", (None, "due"))
    house.run("update tag set number = number + 10, color = 'x'")
    assert sorted(house.news()) == [
        'w1 delete tag ["1","a"]',
        'w1 delete tag ["2","b"]',
        'w1 insert tag ["11","a"]',
        'w1 insert tag ["12","b"]',
        'w2 delete tag ["1","c"]',
        'w2 insert tag ["11","c"]',
    ]
    assert house.mistakes() == []


def test_g3_keys_that_change_places_stay_apart(house):
    house.run(
        "update item set id = id + 100",
        "update tag set name = 'tmp' where name = 'a'",
        "update tag set name = 'a', number = 1 where name = 'b'",
        "update tag set name = 'b', number = 2 where name = 'tmp'",
    )
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []


def test_g3_a_row_that_moves_to_another_workspace_leaves_one_and_enters_the_other(house):
    house.run("update plan set workspace_id = 'w9', title = 'moved' where id = 'p2'")
    events = {event.workspace: event for event in house.events()}
    assert (events["w1"].op, events["w1"].entity_id, events["w1"].values["title"]) == ("delete", "p2", ("two", None))
    assert (events["w9"].op, events["w9"].entity_id, events["w9"].values["title"]) == ("insert", "p2", (None, "moved"))
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []


def test_g3_rows_below_a_parent_that_moves_move_too(house):
    house.run("update plan set workspace_id = 'w9' where id = 'p1'")
    moved = ["item 1", "item 2", "plan p1", 'tag ["1","a"]', 'tag ["2","b"]']
    assert sorted(house.news()) == [*(f"w1 delete {one}" for one in moved), *(f"w9 insert {one}" for one in moved)]
    assert house.mistakes() == []
    house.run("update item set plan_id = 'p2' where id = 1")  # one level down
    moved = ["item 1", 'tag ["1","a"]', 'tag ["2","b"]']
    assert sorted(house.news()) == [*(f"w1 insert {one}" for one in moved), *(f"w9 delete {one}" for one in moved)]
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []


def test_g3_another_parent_in_the_same_workspace_is_an_update(house):
    house.run("update item set plan_id = 'p2' where id = 1")
    assert house.news() == ["w1 update item 1 plan_id"]
    assert house.mistakes() == []


def test_g3_moves_of_many_rows_in_one_statement(house):
    house.run(
        "update plan set workspace_id = case workspace_id when 'w1' then 'w2' else 'w1' end",
        "update plan set workspace_id = workspace_id || 'x', id = 'k' || id",
        "update item set plan_id = 'kp3'",
        "update plan set workspace_id = 'one'",
    )
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []


def test_g3_a_parent_and_its_children_moved_and_deleted_in_one_transaction(house):
    house.run(
        "update plan set workspace_id = 'w5' where id = 'p1'",
        "update item set title = 'x' where plan_id = 'p1'",
        "delete from plan where id = 'p1'",
        "insert into plan (id, workspace_id) values ('p1', 'w2')",
        "insert into item (id, plan_id, title, done) values (1, 'p1', 'again', true)",
        "update plan set workspace_id = 'w1' where id = 'p1'",
    )
    assert house.mistakes() == []
    # The tags lost their item on the way, and with it their workspace.
    assert [(finding.code, finding.entity_type) for finding in house.hub.blocking.check()] == [("without_workspace", "tag")]


def test_g3_a_row_without_a_workspace_is_an_error_that_says_what_to_do(house):
    for statement in (
        "insert into plan (id, title) values ('nowhere', 'x')",
        "update plan set workspace_id = null where id = 'p1'",
    ):
        with pytest.raises(sa.exc.DBAPIError, match=r"abreast: .*no workspace"):
            house.run(statement)
    assert house.news() == []
    assert house.mistakes() == []


def test_g3_a_row_without_a_workspace_is_recorded_as_a_miss_where_so_declared(house):
    house.run(
        "insert into tag (number, name, item_id) values (7, 'loose', null)",
        "update tag set color = 'x' where number = 7",
        "update tag set item_id = 1 where number = 7",
        "update tag set item_id = null where number = 7",
        "delete from tag where number = 7",
    )
    assert house.news() == ['w1 insert tag ["7","loose"]', 'w1 delete tag ["7","loose"]']
    assert house.value(f"select count(*) from {house.own('miss')} where entity_type = 'tag'") >= 3
    assert [(finding.code, finding.entity_type) for finding in house.hub.blocking.check()] == [("without_workspace", "tag")]
    assert house.mistakes() == []


# -- JSON, text ---------------------------------------------------------------------------------------------------

SAME = [
    ('{"a":1,"b":[1,2]}', '{"b": [1, 2], "a": 1}'),
    ('{"a":{"x":1,"y":2}}', '{"a":{"y":2,"x":1}}'),
    ('"\\u0041"', '"A"'),
    ("{}", "{ }"),
    ('{"1":1,"0":2}', '{"0":2,"1":1}'),
    ("[1.0]", "[1.0 ]"),
]
OTHER = [
    ('{"a":1}', '{"a":2}'),
    ("[1,2]", "[2,1]"),
    ('{"a":1}', '{"a":"1"}'),
    ('{"a":null}', "{}"),
    ("[12345678901234567890]", "[12345678901234567891]"),
    ('{"a":true}', '{"a":1}'),
    ("[[]]", "[{}]"),
    ('{"a":{"x":1}}', '{"a":{"x":{}}}'),
    ("[false]", "[0]"),
    ('[""]', "[null]"),
    ('"a"', '"b"'),
]


def test_g3_json_is_compared_by_value(house):
    parameter = ":d" if house.on_sqlite else "cast(:d as json)"
    for before, after, changed in [(*pair, False) for pair in SAME] + [(*pair, True) for pair in OTHER]:
        house.run("update plan set details = null")
        house.news()
        for text in (before, after, before):
            with house.engine.begin() as connection:
                connection.execute(sa.text(f"update plan set details = {parameter} where id = 'p1'"), {"d": text})
        events = house.events()
        assert len(events) == (3 if changed else 1), (before, after)
        old, new = json.loads(before), json.loads(after)
        expected = [(None, old), (old, new), (new, old)]
        assert [event.values["details"] for event in events] == expected[: len(events)]
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []


def test_g3_json_null_and_sql_null_are_different(house):
    cast = "" if house.on_sqlite else "::json"
    house.run(f"update plan set details = 'null'{cast} where id = 'p1'", "update plan set details = null where id = 'p1'")
    assert house.news() == ["w1 update plan p1 details"] * 2


def test_g3_a_json_string_stays_a_string(house):
    cast = "" if house.on_sqlite else "::json"
    for text in ("5", "[1]", "null", "true", "5.0"):
        house.run(f"update plan set details = '{json.dumps(text)}'{cast} where id = 'p1'")
        (event,) = house.events()
        assert event.values["details"][1] == text
    (row,) = [row for row in house.hub.blocking.rows(Plan, "w1").rows if row.entity_id == "p1"]
    assert row.values["details"] == "5.0"
    assert house.hub.blocking.check() == []


def test_g3_json_of_any_depth_spoils_no_batch(house):
    """It is data of the product's users: nobody may stop an assistant by nesting it."""
    parameter = ":d" if house.on_sqlite else "cast(:d as json)"
    for depth in (50, 150, 500, 2500):
        with house.engine.begin() as connection:
            statement = f"update plan set details = {parameter} where id = 'p1'"
            connection.execute(sa.text(statement), {"d": "[" * depth + "2.5" + "]" * depth})
        (event,) = house.events()
        assert event.fields == ("details",)
        batch = house.hub.blocking.batch("w1", after=0)
        shown = [row.values["details"] for row in batch.rows if row.entity_id == "p1"]
        json.dumps([shown, [dict(each.values) for each in batch.events]], allow_nan=False)
        assert len(house.hub.blocking.history("w1", limit=1)) == 1
        assert house.hub.blocking.check() == []


def test_g3_a_change_of_case_is_a_change(database, hubs):
    """Also where the column's collation calls both texts equal, as SQLite's NOCASE does."""
    collation = "nocase" if database.kind == "sqlite" else "C"
    engine = database.engine()
    metadata = sa.MetaData()
    person = sa.Table(
        "person",
        metadata,
        sa.Column("id", sa.Text(collation=collation), primary_key=True),
        sa.Column("workspace_id", sa.Text(collation=collation)),
        sa.Column("name", sa.Text(collation=collation)),
    )
    metadata.create_all(engine)
    hub = hubs(database)
    hub.track(person, workspace="workspace_id", record="all")
    hub.blocking.install()
    house = House(database, hub, engine, (Watched(person, set(person.columns.keys()), lambda row, find: row["workspace_id"]),))
    house.run("insert into person values ('a', 'w', 'ada'), ('b', 'w', 'bob')")
    house.news()
    house.run("update person set name = 'Ada' where id = 'a'")
    (event,) = house.events()
    assert (event.op, event.fields, event.values) == ("update", ("name",), {"name": ("ada", "Ada")})
    house.run("update person set name = 'ADA' where id = 'a'", "update person set name = upper(name)")
    assert house.news() == ["w update person a name", "w update person b name"]
    house.run("update person set id = 'A' where id = 'a'")
    assert house.news() == ["w delete person a", "w insert person A"]
    house.run("update person set workspace_id = 'W' where id = 'b'")
    assert house.news() == ["W insert person b", "w delete person b"]
    assert house.mistakes() == []
    assert hub.blocking.check() == []


# -- keys and values of every kind -----------------------------------------------------------------------------------

KEYS = {
    "text": (sa.Text(), ["a", "A", "", "with space", 'q"uote', "가", "[1]", '["a","b"]', "0", "x" * 300]),
    "integer": (sa.Integer(), [0, -1, 2**31 - 1]),
    "bigint": (sa.BigInteger(), [2**53 + 1, -(2**63), 2**63 - 1]),
    "uuid": (sa.Uuid(), [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]),
    "date": (sa.Date(), [dt.date(2026, 9, 30), dt.date(1, 1, 1)]),
    "datetime": (
        sa.DateTime(),
        [dt.datetime.fromisoformat("2026-09-30 01:02:03"), dt.datetime.fromisoformat("2026-09-30 01:02:03.45")],
    ),
    "decimal": (sa.Numeric(12, 3), [Decimal("1.500"), Decimal("2.250"), Decimal("-3.125")]),
    "float": (sa.Double(), [0.1 + 0.2, 0.3, 1e300]),
    "boolean": (sa.Boolean(), [True, False]),
    "bytes": (sa.LargeBinary(), [b"\x00\xff", b"abcd"]),
    "enum": (sa.Enum("low", "high", name="grade"), ["low", "high"]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_g3_keys_of_every_kind_name_the_same_entity_in_events_and_rows(database, hubs, kind):
    declared, keys = KEYS[kind]
    engine = database.engine()
    metadata = sa.MetaData()
    hub = hubs(database)
    tables = []
    for name, columns in (("single", ["id"]), ("pair", ["id", "second"])):
        more = [sa.Column("second", sa.Text, primary_key=True)] if name == "pair" else []
        thing = sa.Table(
            name, metadata, sa.Column("id", declared, primary_key=True, autoincrement=False), *more, sa.Column("n", sa.Integer)
        )
        part = sa.Table(
            f"part_of_{name}",
            metadata,
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("thing_id", declared),
            *[sa.Column("second", sa.Text) for _ in more],
            sa.ForeignKeyConstraint(
                ["thing_id", *columns[1:]], [f"{name}.{column}" for column in columns], ondelete="CASCADE", onupdate="CASCADE"
            ),
        )
        hub.track(thing, workspace=constant("w"), record={"n"})
        hub.track(part, workspace=via(["thing_id", *columns[1:]], thing))
        tables.append((thing, part, {"second": 'a"b'} if more else {}))
    metadata.create_all(engine)
    hub.blocking.install()
    house = House(database, hub, engine)
    for thing, part, second in tables:
        with engine.begin() as connection:
            connection.execute(sa.insert(thing), [{"id": key, "n": 1, **second} for key in keys])
            connection.execute(sa.insert(part), [{"id": n, "thing_id": key, **second} for n, key in enumerate(keys)])
            if database.kind == "postgresql":
                connection.exec_driver_sql("set local timezone = 'Asia/Seoul'")
                connection.exec_driver_sql("set local datestyle = 'German'")
            for key in keys:
                connection.execute(sa.update(thing).where(thing.c.id == key).values(n=2))
        events = [event for event in house.events() if event.entity_type == thing.name]
        inserted = {event.entity_id for event in events if event.op == "insert"}
        assert len(inserted) == len(keys)
        assert {event.entity_id for event in events if event.op == "update"} == inserted
        rows = hub.blocking.rows(thing, "w").rows
        assert {row.entity_id for row in rows} == inserted
        for entity_id in inserted:
            row = hub.blocking.row(thing, entity_id, "w")
            assert (row.entity_id, row.values["n"]) == (entity_id, 2)
            assert row.version > 0
        assert hub.blocking.check() == []
        with engine.begin() as connection:
            connection.execute(sa.delete(thing))
        deleted = [event for event in house.events() if event.op == "delete"]
        assert {event.entity_id for event in deleted if event.entity_type == thing.name} == inserted
        assert len([event for event in deleted if event.entity_type == part.name]) == len(keys)
        assert hub.blocking.check() == []


VALUES = {
    "text": (sa.Text(), ["", "a\nb", "é😀", '"\\', "null", "x" * 5000], None),
    "integer": (sa.BigInteger(), [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)], None),
    "boolean": (sa.Boolean(), [True, False], None),
    "float": (sa.Double(), [0.1 + 0.2, -0.5, 1e300, 5e-324, 3.0], None),
    "infinite": (sa.Double(), [float("inf"), float("-inf")], ["Infinity", "-Infinity"]),
    "decimal": (
        sa.Numeric(30, 2),
        [Decimal("1200.50"), Decimal("-0.01"), Decimal("0.00"), Decimal("99.90")],
        ["1200.50", "-0.01", "0.00", "99.90"],
    ),
    "date": (sa.Date(), [dt.date(2026, 9, 30), dt.date(1, 1, 1), dt.date(9999, 12, 31)], None),
    "datetime": (
        sa.DateTime(),
        [dt.datetime.fromisoformat("2026-09-30 01:02:03"), dt.datetime.fromisoformat("2026-09-30 00:00:00.5")],
        None,
    ),
    "time": (sa.Time(), [dt.time(1, 2, 3), dt.time(0, 0, 0, 250000), dt.time(10, 20, 30)], None),
    "uuid": (sa.Uuid(), [uuid.UUID(int=1), uuid.UUID("0123456789abcdef0123456789abcdef")], None),
    "bytes": (sa.LargeBinary(), [b"", b"\x00\xff", b"abcd", b"\\x41"], ["", "AP8=", "YWJjZA==", "XHg0MQ=="]),
    "enum": (sa.Enum("low", "high", name="grade"), ["low", "high"], None),
    "json": (sa.JSON(none_as_null=True), [{"a": [1, 2.5, None, "x", True]}, [], "text", 5, 2.5, {"b": {"c": "é"}}], None),
}
WRITTEN = {
    "date": ["2026-09-30", "0001-01-01", "9999-12-31"],
    "datetime": ["2026-09-30T01:02:03", "2026-09-30T00:00:00.5"],
    "time": ["01:02:03", "00:00:00.25", "10:20:30"],
    "uuid": ["00000000-0000-0000-0000-000000000001", "01234567-89ab-cdef-0123-456789abcdef"],
}


def test_g3_values_have_one_json_form_in_events_and_rows_on_both_databases(database, hubs):
    engine = database.engine()
    thing = sa.Table(
        "thing",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace_id", sa.Text),
        *[sa.Column(kind, declared) for kind, (declared, *_) in VALUES.items()],
    )
    thing.metadata.create_all(engine)
    hub = hubs(database)
    hub.track(thing, workspace="workspace_id", record="all")
    hub.blocking.install()
    house = House(database, hub, engine)
    with engine.begin() as connection:
        connection.execute(sa.insert(thing).values(id=1, workspace_id="w"))
    assert set(house.events()[0].values.values()) == {(None, 1), (None, "w"), (None, None)}
    for kind, (_, values, expected) in VALUES.items():
        forms = WRITTEN.get(kind, values) if expected is None else expected
        before = None
        for value, form in zip(values, forms, strict=True):
            with engine.begin() as connection:
                connection.execute(sa.update(thing).values({kind: value}))
            (event,) = house.events()
            assert event.values == {kind: (before, form)}
            assert type(event.values[kind][1]) is type(form)
            json.dumps(form, allow_nan=False)
            (row,) = hub.blocking.rows(thing, "w").rows
            shown = f"({len(value)} bytes)" if kind == "bytes" else form if len(str(form)) <= 4000 else form[:4000] + "…"
            assert row.values[kind] == shown
            assert hub.blocking.check() == [], (kind, value)
            before = form
        with engine.begin() as connection:
            connection.execute(sa.update(thing).values({kind: None}))
        assert house.events()[0].values == {kind: (before, None)}


WORKSPACES = {
    "text": (sa.String(20), "a'b"),
    "enum": (sa.Enum("north", "south", name="region"), "north"),
    "integer": (sa.BigInteger(), 7),
    "uuid": (sa.Uuid(), uuid.UUID(int=7)),
    "date": (sa.Date(), dt.date(2026, 9, 30)),
}


@pytest.mark.parametrize("kind", WORKSPACES)
def test_g3_a_workspace_may_be_of_any_kind(database, hubs, kind):
    declared, workspace = WORKSPACES[kind]
    engine = database.engine()
    metadata = sa.MetaData()
    top = sa.Table("top", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("place", declared))
    below = sa.Table(
        "below", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("top_id", sa.ForeignKey("top.id"))
    )
    metadata.create_all(engine)
    hub = hubs(database)
    hub.track(top, workspace="place", record="all")
    hub.track(below, workspace=via("top_id", top))
    hub.blocking.install()
    with engine.begin() as connection:
        connection.execute(sa.insert(top).values(id=1, place=workspace))
        connection.execute(sa.insert(below).values(id=2, top_id=1))
    batch = hub.blocking.batch(str(workspace), after=0)
    assert [(event.entity_type, event.entity_id) for event in batch.events] == [("top", "1"), ("below", "2")]
    assert {(row.entity_type, row.entity_id) for row in batch.rows} == {("top", "1"), ("below", "2")}
    assert hub.blocking.row(below, "2", str(workspace)).version == 2
    assert hub.blocking.check() == []
