"""Workers for a test: processes that serve conversations and die on the way, and what is left of them in the database."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from abreast import Event
from leasing import lease, until
from serving import MINA, Desk
from worker import Application

HERE = Path(__file__).parent


class Worker:
    """One worker. It is `ready`."""

    def __init__(self, given: dict[str, Any], nursery: socket.socket) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(nursery, [json.dumps(given).encode()], [theirs.fileno()])
        ours.settimeout(60)
        self._socket = ours
        self._lines = ours.makefile("r")
        ready, pid = self.read().split()
        assert ready == "ready"
        self.pid = int(pid)

    def read(self) -> str:
        """The next line; empty when it has died."""
        with suppress(ConnectionResetError):
            return self._lines.readline().strip()
        return ""

    def expect(self, line: str) -> None:
        """The next line is this one."""
        assert self.read() == line

    def tell(self, line: str = "") -> None:
        """Sends a line."""
        self._socket.sendall(f"{line}\n".encode())

    def order(self, *order: Any) -> None:
        """Has it do something."""
        self.tell(json.dumps(order))

    def answer(self) -> Any:
        """What came of it; None where it died of it."""
        line = self.read()
        return json.loads(line) if line else None

    def do(self, *order: Any) -> Any:
        """`order`, and its `answer`."""
        self.order(*order)
        return self.answer()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def died(self) -> None:
        """Returns when it is dead, which nobody here brought about."""
        while self.read():
            pass

    def kill(self) -> None:
        """Kills it, and returns when it is dead."""
        with suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        while self.read():
            pass

    def freeze(self, writable: Callable[[], bool]) -> None:
        """Stops it as it is, and returns when it stands still; not while it is writing."""
        while True:
            self.signal(signal.SIGSTOP)
            until(lambda: _state(self.pid).startswith("T"))
            if writable():
                return
            self.signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        self._lines.close()
        self._socket.close()


def _state(pid: int) -> str:
    return subprocess.run(["ps", "-o", "state=", "-p", str(pid)], stdout=subprocess.PIPE, text=True).stdout.strip()


@contextmanager
def nursery() -> Iterator[socket.socket]:
    """A process that has loaded all that a worker needs, and forks them."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([sys.executable, str(HERE / "worker.py")], stdin=theirs)
    theirs.close()
    yield ours
    ours.close()
    assert process.wait(30) == 0


