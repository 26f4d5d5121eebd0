"""What the tests of leases share: a conversation behind the hub's own saver, and what the database says of its lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent

from abreast import AsyncTransaction, RunContext, ThreadBusyError, Transaction
from abreast.testing import ScriptedModel
from planner import CONTEXT, Plan, declare
from talk import Talk, snapshots

ASYNC = pytest.mark.parametrize("door", ["async"], indirect=True)

POLL = 0.005
"""Seconds between two looks at a condition."""

PATIENCE = 60.0
"""Seconds after which a condition is not coming any more."""


class Row(NamedTuple):
    """A lease as the database has it; both times are in seconds of the database's clock."""

    token: int
    run: str | None
    expires_at: float
    now: float


class Leased(Talk):
    """A conversation whose checkpoints the hub's own saver keeps."""

    def __init__(self, database: Any, hubs: Callable[..., Any], door: Any, *script: Any, **options: Any) -> None:
        super().__init__(database, hubs, door, *script, **options)
        self._hubs, self._database = hubs, database
        self.saver = self.hub.checkpointer()
        self.agent = self.build()

    def lease(self, thread: str = "t") -> Row:
        """The thread's lease."""
        return lease(self.engine, thread)

    def elsewhere(self, input: Any = "elsewhere", *, thread: str = "t", **options: Any) -> Any:
        """A run as another process makes it: of another hub, and in a context of its own."""
        hub = declare(self._hubs(self._database, **options))
        agent = agent_of(hub, ScriptedModel())
        return apart(lambda: self.door(hub).run(agent, input, thread=thread, context=CONTEXT))

    def said(self, thread: str = "t") -> list[str]:
        """The conversation's messages, from the newest checkpoint."""
        return [m.text for m in self.door.state(self.agent, {"configurable": {"thread_id": thread}}).values["messages"]]


def agent_of(hub: Any, model: Any, tools: Sequence[Any] = (), before: Sequence[Any] = (), saver: Any = None) -> Any:
    """An agent of this hub, with its saver."""
    return create_agent(
        model,
        tools=list(tools),
        middleware=[*before, hub.middleware()],
        context_schema=RunContext,
        checkpointer=saver or hub.checkpointer(),
    )


def put_tool(hub: Any, door: str, inside: Callable[[], Any]) -> Any:
    """A write of the hub's, that does something when it has written and before it commits."""

    def body(tx: Transaction) -> str:
        tx.get(Plan, "p1").title = "put"
        tx.session.flush()
        inside()
        return "done"

    if door == "sync":

        @hub.tool(name="put")
        def put(tx: Transaction) -> str:
            """Puts."""
            return body(tx)

        return put

    @hub.tool(name="put")
    async def aput(tx: AsyncTransaction) -> str:
        """Puts."""
        return str(await tx.run(body))

    return aput


def apart(call: Callable[[], Any]) -> Any:
    """Calls it in a thread that knows nothing of the run that is going on here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(Context().run, call).result()


def until(condition: Callable[[], Any]) -> Any:
    """Looks until the condition holds, and returns what it said."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / POLL)):
        if found := condition():
            return found
        pause.wait(POLL)
    raise AssertionError("what was waited for did not come")


def lease(engine: sa.Engine, thread: str = "t") -> Row:
    """A thread's lease. Raises where it has never been taken."""
    if engine.dialect.name == "sqlite":
        columns, table = "token, run, expires_at, (julianday('now') - 2440587.5) * 86400.0", "abreast_lease"
    else:
        seconds = "cast(extract(epoch from {}) as float8)"
        columns, table = f"token, run, {seconds.format('expires_at')}, {seconds.format('clock_timestamp()')}", "abreast.lease"
    with engine.connect() as connection:
        return Row(*connection.exec_driver_sql(f"select {columns} from {table} where thread = '{thread}'").one())


def take(talk: Talk, thread: str = "t", run: str = "another") -> None:
    """Another run has the thread, as after a stall that outlasted the lease; it holds it for a long time."""
    table, later = ("abreast_lease", "4e9") if talk.engine.dialect.name == "sqlite" else ("abreast.lease", "'2090-01-01'")
    talk.sql(f"update {table} set token = token + 1, run = '{run}', expires_at = {later} where thread = '{thread}'")


def without_heart(door: Any) -> None:
    """Waits until the heartbeat has noticed that the thread is another's."""
    if door.kind == "sync":
        hearts = [thread for thread in threading.enumerate() if thread.name == "abreast-heart"]
        assert hearts
        until(lambda: not any(heart.is_alive() for heart in hearts))
    else:
        until(lambda: not any(task.get_coro().__name__ == "beat" for task in asyncio.all_tasks(door.loop)))


def once_free(run: Callable[[], Any], *, at_most: float) -> Any:
    """A run that begins as soon as nobody else has the thread any more."""
    while True:
        try:
            return run()
        except ThreadBusyError as busy:
            if busy.seconds > at_most:
                raise


def assert_linear(talk: Leased) -> None:
    """The checkpoints of the conversation are one line, from the first to the last."""
    states = snapshots(talk.door, talk.agent)
    ids = [state.config["configurable"]["checkpoint_id"] for state in states]
    parents = [state.parent_config["configurable"]["checkpoint_id"] if state.parent_config else None for state in states]
    assert parents == [*ids[1:], None]
