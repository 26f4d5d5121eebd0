"""The runner: one run of an agent for a thread, and the decision whether it succeeded."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from abreast.access import Access, Operation, aperform, perform
from abreast.agents import messages as reading
from abreast.agents.calls import WorkspacesOf
from abreast.agents.heartbeat import HOLD, Heartbeat, with_token
from abreast.agents.scope import RunScope, current, is_fenced, running
from abreast.agents.state import KEY
from abreast.core.gate import Ending, moved
from abreast.core.lease import busy_error
from abreast.core.tell import Teller
from abreast.errors import ConfigurationError, InputError, UnavailableError
from abreast.store.statement import Statement
from abreast.telemetry import log
from abreast.types import Lease, Told

Validator = Callable[[Mapping[str, Any]], Any]
"""Final state in; raises, or returns False, where the answer must not count."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    `status` is `succeeded`, `awaiting_approval` (it is paused and can be resumed) or `failed` (it ended without an
    answer that counts; `reason` says why). `state` is the graph's output. `told` maps each workspace to the revision
    up to which this conversation has now dealt with its changes; it is empty unless the run succeeded.
    """

    run: str
    thread: str
    status: Literal["succeeded", "awaiting_approval", "failed"]
    state: Mapping[str, Any]
    told: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    interrupts: tuple[Any, ...] = ()

    @property
    def answer(self) -> str:
        """The text of the last message; empty if there is none."""
        messages = self.state.get("messages") or []
        return messages[-1].text if messages else ""


@dataclass(frozen=True)
class _Begun:
    agent: Any
    scope: RunScope
    input: Any
    config: RunnableConfig
    options: dict[str, Any]

    @property
    def saver(self) -> Any:
        """What keeps the graph's state, if anything does."""
        return getattr(self.agent, "checkpointer", None) or None

    def under(self, lease: Lease | None) -> _Begun:
        """The same run, under its lease."""
        configurable = with_token(self.config["configurable"], lease)
        return replace(self, scope=replace(self.scope, lease=lease), config={**self.config, "configurable": configurable})

    @property
    def latest(self) -> RunnableConfig:
        """The config of the thread's newest checkpoint, also where the run began at an older one."""
        configurable = {k: v for k, v in self.config["configurable"].items() if k != "checkpoint_id"}
        return {"configurable": configurable}


@dataclass(frozen=True)
class Attempt:
    """One attempt of a stored run, and who is told of it. `holder` is what the lease is taken as, `input_ids` are the messages
    that the run answers, also where they stand in the history already. `input` may be a function that gets the run's
    config, under its lease, and returns the input. `watcher` hears what the gates in tools let through, `person` is tenant and
    user of the conversation, and `lease` the one that was taken with the run, where it was."""

    run: str
    holder: str
    thread: str
    input: Any
    input_ids: Collection[str]
    context: Any
    config: RunnableConfig
    modes: list[str]
    part: Callable[[tuple[str, ...], str, Any], None]
    conclude: Callable[[RunResult, Mapping[str, Told], Lease | None, Any, RunScope], Awaitable[None]]
    failed: Callable[[BaseException, Lease | None], Awaitable[bool]]
    validate: Sequence[Validator] = ()
    watcher: Any = None
    person: tuple[str, str] | None = None
    lease: Lease | None = None


