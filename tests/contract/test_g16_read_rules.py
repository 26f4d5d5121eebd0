"""G16: a conversation is told only what its person may read, in CURRENT, in CHANGES, in tools and in the history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import (
    ConfigurationError,
    ContextError,
    Readable,
    RunContext,
    UnknownEntityError,
    UnknownWorkspaceError,
    user,
)
from abreast.testing import calls
from planner import CONTEXT, Contact, Item, Plan
from talk import CORNERS, TOOL_CALL, Talk, said, write_tool


def rule_of(answer: Any) -> Callable[[Any], Any]:
    """A read rule that says this to everybody."""
    return lambda context: answer


def ruled(database: Any, hubs: Any, door: Any, rule: Any, **options: Any) -> Talk:
    """A talk whose plans are under this rule; beside p1, which is open, stands a plan that is full of canaries."""
    talk = Talk(database, hubs, door, plan={"readable": rule, "record": "all", "redact": ()}, **options)
    with Session(talk.engine) as session:
        session.add(Plan(id="canary", workspace_id="w1", title="canary", resident_number="canary"))
        session.commit()
    return talk


@CORNERS
def test_g16_rows_that_a_condition_keeps_back_are_nowhere(database, hubs, door):
    talk = ruled(database, hubs, door, lambda context: Plan.id != "canary")
    talk.run()
    assert [row["id"] for row in talk.current()["plan"]] == ["p1"]
    talk.sql("update plan set title = 'canary again' where id = 'canary'", "update plan set title = 'seen' where id = 'p1'")
    asks = [
        calls("list_plan", call_id="1"),
        calls("list_plan", call_id="2", match={"title": "canary again"}),
        get("canary"),
        calls("read_history", call_id="4"),
        calls("read_history", call_id="5", entity_type="plan", entity_id="canary"),
    ]
    talk.say(*asks, "done")
    talk.run(agent=talk.build(talk.hub.tools()))
    assert talk.revisions() == [6]
    results = [said(message) for message in talk.model.requests[-1] if message.type == "tool"]
    assert [row["id"] for row in json.loads(results[0])["rows"]] == ["p1"]
    assert json.loads(results[1]) == {"rows": []}
    assert json.loads(results[2]) == {"error": "There is no plan 'canary' here."}
    assert "canary" not in results[3]
    assert json.loads(results[4]) == {"changes": []}
    assert "canary" not in talk.block()
    with pytest.raises(UnknownEntityError):
        door(talk.hub).row(Plan, "canary", "w1", context=CONTEXT)
    assert [row.entity_id for row in door(talk.hub).rows(Plan, "w1", context=CONTEXT).rows] == ["p1"]
    assert "canary" not in str(door(talk.hub).history("w1", context=CONTEXT))
    assert "canary" not in str(door(talk.hub).batch("w1", after=0, context=CONTEXT))


def get(entity_id: str) -> Any:
    """A call of the tool that gets a plan."""
    message = calls("get_plan")
    message.tool_calls[0]["args"] = {"id": entity_id}
    message.tool_calls[0]["id"] = f"get {entity_id}"
    return message


@CORNERS
def test_g16_hidden_fields_are_nowhere_not_even_by_name(database, hubs, door):
    talk = ruled(database, hubs, door, rule_of(Readable(hide={"resident_number", "title"})))
    talk.run()
    talk.sql("update plan set title = 'canary 2', budget = 5 where id = 'p1'")
    talk.sql("update plan set resident_number = 'canary 3' where id = 'p1'")
    asks = [
        calls("list_plan", call_id="1"),
        get("p1"),
        calls("read_history", call_id="3"),
        calls("list_plan", call_id="4", match={"title": "x"}),
    ]
    talk.say(*asks, "done")
    result = talk.run(agent=talk.build(talk.hub.tools()))
    assert (talk.revisions(), result.told) == ([5], {"w1": 6})  # r6 concerns hidden fields only
    assert "plan p1: budget is now" in talk.block()
    assert set(talk.current()["plan"][0]) == {"id", "move_in_date (입주일)", "budget"}
    tools = [message.text for message in talk.model.requests[-1] if message.type == "tool"]
    assert "has no field 'title' to match" in tools[3]
    for text in (talk.block(), *tools[:3]):
        assert not any(hidden in text.replace("plan canary", "") for hidden in ("resident_number", '"title": "M', "canary 2"))
    batch = door(talk.hub).batch("w1", after=0, context=CONTEXT)
    assert not any({"title", "resident_number"} & set(row.values) for row in batch.rows if row.entity_type == "plan")
    for one in (*batch.events, *door(talk.hub).history("w1", context=CONTEXT)):
        if one.entity_type == "plan":
            assert not {"title", "resident_number"} & ({*one.fields} | {*one.values})


# -- deletions ---------------------------------------------------------------------------------------------------------


@CORNERS
@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (lambda: Plan.id.like("p%"), True),
        (lambda: Plan.title != "x", False),
        (lambda: Plan.title.is_(None), False),
        (lambda: sa.or_(Plan.id == "p2", Plan.title == "x"), True),
        (lambda: sa.and_(Plan.id == "p2", Plan.workspace_id == "w1"), False),
        (lambda: Plan.id.in_(["p1"]), False),
        (lambda: sa.true(), True),
        (lambda: sa.false(), False),
    ],
    ids=["the id", "a column", "no column", "id or column", "id and column", "another id", "everything", "nothing"],
)
def test_g16_a_deletion_is_told_only_if_the_rule_accepts_the_bare_id(database, hubs, door, condition, told):
    """Nothing but the id is left of the row; what a condition says about its columns cannot be known any more."""
    talk = Talk(database, hubs, door, plan={"readable": lambda context: Readable(condition())})
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'Jongno')")
    talk.run()
    talk.sql("delete from plan where id = 'p2'")
    result = talk.run()
    assert (talk.revisions(), result.told) == ([5] if told else [], {"w1": 5})
    assert ("plan p2 was deleted" in talk.block()) is told
    seen = [one.entity_id for one in door(talk.hub).history("w1", context=CONTEXT) if one.op == "delete"]
    assert seen == (["p2"] if told else [])


def test_g16_a_deletion_in_a_table_of_another_schema(postgres, hubs):
    room = sa.Table(
        "room",
        sa.MetaData(schema="house"),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("workspace", sa.Text),
        sa.Column("open", sa.Boolean),
    )
    engine = postgres.engine()
    with engine.begin() as connection:
        connection.exec_driver_sql("create schema house")
        room.create(connection)
    hub = hubs(postgres)
    hub.track(room, workspace="workspace", readable=lambda context: sa.or_(room.c.id == 1, room.c.open))
    hub.blocking.install()
    with engine.begin() as connection:
        connection.execute(room.insert(), [{"id": n, "workspace": "w1", "open": n < 3} for n in (1, 2, 3)])
        connection.execute(room.delete())
    told = [(one.op, one.entity_id) for one in hub.blocking.batch("w1", after=0).events]
    assert told == [("insert", "1"), ("delete", "1")]


# -- what a rule may say -----------------------------------------------------------------------------------------------


SHARE = sa.Table("share", sa.MetaData(), sa.Column("plan_id", sa.String(40)), sa.Column("person", sa.String(40)))


def shared_with(context: Any) -> Any:
    """Plans that somebody shared with this person."""
    return sa.exists().where(SHARE.c.plan_id == Plan.id, SHARE.c.person == context.user)


@CORNERS
def test_g16_a_rule_may_ask_another_table_and_is_asked_at_each_call(database, hubs, door):
    """A right that is given or taken in mid-run counts from the next call on."""
    talk = Talk(database, hubs, door, plan={"readable": shared_with})
    SHARE.create(talk.engine)
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'Jongno')")
    talk.sql("insert into share (plan_id, person) values ('p1', 'u_1')")
    talk.run()
    talk.sql("update plan set title = title || '!'")
    give = write_tool(lambda: talk.sql("insert into share (plan_id, person) values ('p2', 'u_1')"))
    take = write_tool(lambda: talk.sql("delete from share where plan_id = 'p1'"), "take")
    talk.say(TOOL_CALL, calls("take", call_id="2"), "done")
    talk.run(agent=talk.build([give, take]))
    seen = [[row["id"] for row in talk.current(n).get("plan", ())] for n in (1, 2, 3)]
    assert seen == [["p1"], ["p1", "p2"], ["p2"]]
    assert [talk.revisions(n) for n in (1, 2, 3)] == [[5], [5, 6], [6]]
    talk.sql("delete from plan where id = 'p2'", "delete from item", "delete from plan where id = 'p1'")
    talk.run()
    assert "plan p2 was deleted" in talk.block()
    assert "plan p1" not in talk.block()


@CORNERS
def test_g16_a_rule_reads_the_run_context(database, hubs, door):
    """The conversation is the same; the person is not."""
    talk = Talk(database, hubs, door, plan={"readable": lambda context: "plans" in context.permissions})
    allowed = replace(CONTEXT, permissions=frozenset({"plans"}))
    talk.run(context=allowed)
    assert "plan" in talk.current()
    talk.change()
    talk.run(context=CONTEXT)
    assert (talk.current().get("plan", []), talk.revisions(), talk.place()) == ([], [], 4)


class Failure(Exception):
    """A rule's own."""


