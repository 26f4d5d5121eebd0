"""An application of its own around the routes, for who has none to include them in."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from abreast.errors import ConfigurationError
from abreast.hub import Abreast
from abreast.server import problems
from abreast.server.bodies import LIMIT
from abreast.server.identity import Authenticate, LoopbackOnly, developer
from abreast.server.routes import router
from abreast.server.sse import Streams

if TYPE_CHECKING:
    from abreast.hub.service import Service

PREFIX = "/v1"

WARNING = """\
******************************************************************************
*  DEVELOPMENT MODE: this server believes whoever asks, and asks nobody for  *
*  a password. It answers this machine only. Never let others reach it.      *
******************************************************************************"""

_TAGS = [
    {"name": "threads", "description": "Conversations."},
    {"name": "messages", "description": "What people and the agent said."},
    {"name": "runs", "description": "What the agent does for a message."},
    {"name": "approvals", "description": "Tool calls that wait for a person."},
    {"name": "streams", "description": "What happens, as it happens."},
]


def create_app(
    source: Abreast | Service,
    authenticate: Authenticate | None = None,
    *,
    development: bool = False,
    prefix: str = PREFIX,
    body_limit: int = LIMIT,
    streams: Streams | None = None,
) -> FastAPI:
    """An application with the routes of a hub's service, or of this service, under `prefix`; `/openapi.json` describes it.

    It starts and stops the service with itself. In `development` mode it asks for no authentication, answers this machine
    only, says so loudly, and has a page to try it at `/docs`. Who may read it from other origins (CORS) is the
    application's decision: include `router` in one of your own for that.
    """
    if development:
        print(WARNING, file=sys.stderr, flush=True)
        authenticate = developer
    app = FastAPI(
        title="abreast",
        summary="Conversations with an agent that stays in step with the data.",
        version=version("abreast"),
        openapi_tags=_TAGS,
        # The pages load their programs from another server, so they are for development only.
        docs_url="/docs" if development else None,
        redoc_url=None,
        # A redirect would go to whatever name the request gave this server, and answer who was not asked who he is.
        redirect_slashes=False,
    )
    app.include_router(router(service_of(source), authenticate, body_limit=body_limit, streams=streams), prefix=prefix)
    for error in (HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, _answer)
    if development:
        app.add_middleware(LoopbackOnly)
    return app


async def _answer(request: Request, error: Exception) -> Response:
    return problems.answer(error)


def service_of(source: Abreast | Service) -> Service:
    """The service that is meant. Raises ConfigurationError where a hub has none, or several."""
    if not isinstance(source, Abreast):
        return source
    found = source.services
    if not found:
        raise ConfigurationError("This hub has no service yet: make one with hub.service(agent, context=...).")
    if len(found) > 1:
        raise ConfigurationError("This hub has several services: pass the one that is meant.")
    return found[0]