class Office(Desk):
    """A desk whose runs other processes execute, until the test itself starts its service. A lease lasts for ever: a process
    is found dead when `expire` says so, and not by how long it takes."""

    def __init__(self, database: Any, hubs: Any, door: Any, nursery: socket.socket, **options: Any) -> None:
        service: dict[str, Any] = dict(options.get("service", {}))
        given = {"lease_seconds": 600.0, "start": False, **options, "service": service}
        application = {
            name: given.pop(name) for name in ("policy", "tool", "middleware", "points", "checkpoints") if name in given
        }
        self.database, self.nursery, self.hubs = database, nursery, hubs
        self._given = given
        self._workers: list[Worker] = []

        def agent(desk: Desk) -> Any:
            self.application = Application(desk.hub, desk.engine, **application)
            service.update({**self.application.options(), **service})
            return self.application.agent

        super().__init__(database, hubs, door, agent=agent, **given)
        if given.get("fresh", True):
            key = "id integer primary key" if database.kind == "sqlite" else "id serial primary key"
            self.sql(f"create table visit ({key}, what text)")

    def worker(self, **given: Any) -> Worker:
        """A process that serves this desk's conversations."""
        made = Worker({"url": self.database.url, "lease_seconds": self._given["lease_seconds"], **given}, self.nursery)
        self._workers.append(made)
        return made

    def deployed(self, **options: Any) -> Office:
        """The same conversations in a new release of the application."""
        made = Office(self.database, self.hubs, self.door, self.nursery, fresh=False, **options)
        made._workers = self._workers
        return made

    def expire(self) -> None:
        """The leases of processes that are gone end, as time would end them."""
        moment = "0" if self.engine.dialect.name == "sqlite" else "'2000-01-01'"
        self.sql(
            f"update {self.table('lease')} set expires_at = {moment}",
            f"update {self.table('run')} set claimed_at = '2000-01-01T00:00:00.000Z' where claimed_at is not null",
        )

    def recover(self, thread: str, **options: Any) -> list[Event]:
        """The next process takes up what was left, in the test itself; what it then told."""
        self.expire()
        self.call("start")
        return self.settled(thread)

    def asked(self, text: str, **worker: Any) -> tuple[str, str]:
        """A new thread, and a run that a worker executes until a person must decide. Thread and approval."""
        thread = self.thread()
        self.call("send", MINA, thread, text)
        made = self.worker(**worker)
        self.parked(thread)
        made.kill()
        (approval,) = self.call("approvals", MINA, thread=thread).items
        return thread, approval.id

    def gone(self, table: str) -> Callable[[], None]:
        """Takes a table away, of the hub's or of the checkpoints. Returns what brings it back."""
        beside = table in ("checkpoints", "writes")
        name = table if beside else self.table(table)
        schema, _, plain = name.rpartition(".")
        back = f"alter table {schema}.gone rename to {plain}" if schema else f"alter table gone rename to {plain}"

        def do(statement: str) -> None:
            if beside and self.database.kind == "sqlite":
                with closing(sqlite3.connect(self.files()[1], timeout=30)) as raw:
                    raw.execute(statement)
            else:
                self.sql(statement)

        do(f"alter table {name} rename to gone")
        return lambda: do(back)

    def parked(self, thread: str) -> None:
        """Returns when the thread waits for a decision, and nobody holds it."""
        until(lambda: self.status(thread)[0] == "awaiting_approval" and lease(self.engine, thread).run is None)

    def status(self, thread: str) -> list[str]:
        """The status of each run of a thread, oldest first."""
        return [s for (s,) in self.rows(f"select status from {self.table('run')} where thread = '{thread}' order by number")]

    def attempts(self, thread: str) -> list[int]:
        """How often each run of a thread was begun, oldest first."""
        return [n for (n,) in self.rows(f"select attempts from {self.table('run')} where thread = '{thread}' order by number")]

    def approvals(self, thread: str) -> list[str]:
        """The status of each approval of a thread, oldest first."""
        found = self.rows(f"select status from {self.table('approval')} where thread = '{thread}' order by created_at, approval")
        return [status for (status,) in found]

    def title(self) -> str:
        """The title of the plan, which `rename` writes."""
        return str(self.rows("select title from plan where id = 'p1'")[0][0])

    def changes(self) -> int:
        """How often the plan or its items changed since they were made."""
        return int(self.rows(f"select count(*) from {self.table('event')} where workspace = 'w1'")[0][0]) - 3

    def visits(self) -> list[str]:
        """What was done in somebody else's system."""
        return [what for (what,) in self.rows("select what from visit order by id")]

    def everything(self) -> dict[str, list[str]]:
        """Every row of every table: the product's, ours, and those of the checkpoints; but for who may write, which changes
        when somebody asks."""
        found = self._everything()
        return {name: rows for name, rows in found.items() if not name.endswith(("lease", "fence"))}

    def _everything(self) -> dict[str, list[str]]:
        if self.database.kind == "postgresql":
            tables = "select schemaname || '.' || tablename from pg_tables where schemaname in ('public', 'abreast')"
            return {name: sorted(map(str, self.rows(f"select * from {name}"))) for (name,) in self.rows(tables)}
        found = {}
        for path in self.files():
            with closing(sqlite3.connect(path)) as raw:
                for (name,) in raw.execute("select name from sqlite_master where type = 'table'").fetchall():
                    found[f"{path.name} {name}"] = sorted(map(str, raw.execute(f"select * from {name}").fetchall()))
        return found

    def files(self) -> tuple[Path, Path]:
        """SQLite: the file of the hub and the product, and that of the checkpoints."""
        return self.database.path, self.database.path.with_name("app.checkpoints.db")

    def writable(self) -> bool:
        """Whether nobody holds the write lock of a SQLite file."""
        if self.database.kind == "postgresql":
            return True
        for path in self.files():
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as raw:
                try:
                    raw.execute("begin immediate")
                except sqlite3.OperationalError:
                    return False
                raw.execute("rollback")
        return True

    def close(self) -> None:
        """Kills the workers, and ends the service where it was started."""
        for worker in self._workers:
            worker.close()
        super().close()


def durable(events: list[Event]) -> list[Event]:
    """Without the previews."""
    return [event for event in events if event.id is not None]


def stretches(told: list[Event]) -> list[str]:
    """How each stretch of a stream ended, by its one `done`. The events are in order, nothing stands behind the last `done`."""
    events = durable(told)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "done"
    return [event.data["status"] for event in events if event.type == "done"]


def types(events: list[Event]) -> list[str]:
    """The types of events, without those that say little here."""
    return [event.type for event in durable(events) if event.type not in ("stage.changed", "conversation.updated")]
