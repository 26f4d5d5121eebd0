"""G17 and G18 for the write tools that are made from tracked tables: an agent's create, update and delete."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
import sqlalchemy as sa
from langchain_core.messages import AIMessage

from abreast import (
    ConfigurationError,
    LeaseLostError,
    Readable,
    RunContext,
    Writable,
    agent,
    constant,
    system,
    update,
    user,
)
from abreast.testing import ScriptedModel, calls
from planner import Item, Plan
from talk import Talk, said
from toolcalls import ask, call, error, events, numbered, read, theirs


def test_g17_the_agents_update_is_made_under_the_version_it_read(database, hubs, door):
    talk = Talk(database, hubs, door)
    ((told, status),) = ask(talk, calls("update_plan", id="p1", version=1, move_in_date="2026-09-30"), thread="t7")
    assert (told, status) == ({"id": "p1", "version": 4, "revision": 4, "move_in_date": "2026-09-30"}, "success")
    assert read(talk).values["move_in_date"] == "2026-09-30"
    assert (read(talk).version, read(talk).values["title"]) == (4, "Mapo")
    event = events(talk)[0]
    assert (event.op, event.fields, event.actor, event.thread) == ("update", ("move_in_date",), agent(), "t7")
    assert event.mutation.startswith("call:")
    assert talk.hub.blocking.check() == []


def test_g17_an_edit_in_between_is_kept_and_the_agent_decides_again(database, hubs, door):
    """PITFALLS B14 and B15: the person's text stays; the answer has values and version; the second call is one event."""
    talk = Talk(database, hubs, door)
    seen: list[Any] = []

    def first(_):
        return calls("get_plan", id="p1")

    def late(messages):
        version = json.loads(said(messages[-1]))["version"]
        talk.hub.blocking.apply("w1", update(Plan, "p1", title="the person's"), actor=user("u_1"))
        return calls("update_plan", call_id="c2", id="p1", version=version, title="the agent's", budget="900.00")

    def again(messages):
        answer = next(m for m in reversed(messages) if m.type == "tool")
        seen.append((json.loads(said(answer)), answer.status, talk.head(), read(talk).values["title"]))
        version = json.loads(said(answer))["current"]["version"]
        return calls("update_plan", call_id="c3", id="p1", version=version, budget="900.00")

    *_, (told, status) = ask(talk, first, late, again)
    ((conflict, failed, head, title),) = seen
    assert (failed, head, title) == ("error", 4, "the person's")
    assert conflict["current"] == {
        "id": "p1",
        "version": 4,
        "workspace_id": "w1",
        "title": "the person's",
        "move_in_date": "2026-09-28",
        "budget": "1200.50",
    }
    assert "version 4" in conflict["do"]
    assert (told, status) == ({"id": "p1", "version": 5, "revision": 5, "budget": "900.00"}, "success")
    assert [(e.actor, e.fields) for e in events(talk)[:2]] == [(agent(), ("budget",)), (user("u_1"), ("title",))]
    assert [e.actor for e in events(talk)].count(agent()) == 1
    assert read(talk).values["title"] == "the person's"


def test_g17_rows_are_created_and_deleted(database, hubs, door):
    talk = Talk(database, hubs, door, plan={"record": "all"})
    numbered(talk)
    tools = talk.hub.tools(actor=agent("helper"))
    made, gone, again = ask(
        talk,
        calls("create_item", plan_id="p1", title="keys"),
        calls("delete_item", id=2, version=3),
        calls("delete_item", id="2", version=5),
        tools=tools,
    )
    key = made[0]["id"]
    assert made == ({"id": key, "version": 4, "revision": 4, "plan_id": "p1", "title": "keys", "done": False}, "success")
    assert gone == ({"deleted": 2, "revision": 5}, "success")
    assert error(again) == "There is no item '2' here."
    assert [(e.op, e.entity_id, e.actor) for e in events(talk)[:2]] == [
        ("delete", "2", agent("helper")),
        ("insert", str(key), agent("helper")),
    ]
    ((plan, _),) = ask(talk, calls("create_plan", id="p9", title="second", budget=None), tools=tools)
    assert plan == {"id": "p9", "version": 6, "revision": 6, "title": "second", "budget": None}
    assert read(talk, Plan, "p9").values["workspace_id"] == "w1"


