"""Server-sent events from a real server: their form, their heartbeat, and all the ways in which they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from abreast import AbsentError, ConfigurationError
from abreast.server import Streams
from abreast.server.problems import ProblemError, answer
from abreast.server.sse import EventStream, formatted, last_event
from served import Sent, events, problem

NASTY = "a\nid: 9\ndata: {}\n\nevent: done\r\n\0\u2028 입주 \ud800"


class Source:
    """Events that the test hands out, and whether the generator was closed."""

    def __init__(self, streams: Streams, error: Exception | None = None) -> None:
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.closed, self.asked = threading.Event(), 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.begun = threading.Event()
        self.app = FastAPI()

        @self.app.get("/stream")
        async def stream(request: Request) -> Response:
            self.loop = asyncio.get_running_loop()
            try:
                self.place = last_event(request, None)
            except ProblemError as wrong:
                return answer(wrong)
            return EventStream(self.events(error), streams)

    async def events(self, error: Exception | None) -> AsyncIterator[bytes]:
        self.begun.set()
        try:
            while True:
                self.asked += 1
                event = await self.queue.get()
                if event is None:
                    if error is not None:
                        raise error
                    return
                yield event
        finally:
            self.closed.set()

    def send(self, *given: bytes | None) -> None:
        assert self.begun.wait(30)
        for one in given:
            self.loop.call_soon_threadsafe(self.queue.put_nowait, one)


@pytest.fixture
def begin(serve: Any) -> Any:
    def made(error: Exception | None = None, **options: Any) -> tuple[Source, httpx.Client]:
        streams = Streams(**options)
        source = Source(streams, error)
        return source, serve(source.app, streams=streams)

    return made


def test_an_event_cannot_be_broken_by_what_is_in_it(begin):
    source, client = begin()
    with client.stream("GET", "/stream") as response:
        source.send(formatted("assistant.delta", {"delta": NASTY}), formatted("done", {"n": float("nan")}, 7), None)
        found = list(events(response.iter_lines()))
    assert found == [Sent("assistant.delta", {"delta": NASTY}, None), Sent("done", {"n": None}, "7")]
    assert source.closed.wait(30)


def test_an_event_is_two_or_three_lines():
    assert formatted("done", {"a": "é\n"}, 3) == b'id: 3\nevent: done\ndata: {"a":"\xc3\xa9\\n"}\n\n'
    assert formatted("assistant.delta", {}) == b"event: assistant.delta\ndata: {}\n\n"


def test_a_stream_says_how_it_wants_to_be_treated(begin):
    source, client = begin(retry=0.5)
    with client.stream("GET", "/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        assert "content-length" not in response.headers
        assert next(response.iter_lines()) == "retry: 500"
    assert source.closed.wait(30)


def test_silence_is_filled_with_heartbeats_without_an_id(begin):
    source, client = begin(heartbeat=0.05)
    with client.stream("GET", "/stream") as response:
        found = events(response.iter_lines())
        assert [next(found) for _ in range(3)] == [": heartbeat"] * 3
        source.send(formatted("done", {}, 1))
        assert next(one for one in found if one != ": heartbeat") == Sent("done", {}, "1")
        assert next(found) == ": heartbeat"


def test_a_client_that_goes_ends_its_stream_at_once(begin):
    """Long before the next event or heartbeat would find the connection broken."""
    source, client = begin(heartbeat=3600.0)
    with client.stream("GET", "/stream") as response:
        source.send(formatted("done", {}, 1))
        found = events(response.iter_lines())  # kept: without it, httpx would close the connection here
        assert next(found) == Sent("done", {}, "1")
        assert not source.closed.is_set()
    assert source.closed.wait(10)


def test_a_client_that_does_not_read_is_not_asked_for(begin):
    """Its stream stands still: nothing piles up for it. It is closed when it goes."""
    source, client = begin(heartbeat=3600.0)
    place = urlsplit(str(client.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
        source.send(*[formatted("assistant.delta", {"delta": "x" * 100_000})] * 1000)
        settled = settle(source)
        assert settled < 1000
        with client.stream("GET", "/stream") as other:  # the server answers others meanwhile
            assert other.status_code == 200
    assert source.closed.wait(10)


def settle(source: Source) -> int:
    """How many events a stream has asked for once it asks for no more: several turns of the loop bring nothing new."""
    before = -1
    while source.asked != before:
        before = source.asked
        for _ in range(200):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), source.loop).result(30)
    return before


def test_a_stream_ends_after_its_lifetime(begin):
    source, client = begin(lifetime=0.2)
    with client.stream("GET", "/stream") as response:
        assert list(events(response.iter_lines())) == []
    assert source.closed.wait(10)


def test_a_server_that_stops_ends_its_streams_first(begin):
    """`serve` stops the server at the end of the test and wants it to end; here the stream ends with it, in good form."""
    source, client = begin()
    with client.stream("GET", "/stream") as response:
        assert source.begun.wait(30)
        source.loop.call_soon_threadsafe(streams_of(source).closing.set)
        assert list(events(response.iter_lines())) == []
    assert source.closed.wait(10)


def streams_of(source: Source) -> Streams:
    endpoint = next(route.endpoint for route in source.app.routes if getattr(route, "path", "") == "/stream")
    return next(cell.cell_contents for cell in endpoint.__closure__ if isinstance(cell.cell_contents, Streams))


@pytest.mark.parametrize("error", [AbsentError(), ValueError("secret")])
def test_an_error_in_a_stream_ends_it_and_stands_in_the_log(begin, caplog, error):
    source, client = begin(error)
    with client.stream("GET", "/stream") as response:
        source.send(formatted("done", {}, 1), None)
        text = response.read().decode()
    assert text.endswith("data: {}\n\n")
    assert "secret" not in text
    assert "A stream" in caplog.text


@pytest.mark.parametrize("given", ["-1", "1.5", "x", "1 2", "²", "9" * 19, "9" * 30, "0x1"])
def test_a_place_that_is_none_is_a_problem_before_the_stream_begins(begin, given):
    _, client = begin()
    problem(client.get("/stream", headers={"Last-Event-ID": given.encode()}), 422, "invalid-request")


@pytest.mark.parametrize(("given", "place"), [("0", 0), ("7", 7), (str(2**63 - 1), 2**63 - 1), ("", None)])
def test_a_place_is_a_whole_number(begin, given, place):
    source, client = begin()
    with client.stream("GET", "/stream", headers={"Last-Event-ID": given}) as response:
        assert response.status_code == 200
    assert source.place == place


@pytest.mark.parametrize("option", ["heartbeat", "retry", "lifetime"])
def test_times_are_above_zero(option):
    with pytest.raises(ConfigurationError, match=option):
        Streams(**{option: 0})


def test_many_streams_end_with_their_clients(serve):
    """A hundred readers come and go; no generator is left open."""
    streams, opened = Streams(heartbeat=3600.0), set()
    ended = threading.Semaphore(0)
    app = FastAPI()

    @app.get("/stream")
    async def stream() -> Response:
        async def endless() -> AsyncIterator[bytes]:
            me = object()
            opened.add(me)
            try:
                yield formatted("done", {}, 1)
                await asyncio.Event().wait()
            finally:
                opened.discard(me)
                ended.release()

        return EventStream(endless(), streams)

    client = serve(app, streams=streams)

    async def read() -> None:
        limits = httpx.Limits(max_connections=100)
        reader = httpx.AsyncClient(base_url=client.base_url, timeout=30, limits=limits)
        async with reader, contextlib.AsyncExitStack() as stack:
            for _ in range(100):
                response = await stack.enter_async_context(reader.stream("GET", "/stream"))
                async for line in response.aiter_lines():
                    if line.startswith("data"):
                        assert json.loads(line.removeprefix("data: ")) == {}
                        break

    asyncio.run(read())
    for _ in range(100):
        assert ended.acquire(timeout=10)
    assert opened == set()