class Runner:
    """Runs agents for one hub. Both doors call the graph's own `invoke` or `ainvoke`; what they decide is here once."""

    def __init__(
        self, access: Access, teller: Teller, workspaces_of: WorkspacesOf, heartbeat: Heartbeat, *, leased: bool
    ) -> None:
        self._access, self._teller, self._workspaces_of = access, teller, workspaces_of
        self._heartbeat, self._leased = heartbeat, leased

    def run(
        self, agent: Any, input: Any, *, thread: str, context: Any, config: RunnableConfig | None, validate: Sequence[Validator]
    ) -> RunResult:
        begun, workspaces = self._begin(agent, input, thread, config), self._workspaces_of(context)
        with self._held(begun) as lease:
            inner = begun.under(lease)
            perform(self._access, self._teller.begin(thread, workspaces))
            token = current.set(inner.scope)
            try:
                state = agent.invoke(inner.input, inner.config, context=context, **inner.options)
            finally:
                inner.scope.ended = True
                current.reset(token)
            result, told = self._ended(inner, state, agent.get_state(inner.latest) if inner.options else None)
            for validator in validate if result.status == "succeeded" else ():
                verdict = _ask(validator, state)
                if inspect.iscoroutine(verdict):
                    verdict.close()
                    raise ConfigurationError(f"The validator {_name(validator)} is asynchronous; use `await hub.run(...)`.")
                result, told = _judged(result, told, validator, verdict)
            return perform(self._access, self._settled(result, told, lease))

    async def arun(
        self, agent: Any, input: Any, *, thread: str, context: Any, config: RunnableConfig | None, validate: Sequence[Validator]
    ) -> RunResult:
        begun, workspaces = self._begin(agent, input, thread, config), self._workspaces_of(context)
        async with self._aheld(begun) as lease:
            inner = begun.under(lease)
            await aperform(self._access, self._teller.begin(thread, workspaces))
            token = current.set(inner.scope)
            try:
                state = await agent.ainvoke(inner.input, inner.config, context=context, **inner.options)
            finally:
                inner.scope.ended = True
                current.reset(token)
            result, told = self._ended(inner, state, await agent.aget_state(inner.latest) if inner.options else None)
            for validator in validate if result.status == "succeeded" else ():
                verdict = _ask(validator, state)
                if inspect.isawaitable(verdict):
                    try:
                        verdict = await verdict
                    except Exception as error:
                        verdict = error
                result, told = _judged(result, told, validator, verdict)
            return await aperform(self._access, self._settled(result, told, lease))

    @contextmanager
    def _held(self, begun: _Begun) -> Iterator[Lease | None]:
        outer = running(self._access)
        if outer is not None and outer.thread == begun.scope.thread:
            with _inside(outer):
                if outer.lease is not None and is_fenced(begun.saver):  # it may be another one than its parent's
                    begun.saver.announce(outer.lease)
                yield outer.lease
        elif not self._leased:
            yield None
        else:
            if outer is not None and outer.lease is not None:
                self._heartbeat.confirm(outer.lease)  # a run that was lost starts no other
            with self._heartbeat.held(begun.scope.thread, begun.scope.holder or begun.scope.run, [begun.saver]) as lease:
                yield lease

    @asynccontextmanager
    async def _aheld(self, begun: _Begun, taken: Lease | None = None) -> AsyncIterator[Lease | None]:
        outer = running(self._access)
        if outer is not None and outer.thread == begun.scope.thread:
            with _inside(outer):
                if outer.lease is not None and is_fenced(begun.saver):
                    await begun.saver.aannounce(outer.lease)
                yield outer.lease
        elif not self._leased:
            yield None
        else:
            if outer is not None and outer.lease is not None:
                await self._heartbeat.aconfirm(outer.lease)
            run = begun.scope.holder or begun.scope.run
            async with self._heartbeat.aheld(begun.scope.thread, run, [begun.saver], taken) as lease:
                yield lease

    async def attempt(self, agent: Any, wanted: Attempt) -> None:
        """One attempt of a stored run: streams the agent's work, decides about success, and hands both on as they come.

        Under the lease `wanted.conclude` writes what came of it, or `wanted.failed` that it came to nothing. Raises
        ThreadBusyError, LeaseLostError, and what `failed` does not settle.
        """
        prepare = wanted.input if inspect.iscoroutinefunction(wanted.input) else None
        begun = self._begin(agent, None if prepare is not None else wanted.input, wanted.thread, wanted.config)
        ids = frozenset(wanted.input_ids)  # what an engine that forgot is told of earlier messages is history
        scope = replace(
            begun.scope,
            run=wanted.run,
            holder=wanted.holder,
            input_ids=ids,
            watcher=wanted.watcher,
            person=wanted.person,
        )
        begun = replace(begun, scope=scope)
        # A new conversation's place is nobody's but its own: it is given while the thread is taken.
        placing = asyncio.ensure_future(
            aperform(self._access, self._teller.begin(wanted.thread, self._workspaces_of(wanted.context)))
        )
        try:
            async with self._aheld(begun, wanted.lease) as lease:
                try:
                    inner = begun.under(lease)
                    if prepare is not None:
                        inner = replace(inner, input=await prepare(inner.config))
                    await placing
                    await self._attempt(agent, wanted, inner, lease)
                except BaseException as error:
                    if not await wanted.failed(error, lease):
                        raise
        finally:
            placing.cancel()
            await asyncio.gather(placing, return_exceptions=True)

    async def _attempt(self, agent: Any, wanted: Attempt, inner: _Begun, lease: Lease | None) -> None:
        token = current.set(inner.scope)
        try:
            parts = agent.astream(
                inner.input, inner.config, context=wanted.context, stream_mode=wanted.modes, subgraphs=True, **inner.options
            )
            async with aclosing(parts):
                async for namespace, mode, chunk in parts:
                    wanted.part(namespace, mode, chunk)
        finally:
            inner.scope.ended = True
            current.reset(token)
        snapshot = await agent.aget_state(inner.latest)
        result, told = self._ended(inner, snapshot.values, snapshot)
        for validator in wanted.validate if result.status == "succeeded" else ():
            verdict = _ask(validator, snapshot.values)
            if inspect.isawaitable(verdict):
                try:
                    verdict = await verdict
                except Exception as error:
                    verdict = error
            result, told = _judged(result, told, validator, verdict)
        await wanted.conclude(result, told, lease, snapshot, inner.scope)

    @property
    def workspaces_of(self) -> WorkspacesOf:
        """Finds the workspaces of a run in its context."""
        return self._workspaces_of

    def moves(self, thread: str, run: str, told: Mapping[str, Told]) -> Sequence[Statement]:
        """The statements that move a conversation's places, for whoever stores the end of its run."""
        return self._teller.moves(thread, run, told)

    def _begin(self, agent: Any, input: Any, thread: str, config: RunnableConfig | None) -> _Begun:
        if not thread:
            raise InputError("A run needs a thread: the id of the conversation.")
        given = dict(config or {})
        configurable = dict(given.get("configurable") or {})  # type: ignore[call-overload]
        if configurable.get("thread_id", thread) != thread:
            raise ConfigurationError("config names another thread_id than thread=. Give it once, as thread=.")
        configurable["thread_id"] = thread
        whole: Any = {**given, "configurable": configurable}
        saver = getattr(agent, "checkpointer", None)
        checkpointed = bool(saver)
        if is_fenced(saver) and not self._leased:
            raise ConfigurationError(
                "hub.checkpointer() needs leases, and this hub tracks no tables. Use LangGraph's own saver, or hub.track(...)."
            )
        # "sync": a run whose checkpoint was refused must end, and an answer must not outlive the state that it rests on.
        options: dict[str, Any] = {"durability": "sync"} if checkpointed else {}
        prepared, ids = _input(input)
        return _Begun(agent, RunScope(secrets.token_hex(8), thread, ids, owner=self._access), prepared, whole, options)

    def _ended(self, begun: _Begun, state: Any, snapshot: Any) -> tuple[RunResult, Mapping[str, Told]]:
        values: Mapping[str, Any] = state if isinstance(state, Mapping) else {"output": state}
        interrupts = tuple(values.get("__interrupt__") or ())
        if snapshot is not None and snapshot.interrupts:
            interrupts = tuple(snapshot.interrupts)
        messages = _messages(values)
        ending = Ending(
            paused=bool(interrupts) or bool(snapshot is not None and snapshot.next),
            answered=reading.ends_answered(messages),
            answered_call=reading.answered_call(messages),
            message_ids={message.id for message in messages if message.id},
            mark=snapshot.values.get(KEY) if snapshot is not None and isinstance(snapshot.values, Mapping) else values.get(KEY),
        )
        told, reason = moved(begun.scope.calls, ending, begun.scope.run)
        shown = {key: value for key, value in values.items() if key != KEY}  # a hand-made graph puts it out
        result = RunResult(begun.scope.run, begun.scope.thread, "succeeded", shown, reason=reason, interrupts=interrupts)
        if ending.paused:
            return replace(result, status="awaiting_approval"), {}
        by_tool = ending.answered_call is not None and (reason is None or values.get("structured_response") is not None)
        if not ending.answered and not by_tool:
            return replace(result, status="failed", reason=reading.why_unanswered(messages)), {}
        return result, told

    def _settled(self, result: RunResult, told: Mapping[str, Told], lease: Lease | None) -> Operation[RunResult]:
        if not told:
            return result
        try:
            yield from self._teller.settle(result.thread, result.run, told, lease)
        except UnavailableError:
            log.warning("the place of a conversation could not be moved; it will be told the same changes again")
            return replace(
                result, reason="the answer stands, but the place could not be moved: the same changes will be told again"
            )
        return replace(result, told={workspace: one.to_revision for workspace, one in told.items()})


