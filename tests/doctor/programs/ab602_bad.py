"""A table is tracked since today, and the triggers are of yesterday."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import sqlalchemy as sa
from langchain.agents import create_agent

from abreast import Abreast, CaptureOutdatedError, RunContext
from abreast.testing import ScriptedModel

metadata = sa.MetaData()
plan = sa.Table("plan", metadata, sa.Column("id", sa.Text, primary_key=True), sa.Column("workspace_id", sa.Text))
item = sa.Table("item", metadata, sa.Column("id", sa.Text, primary_key=True), sa.Column("workspace_id", sa.Text))
url = f"sqlite:///{Path(mkdtemp()) / 'app.db'}"
engine = sa.create_engine(url)
metadata.create_all(engine)

yesterday = Abreast(url)
yesterday.track(plan, workspace="workspace_id", record="all")
yesterday.blocking.install()
yesterday.blocking.close()

hub = Abreast(url)
hub.track(plan, workspace="workspace_id", record="all")
hub.track(item, workspace="workspace_id", record="all")  # finds AB602
graph = create_agent(ScriptedModel(), middleware=[hub.middleware()], context_schema=RunContext)


def misbehaves() -> bool:
    """The new item is in no log, and the next run stops."""
    with engine.begin() as connection:
        connection.execute(item.delete())
        connection.execute(item.insert().values(id="i_1", workspace_id="w1"))
    context = RunContext(tenant="home", user="mina", workspace="w1")
    try:
        graph.invoke({"messages": [("user", "What is left to do?")]}, context=context)
    except CaptureOutdatedError:
        return True
    return False
