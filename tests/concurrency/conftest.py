"""What the tests of concurrency share: a house with enough rows for several writers."""

from __future__ import annotations

import pytest

from house import House, build
from writer import PLANS, WORKSPACES


@pytest.fixture
def busy_house(database, hubs) -> House:
    """Twelve plans in three workspaces, and nothing that is news."""
    house = build(database, hubs)
    house.run(
        "insert into plan (id, workspace_id, title) values "
        + ", ".join(f"('{plan}', '{WORKSPACES[plan]}', '')" for plan in PLANS)
    )
    house.news()
    return house