def fails(context: Any) -> Any:
    raise Failure("secret words")


@CORNERS
@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        (rule_of(True), 1),
        (rule_of(Readable()), 1),
        (rule_of(Plan.title == "Mapo"), 1),
        (rule_of(Readable(Plan.title == "Mapo", hide=["budget"])), 1),
        (rule_of(False), 0),
        (rule_of(Plan.title == "other"), 0),
        (rule_of(None), "returned NoneType"),
        (rule_of("yes"), "returned str"),
        (rule_of(1), "returned int"),
        (rule_of([Plan.id == "p1"]), "returned list"),
        (rule_of(Readable(hide=["no_such_field"])), "hides .*no_such_field"),
        (fails, "failed with Failure"),
        (lambda context: context.nothing, "failed with AttributeError"),
    ],
    ids=[
        "True",
        "all",
        "condition",
        "both",
        "False",
        "no row",
        "None",
        "text",
        "number",
        "list",
        "unknown field",
        "raises",
        "wrong",
    ],
)
def test_g16_what_a_rule_may_answer(database, hubs, door, rule, shown):
    talk = Talk(database, hubs, door, plan={"readable": rule})
    if isinstance(shown, str):
        for go in (talk.run, talk.invoke, lambda: door(talk.hub).rows(Plan, "w1", context=CONTEXT)):
            with pytest.raises(ConfigurationError, match=shown) as raised:
                go()
            assert "secret words" not in str(raised.value)
        assert talk.model.requests == []
        return
    talk.run()
    assert len(talk.current().get("plan", [])) == shown


