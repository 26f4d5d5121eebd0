"""Runs of a scripted agent that calls tools: what they answered, and how the data stands after it."""

from __future__ import annotations

import json

from langchain_core.messages import AIMessage
from sqlalchemy.orm import Session

from planner import CONTEXT, Item, Plan

ABSENT = "There is no plan '{}' here."


def ask(talk, *script, tools=None, context=CONTEXT, thread="t"):
    """One run in which the model makes these calls, one after the other. What the tools answered, parsed, with status."""
    talk.say(*script, "done")
    made = talk.hub.tools() if tools is None else tools
    result = talk.run(agent=talk.build(made), context=context, thread=thread)
    messages = result.state["messages"]
    begin = max(n for n, m in enumerate(messages) if m.type == "human")
    return [(json.loads(m.content), m.status) for m in messages[begin:] if m.type == "tool"]


def call(tool, *, call_id="c", **arguments):
    """Like `calls`, for tools with an argument `name`."""
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": call_id}])


def numbered(talk):
    """Lets the database number new items behind those that are there."""
    if talk.engine.dialect.name == "postgresql":
        talk.sql("select setval('item_id_seq', 99)")


def error(answer):
    """The text of an error answer."""
    told, status = answer
    assert status == "error", told
    return told["error"]


def read(talk, model=Plan, key="p1"):
    return talk.hub.blocking.row(model, key, "w1")


def events(talk, workspace="w1"):
    return talk.hub.blocking.history(workspace, limit=99)


def theirs(talk):
    """A plan of another workspace, with an item."""
    with Session(talk.engine) as session:
        session.add(Plan(id="q1", workspace_id="w2", title="theirs"))
        session.flush()
        session.add(Item(id=50, plan_id="q1", title="theirs"))
        session.commit()
