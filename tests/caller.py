"""Two tools of an application's own, and a process of its own that calls one of them and is killed on the way.

`python caller.py '{"url": …, "checkpoints": …, "kind": …, "door": …, "tool": …, "stage": …, "mails": …}'` prints `ready` at
its stage, `inside` the function or `after` the call and before its answer is stored, and waits there to be killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool

from abreast import Abreast, AsyncTransaction, MutationId, RunContext, Transaction
from abreast.testing import ScriptedModel, calls
from planner import CONTEXT, Plan, declare

LEASE_SECONDS = 2.0


def put_tool(hub: Abreast, door: str, inside: Callable[[], None] = lambda: None, **options: Any) -> BaseTool:
    """A write that is seen to happen twice: it appends to the plan's title."""

    def append(tx: Transaction, text: str) -> Any:
        plan = tx.get(Plan, "p1")
        plan.title += text
        tx.session.flush()
        inside()
        return {"title": plan.title}

    if door == "sync":

        @hub.tool(name="put", **options)
        def put(tx: Transaction, text: str) -> Any:
            """Appends to the plan's title."""
            return append(tx, text)

        return put

    @hub.tool(name="put", **options)
    async def aput(tx: AsyncTransaction, text: str) -> Any:
        """Appends to the plan's title."""
        return await tx.run(lambda tx: append(tx, text))

    return aput


def writing(talk: Any, name: str, body: Callable[[Any, str], Any], **options: Any) -> BaseTool:
    """A tool whose body is a plain function of the transaction and a text, through either kind of function."""
    if talk.door.kind == "sync":

        def plain(tx: Transaction, text: str) -> Any:
            """Writes."""
            return body(tx, text)

        return talk.hub.tool(name=name, **options)(plain)

    async def asynchronous(tx: AsyncTransaction, text: str) -> Any:
        """Writes."""
        return await tx.run(lambda tx: body(tx, text))

    return talk.hub.tool(name=name, **options)(asynchronous)


def append(tx: Any, text: str) -> str:
    """A write that is seen to happen twice."""
    tx.get(Plan, "p1").title += text
    tx.session.flush()
    return "done"


def mail_tool(hub: Abreast, door: str, mails: Path, inside: Callable[[], None] = lambda: None, **options: Any) -> BaseTool:
    """An effect outside: a line in a file."""

    def send(key: str, to: str) -> Any:
        with mails.open("a") as file:
            file.write(f"{key} {to}\n")
        inside()
        return {"sent": to}

    if door == "sync":

        @hub.tool(name="mail", **options)
        def mail(key: MutationId, to: str) -> Any:
            """Sends a mail."""
            return send(key, to)

        return mail

    @hub.tool(name="mail", **options)
    async def amail(to: str, key: MutationId) -> Any:
        """Sends a mail."""
        return send(key, to)

    return amail


def build(hub: Abreast, tools: list[BaseTool], saver: Any, *script: Any, around: list[Any] | None = None) -> Any:
    """An agent with these tools."""
    return create_agent(
        ScriptedModel(*script),
        tools=tools,
        middleware=[*(around or ()), hub.middleware()],
        context_schema=RunContext,
        checkpointer=saver,
    )


def title(engine: Any) -> str:
    """What the plan is called now."""
    with engine.connect() as connection:
        return str(connection.exec_driver_sql("select title from plan where id = 'p1'").scalar_one())


def kept(engine: Any) -> int:
    """Mutations that have an outcome, or a claim."""
    table = "abreast.mutation" if engine.dialect.name == "postgresql" else "abreast_mutation"
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(f"select count(*) from {table}").scalar_one())


def runtime_of(message: AIMessage, call_id: str = "a") -> ToolRuntime:
    """The runtime of a call that this message makes, as a graph hands it to a tool."""
    return ToolRuntime(
        state={"messages": [message]},
        context=CONTEXT,
        config={"configurable": {"thread_id": "t"}},
        stream_writer=lambda _: None,
        tool_call_id=call_id,
        store=None,
    )


def by_hand(context: Any = CONTEXT) -> ToolRuntime:
    """The runtime of a call outside any graph."""
    return ToolRuntime(state={}, context=context, config={}, stream_writer=lambda _: None, tool_call_id="a", store=None)


def request_of(tool: BaseTool, runtime: ToolRuntime, **arguments: Any) -> Any:
    """One call, as a node makes it."""
    return {"type": "tool_call", "name": tool.name, "id": runtime.tool_call_id, "args": {**arguments, "runtime": runtime}}


def call(door: Any, tool: BaseTool, runtime: ToolRuntime, **arguments: Any) -> Any:
    """The answer to one call."""
    request = request_of(tool, runtime, **arguments)
    return tool.invoke(request) if door.kind == "sync" else door.wait(tool.ainvoke(request))


def stop() -> None:
    print("ready", flush=True)
    threading.Event().wait()


class StopAfter(AgentMiddleware):
    """Stops when a tool has returned, before its answer is stored."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        answer = handler(request)
        stop()
        return answer

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        answer = await handler(request)
        stop()
        return answer


def main() -> None:
    given = json.loads(sys.argv[1])
    hub = declare(Abreast(given["url"], lease_seconds=LEASE_SECONDS, approvals="named"))
    inside = stop if given["stage"] == "inside" else lambda: None
    tools = [put_tool(hub, given["door"], inside), mail_tool(hub, given["door"], Path(given["mails"]), inside)]
    call = calls("put", text="!") if given["tool"] == "put" else calls("mail", to="kim")
    around = [StopAfter()] if given["stage"] == "after" else []
    if given["door"] == "sync":
        with ExitStack() as stack:
            agent = build(hub, tools, stack.enter_context(_saver(given)), call, around=around)
            hub.blocking.run(agent, "q", thread="t", context=CONTEXT)
        return

    async def run() -> None:
        async with AsyncExitStack() as stack:
            agent = build(hub, tools, await stack.enter_async_context(_asaver(given)), call, around=around)
            await hub.run(agent, "q", thread="t", context=CONTEXT)

    asyncio.run(run())


def _saver(given: dict[str, str]) -> Any:
    if given["kind"] == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver.from_conn_string(given["checkpoints"])
    from langgraph.checkpoint.postgres import PostgresSaver

    return PostgresSaver.from_conn_string(given["checkpoints"])


def _asaver(given: dict[str, str]) -> Any:
    if given["kind"] == "sqlite":
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        return AsyncSqliteSaver.from_conn_string(given["checkpoints"])
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    return AsyncPostgresSaver.from_conn_string(given["checkpoints"])


if __name__ == "__main__":
    main()
