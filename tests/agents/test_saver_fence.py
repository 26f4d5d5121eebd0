"""The fence around LangGraph's savers (G19): who may write a checkpoint, and what of it can be seen."""

from __future__ import annotations

import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from abreast import LeaseError, LeaseLostError, RunContext, Transaction, UnavailableError
from abreast.testing import ScriptedModel, calls
from places import Place
from planner import CONTEXT, Plan, declare, planner
from saved import PLACE, TOKEN, Savers, stock_place
from steps import steps
from talk import CORNERS, TOOL_CALL, Talk, update, write_tool


def attempts(one: Savers) -> dict[str, Callable[[], Any]]:
    """Every way to write."""
    here = one.config(checkpoint_id="00000001")
    return {
        "a checkpoint": lambda: one.put(2, "00000001"),
        "a checkpoint of a sub-graph": lambda: one.put(3, ns="sub:1"),
        "writes": lambda: one.call("put_writes", here, [("n", 1), ("list", [])], "other"),
        "an interrupt": lambda: one.call("put_writes", here, [("__interrupt__", "asks")], "other"),
    }


def test_g19_nothing_is_written_without_the_newest_token_of_the_thread(database, hub, hubs, door, held):
    """Not without one, not with that of another thread, and not with an old one."""
    saver = hub.checkpointer()
    old = held(hub, "t").config["configurable"][TOKEN]
    held(hub, "u")
    mine = Savers(saver, door, "t", {TOKEN: old})
    mine.put(1)
    before = [mine.list(mine.config()), mine.get()]
    for wrong in ({}, {TOKEN: ("u", 1)}, {TOKEN: 1}, {TOKEN: ["t", 1]}):
        for attempt in attempts(Savers(saver, door, "t", wrong)).values():
            with pytest.raises(LeaseError, match="under hub") as refused:
                attempt()
            assert not isinstance(refused.value, LeaseLostError)
    for token in (old[1] - 1, old[1] + 1, -1, -2):
        for attempt in attempts(Savers(saver, door, "t", {TOKEN: ("t", token)})).values():
            with pytest.raises(LeaseLostError):
                attempt()
    for attempt in attempts(Savers(saver, door, "never held", {TOKEN: ("never held", 1)})).values():
        with pytest.raises(LeaseLostError):
            attempt()
    assert [mine.list(mine.config()), mine.get()] == before
    for attempt in attempts(mine).values():
        attempt()
    assert len(mine.list(mine.config())) == 2


def test_g19_whoever_takes_the_thread_shuts_out_the_one_before(database, hubs, door, held):
    """Also through another saver, of another process for instance; and an old token that is announced late changes nothing."""
    hub, _ = planner(database, hubs)
    first, second = hub.checkpointer(), hub.checkpointer()
    one = hub.lease("t")
    lease = one.__enter__().lease
    mine = Savers(first, door, "t", {TOKEN: ("t", lease.token)})
    mine.put(1)
    newer = replace(lease, token=lease.token + 1)
    assert Savers(second, door, "t").call("announce", newer) == newer.token
    assert Savers(first, door, "t").call("announce", lease) == newer.token
    for attempt in attempts(mine).values():
        with pytest.raises(LeaseLostError):
            attempt()
    Savers(first, door, "t", {TOKEN: ("t", newer.token)}).put(2)
    one.__exit__(None, None, None)


@CORNERS
def test_g19_a_run_inside_a_hold_may_have_another_saver(database, hubs, door, tmp_path):
    """One that was made after the thread was taken, for example: it hears of the lease then."""
    hub, _ = planner(database, hubs)
    with hub.lease("t"):
        graph = steps(hub.checkpointer(f"sqlite:///{tmp_path / 'another.db'}"))
        for _ in range(2):
            door(hub).run(graph, {"said": ["go"]}, thread="t", context=CONTEXT)
    assert len(graph.get_state(PLACE).values["said"]) == 8


@CORNERS
def test_g19_a_hold_may_end_in_another_context_than_it_began_in(database, hubs, door):
    """As the dependency of a web framework does, whose two halves run in threads of their own."""
    hub, _ = planner(database, hubs)
    for _ in range(2):
        hold = hub.lease("t")
        contextvars.copy_context().run(hold.__enter__)
        contextvars.copy_context().run(hold.__exit__, None, None, None)
    assert door(hub).run(steps(hub.checkpointer()), {"said": ["go"]}, thread="t", context=CONTEXT).status == "failed"


