"""G13: the block never enters a checkpoint; what is added to one is a few integers, whatever the size of the workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langchain_core.messages import SystemMessage

from abreast import RunContext
from talk import CORNERS, TOOL_CALL, Talk, write_tool

CANARY = "canary-of-a-value"
TABLES = {"sqlite": ("checkpoints", "writes"), "postgresql": ("checkpoints", "checkpoint_blobs", "checkpoint_writes")}


def stored(database: Any, tmp_path: Path, thread: str | None = None) -> dict[str, list[bytes]]:
    """The rows of the saver's tables as bytes, by table."""
    url = f"sqlite:///{tmp_path / 'checkpoints.db'}" if database.kind == "sqlite" else database.url
    engine = sa.create_engine(url)
    where = f" where thread_id = '{thread}'" if thread else ""
    found: dict[str, list[bytes]] = {}
    with engine.connect() as connection:
        for table in TABLES[database.kind]:
            rows = connection.exec_driver_sql(f"select * from {table}{where}").all()
            found[table] = [b"|".join(one if isinstance(one, bytes) else str(one).encode() for one in row) for row in rows]
    engine.dispose()
    return found


@CORNERS
@pytest.mark.parametrize("placement", ["tail", "system"])
def test_g13_fifty_turns_leave_no_text_of_the_block_in_a_checkpoint(database, hubs, door, checkpointer, tmp_path, placement):
    talk = Talk(database, hubs, door, saver=checkpointer, placement=placement)
    agent = talk.build([write_tool(lambda: None)], system_prompt=SystemMessage("Be brief."))
    turns = 50 if placement == "tail" else 5
    for turn in range(turns):
        talk.change(f"{CANARY} {turn}")
        talk.say(*([TOOL_CALL] if turn % 5 == 0 else []), "an answer")
        talk.run(agent=agent)
        assert CANARY in talk.block()
    found = stored(database, tmp_path)
    assert len(found["checkpoints"]) > turns * 2
    everything = b"\n".join(row for rows in found.values() for row in rows)
    assert b"an answer" in everything  # the tables are those that hold the conversation
    for text in (CANARY, "CURRENT", "CHANGES SINCE", "Mapo"):
        assert text.encode() not in everything
    messages = door.state(agent, {"configurable": {"thread_id": "t"}}).values["messages"]
    assert CANARY not in str(messages)
    assert [m.type for m in messages].count("system") == 0


@CORNERS
def test_g13_what_is_added_to_a_checkpoint_does_not_grow_with_the_workspace(database, hubs, door, checkpointer, tmp_path):
    """Ten turns of two model calls, without the hub, with it, and with it in a workspace a hundred times as large."""
    talk = Talk(database, hubs, door, saver=checkpointer)
    tools = [write_tool(lambda: None)]
    bare = create_agent(talk.model, tools=tools, context_schema=RunContext, checkpointer=checkpointer)
    sizes: dict[str, tuple[int, int]] = {}
    for thread, agent in (("bare", bare), ("small", talk.build(tools)), ("large", talk.build(tools))):
        if thread == "large":
            values = ", ".join(f"({n}, 'p1', 'a title of some length', false)" for n in range(10, 200))
            talk.sql(f"insert into item (id, plan_id, title, done) values {values}")
        for _ in range(10):
            talk.say(TOOL_CALL, "an answer")
            talk.invoke(thread=thread, agent=agent)
        rows_of = stored(database, tmp_path, thread)
        sizes[thread] = (len(rows_of["checkpoints"]), sum(len(row) for rows in rows_of.values() for row in rows))
    assert sizes["bare"][0] == sizes["small"][0] == sizes["large"][0] == 50  # no checkpoint of its own
    added = {thread: (size - sizes["bare"][1]) / checkpoints for thread, (checkpoints, size) in sizes.items()}
    assert 100 < added["small"] < 300
    assert abs(added["large"] - added["small"]) < 20  # longer numbers, longer names of threads
