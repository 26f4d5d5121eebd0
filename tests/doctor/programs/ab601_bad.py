"""A prompt behind abreast's middleware takes the place of what abreast has said."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langgraph.checkpoint.memory import InMemorySaver

from abreast import Abreast, RunContext
from abreast.testing import ScriptedModel

metadata = sa.MetaData()
plan = sa.Table("plan", metadata, sa.Column("id", sa.Text, primary_key=True), sa.Column("workspace_id", sa.Text))
url = f"sqlite:///{Path(mkdtemp()) / 'app.db'}"
engine = sa.create_engine(url)
metadata.create_all(engine)
hub = Abreast(url, placement="system")
hub.track(plan, workspace="workspace_id", record="all")
hub.blocking.install()


@dynamic_prompt
def polite(request: Any) -> str:
    return "Be polite."


model = ScriptedModel()
graph = create_agent(  # finds AB601
    model,
    middleware=[hub.middleware(), polite],
    context_schema=RunContext,
    checkpointer=InMemorySaver(),
)


def misbehaves() -> bool:
    """The model is asked about a plan that it cannot see."""
    with engine.begin() as connection:
        connection.execute(plan.delete())
        connection.execute(plan.insert().values(id="p_4711", workspace_id="w1"))
    context = RunContext(tenant="home", user="mina", workspace="w1")
    with warnings.catch_warnings(action="ignore"):  # abreast says it too, in the first call
        graph.invoke({"messages": [("user", "Which plan?")]}, {"configurable": {"thread_id": "t1"}}, context=context)
    return "p_4711" not in "".join(message.text for message in model.requests[-1])
