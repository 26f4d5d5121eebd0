"""G24: the store of the checkpoints fails while the hub's tables work, and the other way round. What a person said is kept, the
run goes on or ends visibly, and nothing happens twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from leasing import lease
from serving import MINA
from talk import CORNERS
from workers import Office, stretches, types, until

ADD = 'add {"number": 3}'


class Breaking:
    """Takes a table away at one point of the application, and brings it back at another."""

    def __init__(self, table: str, breaks: str, mends: str = "") -> None:
        self.table, self.breaks, self.mends = table, breaks, mends
        self.office: Office
        self.mend: Any = None
        self.meanwhile: Callable[[], Any] = lambda: None

    def __call__(self, point: str) -> None:
        if point == self.breaks and self.mend is None:
            self.mend = self.office.gone(self.table)
        elif point == self.mends:
            self.mend()
            self.meanwhile()


def broken(offices: Any, table: str, breaks: str, mends: str = "") -> tuple[Office, Breaking]:
    points = Breaking(table, breaks, mends)
    points.office = office = offices(points=points)
    office.call("start")
    assert office.ask(office.thread(), "hello").status == "succeeded" if breaks == "committed" else True
    return office, points


@CORNERS
def test_g24_the_checkpoints_cannot_be_read_when_the_run_begins(offices):
    office = offices()
    thread = office.thread()
    office.call("start")
    office.ask(thread, "hello")
    mend = office.gone("checkpoints")
    run = office.ask(thread, ADD)
    assert (run.status, run.error["code"]) == ("failed", "failed")
    assert office.said(thread)[2:] == [("user", ADD)]
    mend()
    assert office.ask(thread, "again").status == "succeeded"
    assert stretches(office.settled(thread)) == ["succeeded", "failed", "succeeded"]
    assert office.changes() == 0
    assert office.said(thread)[-1] == ("assistant", "You said: again")


@CORNERS
def test_g24_the_checkpoints_fail_behind_the_commit_of_a_tool(offices):
    """The tool has written, and the engine cannot keep that: the run ends visibly, and what was written stays, once."""
    office, points = broken(offices, "checkpoints", "committed")
    thread = office.thread()
    run = office.ask(thread, ADD)
    assert (run.status, run.error["code"]) == ("failed", "failed")
    assert office.said(thread) == [("user", ADD)]
    told = office.settled(thread)
    assert stretches(told) == ["failed"]
    assert types(told)[-2:] == ["error", "done"]
    assert office.changes() == 1
    points.mend()
    assert office.ask(thread, "again").status == "succeeded"
    assert office.said(thread)[1:] == [("user", "again"), ("assistant", "You said: again")]
    assert office.changes() == 1


@CORNERS
@pytest.mark.parametrize("table", ["message", "run_event", "thread"])
def test_g24_the_tables_of_the_hub_fail_when_the_answer_is_to_be_stored(offices, table):
    """The checkpoints have it. The run is taken up when they work again, and the model is not asked again."""
    office, points = broken(offices, table, "answered")
    thread = office.thread()
    office.call("send", MINA, thread, ADD)
    until(lambda: points.mend is not None and lease(office.engine, thread).run is None)
    office.call("stop")
    points.mend()
    assert office.status(thread) in (["running"], ["queued"])  # it may have been given back at the stop
    assert office.said(thread) == [("user", ADD)]
    told = office.recover(thread)
    assert stretches(told) == ["succeeded"]
    assert types(told).count("assistant.completed") == 1
    assert office.said(thread)[1:] == [("assistant", "It said: added")]
    assert (office.changes(), len(office.application.model.requests)) == (1, 2)


@CORNERS
def test_g24_events_that_cannot_be_stored_for_a_while_are_told_later_and_in_order(offices):
    """The run itself goes on: it needs none of them."""
    office, _ = broken(offices, "run_event", "model", "answered")
    thread = office.thread()
    office.call("send", MINA, thread, ADD)
    until(lambda: office.status(thread) == ["succeeded"])
    told = office.settled(thread)
    assert stretches(told) == ["succeeded"]
    kinds = types(told)
    assert [kind for kind in kinds if kind.startswith("tool")] == ["tool.proposed", "tool.started", "tool.completed"]
    assert kinds[-2:] == ["assistant.completed", "done"]
    assert office.changes() == 1


@CORNERS
def test_g24_what_a_process_has_not_told_when_it_is_stopped_is_told_all_the_same(offices):
    """Events that it could not store go with the run back into the queue; nobody else could tell them."""
    office, points = broken(offices, "run_event", "model", "answered")
    thread, there, go = office.thread(), threading.Event(), threading.Event()
    points.meanwhile = lambda: there.set() or go.wait(60)
    office.call("send", MINA, thread, ADD)
    assert there.wait(60)
    office.call("stop")
    go.set()
    assert (office.status(thread), office.attempts(thread)) == (["queued"], [1])
    points.meanwhile = points.mend = lambda: None
    office.call("start")
    told = office.settled(thread)
    assert stretches(told) == ["succeeded"]
    assert [kind for kind in types(told) if kind.startswith("tool")] == ["tool.proposed", "tool.started", "tool.completed"]
    assert office.changes() == 1


@pytest.fixture
def beside(server: Any) -> str:
    """An empty database of a server that the test may stop, for checkpoints."""
    server.start()
    admin = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql("drop database if exists beside with (force)")
        connection.exec_driver_sql("create database beside")
    admin.dispose()
    return make_url(server.url).set(database="beside").render_as_string(hide_password=False)


@pytest.mark.parametrize(("database", "door"), [("postgresql", "async")], indirect=True)
def test_g24_the_server_of_the_checkpoints_stops_and_comes_back(offices, server, beside):
    """A run that begins meanwhile waits for it, and goes on."""
    office = offices(checkpoints=beside)
    office.call("start")
    thread = office.thread()
    assert office.ask(thread, ADD).status == "succeeded"
    server.stop()
    run = office.call("send", MINA, thread, "hello")
    until(lambda: office.status(thread)[1] == "running")
    server.start()
    told = office.settled(thread)
    assert stretches(told) == ["succeeded", "succeeded"]
    assert office.call("run", MINA, thread, run.id).status == "succeeded"
    asked = [m.text.rpartition("\n\n")[2] for m in office.application.model.requests[-1] if m.type == "human"]
    assert asked == [ADD, "hello"]
    assert office.changes() == 1
