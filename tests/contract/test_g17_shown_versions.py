"""G17 for a write that names the revision as of which its conversation was shown CURRENT, instead of looking the row up."""

from __future__ import annotations

import re
from typing import Any

import pytest

from abreast import RunContext, agent, update, user
from abreast.testing import calls
from planner import Plan
from talk import CORNERS, Talk
from toolcalls import ask, error, events, read, theirs

SHOWN = re.compile(r"^All of this is version (\d+)(?: in workspace (\w+))?: name it when you write a row that shows", re.M)


def shown(messages: Any) -> dict[str, int]:
    """The versions that a request names, by workspace."""
    return {workspace: int(version) for version, workspace in SHOWN.findall(messages[-1].text)}


def retitle(messages: Any, version: int | None = None) -> Any:
    return calls("update_plan", id="p1", version=version or shown(messages)[""], title="the agent's")


@CORNERS
def test_g17_what_current_showed_needs_no_looking_up(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.sql("update item set done = true where id = 1")
    ((told, status),) = ask(talk, retitle)
    assert (status, told) == ("success", {"id": "p1", "version": 5, "revision": 5, "title": "the agent's"})
    assert (read(talk).version, events(talk)[0].actor) == (5, agent())


@CORNERS
def test_g17_an_edit_after_it_was_shown_is_kept(database, hubs, door):
    talk = Talk(database, hubs, door)

    def late(messages: Any) -> Any:
        talk.hub.blocking.apply("w1", update(Plan, "p1", title="the person's"), actor=user("u_1"))
        return retitle(messages)

    again = ask(talk, late, retitle)
    assert error(again[0]) == "plan p1 has changed since it was read. Nothing was written."
    assert again[0][0]["current"]["title"] == "the person's"
    assert again[1][1] == "success"
    assert [event.actor for event in events(talk)[:2]] == [agent(), user("u_1")]


@CORNERS
def test_g17_only_what_this_conversation_was_shown_counts(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run(thread="other")  # shown revision 3
    talk.sql("update item set done = true where id = 1")

    for version in (2, 3, 5, 99):  # before it, another conversation's, and what has not been yet
        (answer,) = ask(talk, lambda messages, v=version: retitle(messages, v))
        assert error(answer).startswith("plan p1 has changed")
    assert read(talk).values["title"] == "Mapo"


@CORNERS
def test_g17_a_change_that_was_not_told_yet_is_not_overwritten(database, hubs, door):
    """The batch ended before it, and CURRENT may have had no room for the row."""
    talk = Talk(database, hubs, door, limit=1)
    talk.run()
    for statement in (
        "update item set done = true where id = 1",
        "update plan set title = 'the person''s' where id = 'p1'",
        "update item set done = true where id = 2",
    ):
        talk.sql(statement)
    blocks: list[str] = []

    def guess(messages: Any) -> Any:
        blocks.append(messages[-1].text)
        return retitle(messages, 6)

    (answer,) = ask(talk, guess)  # HEAD is 6, but not all of it was told
    assert (talk.revisions(), error(answer)) == ([4], "plan p1 has changed since it was read. Nothing was written.")
    ((_, status),) = ask(talk, guess)
    assert (talk.revisions(-2), status) == ([5], "success")
    assert [SHOWN.findall(block) for block in blocks] == [[], []]


@CORNERS
def test_g17_what_was_not_put_into_the_request_was_not_shown(database, hubs, door):
    talk = Talk(database, hubs, door)
    door(talk.hub).tell("shadow")
    talk.sql("update item set done = true where id = 1")
    (answer,) = ask(talk, lambda messages: retitle(messages, 4))
    assert error(answer).startswith("plan p1 has changed")


@CORNERS
def test_g17_each_workspace_has_a_version_of_its_own(database, hubs, door):
    talk = Talk(database, hubs, door, workspaces=lambda context: context.workspace.split("+"))
    theirs(talk)
    both = RunContext("t1", "u_1", "w1+w2")
    seen: list[dict[str, int]] = []

    def foreign(messages: Any) -> Any:
        seen.append(shown(messages))
        return calls("update_plan", id="q1", version=seen[0]["w1"], title="x")

    answers = ask(
        talk,
        foreign,
        lambda messages: calls("update_plan", id="q1", version=shown(messages)["w2"], title="y"),
        context=both,
    )
    assert seen == [{"w1": 3, "w2": 2}]
    assert error(answers[0]).startswith("plan q1 has changed")
    assert answers[1][1] == "success"


@CORNERS
def test_g17_without_write_tools_nothing_is_said_of_versions(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run(agent=talk.build(talk.hub.tools(write=False)))
    assert SHOWN.findall(talk.block()) == []


@CORNERS
@pytest.mark.parametrize("version", [1, 3])
def test_g17_the_rows_own_version_counts_as_before(database, hubs, door, version):
    talk = Talk(database, hubs, door)
    (answer,) = ask(talk, lambda messages: retitle(messages, version))
    assert answer[1] == "success"  # the row's own is 1; 3 was shown
