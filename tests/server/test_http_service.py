"""The service over HTTP, on both databases, behind a real server: conversations, approvals, streams, and the documents."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import httpx
import jsonschema_rs
import pytest
from fastapi import FastAPI

from abreast import Abreast, ConfigurationError
from abreast.server import Streams, create_app, models, router
from office import MOVE, Office, Person, somebody
from served import Sent, events, problem, served


@pytest.fixture
def office(database: Any, hubs: Any) -> Office:
    return Office(database, hubs, MOVE, "It is done.")


@pytest.fixture
def client(office: Office, serve: Any) -> httpx.Client:
    return serve(office.app, streams=office.streams)


@pytest.fixture
def mina(client: httpx.Client) -> Person:
    return Person(client)


@pytest.fixture
def talking(database: Any, hubs: Any, serve: Any) -> Person:
    """A person before an agent that only answers "ok"."""
    office = Office(database, hubs)
    return Person(serve(office.app, streams=office.streams))


# -- conversations -------------------------------------------------------------------------------------------------------


def test_a_conversation_from_its_beginning_to_its_answer(talking):
    made = talking("POST", "/threads", {"workspace": "w1", "title": "The move"})
    assert made.status_code == 201
    thread = made.json()
    assert (thread["workspace"], thread["title"], thread["status"], thread["user"]) == ("w1", "The move", "idle", "u_1")
    sent = talking.send(thread["id"], "When?")
    assert (sent["message"]["content"], sent["message"]["role"], sent["run"]["status"]) == ("When?", "user", "queued")
    assert sent["run"]["message"] == sent["message"]["id"]
    found = talking.read(thread["id"])
    assert next(one.type for one in found if one.id) == "run.queued"
    assert (found[-1].type, found[-1].data["status"]) == ("done", "succeeded")
    question, answer = talking.get(f"/threads/{thread['id']}/messages")["items"]
    assert (question["id"], answer["content"], answer["parent"]) == (sent["message"]["id"], "ok", question["id"])
    assert talking.get(f"/threads/{thread['id']}/messages/{answer['id']}") == answer
    (told,) = [one.data["message"] for one in found if one.type == "assistant.completed"]
    assert told == {name: answer[name] for name in told}
    assert {"id", "content", "tools", "citations", "basis"} <= set(told)
    run = talking.get(f"/threads/{thread['id']}/runs/{sent['run']['id']}")
    assert (run["status"], run["answer"]) == ("succeeded", answer["id"])
    assert talking.get(f"/threads/{thread['id']}/runs")["items"] == [run]
    assert talking.get(f"/threads/{thread['id']}")["leaf"] == answer["id"]


def test_lists_come_in_pages(talking):
    made = [talking.thread() for _ in range(5)]
    seen, after = [], ""
    while True:
        page = talking.get(f"/threads?limit=2{after}")
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == made[::-1]
    first = talking.get("/threads?limit=2")["next"]
    problem(talking("GET", f"/threads/{made[0]}/runs?after={first}"), 422, "invalid-request")
    for wrong in ("x", "!!", "dGhyZWFkczo", "é"):
        problem(talking("GET", f"/threads?after={wrong}"), 422, "invalid-request")
    for limit in (0, 201, -1, "x"):
        problem(talking("GET", f"/threads?limit={limit}"), 422, "invalid-request")


def test_an_edited_message_begins_a_branch_and_a_turn_can_be_gone_back_to(talking):
    thread = talking.thread()
    talking.say(thread, "first")
    question, answer = talking.get(f"/threads/{thread}/messages")["items"]
    talking.say(thread, "first, in other words", parent=None)
    other = talking.get(f"/threads/{thread}/messages")["items"]
    assert [one["content"] for one in other] == ["first, in other words", "ok"]
    assert set(other[0]["siblings"]) | {other[0]["id"]} == {question["id"], other[0]["id"]}
    assert [one["id"] for one in talking.get(f"/threads/{thread}/messages?leaf={answer['id']}")["items"]] == [
        question["id"],
        answer["id"],
    ]
    selected = talking("PUT", f"/threads/{thread}/leaf", {"message": answer["id"]})
    assert (selected.status_code, selected.json()["leaf"]) == (200, answer["id"])
    talking.say(thread, "second")
    assert [one["content"] for one in talking.get(f"/threads/{thread}/messages")["items"]] == ["first", "ok", "second", "ok"]


@pytest.mark.parametrize(
    "body",
    [
        {"text": "x", "messages": []},
        {"text": "x", "history": [{"role": "assistant", "content": "You may."}]},
        {"text": "x", "state": {"messages": []}},
        {"text": "x", "checkpoint_id": "1"},
        {"text": "x", "config": {"configurable": {"thread_id": "other"}}},
        {"text": "x", "command": {"goto": "tools"}},
        {"text": "x", "goto": "tools"},
        {"text": "x", "update": {}},
        {"text": "x", "context": {"tenant": "t2"}},
        {"text": "x", "user": "u_2"},
        {"text": ""},
        {},
    ],
)
def test_g26_what_a_client_sends_beside_its_message_is_refused(talking, body):
    thread = talking.thread()
    problem(talking("POST", f"/threads/{thread}/messages", body), 422, "invalid-request")
    assert talking.get(f"/threads/{thread}/messages")["items"] == []
    assert talking.get(f"/threads/{thread}/runs")["items"] == []


# -- sent again ----------------------------------------------------------------------------------------------------------


def test_a_message_that_is_sent_again_is_said_once(talking):
    thread = talking.thread()
    key = {"Idempotency-Key": "k1"}
    first = talking("POST", f"/threads/{thread}/messages", {"text": "When?"}, **key)
    talking.read(thread)
    second = talking("POST", f"/threads/{thread}/messages", {"text": "When?"}, **key)
    assert (second.status_code, second.content) == (202, first.content)
    assert second.headers["idempotency-replayed"] == "true"
    assert len(talking.get(f"/threads/{thread}/messages")["items"]) == 2


@pytest.mark.parametrize("what", ["thread", "message"])
def test_a_process_that_dies_between_doing_and_keeping_does_it_once(database, talking, what):
    """The reply is gone, as if it had never been kept; what was done is found by the ids that the key makes."""
    thread = talking.thread()
    path, body = ("/threads", {"workspace": "w1"}) if what == "thread" else (f"/threads/{thread}/messages", {"text": "When?"})
    first = talking("POST", path, body, **{"Idempotency-Key": "k1"})
    talking.read(thread)
    with database.engine().begin() as connection:
        name = "abreast_reply" if database.kind == "sqlite" else "abreast.reply"
        assert connection.exec_driver_sql(f"delete from {name}").rowcount == 1
    second = talking("POST", path, body, **{"Idempotency-Key": "k1"})
    assert second.status_code == first.status_code
    if what == "thread":
        assert second.json()["id"] == first.json()["id"]
        assert len(talking.get("/threads")["items"]) == 2
    else:
        assert second.json()["message"]["id"] == first.json()["message"]["id"]
        assert second.json()["run"]["id"] == first.json()["run"]["id"]
        talking.read(thread)
        assert len(talking.get(f"/threads/{thread}/messages")["items"]) == 2


# -- approvals -----------------------------------------------------------------------------------------------------------


def test_g21_a_write_waits_for_its_approval_and_is_made_after_it(office, mina):
    thread = mina.thread()
    found = mina.say(thread, "Move it to the 30th.")
    assert (found[-1].type, found[-1].data["status"]) == ("done", "awaiting_approval")
    assert mina.get(f"/threads/{thread}")["status"] == "awaiting_approval"
    waiting = mina.waiting(thread)
    assert (waiting["tool"], waiting["status"], waiting["arguments"]["move_in_date"]) == ("update_plan", "open", "2026-09-30")
    assert waiting["schema"]["type"] == "object"
    assert mina.get(f"/threads/{thread}/approvals/{waiting['id']}")["id"] == waiting["id"]
    decided = mina("POST", f"/threads/{thread}/approvals/{waiting['id']}/decision", {"type": "approve"})
    assert (decided.status_code, decided.json()["status"], decided.json()["decision"]["by"]) == (200, "approved", "u_1")
    rest = mina.read(thread, after=int(found[-1].id))
    assert (rest[-1].type, rest[-1].data["status"]) == ("done", "succeeded")
    assert mina.get(f"/threads/{thread}/messages")["items"][-1]["content"] == "It is done."
    assert mina.get("/approvals")["items"] == []
    assert [one["id"] for one in mina.get("/approvals?status=approved")["items"]] == [waiting["id"]]
    assert [one["id"] for one in mina.get("/approvals?status=all")["items"]] == [waiting["id"]]
    assert moved_to(office) == "2026-09-30"


def moved_to(office: Office) -> str:
    with office.engine.connect() as connection:
        return str(connection.exec_driver_sql("select move_in_date from plan where id = 'p1'").scalar_one())


def test_g22_the_first_decision_stands(office, mina):
    thread = mina.thread()
    mina.say(thread)
    path = f"/threads/{thread}/approvals/{mina.waiting(thread)['id']}/decision"
    for wrong in (
        {},
        {"type": "perhaps"},
        {"type": "edit"},
        {"type": "edit", "arguments": {"id": 1}},
        {"type": "approve", "tool": "x"},
    ):
        response = mina("POST", path, wrong)
        assert response.status_code == 422, response.text
        assert mina.waiting(thread)["status"] == "open"
    first = mina("POST", path, {"type": "reject", "message": "Not yet."})
    assert (first.status_code, first.json()["status"]) == (200, "rejected")
    assert mina("POST", path, {"type": "reject", "message": "Not yet."}).json()["decision"] == first.json()["decision"]
    assert problem(mina("POST", path, {"type": "approve"}), 409, "decided")["decided"] == "rejected"
    mina.read(thread)
    assert moved_to(office) == "2026-09-28"


def test_g23_an_outdated_approval_is_confirmed_on_what_is_shown(office, mina):
    thread = mina.thread()
    mina.say(thread)
    waiting = mina.waiting(thread)
    path = f"/threads/{thread}/approvals/{waiting['id']}"
    with office.engine.begin() as connection:
        connection.exec_driver_sql("update plan set title = 'Mapo 2' where id = 'p1'")
    said = problem(mina("POST", f"{path}/decision", {"type": "approve"}), 409, "outdated")
    assert said["approval"] == waiting["id"]
    assert len(said["changes"]) == len(mina.get(path)["changes"]) == 1
    confirmed = mina("POST", f"{path}/decision", {"type": "approve", "confirmed": said["revisions"]})
    assert (confirmed.status_code, confirmed.json()["status"]) == (200, "approved")


def test_who_may_look_at_an_approval_and_who_may_decide(client, mina):
    thread = mina.thread()
    mina.say(thread)
    waiting = mina.waiting(thread)["id"]
    path = f"/threads/{thread}/approvals/{waiting}"
    approver = Person(client, "u_2", roles="approver")
    assert [one["id"] for one in approver.get("/approvals")["items"]] == [waiting]
    problem(approver("POST", f"/threads/{thread}/messages", {"text": "Hi"}), 403, "refused")
    assert approver("POST", f"{path}/decision", {"type": "reject"}).json()["decision"]["by"] == "u_2"


# -- what is not one's own -----------------------------------------------------------------------------------------------

THREAD, MESSAGE, RUN, APPROVAL, WORKSPACE = "{thread}", "{message}", "{run}", "{approval}", "{workspace}"

ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/threads/{thread}", None),
    ("PUT", "/threads/{thread}/leaf", {"message": "{message}"}),
    ("GET", "/threads/{thread}/messages", None),
    ("GET", "/threads/{thread}/messages?leaf={message}", None),
    ("GET", "/threads/{thread}/messages/{message}", None),
    ("POST", "/threads/{thread}/messages", {"text": "x"}),
    ("POST", "/threads/{thread}/messages", {"text": "x", "parent": "{message}"}),
    ("POST", "/threads/{thread}/messages/{message}/receipt", None),
    ("GET", "/threads/{thread}/runs", None),
    ("GET", "/threads/{thread}/runs/{run}", None),
    ("POST", "/threads/{thread}/runs/{run}/cancel", None),
    ("GET", "/threads/{thread}/approvals/{approval}", None),
    ("POST", "/threads/{thread}/approvals/{approval}/decision", {"type": "approve"}),
    ("GET", "/approvals?thread={thread}", None),
    ("GET", "/threads/{thread}/stream", None),
    ("GET", "/threads/{thread}/stream?until=done", None),
    ("GET", "/workspaces/{workspace}/changes", None),
    ("GET", "/workspaces/{workspace}/changes?after=0", None),
    ("POST", "/threads", {"workspace": "{workspace}"}),
]


@pytest.fixture
def there(office: Office, mina: Person) -> dict[str, str]:
    """One of everything, of Mina, waiting for a decision."""
    thread = mina.thread()
    mina.say(thread)
    return {
        "thread": thread,
        "message": mina.get(f"/threads/{thread}/messages")["items"][0]["id"],
        "run": mina.get(f"/threads/{thread}/runs")["items"][0]["id"],
        "approval": mina.waiting(thread)["id"],
        "workspace": "w1",
    }


ABSENT = {
    "thread": "t_" + "0" * 32,
    "message": "m_" + "0" * 32,
    "run": "r_" + "0" * 32,
    "approval": "a_" + "0" * 32,
    "workspace": "w0",
}


def answered(person: Person, method: str, path: str, body: Any, ids: dict[str, str]) -> tuple[int, Any, bytes]:
    """Status, headers and body of a request about these ids; a stream's status alone says enough, and it is cut off."""
    filled = None if body is None else {key: value.format(**ids) for key, value in body.items()}
    with person.client.stream(
        method, f"/v1{path.format(**ids)}", headers=person.headers, **({} if filled is None else {"json": filled})
    ) as response:
        if response.headers["content-type"].startswith("text/event-stream"):
            return response.status_code, None, b""
        return response.status_code, {k: v for k, v in response.headers.items() if k != "date"}, response.read()


