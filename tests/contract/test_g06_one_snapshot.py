"""G6: CURRENT, HEAD and CHANGES of a batch come from one database snapshot, also while another process writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

import storm
from abreast import Abreast, Readable
from planner import CONTEXT, Plan, planner
from talk import CORNERS

HEADS = 30
"""States of the storm that are read before a test is content."""


@pytest.fixture
def stormy(database: Any) -> Iterator[Any]:
    """Starts a process that writes without pause: each of its transactions raises two numbers together by one."""
    with storm.over(database) as start:
        yield start


def check_batches(hub: Abreast, door: Any, numbers: Any) -> None:
    """Reads batches until the storm has gone by many times, and checks each."""
    heads: set[int] = set()
    after = 3
    while len(heads) < HEADS:
        batch = door(hub).batch("w1", after=after, limit=100_000, context=CONTEXT)
        head = batch.head.revision
        title, item = numbers(batch)
        assert title == item  # both rows of a transaction or none
        assert head == 3 + 2 * title  # HEAD is that transaction's
        assert [one.revision for one in batch.events] == list(range(after + 1, head + 1))
        assert batch.to.revision == head
        last = {one.entity_type: one.values["title"][1] for one in batch.events}
        assert not last or set(last.values()) == {str(title)}  # and so is the last change
        heads.add(head)
        after = head


def from_rows(batch: Any) -> tuple[int, int]:
    rows = {(row.entity_type, row.entity_id): row.values["title"] for row in batch.rows}
    return int(rows["plan", "p1"]), int(rows["item", "1"])


def from_loaders(batch: Any) -> tuple[int, int]:
    return int(batch.loaded["plan_title"]), int(batch.loaded["item_title"])


def test_g6_a_batch_in_one_statement_is_consistent(database, hubs, door, stormy):
    hub, _ = planner(database, hubs)
    stormy()
    check_batches(hub, door, from_rows)


@CORNERS
def test_g6_a_batch_with_read_rules_is_consistent(database, hubs, door, stormy):
    hub, _ = planner(database, hubs, plan={"readable": lambda context: Readable(Plan.workspace_id == context.workspace)})
    stormy()
    check_batches(hub, door, from_rows)


@CORNERS
def test_g6_a_batch_with_loaders_is_consistent(database, hubs, door, stormy):
    def with_loaders(*given: Any, **options: Any) -> Abreast:
        hub = hubs(*given, **options)

        @hub.loader
        def plan_title(session: Session, workspace: str, context: Any) -> Any:
            return session.scalar(sa.text("select title from plan"))

        @hub.loader
        def item_title(session: Session, workspace: str, context: Any) -> Any:
            return session.scalar(sa.text("select title from item where id = 1"))

        return hub

    hub, _ = planner(database, with_loaders)
    stormy()
    check_batches(hub, door, from_loaders)


@CORNERS
def test_g6_control_several_statements_are_not(database, hubs, door, stormy):
    """The same check notices a head and rows that were read one after the other, with a write between them."""
    _, engine = planner(database, hubs)
    stormy()
    head_of = "select head from " + ("abreast_workspace" if database.kind == "sqlite" else "abreast.workspace")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        head = connection.exec_driver_sql(head_of).scalar_one()
        while connection.exec_driver_sql(head_of).scalar_one() == head:
            pass
        title = int(connection.exec_driver_sql("select title from plan").scalar_one())
    assert head != 3 + 2 * title
