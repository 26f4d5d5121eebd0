"""What happens around every route: who asks, the body and its limit, a request that is sent again, and errors as problems.

It stands in the route and not in the application, so that a router which is included elsewhere brings it along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from abreast.records import Caller
from abreast.server import idempotency, problems
from abreast.server.bodies import read_body
from abreast.server.identity import Authenticate, caller_of
from abreast.server.problems import ABSENT, ProblemError

LONGEST_ID = 200

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True)
class Around:
    """What the routes of one router share."""

    authenticate: Callable[[], Authenticate]
    """Asked at each request: the application may set it after it made the router."""
    keeper: idempotency.Keeper
    body_limit: int

    async def respond(self, request: Request, handler: Handler, *, takes_body: bool) -> Response:
        """The answer to one request, whatever happens."""
        try:
            caller = await caller_of(request, self.authenticate())  # before anything is read that somebody unknown sends
            for value in request.path_params.values():
                if not 0 < len(value) <= LONGEST_ID or "\0" in value:
                    raise ProblemError(ABSENT)
            parsed = None
            if request.method in ("POST", "PUT"):
                request, parsed = await read_body(request, self.body_limit, wanted=takes_body)
            request.state.abreast_caller = caller
            return await self._once(request, caller, parsed, lambda: handler(request))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except Exception as error:
            return problems.answer(error)

    async def _once(self, request: Request, caller: Caller, parsed: Any, respond: Callable[[], Awaitable[Response]]) -> Response:
        key = idempotency.key_of(request) if request.method == "POST" else None
        if key is None:
            return await respond()
        return await idempotency.once(self.keeper, caller, key, idempotency.digest_of(request, parsed), respond)


def route_class(around: Around) -> type[APIRoute]:
    """The class of one router's routes."""

    class Route(APIRoute):
        def get_route_handler(self) -> Handler:
            handler = super().get_route_handler()
            takes_body = self.body_field is not None

            async def handle(request: Request) -> Response:
                return await around.respond(request, handler, takes_body=takes_body)

            return handle

    return Route