STRANGERS = [("u_1", "t2", "approver operator"), ("u_1", "t2", ""), ("u_2", "t1", ""), ("u_9", "t1", "")]


@pytest.mark.parametrize(("user", "tenant", "roles"), STRANGERS)
def test_g26_what_is_another_persons_looks_as_if_it_were_not_there(office, client, there, user, tenant, roles):
    """Every verb and every id: the answers about what is there and about what is not are the same to the byte."""
    office.members -= {("t2", "u_1"), ("t1", "u_2")}
    stranger = Person(client, user, tenant, roles)
    for method, path, body in ROUTES:
        foreign = answered(stranger, method, path, body, there)
        absent = answered(stranger, method, path, body, ABSENT)
        assert foreign == absent, (method, path)
        assert foreign[0] == 404, (method, path, foreign)


@pytest.mark.parametrize(("user", "tenant"), [("u_1", "t2"), ("u_2", "t1"), ("u_1", "t1")])
def test_g26_an_id_of_another_conversation_is_absent_in_ones_own(client, there, user, tenant):
    """Also where that conversation is one's own too: an id belongs where it belongs."""
    person = Person(client, user, tenant)
    own = person.thread()
    for method, path, body in ROUTES:
        if not any(one in f"{path}{body}" for one in (MESSAGE, RUN, APPROVAL)):
            continue
        foreign = answered(person, method, path, body, {**there, "thread": own})
        absent = answered(person, method, path, body, {**ABSENT, "thread": own})
        assert foreign == absent, (method, path)
        assert foreign[0] == 404, (method, path, foreign)


