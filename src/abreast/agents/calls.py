"""One model call: what is known before it, and what is noted after it. Shared by middleware and hand-made nodes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from abreast.agents import messages as reading
from abreast.agents.placing import asked
from abreast.agents.scope import RunScope, current, is_fenced, token_of
from abreast.agents.state import KEY
from abreast.core.gate import ReturnedCall
from abreast.core.mark import Turn
from abreast.core.tell import ModelCall, Prepared
from abreast.errors import ConfigurationError, ContextError, MarkError
from abreast.types import Actor

WorkspacesOf = Callable[[Any], Sequence[str]]
"""Run context in; the workspaces that the conversation follows out. Raises ContextError where it names none."""

ActorOf = Actor | Callable[[Any], Actor]
"""Who a tool writes as: always the same, or found in the run context, for example an agent on behalf of its person."""


def actor_of(actor: ActorOf, context: Any) -> Actor:
    """The actor for a run. Raises ConfigurationError where the application's function returns something else."""
    found = actor if isinstance(actor, Actor) else actor(context)
    if not isinstance(found, Actor):
        raise ConfigurationError(f"actor= returned {type(found).__name__}; it returns user(…), agent(…) or system(…).")
    return found


def model_call(
    messages: Sequence[BaseMessage],
    state: Mapping[str, Any],
    context: Any,
    config: RunnableConfig,
    workspaces_of: WorkspacesOf,
) -> ModelCall:
    """What is known of the call that is about to be made.

    Raises ContextError without a context, MarkError where the state's mark is damaged, LeaseError where the hub's saver
    would refuse the run's checkpoints.
    """
    thread = str(config.get("configurable", {}).get("thread_id") or "")
    if is_fenced(saver_of(config)):
        token_of(config)  # what cannot be kept is not begun: the model would be asked, and tools write, for nothing
    scope = _scope(thread)
    mark = state.get(KEY)
    if mark is not None and not isinstance(mark, Mapping):
        raise MarkError(f"The state's {KEY} is {type(mark).__name__}, not a mark. Remove it from the state.")
    history = state.get("messages") or messages
    # A graph inside the run has messages of its own: the run's input is not among them.
    before = reading.split(history, scope.input_ids if scope and not is_nested(config) else None)
    said = reading.without_unanswered(history[:before])
    turn = Turn(
        run=scope.run if scope else reading.turn_key(history),
        settled_by_runner=scope is not None,
        remembers=has_checkpointer(config),
        earlier=before > 0,
        finished=reading.ends_answered(said),
        tool_result=reading.answered_call(said) is not None,
        traces=bool(said),
    )
    workspaces = tuple(dict.fromkeys(workspaces_of(context)))
    if not workspaces:
        raise ContextError("The run context names no workspace.")
    return ModelCall(thread, workspaces, context, mark, turn, scope.lease if scope is not None else None, asked(messages))


@dataclass(frozen=True, slots=True)
class Returned:
    """A call that returned: what is noted of it, by which name, and the mark that goes into the answer's checkpoint."""

    prepared: Prepared
    name: str
    mark: Mapping[str, Any]


def returned(
    prepared: Prepared,
    result: Sequence[BaseMessage],
    config: RunnableConfig,
    *,
    structured: Any = None,
    direct: Collection[str] | None = None,
) -> Returned:
    """Notes in the run's scope that the call returned.

    `direct` names the tools whose result is the answer; None where the graph is hand-made and nobody can say. Then any
    result may be, if a runner decides about success.
    """
    ids = frozenset(message.id for message in result if message.id)
    answers = [message for message in result if isinstance(message, AIMessage)]
    wanted = {call["id"] or "": call["name"] for message in answers for call in message.tool_calls}
    scope = _scope(prepared.call.thread)
    by_tool = bool(wanted) and (
        structured is not None or (scope is not None if direct is None else all(name in direct for name in wanted.values()))
    )
    if scope is not None:
        finished = structured is not None or (bool(answers) and reading.is_answer(answers[-1]))
        asked = frozenset(wanted if by_tool else ())
        scope.calls.append(ReturnedCall(ids, prepared.told, finished, asked, is_nested(config)))
        if not is_nested(config):
            scope.heads = {batch.workspace: batch.head.revision for batch in prepared.batches}
        if prepared.block is not None and not prepared.shadow:
            scope.touched |= {(kind, wanted) for _, kind, wanted in prepared.block.touched}
            for batch in prepared.batches:
                seen = scope.shown.setdefault((batch.workspace, batch.head.revision), set())
                seen |= prepared.block.shown.get(batch.workspace, frozenset())
    # A sub-agent's history proves nothing about what this conversation has dealt with.
    noted = replace(prepared, confirm={}) if is_nested(config) else prepared
    return Returned(noted, next(iter(sorted(ids)), str(uuid.uuid4())), prepared.mark(by_tool=by_tool))


def has_checkpointer(config: RunnableConfig) -> bool:
    """Whether the graph that makes this call keeps its state."""
    return saver_of(config) is not None


def saver_of(config: RunnableConfig) -> Any:
    """What keeps the state of the graph that makes this call. LangGraph hands its saver down under this key only; the
    execution info has a thread id without one too (tried on 1.2.24)."""
    return config.get("configurable", {}).get("__pregel_checkpointer")


def is_nested(config: RunnableConfig) -> bool:
    """Whether this call is made by a graph inside another graph's node: a sub-agent's, as a rule."""
    return "|" in str(config.get("configurable", {}).get("checkpoint_ns") or "")


def _scope(thread: str) -> RunScope | None:
    scope = current.get()
    return scope if scope is not None and scope.thread == thread else None
