"""Where the text stands in an agent's requests, and what of them stays the same from call to call, as prompt caches need it."""

from __future__ import annotations

import pytest
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import HumanMessage, SystemMessage

from abreast import ConfigurationError
from abreast.testing import ScriptedModel
from talk import CORNERS, TOOL_CALL, Talk, write_tool

CACHED = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "url": "https://example.com/a.png"}


def dumped(messages):
    return [message.model_dump_json() for message in messages]


@CORNERS
def test_at_the_tail_everything_before_the_question_stays_the_same(database, hubs, door):
    talk = Talk(database, hubs, door)
    agent = talk.build([write_tool(talk.change)], system_prompt=SystemMessage([CACHED]))
    talk.say(TOOL_CALL, "done", "again")
    talk.run("first", agent=agent)
    talk.run("second", agent=agent)
    asked, after_tool, second = talk.model.requests
    assert [m.type for m in asked] == ["system", "human"]
    assert [m.type for m in after_tool] == ["system", "human", "ai", "tool", "human"]
    assert [m.type for m in second] == ["system", "human", "ai", "tool", "ai", "human"]
    assert asked[0].content == [CACHED]
    assert dumped(after_tool)[0] == dumped(second)[0]
    assert dumped(after_tool)[1:4] == dumped(second)[1:4]
    stored = door.state(agent, {"configurable": {"thread_id": "t"}}).values["messages"]
    assert dumped(second)[1:5] == dumped(stored)[:4]
    assert [m.text for m in stored if m.type == "human"] == ["first", "second"]


@CORNERS
def test_in_the_system_message_the_cached_part_comes_first(database, hubs, door):
    talk = Talk(database, hubs, door, placement="system")
    agent = talk.build([write_tool(talk.change)], system_prompt=SystemMessage([CACHED]))
    talk.say(TOOL_CALL, "done")
    talk.run("first", agent=agent)
    for request in talk.model.requests:
        assert [m.type for m in request].count("system") == 1
        first, block = request[0].content
        assert first == CACHED
        assert block["text"].lstrip("\n").startswith(("CURRENT", "CHANGES"))
    assert talk.model.requests[1][-1].type == "tool"
    talk.run("without a prompt of its own")
    assert "CURRENT" in talk.model.requests[2][0].text


@CORNERS
def test_a_question_with_an_image_keeps_it(database, hubs, door):
    talk = Talk(database, hubs, door)
    given = HumanMessage([IMAGE, {"type": "text", "text": "What is this?"}], id="mine")
    talk.run([given])
    asked = talk.model.requests[0][-1]
    assert asked.content[:2] == given.content
    assert asked.content[2]["text"].startswith("\n\nCURRENT")
    stored = door.state(talk.agent, {"configurable": {"thread_id": "t"}}).values["messages"][0]
    assert (stored.id, stored.content) == ("mine", given.content)


@CORNERS
def test_a_history_that_is_summarised_is_told_twice_rather_than_not_at_all(database, hubs, door):
    """The summary takes away what proves that an answer was finished."""
    talk = Talk(database, hubs, door)
    summary = SummarizationMiddleware(ScriptedModel(*["a summary"] * 9), trigger=("messages", 4), keep=("messages", 1))
    agent = talk.build(before=[summary])
    told: list[int] = []
    for n in range(3, 12):
        talk.run(f"question {n}", agent=agent)
        told += talk.revisions()
        assert talk.place() == n
        talk.change(str(n))
    assert set(told) == set(range(4, 12))


@pytest.mark.parametrize("name", ["placement", "refresh", "on_unavailable", "schema"])
def test_an_option_that_there_is_not_is_refused(sqlite, hubs, name):
    with pytest.raises(ConfigurationError, match=name):
        hubs(sqlite, **{name: "no such"})
