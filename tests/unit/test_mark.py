"""Where a batch starts, by the mark of a history and the run that is going on: G9 and G10 as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abreast import MarkError
from abreast.core.mark import Start, Turn, entry, merge, start
from abreast.types import Position, Told

TOLD = Told("r1", 3, 7, 33, 77)
BEGAN, ENDED = Position(3, 33), Position(7, 77)
SETTLED = {"w1": entry(TOLD, settled_by_runner=True)}
ALONE = {"w1": entry(TOLD, settled_by_runner=False)}
BY_TOOL = {"w1": entry(TOLD, settled_by_runner=True, by_tool=True)}
ALONE_BY_TOOL = {"w1": entry(TOLD, settled_by_runner=False, by_tool=True)}
NOTICED = {"w1": entry(replace(TOLD, outdated=True, gap=True), settled_by_runner=True)}

NEW = Turn("r2", settled_by_runner=True, remembers=True, earlier=False, finished=False)
LATER = replace(NEW, earlier=True, finished=True)
BROKEN_OFF = replace(NEW, earlier=True)
SAME = replace(BROKEN_OFF, run="r1")
AFTER_A_TOOL = replace(BROKEN_OFF, tool_result=True)
FORGETS = replace(NEW, remembers=False)

AGAIN = Start("at", BEGAN, ENDED)


@pytest.mark.parametrize(
    ("mark", "turn", "expected"),
    [
        (None, NEW, Start("cursor")),
        ({}, NEW, Start("cursor")),
        (None, LATER, Start("cursor", outdated=True)),
        (None, FORGETS, Start("cursor", remembers=False)),
        (None, replace(FORGETS, earlier=True), Start("cursor", outdated=True, remembers=False)),
        (SETTLED, SAME, AGAIN),
        (ALONE, SAME, AGAIN),
        (SETTLED, LATER, Start("lower", ENDED, ENDED)),
        (ALONE, LATER, Start("at", ENDED, ENDED, confirm=ENDED)),
        (SETTLED, BROKEN_OFF, replace(AGAIN, mode="lower")),
        (ALONE, BROKEN_OFF, replace(AGAIN, mode="lower")),
        (SETTLED, AFTER_A_TOOL, replace(AGAIN, mode="lower")),
        (BY_TOOL, AFTER_A_TOOL, Start("lower", ENDED, ENDED)),
        (BY_TOOL, BROKEN_OFF, replace(AGAIN, mode="lower")),
        (ALONE_BY_TOOL, AFTER_A_TOOL, Start("at", ENDED, ENDED, confirm=ENDED)),
        (NOTICED, SAME, replace(AGAIN, outdated=True, gap=True)),
        (NOTICED, BROKEN_OFF, replace(AGAIN, mode="lower", outdated=True, gap=True)),
        (NOTICED, LATER, Start("lower", ENDED, ENDED)),
        (SETTLED, replace(LATER, remembers=False), Start("cursor", outdated=True, remembers=False)),
    ],
)
def test_g9_where_a_batch_starts(mark, turn, expected):
    assert start(mark, "w1", turn) == expected


def test_g9_a_workspace_new_to_the_mark_starts_at_head():
    assert start(SETTLED, "w2", LATER) == Start("head")
    assert start(SETTLED, "w2", SAME) == Start("head")


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        "r1",
        {},
        [],
        ["r1", 3, 7, 33, 77],
        ["r1", 3, 7, 33, 77, 1, 1],
        [1, 3, 7, 33, 77, 1],
        ["r1", -3, 7, 33, 77, 1],
        ["r1", 3.0, 7, 33, 77, 1],
        ["r1", "3", 7, 33, 77, 1],
        ["r1", None, 7, 33, 77, 1],
    ],
    ids=repr,
)
def test_g9_a_damaged_entry_is_a_mark_error(damaged):
    with pytest.raises(MarkError, match=r"damaged.*Remove the key"):
        start({"w1": damaged}, "w1", NEW)


def test_g13_an_entry_is_a_few_integers():
    (made,) = SETTLED.values()
    assert made == ["r1", 3, 7, 33, 77, 1]
    assert ALONE["w1"][-1] == 0
    assert NOTICED["w1"][-1] == 1 + 2 + 4
    assert BY_TOOL["w1"][-1] == 1 + 8


def test_g9_a_newer_entry_replaces_the_older_of_its_workspace_only():
    assert merge(None, None) == {}
    assert merge(SETTLED, {"w2": [1]}) == {**SETTLED, "w2": [1]}
    assert merge({"w1": [1], "w2": [2]}, {"w1": [3]}) == {"w1": [3], "w2": [2]}