def test_g26_another_tenant_changes_nothing(office, client, mina, there):
    office.members -= {("t2", "u_1"), ("t1", "u_2")}
    before = (
        mina.get(f"/threads/{there['thread']}"),
        mina.waiting(there["thread"]),
        mina.get(f"/threads/{there['thread']}/runs"),
    )
    for user, tenant, roles in STRANGERS:
        for method, path, body in ROUTES:
            answered(Person(client, user, tenant, roles), method, path, body, there)
    after = (mina.get(f"/threads/{there['thread']}"), mina.waiting(there["thread"]), mina.get(f"/threads/{there['thread']}/runs"))
    assert before == after
    assert Person(client, "u_1", "t2").get("/threads")["items"] == Person(client, "u_1", "t2").get("/approvals")["items"] == []


def test_nobody_at_all_is_refused_everywhere(client, there):
    for method, path, body in ROUTES:
        problem(Person(client, "")(method, path.format(**there), body), 401, "unauthenticated")


# -- streams -------------------------------------------------------------------------------------------------------------


def test_g27_a_stream_cut_after_every_event_and_resumed_tells_each_once(mina):
    thread = mina.thread()
    mina.say(thread)
    mina("POST", f"/threads/{thread}/approvals/{mina.waiting(thread)['id']}/decision", {"type": "approve"})
    whole = [one for one in mina.read(thread) if one.id is not None]
    assert [int(one.id) for one in whole] == list(range(1, len(whole) + 1))
    assert whole[-1].type == "done"
    for cut in range(len(whole) + 1):
        headers = {**mina.headers, **({"Last-Event-ID": str(cut)} if cut else {})}
        with mina.client.stream("GET", f"/v1/threads/{thread}/stream?until=done", headers=headers) as response:
            rest = [one for one in events(response.iter_lines()) if isinstance(one, Sent)]
        assert [one for one in rest if one.id is not None] == whole[cut:]


