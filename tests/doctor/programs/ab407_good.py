"""The class that asks has a new name, and its node keeps the old one."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

sent: list[str] = []
saver = InMemorySaver()
config: Any = {"configurable": {"thread_id": "t1"}}


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


class Gate(HumanInTheLoopMiddleware):
    """Of today; yesterday it was LangChain's own class."""

    @property
    def name(self) -> str:
        return "HumanInTheLoopMiddleware"


def agent(gate: HumanInTheLoopMiddleware) -> Any:
    call = {"name": "send", "args": {"text": "Dear Ada"}, "id": "c1", "type": "tool_call"}
    model = Model(responses=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])
    return create_agent(model, [send], middleware=[gate], checkpointer=saver)


graph = agent(Gate({"send": True}))


def thread() -> tuple[InMemorySaver, str]:
    saver.delete_thread("t1")
    yesterday = agent(HumanInTheLoopMiddleware({"send": True}))
    yesterday.invoke({"messages": [("user", "Write to Ada.")]}, config)
    return saver, "t1"


def misbehaves() -> bool:
    """The person says yes, and nothing happens."""
    sent.clear()
    thread()
    graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    return not sent
