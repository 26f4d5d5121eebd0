"""Rows and log in one database, checkpoints in another: every combination of the two kinds (G8, G9, G12, G18, G19, G29).

The two commit apart, so each can be there without the other. What then holds is what `docs/guides/databases.md` says.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from sqlalchemy.engine import make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from abreast import Abreast, LeaseLostError, RunContext, Transaction, UnavailableError
from abreast.access import aperform, perform
from abreast.testing import ScriptedModel, calls
from places import Place
from planner import CONTEXT, Plan, declare
from talk import Talk, write_tool

PLACE = {"configurable": {"thread_id": "t"}}
NOTICE = "Older changes are no longer listed"


@pytest.fixture
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty database of either kind, besides the one of the rows."""
    if request.param == "sqlite":
        yield Place("sqlite", f"sqlite:///{tmp_path / 'elsewhere.db'}")
        return
    server = make_url(request.getfixturevalue("postgres_url"))
    url = server.set(database=f"c_{abs(hash(request.node.nodeid)):x}").update_query_dict({"connect_timeout": "2"})
    made = Place("postgresql", url.render_as_string(hide_password=False))
    made.admin("drop database if exists {name} with (force)", "create database {name}")
    yield made
    made.admin("drop database if exists {name} with (force)", "drop database if exists {name}_copy with (force)")


APART = pytest.mark.parametrize(
    ("database", "checkpoints"),
    [(rows, states) for rows in ("sqlite", "postgresql") for states in ("sqlite", "postgresql")],
    indirect=True,
    ids=lambda kind: kind,
)


@pytest.fixture
def apart(database, checkpoints, hubs, door) -> Callable[..., Talk]:
    """Makes a talk whose checkpoints are in the other database, with a tool that renames the plan."""

    def make(*script: Any, **options: Any) -> Talk:
        return connect(Talk(database, hubs, door, *script, **options), checkpoints)

    return make


def connect(talk: Talk, checkpoints: Place, before: Any = ()) -> Talk:
    """Gives a talk its saver and tool."""
    talk.saver = talk.hub.checkpointer(checkpoints.url)
    talk.agent = talk.build([rename_tool(talk.hub)], before=before)
    return talk


def rename_tool(hub: Abreast) -> Any:
    @hub.tool
    def rename(tx: Transaction, title: str) -> str:
        """Renames the plan."""
        tx.get(Plan, "p1").title = title
        return "renamed"

    return rename


class AfterTools(AgentMiddleware):
    """Does something when a tool has committed and its answer is not stored yet."""

    def __init__(self, then: Callable[[], Any]) -> None:
        super().__init__()
        self._then = then

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        answer = handler(request)
        self._then()
        return answer

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        answer = await handler(request)
        self._then()
        return answer


