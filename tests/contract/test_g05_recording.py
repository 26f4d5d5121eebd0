"""G5, values: the log holds old and new values only of fields declared safe, and nothing of abreast shows the others."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent

from abreast import RunContext, constant, via
from abreast.testing import ScriptedModel, calls
from house import Game, House, Item, Plan, Tag

CANARY = "canary-4711"
CONTEXT = RunContext(tenant="t1", user="u1", workspace="w1")


@pytest.fixture
def house(database, hubs) -> House:
    """All fields of a plan are recorded, but for the secret."""
    return tracked(database, hubs, record="all", redact={"secret"})


def tracked(database, hubs, **plan) -> House:
    engine = database.engine()
    Plan.metadata.create_all(engine)
    hub = hubs(database)
    hub.track(Plan, workspace="workspace_id", **plan)
    hub.track(Item, workspace=via("plan_id", Plan))
    hub.track(Tag, workspace=via("item_id", Item), without_workspace="record")
    hub.track(Game, workspace=constant("league"))
    hub.blocking.install()
    return House(database, hub, engine)


def everything_of_ours(house: House) -> str:
    """Every value of every table of abreast, as text."""
    found = []
    inspector = sa.inspect(house.engine)
    schema = None if house.on_sqlite else "abreast"
    tables = [name for name in inspector.get_table_names(schema) if schema or name.startswith("abreast_")]
    assert len(tables) >= 7
    with house.engine.connect() as connection:
        for table in tables:
            rows = connection.exec_driver_sql(f"select * from {schema + '.' if schema else ''}{table}").fetchall()
            found.append(json.dumps([[str(value) for value in row] for row in rows], ensure_ascii=False))
    return "\n".join(found)


def write_canaries(house: House) -> None:
    """Every operation on a row whose redacted field holds the canary."""
    for statement in (
        f"insert into plan (id, workspace_id, title, secret) values ('p1', 'w1', 'one', '{CANARY}')",
        f"update plan set secret = '{CANARY}-2'",
        f"update plan set secret = '{CANARY}-3', title = 'two'",
        "update plan set workspace_id = 'w2' where id = 'p1'",
        "update plan set workspace_id = 'w1'",
        "update plan set id = 'p2' where id = 'p1'",
        f"insert into plan (id, workspace_id) values ('p2', 'w1') on conflict (id) do update set secret = '{CANARY}-4'",
        "update plan set secret = null",
        f"update plan set secret = '{CANARY}-5'",
        "delete from plan where id = 'p2'",
        f"insert into plan (id, workspace_id, title, secret) values ('p3', 'w1', 'three', '{CANARY}')",
    ):
        house.run(statement)


def test_g5_redacted_values_are_in_no_table_of_ours_and_their_change_is_told_by_name(house):
    write_canaries(house)
    assert "two" in everything_of_ours(house), "the control: a recorded value is found"
    assert CANARY not in everything_of_ours(house)
    events = [event for event in house.events() if event.workspace == "w1"]
    assert [event.fields for event in events if event.op == "update"][:2] == [("secret",), ("title", "secret")]
    assert all("secret" not in event.values for event in events)


def test_g5_redacted_values_are_in_no_model_request_and_in_no_answer_of_a_tool(house, database):
    house.run(f"insert into plan (id, workspace_id, title, secret) values ('p0', 'w1', 'before', '{CANARY}')")
    model = ScriptedModel(
        "first",
        calls("list_plan", call_id="c1"),
        calls("get_plan", call_id="c2", entity_id="p3"),
        calls("read_history", call_id="c3"),
        "second",
    )
    agent = create_agent(model, tools=house.hub.tools(), middleware=[house.hub.middleware()], context_schema=RunContext)
    house.hub.blocking.run(agent, "q", thread="t", context=CONTEXT)
    write_canaries(house)
    result = house.hub.blocking.run(agent, "q", thread="t", context=CONTEXT)
    assert result.status == "succeeded"
    requests = [str(message) for request in model.requests for message in request]
    assert any("secret" in text and "three" in text for text in requests), "the control: the row and the field's name are shown"
    assert not [text for text in requests if CANARY in text]
    assert CANARY not in everything_of_ours(house)


def test_g5_fields_that_are_not_recorded_are_logged_by_name_and_shown_in_rows(database, hubs):
    house = tracked(database, hubs, record={"title"})
    house.run(
        f"insert into plan (id, workspace_id, remark) values ('p1', 'w1', '{CANARY}')", f"update plan set remark = '{CANARY}-2'"
    )
    inserted, updated = house.events()
    assert inserted.values == {"title": (None, None)}
    assert (updated.fields, updated.values) == (("remark",), {})
    assert CANARY not in everything_of_ours(house)
    assert house.hub.blocking.row(Plan, "p1", "w1").values["remark"] == f"{CANARY}-2"


def test_g5_nothing_is_recorded_where_nothing_is_declared(database, hubs):
    house = tracked(database, hubs)
    write_canaries(house)
    assert all(event.values == {} for event in house.events())
    assert "two" not in everything_of_ours(house)
    assert CANARY not in everything_of_ours(house)


def test_g5_what_was_recorded_once_and_is_redacted_now_is_not_shown(house, database, hubs):
    house.run(f"insert into plan (id, workspace_id, title) values ('p1', 'w1', '{CANARY}')", "update plan set title = 'x'")
    assert CANARY in str(house.events())
    hub = tracked(database, hubs, record="all", redact={"title"}).hub
    batch = hub.blocking.batch("w1", after=0)
    assert len(batch.events) == 2
    assert CANARY not in str(batch)
    assert CANARY not in str(hub.blocking.history("w1"))
    assert "title" not in hub.blocking.row(Plan, "p1", "w1").values