@CORNERS
def test_g19_a_hold_without_a_database_says_so(database, hubs, door):
    """`on_unavailable="warn"` lets runs go on without a lease; a hold is nothing else."""
    hub, engine = planner(database, hubs, on_unavailable="warn")
    engine.dispose()

    def hold() -> None:
        with hub.lease("t"):
            pass

    async def ahold() -> None:
        async with hub.lease("t"):
            pass

    with Place(database.kind, database.url).away(), pytest.raises(UnavailableError):
        hold() if door.kind == "sync" else door.wait(ahold())


def test_g19_a_checkpoint_whose_last_statement_fails_leaves_nothing(postgres, hubs, door, held):
    """Values, checkpoint and fence are one transaction, though the saver's connection is in autocommit."""
    hub, engine = planner(postgres, hubs)
    mine = Savers(hub.checkpointer(), door, "t", {TOKEN: held(hub, "t").config["configurable"][TOKEN]})
    mine.put(1)
    with engine.begin() as connection:
        connection.exec_driver_sql("alter table checkpoints add constraint only_one check (checkpoint_id < '00000002')")
        connection.exec_driver_sql("alter table checkpoint_writes add constraint few check (idx < 2)")
    tables = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")

    def rows() -> list[Any]:
        with engine.connect() as connection:
            return [connection.exec_driver_sql(f"select count(*) from {table}").scalar() for table in tables]

    before = rows()
    with pytest.raises(psycopg.errors.CheckViolation):
        mine.put(2)
    with pytest.raises(psycopg.errors.CheckViolation):
        mine.call("put_writes", mine.config(checkpoint_id="00000001"), [("a", 1), ("b", 2), ("c", 3)], "task")
    assert rows() == before
    mine.put(1)


@CORNERS
def test_g19_neither_token_nor_lease_is_in_any_checkpoint(database, hubs, door, tmp_path):
    talk = Talk(database, hubs, door, TOOL_CALL, "an answer")
    talk.saver = talk.hub.checkpointer(stock_place(database, tmp_path))
    agent = talk.build([write_tool(lambda: None)])
    talk.run(agent=agent)
    with talk.hub.lease("t") as now:
        update(door, agent, now.config, {"messages": [("user", "by hand")]})
    engine = sa.create_engine(stock_place(database, tmp_path))
    with engine.connect() as connection:
        tables = [name for name in sa.inspect(connection).get_table_names() if name.startswith(("checkpoint", "writes"))]
        rows = [row for table in tables for row in connection.exec_driver_sql(f"select * from {table}").all()]
    engine.dispose()
    text = b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)
    assert b"an answer" in text
    for word in (b"__abreast", b"token", b"lease", b"hold:"):
        assert word not in text


@CORNERS
def test_g19_a_run_stores_each_step_before_the_next_whatever_its_config_says(database, hubs, door):
    """The call of a tool is on disk before the tool runs."""
    seen: list[Any] = []
    talk = Talk(database, hubs, door)
    talk.saver = saver = talk.hub.checkpointer()
    agent = talk.build([write_tool(lambda: seen.append(saver.get_tuple(PLACE).checkpoint["channel_values"]["messages"][-1]))])
    for durability in ("exit", "async"):
        talk.say(TOOL_CALL, "an answer")
        talk.run(agent=agent, config={"configurable": {"__pregel_durability": durability}})
    assert [[call["name"] for call in message.tool_calls] for message in seen] == [["write"], ["write"]]


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_g19_a_tool_carries_the_fence_where_checkpoints_come_late(database, hubs, door, durability):
    """A bare graph under `hub.lease`: its writes of rows ask for the lease themselves."""
    talk = Talk(database, hubs, door)
    other = declare(hubs(database))
    saver, savers = talk.hub.checkpointer(), [other.checkpointer()]  # every process has one
    called: list[str] = []

    @talk.hub.tool(repeatable=True)
    def rename(tx: Transaction) -> str:
        """Renames the plan."""
        called.append("called")
        tx.get(Plan, "p1").title = f"renamed {len(called)}"
        return "done"

    def stolen(_: Any) -> Any:
        talk.expire()
        thief.append(other.lease("t"))
        thief[0].__enter__()
        return calls("rename")

    thief: list[Any] = []
    model = ScriptedModel(calls("rename"), "an answer", stolen)
    agent = create_agent(model, tools=[rename], context_schema=RunContext, checkpointer=saver)

    def go() -> Any:
        if door.kind == "sync":
            with talk.hub.lease("t") as now:
                return agent.invoke({"messages": [("user", "q")]}, now.config, context=CONTEXT, durability=durability)

        async def run() -> Any:
            async with talk.hub.lease("t") as now:
                return await agent.ainvoke({"messages": [("user", "q")]}, now.config, context=CONTEXT, durability=durability)

        return door.wait(run())

    assert go()["messages"][-1].text == "an answer"
    before = talk.head()
    with pytest.raises(LeaseLostError):
        go()
    thief[0].__exit__(None, None, None)
    messages = saver.get_tuple(PLACE).checkpoint["channel_values"]["messages"]
    assert (talk.head(), len(savers)) == (before, 1)
    assert [m.type for m in messages] in (["human", "ai", "tool", "ai"], ["human", "ai", "tool", "ai", "human"])
    assert len(called) <= 2
    with talk.engine.connect() as connection:
        assert connection.exec_driver_sql("select title from plan where id = 'p1'").scalar() == "renamed 1"


