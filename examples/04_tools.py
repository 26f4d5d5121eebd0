"""Tools that never overwrite a person: a conflict, its answer, and a function of one's own as a tool.

Runs offline: python examples/04_tools.py
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import tempfile
from pathlib import Path

import sqlalchemy as sa
from langchain.agents import create_agent
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import Abreast, RunContext, Transaction, Writable, agent, user
from abreast.testing import ScriptedModel, calls


class Base(DeclarativeBase):
    pass


class Plan(Base):
    __tablename__ = "plan"
    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    move_in_date: Mapped[dt.date]
    lift_booked: Mapped[dt.date | None]


def may_change(context: RunContext) -> Writable | bool:
    """The write rule: whoever may plan changes the date, and nothing else."""
    return "plan" in context.permissions and Writable({"update"}, fields={"move_in_date"})


def book_lift(plan_id: str, tx: Transaction) -> dict[str, str]:
    """Book the lift for the day of the move. Example: {"plan_id": "p1"} -> {"lift_booked": "2026-09-30"}."""
    plan = tx.get(Plan, plan_id)
    plan.lift_booked = plan.move_in_date
    return {"lift_booked": plan.lift_booked.isoformat()}


with tempfile.TemporaryDirectory() as directory:
    path = Path(directory) / "app.db"
    engine = sa.create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    hub = Abreast(f"sqlite:///{path}")
    hub.track(Plan, workspace="workspace_id", record={"move_in_date", "lift_booked"}, writable=may_change)
    hub.blocking.install()
    with Session(engine) as session, hub.attribute(session, actor=user("mina")):
        session.add(Plan(id="p1", workspace_id="w1", move_in_date=dt.date(2026, 9, 28)))
        session.commit()

    def answers(messages):
        """What the tools have answered so far; behind the last answer stands the block."""
        return [json.loads(message.text.split("\n\n")[0]) for message in messages if message.type == "tool"]

    def meanwhile(messages):
        """In place of a model: it has read the row, somebody changes it, and then its own change goes out."""
        with sqlite3.connect(path) as elsewhere:  # any program, any SQL
            elsewhere.execute("update plan set move_in_date = '2026-10-01' where id = 'p1'")
        elsewhere.close()
        return calls("update_plan", id="p1", version=answers(messages)[-1]["version"], move_in_date="2026-10-02")

    def again(messages):
        """In place of a model: it has seen what stands there now, and still wants its change."""
        return calls("update_plan", id="p1", version=answers(messages)[-1]["current"]["version"], move_in_date="2026-10-02")

    model = ScriptedModel(calls("get_plan", id="p1"), meanwhile, again, calls("book_lift", plan_id="p1"), "It is done.")
    writer = agent("assistant")
    tools = [
        # What writes asks a person first, unless a policy frees it.
        *hub.tools(Plan, write={"update_plan"}, actor=writer, policy={"update_plan": "allow"}),
        hub.tool(permission="plan", actor=writer, policy="allow")(book_lift),
    ]
    assistant = create_agent(
        model, tools, middleware=[hub.middleware()], context_schema=RunContext, checkpointer=hub.checkpointer()
    )
    context = RunContext(tenant="home", user="mina", workspace="w1", permissions={"plan"})
    result = hub.blocking.run(assistant, "Move to 2 October and book the lift.", thread="b", context=context)
    for message in result.state["messages"]:
        for call in getattr(message, "tool_calls", ()):
            print(f"\n{call['name']}({', '.join(f'{name}={value!r}' for name, value in call['args'].items())})")
        if message.type == "tool":
            print(message.text)
    print(f"\n{result.answer}\n")
    for change in reversed(hub.blocking.history("w1")):
        print(f"r{change.revision} {change.op} by {change.actor.type} {change.actor.id or ''}: {dict(change.values)}")
    hub.blocking.close()
    engine.dispose()
