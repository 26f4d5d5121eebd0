"""Conversations in which a person is asked before a tool runs: what is waiting, what was decided, and what it did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from abreast import Approval, Decision
from abreast.testing import calls
from talk import Talk


class Asked(Talk):
    """A conversation with the hub's tools, of which `update_plan` asks. The agent is made anew for every run, as after a
    deployment; `tools` makes its tools, `before` stands in front of the hub's middleware."""

    def __init__(self, database: Any, hubs: Any, door: Any, *script: Any, **options: Any) -> None:
        self.policy: dict[str, Any] = options.pop("policy", {"update_plan": "ask"})
        super().__init__(database, hubs, door, **options)
        self.say(*script)

    def tools(self) -> list[BaseTool]:
        return self.hub.tools(policy=self.policy)

    def go(self, input: Any = None, *, tools: Sequence[BaseTool] | None = None, before: Sequence[Any] = (), **named: Any) -> Any:
        """One run; without input the one that waits goes on."""
        return self.run(input, agent=self.build(self.tools() if tools is None else tools, before), **named)

    def ask(self, *script: Any, thread: str = "t", **named: Any) -> list[Approval]:
        """One run in which the model says this, which must pause. What waits then, oldest first."""
        self.say(*script)
        result = self.go("Please.", thread=thread, **named)
        assert result.status == "awaiting_approval", (result, answers(result))
        return self.waiting(thread)

    def waiting(self, thread: str = "t", status: str | None = "open") -> list[Approval]:
        return list(self.door(self.hub).approvals(thread, status=status).items)[::-1]

    def decide(
        self, approval: Approval, type: Any = "approve", *, caller: Any = None, context: Any = None, **named: Any
    ) -> Approval:
        decision = Decision(type, by="u_9", **named)
        return self.door(self.hub).decide(approval.thread, approval.id, decision, caller=caller, context=context)

    def title(self, plan: str = "p1") -> str:
        with self.engine.connect() as connection:
            return str(connection.exec_driver_sql(f"select title from plan where id = '{plan}'").scalar_one())

    def written(self) -> list[Any]:
        """The agent's events, newest first."""
        return [event for event in self.hub.blocking.history("w1", limit=100) if event.actor.type == "agent"]


def rename(title: str = "renamed", version: int = 1, plan: str = "p1", call_id: str = "c1") -> AIMessage:
    return calls("update_plan", call_id=call_id, id=plan, version=version, title=title)


def together(*messages: AIMessage) -> AIMessage:
    """The calls of these messages in one."""
    return AIMessage("", tool_calls=[call for message in messages for call in message.tool_calls])


def answers(result: Any) -> list[ToolMessage]:
    return [message for message in result.state["messages"] if isinstance(message, ToolMessage)]


def said(result: Any) -> list[Any]:
    """What the tools answered, parsed, with the status of each."""
    return [(json.loads(one.content), one.status) for one in answers(result)]


def foreign(body: Any, name: str = "put", *, asynchronous: bool = False) -> BaseTool:
    """Somebody else's tool that does this with a text."""

    def put(text: str) -> Any:
        return body(text)

    async def aput(text: str) -> Any:
        return body(text)

    given = {"coroutine": aput} if asynchronous else {"func": put}
    return StructuredTool.from_function(**given, name=name, description="Puts a text.")
