"""A program that serves conversations over the planner's product, and dies where it is told to.

`python worker.py` forks a worker for each message that comes through the socket on its standard input (see `workers.py`), as
`{"url": …, "die": "committed", …}` says. It prints `ready`, and then does what each line says, as a JSON list, and answers with
a line of JSON. `die` names a point of the application's own code at which the process is killed, as by the operating system,
`at` which passing of it; `hold` one at which it says `there` and waits for an empty line.

What the model says follows from what it reads, so that any process can go on with any run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from abreast import Abreast, DecidedError, Decision, MutationId, RunContext, Transaction
from abreast.testing import ScriptedModel, calls
from planner import Item, Plan, declare
from serving import MINA, context
from talk import said


class Points:
    """The points of the application's code that this process passes."""

    def __init__(self, die: str = "", at: int = 1, hold: str = "") -> None:
        self._die, self._at, self._hold = die, at, hold
        self.passed: Counter[str] = Counter()
        self.go = threading.Event()

    def __call__(self, name: str) -> None:
        self.passed[name] += 1
        if self.passed[name] != self._at:
            return
        if name == self._die:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == self._hold:
            print("there", flush=True)
            self.go.wait()


class Application:
    """The product's side of a service: tools, model, middleware, run context. `policy` is that of its tools, `tool` the name
    of the one that renames, `middleware` those of its own middlewares; `checkpoints` is where the engine's state goes."""

    def __init__(
        self,
        hub: Abreast,
        engine: sa.Engine,
        points: Callable[[str], None] | None = None,
        *,
        policy: Any = "ask",
        tool: str = "rename",
        middleware: Sequence[str] = ("around",),
        checkpoints: str | None = None,
    ) -> None:
        self.hub, self.engine, self.point = hub, engine, points or Points()
        self.model = ScriptedModel(*[self.answer] * 1000)
        self.policy, self.tool, self.middleware = policy, tool, middleware
        self.checkpoints = checkpoints
        self.agent = self.build()

    def build(self, **more: Any) -> Any:
        """The agent."""
        return create_agent(
            self.model,
            tools=self.tools(),
            middleware=[*(around(name, self.point) for name in self.middleware), self.hub.middleware()],
            context_schema=RunContext,
            checkpointer=self.hub.checkpointer(self.checkpoints),
            **more,
        )

    def tools(self) -> list[Any]:
        """`rename` writes through the hub and `pay` by itself, once a person has approved; `add` writes unasked; `ask` asks
        two questions of its own."""

        def rename(title: str, tx: Transaction) -> str:
            """Renames the plan."""
            tx.get(Plan, "p1").title = title
            self.point("inside")
            return "renamed"

        def pay(amount: int, key: MutationId) -> str:
            """Pays, in a system of somebody else's that knows nothing of the key."""
            self.note(f"paid {amount}")
            self.point("paid")
            return "paid"

        def add(number: int, tx: Transaction) -> str:
            """Adds an item."""
            tx.add(Item(id=number, plan_id="p1", title="added"))
            self.point("adding")
            return "added"

        def ask() -> str:
            """Asks twice."""
            self.point("asks")
            first = interrupt("which floor?")
            self.point("between")
            second = interrupt("which door?")
            return f"{first}, {second}"

        return [
            self.hub.tool(name=self.tool, policy=self.policy, touches=self.touched)(rename),
            self.hub.tool(policy=self.policy)(pay),
            self.hub.tool(policy="allow")(add),
            StructuredTool.from_function(ask),
        ]

    def touched(self, context: Any, arguments: Mapping[str, Any]) -> list[Any]:
        """What a call of `rename` has to do with. It is asked right before the approval is stored."""
        self.point("touches")
        return [(Plan, "p1")]

    def answer(self, messages: Sequence[Any]) -> AIMessage | str:
        """What a person says is the name of a tool and its arguments; the model calls it and repeats what it answered."""
        self.point("model")
        spoken = [m for m in messages if isinstance(m, HumanMessage | ToolMessage)][-1]
        if isinstance(spoken, ToolMessage):
            return f"It said: {said(spoken)}"
        wish = spoken.text.rpartition("\n\n")[2]  # behind the block
        name, _, rest = wish.partition(" ")
        return calls(name, **json.loads(rest)) if rest.startswith("{") else f"You said: {wish}"

    def note(self, what: str) -> None:
        """Somebody else's system, which does what it is told each time."""
        with self.engine.begin() as connection:
            connection.execute(sa.text("insert into visit (what) values (:what)"), {"what": what})

    async def context(self, thread: Any, user: str) -> Any:
        """The run context; asked right before every attempt."""
        await asyncio.to_thread(self.point, "context")
        return context(thread, user)

    async def validate(self, state: Any) -> None:
        """Called when the engine has the answer, and before it is stored."""
        await asyncio.to_thread(self.point, "answered")

    def options(self) -> dict[str, Any]:
        """What a service of this application is made with."""
        return {"context": self.context, "validate": [self.validate], "config": {"callbacks": [Ends(self.point)]}}


