"""The planner as a service over HTTP: people of two tenants, an agent with tools, and what they may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
from langchain.agents import create_agent
from starlette.requests import Request

from abreast import Caller, RunContext, Thread
from abreast.server import Streams, create_app
from abreast.testing import ScriptedModel, calls
from planner import Plan, planner
from served import Sent, events

MOVE = calls("update_plan", id="p1", version=1, move_in_date="2026-09-30")
"""A model's answer that asks for a write, which somebody must approve."""


def somebody(request: Request) -> Caller | None:
    """Who a test says it is: the header of a test's client is what a session would be elsewhere."""
    name = request.headers.get("x-user")
    roles = frozenset(request.headers.get("x-roles", "").split())
    return Caller(request.headers.get("x-tenant", "t1"), name, roles) if name else None


class Office:
    """A hub with its service and the application around it. `members` are those who may use w1, by tenant and user."""

    def __init__(self, database: Any, hubs: Callable[..., Any], *script: Any, **options: Any) -> None:
        self.hub, self.engine = planner(database, hubs, **options.pop("hub", {}))
        self.members = {("t1", "u_1"), ("t1", "u_2"), ("t2", "u_1")}
        self.model = ScriptedModel(*script)
        self.agent = create_agent(
            self.model,
            self.hub.tools(Plan, policy={"update_plan": "ask"}),
            middleware=[self.hub.middleware()],
            context_schema=RunContext,
            checkpointer=self.hub.checkpointer(),
        )
        self.streams = options.pop("streams", None) or Streams()
        self.service = self.hub.service(self.agent, context=self.context, authenticate=somebody, **options)
        self.app = create_app(self.hub, streams=self.streams)

    def context(self, thread: Thread, user: str) -> RunContext | None:
        if thread.workspace != "w1" or (thread.tenant, user) not in self.members:
            return None
        return RunContext(thread.tenant, user, thread.workspace)


class Person:
    """Somebody with a client."""

    def __init__(self, client: httpx.Client, user: str = "u_1", tenant: str = "t1", roles: str = "") -> None:
        self.client = client
        self.headers = {"x-user": user, "x-tenant": tenant, "x-roles": roles}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        given = {} if body is None else {"json": body}
        return self.client.request(method, f"/v1{path}", headers={**self.headers, **headers}, **given)

    def get(self, path: str, **headers: str) -> Any:
        response = self("GET", path, **headers)
        assert response.status_code == 200, response.text
        return response.json()

    def thread(self) -> str:
        response = self("POST", "/threads", {"workspace": "w1"})
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    def send(self, thread: str, text: str = "Hello?", **more: Any) -> Any:
        response = self("POST", f"/threads/{thread}/messages", {"text": text, **more})
        assert response.status_code == 202, response.text
        return response.json()

    def read(self, thread: str, after: int = 0) -> list[Sent]:
        """The events behind one of them, until no run goes on."""
        with self.client.stream("GET", f"/v1/threads/{thread}/stream?until=done&after={after}", headers=self.headers) as response:
            assert response.status_code == 200
            return [one for one in events(response.iter_lines()) if isinstance(one, Sent)]

    def say(self, thread: str, text: str = "Hello?", **more: Any) -> list[Sent]:
        """Sends a message and waits for what comes of it; gives the events of the conversation."""
        self.send(thread, text, **more)
        return self.read(thread)

    def waiting(self, thread: str) -> Any:
        """The one open approval of a conversation."""
        (found,) = self.get(f"/approvals?thread={thread}")["items"]
        return found