def elsewhere(call: Callable[[], Any]) -> Any:
    """The result of a call in a thread that is no part of this run, as another process is none."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result(60)


def stop(talk: Talk) -> None:
    """As an application ends: nothing stays connected."""
    talk.door(talk.hub).close()
    talk.engine.dispose()


def again(talk: Talk, database: Any, checkpoints: Place, hubs: Any) -> Talk:
    """As it starts again."""
    talk.renew(hubs(database))
    return connect(talk, checkpoints)


# -- the fence ---------------------------------------------------------------------------------------------------------


@APART
def test_g19_a_thread_that_was_taken_over_is_fenced_off_in_the_other_database(apart, database, checkpoints, hubs):
    talk = apart()
    talk.run("first")
    other = declare(hubs(database))
    saver = other.checkpointer(checkpoints.url)
    model = ScriptedModel("the answer of the other")
    agent = create_agent(model, middleware=[other.middleware()], context_schema=RunContext, checkpointer=saver)
    seen: list[int] = []

    def overtaken(_: Any) -> Any:
        talk.expire()
        elsewhere(lambda: other.blocking.run(agent, "from the other", thread="t", context=CONTEXT))
        seen.append(len(list(saver.list(PLACE))))
        return calls("rename", title="of the one before")

    talk.change()
    talk.say(overtaken)
    with pytest.raises(LeaseLostError):
        talk.run("from the one before")
    messages = [m.text for m in talk.door.state(talk.agent, PLACE).values["messages"]]
    assert messages[-2:] == ["from the other", "the answer of the other"]
    assert seen == [len(list(saver.list(PLACE)))]
    assert (talk.head(), talk.place()) == (4, 4)
    talk.run("later")
    assert "of the one before" not in talk.block()


# -- one of them is away -----------------------------------------------------------------------------------------------


@APART
def test_g8_g18_a_tool_that_committed_before_its_checkpoint_failed_has_one_effect(apart, checkpoints):
    """The run fails, the row stays, the place stays; the tool's repeat gets the first outcome, and the change is told."""
    talk = apart()
    talk.run("first")
    refusals = [checkpoints.refusing()]
    opened: list[Any] = []

    def refuse() -> None:
        if refusals:
            opened.append(refusals.pop())
            opened[0].__enter__()

    connect(talk, checkpoints, before=[AfterTools(refuse)])
    talk.say(calls("rename", title="by the assistant"))
    with pytest.raises((UnavailableError, sqlite3.IntegrityError)):
        talk.run("rename it")
    assert (talk.head(), talk.place()) == (4, 3)
    opened[0].__exit__(None, None, None)
    talk.say("done")
    result = talk.run(None)
    answers = [m.text for m in result.state["messages"] if m.type == "tool"]
    assert (result.status, answers, talk.head()) == ("succeeded", ["renamed"], 4)
    assert (talk.revisions(), talk.place()) == ([4], 4)
    assert "you, " in talk.block()


@APART
def test_g8_g20_a_new_message_after_a_failed_checkpoint_is_told_what_the_tool_did(apart, checkpoints):
    talk = apart()
    talk.run("first")
    refusal = checkpoints.refusing()
    connect(talk, checkpoints, before=[AfterTools(refusal.__enter__)])
    talk.say(calls("rename", title="by the assistant"))
    with pytest.raises((UnavailableError, sqlite3.IntegrityError)):
        talk.run("rename it")
    refusal.__exit__(None, None, None)
    connect(talk, checkpoints)
    talk.say("it is renamed")
    assert talk.run("what now?").status == "succeeded"
    assert (talk.revisions(), talk.place(), talk.head()) == ([4], 4, 4)


@APART
def test_g19_while_the_checkpoints_are_away_no_run_begins(apart, checkpoints, tmp_path):
    """The model is not asked, nothing moves, and the thread is free again at once."""
    talk = apart()
    talk.run("first")
    talk.change()
    asked = len(talk.model.requests)
    with checkpoints.refusing() if checkpoints.kind == "sqlite" else checkpoints.away():
        for _ in range(2):
            with pytest.raises((UnavailableError, sqlite3.IntegrityError)):
                talk.run("second")
    assert (len(talk.model.requests), talk.place()) == (asked, 3)
    assert talk.run("third").told == {"w1": 4}
    assert talk.revisions() == [4]


@APART
def test_g7_while_rows_and_log_are_away_nothing_runs(apart, database, checkpoints):
    talk = apart()
    talk.run("first")
    stored = len(list(talk.saver.list(PLACE)))
    asked = len(talk.model.requests)
    url = make_url(database.url)
    with Place(database.kind, database.url).away():
        with pytest.raises(UnavailableError):
            talk.run("second")
        assert len(list(talk.saver.list(PLACE))) == stored
    assert (url.database, len(talk.model.requests)) == (make_url(database.url).database, asked)
    talk.engine.dispose()
    talk.change()
    assert talk.run("third").told == {"w1": 4}


# -- one of them is restored -------------------------------------------------------------------------------------------


@APART
def test_g9_checkpoints_that_were_restored_are_told_again(apart, database, checkpoints, hubs):
    """The cursor has moved, but the history that heard it is gone: the mark is older, and the lower of the two counts."""
    talk = apart("the first answer")
    talk.run("first")
    stop(talk)
    checkpoints.copy()
    again(talk, database, checkpoints, hubs)
    talk.change("heard and lost")
    talk.run("second")
    assert (talk.revisions(), talk.place()) == ([4], 4)
    stop(talk)
    checkpoints.restore()
    again(talk, database, checkpoints, hubs)
    result = talk.run("third")
    assert [m.text for m in result.state["messages"]][:3] == ["first", "the first answer", "third"]
    assert (talk.revisions(), talk.place()) == ([4], 4)


