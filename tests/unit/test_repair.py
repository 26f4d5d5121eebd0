"""Histories that are broken, and calls that cannot be told apart: what a request shows instead (G20)."""

from __future__ import annotations

import copy
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage

from abreast.agents.call_ids import calls_of, given_ids
from abreast.agents.messages import why_unanswered
from abreast.agents.repair import CUT_OFF, UNREADABLE, repaired

Q = HumanMessage("q", id="q")
NEXT = HumanMessage("next", id="next")


def asks(*ids, name="put", message="m", **more):
    return AIMessage("", id=message, tool_calls=[{"name": name, "args": {"n": n}, "id": i} for n, i in enumerate(ids)], **more)


def says(call_id, text="done", **more):
    return ToolMessage(text, tool_call_id=call_id, **more)


def outline(messages):
    """Each message as its type, and of an answer its call and text."""
    return [(m.tool_call_id, m.content) if isinstance(m, ToolMessage) else m.type for m in messages]


# -- histories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "history",
    [
        [],
        [Q],
        [SystemMessage("s"), Q, AIMessage("a")],
        [Q, asks("1", "2"), says("1"), says("2"), AIMessage("a"), NEXT],
        [Q, asks("1", "2"), says("2"), says("1")],
        [Q, asks("1"), says("1", status="error"), asks("2"), says("2")],
        [Q, asks("put:0"), says("put:0"), NEXT, asks("put:0", message="n"), says("put:0")],
    ],
    ids=["nothing", "question", "answer", "two calls", "in another order", "one by one", "an id that repeats across turns"],
)
def test_g20_a_history_without_a_fault_stays_the_very_same(history):
    assert repaired(history) is history


@pytest.mark.parametrize(
    ("history", "shown"),
    [
        ([Q, asks("1"), NEXT], ["human", "ai", ("1", CUT_OFF), "human"]),
        ([Q, asks("1")], ["human", "ai", ("1", CUT_OFF)]),
        ([Q, asks("1", "2", "3"), says("2"), NEXT], ["human", "ai", ("2", "done"), ("1", CUT_OFF), ("3", CUT_OFF), "human"]),
        ([Q, asks("1"), AIMessage("a"), NEXT], ["human", "ai", ("1", CUT_OFF), "ai", "human"]),
        ([Q, asks("1"), NEXT, says("1")], ["human", "ai", ("1", "done"), "human"]),
        ([Q, asks("1", "2"), says("2"), NEXT, says("1")], ["human", "ai", ("2", "done"), ("1", "done"), "human"]),
        ([says("0"), Q, AIMessage("a"), says("x"), NEXT], ["human", "ai", "human"]),
        ([Q, asks("1"), says("1", "old"), says("1", "new")], ["human", "ai", ("1", "new")]),
        (
            [Q, asks("put:0"), NEXT, asks("put:0", message="n"), says("put:0"), AIMessage("a")],
            ["human", "ai", ("put:0", CUT_OFF), "human", "ai", ("put:0", "done"), "ai"],
        ),
        (
            [Q, asks("put:0"), NEXT, asks("put:0", message="n"), says("put:0"), NEXT, says("put:0", "late")],
            ["human", "ai", ("put:0", "late"), "human", "ai", ("put:0", "done"), "human"],
        ),
        ([says("1", "early"), asks("1"), says("1")], ["ai", ("1", "done")]),
    ],
    ids=[
        "cut off",
        "cut off at the end",
        "behind its siblings' answers",
        "before another answer",
        "answered too late",
        "answered too late beside a sibling",
        "its call is gone",
        "answered twice",
        "an id that repeats across turns",
        "an id that repeats across turns, answered too late",
        "answered before it was asked",
    ],
)
def test_g20_every_call_of_a_request_is_answered_behind_its_message(history, shown):
    before = copy.deepcopy(history)
    request = repaired(history)
    assert outline(request) == shown
    assert history == before
    assert repaired(request) is request


def test_g20_what_was_cut_off_is_an_error_and_says_that_nobody_knows():
    (_, _, answer) = repaired([Q, asks("1")])
    assert (answer.status, answer.name) == ("error", "put")
    assert "not known" in json.loads(answer.content)["error"]


