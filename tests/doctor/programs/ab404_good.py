"""Whether a person is asked depends on the call alone, which is the same when the answer comes."""

from __future__ import annotations

import time
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

sent: list[str] = []
opened = time.monotonic()


def send(text: str) -> str:
    """Sends a letter to the customer.

    Args:
        text: What the letter says.
    """
    sent.append(text)
    return "sent"


class Model(FakeMessagesListChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Model:
        return self


def personal(request: Any) -> bool:
    return request.tool_call["args"]["text"].startswith("Dear")


call = {"name": "send", "args": {"text": "Dear Ada"}, "id": "c1", "type": "tool_call"}
graph = create_agent(
    Model(responses=[AIMessage("", tool_calls=[call]), AIMessage("Done.")]),
    [send],
    middleware=[HumanInTheLoopMiddleware({"send": {"allowed_decisions": ["approve", "reject"], "when": personal}})],
    checkpointer=InMemorySaver(),
)


def misbehaves() -> bool:
    """The person says no after a minute, and the letter is sent."""
    global opened
    sent.clear()
    config = {"configurable": {"thread_id": "t1"}}
    opened = time.monotonic()
    graph.invoke({"messages": [("user", "Write to Ada.")]}, config)
    opened -= 61  # a minute passes
    graph.invoke(Command(resume={"decisions": [{"type": "reject", "message": "No."}]}), config)
    return bool(sent)
