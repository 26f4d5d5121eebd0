"""G19: of writes that go together in one transaction, those of a run that has lost its thread write nothing."""

from __future__ import annotations

import asyncio

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import Lease, LeaseLostError, agent, update
from abreast.store import leases
from planner import Plan, planner

WHO = agent("helper")


def taken(engine, thread):
    wanted = leases.acquire_statement("postgresql", "abreast", thread=thread, run="r1", seconds=3600)
    with engine.begin() as connection:
        ((token,),) = connection.execute(sa.text(wanted.text), dict(wanted.parameters)).all()
    return Lease(thread, token, "r1")


def test_g19_who_has_lost_its_lease_is_told_apart_from_those_beside_it(postgres, hubs, loop):
    hub, engine = planner(postgres, hubs)
    with Session(engine) as session:
        session.add_all([Plan(id=f"q{number}", workspace_id="w1", title="before") for number in range(60)])
        session.commit()
    held = taken(engine, "t1")
    current = [held, Lease("t1", held.token - 1, "r0"), taken(engine, "t2"), Lease("t3", 1, "r3"), None]

    async def all_of():
        return await asyncio.gather(
            *(
                hub.apply(
                    "w1", update(Plan, f"q{number}", title="after"), actor=WHO, lease=current[number % 5], mutation=f"m{number}"
                )
                for number in range(60)
            ),
            return_exceptions=True,
        )

    answers = asyncio.run_coroutine_threadsafe(all_of(), loop).result(timeout=90)
    for number, answer in enumerate(answers):
        title = hub.blocking.row(Plan, f"q{number}", "w1").values["title"]
        if number % 5 in (1, 3):
            assert isinstance(answer, LeaseLostError)
            assert title == "before"
        else:
            assert (answer.rows[0].values["title"], title) == ("after", "after")
