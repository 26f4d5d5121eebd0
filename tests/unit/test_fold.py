"""Folding: many events of one entity into the few lines that still explain an old answer."""

from __future__ import annotations

import pytest

from abreast import Actor
from abreast.core.fold import FieldChange, fold
from made import event, row, rows_of

PLAN = rows_of(row(title="now", budget=9))


def title(before: str | None, after: str | None):
    return {"values": {"title": (before, after)}}


@pytest.mark.parametrize(
    ("events", "rows", "expected"),
    [
        ([event(4, "insert")], PLAN, [(4, "added", False)]),
        ([event(4, "insert"), event(5, **title("a", "b"))], PLAN, [(4, "added", False)]),
        ([event(4, "insert")], {}, [(4, "added", True)]),  # told by an event, gone behind the end of the batch
        ([event(4, "delete")], {}, [(4, "deleted", False)]),
        ([event(4, **title("a", "b")), event(5, "delete")], {}, [(5, "deleted", False)]),
        ([event(4, "insert"), event(5, "delete")], {}, [(5, "added and deleted again", False)]),
        ([event(4, "delete"), event(5, "insert")], PLAN, [(5, "deleted and added again", False)]),
        ([event(4, "delete"), event(5, "insert"), event(6, **title("a", "b"))], PLAN, [(5, "deleted and added again", False)]),
        ([event(4, "delete"), event(5, "insert"), event(6, "delete")], {}, [(6, "deleted", False)]),
        ([event(4, **title("a", "b"))], {}, [(4, "changed", True)]),
    ],
)
def test_g10_what_happened_to_an_entity(events, rows, expected):
    assert [(line.revision, line.happened, line.gone) for line in fold(events, rows, "t")] == expected


def test_g10_of_several_changes_of_a_field_the_latest_counts_and_the_first_says_what_was():
    lines = fold([event(4, **title("a", "b")), event(5, **title("b", "c"))], PLAN, "t")
    assert [(line.revision, line.changes) for line in lines] == [
        (5, (FieldChange("title", "now", "a", known_now=True, known_before=True),))
    ]


def test_g10_fields_that_changed_last_in_different_events_have_a_line_each():
    events = [event(4, values={"title": ("a", "b"), "budget": (1, 2)}), event(5, **title("b", "c"))]
    lines = fold(events, PLAN, "t")
    assert [(line.revision, [(c.name, c.before, c.now) for c in line.changes]) for line in lines] == [
        (4, [("budget", 1, 9)]),
        (5, [("title", "a", "now")]),
    ]


def test_g11_now_is_the_value_of_the_row_not_of_the_event():
    (line,) = fold([event(4, **title("a", "event's"))], PLAN, "t")
    assert line.changes[0].now == "now"


def test_g5_what_is_not_recorded_or_not_shown_is_not_known():
    (line,) = fold([event(4, fields=["title", "secret"])], PLAN, "t")
    assert [(c.name, c.known_now, c.known_before) for c in line.changes] == [("title", True, False), ("secret", False, False)]


def test_g11_lines_come_in_the_order_of_revisions():
    events = [event(4, entity=("plan", "b")), event(5, "insert", entity=("plan", "a")), event(6, "delete", entity=("item", "1"))]
    events = [event(3, fields=["title"], entity=("plan", "a")), *events, event(7, fields=["title"], entity=("plan", "b"))]
    assert [line.revision for line in fold(events, {}, "t")] == [5, 6, 7]


@pytest.mark.parametrize(
    ("actor", "thread", "own"),
    [
        (Actor("agent", "helper"), "t", True),
        (Actor("agent"), "t", True),
        (Actor("agent", "helper"), "another", False),
        (Actor("agent", "helper"), None, False),
        (Actor("user", "u_1"), "t", False),
    ],
)
def test_g7_only_what_the_conversations_own_agent_did_is_its_own(actor, thread, own):
    (line,) = fold([event(4, "delete", actor=actor, thread=thread)], {}, "t")
    assert line.own is own
