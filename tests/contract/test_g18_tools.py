"""G18 for tools of the application's own: one intention, one effect, whatever a provider, a crash or a model repeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage

from abreast import AsyncTransaction, LeaseLostError, MutationId, RefusedError, ThreadBusyError, Transaction, agent
from abreast.testing import calls
from caller import LEASE_SECONDS, build, by_hand, call, kept, mail_tool, put_tool, runtime_of, title
from planner import CONTEXT, Plan, declare, planner
from processes import started
from relay import relay
from talk import Talk


def several(*made: tuple[str, str | None, dict[str, str]]) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "id": id, "args": args} for name, id, args in made])


def answers(result) -> list[str]:
    return [message.content for message in result.state["messages"] if isinstance(message, ToolMessage)]


def statuses(result) -> list[str]:
    return [message.status for message in result.state["messages"] if isinstance(message, ToolMessage)]


def written(hub) -> int:
    """Events of the agent's."""
    return len([event for event in hub.blocking.history("w1", limit=100) if event.actor == agent()])


def test_g18_ids_of_calls_that_repeat_across_turns_are_two_writes(database, hubs, door):
    talk = Talk(database, hubs, door)
    tools = talk.build([put_tool(talk.hub, door.kind)])
    talk.say(calls("put", call_id="put:0", text="1"), "ok", calls("put", call_id="put:0", text="2"), "ok")
    talk.say(calls("put", call_id="put:0", text="2"), "ok")
    results = [talk.run(agent=tools) for _ in range(3)]
    assert title(talk.engine) == "Mapo122"
    assert answers(results[-1]) == ['{"title": "Mapo1"}', '{"title": "Mapo12"}', '{"title": "Mapo122"}']
    assert written(talk.hub) == kept(talk.engine) == 3
    (event, *_) = talk.hub.blocking.history("w1", limit=1)
    assert (event.actor, event.thread, event.fields) == (agent(), "t", ("title",))
    assert event.mutation is not None
    assert event.mutation.startswith("call:")


@pytest.mark.parametrize("id", ["put:0", "", None])
def test_g18_one_id_for_two_calls_of_a_message_or_an_empty_one_are_two_writes(database, hubs, door, id):
    talk = Talk(database, hubs, door)
    talk.say(several(("put", id, {"text": "1"}), ("put", id, {"text": "2"})), "ok")
    result = talk.run(agent=talk.build([put_tool(talk.hub, door.kind)]))
    assert sorted(title(talk.engine)) == sorted("Mapo12")
    assert statuses(result) == ["success"] * 2
    assert written(talk.hub) == 2


