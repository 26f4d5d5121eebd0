"""G10, G11 and G15: what folding says of any history is true now, short, and the same however the history is cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from abreast.core.fold import Line, fold
from abreast.core.render import render
from abreast.types import Actor, Budget, ChangeEvent, MassChange
from made import batch, event, row

FIELDS = ("title", "budget", "status")
ENTITIES = (("plan", "p1"), ("plan", "p2"), ("item", "p1"))


class History:
    """Events of a few entities as a log has them, and the rows that they led to."""

    def __init__(self, draw: Any) -> None:
        value = st.integers(0, 2)
        self.before: dict[tuple[str, str], dict[str, int]] = {}
        for entity in ENTITIES:
            if draw(st.booleans()):
                self.before[entity] = {name: draw(value) for name in FIELDS}
        self.rows = {entity: dict(values) for entity, values in self.before.items()}
        self.events: list[ChangeEvent] = []
        self.states = [self._copy()]
        for revision in range(4, 4 + draw(st.integers(0, 14))):
            entity = draw(st.sampled_from(ENTITIES))
            self.events.append(self._happens(draw, value, revision, entity))
            self.states.append(self._copy())

    def _copy(self) -> dict[tuple[str, str], dict[str, int]]:
        return {entity: dict(values) for entity, values in self.rows.items()}

    def _happens(self, draw: Any, value: Any, revision: int, entity: tuple[str, str]) -> ChangeEvent:
        row_now = self.rows.get(entity)
        if row_now is None:
            self.rows[entity] = {name: draw(value) for name in FIELDS}
            return event(revision, "insert", entity)
        if draw(st.integers(0, 4)) == 0:
            del self.rows[entity]
            return event(revision, "delete", entity)
        changed = {}
        for name in draw(st.sets(st.sampled_from(FIELDS), min_size=1)):
            changed[name] = (row_now[name], (row_now[name] + draw(st.integers(1, 2))) % 3)
            row_now[name] = changed[name][1]
        return event(revision, "update", entity, values=changed)


def rows_of(state: dict[tuple[str, str], dict[str, int]]) -> dict[tuple[str, str], Any]:
    return {entity: row(entity, **values) for entity, values in state.items()}


def touched(events: list[ChangeEvent], line: Line) -> list[ChangeEvent]:
    return [one for one in events if (one.entity_type, one.entity_id) == (line.entity_type, line.entity_id)]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_g10_folded_lines_are_true_short_and_in_order(data):
    history = History(data.draw)
    lines = fold(history.events, rows_of(history.rows), "t")
    assert [line.revision for line in lines] == sorted(line.revision for line in lines)
    entities = {(one.entity_type, one.entity_id) for one in history.events}
    assert len(lines) <= len(entities) * len(FIELDS)
    assert {(line.entity_type, line.entity_id) for line in lines} == entities
    named = [(line.entity_type, line.entity_id, change.name) for line in lines for change in line.changes]
    assert len(named) == len(set(named))  # each field once
    for line in lines:
        entity = (line.entity_type, line.entity_id)
        mine = touched(history.events, line)
        if line.happened != "changed":
            assert [one for one in lines if (one.entity_type, one.entity_id) == entity] == [line]
            existed, exists = entity in history.before, entity in history.rows
            assert (
                line.happened
                == {
                    (False, True): "added",
                    (True, False): "deleted",
                    (False, False): "added and deleted again",
                    (True, True): "deleted and added again",
                }[existed, exists]
            )
            assert any(one.op != "update" for one in mine)
            continue
        assert all(one.op == "update" for one in mine)
        for change in line.changes:
            assert (change.known_now, change.now) == (True, history.rows[entity][change.name])
            assert (change.known_before, change.before) == (True, history.before[entity][change.name])
            assert line.revision == max(one.revision for one in mine if change.name in one.fields)
        fields = {name for one in mine for name in one.fields}
        assert fields == {name for kind, key, name in named if (kind, key) == entity}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_g11_a_history_told_in_two_parts_never_says_now_of_what_is_not_so(data):
    """The first part is told with the rows of its own snapshot, or with those of the end; "was" is what that reader knew."""
    history = History(data.draw)
    cut = data.draw(st.integers(0, len(history.events)))
    middle, late = history.states[cut], data.draw(st.booleans())
    parts = [
        (history.events[:cut], history.before, history.rows if late else middle),
        (history.events[cut:], middle, history.rows),
    ]
    for events, before, state in parts:
        for line in fold(events, rows_of(state), "t"):
            entity = (line.entity_type, line.entity_id)
            assert line.gone == (entity not in state and line.happened in ("added", "deleted and added again", "changed"))
            for change in line.changes:
                assert change.known_now == (entity in state)
                assert not change.known_now or change.now == state[entity][change.name]
                assert change.before == before[entity][change.name]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_g11_a_field_that_came_back_is_again_what_it_was(data):
    history = History(data.draw)
    if not history.events:
        return
    made = batch(history.events, list(rows_of(history.rows).values()))
    text = render([made], run="r", thread="t", budget=Budget(10**6, 10**6)).text
    for line in fold(history.events, rows_of(history.rows), "t"):
        for change in line.changes:
            now = f"{change.name} is again {change.now}"
            if change.before != change.now:
                now = f"{change.name} is now {change.now} (was {change.before})"
            (said,) = [one for one in text.splitlines() if one.startswith(f"r{line.revision}, ")]
            assert now in said


def test_g11_a_deleted_row_that_an_import_added_again_is_there_again():
    """The import is one line and names no row, so the row's own line must not end with its deletion."""
    importer = Actor("system", "import")
    mass = MassChange("w1", 8, 67, 60, "insert", "plan", importer, None)
    events = [event(4, "delete", entity=("plan", "a")), event(5, "insert", entity=("plan", "b"))]
    events = [*events, event(6, "delete", entity=("plan", "b")), event(7, "delete", entity=("plan", "c")), mass]
    there = rows_of({("plan", one): {"title": "now"} for one in "ab"})
    text = render([batch(events, list(there.values()))], run="r", thread="t", budget=Budget(10**6, 10**6)).text
    assert [line.partition(", plan ")[2] for line in text.splitlines() if ", plan " in line] == [
        "a was deleted (it is there again)",
        "b was added and deleted again (it is there again)",
        "c was deleted",
    ]
