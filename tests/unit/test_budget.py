"""The budget that a hub is given, and what it refuses."""

from __future__ import annotations

import pytest

from abreast import Abreast, Budget, ConfigurationError
from abreast.hub.budget import checked


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (4000, "budget is a Budget.*, not 4000"),
        (0, "budget is a Budget.*, not 0"),
        ({"current": 4000}, "budget is a Budget"),
        (Budget(current=0), "current is a whole number, at least 1, not 0"),
        (Budget(changes=0), "changes is a whole number, at least 1, not 0"),
        (Budget(value=-5), "value is a whole number, at least 1, not -5"),
        (Budget(facts=-1), "facts is a whole number, at least 0, not -1"),
        (Budget(current=1.5), "current is a whole number, at least 1, not 1.5"),
        (Budget(changes="1500"), "changes is a whole number, at least 1, not '1500'"),
        (Budget(value=True), "value is a whole number, at least 1, not True"),
        (Budget(facts=None), "facts is a whole number, at least 0, not None"),
    ],
    ids=repr,
)
def test_a_budget_that_no_text_fits_into_is_refused_with_a_reason(budget, said):
    with pytest.raises(ConfigurationError, match=said):
        Abreast("sqlite://", budget=budget)


@pytest.mark.parametrize("budget", [Budget(), Budget(current=1, changes=1, value=1, facts=0)], ids=repr)
def test_a_budget_of_whole_numbers_is_taken(budget):
    assert checked(budget) is budget
    assert checked(None) == Budget()
