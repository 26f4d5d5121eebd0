"""An assistant in a FastAPI application: its writes wait for a person. Runs offline: python examples/02_fastapi.py"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import tempfile

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, Request
from langchain.agents import create_agent
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import Abreast, Caller, RunContext, Thread, user
from abreast.server import router
from abreast.testing import ScriptedModel, calls


class Base(DeclarativeBase):
    pass


class Plan(Base):
    __tablename__ = "plan"
    id: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    move_in_date: Mapped[dt.date]


TOKENS = {"token-of-mina": Caller("home", "mina"), "token-of-junho": Caller("home", "junho", frozenset({"approver"}))}
MEMBERS = {"w1": {"mina", "junho"}}


def assistant(messages):
    """In place of a model: it reads the plan, asks for the change that it was asked for, and says what came of it."""
    last = messages[-1]
    if last.type == "human":
        return calls("get_plan", id="p1")
    if last.name == "update_plan":
        return f"This came of it: {last.text.splitlines()[0]}"
    question = next(message.text for message in reversed(messages) if message.type == "human")
    (date,) = re.findall(r"\d{4}-\d\d-\d\d", question)[:1] or ["2026-09-30"]
    version = json.loads(last.text.split("\n\n")[0])["version"]
    return calls("update_plan", id="p1", version=version, move_in_date=date)


def context(thread: Thread, who: str) -> RunContext | None:
    """Asked anew at every attempt and every resume: what this person may use now."""
    return RunContext(thread.tenant, who, thread.workspace) if who in MEMBERS.get(thread.workspace, ()) else None


async def authenticate(request: Request) -> Caller | None:
    return TOKENS.get(request.headers.get("authorization", "").removeprefix("Bearer "))


directory = tempfile.TemporaryDirectory()
engine = sa.create_engine(f"sqlite:///{directory.name}/app.db")
Base.metadata.create_all(engine)
hub = Abreast(f"sqlite:///{directory.name}/app.db")
hub.track(Plan, workspace="workspace_id", record={"move_in_date"}, labels={"move_in_date": "move-in date"})
hub.blocking.install()
with Session(engine) as session, hub.attribute(session, actor=user("mina")):
    session.add(Plan(id="p1", workspace_id="w1", move_in_date=dt.date(2026, 9, 28)))
    session.commit()

agent = create_agent(
    ScriptedModel(*[assistant] * 1000),
    hub.tools(Plan),  # those that write ask a person
    middleware=[hub.middleware()],
    context_schema=RunContext,
    checkpointer=hub.checkpointer(),
)
app = FastAPI(title="Planner")
app.include_router(router(hub.service(agent, context=context), authenticate), prefix="/assistant")


@app.get("/plans/{plan_id}")
def plan(plan_id: str) -> dict[str, str]:
    """A page of the product's own."""
    with Session(engine) as session:
        return {"move_in_date": session.get_one(Plan, plan_id).move_in_date.isoformat()}


if __name__ == "__main__":
    # Then, for example:
    # curl -H "Authorization: Bearer token-of-mina" -H "Content-Type: application/json" \
    #     -d '{"workspace": "w1"}' http://localhost:8000/assistant/threads
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=5)
