"""The mark's place in a graph's state."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentState
from langchain.agents.middleware.types import PrivateStateAttr
from langgraph.graph import MessagesState

from abreast.core.mark import merge

KEY = "abreast_told"

# The reducer must be the last annotation: LangGraph looks nowhere else for it.
MarkChannel = Annotated[dict[str, list[Any]], PrivateStateAttr, merge]


class AgentSyncState(AgentState[Any]):
    """State of a LangChain agent with the middleware: the mark beside the messages, out of input and output."""

    abreast_told: NotRequired[MarkChannel]


class SyncState(MessagesState):
    """State for hand-made graphs: inherit it, so that the mark is stored in the same checkpoint as the answer."""

    abreast_told: MarkChannel
