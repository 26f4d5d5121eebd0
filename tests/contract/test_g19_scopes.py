"""G19: what belongs to a run and shares its lease, and threads that are held outside a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from abreast import ConfigurationError, LeaseLostError, ThreadBusyError, agent, update
from abreast.agents.scope import current
from abreast.testing import calls
from leasing import ASYNC, Leased, apart, take, without_heart
from planner import CONTEXT, Plan
from talk import CORNERS, wait_tool, write_tool
from talk import update as update_state

# -- what belongs to a run ---------------------------------------------------------------------------------------------


def test_g19_a_sub_agent_inside_a_tool_shares_the_lease(database, hubs, door):
    """Invoked directly, or by a run of the hub for the same thread; neither gives the thread back."""
    leases: list[Any] = []

    def direct() -> None:
        door.invoke(sub, {"messages": [("user", "sub")]}, context=CONTEXT)
        leases.append(talk.lease())

    def run() -> None:
        leases.append(talk.run("sub", agent=sub))
        leases.append(talk.lease())

    def note(_: Any) -> str:
        leases.append(talk.lease())
        return "sub answer"

    talk = Leased(database, hubs, door, calls("direct"), note, calls("run"), note, "done")
    sub = talk.build([])
    sub.checkpointer = None
    result = talk.run(agent=talk.build([write_tool(direct, "direct"), write_tool(run, "run")]))
    assert result.answer == "done"
    inner = leases.pop(3)
    assert inner.status == "succeeded"
    assert {(one.token, one.run) for one in leases} == {(1, result.run)}
    assert len(leases) == 4
    assert (talk.lease().token, talk.lease().run) == (1, None)


def test_g19_a_run_for_another_thread_inside_a_tool_has_a_lease_of_its_own(database, hubs, door):
    seen: list[Any] = []

    def note(_: Any) -> str:
        seen.append((talk.lease("t"), talk.lease("t2")))
        return "other answer"

    def other() -> None:
        seen.append(talk.run("other", thread="t2"))
        seen.append((talk.lease("t"), talk.lease("t2")))

    talk = Leased(database, hubs, door, calls("other"), note, "done")
    result = talk.run(agent=talk.build([write_tool(other, "other")]))
    (outer, inner), ran, (still, back) = seen
    assert (result.status, ran.status) == ("succeeded", "succeeded")
    assert (outer.run, inner.run, still.run, back.run) == (result.run, ran.run, result.run, None)
    assert talk.said("t2") == ["other", "other answer"]


@ASYNC
def test_g19_a_task_that_outlives_its_run_is_not_part_of_it(database, hubs, door):
    """It was started inside the run, and comes when somebody else has the thread."""
    tasks: list[Any] = []
    go = asyncio.Event()
    first: list[Any] = []

    async def later() -> str:
        await go.wait()
        with pytest.raises(LeaseLostError):
            await talk.hub.apply("w1", update(Plan, "p1", title="late"), actor=agent(), lease=first[0])
        with pytest.raises(ThreadBusyError):
            await talk.hub.run(talk.agent, "late", thread="t", context=CONTEXT)
        return "was refused"

    async def spawn() -> str:
        scope = current.get()
        assert scope is not None
        first.append(scope.lease)
        tasks.append(asyncio.create_task(later()))
        return "spawned"

    def meanwhile(_: Any) -> str:
        async def ask() -> str:
            go.set()
            return str(await tasks[0])

        return str(apart(lambda: door.wait(ask())))

    talk = Leased(database, hubs, door, calls("wait"), "done", meanwhile)
    assert talk.run(agent=talk.build([wait_tool(spawn)])).answer == "done"
    assert talk.run().answer == "was refused"
    assert talk.lease().token == 2
    assert "late" not in talk.said()


# -- hub.lease ---------------------------------------------------------------------------------------------------------


@CORNERS
def test_g19_a_thread_is_held_outside_a_run(database, hubs, door):
    """For a state that the application writes itself; a run inside the block is part of it."""
    talk = Leased(database, hubs, door)
    talk.run("first")

    def inside(held: Any) -> None:
        row = talk.lease()
        assert (row.token, row.run) == (held.lease.token, held.lease.run)
        with pytest.raises(ThreadBusyError) as busy:
            talk.elsewhere()
        assert busy.value.run == held.lease.run
        assert talk.run("second").status == "succeeded"
        assert talk.lease()[:2] == row[:2]
        update_state(door, talk.agent, held.config, note("third"))

    if door.kind == "sync":
        with talk.hub.lease("t") as held:
            inside(held)
    else:

        async def hold() -> None:
            async with talk.hub.lease("t") as held:
                await asyncio.to_thread(inside, held)

        door.wait(hold())
    assert talk.lease().run is None
    assert talk.said() == ["first", "ok", "second", "ok", "third"]
    assert talk.elsewhere().status == "succeeded"


def note(text: str) -> dict[str, Any]:
    return {"messages": [("user", text)]}


@CORNERS
def test_g19_a_held_thread_that_was_lost_says_so_at_the_end(database, hubs, door):
    talk = Leased(database, hubs, door, lease_seconds=0.5)

    def hold() -> None:
        with talk.hub.lease("t") as held:
            take(talk)
            with pytest.raises(LeaseLostError):
                talk.hub.blocking.apply("w1", update(Plan, "p1", title="late"), actor=agent(), lease=held.lease)
            without_heart(door)

    async def ahold() -> None:
        async with talk.hub.lease("t"):
            await asyncio.to_thread(take, talk)
            await asyncio.Event().wait()

    with pytest.raises(LeaseLostError):
        hold() if door.kind == "sync" else door.wait(ahold())
    assert talk.lease()[:2] == (2, "another")


def test_g19_a_hub_without_tables_has_no_leases(database, hubs):
    with pytest.raises(ConfigurationError, match="no leases"):
        hubs(database).lease("t")
