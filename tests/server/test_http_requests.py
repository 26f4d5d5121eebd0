"""What happens around every route, on a small application of its own: bodies, identity, errors."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Query
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from abreast import (
    AbsentError,
    Caller,
    ConfigurationError,
    DecidedError,
    InputError,
    NotAllowedError,
    NotInstalledError,
    OutdatedError,
    RefusedError,
    ThreadBusyError,
    UnavailableError,
    UnknownEntityError,
    UnknownWorkspaceError,
)
from abreast.server.encoding import encoded
from abreast.server.identity import LoopbackOnly, developer, refuse
from abreast.server.route import Around, route_class
from served import problem

SECRET = "postgresql://admin:hunter2@db/app"
LIMIT = 1000


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    text: str
    arguments: dict[str, Any] = {}


async def somebody(request: Request) -> Caller | None:
    name = request.headers.get("x-user")
    return Caller("t1", name) if name else None


def application(authenticate: Any = somebody, error: Exception | None = None) -> FastAPI:
    made = APIRouter(route_class=route_class(Around(lambda: authenticate, None, LIMIT)))  # type: ignore[arg-type]

    @made.post("/echo")
    async def echo(body: Body) -> Response:
        return Response(encoded(body.model_dump()), media_type="application/json")

    @made.post("/bare")
    async def bare() -> Response:
        return Response(b"{}", media_type="application/json")

    @made.get("/things/{thing}")
    async def thing(thing: str, limit: Annotated[int, Query(ge=1)] = 1) -> Response:
        if error is not None:
            raise error
        return Response(encoded({"thing": thing}), media_type="application/json")

    app = FastAPI()
    app.include_router(made, prefix="/v1")
    return app


@pytest.fixture
def client(serve: Any) -> httpx.Client:
    found = serve(application())
    found.headers["x-user"] = "mina"
    return found


def post(client: httpx.Client, content: Any, **headers: str) -> httpx.Response:
    return client.post("/v1/echo", content=content, headers={"content-type": "application/json", **headers})


# -- bodies --------------------------------------------------------------------------------------------------------------


def test_a_body_arrives_as_it_was_sent(client):
    sent = {"text": "입주일 \0 \n", "arguments": {"a": [1, 2.5, None, {"b": "\u2028"}]}}
    assert post(client, json.dumps(sent)).json() == sent
    typed = {"content-type": "application/json; charset=utf-8"}
    assert post(client, json.dumps(sent, ensure_ascii=False).encode(), **typed).json() == sent


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_above_the_limit_is_refused_however_it_is_sent(client, size, chunked):
    text = json.dumps({"text": ""})
    content = json.dumps({"text": "x" * (size - len(text))}).encode()
    assert len(content) == size
    response = post(client, iter([content[:100], content[100:]]) if chunked else content)
    if size == LIMIT:
        assert response.status_code == 200
    else:
        assert problem(response, 413, "body-too-large")["limit"] == LIMIT


def test_a_client_that_sends_all_of_a_body_that_is_too_large_can_read_why_it_was_refused(client):
    """A connection that is closed on what nobody has read would be reset, and the answer lost."""
    place = urlsplit(str(client.base_url))
    head = b"POST /v1/echo HTTP/1.1\r\nhost: x\r\nx-user: mina\r\ncontent-type: application/json\r\n"
    for _ in range(10):
        with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
            raw.sendall(head + b"content-length: 2000000\r\n\r\n")
            for _ in range(200):
                raw.sendall(b"x" * 10_000)
            assert b'"limit":1000' in raw.makefile("rb").read()


def test_a_body_without_end_is_cut_off(client):
    """The client announces no length and goes on sending; the server answers without waiting for the end."""
    place = urlsplit(str(client.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
        raw.sendall(
            b"POST /v1/echo HTTP/1.1\r\nhost: x\r\nx-user: mina\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n"
        )
        assert raw.makefile("rb").readline().split()[1] == b"413"


def test_a_length_that_is_a_lie_is_of_no_use(client):
    place = urlsplit(str(client.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
        raw.sendall(
            b"POST /v1/echo HTTP/1.1\r\nhost: x\r\nx-user: mina\r\ncontent-type: application/json\r\n"
            b"content-length: 99999999999999999999\r\n\r\n{}"
        )
        assert raw.makefile("rb").readline().split()[1] == b"413"


def test_nobody_unknown_makes_the_server_read_a_body(client):
    """The headers alone are answered."""
    place = urlsplit(str(client.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=30) as raw:
        raw.sendall(b"POST /v1/echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n")
        assert raw.makefile("rb").readline().split()[1] == b"401"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"text": NaN}',
        b'{"text": "x", "arguments": {"a": 1e999}}',
        b'{"text": "x", "arguments": {"a": -Infinity}}',
        b'{"text": "\\ud800"}',
        b'{"text": "x", "arguments": {"\\udfff": 1}}',
        b'{"text": "x", "arguments": {"a": ' + b"9" * 900 + b"}}" + b"}" * 3,
        b"[" * 450 + b"]" * 450,
        b'{"text": "x", "arguments": {"a": ' + b"[" * 100 + b"]" * 100 + b"}}",
        b"null",
        b"[]",
        b'"text"',
        b'{"text": 1}',
        b'{"text": null}',
        b'{"text": "x", "history": []}',
        b'{"text": "x", "arguments": "{}"}',
    ],
)
def test_a_body_that_is_not_what_is_wanted_is_a_problem(client, content):
    said = problem(post(client, content), 422, "invalid-request")
    assert said.get("errors") or said["detail"].startswith("The body is")


def test_what_is_wrong_is_told_without_what_was_sent(client):
    said = problem(post(client, json.dumps({"text": {"password": "hunter2"}, "goto": "tools"})), 422, "invalid-request")
    assert {one["at"] for one in said["errors"]} == {"body.text", "body.goto"}
    assert "hunter2" not in json.dumps(said)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": ""},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_only_plain_json_is_read(client, headers):
    """What a form of another site can send without asking is refused, whatever it says."""
    problem(client.post("/v1/echo", content=b'{"text": "x"}', headers=headers), 415, "media-type")


def test_a_request_that_takes_no_body_takes_none(client):
    assert client.post("/v1/bare").status_code == 200
    assert client.post("/v1/bare", content=b"").status_code == 200
    problem(client.post("/v1/bare", json={"goto": "tools"}), 422, "invalid-request")


# -- who asks ------------------------------------------------------------------------------------------------------------


def test_nobody_is_refused_with_a_challenge(client):
    response = client.post("/v1/echo", json={"text": "x"}, headers={"x-user": ""})
    problem(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"]


def test_without_authentication_everybody_is_refused_and_the_log_says_why(serve, caplog):
    client = serve(application(refuse))
    with caplog.at_level(logging.WARNING, "abreast"):
        problem(client.get("/v1/things/1"), 401, "unauthenticated")
    assert "authenticate=" in caplog.text


def test_a_plain_function_authenticates_too(serve):
    client = serve(application(lambda request: Caller("t1", "mina")))
    assert client.get("/v1/things/1").json() == {"thing": "1"}


def test_an_authentication_may_answer_in_its_own_way(serve):
    def limited(request: Request) -> None:
        raise HTTPException(429, "Slowly.", {"Retry-After": "7"})

    response = serve(application(limited)).get("/v1/things/1")
    assert problem(response, 429, "refused-request")["detail"] == "Slowly."
    assert response.headers["retry-after"] == "7"


@pytest.mark.parametrize("found", ["mina", Caller("", "mina"), Caller("t1", ""), Caller("t1", "a\0b"), True])
def test_an_authentication_that_finds_something_else_lets_nobody_in(serve, found, caplog):
    said = problem(serve(application(lambda request: found)).get("/v1/things/1"), 500, "internal")
    assert said["reference"] in caplog.text


# -- errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "name", "members"),
    [
        (AbsentError(), 404, "absent", {}),
        (UnknownWorkspaceError("No such workspace: w9", workspace="w9"), 404, "absent", {}),
        (UnknownEntityError("No plan p9"), 404, "absent", {}),
        (InputError("No."), 422, "refused-input", {"detail": "No."}),
        (RefusedError("Not on Sundays."), 403, "refused", {"detail": "Not on Sundays."}),
        (NotAllowedError(), 403, "refused", {}),
        (DecidedError(approval="a_1", status="rejected"), 409, "decided", {"approval": "a_1", "decided": "rejected"}),
        (
            OutdatedError(approval="a_1", changes=[{"revision": 2}], revisions={"w1": 2}),
            409,
            "outdated",
            {"approval": "a_1", "changes": [{"revision": 2}], "revisions": {"w1": 2}},
        ),
        (ThreadBusyError("Busy.", thread="t", run="r_1", seconds=2.2), 409, "thread-busy", {"run": "r_1"}),
        (UnavailableError(SECRET), 503, "unavailable", {}),
    ],
)
def test_an_error_of_the_service_is_a_problem(serve, error, status, name, members):
    client = serve(application(error=error))
    response = client.get("/v1/things/1", headers={"x-user": "mina"})
    said = problem(response, status, name)
    assert {key: said[key] for key in members} == members
    assert SECRET not in response.text
    waits = {"thread-busy": "3", "unavailable": "1"}
    assert response.headers.get("retry-after") == waits.get(name)
    if name == "absent":
        assert set(said) == {"type", "title", "status"}


@pytest.mark.parametrize(
    "error", [ConfigurationError(SECRET), NotInstalledError(SECRET), ValueError(SECRET), HTTPException(500, SECRET)]
)
def test_what_went_wrong_inside_is_logged_and_not_told(serve, error, caplog):
    client = serve(application(error=error))
    response = client.get("/v1/things/1", headers={"x-user": "mina"})
    said = problem(response, 500, "internal")
    assert set(said) == {"type", "title", "status", "detail", "reference"}
    assert "hunter2" not in response.text
    assert "Traceback" not in response.text
    assert said["reference"] in caplog.text
    assert "hunter2" in caplog.text


@pytest.mark.parametrize("thing", ["%00", "a%00b", "x" * 201])
def test_an_id_that_can_be_none_is_absent(client, thing):
    assert set(problem(client.get(f"/v1/things/{thing}"), 404, "absent")) == {"type", "title", "status"}


def test_a_query_that_is_wrong_is_a_problem(client):
    said = problem(client.get("/v1/things/1?limit=none"), 422, "invalid-request")
    assert [one["at"] for one in said["errors"]] == ["query.limit"]


# -- the development mode ------------------------------------------------------------------------------------------------


@pytest.fixture
def developing(serve: Any) -> httpx.Client:
    app = application(developer)
    app.add_middleware(LoopbackOnly)
    return serve(app)


def test_the_development_mode_answers_this_machine_and_says_what_it_is(developing):
    port = developing.base_url.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}", "localhost"):
        response = developing.get("/v1/things/1", headers={"host": host})
        assert response.status_code == 200
        assert "Never let others reach it" in response.headers["x-abreast-development"]
    assert developing.get("/v1/things/1", headers={"origin": f"http://localhost:{port}"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "example.com"},
        {"host": "localhost.example.com"},
        {"host": "127.0.0.1.example.com:8000"},
        {"host": "10.0.0.1"},
        {"host": "[::ffff:10.0.0.1]"},
        {"host": "localhost@example.com"},
        {"host": ""},
        {"origin": "https://example.com"},
        {"origin": "null"},
        {"origin": "http://localhost.example.com"},
        {"forwarded": "for=127.0.0.1"},
        {"x-forwarded-for": "127.0.0.1"},
        {"x-forwarded-host": "localhost"},
        {"x-real-ip": "127.0.0.1"},
        {"via": "1.1 proxy"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/things/1", "/openapi.json", "/nothing"])
def test_the_development_mode_answers_nobody_from_elsewhere(developing, headers, path):
    response = developing.get(path, headers=headers)
    problem(response, 403, "refused")
    assert response.headers["x-abreast-development"]


@pytest.mark.parametrize(
    ("address", "status"), [("127.0.0.1", 200), ("::1", 200), ("192.0.2.7", 403), ("::ffff:192.0.2.7", 403), ("", 403)]
)
def test_the_development_mode_refuses_a_client_of_another_address(address, status):
    app = application(developer)
    app.add_middleware(LoopbackOnly)

    async def ask() -> int:
        transport = httpx.ASGITransport(app, client=(address, 4321))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.get("/v1/things/1")).status_code

    assert asyncio.run(ask()) == status
