"""`Idempotency-Key` on both databases: what is sent again does nothing twice. A small application counts what it did."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Header
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from abreast import Abreast, Caller, RefusedError
from abreast.core.replies import Replies
from abreast.server.encoding import encoded
from abreast.server.idempotency import Keeper
from abreast.server.route import Around, route_class
from planner import planner
from served import problem


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    text: str


def somebody(request: Request) -> Caller:
    return Caller(request.headers.get("x-tenant", "t1"), request.headers.get("x-user", "mina"))


class Product:
    """An application that counts what it did. `then` is called in the request, after it did it."""

    def __init__(self, hub: Abreast) -> None:
        self.done: list[str] = []
        self.then: Callable[[], None] = lambda: None
        core = hub._core
        keeper = Keeper(core.access, Replies(core.access.dialect, core.schema, core.verify))
        made = APIRouter(route_class=route_class(Around(lambda: somebody, keeper, 10_000)))

        @made.post("/things", status_code=201)
        def create(body: Body, key: Annotated[str | None, Header(alias="Idempotency-Key")] = None) -> Response:
            if body.text == "refused":
                raise RefusedError("No.")
            self.done.append(body.text)
            self.then()
            return Response(encoded({"text": body.text, "number": len(self.done)}), 201, media_type="application/json")

        @made.post("/empty", status_code=204)
        def empty() -> Response:
            self.done.append("")
            return Response(status_code=204)

        @made.post("/failing")
        def fail() -> Response:
            self.done.append("failed")
            raise ValueError

        self.app = FastAPI()
        self.app.include_router(made)


@pytest.fixture
def made(database: Any, hubs: Any) -> Product:
    return Product(planner(database, hubs)[0])


@pytest.fixture
def client(made: Product, serve: Any) -> httpx.Client:
    return serve(made.app)


def post(client: httpx.Client, text: str = "a", key: str | None = "k1", path: str = "/things", **headers: str) -> httpx.Response:
    return client.post(path, json={"text": text}, headers={**({"Idempotency-Key": key} if key else {}), **headers})


def test_a_repeat_gets_the_same_answer_and_does_nothing(made, client):
    first, second = post(client, "입주"), post(client, "입주")
    assert (first.status_code, first.content) == (second.status_code, second.content) == (201, first.content)
    assert (first.headers.get("idempotency-replayed"), second.headers["idempotency-replayed"]) == (None, "true")
    assert second.headers["content-type"] == first.headers["content-type"] == "application/json"
    assert made.done == ["입주"]


def test_the_same_said_otherwise_is_the_same(made, client):
    post(client)
    again = client.post(
        "/things", content=b' { "text" :\n"\\u0061" } ', headers={"Idempotency-Key": "k1", "content-type": "application/json"}
    )
    assert again.headers["idempotency-replayed"] == "true"
    assert made.done == ["a"]


def test_without_a_key_every_request_counts(made, client):
    assert [post(client, key=None).status_code for _ in range(2)] == [201, 201]
    assert made.done == ["a", "a"]


@pytest.mark.parametrize(("text", "path"), [("b", "/things"), ("a", "/failing"), ("a", "/things?a=1")])
def test_a_key_stands_for_one_request(made, client, text, path):
    post(client)
    if path == "/failing":
        response = client.post(path, headers={"Idempotency-Key": "k1"})
    else:
        response = post(client, text, path=path)
    problem(response, 422, "key-reused")
    assert made.done == ["a"]


def test_another_persons_key_is_another_key(made, client):
    post(client)
    assert post(client, **{"x-user": "junho"}).status_code == 201
    assert post(client, **{"x-tenant": "t2"}).status_code == 201
    assert len(made.done) == 3


def test_an_empty_answer_is_repeated_as_it_was(made, client):
    first, second = (client.post("/empty", headers={"Idempotency-Key": "k1"}) for _ in range(2))
    assert first.status_code == second.status_code == 204
    assert second.content == b""
    assert "content-type" not in second.headers
    assert made.done == [""]


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "ключ".encode(), "a\tb"])
def test_a_key_is_visible_ascii(made, client, key):
    problem(post(client, key=None, **{"Idempotency-Key": key}), 422, "invalid-request")
    assert made.done == []


def test_two_keys_are_none(made, client):
    response = client.post("/things", json={"text": "a"}, headers=[("Idempotency-Key", "k1"), ("Idempotency-Key", "k2")])
    problem(response, 422, "invalid-request")
    assert made.done == []


def test_what_did_nothing_frees_its_key(made, client):
    """A refused request and one that was not valid may be corrected under the same key."""
    problem(post(client, "refused"), 403, "refused")
    problem(client.post("/things", json={"texts": "a"}, headers={"Idempotency-Key": "k1"}), 422, "invalid-request")
    assert post(client).status_code == 201
    assert made.done == ["a"]


def test_a_failure_is_not_kept(made, client):
    for _ in range(2):
        problem(client.post("/failing", headers={"Idempotency-Key": "k1"}), 500, "internal")
    assert made.done == ["failed", "failed"]


def test_while_the_first_is_answered_a_repeat_waits(made, client):
    arrived, go = threading.Event(), threading.Event()
    made.then = lambda: (arrived.set(), go.wait(30))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(post, client)
        assert arrived.wait(30)
        running = post(client)
        problem(running, 409, "request-running")
        assert running.headers["retry-after"] == "1"
        problem(post(client, "b"), 422, "key-reused")
        go.set()
        assert first.result(30).status_code == 201
    assert post(client).headers["idempotency-replayed"] == "true"
    assert made.done == ["a"]


def test_of_many_at_once_one_does_it(made, client):
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: post(client), range(16)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert made.done == ["a"]


def test_a_reply_is_repeated_by_another_process(made, client, database, hubs, serve):
    """As after a restart: another hub, another server, the same database."""
    first = post(client)
    other = Product(planner_again(database, hubs))
    again = post(serve(other.app))
    assert (again.status_code, again.content) == (201, first.content)
    assert other.done == []


def planner_again(database: Any, hubs: Any) -> Abreast:
    from planner import declare

    return declare(hubs(database))


def sql(database: Any, text: str) -> list[Any]:
    name = "abreast_reply" if database.kind == "sqlite" else "abreast.reply"
    with database.engine().begin() as connection:
        result = connection.exec_driver_sql(text.format(reply=name))
        return [tuple(row) for row in result] if result.returns_rows else []


def test_a_request_whose_process_died_is_answered_anew(made, client, database):
    """The row of a request that never came to an end, as a killed process leaves it."""
    post(client)
    sql(database, "update {reply} set status = null, body = null")
    problem(post(client), 409, "request-running")
    sql(database, "update {reply} set at = '2020-01-01T00:00:00.000Z'")
    assert post(client).status_code == 201
    assert made.done == ["a", "a"]
    assert post(client).headers["idempotency-replayed"] == "true"


def test_a_reply_is_kept_for_a_day(made, client, database):
    post(client)
    post(client, **{"x-user": "junho"})
    sql(database, "update {reply} set at = '2020-01-01T00:00:00.000Z'")
    post(client, "b", key="k2")
    assert sorted(sql(database, "select user_id, key from {reply}")) == [("junho", "k1"), ("mina", "k2")]
    assert post(client, "c").status_code == 201


def test_a_reply_that_cannot_be_kept_is_given_all_the_same(made, client, database, caplog):
    """The table is gone between doing and keeping: what was done stands, and its answer is known."""
    made.then = lambda: sql(database, "drop table {reply}")
    assert post(client).status_code == 201
    assert made.done == ["a"]
    assert "could not be kept" in caplog.text


def test_what_is_kept_is_the_answer(made, client, database):
    post(client, "a\0b")
    ((status, body),) = sql(database, "select status, body from {reply}")
    assert (status, json.loads(body)) == (201, {"text": "a\0b", "number": 1})
