"""The planner as a service, as its readers run it: `abreast serve` in a process of its own, and a client over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from served import Sent, events

ROOT = Path(__file__).resolve().parents[1]
WORDS = {
    "en": ("en_US.UTF-8", "Move the date to 2 October", "Your move-in date is 2 October 2026.", "Moving to Seongsu"),
    "ko": ("ko_KR.UTF-8", "입주일을 10월 2일로 바꿔줘", "입주일은 2026년 10월 2일입니다.", "성수동 이사"),
}


@contextlib.contextmanager
def service(directory: Path, url: str | None, locale: str = "en_US.UTF-8") -> Iterator[str]:
    """The service, started from the command line in this directory; gives its address. Ends as a person ends it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ABREAST", "LANG", "LC_"))}
    named = {} if url is None else {"ABREAST_DATABASE": url}
    command = [str(Path(sys.executable).with_name("abreast")), "serve", "examples.movein.served:hub", "--dev", "--port", "0"]
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**kept, **named, "LANG": locale, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    said: list[str] = []
    address: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in process.stderr or ():
            said.append(line)
            if found := re.match(r"Serving (\S+),", line):
                address.put(found[1])
        address.put("")

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        where = address.get(timeout=60)
        assert where, "".join(said)
        yield where
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=60)
        listening.join()
        process.stderr.close()  # type: ignore[union-attr]
    assert (status, [line for line in said if not line.startswith(("*", "Serving "))]) == (0, [])


@contextlib.contextmanager
def person(address: str, user: str, tenant: str = "home") -> Iterator[httpx.Client]:
    """A client that says who it is, as the development mode believes it."""
    headers = {"X-Abreast-Tenant": tenant, "X-Abreast-User": user}
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        yield client


def sent(response: httpx.Response) -> Any:
    """What an answer holds, once it is seen to be a good one."""
    assert response.is_success, response.text
    return response.json()


def settled(client: httpx.Client, thread: str, after: int = 0) -> list[Sent]:
    """The conversation's stored events until no run goes on."""
    with client.stream("GET", f"/threads/{thread}/stream", params={"after": after, "until": "done"}) as stream:
        assert stream.status_code == 200
        return [one for one in events(stream.iter_lines()) if isinstance(one, Sent) and one.id is not None]


def ask(client: httpx.Client, thread: str, text: str, after: int = 0) -> list[Sent]:
    sent(client.post(f"/threads/{thread}/messages", json={"text": text}))
    return settled(client, thread, after)


def last_said(client: httpx.Client, thread: str) -> str:
    return str(sent(client.get(f"/threads/{thread}/messages"))["items"][-1]["content"])


def value(url: str, query: str) -> str:
    """What the product's database holds, read beside the service."""
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            return str(connection.exec_driver_sql(query).scalar_one())
    finally:
        engine.dispose()


DATE = "select move_in_date from plan where id = 'seongsu'"


@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_change_of_the_plan_waits_for_a_person_and_is_made_once_approved(database, tmp_path, language):
    locale, request, answer, title = WORDS[language]
    with service(tmp_path, database.url, locale) as address, person(address, "mina") as mina:
        assert value(database.url, "select title from plan where id = 'seongsu'") == title
        thread = sent(mina.post("/threads", json={"workspace": "seongsu"}))["id"]
        told = ask(mina, thread, request)
        (asked,) = [one.data for one in told if one.type == "approval.requested"]
        assert (asked["tool"], asked["arguments"]["move_in_date"]) == ("update_plan", "2026-10-02")
        assert (told[-1].type, told[-1].data["status"]) == ("done", "awaiting_approval")
        assert value(database.url, DATE) == "2026-09-28"

        (waiting,) = sent(mina.get("/approvals"))["items"]
        assert (waiting["id"], waiting["status"], waiting["thread"]) == (asked["approval"], "open", thread)
        sent(mina.post(f"/threads/{thread}/approvals/{waiting['id']}/decision", json={"type": "approve"}))
        told = settled(mina, thread, int(told[-1].id or 0))
        assert [one.type for one in told][:2] == ["approval.decided", "run.started"]
        assert (told[-1].type, told[-1].data["status"]) == ("done", "succeeded")
        assert value(database.url, DATE) == "2026-10-02", last_said(mina, thread)
        assert answer in last_said(mina, thread)
        assert sent(mina.get("/approvals"))["items"] == []


