"""The budget of a hub, checked where it is given: a wrong one would else be an odd block, or an error deep in a run."""

from __future__ import annotations

from typing import Any

from abreast.errors import ConfigurationError
from abreast.types import Budget

LEAST = {"current": 1, "changes": 1, "value": 1, "facts": 0}


def checked(budget: Any) -> Budget:
    """The budget, or the default one for None. Raises ConfigurationError for what is no Budget, and for numbers that no
    text fits into."""
    if budget is None:
        return Budget()
    if not isinstance(budget, Budget):
        raise ConfigurationError(f"budget is a Budget(current=…, changes=…, value=…, facts=…), not {budget!r}.")
    for name, least in LEAST.items():
        number = getattr(budget, name)
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise ConfigurationError(f"budget: {name} is a whole number, at least {least}, not {number!r}.")
    return budget