# -- LangGraph's strict mode -------------------------------------------------------------------------------------------


def test_g19_a_saver_that_reads_more_types_is_behind_the_same_fence(database, hub, door, held):
    saver = hub.checkpointer(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    token = held(hub, "t").config["configurable"][TOKEN]
    Savers(saver, door, "t", {TOKEN: token}).put(1)
    more = saver.with_allowlist({("fractions", "Fraction")})
    assert more is not saver
    assert more is saver.with_allowlist({("fractions", "Fraction")})  # a graph asks at each compilation and each run
    mine = Savers(more, door, "t", {TOKEN: token})
    mine.put(2, "00000001")
    for attempt in attempts(Savers(more, door, "t", {TOKEN: ("t", 0)})).values():
        with pytest.raises(LeaseLostError):
            attempt()
    Savers(saver, door, "t", {TOKEN: token}).put(3, "00000002")
    assert [one[0]["checkpoint_id"] for one in mine.list(mine.config())] == ["00000003", "00000002", "00000001"]
    saver.close()
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("abreast-saver")]
    assert threads == []


STRICT = """
import asyncio, sys, threading
from langchain.agents import create_agent
from abreast import Abreast, RunContext
from abreast.testing import ScriptedModel
from planner import CONTEXT, declare

hub = declare(Abreast(sys.argv[1]))
saver = hub.checkpointer()

async def main():
    for n in range(5):
        agent = create_agent(ScriptedModel(f"answer {n}"), middleware=[hub.middleware()], context_schema=RunContext,
                             checkpointer=saver)
        assert agent.checkpointer is not saver
        result = await hub.run(agent, "q", thread="t", context=CONTEXT)
    print(len(result.state["messages"]), sum(t.name.startswith("abreast-saver") for t in threading.enumerate()))
    await hub.close()

asyncio.run(main())
"""


def test_g19_in_strict_mode_agents_that_are_built_for_each_request_share_a_saver(sqlite, hubs):
    planner(sqlite, hubs)
    here = str(Path(__file__).parent.parent)
    environment = {**os.environ, "LANGGRAPH_STRICT_MSGPACK": "true", "PYTHONPATH": here}
    command = [sys.executable, "-W", "error", "-c", STRICT, sqlite.url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("10 1\n", "")


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_g19_what_could_not_be_kept_is_not_begun(database, hubs, door, durability):
    """Without `hub.run` and `hub.lease`, LangGraph would ask the model and run the tools before it is refused."""
    talk = Talk(database, hubs, door, calls("write"), "an answer")
    talk.saver = talk.hub.checkpointer()
    ran: list[str] = []
    agent = talk.build([write_tool(lambda: ran.append("write"))])
    with pytest.raises(LeaseError, match=r"hub\.run"):
        talk.door.invoke(agent, {"messages": "go"}, {"configurable": {"thread_id": "t"}}, context=CONTEXT, durability=durability)
    assert (talk.model.requests, ran) == ([], [])
