"""Conversations of a service over the planner's product: what most tests of the service do, in few words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain.agents import create_agent

from abreast import Abreast, Caller, Event, RunContext, Thread
from abreast.testing import ScriptedModel
from planner import declare, planner

MINA = Caller("t1", "mina")
JUNHO = Caller("t1", "junho")
STRANGER = Caller("t2", "mina")
APPROVER = Caller("t1", "ana", frozenset({"approver"}))
OPERATOR = Caller("t1", "oto", frozenset({"operator"}))

RIGHTS: dict[tuple[str, str], frozenset[str]] = {
    ("t1", "mina"): frozenset({"w1"}),
    ("t1", "junho"): frozenset({"w1"}),
    ("t1", "ana"): frozenset({"w1"}),
    ("t1", "oto"): frozenset({"w1"}),
    ("t2", "mina"): frozenset({"w2"}),
}
"""The workspaces that each person of each tenant may use, as the product knows them."""


def context(thread: Thread, user: str) -> RunContext | None:
    """The run context, as a product's server builds it: from its own rights, anew each time."""
    if thread.workspace not in RIGHTS.get((thread.tenant, user), ()):
        return None
    return RunContext(tenant=thread.tenant, user=user, workspace=thread.workspace, permissions=frozenset({"plan"}))


class Desk:
    """A hub on the planner's tables, one agent, its service, and everything behind one door.

    `tools` gets the hub and returns the agent's tools. `options` go to the hub, `service` to the service.
    """

    def __init__(
        self,
        database: Any,
        hubs: Callable[..., Abreast],
        door: Any,
        *script: Any,
        tools: Callable[[Abreast], Sequence[Any]] | None = None,
        middleware: Callable[[Abreast], Sequence[Any]] = lambda hub: (),
        service: dict[str, Any] | None = None,
        model: Any = None,
        agent: Callable[[Desk], Any] | None = None,
        fresh: bool = True,
        start: bool = True,
        **options: Any,
    ) -> None:
        self.door = door
        if fresh:
            self.hub, self.engine = planner(database, hubs, **options)
        else:
            self.engine = database.engine()
            self.hub = declare(hubs(database, **options))
        self.model = model or ScriptedModel(*script)
        made = agent(self) if agent is not None else self.build(tools, middleware)
        self.agent = made
        self.service = self.hub.service(made, **{"context": context, **(service or {})})
        if start:
            self.call("start")

    def build(self, tools: Any = None, middleware: Any = lambda hub: ()) -> Any:
        """An agent of this desk's model and hub."""
        return create_agent(
            self.model,
            tools=list(tools(self.hub)) if tools is not None else [],
            middleware=[*middleware(self.hub), self.hub.middleware()],
            context_schema=RunContext,
            checkpointer=self.hub.checkpointer(),
        )

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """A method of the service, through the door."""
        if self.door.kind == "sync":
            return getattr(self.service.blocking, method)(*arguments, **named)
        return self.door.wait(getattr(self.service, method)(*arguments, **named))

    def close(self) -> None:
        """Ends the service, as a process that is stopped does."""
        self.call("stop")

    def thread(self, caller: Caller = MINA, workspace: str = "w1", **named: Any) -> str:
        """A new conversation's id."""
        return str(self.call("create_thread", caller, workspace=workspace, **named).id)

    def say(self, *answers: Any) -> None:
        """What the model answers next."""
        self.model.script.extend(answers)

    def ask(self, thread: str, text: str = "When do I move in?", caller: Caller = MINA, **named: Any) -> Any:
        """Sends a message and waits until no run goes on. Returns the run as it stands then."""
        run = self.call("send", caller, thread, text, **named)
        self.settled(thread, caller)
        return self.call("run", caller, thread, run.id)

    def settled(self, thread: str, caller: Caller = MINA, after: int = 0) -> list[Event]:
        """The conversation's events until no run goes on any more."""
        return list(self.events(thread, caller, after=after, until_done=True))

    def events(self, thread: str, caller: Caller = MINA, **named: Any) -> Iterator[Event]:
        """The stream, through the door."""
        if self.door.kind == "sync":
            yield from self.service.blocking.stream(caller, thread, **named)
            return
        found = self.service.stream(caller, thread, **named)

        async def following() -> Event | None:
            return await anext(found, None)

        try:
            while (event := self.door.wait(following())) is not None:
                yield event
        finally:
            self.door.wait(found.aclose())

    def said(self, thread: str, caller: Caller = MINA, **named: Any) -> list[tuple[str, str]]:
        """Who said what on the shown branch."""
        found = self.call("messages", caller, thread, limit=200, **named).items
        return [(one.role, one.content) for one in found]

    def messages(self, thread: str, caller: Caller = MINA, **named: Any) -> Any:
        """The messages of the shown branch."""
        return self.call("messages", caller, thread, limit=200, **named).items

    def sql(self, *statements: str) -> None:
        """Somebody else's writes, in one transaction."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def rows(self, statement: str) -> list[Any]:
        """What a query answers."""
        with self.engine.begin() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def table(self, name: str) -> str:
        """The full name of one of the hub's tables."""
        return f"abreast_{name}" if self.engine.dialect.name == "sqlite" else f"abreast.{name}"

    def place(self, thread: str, workspace: str = "w1") -> int | None:
        """The conversation's stored cursor."""
        return {s.thread: s.revision for s in self.door(self.hub).standings(workspace)}.get(thread)


def of_type(events: Sequence[Event], *types: str) -> list[Event]:
    """The events of these types."""
    return [event for event in events if event.type in types]


class Gate:
    """An answer of a model that comes when somebody lets it, for a script: `Gate("at last")`."""

    def __init__(self, text: str) -> None:
        self.text, self.entered, self.opened = text, threading.Event(), threading.Event()

    def __call__(self, messages: Sequence[Any]) -> str:
        self.entered.set()
        assert self.opened.wait(60)
        return self.text
