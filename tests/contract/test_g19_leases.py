"""G19: one run a thread, by a lease that the database's clock ends. Whoever lost it writes nothing."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langgraph.types import interrupt
from test_g07_every_model_call import impatient

from abreast import (
    LeaseError,
    LeaseLostError,
    ThreadBusyError,
    UnavailableError,
)
from abreast.testing import ScriptedModel, calls
from leasing import ASYNC, Leased, agent_of, apart, lease, put_tool, take, until, without_heart
from planner import CONTEXT, declare
from relay import relay
from talk import CORNERS, TOOL_CALL, Broken, Talk, locked, wait_tool, write_tool

SHORT = 1.0
"""Seconds of a lease that a test outlives."""

# -- two messages at once ----------------------------------------------------------------------------------------------


def test_g19_of_two_messages_at_once_one_runs_and_the_other_is_told_who_has_the_thread(database, hubs, door):
    """B9: without the lease both would run, and the later checkpoint would drop the other's turn."""
    busy: list[ThreadBusyError] = []

    def second(_: Any) -> str:
        with pytest.raises(ThreadBusyError) as caught:
            talk.elsewhere("second")
        with pytest.raises(ThreadBusyError):  # in the same hub too
            apart(lambda: talk.run("second"))
        busy.append(caught.value)
        return "answer to the first"

    talk = Leased(database, hubs, door, second)
    first = talk.run("first")
    (error,) = busy
    assert (error.thread, error.run) == ("t", first.run)
    assert 0 < error.seconds <= 30
    assert "'t'" in str(error)
    assert isinstance(error, LeaseError)
    assert talk.elsewhere("second").status == "succeeded"
    assert talk.said() == ["first", "answer to the first", "second", "ok"]
    assert len(talk.model.requests) == 1


@CORNERS
def test_g19_other_threads_are_not_concerned(database, hubs, door):
    other: list[str] = []

    def meanwhile(_: Any) -> str:
        other.append(talk.elsewhere(thread="t2").status)
        return "done"

    talk = Leased(database, hubs, door, meanwhile)
    assert talk.run().status == "succeeded"
    assert other == ["succeeded"]
    assert talk.lease("t2").run is None


# -- a run gives its thread back ---------------------------------------------------------------------------------------


class After(AgentMiddleware):
    """Fails when the model has answered."""

    def after_model(self, state: Any, runtime: Any) -> None:
        raise Broken


def refuses(_: Any) -> bool:
    return False


def breaks(_: Any) -> None:
    raise Broken


ENDINGS: dict[str, Any] = {
    "an answer": lambda talk: talk.run(),
    "the model raises": lambda talk: (talk.say(Broken()), talk.run()),
    "a tool raises": lambda talk: (talk.say(TOOL_CALL), talk.run(agent=talk.build([write_tool(lambda: breaks(0))]))),
    "a tool pauses": lambda talk: (talk.say(TOOL_CALL), talk.run(agent=talk.build([write_tool(lambda: interrupt("?"))]))),
    "a middleware raises": lambda talk: talk.run(agent=talk.build(after=[After()])),
    "a validator refuses": lambda talk: talk.run(validate=[refuses]),
    "a validator raises": lambda talk: talk.run(validate=[breaks]),
    "a validator is of the other door": lambda talk: talk.run(validate=[coroutine]),
    "too many steps": lambda talk: talk.run(config={"recursion_limit": 1}),
    "no context": lambda talk: talk.run(context=None),
}


async def coroutine(_: Any) -> None:
    raise Broken


@pytest.mark.parametrize("ending", ENDINGS)
def test_g19_however_a_run_ends_its_thread_is_free_at_once(database, hubs, door, ending):
    """A2: also where the answer is thrown away after the graph has returned."""
    talk = Leased(database, hubs, door)
    with suppress(Exception):
        ENDINGS[ending](talk)
    if ending != "no context":  # which is noticed before the thread is taken
        assert talk.lease().run is None
    assert talk.elsewhere().run
    assert talk.lease().token == (1 if ending == "no context" else 2)


@ASYNC
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
@pytest.mark.parametrize("stage", ["tool", "validator"])
def test_g19_a_cancelled_run_gives_its_thread_back_at_once(database, hubs, door, stage, how):
    talk = Leased(database, hubs, door, *([calls("wait")] if stage == "tool" else []))
    there = asyncio.Event()

    async def wait(*_: Any) -> None:
        there.set()
        await asyncio.Event().wait()

    agent_ = talk.build([wait_tool(wait)])

    async def run() -> None:
        await talk.hub.run(agent_, "q", thread="t", context=CONTEXT, validate=[wait] if stage == "validator" else [])

    async def cancelled() -> None:
        task = asyncio.ensure_future(run())
        await there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def timed_out() -> None:
        async def end(limit: asyncio.Timeout) -> None:
            await there.wait()
            limit.reschedule(asyncio.get_running_loop().time())

        async def limited() -> None:
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                group.create_task(end(limit))
                await run()

        with pytest.raises(TimeoutError):
            await limited()

    door.wait(cancelled() if how == "cancelled" else timed_out())
    assert talk.lease().run is None
    assert talk.elsewhere().status == "succeeded"