def test_g18_the_same_call_twice_in_a_turn_is_answered_from_the_first(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.say(several(("put", "a", {"text": "!"}), ("put", "b", {"text": "!"})), calls("put", call_id="c", text="!"), "ok")
    result = talk.run(agent=talk.build([put_tool(talk.hub, door.kind)]))
    # Which of the first two wrote it nobody can say; the second of them is told, and so is the third.
    assert answers(result) == ['{"title": "Mapo!"}', *['{"title": "Mapo!", "repeated": true}'] * 2]
    assert title(talk.engine) == "Mapo!"
    assert written(talk.hub) == kept(talk.engine) == 1


def test_g18_repeatable_where_twice_means_twice(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.say(several(("put", "a", {"text": "!"}), ("put", "b", {"text": "!"})), calls("put", call_id="c", text="!"), "ok")
    talk.run(agent=talk.build([put_tool(talk.hub, door.kind, repeatable=True)]))
    assert title(talk.engine) == "Mapo!!!"
    assert written(talk.hub) == 3


def test_g18_a_refusal_is_stored_and_told_and_a_repeat_hears_it_without_the_function(database, hubs, door):
    talk = Talk(database, hubs, door)
    asked = []

    def refuse(tx):
        asked.append(tx.mutation)
        tx.get(Plan, "p1").title = "never"
        tx.session.flush()
        raise RefusedError("The month is closed.", month=9)

    if door.kind == "sync":

        @talk.hub.tool
        def move(tx: Transaction, day: int) -> str:
            """Moves."""
            return refuse(tx)

    else:

        @talk.hub.tool
        async def move(tx: AsyncTransaction, day: int) -> str:
            """Moves."""
            return await tx.run(refuse)

    talk.say(several(("move", "a", {"day": 1}), ("move", "b", {"day": 1})), "ok")
    result = talk.run(agent=talk.build([move]))
    assert [json.loads(text) for text in answers(result)] == [{"error": "The month is closed.", "details": {"month": 9}}] * 2
    assert statuses(result) == ["error"] * 2
    assert len(asked) == 1
    assert title(talk.engine) == "Mapo"
    assert kept(talk.engine) == 1


# -- a process that is killed ----------------------------------------------------------------------------------------


def given(database, door, tmp_path, tool, stage):
    checkpoints = str(tmp_path / "checkpoints.db") if database.kind == "sqlite" else database.plain
    mails = str(tmp_path / "mails")
    made = {"url": database.url, "kind": database.kind, "checkpoints": checkpoints, "door": door.kind}
    return json.dumps({**made, "tool": tool, "stage": stage, "mails": mails})


def resumed(door, hub, agent):
    """The run goes on as soon as the lease of the one that was killed has run out."""
    while True:
        try:
            return door(hub).run(agent, None, thread="t", context=CONTEXT)
        except ThreadBusyError:
            continue


@pytest.mark.parametrize("stage", ["inside", "after"])
def test_g18_a_process_killed_in_its_tool_or_between_the_commit_and_the_answer_has_written_once(
    database, hubs, door, checkpointer, tmp_path, stage
):
    hub, engine = planner(database, hubs, lease_seconds=LEASE_SECONDS)
    with started("caller.py", (given(database, door, tmp_path, "put", stage),)) as (process,):
        process.kill()
    if stage == "after":
        assert title(engine) == "Mapo!"
    asked = []
    again = build(hub, [put_tool(hub, door.kind, lambda: asked.append(1))], checkpointer)
    result = resumed(door, hub, again)
    assert (result.status, answers(result)) == ("succeeded", ['{"title": "Mapo!"}'])
    assert asked == ([] if stage == "after" else [1])
    assert title(engine) == "Mapo!"
    assert written(hub) == kept(engine) == 1
    assert hub.blocking.check() == []


@pytest.mark.parametrize("stage", ["inside", "after"])
def test_g18_a_mail_whose_process_was_killed_is_not_sent_again(database, hubs, door, checkpointer, tmp_path, stage):
    """Killed between the mail and its outcome, nobody knows whether it went, and a person is asked; killed after that, the
    outcome is there."""
    hub, _engine = planner(database, hubs, lease_seconds=LEASE_SECONDS)
    with started("caller.py", (given(database, door, tmp_path, "mail", stage),)) as (process,):
        process.kill()
    again = build(hub, [mail_tool(hub, door.kind, tmp_path / "mails")], checkpointer)
    result = resumed(door, hub, again)
    lines = (tmp_path / "mails").read_text().splitlines()
    assert len(lines) == 1
    (text,) = answers(result)
    if stage == "after":
        assert text == '{"sent": "kim"}'
        return
    told = json.loads(text)
    assert (told["outcome"], told["mutation"]) == ("unknown", lines[0].split()[0])
    assert "not repeated" in told["error"]
    assert "person" in told["do"]
    assert statuses(result) == ["error"]


# -- errors that pass ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("failures", "runs"), [(2, 3), (5, 3)])
def test_g18_a_passing_error_runs_the_function_again_under_the_same_mutation(database, hubs, door, failures, runs):
    talk = Talk(database, hubs, door)
    seen: list[str] = []

    def work(tx):
        seen.append(tx.mutation)
        tx.get(Plan, "p1").title += "!"
        tx.session.flush()
        if len(seen) <= failures:
            raise ConnectionResetError("postgresql://u:hunter2@h")
        return "done"

    if door.kind == "sync":

        @talk.hub.tool
        def put(tx: Transaction) -> str:
            """Puts."""
            return work(tx)

    else:

        @talk.hub.tool
        async def put(tx: AsyncTransaction) -> str:
            """Puts."""
            return await tx.run(work)

    talk.say(calls("put"), calls("put", call_id="again"), "ok")
    result = talk.run(agent=talk.build([put]))
    (first, second) = answers(result)
    if failures == 2:
        assert (len(seen), first) == (3, "done")
        assert json.loads(second) == {"answer": "done", "repeated": True}
    else:
        # The model tries it once more, and it is the same write: had it been written, it would not be written again.
        assert len(seen) == 6
        assert json.loads(first)["outcome"] == "unknown"
        assert "hunter2" not in first
        assert second == "done"
    assert len(set(seen)) == 1
    assert title(talk.engine) == "Mapo!"
    assert written(talk.hub) == kept(talk.engine) == 1


def test_g18_a_deadlock_runs_the_function_again(postgres, hubs, door):
    """The other transaction never gives in; the tool's does, and comes again."""
    talk = Talk(postgres, hubs, door)
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', '')")
    runs: list[str] = []
    locked, held = Event(), Event()

    def work(tx):
        tx.get(Plan, "p1").title += "!"
        tx.session.flush()
        runs.append(tx.mutation)
        held.set()
        assert locked.wait(30)
        tx.get(Plan, "p2").title += "!"
        return "done"

    if door.kind == "sync":

        @talk.hub.tool
        def put(tx: Transaction) -> str:
            """Puts."""
            return work(tx)

    else:

        @talk.hub.tool
        async def put(tx: AsyncTransaction) -> str:
            """Puts."""
            return await tx.run(work)

    def other():
        with talk.engine.begin() as connection:
            connection.exec_driver_sql("set local deadlock_timeout = '1h'")
            connection.exec_driver_sql("select 1 from plan where id = 'p2' for update")
            assert held.wait(30)
            locked.set()
            connection.exec_driver_sql("select 1 from plan where id = 'p1' for update")

    talk.say(calls("put"), "ok")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(other)
        result = talk.run(agent=talk.build([put]))
        done.result(30)
    assert answers(result) == ["done"]
    assert len(runs) == 2
    assert len(set(runs)) == 1
    assert title(talk.engine) == "Mapo!"


def test_g18_a_write_whose_commit_got_no_answer_is_not_made_again(postgres, hubs, door):
    _hub, engine = planner(postgres, hubs)
    asked: list[int] = []
    with relay(postgres.url) as between:
        far = declare(hubs(between.url))
        tool = put_tool(far, door.kind, lambda: asked.append(1))
        by_message = {text: AIMessage("", id=text, tool_calls=[calls("put", text=text).tool_calls[0]]) for text in "12"}
        call(door, tool, runtime_of(by_message["1"], "call_1"), text="1")
        between.lose_answer("COMMIT")
        answered = call(door, tool, runtime_of(by_message["2"], "call_1"), text="2")
        assert between.lost == 1
        assert (answered.status, answered.content) == ("success", '{"title": "Mapo12"}')
    assert len(asked) == 2
    assert title(engine) == "Mapo12"
    assert kept(engine) == 2


def test_g18_without_a_mutation_nothing_is_tried_again(database, hubs, door):
    """Called by hand, outside a graph: a reply that was lost cannot be told from a write that never was."""
    hub, engine = planner(database, hubs)
    runs: list[None] = []

    def work() -> str:
        runs.append(None)
        raise ConnectionResetError

    @hub.tool
    def put(tx: Transaction) -> str:
        """Puts."""
        return work()

    @hub.tool
    async def aput(tx: AsyncTransaction) -> str:
        """Puts."""
        return work()

    tool = put if door.kind == "sync" else aput
    assert call(door, tool, by_hand()).status == "error"
    assert len(runs) == 1
    assert kept(engine) == 0


class Losing(AgentMiddleware):
    """Another run takes the conversation between the model's call and the tool."""

    def __init__(self, lose: Callable[[], None]) -> None:
        super().__init__()
        self._lose = lose
        self.refused = 0

    @contextmanager
    def _lost(self) -> Iterator[None]:
        self._lose()
        try:
            yield
        except LeaseLostError:
            self.refused += 1
            raise

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        with self._lost():
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        with self._lost():
            return await handler(request)


def test_g18_the_lease_is_asked_in_every_kind_of_tool(database, hubs, door):
    """A run that lost its conversation on the way writes nothing, sends nothing and does nothing; and it ends."""
    table = "abreast.lease" if database.kind == "postgresql" else "abreast_lease"
    done: list[str] = []
    talk = Talk(database, hubs, door)

    @talk.hub.tool
    def put(tx: Transaction) -> str:
        """Puts."""
        done.append("put")
        return "done"

    @talk.hub.tool
    def mail(key: MutationId) -> str:
        """Sends."""
        done.append("mail")
        return "done"

    @talk.hub.tool
    def look() -> str:
        """Looks."""
        done.append("look")
        return "done"

    losing = Losing(lambda: talk.sql(f"update {table} set token = token + 1"))
    built = talk.build([put, mail, look], before=[losing])
    for number, name in enumerate(("put", "mail", "look"), 1):
        talk.say(calls(name))
        with pytest.raises(LeaseLostError):
            talk.run(agent=built, thread=name)
        assert losing.refused == number
    assert done == []
    assert kept(talk.engine) == 0
