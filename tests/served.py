"""A real server for a test: uvicorn in a thread of its own, at a port that the system chose."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from abreast.server import Streams
from abreast.server.running import Server


@contextlib.contextmanager
def served(app: Any, streams: Streams | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    """Serves an application; gives its address. Connections wait in the socket until the server takes them."""
    listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512)
    config = uvicorn.Config(app, log_level="error", ws="none", lifespan="on", proxy_headers=False)
    server = Server(config, streams or Streams())
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run(sockets=[listening])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive(), "the server did not stop"
        assert failures == []


@dataclass(frozen=True)
class Sent:
    """One event as a browser would read it."""

    type: str
    data: Any
    id: str | None


def events(lines: Iterable[str]) -> Iterator[Sent | str]:
    """The events of a stream, and its comments as text, as they come. Read as the HTML standard has it."""
    kind, data, id = "message", [], None
    for line in lines:
        if line == "":
            if data:
                yield Sent(kind, json.loads("\n".join(data)), id)
            kind, data, id = "message", [], None
        elif line.startswith(":"):
            yield line
        else:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif name == "id":
                id = value


def problem(response: httpx.Response, status: int, name: str) -> dict[str, Any]:
    """What a problem says, once it is seen to be one."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    said: dict[str, Any] = response.json()
    assert (response.status_code, said["type"]) == (status, f"urn:abreast:problem:{name}"), response.text
    assert said["status"] == status
    return said
