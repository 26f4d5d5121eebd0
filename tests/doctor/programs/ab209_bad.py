"""The system prompt names a key of the state, and nobody fills it in."""

from __future__ import annotations

from typing import Any

from langchain.agents import AgentState, create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage

PROMPTS: list[str] = []


class Model(FakeListChatModel):
    def _call(self, messages: list[Any], *args: Any, **kwargs: Any) -> str:
        PROMPTS.append(str(messages[0].content))
        return super()._call(messages, *args, **kwargs)


class State(AgentState):
    plan: str  # finds AB209


model = Model(responses=["Fine."])
graph = create_agent(model, system_prompt="Keep to this plan: {plan}", state_schema=State)


def misbehaves() -> bool:
    """The model reads the braces and not the plan."""
    graph.invoke({"messages": [HumanMessage("What is next?")], "plan": "paint the door"})
    return PROMPTS[-1] != "Keep to this plan: paint the door"
