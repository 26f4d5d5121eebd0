"""The product's rows: a plan for each workspace, its checklist and its contacts. Nothing here knows of abreast."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Plan(Base):
    """One household's move. `status` is preparing, confirmed, moved or cancelled.

    `door_code` opens the new front door and is nobody's business but the household's.
    """

    __tablename__ = "plan"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    workspace_id: Mapped[str] = mapped_column(sa.String(40), index=True)
    title: Mapped[str]
    status: Mapped[str] = mapped_column(sa.String(20), default="preparing")
    move_in_date: Mapped[dt.date | None]
    budget: Mapped[int | None]
    old_address: Mapped[str | None]
    new_address: Mapped[str | None]
    door_code: Mapped[str | None]


class ChecklistItem(Base):
    """One thing to do before or after the move."""

    __tablename__ = "checklist_item"
    id: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[str] = mapped_column(sa.ForeignKey("plan.id", ondelete="CASCADE"), index=True)
    title: Mapped[str]
    due_on: Mapped[dt.date | None]
    done: Mapped[bool] = mapped_column(default=False)


class Contact(Base):
    """Somebody to call. `shared` contacts may be seen by helpers from outside, such as the movers."""

    __tablename__ = "contact"
    id: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[str] = mapped_column(sa.ForeignKey("plan.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    role: Mapped[str]
    phone: Mapped[str | None]
    shared: Mapped[bool] = mapped_column(default=False)


def database_file(directory: Path) -> Path:
    """The product's database in the demo's directory."""
    return directory / "planner.db"


def open_engine(directory: Path) -> sa.Engine:
    """The product's own engine, foreign keys on."""
    engine = sa.create_engine(f"sqlite:///{database_file(directory)}")

    @sa.event.listens_for(engine, "connect")
    def _connect(raw: Any, _: Any) -> None:
        raw.execute("pragma foreign_keys = on")

    return engine
