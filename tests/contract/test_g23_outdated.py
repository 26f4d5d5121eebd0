"""G23: where what a call touches has changed since it was proposed, a decision is refused and must be confirmed."""

from __future__ import annotations

from typing import Any

import pytest

from abreast import DecisionError, OutdatedError, Readable
from abreast.testing import calls
from caller import append, writing
from gated import Asked, foreign, rename, said, together
from planner import CONTEXT, Item
from talk import CORNERS


def outdated(talk: Asked, asked: Any, type: Any = "approve", **named: Any) -> OutdatedError:
    with pytest.raises(OutdatedError) as refused:
        talk.decide(asked, type, context=CONTEXT, **named)
    assert [one.status for one in talk.waiting(status=None) if one.id == asked.id] == ["open"]
    return refused.value


def test_g23_a_decision_on_what_has_changed_is_refused_and_confirmed_on_the_new_state(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    talk.change("by hand")
    error = outdated(talk, asked)
    (change,) = error.changes
    assert (change["entity_id"], change["values"]["title"]) == ("p1", ["Mapo", "by hand"])
    assert error.revisions == {"w1": 4}
    shown = door(talk.hub).approval("t", asked.id, context=CONTEXT)
    assert [one["revision"] for one in shown.changes] == [4]
    outdated(talk, asked, confirmed={"w1": 3})
    # It is refused again only by what came after the revision that was confirmed.
    talk.change("by hand, again")
    error = outdated(talk, asked, confirmed={"w1": 4})
    assert [one["revision"] for one in error.changes] == [5]
    assert error.revisions == {"w1": 5}
    outdated(talk, asked, "edit", arguments={"id": "p1", "version": 5, "title": "mine"}, confirmed={"w1": 4})
    edited = talk.decide(asked, "edit", arguments={"id": "p1", "version": 5, "title": "mine"}, confirmed=error.revisions)
    assert (edited.status, edited.decision.confirmed) == ("edited", {"w1": 5})
    assert talk.go().status == "succeeded"
    assert talk.title() == "mine"


def test_g23_what_is_confirmed_runs_on_the_state_that_was_shown_and_on_no_other(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    talk.change("by hand")
    talk.decide(asked, confirmed=outdated(talk, asked).revisions)
    talk.change("after the decision")  # before the run goes on
    result = talk.go()
    told, status = said(result)[0]
    assert (status, told["current"]["title"]) == ("error", "after the decision")
    assert talk.title() == "after the decision"


@CORNERS
@pytest.mark.parametrize("decided", ["reject", "respond"])
def test_g23_to_refuse_or_to_answer_needs_no_confirmation(database, hubs, door, decided):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    talk.change("by hand")
    talk.decide(asked, decided, message="No.")
    assert talk.go().status == "succeeded"
    assert talk.title() == "by hand"


@CORNERS
def test_g23_other_rows_do_not_make_a_call_out_of_date(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    talk.sql(
        "update item set title = 'gas and water' where id = 2",
        "insert into plan (id, workspace_id, title) values ('p2','w1','x')",
    )
    assert talk.decide(asked).status == "approved"
    assert talk.go().status == "succeeded"
    assert talk.title() == "renamed"


@CORNERS
@pytest.mark.parametrize(
    ("call", "stale", "fresh"),
    [
        (calls("create_item", plan_id="p1", title="water"), "plan", "item"),
        (calls("delete_item", id=1, version=2), "item", "plan"),
        (calls("update_item", id="01", version=2, title="fast internet"), "item", "plan"),
        (calls("create_plan", id="p9", title="new"), None, "plan"),
    ],
    ids=["create names its parent", "delete", "another spelling of the id", "create names nothing"],
)
def test_g23_a_write_tool_touches_the_row_that_it_names(database, hubs, door, call, stale, fresh):
    policy = dict.fromkeys(("create_item", "delete_item", "update_item", "create_plan"), "ask")
    talk = Asked(database, hubs, door, policy=policy)
    (asked,) = talk.ask(call)
    changes = {"plan": "update plan set title = 'x' where id = 'p1'", "item": "update item set title = 'x' where id = {}"}
    talk.sql(changes[fresh].format(2))
    if stale is not None:
        assert door(talk.hub).approval("t", asked.id, context=CONTEXT).changes == ()
        talk.sql(changes[stale].format(1))
        assert [one["entity_type"] for one in outdated(talk, asked).changes] == [stale]
    else:
        assert talk.decide(asked).status == "approved"


@CORNERS
def test_g23_a_row_that_was_deleted_meanwhile_has_changed(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    talk.sql("delete from plan where id = 'p1'")
    assert outdated(talk, asked).changes[0]["op"] == "delete"


@CORNERS
def test_g23_what_a_tool_declares_counts_and_without_it_the_whole_workspace(database, hubs, door):
    talk = Asked(database, hubs, door)
    seen: list[Any] = []

    def named(context: Any, arguments: Any) -> Any:
        seen.append((context.user, arguments["text"]))
        return [(Item, 1), ("plan", "p1", 1)]

    made = {
        "whole": writing(talk, "whole", append, policy="ask"),
        "nothing": writing(talk, "nothing", append, policy="ask", touches=()),
        "named": writing(talk, "named", append, policy="ask", touches=named),
        "unsure": writing(talk, "unsure", append, policy="ask", touches=lambda context, arguments: None),
        "foreign": talk.hub.gate(foreign(lambda text: "done", "foreign")),
        "nothing_foreign": talk.hub.gate(foreign(lambda text: "done", "nothing_foreign"), touches=[]),
    }
    asked = talk.ask(together(*(calls(name, call_id=name, text="!") for name in made)), tools=list(made.values()))
    by = {one.tool: one for one in asked}
    assert seen == [("u_1", "!")]
    assert by["named"].touches == (("item", "1", None), ("plan", "p1", 1))
    assert by["nothing"].touches == by["nothing_foreign"].touches == ()
    assert by["whole"].touches is by["unsure"].touches is by["foreign"].touches is None
    talk.sql("update item set title = 'x' where id = 2")
    for name in ("whole", "unsure", "foreign"):
        outdated(talk, by[name])
    for name in ("nothing", "nothing_foreign"):
        assert talk.decide(by[name]).status == "approved"
    talk.sql("update item set title = 'x' where id = 1")
    assert [one["entity_id"] for one in outdated(talk, by["named"]).changes] == ["1"]


@CORNERS
@pytest.mark.parametrize("wrong", ["raises", "text", "untracked"])
def test_g23_touches_that_fail_let_nothing_through(database, hubs, door, wrong):
    talk = Asked(database, hubs, door)
    said_: dict[str, Any] = {
        "raises": lambda context, arguments: arguments["nothing"],
        "text": lambda context, arguments: "plan",
        "untracked": lambda context, arguments: [("house", "p1")],
    }
    put = writing(talk, "put", append, policy="ask", touches=said_[wrong])
    talk.say(calls("put", text="!"))
    result = talk.go("Please.", tools=[put])
    assert result.status == "succeeded"
    assert said(result)[0][1] == "error"
    assert talk.title() == "Mapo"
    assert talk.waiting(status=None) == []


@CORNERS
def test_g23_a_change_of_the_run_itself_counts_too(database, hubs, door):
    talk = Asked(database, hubs, door)
    asked = talk.ask(together(rename("a", call_id="a"), rename("b", call_id="b")))
    first, second = sorted(asked, key=lambda one: one.call or "")
    talk.decide(first)
    talk.go()
    assert talk.title() == "a"
    error = outdated(talk, second)
    assert error.changes[0]["thread"] == "t"
    assert talk.decide(second, "reject").status == "rejected"


@CORNERS
def test_g23_what_a_person_may_not_read_is_counted_and_not_shown(database, hubs, door):
    rule = {"readable": lambda context: Readable(hide=frozenset({"budget"}))}
    talk = Asked(database, hubs, door, plan=rule)
    put = writing(talk, "put", append, policy="ask")
    (asked,) = talk.ask(calls("put", text="!"), tools=[put])
    talk.sql("update plan set budget = 7 where id = 'p1'")
    error = outdated(talk, asked)
    assert (error.changes, error.fields["unreadable"]) == ([], 1)
    talk.change("by hand")
    error = outdated(talk, asked)
    assert [one["values"] for one in error.changes] == [{"title": ["Mapo", "by hand"]}]
    assert error.fields["unreadable"] == 1
    assert door(talk.hub).approval("t", asked.id, context=CONTEXT).changes == tuple(error.changes)


@CORNERS
def test_g23_nobody_confirms_what_has_not_happened_yet(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    with pytest.raises(DecisionError, match="has no revision 4 yet"):
        talk.decide(asked, confirmed={"w1": 4})
    talk.change("by hand")
    outdated(talk, asked)


@CORNERS
def test_g23_many_changes_are_told_as_the_newest_and_a_number(database, hubs, door):
    talk = Asked(database, hubs, door)
    put = writing(talk, "put", append, policy="ask")
    (asked,) = talk.ask(calls("put", text="!"), tools=[put])
    talk.sql(*(f"insert into item (id, plan_id, title, done) values ({n}, 'p1', 'x', false)" for n in range(100, 250)))
    error = outdated(talk, asked)
    assert (len(error.changes), error.fields["unreadable"]) == (100, 50)
    assert error.changes[0]["entity_id"] == "249"
    assert talk.decide(asked, confirmed=error.revisions).status == "approved"
