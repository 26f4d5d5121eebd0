"""What the tests of the hub's savers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from abreast import Abreast
from planner import planner


@pytest.fixture
def hub(database, hubs) -> Abreast:
    """A hub with the planner's tables."""
    return planner(database, hubs)[0]


@pytest.fixture
def held(door) -> Iterator[Callable[..., Any]]:
    """Holds a thread until the test's end."""
    holds: list[Any] = []

    def hold(hub: Abreast, thread: str) -> Any:
        holds.append(hub.lease(thread))
        return holds[-1].__enter__()

    yield hold
    for one in reversed(holds):
        one.__exit__(None, None, None)
