"""G10: a conversation may begin in a workspace that has no row yet, once the application has made it known."""

from __future__ import annotations

import pytest

from abreast import InputError, RunContext, UnknownWorkspaceError, constant, insert
from abreast.testing import calls
from planner import Plan
from talk import CORNERS, Talk

NEW = RunContext("t1", "u_1", "w9")


def test_g10_an_assistant_makes_the_first_row_of_a_new_workspace(database, hubs, door):
    talk = Talk(database, hubs, door)
    hub = door(talk.hub)
    for ask in (lambda: talk.run(context=NEW), lambda: hub.standings("w9"), lambda: hub.prune("w9", horizon=0)):
        with pytest.raises(UnknownWorkspaceError, match=r"There is no workspace 'w9'.*hub\.add_workspace"):
            ask()
    assert hub.add_workspace("w9") is None
    assert hub.standings("w9") == []
    first = hub.batch("w9")
    assert (first.head.revision, first.head.check, first.events, first.rows, first.gap) == (0, 0, (), (), False)

    talk.say(calls("create_plan", id="p9", title="first"), "Made.")
    result = talk.run(agent=talk.build(talk.hub.tools()), context=NEW)
    assert result.status == "succeeded"
    assert [event.revision for event in talk.hub.blocking.history("w9")] == [1]
    assert talk.revisions() == [1]  # its own row, in the call after the tool's
    assert (talk.place(workspace="w9"), talk.head("w9")) == (1, 1)

    talk.sql("update plan set title = 'theirs' where id = 'p9'")
    talk.run(context=NEW)
    assert talk.revisions() == [2]
    assert talk.hub.blocking.check() == []


@CORNERS
def test_g10_a_conversation_that_began_in_an_empty_workspace_is_told_all_that_follows(database, hubs, door):
    talk = Talk(database, hubs, door)
    door(talk.hub).add_workspace("w9")
    talk.run(context=NEW)
    assert (talk.place(workspace="w9"), talk.revisions()) == (0, [])
    talk.sql("insert into plan (id, workspace_id, title) values ('p9', 'w9', 'theirs')")
    talk.run(context=NEW)
    assert talk.revisions() == [1]
    assert "earlier" not in talk.block()  # no notice: nothing was missed


@CORNERS
def test_g10_a_workspace_that_is_known_stays_as_it_is(database, hubs, door):
    talk = Talk(database, hubs, door)
    door(talk.hub).prune("w1", horizon=2)
    before = door(talk.hub).batch("w1", after=2)
    for _ in range(2):
        door(talk.hub).add_workspace("w1")
    assert door(talk.hub).batch("w1", after=2) == before
    assert before.head.revision == 3


@CORNERS
@pytest.mark.parametrize("workspace", ["", "w\0", "\ud800", None, {"id": "w1"}, ["w1"], True, b"w1"])
def test_g10_what_can_be_no_workspace_is_not_added(database, hubs, door, workspace):
    talk = Talk(database, hubs, door)
    with pytest.raises(InputError):
        door(talk.hub).add_workspace(workspace)
    with pytest.raises(InputError):
        door(talk.hub).apply(workspace, insert(Plan, id="p9"))
    if not isinstance(workspace, str):
        with pytest.raises(InputError, match="cannot be a workspace"):
            door(talk.hub).rows(Plan, workspace)


@CORNERS
def test_g10_a_workspace_that_no_table_could_have_rows_of_is_not_added(database, hubs, door):
    hub = hubs(database)
    hub.track(Plan, workspace=constant("league"))
    engine = database.engine()
    Plan.metadata.create_all(engine)
    door(hub).install()
    with pytest.raises(InputError, match="cannot be a workspace"):
        door(hub).add_workspace("w9")
    door(hub).add_workspace("league")
    assert door(hub).standings("league") == []
