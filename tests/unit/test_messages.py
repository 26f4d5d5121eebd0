"""What a history shows."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from abreast.agents.messages import answered_call, ends_answered, has_content, is_answer, split, turn_key

IMAGE = {"type": "image", "url": "https://example.com/a.png", "id": "i"}
ASKS = AIMessage("", tool_calls=[{"name": "a", "args": {}, "id": "1"}, {"name": "b", "args": {}, "id": "2"}])
DONE = [ToolMessage("x", tool_call_id="1"), ToolMessage("y", tool_call_id="2")]


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
