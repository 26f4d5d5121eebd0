"""G18: which tool calls mean the same write. Ids of calls repeat, are empty or absent; a turn and a crash repeat calls."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from abreast.agents.intent import intent_of
from abreast.agents.repair import CUT_OFF

DATE = {"date": "2026-09-30"}
OTHER = {"date": "2026-10-01"}
UNKNOWN = '{"error": "…", "outcome": "unknown"}'
FAILED = '{"error": "…"}'


def mutation_of(*given: Any, **options: Any) -> str | None:
    return intent_of(*given, **options).mutation


def given_arguments(*given: Any) -> Any:
    return intent_of(*given).asked


def runtime(state: Any, call_id: str | None = "c", thread: str | None = "t", ns: str = "tools:1") -> Any:
    config = {"configurable": {"checkpoint_ns": ns, **({"thread_id": thread} if thread is not None else {})}}
    return ToolRuntime(state=state, context=None, config=config, stream_writer=lambda _: None, tool_call_id=call_id, store=None)


def call(args: Any = DATE, id: str | None = "c", name: str = "put") -> dict[str, Any]:
    return {"name": name, "args": args, "id": id}


def asks(*made: dict[str, Any], id: str | None = "a1", content: str = "") -> AIMessage:
    return AIMessage(content, id=id, tool_calls=list(made))


def answer(id: str = "c", status: Any = "success", content: str = "done") -> ToolMessage:
    return ToolMessage(content, tool_call_id=id, status=status)


def meant(messages: Sequence[BaseMessage], call_id: str | None = "c", args: Any = DATE, **options: Any) -> str | None:
    place = {key: options.pop(key) for key in ("thread", "ns") if key in options}
    return mutation_of(runtime({"messages": list(messages)}, call_id, **place), "put", args, **options)


QUESTION = HumanMessage("q", id="q")


def test_g18_an_id_that_fits_says_conversation_message_place_name_and_arguments():
    base = [QUESTION, asks(call())]
    id = meant(base)
    assert id is not None
    assert id.startswith("call:")
    assert len(id) == 69
    assert meant(base) == id
    ids = {
        id,
        meant(base, thread="t2"),
        meant([QUESTION, asks(call(), id="a2")]),
        meant([QUESTION, asks(call(id="b", name="get"), call())]),
        meant([QUESTION, asks(call(OTHER))], args=OTHER),
        mutation_of(runtime({"messages": [QUESTION, asks(call(name="set"))]}), "set", DATE),
    }
    assert len(ids) == 6


def test_g18_one_id_in_every_turn_means_a_new_write_in_each():
    first = [QUESTION, asks(call(id="put:0")), answer("put:0"), AIMessage("done", id="a2")]
    again = [*first, HumanMessage("again", id="q2"), asks(call(id="put:0"), id="a3")]
    assert meant(first[:2], "put:0") != meant(again, "put:0")


@pytest.mark.parametrize("id", ["put:0", "", None])
def test_g18_ids_that_repeat_in_a_message_or_are_missing_leave_each_call_its_own_write(id):
    message = [QUESTION, asks(call(DATE, id), call(OTHER, id))]
    assert meant(message, id, DATE) != meant(message, id, OTHER)
    assert meant(message, id, OTHER) == meant(message, id, OTHER)
    assert meant(message, id, OTHER) != meant([QUESTION, asks(call(OTHER, id), call(DATE, id))], id, OTHER)


def test_g18_two_places_with_one_id_and_arguments_that_were_converted():
    message = [QUESTION, asks(call({"n": "1"}, "x"), call({"n": "2"}, "x"), id="a1")]
    told_apart = [QUESTION, asks(call({"n": "1"}, "x"), call({"n": "2"}, "y"), id="a1")]
    assert meant(message, "x", {"n": 2}) == meant(told_apart, "y", {"n": 2})
    assert meant(message, "x", {"n": 1}) != meant(message, "x", {"n": 2})


def test_g18_the_same_call_again_in_the_turn_is_the_first_ones():
    first = [QUESTION, asks(call(id="c1"))]
    later = [*first, answer("c1"), asks(call(id="c2"), id="a2")]
    assert meant(later, "c2") == meant(first, "c1")
    assert meant(later, "c2", repeatable=True) != meant(first, "c1")
    third = [*later, answer("c2"), asks(call(id="c3"), id="a3")]
    assert meant(third, "c3") == meant(first, "c1")


def test_g18_two_like_calls_in_one_message_are_one_write_unless_repeatable():
    message = [QUESTION, asks(call(id="c1"), call(id="c2"))]
    assert meant(message, "c1") == meant(message, "c2")
    assert meant(message, "c1", repeatable=True) != meant(message, "c2", repeatable=True)


def test_g18_other_arguments_another_tool_or_another_turn_are_no_repeat():
    start = [QUESTION, asks(call(id="c1")), answer("c1")]
    assert meant([*start, asks(call(OTHER, "c2"), id="a2")], "c2", OTHER) != meant(start[:2], "c1")
    turn = [*start, AIMessage("ok", id="a2"), HumanMessage("more", id="q2"), asks(call(id="c2"), id="a3")]
    assert meant(turn, "c2") != meant(start[:2], "c1")


@pytest.mark.parametrize(
    ("status", "content", "same"), [("error", FAILED, False), ("error", UNKNOWN, True), ("success", FAILED, True)]
)
def test_g18_a_call_after_one_that_failed_is_new_unless_nobody_knows_whether_it_did(status, content, same):
    start = [QUESTION, asks(call(id="c1"))]
    later = [*start, answer("c1", status, content), asks(call(id="c2"), id="a2")]
    assert (meant(later, "c2") == meant(start, "c1")) is same


def test_g18_a_call_whose_answer_was_lost_is_repeated_under_its_id():
    start = [QUESTION, asks(call(id="c1"))]
    assert meant([*start, asks(call(id="c2"), id="a2")], "c2") == meant(start, "c1")


CUT = [QUESTION, asks(call(id="c1"))]
NEXT = [HumanMessage("go on", id="q2"), asks(call(id="c2"), id="a2")]


@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize("answered", [[], [answer("c1", "error", UNKNOWN)], [answer("c1", "error", CUT_OFF)]])
def test_g18_a_call_that_was_cut_off_or_whose_outcome_is_unknown_is_meant_by_the_next_equal_one_of_any_turn(answered, repeatable):
    first = meant(CUT, "c1", repeatable=repeatable)
    second = [*CUT, *answered, *NEXT]
    assert meant(second, "c2", repeatable=repeatable) == first
    third = [*second, HumanMessage("and", id="q3"), asks(call(id="c3"), id="a3")]
    assert meant(third, "c3", repeatable=repeatable) == first
    # Answered once, it is done: the next one means another write.
    closed = [*second, answer("c2"), HumanMessage("more", id="q3"), asks(call(id="c3"), id="a3")]
    assert meant(closed, "c3", repeatable=repeatable) not in (first, None)
    other = [*CUT, *answered, NEXT[0], asks(call(OTHER, "c2"), id="a2")]
    assert meant(other, "c2", OTHER, repeatable=repeatable) not in (first, None)


def test_g18_an_answer_that_came_late_is_an_answer_all_the_same():
    late = [*CUT, HumanMessage("wait", id="q1"), answer("c1"), *NEXT]
    assert meant(late, "c2") != meant(CUT, "c1")
    same_id = [*CUT, HumanMessage("q", id="q1"), asks(call(OTHER, "c1"), id="a9"), answer("c1"), *NEXT]
    assert meant(same_id, "c2") == meant(CUT, "c1")


def test_g18_each_of_two_repeatable_calls_that_were_cut_off_is_meant_once():
    two = [QUESTION, asks(call(id="c1"), call(id="c2"))]
    firsts = [meant(two, one, repeatable=True) for one in ("c1", "c2")]
    again = [*two, HumanMessage("go on", id="q2"), asks(call(id="d1"), call(id="d2"), call(id="d3"), id="a2")]
    seconds = [meant(again, one, repeatable=True) for one in ("d1", "d2", "d3")]
    assert seconds[:2] == firsts
    assert seconds[2] not in (*firsts, None)
    one = [*two, answer("c2"), HumanMessage("go on", id="q2"), asks(call(id="d1"), call(id="d2"), id="a2")]
    assert [meant(one, "d1", repeatable=True), firsts[1]] == [firsts[0], firsts[1]]
    assert meant(one, "d2", repeatable=True) not in (*firsts, None)


@pytest.mark.parametrize(
    ("answers", "is_open"),
    [
        ([answer("c1")], False),
        ([answer("c2")], False),
        ([answer("c1"), answer("c2", "error", UNKNOWN)], False),
        ([answer("c1", "error", UNKNOWN), answer("c2")], False),
        ([answer("c1", "error", FAILED), answer("c2", "error", UNKNOWN)], True),
        ([answer("c1", "error", FAILED), answer("c2", "error", FAILED)], False),
        ([], True),
    ],
)
def test_g18_of_two_equal_calls_in_a_message_one_that_succeeded_answers_for_both(answers, is_open):
    two = [QUESTION, asks(call(id="c1"), call(id="c2"))]
    later = [*two, *answers, HumanMessage("go on", id="q2"), asks(call(id="d"), id="a2")]
    assert (meant(later, "d") == meant(two, "c1")) is is_open


def test_g18_an_answer_may_name_the_mutation_that_is_unknown():
    """The history had forgotten that call; the database had not."""
    told = answer("c1", "error", '{"outcome": "unknown", "mutation": "call:first"}')
    assert meant([*CUT, told, *NEXT], "c2") == "call:first"
    again = [*CUT, told, *NEXT, answer("c2", "error", UNKNOWN), HumanMessage("and", id="q3"), asks(call(id="c3"), id="a3")]
    assert meant(again, "c3") == "call:first"
    own = answer("c1", "success", '{"outcome": "unknown", "mutation": "call:first"}')  # what the function itself returned
    assert meant([*CUT, own, *NEXT], "c2") != "call:first"
    foreign = answer("c1", "error", '{"outcome": "unknown", "mutation": "form 7"}')
    assert meant([*CUT, foreign, *NEXT], "c2") == meant(CUT, "c1")


def test_g18_a_call_says_whether_it_repeats_another():
    def repeats(messages: Sequence[BaseMessage], call_id: str) -> tuple[bool, bool]:
        intent = intent_of(runtime({"messages": list(messages)}, call_id), "put", DATE)
        return intent.repeats, intent.beside

    two = [QUESTION, asks(call(id="c1"), call(id="c2"))]
    assert [repeats(two, one) for one in ("c1", "c2")] == [(False, False), (True, True)]
    assert repeats([*CUT, answer("c1"), asks(call(id="c2"), id="a2")], "c2") == (True, False)
    assert repeats([*CUT, *NEXT], "c2") == (True, False)
    assert repeats([*CUT, answer("c1"), *NEXT], "c2") == (False, False)


def test_g18_after_a_failure_of_the_repeat_the_next_one_is_new():
    start = [QUESTION, asks(call(id="c1")), answer("c1", "error", UNKNOWN), asks(call(id="c2"), id="a2")]
    failed = [*start, answer("c2", "error", FAILED), asks(call(id="c3"), id="a3")]
    assert meant(failed, "c3") not in (meant(start, "c2"), None)
    assert meant([*failed, answer("c3"), asks(call(id="c4"), id="a4")], "c4") == meant(failed, "c3")


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize(("position", "args"), [(0, DATE), (1, OTHER)])
def test_g18_answers_to_one_id_are_told_apart_by_their_order(failed, position, args):
    """Both calls of the message have the id `x`; the one that failed is not the one that a repeat is answered from."""
    statuses = ["error" if n == failed else "success" for n in range(2)]
    start = [QUESTION, asks(call(DATE, "x"), call(OTHER, "x"))]
    later = [*start, *(answer("x", status, FAILED) for status in statuses), asks(call(args, "y"), id="a2")]
    assert (meant(later, "y", args) == meant(start, "x", args)) is (failed != position)


def test_g18_a_message_without_an_id_is_named_by_all_that_stands_before_it():
    first = [QUESTION, asks(call(), id=None)]
    assert meant(first) == meant(first)
    assert meant(first, thread="t2") != meant(first)
    assert meant([HumanMessage("another", id="q9"), asks(call(), id=None)]) != meant(first)
    turn = [*first, answer(), AIMessage("ok", id=None), HumanMessage("q", id=None), asks(call(), id=None)]
    assert meant(turn) != meant(first)
    assert meant([QUESTION, asks(call(), id=None, content="thinking")]) != meant(first)


def test_g18_without_a_thread_nameless_messages_of_two_conversations_are_told_apart_by_their_task():
    message = [QUESTION, asks(call(), id=None)]
    assert meant(message, thread=None, ns="tools:1") != meant(message, thread=None, ns="tools:2")
    assert meant(message, thread=None, ns="") is None


def test_g18_a_sub_agent_that_is_called_twice_writes_twice_though_its_model_answers_from_a_cache():
    message = [QUESTION, asks(call())]
    one, two = (meant(message, ns=f"tools:{n}|tools:x") for n in (1, 2))
    assert one != two
    assert one == meant(message, ns="tools:1|tools:y")


def test_g18_a_tool_that_was_called_by_hand_has_no_mutation():
    assert meant([], thread=None, ns="") is None
    assert mutation_of(runtime({}, thread=None, ns=""), "put", DATE) is None
    assert mutation_of(runtime(None, ns=""), "put", DATE) is None


def test_g18_a_node_that_calls_a_tool_by_itself_means_the_same_when_it_runs_again():
    assert meant([], ns="node:1") == meant([], ns="node:1")
    assert meant([], ns="node:1") not in (None, meant([], ns="node:2"), meant([], ns="node:1", args=OTHER))


def test_g18_the_newest_message_that_makes_the_call_is_the_one():
    start = [QUESTION, asks(call(id="put:0")), answer("put:0"), AIMessage("ok", id="a2")]
    again = [*start, HumanMessage("q", id="q2"), asks(call(id="put:0"), id="a3")]
    assert meant(again, "put:0") == meant([HumanMessage("q", id="q2"), again[-1]], "put:0")


def test_g18_defaults_that_are_made_anew_are_no_part_of_what_is_meant():
    message = {"messages": [QUESTION, asks(call())]}
    one = mutation_of(runtime(message), "put", {**DATE, "at": str(uuid.uuid4())})
    assert (
        one
        == mutation_of(runtime(message), "put", {**DATE, "at": str(uuid.uuid4())})
        == mutation_of(runtime(message), "put", DATE)
    )
    assert given_arguments(runtime(message), "put", {**DATE, "at": 1}) == DATE


def test_g18_converted_arguments_find_their_call_and_are_json():
    message = {"messages": [QUESTION, asks(call({"date": "2026-09-30", "tags": ["a", "b"]}))]}
    given = {"date": dt.date(2026, 9, 30), "tags": {"b", "a"}}
    assert mutation_of(runtime(message), "put", given) == mutation_of(runtime(message), "put", dict(given))
    assert given_arguments(runtime(message), "put", given) == {"date": "2026-09-30", "tags": ["a", "b"]}


def test_g18_arguments_that_were_converted_beyond_recognition_are_found_by_the_calls_id():
    ids = [meant([QUESTION, asks(call({"at": "noon"}), id=message)], args={"at": 12}) for message in ("a1", "a2")]
    assert len(set(ids)) == 2


def test_g18_a_call_that_a_person_has_edited_on_the_way_is_another_write():
    message = [QUESTION, asks(call({"amount": 100}))]
    edited = meant(message, args={"amount": 50})
    assert edited not in (None, meant(message, args={"amount": 100}))
    again = [*message, answer(), asks(call({"amount": 100}, "c2"), id="a2")]
    assert meant(again, "c2", {"amount": 100}) != edited


@dataclass
class State:
    log: list[BaseMessage]


def test_g18_any_kind_of_state_shows_its_messages():
    messages = [QUESTION, asks(call())]
    wanted = meant(messages)
    for state in (messages, {"log": messages}, State(messages)):
        assert mutation_of(runtime(state), "put", DATE) == wanted


PROGRAM = """
import sys
sys.path[:0] = {path!r}
from test_intent import *
given = {{"date": dt.date(2026, 9, 30), "tags": {{"b", "a", "c"}}}}
print(meant([QUESTION, asks(call(given), id=None)], args=given))
"""


def test_g18_every_process_finds_the_same_id():
    given = {"date": dt.date(2026, 9, 30), "tags": {"b", "a", "c"}}
    program = PROGRAM.format(path=[__file__.rpartition("/")[0]])
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        )
        assert done.stdout.strip() == meant([QUESTION, asks(call(given), id=None)], args=given)
