"""The product that is measured: one table twice, `tracked` under watch and `plain` not, with a hub on their database."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy as sa

from abreast import Abreast
from abreast.types import Position
from benchmarks.databases import Database

metadata = sa.MetaData()


def _table(name: str) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.Text, nullable=False, index=True),
        sa.Column("move_in", sa.Date),
        sa.Column("memo", sa.Text),
        sa.Column("rrn", sa.Text),
        sa.Column("n", sa.Integer, server_default="0"),
        sa.Column("version", sa.Integer, server_default="1"),
    )


tracked, plain = _table("tracked"), _table("plain")

WORKSPACE = "w1"


def rows(number: int, *, workspace: str | None = WORKSPACE, memo: str = "two rooms, second floor, near the station") -> list[Any]:
    """So many rows; each in a workspace of its own where `workspace` is None. Their ids sort as their numbers do."""
    return [
        {
            "id": f"row{index:05}",
            "workspace_id": workspace or f"workspace{index:05}",
            "move_in": dt.date(2026, 9, 1) + dt.timedelta(days=index % 28),
            "memo": memo,
            "rrn": f"900101-{index:07}",
            "n": 0,
            "version": 1,
        }
        for index in range(number)
    ]


@dataclass(frozen=True)
class Product:
    """The two tables on one database, capture installed, and the hub that tracks `tracked`."""

    database: Database
    hub: Abreast
    engine: sa.Engine

    @property
    def id_parameter(self) -> str:
        """A parameter of a statement, as the plain driver writes it."""
        return "%s" if self.database.kind == "postgresql" else "?"

    def fill(self, contents: Iterable[Any]) -> None:
        """Puts the same rows into both tables."""
        listed = list(contents)
        with self.engine.begin() as connection:
            connection.execute(sa.insert(tracked), listed)
            connection.execute(sa.insert(plain), listed)

    def change(self, number: int, *, of: int = 200) -> None:
        """So many changes of single rows, each in a transaction of its own, over `of` rows."""
        with self.connect() as connection:
            for index in range(number):
                connection.execute(
                    f"update tracked set n = n + 1, move_in = '2026-10-{index % 28 + 1:02}' where id = 'row{index % of:05}'"
                )

    def head(self, workspace: str = WORKSPACE) -> Position:
        """HEAD of a workspace."""
        return self.hub.blocking.batch(workspace, limit=1).head

    def tidy(self) -> None:
        """Brings tables, log and statistics into the state that a database at rest has."""
        with self.connect() as connection:
            connection.execute("vacuum analyze" if self.database.kind == "postgresql" else "analyze")

    @contextmanager
    def connect(self, *, durable: bool = True) -> Iterator[Any]:
        """A connection of the plain driver, in autocommit; commits wait for the disk if `durable`."""
        if self.database.kind == "sqlite":
            with closing(sqlite3.connect(self.database.plain, isolation_level=None, timeout=10)) as connection:
                connection.execute(f"pragma synchronous = {'full' if durable else 'off'}")
                yield connection
            return
        with psycopg.connect(self.database.plain, autocommit=True) as connection:
            connection.execute(f"set synchronous_commit = {'on' if durable else 'off'}")
            yield connection


def declared(url: str, **options: Any) -> Abreast:
    """A hub that tracks `tracked`."""
    hub = Abreast(url, **options)
    hub.track(tracked, workspace="workspace_id", record={"move_in", "n"})
    return hub


@contextmanager
def product(database: Database, contents: Iterable[Any] = (), **options: Any) -> Iterator[Product]:
    """A product on a fresh database, filled with `contents`, with capture installed; `options` are the hub's."""
    engine = database.engine()
    hub = declared(database.url, **options)
    try:
        metadata.create_all(engine)
        hub.blocking.install()
        made = Product(database, hub, engine)
        listed = list(contents)
        if listed:
            made.fill(listed)
        made.tidy()
        yield made
    finally:
        hub.blocking.close()
        engine.dispose()
