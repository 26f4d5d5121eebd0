"""A product whose tables have all that capture must cope with: several kinds of keys, paths and cascades."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import oracle
from abreast import Abreast, ChangeEvent, constant, via
from oracle import Watched


class Base(DeclarativeBase):
    pass


class Plan(Base):
    """Its workspace is a column."""

    __tablename__ = "plan"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    workspace_id: Mapped[str | None] = mapped_column(sa.String(40), index=True)
    title: Mapped[str | None] = mapped_column(sa.Text)
    move_in_date: Mapped[dt.date | None]
    budget: Mapped[Decimal | None] = mapped_column(sa.Numeric(10, 2))
    details: Mapped[Any] = mapped_column(sa.JSON, nullable=True)
    secret: Mapped[str | None]
    remark: Mapped[str | None]


class Item(Base):
    """Its workspace is its plan's; it goes and is renamed with its plan."""

    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[str] = mapped_column(sa.ForeignKey("plan.id", ondelete="CASCADE", onupdate="CASCADE"), index=True)
    title: Mapped[str] = mapped_column(sa.Text)
    done: Mapped[bool] = mapped_column(default=False)


class Tag(Base):
    """Two key columns, two steps to its workspace; it stays, without one, when its item goes."""

    __tablename__ = "tag"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    item_id: Mapped[int | None] = mapped_column(sa.ForeignKey("item.id", ondelete="SET NULL", onupdate="CASCADE"), index=True)
    color: Mapped[str | None]


class Game(Base):
    """Public to all, in one constant workspace, with a version column of the application's own."""

    __tablename__ = "game"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    score: Mapped[Decimal | None] = mapped_column(sa.Numeric(5, 2))
    version: Mapped[int | None]


WATCHED = (
    Watched(
        Plan.__table__,
        recorded={"id", "workspace_id", "title", "move_in_date", "budget", "details"},
        workspace=lambda row, find: row["workspace_id"],
    ),
    Watched(
        Item.__table__, recorded={"id", "plan_id", "title", "done"}, workspace=lambda row, find: _of_plan(row["plan_id"], find)
    ),
    Watched(Tag.__table__, recorded={"color"}, workspace=lambda row, find: _of_item(row["item_id"], find)),
    Watched(Game.__table__, recorded={"id", "score", "version"}, workspace=lambda row, find: "league"),
)


def _of_plan(plan_id: Any, find: Callable[..., Any]) -> str | None:
    plan = find("plan", plan_id)
    return plan["workspace_id"] if plan else None


def _of_item(item_id: Any, find: Callable[..., Any]) -> str | None:
    item = find("item", item_id)
    return _of_plan(item["plan_id"], find) if item else None


def declare(hub: Abreast) -> Abreast:
    """Tracks all four tables."""
    hub.track(Plan, workspace="workspace_id", record=WATCHED[0].recorded, redact={"secret"})
    hub.track(Item, workspace=via("plan_id", Plan), record="all")
    hub.track(Tag, workspace=via("item_id", Item), record={"color"}, without_workspace="record")
    hub.track(Game, workspace=constant("league"), record="all", version="version")
    return hub


@dataclass
class House:
    """An installed house: its hub, an engine of the application's, and what the log says."""

    database: Any
    hub: Abreast
    engine: sa.Engine
    watched: Sequence[Watched] = WATCHED
    _heard: dict[str, int] = field(default_factory=dict)

    @property
    def on_sqlite(self) -> bool:
        return bool(self.database.kind == "sqlite")

    def run(self, *statements: str) -> None:
        """Runs SQL text in one transaction, as it is."""
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def value(self, query: str) -> Any:
        """The first column of the first row."""
        with self.engine.connect() as connection:
            return connection.exec_driver_sql(query).scalar()

    def own(self, table: str) -> str:
        """The name of one of abreast's tables."""
        return f"abreast_{table}" if self.on_sqlite else f"abreast.{table}"

    def events(self) -> list[ChangeEvent]:
        """The events since the last call, by workspace and revision."""
        found = [
            event
            for workspace in oracle.heads(self)
            for event in oracle.events(self.hub, workspace, after=self._heard.get(workspace, 0))
        ]
        self._heard.update({event.workspace: event.revision for event in found})
        return found

    def news(self) -> list[str]:
        """The events since the last call in words: workspace, operation, entity and, of an update, its fields."""
        return [
            " ".join([event.workspace, event.op, event.entity_type, event.entity_id, *sorted(event.fields)])
            for event in self.events()
        ]

    def mistakes(self) -> list[str]:
        """What is wrong between rows and log; see `oracle.mistakes`."""
        return oracle.mistakes(self)


def build(database: Any, hubs: Callable[..., Abreast], **options: Any) -> House:
    """A house with empty tables, installed."""
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = declare(hubs(database, **options))
    hub.blocking.install()
    return House(database, hub, engine)


def furnish(house: House) -> None:
    """Two plans in w1 and one in w2, with items and tags; nothing of it is news any more."""
    house.run(
        "insert into plan (id, workspace_id, title) values ('p1', 'w1', 'one'), ('p2', 'w1', 'two'), ('p3', 'w2', 'three')",
        "insert into item (id, plan_id, title, done) values (1, 'p1', 'internet', false), (2, 'p1', 'gas', false)",
        "insert into item (id, plan_id, title, done) values (3, 'p3', 'keys', false)",
        "insert into tag (number, name, item_id, color) values (1, 'a', 1, 'red'), (2, 'b', 1, 'blue'), (1, 'c', 3, 'red')",
    )
    house.news()
