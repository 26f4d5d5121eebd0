"""G17 and G23 together: a person approves a write on the row as it was shown, and the write is made on that state."""

from __future__ import annotations

from functools import partial

import pytest

from abreast import Decision, OutdatedError
from abreast.testing import calls
from planner import Plan
from serving import MINA
from talk import CORNERS

pytestmark = CORNERS


@pytest.fixture
def desk(desk):
    return partial(desk, tools=lambda hub: hub.tools(Plan), approvals="writes")


def asked(one, thread):
    """The one approval that is open."""
    one.ask(thread, "Rename it")
    (approval,) = one.call("approvals", MINA, thread=thread).items
    return approval


@pytest.mark.parametrize("version", ["r3", 1])
def test_g23_what_current_named_still_counts_when_the_run_goes_on(desk, version):
    one = desk(calls("update_plan", id="p1", version=version, title="Seongsu"), "done")
    thread = one.thread()
    approval = asked(one, thread)
    one.sql("update item set done = true where id = 1")  # something else
    one.call("decide", MINA, thread, approval.id, Decision("approve"))
    one.settled(thread)
    assert one.rows("select title from plan") == [("Seongsu",)]


@pytest.mark.parametrize("version", ["r3", 1])
def test_g23_what_was_confirmed_on_the_new_state_is_written_on_it(desk, version):
    one = desk(calls("update_plan", id="p1", version=version, title="Seongsu"), "done")
    thread = one.thread()
    approval = asked(one, thread)
    one.sql("update plan set budget = 7 where id = 'p1'")
    with pytest.raises(OutdatedError) as outdated:
        one.call("decide", MINA, thread, approval.id, Decision("approve"))
    assert [change["fields"] for change in outdated.value.changes] == [["budget"]]
    one.call("decide", MINA, thread, approval.id, Decision("approve", confirmed=outdated.value.revisions))
    one.settled(thread)
    assert [(title, int(budget)) for title, budget in one.rows("select title, budget from plan")] == [("Seongsu", 7)]


def test_g23_a_change_behind_the_confirmation_is_never_written_over(desk):
    one = desk(calls("update_plan", id="p1", version="r3", title="Seongsu"), "it has changed")
    thread = one.thread()
    approval = asked(one, thread)
    one.call("stop")
    one.call("decide", MINA, thread, approval.id, Decision("approve"))
    one.sql("update plan set title = 'Hannam' where id = 'p1'")
    one.call("start")
    one.settled(thread)
    assert one.rows("select title from plan") == [("Hannam",)]
    (tool,) = one.messages(thread)[-1].tools
    assert tool.status == "failed"
    assert "has changed since it was read" in tool.result["error"]


def test_g23_two_approved_writes_of_one_row_do_not_overwrite_each_other(desk):
    from langchain_core.messages import AIMessage

    both = AIMessage(
        "",
        tool_calls=[
            {"name": "update_plan", "args": {"id": "p1", "version": "r3", "title": "a"}, "id": "one"},
            {"name": "update_plan", "args": {"id": "p1", "version": "r3", "title": "b"}, "id": "two"},
        ],
    )
    one = desk(both, "done")
    thread = one.thread()
    one.ask(thread, "Rename it twice")
    for approval in one.call("approvals", MINA, thread=thread).items:
        one.call("decide", MINA, thread, approval.id, Decision("approve"))
    one.settled(thread)
    assert sorted(tool.status for tool in one.messages(thread)[-1].tools) == ["completed", "failed"]
    assert len(one.rows(f"select 1 from {one.table('event')} where entity_id = 'p1' and op = 'update'")) == 1


@pytest.mark.parametrize("version", ["r2", "r9", 9, 0])
def test_g23_nobody_is_asked_about_a_write_of_a_version_that_is_not_there(desk, version):
    one = desk(calls("update_plan", id="p1", version=version, title="Seongsu"), "done")
    thread = one.thread()
    assert one.ask(thread, "Rename it").status == "succeeded"
    assert one.call("approvals", MINA, status=None).items == ()
    assert one.rows("select title from plan") == [("Mapo",)]
    (tool,) = one.messages(thread)[-1].tools
    assert (tool.status, tool.result["current"]["version"]) == ("failed", 1)


@pytest.mark.parametrize(
    ("wanted", "said"), [("nothing", "There is no plan 'nothing' here"), ("p2", "may not be written")], ids=["absent", "refused"]
)
def test_g23_nobody_is_asked_about_a_row_that_could_not_be_written(desk, wanted, said):
    from abreast import Writable

    one = desk(
        calls("update_plan", id=wanted, version=1, title="Seongsu"),
        calls("delete_plan", id=wanted, version=1),
        "done",
        plan={"writable": Writable(where=Plan.title != "closed")},
    )
    one.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'closed')")
    thread = one.thread()
    assert one.ask(thread, "Rename it").status == "succeeded"
    assert one.call("approvals", MINA, status=None).items == ()
    tools = one.messages(thread)[-1].tools
    assert [tool.status for tool in tools] == ["failed", "failed"]
    assert all(said in tool.result["error"] for tool in tools)
