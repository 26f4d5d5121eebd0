"""One hub in a process that forks; and errors of the application inside a savepoint."""

from __future__ import annotations

import os

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import user
from planner import planner


def _children_read(hub, number: int) -> list[int]:
    """Exit codes of forked children that each read a batch; 0 where it was right."""
    children = []
    for _ in range(number):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if hub.blocking.batch("w1", after=0).head.revision == 3 else 2
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_opens_connections_of_its_own(database, hubs):
    hub, _ = planner(database, hubs)
    assert hub.blocking.batch("w1", after=0).head.revision == 3
    assert _children_read(hub, 3) == [0, 0, 0]
    assert hub.blocking.batch("w1", after=0).head.revision == 3


def test_g5_an_error_in_a_savepoint_of_the_application_stays_its_own(database, hubs):
    hub, engine = planner(database, hubs)
    with Session(engine) as session, hub.attribute(session, actor=user("u_2")):
        session.execute(sa.text("update plan set title = 'before'"))

        def insert_or_ignore() -> None:
            with session.begin_nested():
                session.execute(sa.text("update plan set title = 'inside'"))
                raise ValueError("the application's own")

        with pytest.raises(ValueError, match="the application's own"):
            insert_or_ignore()
        session.execute(sa.text("update plan set title = 'after'"))
        session.commit()
    events = hub.blocking.history("w1", entity_type="plan", limit=2)
    assert [(e.actor.id, e.values["title"][1]) for e in events] == [("u_2", "after"), ("u_2", "before")]
