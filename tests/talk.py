"""Conversations of a scripted agent over the planner's product: what most tests of sync do, in few words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from abreast import RunContext
from abreast.core.current import CURRENT
from abreast.core.render import CHANGES
from abreast.testing import ScriptedModel, calls
from planner import CONTEXT, declare, planner

CORNERS = pytest.mark.parametrize(
    ("database", "door"), [("sqlite", "sync"), ("postgresql", "async")], indirect=True, ids=["sqlite-sync", "postgresql-async"]
)
"""Two of the four combinations, which between them use every database and every door."""

QUESTION = "When do I move in?"


class Talk:
    """A hub, an agent with its middleware, and what the model was shown.

    `before` and `after` are middlewares that stand in the agent's list before and behind the hub's.
    """

    def __init__(
        self,
        database: Any,
        hubs: Callable[..., Any],
        door: Any,
        *script: Any,
        tools: Sequence[Any] = (),
        before: Sequence[AgentMiddleware] = (),
        after: Sequence[AgentMiddleware] = (),
        saver: Any = "memory",
        model: ScriptedModel | None = None,
        url: str | None = None,
        **options: Any,
    ) -> None:
        self.door = door
        self.hub, self.engine = planner(database, (lambda _, **given: hubs(url, **given)) if url else hubs, **options)
        self.model = model or ScriptedModel(*script)
        self.saver = InMemorySaver() if saver == "memory" else saver
        self.agent = self.build(tools, before, after)

    def renew(self, hub: Any) -> Talk:
        """The same conversations with another hub, as after a restart of the application."""
        self.engine.dispose()
        self.hub = declare(hub)
        self.agent = self.build()
        return self

    def build(
        self,
        tools: Sequence[Any] = (),
        before: Sequence[AgentMiddleware] = (),
        after: Sequence[AgentMiddleware] = (),
        hub: Any = None,
        **settings: Any,
    ) -> Any:
        """An agent of this conversation's model, hub (or another) and saver."""
        return create_agent(
            self.model,
            tools=list(tools),
            middleware=[*before, (hub or self.hub).middleware(), *after],
            context_schema=RunContext,
            checkpointer=self.saver,
            **settings,
        )

    def say(self, *answers: Any) -> None:
        """What the model answers next."""
        self.model.script.extend(answers)

    def run(self, input: Any = QUESTION, *, thread: str = "t", context: Any = CONTEXT, agent: Any = None, **named: Any) -> Any:
        """One run through the hub."""
        return self.door(self.hub).run(agent or self.agent, input, thread=thread, context=context, **named)

    def invoke(
        self, input: Any = QUESTION, *, thread: str | None = "t", context: Any = CONTEXT, agent: Any = None, **place: Any
    ) -> Any:
        """One run without the hub's runner: the graph's own `invoke` or `ainvoke`."""
        given = {"messages": [("user", input)]} if isinstance(input, str) else input
        configurable = {**({"thread_id": thread} if thread is not None else {}), **place}
        return self.door.invoke(agent or self.agent, given, {"configurable": configurable}, context=context)

    def sql(self, *statements: str) -> None:
        """Somebody else's writes, in one transaction."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def change(self, title: str = "changed") -> None:
        """One change of the plan, one revision."""
        self.sql(f"update plan set title = '{title}' where id = 'p1'")

    def place(self, thread: str = "t", workspace: str = "w1") -> int | None:
        """The stored cursor."""
        return {s.thread: s.revision for s in self.door(self.hub).standings(workspace)}.get(thread)

    def expire(self, thread: str = "t") -> None:
        """Lets the lease of a run that died end, as time would."""
        table, moment = ("abreast_lease", "0") if self.engine.dialect.name == "sqlite" else ("abreast.lease", "'2000-01-01'")
        self.sql(f"update {table} set expires_at = {moment} where thread = '{thread}'")

    def head(self, workspace: str = "w1") -> int:
        """HEAD of the log."""
        return self.door(self.hub).batch(workspace, context=CONTEXT).head.revision

    def block(self, request: int = -1) -> str:
        """What the hub put into a model request."""
        return block_of(self.model.requests[request])

    def revisions(self, request: int = -1) -> list[int]:
        """The revisions that a model request told."""
        return revisions_of(self.block(request))

    def current(self, request: int = -1) -> Any:
        """CURRENT of a model request, parsed."""
        return current_of(self.block(request))

    def mark(self, thread: str = "t", agent: Any = None, **place: Any) -> Any:
        """The mark in the newest checkpoint, or in the one that `place` names."""
        config = {"configurable": {"thread_id": thread, **place}}
        return self.door.state(agent or self.agent, config).values.get("abreast_told")


def block_of(messages: Sequence[Any]) -> str:
    """CHANGES and CURRENT in a request's messages; empty if there are none."""
    for message in reversed(messages):
        for heading in (CHANGES, "CURRENT"):
            at = message.text.find(heading)
            if at >= 0:
                found = re.compile(r"^CURRENT.*?(?=\n\n|\Z)", re.M | re.S).search(message.text, at)
                return message.text[at : found.end()] if found else ""
    return ""


