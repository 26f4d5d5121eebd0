"""A LangChain agent that stays in step with a row which somebody else changes. Runs offline: python examples/01_minimal.py"""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
import tempfile
from pathlib import Path

import sqlalchemy as sa
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import Abreast, RunContext, user
from abreast.testing import ScriptedModel


class Base(DeclarativeBase):
    pass


class Plan(Base):
    __tablename__ = "plan"
    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    move_in_date: Mapped[dt.date]


def newest_date(messages):
    """In place of a model: repeats the last date that stands in its request."""
    return "You move in on " + re.findall(r"\d{4}-\d\d-\d\d", "\n".join(message.text for message in messages))[-1]


with tempfile.TemporaryDirectory() as directory:
    path = Path(directory) / "app.db"
    engine = sa.create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)

    hub = Abreast(f"sqlite:///{path}")
    hub.track(Plan, workspace="workspace_id", record={"move_in_date"}, labels={"move_in_date": "move-in date"})
    hub.blocking.install()

    with Session(engine) as session, hub.attribute(session, actor=user("mina")):
        session.add(Plan(id="p1", workspace_id="w1", move_in_date=dt.date(2026, 9, 28)))
        session.commit()

    model = ScriptedModel(newest_date, newest_date)
    agent = create_agent(model, middleware=[hub.middleware()], context_schema=RunContext, checkpointer=InMemorySaver())
    context = RunContext(tenant="home", user="mina", workspace="w1")
    print(hub.blocking.run(agent, "When do I move in?", thread="b", context=context).answer)

    with sqlite3.connect(path) as elsewhere:  # any program, any SQL
        elsewhere.execute("update plan set move_in_date = '2026-09-30' where id = 'p1'")
    elsewhere.close()
    print(hub.blocking.standings("w1"))

    print(hub.blocking.run(agent, "When do I move in?", thread="b", context=context).answer)
    print(f"\nThe model received:\n{model.last_request}")
    hub.blocking.close()
    engine.dispose()
