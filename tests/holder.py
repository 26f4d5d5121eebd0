"""A program that runs agents for a thread, and stops on the way when it is told to.

`python holder.py '{"url": …, "door": …, "stage": …, …}'` prints `ready` when it is set up and runs at the line `go`. At its
stage it prints `there` and waits for a line; at its end it prints as JSON how it ended and what it tried on the way.
`shift` moves the clock of the whole program by so many seconds before anything else is imported.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from processes import Process, started


def given(database: Any, door: str, stage: str, **more: Any) -> tuple[str]:
    """The arguments of a holder."""
    return (json.dumps({"url": database.url, "door": door, "stage": stage, **more}),)


@contextmanager
def there(database: Any, door: Any, stage: str, **more: Any) -> Iterator[Process]:
    """A process that has come to its stage and waits there."""
    with started("holder.py", given(database, door.kind, stage, **more)) as (process,):
        process.tell("go")
        process.expect("there")
        yield process


def ending(process: Process) -> Any:
    """How a process ended, and what it tried."""
    return json.loads(process.read())


def shift_clock(seconds: float) -> None:
    """Everything that Python calls now is so much later from here on."""
    real, real_ns, real_datetime = time.time, time.time_ns, datetime.datetime

    class Shifted(real_datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real_datetime.now(tz) + datetime.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return real_datetime.utcnow() + datetime.timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    datetime.datetime = Shifted  # type: ignore[misc]


def wait(*_: Any) -> str:
    """Says that it is there, and goes on with the next line."""
    print("there", flush=True)
    return sys.stdin.readline().strip()


def main() -> None:
    given = json.loads(sys.argv[1])
    if given.get("shift"):
        shift_clock(given["shift"])
    Holder(given).run()


class Holder:
    """The program, once its clock is set."""

    def __init__(self, given: dict[str, Any]) -> None:
        from abreast import Abreast
        from planner import declare

        self.given = given
        self.hub = declare(Abreast(given["url"], lease_seconds=given.get("lease_seconds", 60.0), approvals="named"))
        self.tried: dict[str, str] = {}

    def run(self) -> None:
        stages: dict[str, Callable[[], Any]] = {"hammer": self.hammer}
        print("ready", flush=True)
        sys.stdin.readline()
        ended = stages.get(self.given["stage"], self.once)()
        print(json.dumps({"ended": ended, "tried": self.tried, "time": time.time()}), flush=True)
        self.hub.blocking.close()

    # -- one run -------------------------------------------------------------------------------------------------

    def once(self) -> Any:
        """One run with a question of its own; how it ended."""
        from abreast import ThreadBusyError
        from abreast.testing import ScriptedModel, calls
        from leasing import agent_of, put_tool
        from talk import write_tool

        stage = self.given["stage"]
        script: dict[str, list[Any]] = {
            "model": [lambda _: wait() and "woken"],
            "tool": [calls("write"), "woken"],
            "before": [calls("update_item", id="1", version=self.given.get("version", 1), title="woken"), "woken"],
            "block": [calls("put"), "woken"],
            "validator": ["woken"],
        }
        tools = [write_tool(self.write), put_tool(self.hub, self.given["door"], wait), *self.hub.tools()]
        before = [_pausing()] if stage == "before" else []
        agent = agent_of(self.hub, ScriptedModel(*script[stage]), tools, before)
        try:
            result = self.ask(agent, self.given.get("question", "asked"), [wait] if stage == "validator" else [])
        except ThreadBusyError as error:
            return ["ThreadBusyError", error.run, error.seconds]
        except Exception as error:
            return [type(error).__name__]
        return [result.status, result.answer]

    def ask(self, agent: Any, question: str, validate: list[Any]) -> Any:
        """One run, through the door that was wanted."""
        from planner import CONTEXT

        thread = self.given.get("thread", "t")
        if self.given["door"] == "sync":
            return self.hub.blocking.run(agent, question, thread=thread, context=CONTEXT, validate=validate)

        async def run() -> Any:
            return await self.hub.run(agent, question, thread=thread, context=CONTEXT, validate=validate)

        return self.loop.run_until_complete(run())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if not hasattr(self, "_loop"):
            self._loop = asyncio.new_event_loop()
        return self._loop

    def write(self) -> str:
        """A tool's body: it has begun, stops, and then writes by every way that the hub hands out."""
        from abreast import agent, insert, update
        from abreast.agents.scope import current
        from planner import Item, Plan

        wait()
        scope = current.get()
        assert scope is not None
        held = scope.lease
        hub, who = self.hub, {"actor": agent(), "thread": scope.thread, "lease": held}

        def block() -> None:
            with hub.write("w1", **who) as tx:  # type: ignore[arg-type]
                tx.get(Plan, "p1").title = "woken"

        async def ablock() -> None:
            async with hub.write("w1", **who) as tx:  # type: ignore[arg-type]
                (await tx.get(Plan, "p1")).title = "woken"

        self.try_("apply", lambda: hub.blocking.apply("w1", update(Plan, "p1", title="woken"), **who))
        self.try_("mutation", lambda: hub.blocking.apply("w1", insert(Item, plan_id="p1", title="woken"), mutation="m", **who))
        self.try_("aapply", lambda: asyncio.run(hub.apply("w1", update(Plan, "p1", title="woken"), **who)))
        self.try_("write", block)
        self.try_("awrite", lambda: asyncio.run(ablock()))
        return "it does not care"

    def try_(self, name: str, call: Callable[[], Any]) -> None:
        """Notes how this ended."""
        try:
            call()
        except Exception as error:
            self.tried[name] = type(error).__name__
        else:
            self.tried[name] = "written"

    # -- many runs -----------------------------------------------------------------------------------------------

    def hammer(self) -> Any:
        """Asks `turns` questions of one thread, each again and again until nobody else has it. The first that has it keeps
        it until all the `others` have been told so; how often this one was."""
        import sqlalchemy as sa

        from abreast import ThreadBusyError
        from abreast.testing import ScriptedModel, calls
        from leasing import agent_of, lease, until
        from talk import write_tool

        engine = sa.create_engine(self.given["url"])
        busy = 0

        def note(what: str, run: str | None, token: int = 0) -> None:
            with engine.begin() as connection:
                values = {"token": token, "run": run, "what": what}
                connection.execute(sa.text("insert into visit (token, run, what) values (:token, :run, :what)"), values)

        def noted(what: str) -> int:
            with engine.connect() as connection:
                counted = sa.text("select count(*) from visit where what = :what")
                return int(connection.execute(counted, {"what": what}).scalar_one())

        def visit() -> None:
            row = lease(engine)
            note("enter", row.run, row.token)
            if noted("enter") == 1:
                until(lambda: noted("busy") == self.given["others"])
            row = lease(engine)
            note("leave", row.run, row.token)

        model = ScriptedModel()
        agent = agent_of(self.hub, model, [write_tool(visit)])
        for turn in range(self.given["turns"]):
            question = f"{self.given['name']} asks {turn}"
            while True:
                model.script[:] = [calls("write"), f"to {question}"]
                try:
                    result = self.ask(agent, question, [])
                except ThreadBusyError as error:
                    if error.run is None or error.seconds <= 0:
                        raise AssertionError("nobody held it") from error
                    busy += 1
                    if busy == 1:
                        note("busy", self.given["name"])
                else:
                    assert result.status == "succeeded", result
                    break
        engine.dispose()
        return busy


def _pausing() -> Any:
    from langchain.agents.middleware import AgentMiddleware

    class Pausing(AgentMiddleware):
        """Stops before a tool is called."""

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            wait()
            return handler(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            await asyncio.to_thread(wait)
            return await handler(request)

    return Pausing()


if __name__ == "__main__":
    main()