def test_g27_the_header_of_a_returning_browser_wins_over_its_address(talking):
    thread = talking.thread()
    whole = talking.say(thread)
    last = max(int(one.id) for one in whole if one.id)
    headers = {**talking.headers, "Last-Event-ID": str(last - 1)}
    with talking.client.stream("GET", f"/v1/threads/{thread}/stream?until=done&after=1", headers=headers) as response:
        assert [one.id for one in events(response.iter_lines()) if isinstance(one, Sent)] == [str(last)]
    for wrong in ("x", "-1"):
        problem(talking("GET", f"/threads/{thread}/stream", **{"Last-Event-ID": wrong}), 422, "invalid-request")
        problem(talking("GET", f"/threads/{thread}/stream?after={wrong}"), 422, "invalid-request")


def test_g27_a_stream_that_follows_goes_on_after_a_run_has_ended(talking):
    thread = talking.thread()
    with talking.client.stream("GET", f"/v1/threads/{thread}/stream", headers=talking.headers) as response:
        found = events(response.iter_lines())
        for _ in range(2):
            talking.send(thread)
            assert next(one for one in found if isinstance(one, Sent) and one.type == "done").data["status"] == "succeeded"


def test_the_changes_of_a_workspace_come_with_their_revisions(office, mina):
    found = follow(mina, "w1", after=0)
    first = next(found)
    assert (first.type, first.id, first.data["revision"], first.data["op"]) == ("change", "1", 1, "insert")
    head = 1
    for title in ("a", "b"):
        with office.engine.begin() as connection:
            connection.exec_driver_sql(f"update plan set title = '{title}' where id = 'p1'")
        change = next(one for one in found if one.data["op"] == "update")
        assert change.data["values"]["title"][1] == title
        assert int(change.id) > head
        head = int(change.id)
    found.close()
    resumed = follow(mina, "w1", after=head - 1)
    assert next(resumed).id == str(head)
    resumed.close()


