"""A hand-made LangGraph graph in step with the data. Runs offline: python examples/03_langgraph.py"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import tempfile
from pathlib import Path

import sqlalchemy as sa
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from abreast import Abreast, RunContext
from abreast.langgraph import SyncState
from abreast.testing import ScriptedModel

metadata = sa.MetaData()
plan = sa.Table(
    "plan",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("workspace_id", sa.Text),
    sa.Column("budget", sa.Integer),
)


class State(SyncState):
    """The graph's own state: messages and the mark come from SyncState, the rest is yours."""

    topic: str


def newest_budget(messages):
    """In place of a model: repeats the last budget that stands in its request."""
    return "The budget is " + re.findall(r'budget"?: (\d+)', "\n".join(message.text for message in messages))[-1]


def build(hub: Abreast, model: ScriptedModel):
    async def answer(state: State, config: RunnableConfig, runtime: Runtime[RunContext]):
        call = await hub.prepare(state, config, context=runtime.context)
        return await call.aanswered(await model.ainvoke(call.messages))

    graph = StateGraph(State, context_schema=RunContext)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=InMemorySaver())


async def main(path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{path}")
    metadata.create_all(engine)
    hub = Abreast(f"sqlite:///{path}")
    hub.track(plan, workspace="workspace_id", record={"budget"})
    await hub.install()

    model = ScriptedModel(newest_budget, newest_budget)
    graph, context = build(hub, model), RunContext(tenant="home", user="mina", workspace="w1")
    for budget in (3_500_000, 3_800_000):
        with sqlite3.connect(path) as elsewhere:  # any program, any SQL
            elsewhere.execute("insert or ignore into plan values ('p1', 'w1', 0)")
            elsewhere.execute("update plan set budget = ? where id = 'p1'", (budget,))
        elsewhere.close()
        result = await hub.run(graph, "What is the budget?", thread="b", context=context)
        print(result.answer, result.told)
    print(f"\nThe model received:\n{model.last_request}")
    await hub.close()
    engine.dispose()


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(main(Path(directory) / "app.db"))
