"""What the contract suites of the service share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from serving import Desk


@pytest.fixture
def desk(database: Any, hubs: Any, door: Any) -> Iterator[Callable[..., Desk]]:
    """Makes desks and ends their services."""
    made: list[Desk] = []

    def make(*script: Any, **named: Any) -> Desk:
        made.append(Desk(database, hubs, door, *script, **named))
        return made[-1]

    yield make
    for one in made:
        one.close()
