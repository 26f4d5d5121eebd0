"""G22: what people decided is kept, and says which tools have earned to need nobody."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from abreast import delete, insert, update, user
from abreast.cli import app
from abreast.testing import calls
from caller import append, writing
from gated import Asked, rename
from planner import Plan
from talk import CORNERS


def test_g22_records_and_labels_say_what_people_decided(database, hubs, door):
    talk = Asked(database, hubs, door)
    version = 1
    for number in range(4):
        (asked,) = talk.ask(rename(f"n{number}", version=version), thread=f"t{number}")
        talk.decide(asked)
        talk.go(thread=asked.thread)
        version = talk.head()
    (record,) = door(talk.hub).gates(in_a_row=4)
    assert (record.tool, record.asked, record.approved, record.in_a_row, record.earned) == ("update_plan", 4, 4, 4, True)
    (record,) = door(talk.hub).gates()
    assert not record.earned
    with talk.hub.write("w1", actor=user("u_1")) as tx:
        tx.get(Plan, "p1").title = "n2"  # a person takes the newest one back
    (record,) = door(talk.hub).gates(in_a_row=3)
    assert (record.undone, record.in_a_row, record.earned) == (1, 0, False)
    (asked,) = talk.ask(rename("n5", version=talk.head()), thread="t5")
    talk.decide(asked, "edit", arguments={"id": "p1", "version": talk.head(), "title": "n6"})
    (asked,) = talk.ask(rename("n7", version=talk.head()), thread="t7")
    talk.decide(asked, "reject", message="No.")
    (record,) = door(talk.hub).gates()
    assert (record.asked, record.edited, record.rejected, record.in_a_row) == (6, 1, 1, 0)

    async def collected() -> list[Any]:
        return [one async for one in talk.hub.labels()]

    labels = list(talk.hub.blocking.labels()) if door.kind == "sync" else door.wait(collected())
    by = {one["decision"]: one for one in labels}
    assert len(labels) == 6
    assert (by["edit"]["before"]["title"], by["edit"]["after"]["title"]) == ("n5", "n6")
    assert (by["reject"]["after"], by["reject"]["message"]) == (None, "No.")
    assert (by["approve"]["before"], by["approve"]["by"]) == (by["approve"]["after"], "u_9")


@CORNERS
@pytest.mark.parametrize("taken", ["back", "by a program", "elsewhere", "further"])
def test_g22_undone_is_what_a_person_took_back(database, hubs, door, taken):
    talk = Asked(database, hubs, door, policy=dict.fromkeys(("update_plan", "create_plan"), "ask"))
    (asked,) = talk.ask(rename())
    talk.decide(asked)
    talk.go()
    (asked,) = talk.ask(calls("create_plan", call_id="c", id="p2", title="new"))
    talk.decide(asked)
    talk.go()
    hub = talk.hub.blocking
    if taken == "back":
        hub.apply("w1", update(Plan, "p1", version=4, title="Mapo"), delete(Plan, "p2", version=5), actor=user("u_1"))
    elif taken == "by a program":
        hub.apply("w1", update(Plan, "p1", version=4, title="Mapo"), delete(Plan, "p2", version=5))
    elif taken == "elsewhere":
        hub.apply("w1", insert(Plan, id="p3", workspace_id="w1", title="Mapo"), actor=user("u_1"))
    else:
        hub.apply("w1", update(Plan, "p1", version=4, title="onwards"), actor=user("u_1"))
    records = {one.tool: one.undone for one in door(talk.hub).gates()}
    assert records == dict.fromkeys(("update_plan", "create_plan"), int(taken == "back"))


@pytest.mark.parametrize("door", ["sync"], indirect=True)
def test_g22_the_command_line_shows_records_and_writes_labels(sqlite, hubs, door, tmp_path, monkeypatch):
    talk = Asked(sqlite, hubs, door)
    put = writing(talk, "put", append, policy="ask")
    place = tmp_path / "product.py"
    place.write_text("hub = None")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "product", type(sys)("product"))
    sys.modules["product"].hub = talk.hub  # type: ignore[attr-defined]
    ran = CliRunner()
    assert "No tool has asked yet." in ran.invoke(app, ["gates", "product:hub"]).output
    for number in range(2):
        (asked,) = talk.ask(calls("put", call_id=f"c{number}", text="é"), tools=[put])
        talk.decide(asked, "edit", arguments={"text": "ü"}) if number else talk.decide(asked)
        talk.go(tools=[put])
    shown = ran.invoke(app, ["gates", "product:hub", "--in-a-row", "1"]).output
    assert shown == "put: 1 of 2 approved, 0 in a row\n  edited 1, rejected 0, answered 0, expired 0, withdrawn 0, undone 0\n"
    (record,) = json.loads(ran.invoke(app, ["gates", "product:hub", "--format", "json"]).output)
    assert (record["tool"], record["asked"], record["edited"], record["earned"]) == ("put", 2, 1, False)
    for command in (["gates", "product:hub", "--format", "json"], ["labels", "export", "product:hub"]):
        mine, others = (ran.invoke(app, [*command, "--tenant", tenant]).output for tenant in ("t1", "t2"))
        assert mine == ran.invoke(app, command).output
        assert others.strip() in ("", "[]")
    printed = ran.invoke(app, ["labels", "export", "product:hub"])
    lines = [json.loads(line) for line in printed.output.splitlines()]
    assert {(one["tenant"], one["user"], *one["workspaces"]) for one in lines} == {("t1", "u_1", "w1")}
    assert sorted((one["decision"], one["before"]["text"], one["after"]["text"]) for one in lines) == [
        ("approve", "é", "é"),
        ("edit", "é", "ü"),
    ]
    file = tmp_path / "labels.jsonl"
    assert ran.invoke(app, ["labels", "export", "product:hub", "--output", str(file)]).exit_code == 0
    assert file.read_text(encoding="utf-8") == printed.output
