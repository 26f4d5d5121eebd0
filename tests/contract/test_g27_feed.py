"""G27 and G16: the feed of a workspace has every change once and in order, as this person may read it, wherever it is cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import InputError, Readable, UnknownWorkspaceError, user
from abreast.access import aperform, perform
from abreast.core.feed import Fed
from planner import CONTEXT, Plan, planner
from talk import CORNERS

pytestmark = CORNERS


class Screen:
    """One who reads a workspace's feed."""

    def __init__(self, hub: Any, door: Any) -> None:
        self.core, self.door = hub._core, door

    def after(self, revision: int | None, limit: int = 100, workspace: str = "w1") -> Fed:
        operation = self.core.feed.after(workspace, revision, CONTEXT, limit)
        if self.door.kind == "sync":
            return perform(self.core.access, operation)
        return self.door.wait(aperform(self.core.access, operation))  # type: ignore[no-any-return]

    def all(self, revision: int = 0, limit: int = 100) -> Iterator[Fed]:
        """Stretch by stretch, to the end."""
        while True:
            fed = self.after(revision, limit)
            yield fed
            if not fed.more:
                return
            revision = fed.to


@pytest.fixture
def made(database: Any, hubs: Any, door: Any) -> Any:
    """Makes a hub, its product's engine, and a screen that reads its feed."""

    def make(**options: Any) -> tuple[Any, sa.Engine, Screen]:
        hub, engine = planner(database, hubs, **options)
        return hub, engine, Screen(hub, door)

    return make