class Moody(AgentState):
    """A state with a channel of the application's."""

    mood: str


def around(name: str, point: Callable[[str], None]) -> AgentMiddleware:
    """A middleware of the application's, with a node of its own in the graph. One whose name ends in `state` adds a channel to
    the state; one whose name ends in `asks` asks a person by itself before any tool runs."""

    class Around(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            try:
                made = await handler(request)
            except GraphInterrupt:
                await asyncio.to_thread(point, "asked")
                raise
            await asyncio.to_thread(point, "committed")
            return made

        async def abefore_model(self, state: Any, runtime: Any) -> None:
            await asyncio.to_thread(point, "before_model")

        async def aafter_model(self, state: Any, runtime: Any) -> Any:
            if name.endswith("asks") and state["messages"][-1].tool_calls:
                interrupt("may it?")
            return {"mood": "good"} if name.endswith("state") else None

    if name.endswith("state"):
        Around.state_schema = Moody

    made = Around()
    type(made).name = property(lambda self: name)  # type: ignore[method-assign, assignment]
    return made


class Ends(AsyncCallbackHandler):
    """Passes a point when the graph has ended, or has paused, and everything of it is in its checkpoints."""

    def __init__(self, point: Callable[[str], None]) -> None:
        self._point = point

    async def on_chain_end(self, outputs: Any, *, run_id: Any, parent_run_id: Any = None, **_: Any) -> None:
        if parent_run_id is None:
            await asyncio.to_thread(self._point, "ended")


async def serve(given: Mapping[str, Any]) -> None:
    """Does what the lines say, until they end."""
    hub = declare(Abreast(given["url"], approvals="named", lease_seconds=given.get("lease_seconds", 60.0)))
    engine = sa.create_engine(given["url"])
    points = Points(**{name: given[name] for name in ("die", "at", "hold") if name in given})
    options = {name: given[name] for name in ("policy", "tool", "middleware") if name in given}
    application = Application(hub, engine, points, **options)
    service = hub.service(application.agent, **{**application.options(), **given.get("service", {})})
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    print(f"ready {os.getpid()}", flush=True)
    if given.get("start", True):
        await service.start()
    lines = asyncio.create_task(obey(service, points.go))
    await asyncio.wait([lines, asyncio.create_task(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
    await service.stop()
    await hub.close()
    engine.dispose()
    print("stopped", flush=True)
    os._exit(0)  # a thread still reads lines


async def obey(service: Any, go: threading.Event) -> None:
    """Does what each line says. An empty one lets what is held go on."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if not line.strip():
            go.set()
            continue
        what, *arguments = json.loads(line)
        if what == "send":
            print(json.dumps((await service.send(MINA, *arguments)).id), flush=True)
        elif what == "decide":
            thread, approval, kind, *die = arguments
            try:
                await service.decide(MINA, thread, approval, Decision(kind))
            except DecidedError:
                print(json.dumps("too late"), flush=True)
                continue
            if die:
                os.kill(os.getpid(), signal.SIGKILL)
            print(json.dumps("decided"), flush=True)
        elif what == "rest":
            runs = [task for _, task in service._executor._going.values()]
            await asyncio.wait([asyncio.create_task(asyncio.sleep(0)), *runs])
            print(json.dumps("rests"), flush=True)


def nurse() -> None:
    """Forks workers: what a process must load takes longer than what it is there for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=0) as orders:
        while True:
            given, descriptors, _, _ = socket.recv_fds(orders, 100_000, 1)
            if not given:
                return
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number in (0, 1):
                    os.dup2(descriptors[0], number)
                os.close(descriptors[0])
                asyncio.run(serve(json.loads(given)))
            os.close(descriptors[0])


if __name__ == "__main__":
    nurse()
