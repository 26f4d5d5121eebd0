"""The gate: whether a run succeeded, and how far its conversation may move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abreast.core.gate import Ending, ReturnedCall, moved
from abreast.core.mark import entry
from abreast.types import Told


def told(run: str, to: int) -> dict[str, Told]:
    return {"w1": Told(run, 3, to)}


def marked(run: str, to: int) -> dict[str, list]:
    return {"w1": entry(told(run, to)["w1"], settled_by_runner=True)}


ANSWER = ReturnedCall(frozenset({"a"}), told("r", 7), finished=True, tool_calls=frozenset(), nested=False)
ASKS = replace(ANSWER, message_ids=frozenset({"t"}), told=told("r", 5), finished=False)
DIRECT = replace(ASKS, tool_calls=frozenset({"c"}))
SUB = replace(ANSWER, message_ids=frozenset({"s"}), told=told("r", 9), nested=True)
END = Ending(paused=False, answered=True, answered_call=None, message_ids={"q", "t", "a"}, mark=marked("r", 7))
BY_TOOL = replace(END, answered=False, answered_call="c", message_ids={"q", "t", "x"}, mark=marked("r", 5))

PAUSED, NOT_ASKED, NO_ANSWER = "paused", "not asked", "without an answer"


@pytest.mark.parametrize(
    ("calls", "ending", "expected"),
    [
        ([ANSWER], END, 7),
        ([ASKS, ANSWER], END, 7),
        ([ASKS, SUB, ANSWER], END, 7),
        ([ANSWER], replace(END, message_ids={"q", "other"}), 7),  # replaced by an outer middleware: its mark is there
        ([DIRECT], BY_TOOL, 5),
        ([ANSWER], replace(END, paused=True), PAUSED),
        ([], END, NOT_ASKED),
        ([SUB], replace(END, mark=marked("r", 9)), NOT_ASKED),
        ([ANSWER], replace(END, message_ids={"q"}, mark=None), NOT_ASKED),
        ([ANSWER], replace(END, message_ids={"q"}, mark=marked("another", 7)), NOT_ASKED),
        ([ANSWER], replace(END, message_ids={"q"}, mark=marked("r", 6)), NOT_ASKED),
        ([ASKS], replace(END, mark=marked("r", 5)), NO_ANSWER),
        ([ANSWER], replace(END, answered=False), NO_ANSWER),
        ([ASKS], BY_TOOL, NO_ANSWER),
        ([DIRECT], replace(BY_TOOL, answered_call="other"), NO_ANSWER),
        ([DIRECT], replace(BY_TOOL, answered_call=None), NO_ANSWER),
    ],
)
def test_g8_what_counts_as_told(calls, ending, expected):
    found, reason = moved(calls, ending, "r")
    if isinstance(expected, int):
        assert ({w: one.to_revision for w, one in found.items()}, reason) == ({"w1": expected}, None)
    else:
        assert found == {}
        assert expected in reason


def test_g8_a_call_that_told_nothing_moves_nothing():
    """With the switch off, in shadow mode, or where the state could not be read."""
    assert moved([replace(ANSWER, told={})], END, "r") == ({}, None)
    assert moved([ANSWER, replace(ANSWER, told={})], END, "r") == ({}, None)
    # Without what it told, only its message says that it is the run's own.
    assert moved([replace(ANSWER, told={})], replace(END, message_ids={"q"}, mark={}), "r")[1] is not None
