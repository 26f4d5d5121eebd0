"""Random programs against the log: several writers by several write paths, savepoints, killed connections, and readers.

Hypothesis picks the steps and, where one fails, the shortest program that fails. When a transaction has ended, and at
the end, the log must be exact (`oracle.mistakes`), and no reader may ever miss an event, see one twice, or see rows that
its events do not make.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import psycopg
import sqlalchemy as sa
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from sqlalchemy.orm import Session

import oracle
from house import House, Item, Plan, build

PLAN = st.sampled_from(["p1", "p2", "p3", "p4"])
WORKSPACE = st.sampled_from(["w1", "w2", "w3"])
NUMBER = st.integers(1, 5)
WRITER = st.sampled_from(["a", "b"])
READER = st.sampled_from(["slow", "fast"])

STATEMENTS = {
    "insert plan": "insert into plan (id, workspace_id, title) values ('{p}', '{w}', '{n}')",
    "upsert plan": "insert into plan (id, workspace_id, title) values ('{p}', '{w}', '{n}'), ('{q}', '{w}', '{m}') "
    "on conflict (id) do update set title = excluded.title, remark = plan.title",
    "update plan": "update plan set title = '{n}', budget = {m}.5 where id in ('{p}', '{q}')",
    "update nothing": "update plan set title = title, details = details where id = '{p}'",
    "update all": "update plan set title = coalesce(title, '') || '{n}', secret = '{m}'",
    "update json": """update plan set details = '{{"a": {n}, "b": [{m}]}}' where id = '{p}'""",
    "reorder json": """update plan set details = '{{"b":[{m}],"a":{n}}}' where id = '{p}'""",
    "rename plan": "update plan set id = '{q}' where id = '{p}'",
    "move plan": "update plan set workspace_id = '{w}' where id = '{p}'",
    "move all": "update plan set workspace_id = '{w}'",
    "delete plan": "delete from plan where id = '{p}'",
    "insert item": "insert into item (id, plan_id, title, done) values ({n}, '{p}', '{m}', false)",
    "insert items": "insert into item (id, plan_id, title, done) select {n} + 10 * {m} + i.id, '{p}', i.title, true from item i",
    "update item": "update item set title = '{m}', done = not done where id = {n}",
    "toggle items": "update item set done = not done",
    "move item": "update item set plan_id = '{p}' where id = {n}",
    "renumber item": "update item set id = {m} where id = {n}",
    "delete item": "delete from item where id = {n}",
    "insert tag": "insert into tag (number, name, item_id, color) values ({n}, '{p}', {m}, '{w}')",
    "update tag": "update tag set color = '{w}' where number = {n}",
    "loosen tag": "update tag set item_id = null where number = {n}",
    "move tag": "update tag set item_id = {m}, name = '{q}' where number = {n}",
    "delete tag": "delete from tag where number = {n}",
    "upsert game": "insert into game (id, score) values ('0000000000000000000000000000000{n}', {m}) "
    "on conflict (id) do update set score = excluded.score",
    "delete game": "delete from game",
}
ON_SQLITE = {
    "replace item": "insert or replace into item (id, plan_id, title, done) values ({n}, '{p}', '{m}', false)",
    "ignore plan": "insert or ignore into plan (id, workspace_id, title) values ('{p}', '{w}', '{n}'), ('{q}', '{w}', '{m}')",
}


class LogMachine(RuleBasedStateMachine):
    """One random program. `house` is set by the test; every program begins with one plan in each workspace."""

    house: House
    statements: Mapping[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.clear()
        self.house.run("insert into plan (id, workspace_id) values ('p1', 'w1'), ('p2', 'w2'), ('p3', 'w3')")
        self.writers: dict[str, Any] = {}
        self.savepoints: dict[str, list[str]] = {"a": [], "b": []}
        self.places: dict[tuple[str, str], int] = {}
        self.seen: dict[tuple[str, str], list[Any]] = {}
        self.counter = 0

    # -- what differs between the two databases

    def clear(self) -> None:
        raise NotImplementedError

    def connect(self) -> Any:
        raise NotImplementedError

    def in_transaction(self, writer: str) -> bool:
        raise NotImplementedError

    def failed(self, writer: str) -> None:
        """Behind a statement that raised: what an application must do to go on."""
        raise NotImplementedError

    def engine(self) -> sa.Engine:
        """An engine of the application's, that waits for no lock."""
        raise NotImplementedError

    # -- writers

    def execute(self, writer: str, statement: str) -> bool:
        if writer not in self.writers:
            self.writers[writer] = self.connect()
        try:
            self.writers[writer].execute(statement)
        except (psycopg.Error, sqlite3.Error):
            # A lock that another one holds, a key that is taken, a parent that is not there: as it happens.
            self.failed(writer)
            return False
        return True

    @rule(writer=WRITER)
    def begin(self, writer: str) -> None:
        assume(writer not in self.writers or not self.in_transaction(writer))
        self.savepoints[writer].clear()
        self.execute(writer, "begin immediate" if self.house.on_sqlite else "begin")

    @rule(writer=WRITER, data=st.data(), p=PLAN, q=PLAN, w=WORKSPACE, n=NUMBER, m=NUMBER)
    def write(self, writer: str, data: Any, p: str, q: str, w: str, n: int, m: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.statements)), label="statement")
        self.execute(writer, self.statements[name].format(p=p, q=q, w=w, n=n, m=m))

    @rule(writer=WRITER)
    def savepoint(self, writer: str) -> None:
        assume(writer in self.writers and self.in_transaction(writer))
        self.counter += 1
        if self.execute(writer, f"savepoint s{self.counter}"):
            self.savepoints[writer].append(f"s{self.counter}")

    @rule(writer=WRITER, which=st.integers(0, 5))
    def rollback_to_savepoint(self, writer: str, which: int) -> None:
        assume(which < len(self.savepoints[writer]))
        self.execute(writer, f"rollback to {self.savepoints[writer][which]}")
        del self.savepoints[writer][which + 1 :]

    @rule(writer=WRITER, which=st.integers(0, 5))
    def release_savepoint(self, writer: str, which: int) -> None:
        assume(which < len(self.savepoints[writer]))
        name = self.savepoints[writer][which]
        del self.savepoints[writer][which:]
        self.execute(writer, f"release {name}")

    @precondition(lambda self: not self.house.on_sqlite)
    @rule(writer=WRITER, when=st.sampled_from(["immediate", "deferred"]))
    def set_constraints(self, writer: str, when: str) -> None:
        assume(writer in self.writers and self.in_transaction(writer))
        self.execute(writer, f"set constraints all {when}")

    @rule(writer=WRITER, end=st.sampled_from(["commit", "commit", "commit", "rollback"]))
    def end(self, writer: str, end: str) -> None:
        assume(writer in self.writers and self.in_transaction(writer))
        self.savepoints[writer].clear()
        self.execute(writer, end)
        if self.in_transaction(writer):
            self.execute(writer, "rollback")
        self.check()

    @rule(writer=WRITER)
    def die(self, writer: str) -> None:
        """The connection goes away in whatever state it is in."""
        assume(writer in self.writers and self.in_transaction(writer))
        self.savepoints[writer].clear()
        self.kill(self.writers.pop(writer))
        self.check()

    def kill(self, connection: Any) -> None:
        raise NotImplementedError

    @rule(path=st.sampled_from(["unit of work", "bulk insert", "bulk update", "many"]), p=PLAN, w=WORKSPACE, n=NUMBER, m=NUMBER)
    def write_by_the_application(self, path: str, p: str, w: str, n: int, m: int) -> None:
        try:
            with Session(self.engine()) as session:
                if path == "unit of work":
                    plan = session.merge(Plan(id=p, workspace_id=w, title=f"{n}"))
                    session.flush()
                    session.merge(Item(id=n, plan_id=plan.id, title=f"{m}", done=False))
                elif path == "bulk insert":
                    session.execute(sa.insert(Item), [{"id": 10 * n + i, "plan_id": p, "title": "bulk"} for i in range(m)])
                elif path == "bulk update":
                    keys = session.scalars(sa.select(Item.id).order_by(Item.id)).all()
                    session.execute(sa.update(Item), [{"id": key, "title": f"{n}"} for key in keys]) if keys else None
                else:
                    mark = "?" if self.house.on_sqlite else "%s"
                    raw = session.connection().connection.cursor()
                    raw.executemany(f"update plan set title = {mark} where id = {mark}", [(f"{n}", p), (f"{m}", "p1")])
                session.commit()
        except (sa.exc.DBAPIError, psycopg.Error, sqlite3.Error):
            pass  # the same: locked, taken, or without a workspace

    # -- readers

    @rule(reader=READER, workspace=WORKSPACE)
    def read(self, reader: str, workspace: str) -> None:
        key = (reader, workspace)
        place = self.places.get(key, 0)
        batch = self.house.hub.blocking.batch(workspace, after=place, limit=2 if reader == "slow" else 1000)
        assert [event.revision for event in batch.events] == list(range(place + 1, batch.to.revision + 1))
        self.places[key] = batch.to.revision
        seen = self.seen.setdefault(key, [])
        seen += batch.events
        if batch.remaining == 0:  # what this reader has heard makes exactly the rows of its batch
            state: dict[Any, Any] = {}
            oracle.replay(seen, state, [])
            rows = {(workspace, row.entity_type, row.entity_id): row.values for row in batch.rows}
            assert rows.keys() == state.keys()
            for entity, values in state.items():
                assert {name: rows[entity][name] for name in values} == values

    # -- what must be true

    def check(self) -> None:
        wrong = self.house.mistakes()
        if self.house.on_sqlite:  # REPLACE tells nobody what it removed
            wrong = [mistake for mistake in wrong if not mistake.endswith("not None")]
        assert wrong == []

    def teardown(self) -> None:
        for writer, connection in self.writers.items():
            if self.in_transaction(writer):
                connection.execute("rollback")
            connection.close()
        self.check()
        for (_, workspace), seen in self.seen.items():
            log = oracle.events(self.house.hub, workspace)
            assert tuple(seen) == log[: len(seen)]


