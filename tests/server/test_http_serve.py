"""`abreast serve MODULE:HUB` as a process of its own, on both databases."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from planner import planner
from served import Sent, events, problem

TESTS = Path(__file__).parent.parent
PROGRAM = """
import os
import sys

sys.path.insert(0, {tests!r})

from langchain.agents import create_agent

from abreast import Abreast, Caller, RunContext
from abreast.testing import ScriptedModel, calls
from planner import Plan, declare

hub = declare(Abreast(os.environ["DATABASE_URL"]))
model = ScriptedModel(calls("update_plan", id="p1", version=1, move_in_date="2026-09-30"), "It is done.")
agent = create_agent(
    model, hub.tools(Plan), middleware=[hub.middleware()], context_schema=RunContext, checkpointer=hub.checkpointer()
)
hub.service(agent, context=lambda thread, user: RunContext(thread.tenant, user, thread.workspace), authenticate={authenticate})
bare = Abreast(os.environ["DATABASE_URL"])
"""


@pytest.fixture
def program(database: Any, hubs: Any, tmp_path: Path) -> Path:
    """A folder with a program of the planner."""
    planner(database, hubs)
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "app.py").write_text(PROGRAM.format(tests=str(TESTS), authenticate=None), encoding="utf-8")
    known = "lambda request: Caller('t1', request.headers['x-user'])"
    (folder / "known.py").write_text(PROGRAM.format(tests=str(TESTS), authenticate=known), encoding="utf-8")
    return folder


def command(database: Any, program: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "DATABASE_URL": database.url, "PYTHONUNBUFFERED": "1"}
    abreast = Path(sys.executable).with_name("abreast")
    return subprocess.Popen(
        [abreast, "serve", *arguments], cwd=program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextlib.contextmanager
def serving(database: Any, program: Path, *arguments: str) -> Iterator[tuple[httpx.Client, str, subprocess.Popen[str]]]:
    """A server that was started by the command: a client of it, what it said first, and its process."""
    process = command(database, program, *arguments)
    said = ""
    try:
        for line in process.stderr:
            said += line
            found = re.match(r"Serving (\S+)/v1, described in", line)
            if found:
                break
        else:
            raise AssertionError(said)
        with httpx.Client(base_url=found[1], timeout=30) as client:
            yield client, said, process
    finally:
        process.kill()
        process.communicate()


def test_the_planner_is_served_from_a_question_to_an_approved_write(database, program):
    with serving(database, program, "app:hub", "--dev", "--port", "0") as (client, said, process):
        assert "DEVELOPMENT MODE" in said
        thread = client.post("/v1/threads", json={"workspace": "w1"}).json()["id"]
        path = f"/v1/threads/{thread}"
        assert client.post(f"{path}/messages", json={"text": "Move it."}).status_code == 202
        with client.stream("GET", f"{path}/stream?until=done") as response:
            asked = next(
                one for one in events(response.iter_lines()) if isinstance(one, Sent) and one.type == "approval.requested"
            )
        decided = client.post(f"{path}/approvals/{asked.data['approval']}/decision", json={"type": "approve"})
        assert decided.status_code == 200
        with client.stream("GET", f"{path}/stream?until=done", headers={"Last-Event-ID": asked.id}) as response:
            last = [one for one in events(response.iter_lines()) if isinstance(one, Sent)][-1]
        assert (last.type, last.data["status"]) == ("done", "succeeded")
        assert client.get(f"{path}/messages").json()["items"][-1]["content"] == "It is done."
        # Somebody still follows; a server that is asked to stop ends that, and its process with it.
        with client.stream("GET", f"{path}/stream") as response:
            lines = response.iter_lines()
            assert next(lines).startswith("retry")
            process.send_signal(signal.SIGINT)
            list(lines)
        assert process.wait(timeout=30) == 0


def test_a_service_without_authentication_says_that_it_refuses_everything(database, program):
    with serving(database, program, "app:hub", "--port", "0") as (client, said, _):
        assert "every request is refused" in said
        problem(client.get("/v1/threads"), 401, "unauthenticated")


def test_a_service_with_authentication_serves_those_it_knows(database, program):
    with serving(database, program, "known", "--port", "0") as (client, said, process):
        assert "refused" not in said
        assert client.get("/v1/threads", headers={"x-user": "mina"}).json() == {"items": [], "next": None}
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.com", "192.0.2.7"])
def test_the_development_mode_does_not_listen_for_others(sqlite, hubs, tmp_path, host):
    planner(sqlite, hubs)
    (tmp_path / "app.py").write_text(PROGRAM.format(tests=str(TESTS), authenticate=None), encoding="utf-8")
    process = command(sqlite, tmp_path, "app:hub", "--dev", "--host", host)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "this machine only" in " ".join(said.split())


def test_a_hub_without_a_service_is_told_how_to_make_one(sqlite, hubs, tmp_path):
    planner(sqlite, hubs)
    (tmp_path / "app.py").write_text(PROGRAM.format(tests=str(TESTS), authenticate=None), encoding="utf-8")
    process = command(sqlite, tmp_path, "app:bare", "--dev")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "hub.service" in said


def test_a_server_that_is_killed_between_doing_and_keeping_has_done_it_once(postgres, hubs, tmp_path):
    """The database holds back the reply until the process is gone. Another process answers the repeat."""
    _, engine = planner(postgres, hubs)
    (tmp_path / "app.py").write_text(PROGRAM.format(tests=str(TESTS), authenticate=None), encoding="utf-8")
    key = {"Idempotency-Key": "k1"}
    with serving(postgres, tmp_path, "app:hub", "--dev", "--port", "0") as (client, _, process), engine.connect() as holding:
        thread = client.post("/v1/threads", json={"workspace": "w1"}).json()["id"]
        for statement in (
            "create function hold() returns trigger language plpgsql as "
            "$$ begin perform pg_advisory_xact_lock(7); return new; end $$",
            "create trigger hold before update of status on abreast.reply for each row execute function hold()",
        ):
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
        holding.exec_driver_sql("select pg_advisory_lock(7)")
        with ThreadPoolExecutor() as pool:
            first = pool.submit(client.post, f"/v1/threads/{thread}/messages", json={"text": "Hello?"}, headers=key)
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 7"
            while not holding.exec_driver_sql(waiting).scalar_one():
                pass
            process.kill()
            assert isinstance(first.exception(timeout=30), httpx.TransportError)
        holding.exec_driver_sql("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and not granted")
    with engine.begin() as connection:
        connection.exec_driver_sql("drop trigger hold on abreast.reply")
        assert connection.exec_driver_sql("select status from abreast.reply").scalars().all() == [None]
        connection.exec_driver_sql("update abreast.reply set at = '2020-01-01'")
    with serving(postgres, tmp_path, "app:hub", "--dev", "--port", "0") as (client, _, _):
        again = [client.post(f"/v1/threads/{thread}/messages", json={"text": "Hello?"}, headers=key) for _ in range(2)]
        assert [one.status_code for one in again] == [202, 202]
        assert again[0].content == again[1].content
        said = client.get(f"/v1/threads/{thread}/messages").json()["items"]
        assert [one["id"] for one in said if one["role"] == "user"] == [again[0].json()["message"]["id"]]
        assert len(client.get(f"/v1/threads/{thread}/runs").json()["items"]) == 1


@pytest.mark.parametrize(("package", "module"), [("fastapi", "abreast.server"), ("uvicorn", "abreast.server.running")])
def test_without_the_extra_it_is_said_what_to_install(package, module):
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingExtraError: " in done.stderr
    assert f'pip install "abreast[server]" ({package} is missing)' in done.stderr