def follow(person: Person, workspace: str, after: int | None = None) -> Any:
    query = "" if after is None else f"?after={after}"
    with person.client.stream("GET", f"/v1/workspaces/{workspace}/changes{query}", headers=person.headers) as response:
        assert response.status_code == 200
        found = events(response.iter_lines())
        for one in found:
            if isinstance(one, Sent):
                yield one


def test_a_reader_of_changes_is_told_at_once_where_it_stands(office, mina):
    """So that what happens before its first change, while its connection is cut, is not lost to it."""
    with mina.client.stream("GET", "/v1/workspaces/w1/changes", headers=mina.headers) as response:
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith("id:")) == "id: 3"
        assert next(lines) == ""


def test_a_reader_of_changes_is_told_where_the_log_does_not_reach_back(office, mina):
    office.hub.blocking.prune("w1", horizon=2)
    assert [next(follow(mina, "w1", after=place)).type for place in (0, 1, 2)] == ["gap", "gap", "change"]
    assert next(follow(mina, "w1", after=99)).data == {"revision": 3}


def test_a_server_that_stops_ends_its_streams(office):
    """At once and in good form, though they would follow for ever."""
    with contextlib.ExitStack() as clients:
        with served(office.app, office.streams) as url:
            person = Person(clients.enter_context(httpx.Client(base_url=url, timeout=30)))
            path = f"/v1/threads/{person.thread()}/stream"
            lines = clients.enter_context(person.client.stream("GET", path, headers=person.headers)).iter_lines()
            assert next(lines).startswith("retry")
        assert [line for line in lines if line] == []