def test_g20_arguments_that_could_not_be_read_are_answered_as_such():
    broken = AIMessage("", invalid_tool_calls=[{"name": "put", "args": "{", "id": "c", "error": "not JSON"}])
    assert outline(repaired([Q, broken, NEXT])) == ["human", "ai", ("c", UNREADABLE), "human"]
    answered = [Q, broken, says("c"), NEXT]
    assert repaired(answered) is answered
    # LangChain answers these by id over the whole history, and so not where an earlier turn had that id.
    repeated = [Q, asks("c"), says("c"), NEXT, broken, NEXT]
    assert outline(repaired(repeated))[3:] == ["human", "ai", ("c", UNREADABLE), "human"]


def test_g20_calls_that_share_an_id_or_have_none_are_told_apart_in_the_same_way_each_time():
    history = [Q, asks("1", "1", None, ""), says("1", "first"), says("1", "second"), NEXT]
    request = repaired(history)
    ids = [call["id"] for call in request[1].tool_calls]
    assert ids[0] == "1"
    assert len(set(ids)) == 4
    assert all(ids)
    assert [m.tool_call_id for m in request[2:6]] == ids
    assert [m.content for m in request[2:6]] == ["first", "second", CUT_OFF, CUT_OFF]
    assert repaired(copy.deepcopy(history)) == request
    unnamed = [asks(None, message=None), asks(None, message=None)]
    assert repaired(unnamed)[0].tool_calls[0]["id"] != repaired(unnamed)[2].tool_calls[0]["id"]


def test_g20_of_calls_that_share_an_id_each_keeps_the_answer_of_its_name():
    two = AIMessage("", tool_calls=[{"name": "get", "args": {}, "id": "1"}, {"name": "put", "args": {}, "id": "1"}])
    request = repaired([Q, two, says("1", "put", name="put"), says("1", "got", name="get")])
    names = {call["id"]: call["name"] for call in request[1].tool_calls}
    assert {names[m.tool_call_id]: m.content for m in request[2:]} == {"get": "got", "put": "put"}


IDS = st.sampled_from(["a", "b", "c", "", None])
NAMES = st.sampled_from(["get", "put"])
CALL = st.fixed_dictionaries({"name": NAMES, "args": st.just({}), "id": IDS})
BAD = st.fixed_dictionaries({"name": NAMES | st.none(), "args": st.just("{"), "id": IDS, "error": st.none()})
MESSAGES = st.lists(
    st.one_of(
        st.just(Q),
        st.just(SystemMessage("s")),
        st.builds(says, st.sampled_from(["a", "b", "c", ""]), st.text(max_size=3), name=NAMES | st.none()),
        st.builds(
            lambda calls, bad, i: AIMessage("x", tool_calls=calls, invalid_tool_calls=bad, id=i),
            st.lists(CALL, max_size=3),
            st.lists(BAD, max_size=2),
            st.sampled_from(["m1", "m2", None]),
        ),
    ),
    max_size=12,
)


@given(MESSAGES)
def test_g20_any_history_becomes_one_in_which_every_call_has_one_answer_and_nothing_else_is_lost(history):
    before = copy.deepcopy(history)
    request = repaired(history)
    assert history == before
    assert repaired(request) is request
    expected: list[str] = []
    for message in request:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in expected
            expected.remove(message.tool_call_id)
        else:
            assert expected == []
            expected = [call["id"] for call in calls_of(message)] if isinstance(message, AIMessage) else []
            assert len(set(expected)) == len(expected)
            assert all(expected)
    assert expected == []
    assert [m.content for m in request if not isinstance(m, ToolMessage)] == [
        m.content for m in history if not isinstance(m, ToolMessage)
    ]
    # An answer is gone only where nobody asked for it or a newer one took its place.
    real = [m.content for m in request if isinstance(m, ToolMessage) and m.content not in (CUT_OFF, UNREADABLE)]
    assert not set(real) - {m.content for m in history if isinstance(m, ToolMessage)}
    asked = sum(len(calls_of(m)) for m in history if isinstance(m, AIMessage))
    assert len(real) + sum(m.content in (CUT_OFF, UNREADABLE) for m in request) == asked


