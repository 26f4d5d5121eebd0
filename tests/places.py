"""A database that a test takes away, copies and puts back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url


@dataclass
class Place:
    """A database that can be taken away, copied and put back."""

    kind: str
    url: str

    @property
    def path(self) -> Path:
        return Path(str(make_url(self.url).database))

    def admin(self, *statements: str) -> None:
        engine = sa.create_engine(make_url(self.url).set(database="postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.format(name=make_url(self.url).database))
        engine.dispose()

    def copy(self) -> None:
        """Keeps a copy; nobody may be connected."""
        if self.kind == "postgresql":
            self.admin("create database {name}_copy template {name}")
            return
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(f"{self.path}.copy")) as target:
            source.backup(target)

    def restore(self) -> None:
        """Puts the copy in its place; nobody may be connected."""
        if self.kind == "postgresql":
            self.admin("drop database {name} with (force)", "alter database {name}_copy rename to {name}")
            return
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        Path(f"{self.path}.copy").replace(self.path)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nobody can use it: the server lets nobody in, or there is no file."""
        if self.kind == "postgresql":
            self.admin(
                "alter database {name} allow_connections false",
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'",
            )
            yield
            self.admin("alter database {name} allow_connections true")
            return
        hidden = Path(f"{self.path}.hidden")
        self.path.replace(hidden)
        yield
        hidden.replace(self.path)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """The store of checkpoints takes no more: the server lets nobody in, or the file is full."""
        if self.kind == "postgresql":
            with self.away():
                yield
            return
        with closing(sqlite3.connect(self.path, check_same_thread=False)) as raw:
            for table in ("checkpoints", "writes"):
                full = "begin select raise(abort, 'full'); end"
                raw.execute(f"create trigger full_{table} before insert on {table} {full}")
            raw.commit()
            yield
            for table in ("checkpoints", "writes"):
                raw.execute(f"drop trigger full_{table}")
            raw.commit()