@CORNERS
def test_g16_without_a_context_nothing_is_read(database, hubs, door):
    """Not by a run, not by a resume, not by a tool; where a context names no workspace, the error says what to do."""
    talk = Talk(database, hubs, door)
    for go in (talk.run, talk.invoke):
        with pytest.raises(ContextError, match="Pass context="):
            go(context=None)
    tools = {tool.name: tool for tool in talk.hub.tools()}
    assert talk.model.requests == []
    talk.say(calls("list_plan"))
    other = talk.build([tools["list_plan"]])
    talk.run(agent=other)
    assert '"id": "p1"' in said(talk.model.requests[-1][-1])
    with pytest.raises(ContextError, match="names no workspace"):
        talk.run(context=object())


# -- several workspaces ------------------------------------------------------------------------------------------------


@CORNERS
def test_g16_each_workspace_is_told_by_itself_and_strangers_are_unknown(database, hubs, door):
    talk = Talk(database, hubs, door, workspaces=lambda context: context.workspace.split(","))
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w2', 'Jongno'), ('p3', 'w3', 'canary')")
    both = RunContext("t1", "u_1", "w1,w2")
    talk.run(context=both)
    talk.sql("update plan set title = title || '!'")
    talk.say(calls("list_plan", call_id="1"), get("p2"), get("p3"), calls("read_history", call_id="4"), "done")
    result = talk.run(context=both, agent=talk.build(talk.hub.tools()))
    assert result.told == {"w1": 4, "w2": 2}
    assert 'workspace w2: {"plan": [{"id": "p2"' in talk.block()
    listed, found, stranger, history = (json.loads(said(m)) for m in talk.model.requests[-1] if m.type == "tool")
    assert {w: [row["id"] for row in page["rows"]] for w, page in listed.items()} == {"w1": ["p1"], "w2": ["p2"]}
    assert found["w2"]["title"] == "Jongno!"
    assert "w1" not in found
    assert {tuple(answer) for answer in stranger.values()} == {("error",)}
    assert {w: len(page["changes"]) for w, page in history.items()} == {"w1": 4, "w2": 2}
    assert "canary" not in str(talk.model.requests)
    with pytest.raises(UnknownWorkspaceError):
        talk.run(context=RunContext("t1", "u_1", "w1,w9"))


@CORNERS
def test_g16_a_row_of_another_workspace_is_not_there(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w2', 'canary')")
    talk.sql("insert into item (id, plan_id, title, done) values (9, 'p2', 'canary', false)")
    with pytest.raises(UnknownEntityError):
        door(talk.hub).row(Plan, "p2", "w1")
    with pytest.raises(UnknownEntityError):
        door(talk.hub).row(Item, "9", "w1")
    talk.say(get("p2"), "done")
    talk.run(agent=talk.build(talk.hub.tools()))
    assert "canary" not in str(talk.model.requests)


# -- redacted fields ---------------------------------------------------------------------------------------------------


@CORNERS
def test_g16_a_redacted_value_is_nowhere_though_its_change_is_told(database, hubs, door):
    talk = Talk(database, hubs, door)
    with Session(talk.engine) as session:
        session.add(Contact(id=1, plan_id="p1", name="Kim", phone="canary"))
        session.commit()
    talk.run()
    with Session(talk.engine) as session, talk.hub.attribute(session, actor=user("u_2")):
        session.get(Contact, 1).phone = "canary 2"
        session.commit()
    talk.say(
        calls("list_contact", call_id="1"),
        calls("read_history", call_id="2"),
        calls("list_contact", call_id="3", match={"phone": "x"}),
        "done",
    )
    talk.run(agent=talk.build(talk.hub.tools()))
    assert "r5, user u_2, contact 1: phone was changed (not shown)" in talk.block()
    assert "canary" not in str(talk.model.requests)
    assert "has no field 'phone' to match" in said(talk.model.requests[-1][-1])
