"""One model call: what is known before it, and what is noted after it. Shared by middleware and hand-made nodes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from abreast.agents import messages as reading
from abreast.agents.scope import RunScope, current
from abreast.agents.state import KEY
from abreast.core.gate import ReturnedCall
from abreast.core.mark import Turn
from abreast.core.tell import ModelCall, Prepared
from abreast.errors import ContextError, MarkError

WorkspacesOf = Callable[[Any], Sequence[str]]
"""Run context in; the workspaces that the conversation follows out. Raises ContextError where it names none."""


def model_call(
    messages: Sequence[BaseMessage],
    state: Mapping[str, Any],
    context: Any,
    config: RunnableConfig,
    workspaces_of: WorkspacesOf,
) -> ModelCall:
    """What is known of the call that is about to be made.

    Raises ContextError without a context, MarkError where the state's mark is damaged.
    """
    thread = str(config.get("configurable", {}).get("thread_id") or "")
    scope = _scope(thread)
    mark = state.get(KEY)
    if mark is not None and not isinstance(mark, Mapping):
        raise MarkError(f"The state's {KEY} is {type(mark).__name__}, not a mark. Remove it from the state.")
    history = state.get("messages") or messages
    # A graph inside the run has messages of its own: the run's input is not among them.
    before = reading.split(history, scope.input_ids if scope and not is_nested(config) else None)
    turn = Turn(
        run=scope.run if scope else reading.turn_key(history),
        settled_by_runner=scope is not None,
        remembers=has_checkpointer(config),
        earlier=before > 0,
        finished=reading.ends_finished(history[:before], state.get("structured_response")),
    )
    workspaces = tuple(dict.fromkeys(workspaces_of(context)))
    if not workspaces:
        raise ContextError("The run context names no workspace.")
    return ModelCall(thread, workspaces, context, mark, turn)


def returned(prepared: Prepared, result: Sequence[BaseMessage], structured: Any, config: RunnableConfig) -> str:
    """Notes in the run's scope that the call returned, and names it for the delivery note."""
    ids = frozenset(message.id for message in result if message.id)
    answers = [message for message in result if isinstance(message, AIMessage)]
    wants = frozenset(call["id"] or "" for message in answers for call in message.tool_calls)
    finished = structured is not None or bool(answers) and reading.is_answer(answers[-1])
    scope = _scope(prepared.call.thread)
    if scope is not None:
        scope.calls.append(ReturnedCall(ids, prepared.told, finished, wants, is_nested(config)))
    return next(iter(sorted(ids)), str(uuid.uuid4()))


def has_checkpointer(config: RunnableConfig) -> bool:
    """Whether the graph that makes this call keeps its state. LangGraph hands its saver down under this key only; the
    execution info has a thread id without one too (tried on 1.2.24)."""
    return config.get("configurable", {}).get("__pregel_checkpointer") is not None


def is_nested(config: RunnableConfig) -> bool:
    """Whether this call is made by a graph inside another graph's node: a sub-agent's, as a rule."""
    return "|" in str(config.get("configurable", {}).get("checkpoint_ns") or "")


def _scope(thread: str) -> RunScope | None:
    scope = current.get()
    return scope if scope is not None and scope.thread == thread else None
