"""Two tools with one description and the same parameters."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.utils.function_calling import convert_to_openai_tool


class Model(GenericFakeChatModel):
    """A model that keeps the schemas that it is given."""

    given: ClassVar[list] = []

    def bind_tools(self, tools: Any, **options: Any) -> RunnableBinding:
        self.given.append([convert_to_openai_tool(one)["function"] for one in tools])
        return RunnableBinding(bound=self)


@tool
def find_note(text: str) -> str:
    """Searches the documents for a text."""
    return f"notes with {text}"


@tool
def find_page(text: str) -> str:  # finds AB312
    """Searches the documents for a text."""
    return f"pages with {text}"


model = Model(messages=itertools.repeat(AIMessage("Here it is.")))
graph = create_agent(model, [find_note, find_page])


def misbehaves() -> bool:
    """Without the names, nothing in what the model reads differs."""
    graph.invoke({"messages": [("user", "Find the plan.")]})
    first, second = model.given[-1]
    return first | {"name": ""} == second | {"name": ""}
