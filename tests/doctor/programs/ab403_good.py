"""A middleware behind the model jumps back to the model, and what the model says comes past the person."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, hook_config
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

sent: list[str] = []


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


class Again(AgentMiddleware):
    """Lets the model try again where the answer of a call is an error."""

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        last = state["messages"][-1]
        if isinstance(last, ToolMessage) and last.status == "error":
            return {"jump_to": "model"}
        return None


call = {"name": "send", "args": {"text": "Dear Ada"}, "id": "c1", "type": "tool_call"}
graph = create_agent(
    Model(responses=[AIMessage("", tool_calls=[call]), AIMessage("Done.")]),
    [send],
    middleware=[Again(), HumanInTheLoopMiddleware({"send": True})],
    checkpointer=InMemorySaver(),
)


def misbehaves() -> bool:
    """The person says no, and the letter is sent."""
    sent.clear()
    config = {"configurable": {"thread_id": "t1"}}
    graph.invoke({"messages": [("user", "Write to Ada.")]}, config)
    graph.invoke(Command(resume={"decisions": [{"type": "reject", "message": "No."}]}), config)
    return bool(sent)
