"""G17 for a write that names the revision as of which its conversation was shown CURRENT, instead of looking the row up."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import (
    AsyncTransaction,
    Budget,
    InputError,
    RunContext,
    Transaction,
    Version,
    VersionConflictError,
    agent,
    constant,
    update,
    user,
)
from abreast.testing import calls
from planner import Item, Plan, declare
from talk import CORNERS, TOOL_CALL, Talk, write_tool
from toolcalls import ask, error, events, read, theirs


class Base(DeclarativeBase):
    pass


class Counted(Base):
    __tablename__ = "counted"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(default=1)


SHOWN = re.compile(r"^All of this is version (r\d+)(?: in workspace (\w+))?: name it when you write a row that shows", re.M)


def shown(messages: Any) -> dict[str, str]:
    """The versions that a request names, by workspace."""
    return {workspace: version for version, workspace in SHOWN.findall(messages[-1].text)}


def retitle(messages: Any, version: Any = None) -> Any:
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

    for version in ("r2", "r3", "r5", "r99", 4):  # before it, another conversation's, not yet; and the number alone
        (answer,) = ask(talk, lambda messages, v=version: retitle(messages, v))
        assert error(answer).startswith("plan p1 has changed")
    assert read(talk).values["title"] == "Mapo"


@CORNERS
@pytest.mark.parametrize("how", ["no room", "a value is cut", "a loader"])
def test_g17_a_row_that_did_not_stand_there_whole_was_not_shown(database, hubs, door, how):
    """Changed by a person before this conversation began, so that nothing told of it, and its version is HEAD."""
    options = {"no room": {"budget": Budget(current=80)}, "a value is cut": {"budget": Budget(value=10)}, "a loader": {}}
    talk = Talk(database, loading(hubs) if how == "a loader" else hubs, door, **options[how])
    talk.sql("update plan set title = 'the person''s long title' where id = 'p1'")
    blocks: list[str] = []

    def guess(messages: Any) -> Any:
        blocks.append(messages[-1].text)
        return retitle(messages, "r4")

    (answer,) = ask(talk, guess)
    assert error(answer) == "plan p1 has changed since it was read. Nothing was written."
    assert read(talk).values["title"] == "the person's long title"
    assert [len(SHOWN.findall(block)) for block in blocks] == [0 if how == "a loader" else 1]
    (again,) = ask(talk, lambda messages: retitle(messages, 4))  # the row's own version, which the answer named
    assert again[1] == "success"


def loading(hubs: Any) -> Any:
    """Hubs whose CURRENT is what a loader makes of the rows."""

    def make(*given: Any, **options: Any) -> Any:
        hub = hubs(*given, **options)
        hub.loader(counts)
        return hub

    return make


def counts(session: Session, workspace: str, context: Any) -> Any:
    return {"plans": 1}


@CORNERS
def test_g17_what_was_not_put_into_the_request_was_not_shown(database, hubs, door):
    talk = Talk(database, hubs, door)
    door(talk.hub).tell("shadow")
    talk.sql("update item set done = true where id = 1")
    (answer,) = ask(talk, lambda messages: retitle(messages, "r4"))
    assert error(answer).startswith("plan p1 has changed")


@CORNERS
def test_g17_each_workspace_has_a_version_of_its_own(database, hubs, door):
    talk = Talk(database, hubs, door, workspaces=lambda context: context.workspace.split("+"))
    theirs(talk)
    both = RunContext("t1", "u_1", "w1+w2")
    seen: list[dict[str, str]] = []

    def foreign(messages: Any) -> Any:
        seen.append(shown(messages))
        return calls("update_plan", id="q1", version=seen[0]["w1"], title="x")

    answers = ask(
        talk,
        foreign,
        lambda messages: calls("update_plan", id="q1", version=shown(messages)["w2"], title="y"),
        context=both,
    )
    assert seen == [{"w1": "r3", "w2": "r2"}]
    assert error(answers[0]).startswith("plan q1 has changed")
    assert answers[1][1] == "success"


@CORNERS
def test_g17_without_write_tools_nothing_is_said_of_versions(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run(agent=talk.build(talk.hub.tools(write=False)))
    assert SHOWN.findall(talk.block()) == []


@CORNERS
@pytest.mark.parametrize("version", [1, "1", "r3"])
def test_g17_the_rows_own_version_counts_as_before(database, hubs, door, version):
    talk = Talk(database, hubs, door)
    (answer,) = ask(talk, lambda messages: retitle(messages, version))
    assert answer[1] == "success"  # the row's own is 1; 3 was shown


# -- the same rule in the application's own transactions -----------------------------------------------------------------


def tools_of(talk: Talk) -> list[Any]:
    """Functions that write a plan under a version: by its object, by a change, and by asking. Beside the hub's own tools,
    because of which the block names a version."""

    def put(tx: Transaction, how: str, version: Version) -> str:
        if how == "get":
            tx.get(Plan, "p1", version=version).title = how
        elif how == "apply":
            tx.apply(update(Plan, "p1", version=version, title=how))
        else:
            assert tx.is_current(Plan, "p1", version)
            tx.get(Plan, "p1").title = how
        return how

    if talk.door.kind == "sync":

        @talk.hub.tool(name="rename")
        def rename(how: str, version: Version, tx: Transaction) -> str:
            """Renames the plan."""
            return put(tx, how, version)

    else:

        @talk.hub.tool(name="rename")
        async def rename(how: str, version: Version, tx: AsyncTransaction) -> str:
            """Renames the plan."""
            if how == "get":
                (await tx.get(Plan, "p1", version=version)).title = how
            elif how == "apply":
                await tx.apply(update(Plan, "p1", version=version, title=how))
            else:
                assert await tx.is_current(Plan, "p1", version)
                (await tx.get(Plan, "p1")).title = how
            return how

    return [*talk.hub.tools(), rename]


@CORNERS
@pytest.mark.parametrize("how", ["get", "apply", "is_current"])
def test_g17_a_function_tool_takes_the_version_that_the_block_named(database, hubs, door, how):
    talk = Talk(database, hubs, door)
    talk.sql("update item set done = true where id = 1")

    def named(messages: Any) -> Any:
        return calls("rename", how=how, version=shown(messages)[""])

    def late(messages: Any) -> Any:
        talk.hub.blocking.apply("w1", update(Plan, "p1", title="the person's"), actor=user("u_1"))
        return named(messages)

    seen: list[str] = []

    def told(messages: Any) -> Any:
        seen.append(shown(messages)[""])
        return named(messages)

    talk.say(told, "done")
    talk.run(agent=talk.build(tools_of(talk)))
    assert seen == ["r4"]
    assert (read(talk).version, read(talk).values["title"], events(talk)[0].actor) == (5, how, agent())

    if how != "is_current":
        (answer,) = ask(talk, late, tools=tools_of(talk))
        assert error(answer) == "plan p1 has changed since it was read. Nothing was written."
        assert (read(talk).version, read(talk).values["title"]) == (6, "the person's")


@CORNERS
def test_g17_outside_a_run_only_the_rows_own_version_counts(database, hubs, door):
    """A screen was shown nothing, and neither was a run that has ended."""
    talk = Talk(database, hubs, door)
    talk.sql("update item set done = true where id = 1")
    talk.run()  # shown as of 4
    change = update(Plan, "p1", version="r4", title="x")
    with pytest.raises(InputError, match=r"tx\.apply"):
        door(talk.hub).apply("w1", change, thread="t")
    for thread in (None, "t", ""):
        with talk.hub.write("w1", thread=thread) as tx:
            assert not tx.is_current(Plan, "p1", "r4")
            assert tx.is_current(Plan, "p1", 1)
        with pytest.raises(VersionConflictError) as caught, talk.hub.write("w1", thread=thread) as tx:
            tx.get(Plan, "p1", version="r4")
        assert (caught.value.expected, caught.value.version) == ("r4", 1)
        with pytest.raises(VersionConflictError), talk.hub.write("w1", thread=thread) as tx:
            tx.apply(change)
    assert talk.head() == 4
    for wrong in ("4", "r", "r4x", "R4", 4.0, True):
        with pytest.raises(InputError, match="A version is a whole number"):
            update(Plan, "p1", version=wrong, title="x")


@CORNERS
def test_g17_a_row_that_the_block_itself_wrote_is_current_as_it_was_before(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.sql("update item set done = true where id = 1")
    seen: list[Any] = []

    def write() -> None:
        with talk.hub.write("w1", thread="t") as tx:
            tx.apply(update(Plan, "p1", title="one"))
            tx.apply(update(Plan, "p1", version="r4", title="two"))
            seen.append(tx.get(Plan, "p1", version=1).title)
            seen.extend(tx.is_current(Plan, "p1", version) for version in ("r4", 1, "r5"))

    talk.say(TOOL_CALL, "done")
    talk.run(agent=talk.build([*talk.hub.tools(), write_tool(write)]))
    assert seen == ["two", True, True, False]


@CORNERS
def test_g17_a_version_column_of_the_application_counts_by_itself(database, hubs, door):
    """Its numbers are no revisions."""
    talk = Talk(database, hubs, door)
    hub = declare(hubs(database))
    hub.track(Counted, workspace=constant("w1"), version="number")
    Base.metadata.create_all(talk.engine)
    hub.blocking.install()
    with Session(talk.engine) as session:
        session.add(Counted(id=1))
        session.commit()
    seen: list[Any] = []

    def look() -> None:
        with hub.write("w1") as tx:
            seen.extend(tx.is_current(Counted, 1, version) for version in (1, 4, "r4"))
            seen.append(tx.is_current(Plan, "p1", "r4"))

    talk.hub = hub
    talk.say(TOOL_CALL, "done")
    talk.run(agent=talk.build([*hub.tools(), write_tool(look)]))
    assert seen == [True, False, False, True]


@CORNERS
@pytest.mark.parametrize("spelled", [" 1", "01", "+1", "1 "])
def test_g17_another_spelling_of_a_key_is_the_same_row(database, hubs, door, spelled):
    """Only one spelling has events; the others have no version of their own that a write could name."""
    talk = Talk(database, hubs, door)
    for version, wanted in ((0, VersionConflictError), (1, VersionConflictError), (2, None)):
        for write in (
            lambda tx, v: tx.get(Item, spelled, version=v),
            lambda tx, v: tx.apply(update(Item, spelled, version=v, title="x")),
        ):
            with pytest.raises(wanted) if wanted else nullcontext(), talk.hub.write("w1", actor=user("u_1")) as tx:
                write(tx, version)
    with pytest.raises(VersionConflictError):
        door(talk.hub).apply("w1", update(Item, spelled, version=0, title="y"))