@given(MESSAGES)
def test_g20_an_answer_directly_behind_its_message_is_never_lost(history):
    kept = [m.content for m in repaired(history) if isinstance(m, ToolMessage)]
    for message, answer in pairwise(history):
        if not (isinstance(message, AIMessage) and isinstance(answer, ToolMessage)):
            continue
        if [call["id"] or "" for call in calls_of(message)].count(answer.tool_call_id) and [
            m for m in history if isinstance(m, ToolMessage) and m.tool_call_id == answer.tool_call_id
        ] == [answer]:
            assert answer.content in kept


# -- ids of a new answer ---------------------------------------------------------------------------------------------


def test_g20_an_answer_whose_calls_can_be_told_apart_stays_the_very_same():
    answer = asks("1", "2")
    assert given_ids([answer])[0] is answer
    text = AIMessage("hello")
    assert given_ids([text])[0] is text


@pytest.mark.parametrize("ids", [(None,), ("",), ("1", "1"), (None, "", None), ("1", "2", "1", "1")])
def test_g20_absent_empty_and_repeated_ids_are_replaced_by_fresh_ones(ids):
    (first,) = given_ids([asks(*ids)])
    (second,) = given_ids([asks(*ids)])
    made = [call["id"] for call in first.tool_calls]
    assert all(made)
    assert len(set(made)) == len(ids)
    assert [n["args"] for n in first.tool_calls] == [{"n": n} for n in range(len(ids))]
    assert first.id == "m"
    fresh = [new for new, old in zip(made, ids, strict=True) if new != old]
    assert all(new.startswith("call_") for new in fresh)
    assert not set(fresh) & {call["id"] for call in second.tool_calls}
    assert made[0] == (ids[0] or made[0])  # the first of those that share an id keeps it


@pytest.mark.parametrize(
    ("kind", "place"), [("tool_use", "id"), ("tool_call", "id"), ("function_call", "call_id")], ids=["anthropic", "v1", "openai"]
)
def test_g20_the_providers_own_blocks_get_the_same_ids(kind, place):
    text = {"type": "text", "text": "let me see", "id": ""}
    block = {"type": kind, place: "1", "name": "put", "input": {}}
    answer = AIMessage([text, block, {**block, "input": {"n": 1}}, "bare"], id="m", tool_calls=asks("1", "1").tool_calls)
    (mended,) = given_ids([answer])
    assert [mended.content[1][place], mended.content[2][place]] == [call["id"] for call in mended.tool_calls]
    assert (mended.content[0], mended.content[1], mended.content[3]) == (text, block, "bare")
    assert mended.content[2] == {**block, "input": {"n": 1}, place: mended.tool_calls[1]["id"]}
    assert answer.content[2][place] == "1"


def test_g20_a_call_that_could_not_be_read_shares_no_id_with_one_that_could():
    bad = {"name": "put", "args": "{", "id": "1", "error": None}
    (mended,) = given_ids([asks("1", invalid_tool_calls=[bad, {**bad, "id": None}])])
    ids = [call["id"] for call in calls_of(mended)]
    assert (ids[0], len(set(ids)), all(ids)) == ("1", 3, True)


def test_g20_a_structured_answers_own_messages_go_with_their_calls():
    two = AIMessage("", tool_calls=[{"name": "put", "args": {}, "id": "1"}, {"name": "Verdict", "args": {}, "id": "1"}])
    mended, answer = given_ids([two, says("1", name="Verdict")])
    assert answer.tool_call_id == mended.tool_calls[1]["id"] != "1"
    mended, first, second = given_ids([asks("1", "1", name="Verdict"), says("1", name="Verdict"), says("1", name="Verdict")])
    assert [first.tool_call_id, second.tool_call_id] == [call["id"] for call in mended.tool_calls]


def test_g20_a_chunk_is_mended_as_a_message_is():
    chunk = AIMessageChunk("", id="m", tool_call_chunks=[{"name": "put", "args": "{}", "id": None, "index": 0}])
    (mended,) = given_ids([chunk])
    assert mended.tool_calls[0]["id"].startswith("call_")


def test_g20_why_a_run_has_no_answer():
    bad = AIMessage("let me see", invalid_tool_calls=[{"name": "put", "args": "{", "id": "c", "error": "not JSON"}])
    assert why_unanswered([Q, bad]) == "the model called put with arguments that could not be read"
    assert why_unanswered([Q, AIMessage("")]) == why_unanswered([]) == "the run ended with an empty answer"
