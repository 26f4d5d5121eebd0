"""One instance of everything serves all conversations at once, and mixes none."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from abreast import RunContext
from planner import Plan
from talk import CORNERS, Talk, block_of, write_tool

CONVERSATIONS = 50


@CORNERS
@pytest.mark.parametrize("refresh", ["call", "run"])
def test_fifty_conversations_at_once_see_their_own(database, hubs, door, refresh):
    """Each has its person, its workspace and its canary; the read rule shows each person one of two plans there."""
    talk = Talk(
        database, hubs, door, refresh=refresh, plan={"readable": lambda context: Plan.title.like(f"%for {context.user}.%")}
    )
    plans = [(f"p{n}-{who}", f"w{n}", f"canary {n} for {who}{n}.") for n in range(100, 100 + CONVERSATIONS) for who in "ab"]
    values = ", ".join(f"('{key}', '{workspace}', '{title}')" for key, workspace, title in plans)
    talk.sql(f"insert into plan (id, workspace_id, title) values {values}")
    seen: dict[str, list[str]] = {}

    def answer(messages: Any) -> Any:
        question = next(m.text for m in messages if m.type == "human").split("\n")[-1]
        seen.setdefault(question, []).append(block_of(messages))
        if messages[-1].type == "tool":
            return f"answer to {question}"
        return AIMessage("", tool_calls=[{"name": "write", "args": {}, "id": question}])

    talk.say(*[answer] * (4 * CONVERSATIONS))
    agent = talk.build([write_tool(lambda: None)])

    def context(n: int) -> RunContext:
        return RunContext("t1", f"a{n}", f"w{n}")

    async def all_at_once() -> list[Any]:
        runs = (talk.hub.run(agent, f"q{n}", thread=f"t{n}", context=context(n)) for n in numbers)
        return list(await asyncio.gather(*runs))

    def in_threads() -> list[Any]:
        with ThreadPoolExecutor(10) as pool:
            return list(pool.map(lambda n: talk.hub.blocking.run(agent, f"q{n}", thread=f"t{n}", context=context(n)), numbers))

    numbers = range(100, 100 + CONVERSATIONS)
    for turn in range(2):
        results = in_threads() if door.kind == "sync" else door.wait(all_at_once())
        assert [result.answer for result in results] == [f"answer to q{n}" for n in numbers]
        assert {n: results[n - 100].told for n in numbers} == {n: {f"w{n}": 2 + 2 * turn} for n in numbers}
        talk.sql("update plan set title = title || '!' where workspace_id <> 'w1'")
    for n in numbers:
        assert len(seen[f"q{n}"]) == 4
        for block in seen[f"q{n}"]:
            assert f"canary {n} for a{n}." in block
            assert block.count("canary") == block.count(f"canary {n} for a{n}.")
    assert not [one for n in numbers for one in door(talk.hub).standings(f"w{n}") if (one.thread, one.revision) != (f"t{n}", 4)]