class PostgresMachine(LogMachine):
    statements = STATEMENTS
    _engine: sa.Engine | None = None

    def clear(self) -> None:
        self.house.run(
            "set local session_replication_role = replica",
            "truncate plan, item, tag, game",
            "truncate abreast.event, abreast.block, abreast.workspace, abreast.miss",
        )

    def connect(self) -> Any:
        return psycopg.connect(self.house.database.plain, autocommit=True, options="-c lock_timeout=5ms -c deadlock_timeout=10s")

    def in_transaction(self, writer: str) -> bool:
        return bool(self.writers[writer].info.transaction_status != psycopg.pq.TransactionStatus.IDLE)

    def failed(self, writer: str) -> None:
        connection = self.writers[writer]
        if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            names = self.savepoints[writer]
            connection.execute(f"rollback to {names[-1]}" if names else "rollback")

    def kill(self, connection: Any) -> None:
        self.house.value(f"select pg_terminate_backend({connection.info.backend_pid}, 5000)")
        connection.close()

    def engine(self) -> sa.Engine:
        if PostgresMachine._engine is None:
            PostgresMachine._engine = self.house.database.engine(connect_args={"options": "-c lock_timeout=5ms"})
        return PostgresMachine._engine


class SQLiteMachine(LogMachine):
    statements = STATEMENTS | ON_SQLITE
    _engine: sa.Engine | None = None

    def clear(self) -> None:
        self.house.run(
            *(f"delete from {table}" for table in ("tag", "item", "plan", "game")),
            *(f"delete from abreast_{table}" for table in ("event", "workspace", "miss")),
        )

    def connect(self) -> Any:
        made = sqlite3.connect(self.house.database.plain, isolation_level=None, timeout=0)
        made.execute("pragma foreign_keys = on")
        made.execute("pragma synchronous = off")
        return made

    def in_transaction(self, writer: str) -> bool:
        return bool(self.writers[writer].in_transaction)

    def failed(self, writer: str) -> None:
        """A statement that failed has taken itself back; the transaction goes on."""

    def kill(self, connection: Any) -> None:
        connection.close()

    def engine(self) -> sa.Engine:
        if SQLiteMachine._engine is None:
            made = self.house.database.engine()
            sa.event.listen(made, "connect", lambda raw, _: raw.execute("pragma busy_timeout = 0"))
            SQLiteMachine._engine = made
        return SQLiteMachine._engine


def _run(machine: type[LogMachine], database: Any, hubs: Any, examples: int) -> None:
    machine.house = build(database, hubs)
    machine._engine = None  # type: ignore[attr-defined]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_g1_g2_g3_random_programs_on_postgresql(postgres, hubs):
    _run(PostgresMachine, postgres, hubs, 15)


def test_g1_g2_g3_random_programs_on_sqlite(sqlite, hubs):
    _run(SQLiteMachine, sqlite, hubs, 35)