@contextmanager
def _inside(outer: RunScope) -> Iterator[None]:
    """A run that is part of another one for the same thread: a sub-agent inside a tool, or a run inside `hub.lease`.
    Snapshot-only use has no tables, and so no leases to share. Raises ThreadBusyError for a second run in one hold."""
    if not outer.run.startswith(HOLD):
        yield
        return
    if outer.entered:
        raise busy_error(outer.thread, outer.run, 0.0)
    outer.entered = True
    try:
        yield
    finally:
        outer.entered = False


def _ask(validator: Validator, state: Any) -> Any:
    try:
        return validator(state)
    except Exception as error:
        return error


def _judged(
    result: RunResult, told: Mapping[str, Told], validator: Validator, verdict: Any
) -> tuple[RunResult, Mapping[str, Told]]:
    if result.status != "succeeded" or not (isinstance(verdict, Exception) or verdict is False):
        return result, told
    why = f": {verdict}" if isinstance(verdict, Exception) else ""
    return replace(result, status="failed", reason=f"the validator {_name(validator)} refused the answer{why}"), {}


def _name(validator: Validator) -> str:
    return getattr(validator, "__name__", type(validator).__name__)


def _input(given: Any) -> tuple[Any, frozenset[str]]:
    """The graph's input with ids on its messages, and those ids: what stands before them is the history."""
    if given is None or isinstance(given, Command):
        return given, frozenset()
    if isinstance(given, str):
        given = {"messages": [HumanMessage(given)]}
    elif isinstance(given, BaseMessage):
        given = {"messages": [given]}
    elif isinstance(given, list):
        given = {"messages": given}
    if isinstance(given, Mapping) and KEY in given:
        # The mark is the history's own. A hand-made graph would take one from its input; an agent does not.
        given = {key: value for key, value in given.items() if key != KEY}
    if not isinstance(given, Mapping) or "messages" not in given:
        return given, frozenset()
    raw = given["messages"]
    messages = convert_to_messages(raw if isinstance(raw, list) else [raw])
    messages = [m if m.id else m.model_copy(update={"id": str(uuid.uuid4())}) for m in messages]
    return {**given, "messages": messages}, frozenset(m.id for m in messages if m.id)


def _messages(values: Mapping[str, Any]) -> list[BaseMessage]:
    """The messages of a graph's output: those under `messages`, or any other list of them."""
    found = values.get("messages")
    if isinstance(found, list):
        return [message for message in found if isinstance(message, BaseMessage)]
    for value in values.values():
        if isinstance(value, list) and value and all(isinstance(item, BaseMessage) for item in value):
            return value
    return []
