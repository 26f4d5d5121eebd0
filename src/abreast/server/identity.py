"""Who asks: the application's own authentication, and the development mode that does without one on one machine."""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from abreast.errors import ConfigurationError
from abreast.records import Caller
from abreast.server.problems import REFUSED, UNAUTHENTICATED, ProblemError, answer
from abreast.telemetry import log

Authenticate: TypeAlias = Callable[[Request], "Caller | Awaitable[Caller | None] | None"]
"""A request in, who sends it out; None where nobody is known. A plain function runs in a thread. It may raise FastAPI's
HTTPException for an answer of its own."""

DEVELOPMENT_HEADER = "X-Abreast-Development"
DEVELOPMENT_BANNER = "This server believes whoever asks. Never let others reach it."

_FORWARDED = ("forwarded", "x-real-ip", "via")
_UNSET = "No authentication is set, so every request is refused: pass authenticate=... to hub.service, router or create_app."


async def refuse(request: Request) -> Caller | None:
    """The default: knows nobody."""
    log.warning(_UNSET)
    return None


async def caller_of(request: Request, authenticate: Authenticate) -> Caller:
    """Who sends this request. Raises ProblemError where nobody is known."""
    if inspect.iscoroutinefunction(authenticate) or inspect.iscoroutinefunction(getattr(authenticate, "__call__", None)):  # noqa: B004
        found = authenticate(request)
    else:
        found = await run_in_threadpool(authenticate, request)
    if inspect.isawaitable(found):
        found = await found
    if found is None:
        # RFC 9110 wants a challenge in every 401; an application with another scheme raises its own HTTPException.
        raise ProblemError(UNAUTHENTICATED, headers={"WWW-Authenticate": "Bearer"})
    if not isinstance(found, Caller):
        raise ConfigurationError(f"authenticate(...) returns a Caller or None, not {type(found).__name__}.")
    for name, value in (("tenant", found.tenant), ("user", found.user)):
        if not isinstance(value, str) or not value or "\0" in value:
            raise ConfigurationError(f"The {name} of a Caller is a text that is not empty.")
    return found


# -- development ---------------------------------------------------------------------------------------------------------


async def developer(request: Request) -> Caller:
    """Whoever the client says it is. Only behind `LoopbackOnly`."""
    headers = request.headers
    roles = headers.get("x-abreast-roles", "").replace(" ", "").split(",")
    return Caller(
        headers.get("x-abreast-tenant") or "development",
        headers.get("x-abreast-user") or "developer",
        frozenset(role for role in roles if role),
    )


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means this machine, and cannot mean another."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class LoopbackOnly:
    """Middleware of the development mode: answers programs and pages of this machine, and says in each answer what it is.

    A page of another site reaches a server on this machine too, through the browser of whoever opens it, under a name of
    its own that leads here or under ours. So the name that was asked for and the page's origin must be this machine's as
    well. A proxy in front would make every client one of this machine, so what a proxy has passed on is refused.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                banner = (DEVELOPMENT_HEADER.lower().encode(), DEVELOPMENT_BANNER.encode())
                message = {**message, "headers": [*message.get("headers", ()), banner]}
            await send(message)

        reason = _strange(Request(scope))
        app = self.app if reason is None else answer(ProblemError(REFUSED, f"In development mode {reason}"))
        await app(scope, receive, send_marked)


def _strange(request: Request) -> str | None:
    """Why a request may come from elsewhere."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        return "only programs of this machine are answered."
    if any(name in _FORWARDED or name.startswith("x-forwarded-") for name in headers):
        return "nothing is answered that came through a proxy."
    if len(headers.getlist("host")) != 1 or not is_loopback(_host(f"//{headers['host']}")):
        return "the server is asked for as localhost."
    if any(not is_loopback(_host(origin)) for origin in headers.getlist("origin")):
        return "pages of other sites are not answered."
    return None


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
