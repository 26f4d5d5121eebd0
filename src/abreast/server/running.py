"""`abreast serve`: the application of a hub in a server of its own."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable

from abreast.errors import ConfigurationError, MissingExtraError
from abreast.hub import Abreast
from abreast.server.app import PREFIX, create_app, service_of
from abreast.server.identity import is_loopback
from abreast.server.sse import Streams

try:
    import uvicorn
except ModuleNotFoundError as error:  # FastAPI alone is enough for an application that has another server
    raise MissingExtraError(f'Serving needs its extra: pip install "abreast[server]" ({error.name} is missing).') from None

GRACE = 10
"""Seconds that a server which is asked to stop gives the requests that are going on."""


class Server(uvicorn.Server):
    """Ends the streams before it waits for its connections, which otherwise would not end."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.closing.set()
        await super().shutdown(sockets)


def serve(hub: Abreast, *, host: str, port: int, development: bool, say: Callable[[str], None]) -> None:
    """Serves until it is asked to stop. `say` is told what people should know. Raises ConfigurationError where a server
    that believes everybody would be reached by others."""
    if development and not is_loopback(host):
        raise ConfigurationError(f"Development mode serves this machine only: --host 127.0.0.1, not {host}.")
    if not development and service_of(hub).authenticate is None:
        say(
            "This service has no authentication, so every request is refused. Give it one, hub.service(..., "
            "authenticate=...), or try it on this machine with --dev."
        )
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")  # to stderr, unless the application's module did it
    streams = Streams()
    app = create_app(hub, development=development, streams=streams)
    with _listening(host, port) as listening:
        where = listening.getsockname()
        name = f"[{where[0]}]" if ":" in where[0] else where[0]
        say(f"Serving http://{name}:{where[1]}{PREFIX}, described in http://{name}:{where[1]}/openapi.json")
        # Whether a proxy's word on the client is taken is a matter of how it is deployed: FORWARDED_ALLOW_IPS says it.
        config = uvicorn.Config(
            app,
            log_level="warning",
            ws="none",
            timeout_graceful_shutdown=GRACE,
            proxy_headers=not development,
            server_header=False,
        )
        with contextlib.suppress(KeyboardInterrupt):  # how a person stops it
            Server(config, streams).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
        # Connections inherit it. asyncio sets it only for sockets that it makes itself, and without it an answer in two parts,
        # as each one is, waits 40 ms for the client's acknowledgement of the first.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise ConfigurationError(f"Nothing can listen at {host}, port {port}: {error.strerror}.") from None
