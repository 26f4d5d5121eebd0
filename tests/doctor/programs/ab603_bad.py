"""A loader reads through a connection of its own, while somebody writes."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import sqlalchemy as sa
from langchain.agents import create_agent
from sqlalchemy.orm import Session

from abreast import Abreast, RunContext
from abreast.testing import ScriptedModel

metadata = sa.MetaData()
plan = sa.Table("plan", metadata, sa.Column("id", sa.Text, primary_key=True), sa.Column("workspace_id", sa.Text))
url = f"sqlite:///{Path(mkdtemp()) / 'app.db'}"
engine = sa.create_engine(url)
metadata.create_all(engine)

hub = Abreast(url)
hub.track(plan, workspace="workspace_id", record="all")


def meanwhile() -> None:
    """What another user does between two reads."""
    with engine.begin() as connection:
        connection.execute(plan.delete())
        connection.execute(plan.insert().values(id="p_new", workspace_id="w1"))


@hub.loader
def plans(session: Session, workspace: str, context: Any) -> list[str]:
    meanwhile()
    with Session(engine) as own:  # finds AB603
        return list(own.scalars(sa.select(plan.c.id).where(plan.c.workspace_id == workspace)))


hub.blocking.install()
graph = create_agent(ScriptedModel(), middleware=[hub.middleware()], context_schema=RunContext)


def misbehaves() -> bool:
    """The batch has a plan of which its own log does not know yet."""
    with engine.begin() as connection:
        connection.execute(plan.delete())
        connection.execute(plan.insert().values(id="p_old", workspace_id="w1"))
    batch = hub.blocking.batch("w1")
    return batch.loaded["plans"] == ["p_new"] and batch.head.revision < hub.blocking.batch("w1").head.revision
