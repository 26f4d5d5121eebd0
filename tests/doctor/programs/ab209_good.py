"""A dynamic prompt writes the state's value into each request."""

from __future__ import annotations

from typing import Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import ModelRequest, dynamic_prompt
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage

PROMPTS: list[str] = []


class Model(FakeListChatModel):
    def _call(self, messages: list[Any], *args: Any, **kwargs: Any) -> str:
        PROMPTS.append(str(messages[0].content))
        return super()._call(messages, *args, **kwargs)


class State(AgentState):
    plan: str


@dynamic_prompt
def prompt(request: ModelRequest) -> str:
    return "Keep to this plan: " + request.state["plan"]


model = Model(responses=["Fine."])
graph = create_agent(model, middleware=[prompt], state_schema=State)


def misbehaves() -> bool:
    """The model reads the braces and not the plan."""
    graph.invoke({"messages": [HumanMessage("What is next?")], "plan": "paint the door"})
    return PROMPTS[-1] != "Keep to this plan: paint the door"
