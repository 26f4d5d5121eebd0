"""The product that most tests are about: plans, their checklists and contacts, as an application would declare them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import Abreast, RunContext, user, via


class Base(DeclarativeBase):
    pass


class Plan(Base):
    __tablename__ = "plan"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)
    workspace_id: Mapped[str] = mapped_column(sa.String(40), index=True)
    title: Mapped[str] = mapped_column(sa.Text, default="")
    move_in_date: Mapped[dt.date | None]
    budget: Mapped[Decimal | None] = mapped_column(sa.Numeric(10, 2))
    resident_number: Mapped[str | None]


class Item(Base):
    __tablename__ = "item"
    id: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[str] = mapped_column(sa.ForeignKey("plan.id", ondelete="CASCADE", onupdate="CASCADE"), index=True)
    title: Mapped[str] = mapped_column(sa.Text)
    done: Mapped[bool] = mapped_column(default=False)


class Contact(Base):
    __tablename__ = "contact"
    id: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[str] = mapped_column(sa.ForeignKey("plan.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    phone: Mapped[str | None]


def declare(hub: Abreast, **plan: Any) -> Abreast:
    """Tracks the three tables on a hub; `plan` are further options of the plan's."""
    options: dict[str, Any] = {
        "workspace": "workspace_id",
        "record": {"title", "move_in_date", "budget"},
        "redact": {"resident_number"},
        "labels": {"move_in_date": "입주일"},
    }
    hub.track(Plan, **{**options, **plan})
    hub.track(Item, workspace=via("plan_id", Plan), record="all")
    hub.track(Contact, workspace=via("plan_id", Plan), record={"name"}, redact={"phone"})
    return hub


def planner(database: Any, hubs: Callable[..., Abreast], **options: Any) -> tuple[Abreast, sa.Engine]:
    """A hub on a database with the product's tables, one plan of workspace w1 and two items; everything installed."""
    plan = options.pop("plan", {})
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = declare(hubs(database, **options), **plan)
    hub.blocking.install()
    with Session(engine) as session, hub.attribute(session, actor=user("u_1")):
        session.add(Plan(id="p1", workspace_id="w1", title="Mapo", move_in_date=dt.date(2026, 9, 28), budget=Decimal("1200.50")))
        session.flush()
        session.add_all([Item(id=1, plan_id="p1", title="internet"), Item(id=2, plan_id="p1", title="gas")])
        session.commit()
    return hub, engine


CONTEXT = RunContext(tenant="t1", user="u_1", workspace="w1")