@ASYNC
def test_g19_a_run_that_is_cancelled_while_it_takes_its_thread_does_not_keep_it(database, hubs, door):
    """What the database was asked for may be granted after nobody wants it any more."""
    talk = Leased(database, hubs, door)
    talk.run()

    async def begin() -> Any:
        return asyncio.ensure_future(talk.hub.run(talk.agent, "q", thread="t", context=CONTEXT))

    async def cancel(task: Any) -> None:
        task.cancel()
        await asyncio.sleep(0)

    async def ended(task: Any) -> None:
        with pytest.raises(asyncio.CancelledError):
            await task

    with locked(database, talk.engine, "lease", mode="share"):
        task = door.wait(begin())
        until(lambda: is_asked(talk))
        door.wait(cancel(task))
    door.wait(ended(task))
    assert talk.elsewhere().status == "succeeded"
    assert len(talk.model.requests) == 1


def is_asked(talk: Leased) -> bool:
    """Whether somebody waits for the lease: in SQLite's writer thread, or at the lock of the table."""
    if talk.engine.dialect.name == "sqlite":
        return talk.hub._core.access._writing.locked()
    with talk.engine.connect() as connection:
        return bool(connection.exec_driver_sql("select count(*) from pg_locks where not granted").scalar_one())


# -- the heartbeat -----------------------------------------------------------------------------------------------------


def test_g19_a_run_that_is_longer_than_its_lease_keeps_its_thread(database, hubs, door):
    def long() -> None:
        first = talk.lease()
        until(lambda: talk.lease().now > first.expires_at + SHORT / 2)
        with pytest.raises(ThreadBusyError) as caught:
            talk.elsewhere(lease_seconds=SHORT)
        assert caught.value.seconds <= SHORT
        assert (talk.lease().token, talk.lease().run) == (first.token, first.run)
        ran.append(first.run)

    ran: list[Any] = []
    talk = Leased(database, hubs, door, TOOL_CALL, "done", lease_seconds=SHORT)
    result = talk.run(agent=talk.build([write_tool(long)]))
    assert (result.status, ran) == ("succeeded", [result.run])
    assert talk.lease().run is None


def test_g19_a_write_block_that_is_longer_than_the_lease_keeps_nobody_waiting(postgres, hubs, door):
    """The heartbeat goes on beside it, and a second message is told at once that the thread is busy; it does not stand in
    the way of the run's own writes, in wait for the block to end."""
    ran: list[Any] = []

    def second() -> None:
        with pytest.raises(ThreadBusyError):
            talk.elsewhere(lease_seconds=SHORT)

    def long() -> None:
        first = talk.lease()
        until(lambda: talk.lease().now > first.expires_at + SHORT / 2)
        pool.submit(Context().run, second).result(timeout=30)
        ran.append(talk.lease().run)

    talk = Leased(postgres, hubs, door, calls("put"), "done", lease_seconds=SHORT)
    with ThreadPoolExecutor(1) as pool:
        result = talk.run(agent=talk.build([put_tool(talk.hub, door.kind, long)]))
    assert (result.status, ran) == ("succeeded", [result.run])
    assert talk.current()["plan"][0]["title"] == "put"


@ASYNC
def test_g19_a_run_that_lost_its_thread_is_cancelled_by_its_heartbeat(database, hubs, door):
    """B12: and the heartbeat of the one does not keep the other's lease alive, nor ends it."""
    ended: list[str] = []

    async def wait() -> str:
        await asyncio.to_thread(take, talk)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    talk = Leased(database, hubs, door, calls("wait"), "never", lease_seconds=SHORT / 2)
    with pytest.raises(LeaseLostError) as caught:
        talk.run(agent=talk.build([wait_tool(wait)]))
    assert (caught.value.thread, ended) == ("t", ["cancelled"])
    assert (talk.lease().token, talk.lease().run) == (2, "another")
    assert talk.lease().expires_at > 3e9
    with pytest.raises(ThreadBusyError) as busy:
        talk.elsewhere()
    assert busy.value.run == "another"


