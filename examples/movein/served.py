"""The planner as a service: conversations, approvals and streams over HTTP.

abreast serve examples.movein.served:hub --dev

The rows stand in `movein-service/planner.db`, or in the database that ABREAST_DATABASE names by its URL; an empty one is
filled. The language of the rows is the locale's. `--dev` believes whoever asks and answers this machine only; without it
every request is refused, because this example knows no passwords.
"""

from __future__ import annotations

import os
from pathlib import Path

import sqlalchemy as sa
from langchain.agents import create_agent

from abreast import Abreast, Policy, RunContext, Thread

from . import actions, policy
from .agent import PROMPT, WRITER, open_hub, open_model
from .models import Plan
from .seed import fill
from .words import of_locale

HOUSEHOLDS = {
    ("home", "seongsu"): {"mina": policy.HOUSEHOLD, "junho": policy.HOUSEHOLD, "mover": frozenset[str]()},
    ("home", "parents"): {"junho": policy.HOUSEHOLD},
}
"""Who lives where: for each workspace of each tenant its people and what they may do. A product has a table for it."""

DIRECTORY = Path("movein-service")
DAY = 24 * 3600.0

POLICIES = {
    "update_plan": "ask",
    "create_checklist_item": "allow",
    "update_checklist_item": "allow",
    # A thing that is deleted is gone, and the question is forgotten after a day.
    "delete_checklist_item": Policy("ask", expires=DAY),
}
"""What a person must be asked before. Tools that are not named here, and write, ask too: the contacts'."""


def context(thread: Thread, user: str) -> RunContext | None:
    """The run context, from the household's rights as they are now: asked at each attempt and each resume."""
    rights = HOUSEHOLDS.get((thread.tenant, thread.workspace), {}).get(user)
    if rights is None:
        return None
    return RunContext(tenant=thread.tenant, user=user, workspace=thread.workspace, permissions=rights)


def open_service(database: str, language: str) -> Abreast:
    """The hub with its service, over a database that is filled where it is empty."""
    made = open_hub(database, language, approvals="writes")
    engine = sa.create_engine(database)
    if sa.inspect(engine).has_table(Plan.__tablename__):
        made.blocking.install()
    else:
        fill(engine, made, language)
    engine.dispose()
    assistant = create_agent(
        open_model(),
        tools=[
            *made.tools(write=policy.WRITE_TOOLS, actor=WRITER, policy=POLICIES),
            made.tool(
                permission="plan",
                actor=WRITER,
                policy="ask",
                # What the question is about: it is asked anew if the plan changes, not if a box is ticked.
                touches=lambda context, arguments: [(Plan, arguments["plan_id"])],
            )(actions.postpone_move),
        ],
        system_prompt=PROMPT,
        middleware=[made.middleware()],
        context_schema=RunContext,
        checkpointer=made.checkpointer(),
    )
    made.service({"planner": assistant}, context=context, on_busy="enqueue")
    return made


def database_of_environment() -> str:
    """The URL in ABREAST_DATABASE, or that of a SQLite file in a directory of its own."""
    named = os.environ.get("ABREAST_DATABASE", "").strip()
    if named:
        return named
    DIRECTORY.mkdir(exist_ok=True)
    return f"sqlite:///{DIRECTORY / 'planner.db'}"


hub = open_service(database_of_environment(), of_locale())