def test_g17_the_conversation_hears_of_its_own_write_as_you_and_another_by_name(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run("hello", thread="other")
    ask(talk, calls("update_plan", id="p1", version=1, title="new"), tools=talk.hub.tools(actor=agent("helper")), thread="mine")
    assert "r4, you, " in talk.block()
    talk.run("and now?", thread="other")
    assert "r4, agent helper, " in talk.block()


def test_g17_a_call_without_a_version_is_told_where_it_is_found(database, hubs, door):
    talk = Talk(database, hubs, door)
    answers = ask(
        talk,
        calls("update_plan", id="p1", title="x"),
        calls("delete_plan", id="p1"),
        calls("update_plan", version=1, title="x"),
        calls("update_plan", id="p1", version=1),
        calls("update_plan", id="p1", version="soon", title="x"),
    )
    texts = [error(answer) for answer in answers]
    assert "`version`" in texts[0]
    assert "get_plan" in texts[0]
    assert "get_plan" in texts[1]
    assert "list_plan" in texts[2]
    assert "which fields" in texts[3]
    assert "whole number" in texts[4]
    assert talk.head() == 3


def test_g17_bad_values_are_named_and_nothing_is_written(database, hubs, door):
    talk = Talk(database, hubs, door)
    answers = ask(
        talk,
        calls("update_plan", id="p1", version=1, move_in_date="tomorrow", budget="much", titel="x"),
        calls("update_plan", id="p1", version=1, workspace_id="w2"),
        calls("update_item", id=1, version=2, id_=7),
        calls("update_item", id=1, version=2, done=None),
        calls("create_item", plan_id="p1"),
        calls("create_plan", id="p1", title="taken"),
        calls("update_plan", id="p1", version=1, title="nul \0"),
        calls("update_plan", id="p1", version=1, title="half \ud83d"),
        calls("create_plan", id="x" * 41, title="long"),
    )
    texts = [error(answer) for answer in answers]
    for name in ("move_in_date: ", "budget: ", "titel: "):
        assert name in texts[0]
    assert "workspace_id: may not be written" in texts[1]
    assert "id_: " in texts[2]
    assert "done: " in texts[3]
    assert "title: " in texts[4]
    assert "refused" in texts[5]
    assert "NUL" in texts[6]
    assert "surrogate" in texts[7]
    assert "id: " in texts[8]
    assert talk.head() == 3


def test_g17_null_empties_a_field_and_what_is_left_out_stays(database, hubs, door):
    talk = Talk(database, hubs, door)
    emptied, kept = ask(
        talk,
        calls("update_plan", id="p1", version=1, budget=None),
        calls("update_plan", id="p1", version=4, title="kept"),
    )
    assert emptied[0] == {"id": "p1", "version": 4, "revision": 4, "budget": None}
    assert kept[0] == {"id": "p1", "version": 5, "revision": 5, "title": "kept"}
    assert dict(read(talk).values) == {
        "id": "p1",
        "workspace_id": "w1",
        "title": "kept",
        "move_in_date": "2026-09-28",
        "budget": None,
    }


def test_g17_a_field_is_found_under_the_name_that_current_shows(database, hubs, door):
    talk = Talk(database, hubs, door)
    named = {"move_in_date (입주일)": "2026-10-01"}
    ((told, _),) = ask(talk, calls("update_plan", id="p1", version=1, **named))
    assert told["move_in_date"] == "2026-10-01"


# -- workspaces, keys and tables ---------------------------------------------------------------------------------------


def test_g17_with_several_workspaces_a_row_is_written_where_it_is(database, hubs, door):
    talk = Talk(database, hubs, door, workspaces=lambda context: context.workspace.split("+"))
    theirs(talk)
    numbered(talk)
    both = RunContext(tenant="t1", user="u_1", workspace="w1+w2")
    answers = ask(
        talk,
        calls("update_plan", id="q1", version=1, title="ours"),
        calls("update_plan", id="p1", version=1, title="ours too"),
        calls("create_plan", id="r1", title="where?"),
        calls("create_plan", id="r1", title="there", workspace="w2"),
        calls("create_plan", id="r2", title="no", workspace="w3"),
        calls("create_item", plan_id="q1", title="by its plan"),
        calls("delete_item", id=50, version=2),
        calls("delete_item", id=777, version=2),
        context=both,
    )
    assert answers[0][0] == {"id": "q1", "version": 3, "revision": 3, "title": "ours"}
    assert answers[1][0] == {"id": "p1", "version": 4, "revision": 4, "title": "ours too"}
    assert "w1, w2" in error(answers[2])
    assert answers[3][0] == {"id": "r1", "version": 4, "revision": 4, "title": "there"}
    assert "'w3'" in error(answers[4])
    key = answers[5][0]["id"]
    assert answers[5][0] == {"id": key, "version": 5, "revision": 5, "plan_id": "q1", "title": "by its plan", "done": False}
    assert answers[6][0] == {"deleted": 50, "revision": 6}
    assert error(answers[7]) == "There is no item '777' here."
    assert (talk.head("w1"), talk.head("w2")) == (4, 6)


def core_tables() -> tuple[sa.Table, sa.Table]:
    """Tables without a mapped class: a public one with a version column, one whose key is two columns, one that refers."""
    metadata = sa.MetaData()
    league = sa.Table(
        "league",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("revision_no", sa.Integer, nullable=False, server_default="1"),
    )
    seat = sa.Table(
        "seat",
        metadata,
        sa.Column("home", sa.Integer, primary_key=True),
        sa.Column("row", sa.String(5), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Text),
        sa.Column("config", sa.Text),
        sa.Column("league_id", sa.ForeignKey("league.id")),
        sa.Column("sold_at", sa.DateTime(timezone=True), onupdate=lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    )
    return league, seat


@pytest.fixture
def stadium(database, hubs, door):
    """A talk over tables of SQLAlchemy Core, in an integer workspace and a public one."""
    league, seat = core_tables()
    talk = Talk.__new__(Talk)
    talk.door, talk.engine = door, database.engine()
    league.metadata.create_all(talk.engine)
    talk.hub = hubs(database, workspaces=lambda context: [7, "league"])
    talk.hub.track(league, workspace=constant("league"), version="revision_no", record="all")
    talk.hub.track(seat, workspace="home", record="all")
    talk.hub.blocking.install()
    with talk.engine.begin() as connection:
        connection.execute(league.insert().values(id=1, name="first"))
        connection.execute(seat.insert().values(home=7, row="Z", number=1))
    talk.model, talk.saver = ScriptedModel(), None
    return talk


def test_g17_tables_of_core_with_keys_of_several_columns(stadium, door):
    tools = stadium.hub.tools()
    made, changed, listed, texts, gone, absent = ask(
        stadium,
        calls("create_seat", row="A", number=3, version_="first", config_="x", workspace="7"),
        calls("update_seat", id='["7", "A", "3"]', version=2, version_="second"),
        calls("update_seat", id=[7, "A", 3], version=3, config_=None),
        calls("update_seat", id="A3", version=4, config_="y"),
        calls("delete_seat", id='["7","A","3"]', version=4),
        calls("delete_seat", id='["7","A","3"]', version=5),
        tools=tools,
    )
    key = '["7","A","3"]'
    assert made[0] == {"id": key, "version": 2, "revision": 2, "row": "A", "number": 3, "version_": "first", "config_": "x"}
    assert changed[0]["version_"] == "second"
    assert (changed[0]["id"], changed[0]["version"], changed[0]["sold_at"][:10]) == (key, 3, "2026-01-01")
    assert listed[0] == {"id": key, "version": 4, "revision": 4, "config_": None}
    assert "JSON list of its key" in error(texts)
    assert gone[0] == {"deleted": key, "revision": 5}
    assert "There is no seat" in error(absent)


def test_g17_a_version_column_of_the_application_is_the_version(stadium, door):
    made, changed, late, seat, none = ask(
        stadium,
        call("create_league", id=5, name="KBO"),
        call("update_league", id=5, version=1, name="K"),
        call("update_league", id=5, version=1, name="late"),
        calls("create_seat", row="B", number=1, league_id=5, workspace="7"),
        calls("create_seat", row="B", number=2, league_id=6, workspace="7"),
    )
    assert made[0] == {"id": 5, "version": 1, "revision": 2, "name": "KBO"}
    assert changed[0] == {"id": 5, "version": 2, "revision": 3, "name": "K"}
    assert late[0]["current"] == {"id": 5, "version": 2, "name": "K", "revision_no": 2}
    assert seat[1] == "success"
    assert error(none) == "There is no league '6' here."


# -- once --------------------------------------------------------------------------------------------------------------


def test_g18_the_same_call_again_in_a_turn_is_answered_from_the_first(database, hubs, door):
    talk = Talk(database, hubs, door)
    numbered(talk)
    made = {"name": "create_item", "args": {"plan_id": "p1", "title": "keys"}}
    together = AIMessage("", tool_calls=[{**made, "id": "a"}, {**made, "id": "b"}])
    answers = ask(
        talk, calls("update_plan", id="p1", version=1, title="x"), calls("update_plan", id="p1", version=1, title="x"), together
    )
    first = {"id": "p1", "version": 4, "revision": 4, "title": "x"}
    assert [told for told, _ in answers[:2]] == [first, {**first, "repeated": True}]
    first, repeat = sorted((told for told, _ in answers[2:]), key=len)
    assert (first["version"], first["title"]) == (5, "keys")
    assert repeat == {**first, "repeated": True}
    assert talk.head() == 5


def test_g18_what_a_repeat_tells_is_what_this_person_may_read_now(database, hubs, door):
    hidden: set[str] = set()
    talk = Talk(database, hubs, door, plan={"readable": lambda _: Readable(hide=hidden)})

    def again(_):
        hidden.add("budget")
        return calls("update_plan", call_id="c2", id="p1", version=1, title="x")

    # The application's own trigger moves a field that the agent did not name.
    if database.kind == "sqlite":
        talk.sql("create trigger more after update of title on plan begin update plan set budget = 7 where id = new.id; end")
    else:
        talk.sql(
            "create function more() returns trigger language plpgsql as $$ begin new.budget := 7; return new; end $$",
            "create trigger more before update of title on plan for each row execute function more()",
        )
    first, repeat = ask(talk, calls("update_plan", id="p1", version=1, title="x"), again)
    assert first[0]["budget"] == "7.00"
    assert repeat[0] == {k: v for k, v in first[0].items() if k != "budget"} | {"repeated": True}


def test_g18_an_error_that_passes_is_tried_again_under_the_same_mutation(postgres, hubs, door):
    talk = Talk(postgres, hubs, door)
    talk.sql(
        "create sequence tries",
        "create function trip() returns trigger language plpgsql as $$ begin "
        "if nextval('tries') <= (select count(*) from trips) then raise exception using errcode = '40001'; end if; "
        "return new; end $$",
        "create table trips (n integer)",
        "create trigger trip before update on plan for each row execute function trip()",
        "insert into trips values (1), (2)",
    )
    ((told, status),) = ask(talk, calls("update_plan", id="p1", version=1, title="x"))
    assert (told["version"], status) == (4, "success")
    talk.sql("insert into trips select generate_series(1, 99)")
    (failed,) = ask(talk, calls("update_plan", id="p1", version=4, title="y"))
    assert "once more" in failed[0]["do"]
    assert error(failed)
    with talk.engine.connect() as connection:
        assert connection.exec_driver_sql("select last_value from tries").scalar_one() == 6
    assert talk.head() == 4


def test_g19_a_run_that_lost_its_thread_writes_no_row(database, hubs, door):
    """Another run takes the thread when the tool is about to write."""
    lease = "abreast.lease" if database.kind == "postgresql" else "abreast_lease"
    asked: list[Any] = []

    def stolen(context):
        asked.append(context)
        talk.sql(f"update {lease} set token = token + 1, run = 'another' where thread = 't'")
        return True

    talk = Talk(database, hubs, door, plan={"writable": stolen})
    with pytest.raises(LeaseLostError):
        ask(talk, calls("update_plan", id="p1", version=1, title="x"))
    assert len(asked) == 1
    assert talk.head() == 3


# -- which tools there are ---------------------------------------------------------------------------------------------


def test_g17_the_tools_that_are_wanted(sqlite, hubs, door):
    talk = Talk(sqlite, hubs, door, plan={"writable": Writable({"insert", "update"}, fields={"title"})})
    hub = talk.hub

    def names(*models, **options):
        return [tool.name for tool in hub.tools(*models, **options)]

    reading = ["list_plan", "get_plan", "read_history"]
    assert names(Plan, write=False) == reading
    assert names(Plan) == [*reading, "create_plan", "update_plan"]
    assert names(Plan, Item, write={"update_plan", "delete_item"})[5:] == ["update_plan", "delete_item"]
    assert names(Plan, write=[]) == reading
    assert {tool.metadata["abreast"] for tool in hub.tools(Plan, write=False)} == {"read"}
    tools = {tool.name: tool for tool in hub.tools(Plan)}
    assert tools["create_plan"].metadata == {"abreast": "write"}
    assert set(tools["update_plan"].args) == {"id", "version", "title"}
    assert set(tools["create_plan"].args) == {"workspace", "id", "title"}
    for wrong in ({"delete_plan"}, {"update_plans"}, "update_plan"):
        with pytest.raises(ConfigurationError, match="update_plan"):
            hub.tools(Plan, write=wrong)


def test_g17_the_write_tools_of_another_actor(database, hubs, door):
    talk = Talk(database, hubs, door)
    ask(talk, calls("update_plan", id="p1", version=1, title="x"), tools=talk.hub.tools(Plan, actor=system("night")))
    assert events(talk)[0].actor == system("night")
