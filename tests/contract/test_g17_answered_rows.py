"""G17: the row that a write answers with is what was written, under the version that it had then."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import VersionConflictError, agent, constant, insert, update
from planner import Plan, planner

WHO = agent("helper")

WRITTEN_AGAIN = """
create function written_again() returns trigger language plpgsql as $$
begin
    update plan set title = 'the trigger''s' where id = new.id;
    return null;
end
$$;
create constraint trigger written_again after update on plan deferrable initially deferred
    for each row when (new.title = 'again') execute function written_again();
"""


def written_again(database, hubs):
    """A product whose database writes a plan again at the end of each transaction that gives it the title `again`."""
    hub, engine = planner(database, hubs)
    with engine.begin() as connection:
        connection.exec_driver_sql(WRITTEN_AGAIN)
    hub.blocking.install()
    return hub, engine


def test_g17_what_the_database_writes_after_the_answer_makes_its_version_old(postgres, hubs, door):
    hub, _ = written_again(postgres, hubs)
    (row,) = door(hub).apply("w1", update(Plan, "p1", title="again"), actor=WHO).rows
    assert row.values["title"] == "again"
    now = door(hub).row(Plan, "p1", "w1")
    assert now.values["title"] == "the trigger's"
    assert now.version > row.version
    with pytest.raises(VersionConflictError) as caught:
        door(hub).apply("w1", update(Plan, "p1", version=row.version, title="mine"), actor=WHO)
    assert caught.value.row == now


def test_g17_so_it_is_among_writes_that_go_together(postgres, hubs, loop):
    hub, engine = written_again(postgres, hubs)
    with Session(engine) as session:
        session.add_all([Plan(id=f"q{number}", workspace_id="w1", title="before") for number in range(40)])
        session.commit()

    async def all_of():
        return await asyncio.gather(
            *(hub.apply("w1", update(Plan, f"q{number}", title="again"), actor=WHO) for number in range(40))
        )

    answers = asyncio.run_coroutine_threadsafe(all_of(), loop).result(timeout=90)
    assert [applied.rows[0].values["title"] for applied in answers] == ["again"] * 40
    for number, applied in enumerate(answers):
        now = hub.blocking.row(Plan, f"q{number}", "w1")
        assert now.values["title"] == "the trigger's"
        assert now.version > applied.rows[0].version


def test_g17_an_answer_tells_its_own_row_though_others_are_written_with_it(postgres, hubs, door):
    """A trigger of the application that writes another row behind ours: the last event is then that one's."""
    hub, engine = planner(postgres, hubs)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "create function beside() returns trigger language plpgsql as $$ begin "
            "insert into plan (id, workspace_id, title) values ('beside ' || new.title, 'w1', 'beside'); return null; end $$; "
            "create trigger beside after update on plan for each row when (new.title = 'both') execute function beside()"
        )
    hub.blocking.install()
    applied = door(hub).apply("w1", update(Plan, "p1", title="both"), actor=WHO)
    assert applied.rows[0] == door(hub).row(Plan, "p1", "w1")
    assert door(hub).row(Plan, "beside both", "w1").version != applied.rows[0].version
    assert applied.revision == max(door(hub).row(Plan, one, "w1").version for one in ("p1", "beside both"))


def test_g17_a_wide_row_comes_back_whole(database, hubs, door):
    """More columns than one JSON array of a statement takes, with a key that stands among them and with one that does not."""
    metadata = sa.MetaData()
    kinds = {f"c{number:02}": (sa.Integer, sa.Text, sa.Boolean, sa.Numeric(8, 2))[number % 4] for number in range(60)}
    wide = sa.Table("wide", metadata, sa.Column("id", sa.Text, primary_key=True), *(sa.Column(*one) for one in kinds.items()))
    paired = sa.Table(
        "paired",
        metadata,
        sa.Column("a", sa.Integer, primary_key=True),
        sa.Column("b", sa.Text, primary_key=True),
        *(sa.Column(*one) for one in kinds.items()),
    )
    engine = database.engine()
    metadata.create_all(engine)
    hub = hubs(database)
    hub.track(wide, workspace=constant("w1"))
    hub.track(paired, workspace=constant("w1"))
    hub.blocking.install()
    values = {name: (7, "text", True, Decimal("1.5"))[number % 4] for number, name in enumerate(kinds)}
    made = door(hub).apply("w1", insert(wide, id="x", **values), insert(paired, a=1, b="y", **values), actor=WHO)
    for table, row in zip((wide, paired), made.rows, strict=True):
        assert row == door(hub).row(table, row.entity_id, "w1")
        assert (row.values["c00"], row.values["c57"], row.values["c58"], row.values["c59"]) == (7, "text", True, "1.50")
    (row,) = door(hub).apply("w1", update(wide, "x", version=made.rows[0].version, c57="other"), actor=WHO).rows
    assert row == door(hub).row(wide, "x", "w1")
    assert row.values["c57"] == "other"
