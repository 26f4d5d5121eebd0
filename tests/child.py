"""A process of its own with one run of an agent, over a database and checkpoints that the test shares with it.

It is started by the tests: `python child.py '{"kind": …, "url": …, "checkpoints": …, "thread": …, "stage": …}'`. It prints
`ready` when it has come to its stage, and then waits to be killed (or ends, paused, at the stage `approval`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STAGES = ("model", "tool", "validator")


class Child:
    """A child process on its way to a stage."""

    def __init__(self, stage: str, database: Any, checkpoints: Path, thread: str) -> None:
        given = {
            "kind": database.kind,
            "url": database.url,
            "checkpoints": str(checkpoints) if database.kind == "sqlite" else database.plain,
            "thread": thread,
            "stage": stage,
        }
        self.process = subprocess.Popen([sys.executable, __file__, json.dumps(given)], stdout=subprocess.PIPE, text=True)

    def arrived(self) -> None:
        """Returns when it has come there."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def end(self) -> None:
        """Kills it, if it still runs."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def at(database: Any, checkpoints: Path, **stages: str) -> Iterator[list[Child]]:
    """Children that have come to these stages, in the conversations of these names; killed at the end."""
    children = [Child(stage, database, checkpoints, thread) for thread, stage in stages.items()]
    try:
        for child in children:
            child.arrived()
        yield children
    finally:
        for child in children:
            child.end()


def main() -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    from abreast import Abreast, RunContext
    from abreast.testing import ScriptedModel
    from planner import CONTEXT, declare
    from talk import TOOL_CALL, write_tool

    given = json.loads(sys.argv[1])
    hub = declare(Abreast(given["url"]))

    def wait(*_: Any) -> str:
        print("ready", flush=True)
        threading.Event().wait()
        return "never"

    stage = given["stage"]
    scripts: dict[str, list[Any]] = {"model": [wait], "tool": [TOOL_CALL], "validator": ["an answer"], "approval": [TOOL_CALL]}
    middleware: list[Any] = [HumanInTheLoopMiddleware({"write": True})] if stage == "approval" else []
    with _saver(given) as saver:
        agent = create_agent(
            ScriptedModel(*scripts[stage]),
            tools=[write_tool(wait)],
            middleware=[*middleware, hub.middleware()],
            context_schema=RunContext,
            checkpointer=saver,
        )
        validate = [wait] if stage == "validator" else []
        result = hub.blocking.run(agent, "q", thread=given["thread"], context=CONTEXT, validate=validate)
        assert result.status == "awaiting_approval"
    hub.blocking.close()
    print("ready", flush=True)


def _saver(given: dict[str, str]) -> Any:
    if given["kind"] == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver.from_conn_string(given["checkpoints"])
    from langgraph.checkpoint.postgres import PostgresSaver

    return PostgresSaver.from_conn_string(given["checkpoints"])


if __name__ == "__main__":
    main()
