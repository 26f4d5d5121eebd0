"""A dozen tools with a line each; the manual is what they return when asked."""

from __future__ import annotations

import itertools
import json
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

WORDS = 1


class Model(GenericFakeChatModel):
    """A model that keeps the schemas that it is given."""

    given: ClassVar[list] = []

    def bind_tools(self, tools: Any, **options: Any) -> RunnableBinding:
        self.given.append([convert_to_openai_tool(one)["function"] for one in tools])
        return RunnableBinding(bound=self)


def made(number: int) -> StructuredTool:
    def run(query: str) -> str:
        return f"{number}: {query}"

    text = f"Part {number} of the product. " + "More of its manual. " * WORDS
    return StructuredTool.from_function(run, name=f"part_{number}", description=text)


tools = [made(number) for number in range(12)]
model = Model(messages=itertools.repeat(AIMessage("Here it is.")))
graph = create_agent(model, tools)


def misbehaves() -> bool:
    """One request carries more than 20,000 characters of schemas, before the first word of the conversation."""
    graph.invoke({"messages": [("user", "Hello!")]})
    return sum(len(json.dumps(one)) for one in model.given[-1]) > 20_000