@APART
def test_g19_g29_rows_and_log_that_were_restored_are_a_gap_and_wedge_no_conversation(apart, database, checkpoints, hubs):
    """The checkpoints know revisions that are no more, and tokens that are higher than those of the restored leases."""
    rows = Place(database.kind, database.url)
    talk = apart()
    talk.run("first")
    stop(talk)
    rows.copy()
    again(talk, database, checkpoints, hubs)
    for n in range(3):
        talk.change(f"lost {n}")
        talk.run("told")
    assert talk.revisions() == [6]
    stop(talk)
    rows.restore()
    again(talk, database, checkpoints, hubs)
    result = talk.run("after it")
    assert (NOTICE in talk.block(), talk.current()["plan"][0]["title"]) == (True, "Mapo")
    assert (result.status, len(result.state["messages"])) == ("succeeded", 10)
    talk.change("new")
    with talk.hub.lease("t") as held:
        assert held.lease.token > 4
    talk.say(calls("rename", title="written"), "done")
    talk.run("once more")
    assert (NOTICE in talk.block(), talk.revisions()) == (False, [5])
    assert talk.current()["plan"][0]["title"] == "written"


@APART
def test_g19_a_lease_that_was_lost_is_not_lifted(apart, database, checkpoints, hubs):
    """A run that was frozen before it announced itself finds a newer token, and is the older one: it does not begin."""
    talk = apart()
    talk.run("first")
    saver = talk.hub.checkpointer(checkpoints.url)

    class Late:
        """A saver whose announcement comes late."""

        def __init__(self) -> None:
            self.announced: list[int] = []

        def overtake(self) -> None:
            if not self.announced:
                talk.expire("u")
                other = declare(hubs(database))
                elsewhere(lambda: _held_once(other, checkpoints, "u"))

        def announce(self, lease: Any) -> int:
            self.overtake()
            self.announced.append(saver.announce(lease))
            return self.announced[-1]

        async def aannounce(self, lease: Any) -> int:
            self.overtake()
            self.announced.append(await saver.aannounce(lease))
            return self.announced[-1]

    late = Late()
    begun: list[str] = []
    heartbeat = talk.hub._core.heartbeat

    def hold() -> None:
        with heartbeat.held("u", "one", [late]):
            begun.append("begun")

    async def ahold() -> None:
        async with heartbeat.aheld("u", "one", [late]):
            begun.append("begun")

    with pytest.raises(LeaseLostError):
        hold() if talk.door.kind == "sync" else talk.door.wait(ahold())
    assert (begun, late.announced) == ([], [2])


@pytest.mark.parametrize("checkpoints", ["sqlite"], indirect=True)
def test_g19_lifting_a_lease_may_be_repeated_and_is_only_for_who_has_it(database, checkpoints, hubs, door):
    """Its reply may be lost; and another run may have just the token that it asks for."""
    talk = Talk(database, hubs, door)
    access, leases = talk.hub._core.access, talk.hub._core.heartbeat._leases

    def do(operation: Any) -> Any:
        return perform(access, operation) if door.kind == "sync" else door.wait(aperform(access, operation))

    first = do(leases.acquire("v", "one"))
    assert [do(leases.lift(first, 5)).token for _ in range(2)] == [6, 6]
    talk.expire("v")
    assert do(leases.acquire("v", "two")).token == 7
    for known in (5, 6, 7):
        with pytest.raises(LeaseLostError):
            do(leases.lift(first, known))


def _held_once(hub: Abreast, checkpoints: Place, thread: str) -> None:
    saver = hub.checkpointer(checkpoints.url)
    with hub.lease(thread):
        assert list(saver.list({"configurable": {"thread_id": thread}})) == []


# -- rows in a second database -----------------------------------------------------------------------------------------


class Notes(DeclarativeBase):
    pass


class Note(Notes):
    __tablename__ = "note"
    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    text: Mapped[str]


