"""G4: many programs that write several rows of the same few workspaces, in key order, meet no error at all."""

from __future__ import annotations

from collections import Counter

from oracle import heads
from processes import confirmed, started

WRITERS, TRANSACTIONS = 5, 80


def test_g4_transactions_of_several_rows_in_key_order_meet_no_deadlock(busy_house):
    """Savepoints, upserts, no-ops and rollbacks among them; five processes on three workspaces."""
    house, database = busy_house, busy_house.database
    made: Counter[str] = Counter(heads(house))
    runs = [(database.kind, database.plain, 100 + seed, TRANSACTIONS) for seed in range(WRITERS)]
    with started("writer.py", *runs, isolated=True) as writers:
        for writer in writers:
            writer.tell("go")
        for writer in writers:
            revisions, errors = confirmed(writer)
            assert errors == []
            made.update(revisions)
    assert heads(house) == made
    assert house.mistakes() == []
    assert house.hub.blocking.check() == []