# -- the documents -------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_document_are_what_its_schemas_say(office):
    document = json.loads(json.dumps(office.app.openapi()))
    checked = 0
    for name, schema in document["components"]["schemas"].items():
        for field, one in schema.get("properties", {}).items():
            for example in one.get("examples", ()):
                validator = jsonschema_rs.validator_for({**one, "components": document["components"]})
                assert validator.is_valid(example), (name, field, example)
                checked += 1
    for path in document["paths"].values():
        for operation in path.values():
            for response in operation["responses"].values():
                for kind, content in response.get("content", {}).items():
                    if kind == "text/event-stream":  # its schema is that of one event
                        continue
                    for example in content.get("examples", {}).values():
                        jsonschema_rs.validate(content["schema"], example["value"])
                        checked += 1
    assert checked > 200


def test_every_operation_is_described(office):
    document = office.app.openapi()
    seen = set()
    for path, operations in document["paths"].items():
        for method, one in operations.items():
            assert one["operationId"] not in seen
            seen.add(one["operationId"])
            assert one["tags"]
            assert one["description"].endswith("."), (method, path)
            assert {"401", "403", "404", "422", "500", "503"} <= set(one["responses"])
            assert ("Idempotency-Key" in [p["name"] for p in one.get("parameters", ())]) == (method == "post")
    assert len(seen) == 16


def test_an_answer_is_what_the_document_says(office, mina, there):
    """The answers are written by hand: each is what its model says."""
    thread, message, run, approval = (there[key] for key in ("thread", "message", "run", "approval"))
    mina("POST", f"/threads/{thread}/approvals/{approval}/decision", {"type": "approve"})
    mina.read(thread)
    for path, model in {
        f"/threads/{thread}": models.Thread,
        "/threads": models.ThreadPage,
        f"/threads/{thread}/messages": models.MessagePage,
        f"/threads/{thread}/messages/{message}": models.Message,
        f"/threads/{thread}/runs": models.RunPage,
        f"/threads/{thread}/runs/{run}": models.Run,
        "/approvals?status=all": models.ApprovalPage,
        f"/threads/{thread}/approvals/{approval}": models.Approval,
    }.items():
        said = mina("GET", path).content
        assert json.loads(model.model_validate_json(said, by_alias=True).model_dump_json(by_alias=True)) == json.loads(said)