@pytest.fixture
def notes(checkpoints, hubs) -> Iterator[tuple[Abreast, sa.Engine]]:
    """A hub on another product's rows, in the other database."""
    engine = sa.create_engine(checkpoints.url)
    Notes.metadata.create_all(engine)
    hub = hubs(checkpoints.url)
    hub.track(Note, workspace="workspace_id", record="all")
    hub.blocking.install()
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into note (id, workspace_id, text) values ('n1', 'w1', 'a note')")
    yield hub, engine
    engine.dispose()


CORNER = pytest.mark.parametrize(
    ("database", "checkpoints"), [("sqlite", "postgresql"), ("postgresql", "sqlite")], indirect=True, ids=lambda kind: kind
)


@CORNER
def test_g6_an_agent_takes_the_middleware_of_one_hub(apart, notes):
    """Two would tell two blocks and keep two marks under one name. LangChain refuses them by that name."""
    talk = apart()
    hub, _ = notes
    with pytest.raises(AssertionError, match="duplicate middleware"):
        create_agent(talk.model, middleware=[hub.middleware(), talk.hub.middleware()], context_schema=RunContext)


@CORNER
def test_g7_rows_of_another_database_are_shown_by_a_loader(database, notes, hubs, door):
    """It brings the state of each call. It brings no changes, and is not of the batch's snapshot."""
    _, engine = notes
    talk = Talk(database, hubs, door)
    stop(talk)
    talk.hub = declare(hubs(database))

    @talk.hub.loader
    def plans(session: Any, workspace: str, context: Any) -> Any:
        return [row._asdict() for row in session.execute(sa.text("select id, title from plan"))]

    @talk.hub.loader
    def notes_of(session: Any, workspace: str, context: Any) -> Any:
        with engine.connect() as connection:
            found = connection.execute(sa.text("select text from note where workspace_id = :w"), {"w": workspace})
            return [text for (text,) in found]

    talk.agent = talk.build()
    talk.run()
    assert talk.current() == {"plans": [{"id": "p1", "title": "Mapo"}], "notes_of": ["a note"]}
    talk.change()
    with engine.begin() as connection:
        connection.exec_driver_sql("update note set text = 'another'")
    talk.run()
    assert (talk.current()["notes_of"], talk.revisions()) == (["another"], [4])


@CORNER
def test_g17_tools_of_another_hub_read_in_this_ones_run(apart, notes):
    hub, _ = notes
    talk = apart()
    agent = talk.build([*hub.tools(Note, write=False)])
    listing = next(name for name in (one.name for one in hub.tools(Note, write=False)) if name.startswith("list"))
    talk.say(calls(listing), "an answer")
    result = talk.run(agent=agent)
    (answer,) = [m for m in result.state["messages"] if m.type == "tool"]
    assert "a note" in answer.text


@CORNER
def test_g17_write_tools_of_another_hub_write_in_this_ones_run(apart, notes):
    """Under versions and mutations; the run's lease is not in their database, so nothing there is asked for it."""
    hub, engine = notes
    talk = apart()
    agent = talk.build([*hub.tools(Note)])
    name = next(one.name for one in hub.tools(Note) if one.name.startswith("update"))
    talk.say(calls(name, id="n1", version=1, text="by the assistant"), "an answer")
    assert talk.run(agent=agent).status == "succeeded"
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select text from note").scalar() == "by the assistant"


@CORNER
def test_g10_each_database_has_an_agent_of_its_own(apart, notes):
    """What is possible: one agent a hub, each with its conversations. The other is asked in a thread of its own."""
    hub, engine = notes
    talk = apart()
    model = ScriptedModel("from the notes")
    inner = create_agent(model, middleware=[hub.middleware()], context_schema=RunContext)

    def ask() -> str:
        return str(hub.blocking.run(inner, "what do the notes say?", thread="t:notes", context=CONTEXT).answer)

    agent = talk.build([write_tool(ask, "ask_notes")])
    for text in ("a note", "another note"):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"update note set text = '{text} now'")
        talk.say(calls("ask_notes"), "an answer")
        assert talk.run(agent=agent).status == "succeeded"
        assert f"{text} now" in model.last_request
        assert "Mapo" not in model.last_request
    assert [one.thread for one in hub.blocking.standings("w1")] == ["t:notes"]
    assert talk.place() == 3
