"""G2: revisions have no gaps and become visible in order. Several processes write; others poll."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import sqlalchemy as sa

from oracle import heads
from processes import confirmed, started

WRITERS, TRANSACTIONS = 4, 40


def test_g2_pollers_see_every_revision_once_and_in_order(busy_house):
    """Each poller asks for what is behind its last revision, a few events at a time, while all writers write."""
    house, database = busy_house, busy_house.database
    before = heads(house)
    writers = [(database.kind, database.plain, seed, TRANSACTIONS) for seed in range(WRITERS)]
    pollers = [(database.url, json.dumps(before), limit) for limit in (3, 50)]
    with started("writer.py", *writers, isolated=True) as writing, started("poller.py", *pollers) as polling:

        def poll() -> None:
            for poller in polling:
                poller.tell("poll")

        for writer in writing:
            writer.tell("go")
        made: Counter[str] = Counter(before)
        for writer in writing:
            revisions, errors = confirmed(writer, poll)
            assert errors == []
            made.update(revisions)
        assert heads(house) == made
        for poller in polling:
            poller.tell(json.dumps(made))  # where it must come to
            seen = json.loads(poller.read())
            assert seen["wrong"] == []
            assert seen["places"] == made
            assert seen["polls"] > TRANSACTIONS
    assert house.mistakes() == []


def _see(reader: sa.Connection, query: str, cursor: int) -> list[int]:
    found = [row[0] for row in reader.execute(sa.text(query), {"cursor": cursor})]
    reader.rollback()
    return found


def test_g2_who_commits_later_gets_the_higher_revision_and_a_sequence_does_not_promise_it(postgres, hubs):
    """The same two writers, step by step, for the log and for a control that must skip."""
    from house import build, furnish

    house = build(postgres, hubs)
    furnish(house)
    house.run("create table numbered (id bigserial primary key, title text)")
    start = heads(house)["w1"]
    with house.engine.connect() as slow, house.engine.connect() as fast, house.engine.connect() as reader:
        slow.exec_driver_sql("update plan set title = 'slow' where id = 'p1'")
        slow.exec_driver_sql("insert into numbered (title) values ('slow')")
        fast.exec_driver_sql("update plan set title = 'fast' where id = 'p2'")
        fast.exec_driver_sql("insert into numbered (title) values ('fast')")
        fast.commit()
        first = house.hub.blocking.batch("w1", after=start).events
        control = _see(reader, "select id from numbered where id > :cursor order by id", 0)
        slow.commit()
        second = house.hub.blocking.batch("w1", after=first[-1].revision).events
        control += _see(reader, "select id from numbered where id > :cursor order by id", control[-1])
    assert [(event.revision - start, event.entity_id) for event in (*first, *second)] == [(1, "p2"), (2, "p1")]
    assert control == [2], "the control must skip number 1: it was given first and committed last"


def test_g2_a_batch_is_one_snapshot_and_several_statements_are_not(busy_house):
    """A loader runs in the middle of a batch: what is committed while it runs is in no part of the batch."""
    house = busy_house
    head = house.own("workspace")

    def commit_one_more() -> None:
        house.run("update plan set title = title || '+' where id = 'p00'")

    def look(run) -> tuple[int, str]:
        """HEAD, then a write of somebody else, then the row."""
        number = run(f"select head from {head} where workspace = 'w0'")
        commit_one_more()
        return number, run("select title from plan where id = 'p00'")

    start = heads(house)["w0"]
    with house.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        number, title = look(lambda query: connection.exec_driver_sql(query).scalar())
    assert (number, title) == (start, "+"), "the control must be wrong: the row is newer than HEAD"

    from abreast import Abreast
    from house import declare

    hub = declare(Abreast(house.database.url))

    @hub.loader
    def title_of_the_plan(session, workspace, context):
        """Looks twice, with a write of somebody else in between."""
        return look(lambda query: session.execute(sa.text(query)).scalar())

    try:
        batch = hub.blocking.batch("w0", after=start)
    finally:
        hub.blocking.close()
    number, title = batch.loaded["title_of_the_plan"]
    assert (number, title) == (start + 1, "+")
    assert batch.head.revision == start + 1
    assert [event.revision for event in batch.events] == [start + 1]
    assert heads(house)["w0"] == start + 2


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_g2_pages_of_any_size_make_the_whole_log(busy_house, limit):
    """Also where a page ends inside one transaction."""
    house = busy_house
    house.run("update plan set title = 'a'", "update plan set title = 'b' where id in ('p00', 'p03')")
    house.run("update plan set title = 'c'")
    whole = house.hub.blocking.batch("w0", after=0, limit=1000)
    paged, place = [], 0
    while place < whole.head.revision:
        page = house.hub.blocking.batch("w0", after=place, limit=limit)
        assert 0 < len(page.events) <= limit
        assert page.head == whole.head
        assert page.remaining == whole.head.revision - page.to.revision
        paged += page.events
        place = page.to.revision
    assert tuple(paged) == whole.events