def said(message: Any) -> str:
    """What a tool answered, without the block that stands behind it in the request."""
    return re.split(r"\n\n(?=CHANGES SINCE|CURRENT)", message.text)[0]


def revisions_of(block: str) -> list[int]:
    """The revisions that a block tells, in its order."""
    return [int(found) for found in re.findall(r"^r(\d+), ", block, re.M)]


def current_of(block: str) -> Any:
    """CURRENT of a block with one workspace, parsed."""
    return json.loads(block.split(CURRENT + "\n", 1)[1].split("\n", 1)[0])


def write_tool(write: Callable[[], Any], name: str = "write") -> BaseTool:
    """A tool whose call does this."""

    def call() -> str:
        write()
        return "done"

    return StructuredTool.from_function(call, name=name, description="Writes.")


def wait_tool(wait: Callable[[], Any]) -> BaseTool:
    """An asynchronous tool."""

    async def call() -> str:
        return str(await wait())

    return StructuredTool.from_function(coroutine=call, name="wait", description="Waits.")


class Broken(Exception):
    """What goes wrong."""


TOOL_CALL = calls("write")
"""An answer that calls the tool `write`."""

Decide = Callable[[ModelRequest[Any]], Generator[ModelRequest[Any], Any, Any]]


class Around(AgentMiddleware):
    """A middleware around model calls, written once for both doors.

    `decide` is a generator: it yields a request to make the call, is sent the response (or thrown the error), and
    returns what the agent gets.
    """

    def __init__(self, decide: Decide, name: str = "around") -> None:
        super().__init__()
        self._decide, self._name = decide, name

    @property
    def name(self) -> str:
        return self._name

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        decision = self._decide(request)
        try:
            wanted = next(decision)
            while True:
                try:
                    answer: ModelResponse[Any] = handler(wanted)
                except Exception as error:
                    wanted = decision.throw(error)
                else:
                    wanted = decision.send(answer)
        except StopIteration as done:
            return done.value

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        decision = self._decide(request)
        try:
            wanted = next(decision)
            while True:
                try:
                    answer: ModelResponse[Any] = await handler(wanted)
                except Exception as error:
                    wanted = decision.throw(error)
                else:
                    wanted = decision.send(answer)
        except StopIteration as done:
            return done.value


@contextmanager
def locked(database: Any, engine: sa.Engine, table: str, mode: str = "access exclusive") -> Iterator[None]:
    """Holds SQLite's one write lock, or a lock on one of our tables on PostgreSQL: `share` keeps others from writing."""
    connection = engine.connect()
    try:
        if database.kind == "sqlite":
            raw = connection.connection.driver_connection
            raw.isolation_level = None
            raw.execute("begin immediate")
            yield
            raw.execute("rollback")
        else:
            connection.exec_driver_sql(f"lock table abreast.{table} in {mode} mode")
            yield
            connection.rollback()
    finally:
        connection.close()


def snapshots(door: Any, agent: Any, thread: str = "t") -> list[Any]:
    """The states of a conversation, newest first."""
    config = {"configurable": {"thread_id": thread}}
    if door.kind == "sync":
        return list(agent.get_state_history(config))

    async def collect() -> list[Any]:
        return [one async for one in agent.aget_state_history(config)]

    return door.wait(collect())


def update(door: Any, agent: Any, config: Any, values: Any, **more: Any) -> Any:
    """A graph's `update_state` or `aupdate_state`."""
    if door.kind == "sync":
        return agent.update_state(config, values, **more)
    return door.wait(agent.aupdate_state(config, values, **more))
