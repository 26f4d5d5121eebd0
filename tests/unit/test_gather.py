"""G10: which changes a batch holds, and which of them are an import, however the log is read."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast import system, user
from abreast.core.gather import Gathering
from abreast.types import ChangeEvent, MassChange
from made import event

ANY = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 7), st.sampled_from(["told", "told", "told", "skip", "count"])), max_size=40
)


def gathered(drawn, limit, thread="t"):
    gathering = Gathering(limit, thread)
    for number, (actor, key, what) in enumerate(drawn):
        if gathering.full(len(drawn) - number):
            break
        if what == "skip":
            gathering.skip()
        elif what == "count":
            gathering.count()
        elif not gathering.tell(event(number + 1, entity=("plan", str(key)), actor=user(actor)), 100 + number):
            break
    return gathering.finish()


def tells(one):
    return one.count if isinstance(one, MassChange) else 1


@settings(max_examples=400, deadline=None, derandomize=True)
@given(ANY, st.integers(1, 5))
def test_g10_a_batch_holds_at_most_the_limit_and_ends_where_it_says(drawn, limit):
    found = gathered(drawn, limit)
    assert len(found.events) == len(found.checks) <= limit
    end = found.end[0] if found.end else len(drawn)
    assert (found.end is not None) == (len(found.events) == limit)
    kinds = [what for _, _, what in drawn[:end]]
    # Everything up to the end is told, passed or counted: nothing is lost and nothing comes twice.
    assert sum(map(tells, found.events)) == kinds.count("told")
    assert (found.passed, found.outside) == (kinds.count("skip"), kinds.count("count"))
    for index, one in enumerate(found.events):
        assert found.checks[index] == 99 + one.revision
        assert isinstance(one, ChangeEvent) or one.count > limit
    if found.outside_by:
        assert list(found.outside_by) == [[what for _, _, what in drawn[: one.revision]].count("count") for one in found.events]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(ANY, ANY, st.integers(1, 5))
def test_g11_a_longer_log_takes_nothing_back(drawn, more, limit):
    """The end of a run's batch may grow; what was told before is told again, or is part of what became an import."""
    before, after = gathered(drawn, limit), gathered(drawn + more, limit)
    told = [number + 1 for number, (_, _, what) in enumerate(drawn) if what == "told"]
    reach = before.end[0] if before.end else max([0, *told])
    assert (after.end[0] if after.end else len(drawn + more)) >= reach
    for one in before.events:
        first = one.first if isinstance(one, MassChange) else one.revision
        assert any((o.first if isinstance(o, MassChange) else o.revision) <= first <= o.revision for o in after.events)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12)), max_size=8), st.integers(1, 5))
def test_g10_runs_of_different_rows_are_imports_exactly_if_they_exceed_the_limit(runs, limit):
    names = [name for name, _ in runs]
    runs = [run for index, run in enumerate(runs) if index == 0 or names[index - 1] != run[0]]
    drawn = [(name, 1000 * place + n, "told") for place, (name, length) in enumerate(runs) for n in range(length)]
    found = gathered(drawn, limit)
    lengths = [len(list(group)) for _, group in groupby(drawn, key=lambda one: one[0])]
    expected: list[int] = []
    for length in lengths:
        expected += [length] if length > limit else [1] * length
    assert [tells(one) for one in found.events] == expected[:limit]


@pytest.mark.parametrize("thread", ["t", ""])
def test_g10_without_a_conversation_nothing_is_an_import(thread):
    drawn = [("a", n, "told") for n in range(9)]
    assert len(gathered(drawn, 3, thread).events) == (1 if thread else 3)


def test_g10_an_import_may_be_made_longer_from_outside():
    gathering = Gathering(2, "t")
    for n in (1, 2, 3):
        gathering.tell(event(n, "insert", ("plan", str(n)), actor=system("import")), n)
    assert gathering.mass is not None
    gathering.lengthen(500, 503, 77)
    found = gathering.finish()
    assert [(one.first, one.revision, one.count) for one in found.events] == [(1, 503, 503)]
    assert found.checks == (77,)
