"""Programs for the doctor that are too small for a file of their own: the text of a module, with the imports in common."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from doctor_programs import program

IMPORTS = """
from __future__ import annotations

import copy
import functools
import operator
from collections import defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import wrap_model_call
from langchain.tools import ToolRuntime, tool
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import UntrackedValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, SecretStr

THREAD = {"configurable": {"thread_id": "t1"}}


def chain(schema, *nodes, **options):
    builder = StateGraph(schema, **options)
    for node in nodes:
        builder.add_node(node.__name__, node)
    builder.add_edge(START, nodes[0].__name__)
    for one, other in zip(nodes, nodes[1:]):
        builder.add_edge(one.__name__, other.__name__)
    return builder


def side_by_side(schema, *nodes, then=None, **options):
    builder = StateGraph(schema, **options)
    for node in nodes:
        builder.add_node(node.__name__, node)
        builder.add_edge(START, node.__name__)
    if then is not None:
        builder.add_node(then.__name__, then)
        builder.add_edge([node.__name__ for node in nodes], then.__name__)
    return builder


def routed(schema, router, *nodes, **options):
    builder = StateGraph(schema, **options)
    for node in nodes:
        builder.add_node(node.__name__, node)
    builder.add_conditional_edges(START, router, [*(node.__name__ for node in nodes), END])
    return builder


"""


@contextmanager
def text_program(folder: Path, name: str, text: str) -> Iterator[ModuleType]:
    """The text as a module of a file, with the common imports above it."""
    path = folder / f"{name}.py"
    path.write_text(IMPORTS + textwrap.dedent(text), encoding="utf-8")
    with program(path) as module:
        yield module
