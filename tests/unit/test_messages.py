"""Where the block goes among a request's messages, and what a history shows."""

from __future__ import annotations

import copy

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from abreast.agents.messages import answered_call, ends_answered, has_content, is_answer, place, split, turn_key

BLOCK = "CURRENT\n{}"
PART = {"type": "text", "text": "\n\n" + BLOCK}
IMAGE = {"type": "image", "url": "https://example.com/a.png", "id": "i"}
CACHED = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
ASKS = AIMessage("", tool_calls=[{"name": "a", "args": {}, "id": "1"}, {"name": "b", "args": {}, "id": "2"}])
DONE = [ToolMessage("x", tool_call_id="1"), ToolMessage("y", tool_call_id="2")]


@pytest.mark.parametrize(
    ("messages", "at", "content"),
    [
        ([HumanMessage("q")], 0, [{"type": "text", "text": "q"}, PART]),
        ([HumanMessage("old"), AIMessage("a"), HumanMessage("q")], 2, [{"type": "text", "text": "q"}, PART]),
        ([HumanMessage([IMAGE, {"type": "text", "text": "q"}])], 0, [IMAGE, {"type": "text", "text": "q"}, PART]),
        ([HumanMessage(["q", IMAGE])], 0, ["q", IMAGE, PART]),
        ([HumanMessage("q"), ASKS, *DONE], 4, BLOCK),
        ([HumanMessage("q"), AIMessage("a")], 2, BLOCK),
        ([SystemMessage("s")], 1, BLOCK),
        ([], 0, BLOCK),
    ],
    ids=["question", "after a history", "with an image", "with bare text", "after tools", "after an answer", "system", "nothing"],
)
def test_at_the_tail_the_block_follows_the_question_or_stands_by_itself(messages, at, content):
    before = copy.deepcopy(messages)
    placed, system = place(messages, None, BLOCK, "tail")
    assert (placed[at].type, placed[at].content, system) == ("human", content, None)
    assert placed[:at] == before[:at]  # a prefix that caches recognise
    assert len(placed) == at + 1
    assert messages == before


def test_the_question_keeps_its_id_and_name():
    given = HumanMessage("q", id="m", name="Kim", additional_kwargs={"x": 1})
    (placed,), _ = place([given], None, BLOCK, "tail")
    assert (placed.id, placed.name, placed.additional_kwargs) == ("m", "Kim", {"x": 1})


def test_it_never_stands_between_a_tool_call_and_its_answer():
    messages = [HumanMessage("q"), ASKS, *DONE, AIMessage("a"), HumanMessage("q2"), ASKS, *DONE]
    for placement in ("tail", "system"):
        placed, _ = place(messages, None, BLOCK, placement)
        kinds = [message.type for message in placed]
        assert "ai human tool" not in " ".join(kinds)
        assert kinds[: len(messages)] == [message.type for message in messages]


def test_in_the_system_message_it_stands_last_and_keeps_what_was_there():
    system = SystemMessage([CACHED], id="s")
    messages = [HumanMessage("q")]
    placed, made = place(messages, system, BLOCK, "system")
    assert (placed, made.content, made.id) == (messages, [CACHED, PART], "s")
    assert system.content == [CACHED]
    assert place(messages, SystemMessage("s"), BLOCK, "system")[1].content == [
        {"type": "text", "text": "s"},
        PART,
    ]
    assert place([], None, BLOCK, "system")[1].content == [{"type": "text", "text": BLOCK}]


H1, H2, A1 = HumanMessage("1", id="h1"), HumanMessage("2", id="h2"), AIMessage("a", id="a1")


@pytest.mark.parametrize(
    ("messages", "input_ids", "before"),
    [
        ([H1], {"h1"}, 0),
        ([H1, A1, H2], {"h2"}, 2),
        ([H1, A1, H2], set(), 3),  # a resume has no input
        ([H1, A1, H2, ASKS, *DONE], {"h2"}, 2),
        ([H1, A1, H2], {"summarised away"}, 2),
        ([H1, A1, H2], None, 2),
        ([H1, H2], None, 0),
        ([SystemMessage("s"), H1, A1], None, 0),
        ([H1, A1, SystemMessage("s"), H2, ASKS, *DONE], None, 2),
        ([H1, A1, SystemMessage("a job's report")], None, 2),
        ([A1], None, 1),
        ([], None, 0),
    ],
)
def test_what_was_there_before_the_input(messages, input_ids, before):
    assert split(messages, input_ids) == before


def test_a_run_without_a_name_is_called_by_its_question():
    assert turn_key([H1, A1, H2, ASKS, *DONE]) == "turn:h2"
    assert turn_key([H1, A1]) == "turn:h1"
    assert turn_key([H1, A1, SystemMessage("a job's report", id="s1"), ASKS, *DONE]) == "turn:s1"
    assert turn_key([HumanMessage("no id")]) == turn_key([])


@pytest.mark.parametrize(
    ("content", "some"),
    [
        ("text", True),
        ("", False),
        (" \n", False),
        ([], False),
        (["text"], True),
        ([" "], False),
        ([{"type": "text", "text": "x"}], True),
        ([{"type": "text", "text": " "}], False),
        ([{"type": "text"}], False),
        ([IMAGE], True),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking"}, {"type": "reasoning"}], False),
        ([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "so"}], True),
        ([{"type": "tool_use", "name": "a"}, {"type": "function_call"}], False),
    ],
)
def test_content_is_more_than_emptiness_and_thinking(content, some):
    assert has_content(content) is some
    assert is_answer(AIMessage(content)) is some
    assert ends_answered([H1, AIMessage(content)]) is some


def test_an_answer_wants_nothing_more():
    assert not is_answer(AIMessage("let me look", tool_calls=ASKS.tool_calls))
    assert not is_answer(AIMessage("x", invalid_tool_calls=[{"name": "a", "args": "{", "id": "1", "error": None}]))
    assert not ends_answered([])
    assert not ends_answered([A1, H1])


@pytest.mark.parametrize(
    ("last", "call"),
    [
        (ToolMessage("x", tool_call_id="1"), "1"),
        (ToolMessage("", tool_call_id="1"), None),
        (ToolMessage("x", tool_call_id="1", status="error"), None),
        (A1, None),
    ],
)
def test_a_history_may_end_in_the_result_of_a_tool(last, call):
    assert answered_call([H1, ASKS, last]) == call
    assert answered_call([]) is None
