"""The FastAPI example as its readers run it, and the pages about the HTTP face against the face itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from abreast.server.problems import KINDS
from office import Office
from served import Sent, events

ROOT = Path(__file__).parents[2]


def test_the_example_serves_a_conversation_with_an_approval(tmp_path):
    environment = {**os.environ, "PORT": "0", "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-W", "error", "examples/02_fastapi.py"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if found := re.search(r"running on (http://\S+)", line):
                    break
            talk(found[1])
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


def talk(url: str) -> None:
    mina = httpx.Client(base_url=url, timeout=30, headers={"Authorization": "Bearer token-of-mina"})
    junho = httpx.Client(base_url=url, timeout=30, headers={"Authorization": "Bearer token-of-junho"})
    with mina, junho:
        assert httpx.get(f"{url}/assistant/threads").status_code == 401
        thread = mina.post("/assistant/threads", json={"workspace": "w1"}).json()["id"]
        path = f"/assistant/threads/{thread}"
        assert mina.post(f"{path}/messages", json={"text": "Move it to 2026-10-02."}).status_code == 202
        with mina.stream("GET", f"{path}/stream?until=done") as response:
            assert [one for one in events(response.iter_lines()) if isinstance(one, Sent)][-1].data[
                "status"
            ] == "awaiting_approval"
        assert mina.get("/plans/p1").json() == {"move_in_date": "2026-09-28"}
        (waiting,) = junho.get("/assistant/approvals").json()["items"]
        assert waiting["arguments"]["move_in_date"] == "2026-10-02"
        decided = junho.post(f"{path}/approvals/{waiting['id']}/decision", json={"type": "approve"})
        assert decided.json()["decision"]["by"] == "junho"
        with mina.stream("GET", f"{path}/stream?until=done") as response:
            assert [one for one in events(response.iter_lines()) if isinstance(one, Sent)][-1].data["status"] == "succeeded"
        assert mina.get("/plans/p1").json() == {"move_in_date": "2026-10-02"}
        assert '"version": 2' in mina.get(f"{path}/messages").json()["items"][-1]["content"]


# -- the pages -----------------------------------------------------------------------------------------------------------


def test_the_guide_takes_an_application_to_approvals_in_thirty_lines():
    page = (ROOT / "docs/guides/fastapi.md").read_text(encoding="utf-8")
    code = re.search(r"^```python file=app.py\n(.*?)^```", page, re.M | re.S)[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading of the reference, by what stands in their first cell."""
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", page.partition(f"## {heading}\n")[2], maxsplit=1, flags=re.M)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row for row in cells}


def test_the_reference_names_every_route(sqlite, hubs):
    document = Office(sqlite, hubs).app.openapi()
    there = {
        f"{verb.upper()} {path.removeprefix('/v1')}": one
        for path, verbs in document["paths"].items()
        for verb, one in verbs.items()
    }
    listed = rows("Routes")
    assert set(listed) == set(there)
    for name, one in there.items():
        done = next(status for status in one["responses"] if status < "300")
        assert listed[name][2].startswith((done, "a page", "a stream")), name
        body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        fields = document["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {}).get("properties", {})
        assert all(f"`{field}`" in listed[name][1] for field in fields), name


def test_the_reference_names_every_problem_with_its_status():
    assert {name: row[1] for name, row in rows("Problems").items()} == {kind.name: str(kind.status) for kind in KINDS}