def change(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_g27_every_change_once_and_in_order_wherever_it_is_cut(made: Any, limit: int) -> None:
    hub, engine, screen = made()
    change(engine, "update item set done = true", "update plan set title = 'Seoul'", "delete from item where id = 2")
    whole = screen.after(0)
    assert [(event.revision, event.op, event.entity_type) for event in whole.events] == [
        (1, "insert", "plan"),
        (2, "insert", "item"),
        (3, "insert", "item"),
        (4, "update", "item"),
        (5, "update", "item"),
        (6, "update", "plan"),
        (7, "delete", "item"),
    ]
    assert (whole.to, whole.more, whole.gap) == (7, False, False)
    assert whole.events == tuple(reversed(hub.blocking.history("w1", context=CONTEXT)))
    for start in range(8):
        stretches = list(screen.all(start, limit))
        assert [event for fed in stretches for event in fed.events] == list(whole.events[start:])
        assert all(len(fed.events) <= limit for fed in stretches)
        assert stretches[-1].to == 7


def test_g27_without_a_place_it_begins_at_head(made: Any) -> None:
    _, engine, screen = made()
    fed = screen.after(None)
    assert fed == Fed((), 3)
    change(engine, "update plan set title = 'Seoul'")
    (event,) = screen.after(fed.to).events
    assert (event.revision, event.fields, event.values) == (4, ("title",), {"title": ("Mapo", "Seoul")})
    assert event.actor.type == "unknown"


def test_g27_other_workspaces_are_not_in_it(made: Any) -> None:
    _, engine, screen = made()
    change(engine, "insert into plan (id, workspace_id, title) values ('p9', 'w2', 'canary')")
    assert "canary" not in str(screen.after(0))
    assert [event.entity_id for event in screen.after(0, workspace="w2").events] == ["p9"]


def test_g16_hidden_fields_are_not_in_the_feed_and_the_place_moves_on(made: Any) -> None:
    _, engine, screen = made(plan={"readable": lambda context: Readable(hide={"title"})})
    change(engine, "update plan set title = 'canary'", "update plan set title = 'canary 2', budget = 5")
    fed = screen.after(3)
    assert [(event.revision, event.fields, set(event.values)) for event in fed.events] == [(5, ("budget",), {"budget"})]
    assert "canary" not in str(fed)
    assert screen.after(3, limit=1) == Fed((), 4, more=True)


def test_g16_rows_that_may_not_be_read_are_not_in_the_feed_and_the_place_moves_on(made: Any) -> None:
    rule = {"readable": lambda context: Plan.title != "canary", "record": "all", "redact": ()}
    _, engine, screen = made(plan=rule)
    with Session(engine) as session:
        session.add(Plan(id="secret", workspace_id="w1", title="canary"))
        session.commit()
    change(engine, "update plan set budget = 5 where id = 'secret'", "update plan set budget = 6 where id = 'p1'")
    assert [event.revision for fed in screen.all(0, limit=2) for event in fed.events] == [1, 2, 3, 6]
    assert screen.after(3, limit=2) == Fed((), 5, more=True)
    assert "secret" not in str(screen.after(0))
    (seen,) = screen.after(5).events
    assert seen.values == {}  # the rule looks at the row as it is now: what it was before stays untold
    change(engine, "delete from plan where id = 'secret'")
    assert screen.after(6) == Fed((), 7)


def test_g16_a_rule_is_asked_at_each_look(made: Any) -> None:
    allowed = [True]
    _, _, screen = made(plan={"readable": lambda context: allowed[0]})
    assert len(screen.after(0).events) == 3
    allowed[0] = False
    assert [event.entity_type for event in screen.after(0).events] == ["item", "item"]


def test_g16_a_table_that_is_tracked_no_more_is_told_to_nobody_where_others_have_rules(
    made: Any, database: Any, hubs: Any, door: Any
) -> None:
    made()
    for rules, told in (({}, 3), ({"readable": lambda context: True}, 1)):
        later = hubs(database)
        later.track(Plan, workspace="workspace_id", record={"title"}, **rules)
        assert len(Screen(later, door).after(0).events) == told


def test_g12_a_log_that_was_pruned_past_the_place_says_so(made: Any) -> None:
    hub, engine, screen = made()
    for title in ("one", "two", "three"):
        change(engine, f"update plan set title = '{title}'")
    hub.blocking.prune("w1", horizon=5)
    fed = screen.after(2)
    assert fed.gap
    assert [event.revision for event in fed.events] == [6]
    assert not screen.after(5).gap
    assert not screen.after(fed.to).gap


def test_g29_a_place_beyond_the_log_is_a_gap_and_goes_on_from_head(made: Any) -> None:
    _, engine, screen = made()
    assert screen.after(99) == Fed((), 3, gap=True)
    change(engine, "update plan set title = 'Seoul'")
    assert [event.revision for event in screen.after(3).events] == [4]


@pytest.mark.parametrize("revision", [-1, 2**63, 10**30])
def test_g26_what_is_no_revision_is_refused(made: Any, revision: int) -> None:
    _, _, screen = made()
    with pytest.raises(InputError):
        screen.after(revision)


@pytest.mark.parametrize("workspace", ["nowhere", "w1\0", "w\ud800"])
def test_g26_a_workspace_that_is_none(made: Any, workspace: str) -> None:
    _, _, screen = made()
    with pytest.raises(InputError if workspace != "nowhere" else UnknownWorkspaceError):
        screen.after(0, workspace=workspace)


def test_g27_a_feed_in_which_nothing_happens_is_one_statement(made: Any) -> None:
    _, engine, screen = made(plan={"readable": lambda context: Plan.title != "canary"})
    kinds: list[str] = []

    def look(revision: int) -> None:
        operation = screen.core.feed.after("w1", revision, CONTEXT, 10)
        step = next(operation)
        while True:
            kinds.append(step.kind)
            try:
                step = operation.send(getattr(screen.core.access, step.kind)(step.work))
            except StopIteration:
                return

    look(3)
    change(engine, "update item set done = true where id = 1")
    look(3)
    assert kinds == ["read", "read"]
    change(engine, "update plan set budget = 1")
    look(4)
    assert kinds == ["read", "read", "read", "snapshot"]


def test_g27_many_writers_and_a_reader_that_is_woken(made: Any, door: Any) -> None:
    """Whoever has seen r has seen all below, and misses none while others write."""
    hub, engine, screen = made()
    signals = hub._core.signals
    seen: list[int] = []

    def write(number: int) -> None:
        for turn in range(10):
            with Session(engine) as session, hub.attribute(session, actor=user(f"u_{number}")):
                session.execute(sa.text(f"update plan set title = '{number} {turn}' where id = 'p1'"))
                session.commit()
            signals.notify("workspace:w1")

    with signals.watch("workspace:w1") as watch:
        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        at = 3
        while at < 33:
            for fed in screen.all(at, limit=7):
                seen += [event.revision for event in fed.events]
                at = fed.to
            if at < 33:
                assert watch.block(30) if door.kind == "sync" else door.wait(watch.wait(30))
        for writer in writers:
            writer.join()
    signals.close()
    assert seen == list(range(4, 34))