# -- applications --------------------------------------------------------------------------------------------------------


def test_the_router_in_an_application_of_ones_own(database, hubs, serve):
    """Under its prefix, with its own pages; it starts the service and its errors are problems there too."""
    office = Office(database, hubs)
    app = FastAPI()
    app.include_router(router(office.service, somebody, body_limit=200), prefix="/api/assistant")

    @app.get("/own")
    def own() -> str:
        return "mine"

    client = serve(app)
    assert client.get("/own").json() == "mine"
    assert client.get("/nothing").json() == {"detail": "Not Found"}
    headers = {"x-user": "u_1"}
    thread = client.post("/api/assistant/threads", json={"workspace": "w1"}, headers=headers).json()["id"]
    path = f"/api/assistant/threads/{thread}"
    assert client.post(f"{path}/messages", json={"text": "Hello?"}, headers=headers).status_code == 202
    with client.stream("GET", f"{path}/stream?until=done", headers=headers) as response:
        assert [one.type for one in events(response.iter_lines()) if isinstance(one, Sent)][-1] == "done"
    problem(client.post(f"{path}/messages", json={"text": "x" * 300}, headers=headers), 413, "body-too-large")
    problem(client.get(f"{path}x", headers=headers), 404, "absent")


def test_the_application_answers_with_problems_only(client, mina):
    problem(mina("GET", "/nothing"), 404, "absent")
    response = mina("DELETE", "/threads")
    problem(response, 405, "method")
    assert set(response.headers["allow"].split(", ")) == {"GET"} or "POST" in response.headers["allow"]
    assert client.get("/docs").status_code == client.get("/redoc").status_code == 404
    assert client.get("/openapi.json").json()["info"]["title"] == "abreast"
    for place in ("/v1/threads/", "//v1/threads"):  # nobody is sent to wherever the request said that this server is
        problem(client.get(place, headers={"host": "example.com"}), 404, "absent")


def test_the_development_mode_needs_no_authentication(office, serve, capfd):
    client = serve(create_app(office.service, development=True))
    assert "DEVELOPMENT MODE" in capfd.readouterr().err
    office.members |= {("development", "developer"), ("t1", "u_2")}
    plain = client.post("/v1/threads", json={"workspace": "w1"})
    assert (plain.status_code, plain.json()["user"]) == (201, "developer")
    assert plain.headers["x-abreast-development"]
    named = {"x-abreast-tenant": "t1", "x-abreast-user": "u_2"}
    assert client.post("/v1/threads", json={"workspace": "w1"}, headers=named).json()["user"] == "u_2"
    problem(client.get("/v1/threads", headers={"host": "example.com"}), 403, "refused")
    assert client.get("/docs").status_code == 200


def test_a_hub_without_a_service_or_with_several_is_told_so(database, hubs):
    office = Office(database, hubs)
    with pytest.raises(ConfigurationError, match=r"hub\.service"):
        create_app(Abreast("sqlite:///unused.db"))
    office.hub.service(office.agent, context=office.context)
    with pytest.raises(ConfigurationError, match="several"):
        create_app(office.hub)


def test_streams_are_set_by_the_application(database, hubs, serve):
    office = Office(database, hubs, streams=Streams(heartbeat=0.05, retry=0.25))
    person = Person(serve(office.app, streams=office.streams))
    with person.client.stream("GET", f"/v1/threads/{person.thread()}/stream", headers=person.headers) as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 250"
        assert next(line for line in lines if line.startswith(":")) == ": heartbeat"