def test_the_service_seeds_a_directory_of_its_own_and_goes_on_where_it_was(tmp_path):
    url = f"sqlite:///{tmp_path / 'movein-service' / 'planner.db'}"
    with service(tmp_path, None) as address, person(address, "mina") as mina:
        thread = sent(mina.post("/threads", json={"workspace": "seongsu"}))["id"]
        told = ask(mina, thread, "Delete 18")
        (asked,) = [one.data for one in told if one.type == "approval.requested"]
        waiting = sent(mina.get(f"/threads/{thread}/approvals/{asked['approval']}"))
        assert waiting["expires_at"] > waiting["created_at"]
    with service(tmp_path, None) as address, person(address, "mina") as mina:
        decision = {"type": "reject", "message": "We want the wallpaper."}
        sent(mina.post(f"/threads/{thread}/approvals/{asked['approval']}/decision", json=decision))
        told = settled(mina, thread, int(told[-1].id or 0))
        assert told[-1].data["status"] == "succeeded"
        assert "rejected" in last_said(mina, thread)
        assert value(url, "select count(*) from checklist_item where id = 18") == "1"


def test_the_checklist_needs_nobody_and_what_has_changed_is_confirmed_first(database, tmp_path):
    with service(tmp_path, database.url) as address, person(address, "mina") as mina, person(address, "junho") as junho:
        thread = sent(mina.post("/threads", json={"workspace": "seongsu"}))["id"]
        ask(mina, thread, "Tick off 15")
        done = value(database.url, "select done from checklist_item where id = 15")
        assert done in ("1", "True")
        told = ask(mina, thread, "Add: buy tape by 20 September")
        assert [one for one in told if one.type == "approval.requested"] == []
        assert value(database.url, "select count(*) from checklist_item where title = 'Buy tape'") == "1"

        # The plan changes while its change waits: the decision must name what was seen.
        told = ask(mina, thread, "Move the date to 2 October", int(told[-1].id or 0))
        (asked,) = [one.data for one in told if one.type == "approval.requested"]
        engine = sa.create_engine(database.url)
        with engine.begin() as connection:
            connection.exec_driver_sql("update plan set budget = 1 where id = 'seongsu'")
        engine.dispose()
        place = f"/threads/{thread}/approvals/{asked['approval']}/decision"
        outdated = mina.post(place, json={"type": "approve"})
        assert (outdated.status_code, outdated.json()["type"]) == (409, "urn:abreast:problem:outdated")
        assert outdated.json()["changes"][0]["fields"] == ["budget"]
        sent(mina.post(place, json={"type": "approve", "confirmed": outdated.json()["revisions"]}))
        told = settled(mina, thread, int(told[-1].id or 0))
        assert told[-1].data["status"] == "succeeded"
        assert value(database.url, "select move_in_date || ', ' || budget from plan where id = 'seongsu'") == "2026-10-02, 1"

        # Nobody else's conversation, and nobody else's workspace.
        assert junho.get(f"/threads/{thread}").status_code == 404
        assert mina.post("/threads", json={"workspace": "parents"}).status_code == 404
        with person(address, "mina", "elsewhere") as stranger:
            assert stranger.get(f"/threads/{thread}").status_code == 404


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_commands_of_its_readme_work_as_they_stand_there(tmp_path, language):
    locale, _, answer, _ = WORDS[language]
    page = (ROOT / "examples" / "movein" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)[int(language == "ko")]
    with service(tmp_path, None, locale) as address:
        typed = commands.replace("http://localhost:8000/v1", address)
        assert typed != commands
        done = subprocess.run(["bash", "-ec", typed], capture_output=True, encoding="utf-8", timeout=90, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    asked, decided = done.stdout.index('"status":"awaiting_approval"'), done.stdout.index('"status":"succeeded"')
    assert asked < done.stdout.index('"status":"approved"') < decided
    assert answer in json.loads(done.stdout.splitlines()[-1])["items"][-1]["content"]
    assert value(f"sqlite:///{tmp_path / 'movein-service' / 'planner.db'}", DATE) == "2026-10-02"
