"""G18 the other way round: what was meant twice is done twice. And G20 for pauses that come in a group."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import sqlalchemy as sa
from langchain_core.tools import StructuredTool
from langgraph.types import Command, interrupt

from abreast import Transaction
from abreast.testing import calls
from planner import Item
from talk import CORNERS, Talk, said
from toolcalls import ask, events, read


@CORNERS
def test_g18_done_undone_and_done_again_are_three_writes(database, hubs, door):
    talk = Talk(database, hubs, door)

    @talk.hub.tool
    def set_done(item_id: int, done: bool, tx: Transaction) -> dict[str, Any]:
        """Tick an item off, or back on."""
        tx.get(Item, item_id).done = done
        return {"done": done}

    def tick(done: bool, number: int) -> Any:
        return calls("set_done", call_id=f"c{number}", item_id=1, done=done)

    answers = ask(talk, tick(True, 1), tick(False, 2), tick(True, 3), tick(True, 4), tools=[set_done])
    assert [told.get("repeated", False) for told, _ in answers] == [False, False, False, True]
    assert read(talk, Item, "1").values["done"] is True
    assert len(events(talk)) == 3 + 3


@CORNERS
def test_g18_a_row_that_was_created_deleted_and_created_is_there(database, hubs, door):
    talk = Talk(database, hubs, door)
    create = {"id": "p9", "title": "again"}
    answers = ask(
        talk,
        calls("create_plan", call_id="c1", **create),
        lambda messages: calls("delete_plan", call_id="c2", id="p9", version=json.loads(said(messages[-1]))["version"]),
        calls("get_plan", call_id="c3", id="p1"),
        calls("create_plan", call_id="c4", **create),
        calls("get_plan", call_id="c5", id="p1"),
        calls("create_plan", call_id="c6", **create),
    )
    assert [told.get("repeated", False) for told, _ in answers] == [False, False, False, False, False, True]
    assert read(talk, key="p9").values["title"] == "again"
    assert [event.op for event in events(talk)[:3]] == ["insert", "delete", "insert"]


@pytest.mark.parametrize("kind", ["foreign", "function"])
@pytest.mark.parametrize("door", ["async"], indirect=True)
def test_g20_a_pause_inside_a_task_group_is_a_pause(database, hubs, door, kind):
    talk = Talk(database, hubs, door, calls("asks"), "done")
    ran: list[str] = []

    async def asks() -> str:
        """Ask a person."""

        async def one() -> None:
            ran.append(str(interrupt("may I?")))

        async with asyncio.TaskGroup() as group:
            group.create_task(one())
        return "asked"

    tool = talk.hub.tool(asks) if kind == "function" else StructuredTool.from_function(coroutine=asks, name="asks")
    agent = talk.build([tool])
    paused = talk.run(agent=agent)
    assert (paused.status, [one.value for one in paused.interrupts], ran) == ("awaiting_approval", ["may I?"], [])
    assert (talk.run(Command(resume="yes"), agent=agent).answer, ran) == ("done", ["yes"])


@pytest.mark.parametrize("kind", ["foreign", "function"])
@pytest.mark.parametrize("door", ["sync"], indirect=True)
def test_g20_what_the_database_says_of_a_value_does_not_show_it(postgres, hubs, door, kind):
    """PostgreSQL quotes the value that does not fit: it may be another column's, or another person's."""
    talk = Talk(postgres, hubs, door, calls("look"), "done")

    def look() -> str:
        """Look something up."""
        with talk.engine.connect() as connection:
            return str(connection.execute(sa.text("select cast(:key as uuid)"), {"key": "sk-live-4242"}).scalar())

    tool = talk.hub.tool(look) if kind == "function" else StructuredTool.from_function(look, name="look")
    result = talk.run(agent=talk.build([tool]))
    (answer,) = [m for m in result.state["messages"] if m.type == "tool"]
    assert answer.status == "error"
    assert "sk-live" not in str(result.state)
