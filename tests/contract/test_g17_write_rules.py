"""G17: what an agent's write tools let a person write: the read rule and the write rule, before the write and after it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.orm import Session

from abreast import ConfigurationError, Readable, RunContext, Writable, update
from abreast.testing import calls
from planner import CONTEXT, Plan
from talk import Talk
from toolcalls import ABSENT, ask, error, events, theirs


def test_g17_rows_of_another_workspace_are_absent_to_a_write(database, hubs, door):
    talk = Talk(database, hubs, door)
    theirs(talk)
    answers = ask(
        talk,
        calls("update_plan", id="q1", version=1, title="mine"),
        calls("update_plan", id="q2", version=1, title="mine"),
        calls("delete_plan", id="q1", version=1),
        calls("create_item", plan_id="q1", title="mine"),
        calls("create_item", plan_id="q2", title="mine"),
        calls("update_item", id=1, version=2, plan_id="q1"),
        calls("update_item", id=1, version=2, plan_id="q2"),
        calls("create_plan", id="q3", workspace="w2"),
    )
    texts = [error(answer) for answer in answers]
    assert texts[:3] == [ABSENT.format("q1"), ABSENT.format("q2"), ABSENT.format("q1")]
    assert texts[3:7] == [ABSENT.format("q1"), ABSENT.format("q2")] * 2
    assert "w2" in texts[7]
    assert talk.head() == 3
    assert talk.head("w2") == 2


def test_g17_a_field_that_a_person_may_not_read_is_not_written_and_not_told(database, hubs, door):
    talk = Talk(database, hubs, door, plan={"readable": lambda _: Readable(hide={"budget"})})
    refused, created, conflict, done = ask(
        talk,
        calls("update_plan", id="p1", version=1, title="x", budget="1.00"),
        calls("create_plan", id="p7", budget="1.00"),
        calls("update_plan", id="p1", version=77, title="x"),
        calls("update_plan", id="p1", version=1, title="x"),
    )
    assert "plan.budget may not be written" in error(refused)
    assert "plan.budget may not be written" in error(created)
    assert error(conflict)
    assert conflict[0]["current"]["title"] == "Mapo"
    assert "budget" not in conflict[0]["current"]
    assert "resident_number" not in conflict[0]["current"]
    assert done[0] == {"id": "p1", "version": 4, "revision": 4, "title": "x"}
    with Session(talk.engine) as session:
        assert session.get(Plan, "p1").budget == Decimal("1200.50")


def test_g17_a_redacted_field_is_written_only_where_the_rule_names_it(database, hubs, door):
    allowed: list[Any] = [None, {"title"}, {"title", "resident_number"}]
    talk = Talk(database, hubs, door, plan={"writable": lambda _: Writable(fields=allowed[0])})
    assert all("resident_number" not in tool.args for tool in talk.hub.tools() if tool.name.endswith("_plan"))
    call = calls("update_plan", id="p1", version=1, title="x", resident_number="900101-1")
    (unnamed,) = ask(talk, call)
    allowed.pop(0)
    refused, outside = ask(talk, call, calls("update_plan", id="p1", version=1, budget="1.00"))
    assert "plan.resident_number may not be written" in error(unnamed)
    assert "plan.resident_number may not be written" in error(refused)
    assert "plan.budget may not be written" in error(outside)
    assert talk.head() == 3
    allowed.pop(0)
    ((told, status),) = ask(talk, call)
    assert (told, status) == ({"id": "p1", "version": 4, "revision": 4, "title": "x"}, "success")
    with Session(talk.engine) as session:
        assert session.get(Plan, "p1").resident_number == "900101-1"
    assert "900101" not in json.dumps(told)
    assert "resident_number" not in events(talk)[0].values


def test_g17_the_row_must_be_within_the_rules_before_and_after(database, hubs, door):
    rule = lambda _: Writable(where=Plan.title.startswith("M"))  # noqa: E731
    talk = Talk(database, hubs, door, plan={"readable": lambda _: Plan.budget > 1000, "writable": rule})
    talk.sql("insert into plan (id, workspace_id, title, budget) values ('p2', 'w1', 'Other', 2000), ('p3', 'w1', 'Mine', 5)")
    answers = ask(
        talk,
        calls("update_plan", id="p2", version=4, title="Mine"),
        calls("delete_plan", id="p2", version=4),
        calls("update_plan", id="p3", version=5, budget="2000.00"),
        calls("update_plan", id="p1", version=1, title="away"),
        calls("update_plan", id="p1", version=1, budget="1.00"),
        calls("create_plan", id="p4", title="Other", budget="2000.00"),
        calls("create_plan", id="p4", title="Mine", budget="2.00"),
    )
    texts = [error(answer) for answer in answers]
    # p2 may be read, so nothing is given away by saying that it is there; p3 may not be.
    assert texts[:3] == ["This plan may not be written by this person. Nothing was written."] * 2 + [ABSENT.format("p3")]
    assert all("would not be one that this person may write" in text for text in texts[3:])
    assert talk.head() == 5
    within = ask(
        talk,
        calls("update_plan", id="p1", version=1, title="More", budget="1001.00"),
        calls("create_plan", id="p4", title="Mine", budget="2000.00"),
    )
    assert [told["version"] for told, _ in within] == [6, 7]
    assert talk.hub.blocking.check() == []


def test_g17_a_row_that_a_person_may_not_read_cannot_be_referred_to(database, hubs, door):
    talk = Talk(database, hubs, door, plan={"readable": lambda _: Plan.id != "p2"})
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'secret'), ('p3', 'w1', 'open')")
    refused, moved = (
        ask(talk, calls("create_item", id=9, plan_id="p2", title="x"), calls("update_item", id=1, version=2, plan_id="p2")),
        ask(talk, calls("update_item", id=1, version=2, plan_id="p3")),
    )
    assert error(refused[1]) == ABSENT.format("p2")
    assert moved[0][0] == {"id": 1, "version": 6, "revision": 6, "plan_id": "p3"}


def test_g17_rights_are_asked_at_each_call(database, hubs, door):
    may: set[Any] = {"insert", "update", "delete"}
    talk = Talk(database, hubs, door, plan={"writable": lambda context: Writable(may) if context.user == "u_1" else False})

    def withdrawn(_):
        may.discard("update")
        return calls("update_plan", call_id="c2", id="p1", version=4, title="two")

    one, two, three = ask(
        talk, calls("update_plan", id="p1", version=1, title="one"), withdrawn, calls("delete_plan", id="p1", version=4)
    )
    assert one[1] == "success"
    assert "may not update rows of plan" in error(two)
    assert three[0] == {"deleted": "p1", "revision": three[0]["revision"]}
    other = RunContext(tenant="t1", user="u_2", workspace="w1")
    (answer,) = ask(talk, calls("create_plan", id="p5", title="x"), context=other)
    assert "may not create rows of plan" in error(answer)


def test_g17_a_rule_that_fails_lets_nothing_through(database, hubs, door):
    answers: list[Any] = [lambda _: 1 / 0, lambda _: "yes", lambda _: Writable(fields={"colour"}), lambda _: None]
    talk = Talk(database, hubs, door, plan={"writable": lambda context: answers[0](context)})
    for _ in range(len(answers)):
        (answer,) = ask(talk, calls("update_plan", id="p1", version=1, title="x"))
        assert "reference" in error(answer)
        answers.pop(0)
    assert talk.head() == 3


def test_g17_apply_asks_no_write_rule(database, hubs, door):
    talk = Talk(database, hubs, door, plan={"writable": Writable(operations=())})
    assert door(talk.hub).apply("w1", update(Plan, "p1", title="x")).rows[0].values["title"] == "x"
    with pytest.raises(ConfigurationError, match="create_item"):
        talk.hub.tools(write={"update_plan"})


def test_g17_a_run_without_a_context_writes_nothing(database, hubs, tmp_path):
    """PITFALLS 60: who does not say for whom he acts is refused, and no database is asked."""
    nowhere = tmp_path / "absent" / "app.db"
    hub = hubs(f"sqlite:///{nowhere}")
    hub.track(Plan, workspace="workspace_id")
    for tool, given in (
        ("update_plan", {"id": "p1", "version": 1, "title": "x"}),
        ("create_plan", {"id": "p1"}),
        ("delete_plan", {"id": "p1", "version": 1}),
    ):
        (made,) = hub.tools(Plan, write={tool})[3:]
        assert made.name == tool
        for arguments in (given, {**given, "runtime": {"context": CONTEXT}}):
            assert "does not say for whom" in json.loads(made.invoke(arguments))["error"]
    assert not nowhere.parent.exists()


def test_g17_a_graph_without_a_context_writes_nothing(database, hubs, door):
    from langgraph.graph import StateGraph
    from langgraph.prebuilt import ToolNode

    from abreast.langgraph import SyncState

    talk = Talk(database, hubs, door, workspaces=lambda context: [] if context.workspace == "none" else context.workspace)
    graph = StateGraph(SyncState)
    graph.add_node("tools", ToolNode(talk.hub.tools(Plan)))
    graph.set_entry_point("tools")
    asked = calls("update_plan", id="p1", version=1, title="x")
    for context, refused in (
        (None, "does not say for whom"),
        (RunContext("t1", "u_1", "none"), "does not say for whom"),
        (RunContext("t1", "u_1", ""), ""),
    ):
        answer = door.invoke(graph.compile(), {"messages": [asked]}, context=context)["messages"][-1]
        assert (answer.status, refused in answer.content) == ("error", True)
    assert talk.head() == 3
    done = door.invoke(graph.compile(), {"messages": [asked]}, context=CONTEXT)
    assert done["messages"][-1].status == "success"
    assert events(talk)[0].thread is None
