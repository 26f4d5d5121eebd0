"""Where the text stands in an agent's requests, and what of them stays the same from call to call, as prompt caches need it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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
    assert [m.type for m in after_tool] == ["system", "human", "ai", "tool"]
    assert [m.type for m in second] == ["system", "human", "ai", "tool", "ai", "human"]
    assert asked[0].content == [CACHED]
    assert dumped(after_tool)[:3] == dumped(second)[:3]
    stored = door.state(agent, {"configurable": {"thread_id": "t"}}).values["messages"]
    assert dumped(second)[1:5] == dumped(stored)[:4]
    told, said = after_tool[3], stored[2]
    assert told.content.startswith(f"{said.content}\n\nCHANGES")
    assert (told.id, told.tool_call_id) == (said.id, said.tool_call_id)
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


class Speaking(ScriptedModel):
    """A chat model of OpenAI's protocol, at OpenAI's address."""

    root_client: Any = SimpleNamespace(base_url="https://api.openai.com/v1/")


@CORNERS
@pytest.mark.parametrize("option", ["message", "auto", "answer"])
def test_after_tools_it_is_a_message_of_its_own_where_that_is_wanted_or_known_to_be_taken(database, hubs, door, option):
    talk = Talk(database, hubs, door, after_tools=option)
    talk.model = Speaking() if option == "auto" else talk.model
    talk.say(TOOL_CALL, "done", "again")
    agent = talk.build([write_tool(talk.change)])
    talk.run("first", agent=agent)
    talk.run("second", agent=agent)
    _, after_tool, second = talk.model.requests
    if option == "answer":
        assert [m.type for m in after_tool] == ["human", "ai", "tool"]
        return
    assert [m.type for m in after_tool] == ["human", "ai", "tool", "human"]
    assert dumped(after_tool)[:3] == dumped(second)[:3]
    assert after_tool[3].text.startswith("CHANGES")


@CORNERS
def test_a_question_with_an_image_keeps_it(database, hubs, door):
    talk = Talk(database, hubs, door)
    given = HumanMessage([IMAGE, {"type": "text", "text": "What is this?"}], id="mine")
    talk.run([given])
    asked = talk.model.requests[0][-1]
    assert asked.content[1:] == given.content
    assert asked.content[0]["text"].startswith("CURRENT")
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


@pytest.mark.parametrize("name", ["placement", "after_tools", "refresh", "on_unavailable", "schema"])
def test_an_option_that_there_is_not_is_refused(sqlite, hubs, name):
    with pytest.raises(ConfigurationError, match=name):
        hubs(sqlite, **{name: "no such"})