@ASYNC
def test_g19_a_task_that_lost_its_thread_goes_on_itself(database, hubs, door):
    """The cancellation was the hub's own: the task that asked for the run is not a cancelled one."""

    async def wait() -> str:
        await asyncio.to_thread(take, talk)
        await asyncio.Event().wait()
        return "never"

    async def caller() -> str:
        with pytest.raises(LeaseLostError):
            async with asyncio.timeout(60):
                await talk.hub.run(talk.build([wait_tool(wait)]), "q", thread="t", context=CONTEXT)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)
        return "went on"

    talk = Leased(database, hubs, door, calls("wait"), lease_seconds=SHORT / 2)
    assert door.wait(caller()) == "went on"


def test_g19_the_heartbeat_of_a_lost_lease_ends_and_leaves_the_others_alone(database, hubs, door):
    """B12, where the run cannot be cancelled: it ends where it next asks."""

    def lose() -> None:
        take(talk)
        without_heart(door)

    talk = Leased(database, hubs, door, TOOL_CALL, "never", lease_seconds=SHORT / 2)
    with pytest.raises(LeaseLostError):
        talk.run(agent=talk.build([write_tool(lose)]))
    assert talk.lease()[:2] == (2, "another")
    assert talk.lease().expires_at > 3e9
    assert "never" not in talk.said()
    assert talk.place() == 3


def test_g19_a_lost_run_that_fails_says_that_it_was_lost(database, hubs, door):
    """What went wrong in a run that had lost its thread went wrong because of that, or does not matter any more."""

    def fail(_: Any) -> str:
        take(talk)
        without_heart(door)
        raise Broken

    talk = Leased(database, hubs, door, fail, lease_seconds=SHORT / 2)
    with pytest.raises(LeaseLostError):
        talk.run()


# -- a database that does not answer -----------------------------------------------------------------------------------


def test_g19_a_lease_whose_answer_was_lost_is_taken_again(postgres, hubs, door):
    """The first attempt was committed: its token is used up, and the run has the next one."""
    talk = Talk(postgres, hubs, door)
    with relay(postgres.url) as between:
        far = declare(hubs(between.url))
        door(far).batch("w1", context=CONTEXT)
        between.lose_answer("COMMIT\0")  # and not of "READ COMMITTED"
        result = door(far).run(agent_of(far, ScriptedModel(), saver=talk.saver), "q", thread="t", context=CONTEXT)
        assert between.lost == 1
        assert result.status == "succeeded"
        assert lease(talk.engine)[:2] == (2, None)
        door(far).close()


def test_g19_without_its_database_a_run_goes_on_where_it_was_told_to(database, hubs, door, caplog):
    """`warn` is for conversations whose saver asks no lease; it is said in the log."""
    talk = Talk(database, hubs, door, url=impatient(database), on_unavailable="warn")
    talk.run()
    with caplog.at_level(logging.WARNING, "abreast"), locked(database, talk.engine, "lease", mode="share"):
        result = talk.run("second")
    assert (result.status, len(talk.model.requests)) == ("succeeded", 2)
    assert any("goes on without one" in record.message for record in caplog.records)
    assert lease(talk.engine)[:2] == (1, None)


@pytest.mark.parametrize(("policy", "fenced"), [("stop", False), ("stop", True), ("warn", True)])
def test_g19_without_its_database_a_run_does_not_begin(database, hubs, door, policy, fenced):
    """The hub's saver writes for a lease only, so there is nothing to go on with."""
    kind = Leased if fenced else Talk
    talk = kind(database, hubs, door, url=impatient(database), on_unavailable=policy)
    talk.run()
    with locked(database, talk.engine, "lease", mode="share"), pytest.raises(UnavailableError):
        talk.run("second")
    assert len(talk.model.requests) == 1
    assert talk.run("third").status == "succeeded"
    messages = door.state(talk.agent, {"configurable": {"thread_id": "t"}}).values["messages"]
    assert "second" not in [message.text for message in messages]


@ASYNC
def test_g19_a_thread_that_could_not_be_given_back_is_taken_by_the_next_run_of_the_process(database, hubs, door):
    """Other processes wait until the lease has expired."""
    talk = Talk(database, hubs, door, url=impatient(database))

    def late(_: Any) -> bool:
        manager.__enter__()
        return False

    manager = locked(database, talk.engine, "lease", mode="share")
    result = talk.run(validate=[late])
    manager.__exit__(None, None, None)
    assert result.status == "failed"
    assert lease(talk.engine).run == result.run
    other = declare(hubs(database))
    with pytest.raises(ThreadBusyError):
        door(other).run(agent_of(other, ScriptedModel(), saver=talk.saver), "q", thread="t", context=CONTEXT)
    assert talk.run().status == "succeeded"
    assert lease(talk.engine).run is None
