"""Server-sent events: durable ones with ids, heartbeats without, and an end as soon as the client is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from abreast.errors import AbreastError, ConfigurationError
from abreast.server.encoding import text_of
from abreast.server.problems import HEADERS, REQUEST, ProblemError
from abreast.telemetry import log

HEARTBEAT = b": heartbeat\n\n"
LARGEST_ID = 2**63 - 1


@dataclass(frozen=True)
class Streams:
    """How streams are kept: `heartbeat` seconds of silence until a comment, `retry` seconds that a client waits before it
    comes again, `lifetime` seconds after which a stream ends and the client, coming again, is authenticated anew."""

    heartbeat: float = 15.0
    retry: float = 2.0
    lifetime: float = 3600.0
    closing: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)
    """Set when the server is about to stop, which waits for its streams."""

    def __post_init__(self) -> None:
        for name in ("heartbeat", "retry", "lifetime"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} is a number of seconds above 0.")


def formatted(type: str, data: Any, id: int | None = None) -> bytes:
    """One event as text. JSON is one line, so nothing in the data can end the event or begin another."""
    head = "" if id is None else f"id: {id}\n"
    return f"{head}event: {type}\ndata: {text_of(data)}\n\n".encode()


def place(id: int) -> bytes:
    """An id without an event: where the stream stands."""
    return f"id: {id}\n\n".encode()


def last_event(request: Request, after: int | None) -> int | None:
    """Where a stream goes on: the header that a browser sends when it comes again, or else the query's `after`. Raises
    ProblemError for a header that is no id of ours."""
    given = request.headers.getlist("last-event-id")
    if not given or given == [""]:
        return after
    if len(given) > 1 or not (given[0].isascii() and given[0].isdigit() and len(given[0]) <= 19) or int(given[0]) > LARGEST_ID:
        raise ProblemError(REQUEST, "Last-Event-ID is the id of an event of this stream: a whole number.")
    return int(given[0])


class EventStream(Response):
    """Sends events as they come. `events` are formatted, and closed at the end, however it comes: with the last of them,
    with the client, with the stream's lifetime or with the server."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes] | None = None, streams: Streams | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        # A proxy that collected the answer before it passed it on would turn a stream into a letter.
        super().__init__(None, 200, {**HEADERS, "X-Accel-Buffering": "no", **(headers or {})}, self.media_type)
        if "content-length" in self.headers:
            del self.headers["content-length"]
        self._events, self._streams = events, streams or Streams()
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._part(send, f"retry: {round(self._streams.retry * 1000)}\n\n".encode())
        pump, _, gone, closing = tasks = [
            asyncio.ensure_future(one)
            for one in (self._pump(send), self._beat(send), _gone(receive), self._streams.closing.wait())
        ]
        try:
            await asyncio.wait({pump, gone, closing}, timeout=self._streams.lifetime, return_when=asyncio.FIRST_COMPLETED)
            left = gone.done()
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(ends[0], Exception):
            _noted(ends[0])
        if not left:
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        """Asks for the next event when the one before was taken: a slow client has a slow stream and nothing else."""
        if self._events is None:
            return
        try:
            async for event in self._events:
                await self._part(send, event)
        finally:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()

    async def _beat(self, send: Send) -> None:
        pause = self._streams.heartbeat
        while True:
            await asyncio.sleep(pause)
            silent = asyncio.get_running_loop().time() - self._sent_at
            if silent >= self._streams.heartbeat:
                await self._part(send, HEARTBEAT)
                silent = 0.0
            pause = max(self._streams.heartbeat - silent, 0.001)

    async def _part(self, send: Send, part: bytes) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": part, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _noted(error: Exception) -> None:
    """The stream has begun, so its error has no status any more. It ends; the client comes again and is told then."""
    if isinstance(error, AbreastError):
        log.warning("A stream ended: %s", error.message)
    elif not isinstance(error, OSError):
        log.error("A stream failed.", exc_info=error)
