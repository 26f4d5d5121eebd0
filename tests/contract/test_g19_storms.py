"""G19 when a run is cancelled again and again, and when the database says something unexpected to its heartbeat."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio

from abreast import agent, update
from abreast.testing import calls
from leasing import ASYNC, Leased, until
from planner import CONTEXT, Plan
from talk import TOOL_CALL, wait_tool, write_tool

SHORT = 0.6


@ASYNC
def test_g19_a_run_in_a_cancelled_scope_gives_its_thread_back(database, hubs, door):
    """As under web frameworks, where a scope that was cancelled cancels every await in it."""
    talk = Leased(database, hubs, door, calls("wait"), lease_seconds=30)
    there = asyncio.Event()

    async def wait() -> None:
        there.set()
        await asyncio.Event().wait()

    waiting = talk.build([wait_tool(wait)])

    async def end(scope: anyio.CancelScope) -> None:
        await there.wait()
        scope.cancel()

    async def storm() -> None:
        with anyio.CancelScope() as scope:
            async with asyncio.TaskGroup() as group:
                group.create_task(end(scope))
                await talk.hub.run(waiting, "q", thread="t", context=CONTEXT)

    door.wait(storm())
    until(lambda: talk.lease().run is None)
    assert talk.elsewhere().status == "succeeded"


@ASYNC
def test_g19_a_task_that_is_cancelled_over_and_over_gives_its_thread_back(database, hubs, door):
    talk = Leased(database, hubs, door, calls("wait"), lease_seconds=30)
    there = asyncio.Event()

    async def wait() -> None:
        there.set()
        await asyncio.Event().wait()

    waiting = talk.build([wait_tool(wait)])

    async def storm() -> None:
        task = asyncio.ensure_future(talk.hub.run(waiting, "q", thread="t", context=CONTEXT))
        await there.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)

    door.wait(storm())
    until(lambda: talk.lease().run is None)
    assert talk.elsewhere().status == "succeeded"


def test_g19_a_heartbeat_that_fails_in_an_unexpected_way_is_tried_again(database, hubs, door, caplog):
    """A server that is read-only for a moment, or, as here, whose table is away."""
    sqlite = database.kind == "sqlite"
    away, back = (
        ("alter table abreast_lease rename to moved", "alter table moved rename to abreast_lease")
        if sqlite
        else ("alter table abreast.lease rename to moved", "alter table abreast.moved rename to lease")
    )

    def long() -> None:
        talk.sql(away)
        until(lambda: "heartbeat could not be written" in caplog.text)
        talk.sql(back)
        first = talk.lease()
        until(lambda: talk.lease().expires_at > first.expires_at)

    talk = Leased(database, hubs, door, TOOL_CALL, "done", lease_seconds=SHORT)
    assert talk.run(agent=talk.build([write_tool(long)])).status == "succeeded"


@ASYNC
def test_g18_a_block_that_is_cancelled_wherever_it_is_holds_nothing(database, hubs, door):
    """While it waits for its turn, while it begins, in its body and while it commits."""
    talk = Leased(database, hubs, door)

    async def block(title: str) -> None:
        async with talk.hub.write("w1", actor=agent(), mutation=title) as tx:
            (await tx.get(Plan, "p1")).title = title

    async def storm() -> list[Any]:
        ends = []
        for ticks in range(40):
            task = asyncio.ensure_future(block(f"m{ticks}"))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            ends += await asyncio.gather(task, return_exceptions=True)
            await asyncio.wait_for(talk.hub.apply("w1", update(Plan, "p1", title="screen")), 5)
        return ends

    ends = door.wait(storm())
    assert any(isinstance(end, asyncio.CancelledError) for end in ends)
    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
    assert talk.hub.blocking.check() == []
