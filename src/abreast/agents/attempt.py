"""One attempt of a stored run: what goes into the graph, what comes out of it, and how it is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from abreast.access import Operation
from abreast.agents.answers import passing
from abreast.agents.pauses import Resumed
from abreast.agents.recording import Recording
from abreast.agents.runner import Attempt, RunResult
from abreast.agents.scope import RunScope
from abreast.agents.served import Means, Served, context_of
from abreast.agents.state import KEY
from abreast.agents.translating import Translator, uses
from abreast.agents.turns import TurnRead, turn_of
from abreast.core.basis import basis_of
from abreast.core.execution import Claimed, Ended
from abreast.core.lease import busy_error
from abreast.core.plain import as_json
from abreast.core.runs import ROOT
from abreast.errors import AbreastError, LeaseLostError, ThreadBusyError, UnavailableError
from abreast.records import Event, Message, ToolUse
from abreast.telemetry import log
from abreast.types import Lease, Told

_REST = 0.25
"""Seconds that a run rests after an error that may pass, twice as long after each further one."""

_SEED = 50
"""Messages that an engine which has forgotten a conversation is told of it."""


class _Refused(Exception):
    """A person refused the node before which the graph stopped."""


class RunAttempt:
    """One attempt: what goes into the graph, what comes out of it, and how it is stored."""

    def __init__(self, means: Means, served: Served | None, claimed: Claimed, wanted: Callable[[], str | None]) -> None:
        self._means, self._served, self._claimed, self._wanted = means, served, claimed, wanted
        self._record = Recording(means, claimed)
        self._translator: Translator | None = None
        self.rests = 0.0
        """Seconds until the thread's next attempt, where this one met an error that may pass."""
        self._workspaces: Sequence[str] = ()

    async def made(self) -> None:
        claimed, means, served = self._claimed, self._means, self._served
        if served is None:
            await self._failed("unknown_agent", f"This service has no agent {claimed.thread.agent!r} any more.", None)
            return
        context = await context_of(served.context, claimed.thread, claimed.run.user)
        if context is None:
            await self._failed("not_allowed", "This person has no access to this conversation any more.", None)
            return
        config = {"configurable": {"thread_id": claimed.thread.id}}
        # Of a conversation that nobody has begun the engine knows nothing.
        begun = claimed.resumed or claimed.begin is not None or claimed.question.parent is not None
        state = await served.agent.aget_state(config) if begun else None
        resumed = await means.pauses.resumed(served.agent, state, claimed) if begun else None
        known = uses(await means.do(means.execution.tools(claimed.thread.id, claimed.run.id))) if resumed is not None else ()
        translator = self._translator = Translator(claimed.thread.id, claimed.run.id, self._record.take, known)
        self._workspaces = means.runner.workspaces_of(context)
        if resumed is not None and resumed.waits:
            await self._park(None, state)
            return
        given: Any = dict(merge_configs(served.config, {"callbacks": translator.callbacks}))
        if resumed is not None:
            input: Any = resumed.input
        else:
            input, place = await self._fresh(served, state)
            given["configurable"] = {**(given.get("configurable") or {}), **place}
        await means.runner.attempt(
            served.agent,
            Attempt(
                claimed.run.id,
                claimed.holder,
                claimed.thread.id,
                self._begins(served, input, state, resumed),
                {claimed.question.id},
                context,
                given,
                list(Translator.modes),
                translator.part,
                self._conclude,
                self._fail,
                served.validate,
                translator,
                (claimed.thread.tenant, claimed.thread.user),
                claimed.lease,
            ),
        )

    def _begins(
        self, served: Served, input: Any, seen: Any, resumed: Resumed | None
    ) -> Callable[[RunnableConfig], Awaitable[Any]]:
        """The input, once the thread is held: nobody else has the run, and nobody has gone on with it, since this attempt
        looked. A process may stand still between the two for as long as it likes."""

        async def prepare(config: RunnableConfig) -> Any:
            means, claimed = self._means, self._claimed
            answered = resumed.answered if resumed is not None else ()
            if answered or claimed.lease is None:
                await means.do(means.execution.begins(claimed, (lambda: means.pauses.use(answered)) if answered else None))
            if seen is not None:
                place: RunnableConfig = {"configurable": {"thread_id": claimed.thread.id, "checkpoint_ns": ""}}
                found = await served.agent.checkpointer.aget_tuple(place)
                if (found.checkpoint["id"] if found is not None else None) != _checkpoint(seen):
                    raise busy_error(claimed.thread.id, claimed.run.id, 0.0)
            if resumed is not None and resumed.node and not await means.pauses.apply(served.agent, config, resumed.decided):
                raise _Refused
            return input

        return prepare

    async def _fresh(self, served: Served, state: Any) -> tuple[Any, Mapping[str, Any]]:
        """The question for an engine that has not got it, and where its branch begins there."""
        claimed = self._claimed
        said = HumanMessage(claimed.question.content, id=claimed.question.id)
        place: dict[str, Any] = {}
        if claimed.begin is not None:
            wanted = claimed.begin if claimed.begin != ROOT else None
            if wanted is not None:
                at = {"configurable": {"thread_id": claimed.thread.id, "checkpoint_ns": "", "checkpoint_id": wanted}}
                state = await served.agent.aget_state(at)
                if not state.values:
                    wanted = None  # the checkpoints of this branch are gone
            if wanted is None:
                wanted, state = await _root(served.agent, claimed.thread.id), None
            if wanted is not None:
                place = {"checkpoint_ns": "", "checkpoint_id": wanted}
        known = state is not None and bool(state.values.get("messages"))
        earlier = [] if known else await self._earlier()
        return {"messages": [*earlier, said]}, place

    async def _earlier(self) -> list[HumanMessage | AIMessage]:
        """What was said before, for an engine that has nothing of this conversation."""
        if self._claimed.question.parent is None:
            return []
        found: Sequence[Message] = await self._means.do(
            self._means.execution.before(self._claimed.thread.id, self._claimed.question.parent, _SEED)
        )
        return [
            HumanMessage(one.content, id=one.id) if one.role == "user" else AIMessage(one.content, id=one.id)
            for one in found
            if one.content.strip()
        ]

    # -- its end -------------------------------------------------------------------------------------------------

    async def _conclude(
        self, result: RunResult, told: Mapping[str, Told], lease: Lease | None, snapshot: Any, scope: RunScope
    ) -> None:
        claimed, served = self._claimed, self._served
        assert served is not None
        if result.status == "awaiting_approval":
            await self._park(lease, snapshot)
            return
        if self._translator is not None:
            self._translator.finish()
        turn = turn_of(snapshot.values.get("messages") or (), claimed.question.id, served.kinds(), self._heard())
        if result.status != "succeeded":
            await self._failed("no_answer", result.reason or "The run ended without an answer.", lease, turn, snapshot)
            return
        memory = _memory(served, snapshot.values)
        heads = scope.heads or _told_heads(snapshot, claimed.run.id)
        body = self._body(turn, heads, [*turn.entities, *sorted(scope.touched)], memory)
        structured = snapshot.values.get("structured_response")
        if not turn.text and structured is not None:
            body["content"] = _text(structured)
        waits = served.acknowledge == "client"
        await self._stored(
            lambda events: self._means.execution.finish(
                claimed,
                Ended(
                    "succeeded",
                    body,
                    checkpoint=_checkpoint(snapshot),
                    memory=None if memory is None else json.dumps(memory),
                    moves=() if waits else self._means.runner.moves(claimed.thread.id, claimed.run.id, told),
                    told={w: (one.to_revision, one.to_check) for w, one in told.items()} if waits else None,
                    events=events,
                    preview=self._preview(),
                ),
                lease,
            )
        )

    def _preview(self) -> str | None:
        return self._translator.preview if self._translator is not None else None

    def _heard(self) -> Sequence[ToolUse]:
        return self._translator.tools if self._translator is not None else ()

    def _body(self, turn: TurnRead, heads: Mapping[str, int], touched: Sequence[tuple[str, str]], memory: Any) -> dict[str, Any]:
        basis = basis_of(heads, touched) if heads else None
        return {
            "content": turn.text,
            "citations": [dict(one) for one in turn.citations],
            "tools": [{name: getattr(tool, name) for name in tool.__slots__} for tool in turn.tools],
            **({} if basis is None else {"basis": {"revisions": dict(basis.revisions), "entities": basis.entities}}),
            **({} if memory is None else {"memory": memory}),
        }

    async def _park(self, lease: Lease | None, snapshot: Any) -> None:
        """The graph waits for people. What its tools have not asked them yet is asked in the same transaction."""
        if self._translator is not None:
            self._translator.finish(paused=True)
        known = await self._means.pauses.known(self._claimed)
        asked = self._means.pauses.asked(snapshot, self._claimed, self._workspaces, known)
        ended = Ended("awaiting_approval", checkpoint=_checkpoint(snapshot))
        await self._stored(
            lambda events: self._means.execution.park(
                self._claimed, replace(ended, events=events), lease, lambda: self._means.pauses.store(asked)
            )
        )

    async def _fail(self, error: BaseException, lease: Lease | None) -> bool:
        """The agent has raised, or was cancelled, while the lease is held. False where the error must go on."""
        if isinstance(error, LeaseLostError | ThreadBusyError):
            return False
        if isinstance(error, asyncio.CancelledError):
            wanted = self._wanted()
            if wanted is None:
                return False  # the process ends, or the lease was lost
            await asyncio.shield(self.over(wanted, lease))
            return True
        await self.over(error, lease)
        return True

    async def put_back(self) -> None:
        """Gives the run back to whoever claims it next, with what it has told so far."""
        await self._stored(lambda events: self._means.execution.put_back(self._claimed, events=events))

    async def over(self, why: Any, lease: Lease | None) -> None:
        """Ends the run, or gives it back where it may succeed later. `why` is an error, or what somebody wanted of it."""
        claimed = self._claimed
        if self._translator is not None:
            self._translator.finish()
        if isinstance(why, _Refused):
            why = "cancel"
        if isinstance(why, str):
            state = await self._state()
            turn = self._partial(state)
            body = self._body(turn, {}, (), None)
            shown = bool(turn.text) and why != "rollback"
            await self._stored(
                lambda events: self._means.execution.finish(
                    claimed,
                    Ended("cancelled", body if shown else None, stopped=True, checkpoint=_checkpoint(state), events=events),
                    lease,
                )
            )
            return
        if isinstance(why, BaseException) and passing(why) and claimed.run.attempts < self._means.execution.runs.attempts:
            log.warning("the run %s met an error that may pass; it is begun again", claimed.run.id, exc_info=why)
            self.rests = _REST * 2**claimed.run.attempts
            await self._stored(lambda events: self._means.execution.put_back(claimed, again=True, events=events))
            return
        code, text = _told_of(why, self._claimed.run.id)
        await self._failed(code, text, lease)

    async def _failed(
        self, code: str, message: str, lease: Lease | None, turn: TurnRead | None = None, snapshot: Any = None
    ) -> None:
        state = snapshot if snapshot is not None else await self._state()
        known = turn if turn is not None and turn.text else self._partial(state)
        body = self._body(known, {}, (), None)
        await self._stored(
            lambda events: self._means.execution.finish(
                self._claimed,
                Ended(
                    "failed",
                    body if known.text else None,
                    stopped=True,
                    error={"code": code, "message": message},
                    checkpoint=_checkpoint(state),
                    events=events,
                    preview=self._preview(),
                ),
                lease,
            )
        )

    def _partial(self, state: Any) -> TurnRead:
        """What the person has seen of an answer that never came to its end."""
        text = self._translator.partial if self._translator is not None else ""
        found = (state.values.get("messages") or ()) if state is not None else ()
        turn = turn_of(found, self._claimed.question.id, self._served.kinds() if self._served else {}, self._heard())
        return TurnRead(text, (), turn.tools, turn.entities)

    async def _state(self) -> Any:
        if self._served is None:
            return None
        try:
            return await self._served.agent.aget_state({"configurable": {"thread_id": self._claimed.thread.id}})
        except Exception:
            log.warning("the state of the run %s could not be read", self._claimed.run.id, exc_info=True)
            return None

    async def _stored(self, ending: Callable[[Sequence[Event]], Operation[list[Event]]]) -> None:
        """Writes what ends the attempt. The database may be away for a moment: the lease is kept, and it is tried again."""
        events = await self._record.rest()
        try:
            for attempt in range(6):
                try:
                    stored = await self._means.do(ending(events))
                    self._means.previews.publish(self._claimed.thread.id, *stored)
                    return
                except UnavailableError:
                    if attempt == 5:
                        raise
                    await asyncio.sleep(0.1 * 2**attempt)
        except BaseException:
            self._record.keep(events)  # also where it was cancelled: they go with whatever ends the attempt then
            raise


async def _root(agent: Any, thread: str) -> str | None:
    """The checkpoint of the thread's very first input: what comes in there stands before nothing."""
    found = None
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    async for one in agent.checkpointer.alist(config, filter={"step": -1}):
        found = one
    return None if found is None else str(found.config["configurable"]["checkpoint_id"])


def _memory(served: Served, state: Mapping[str, Any]) -> Any:
    """What the turn leaves for the next. The application's mistake in it costs the memory, not the answer."""
    if served.memory is None:
        return None
    try:
        return as_json(served.memory(state), "the memory")
    except Exception:
        log.warning("the working memory of a turn is dropped: its function failed, or returned what is not JSON", exc_info=True)
        return None


def _checkpoint(snapshot: Any) -> str | None:
    if snapshot is None:
        return None
    found = (snapshot.config.get("configurable") or {}).get("checkpoint_id")
    return None if found is None else str(found)


def _told_heads(snapshot: Any, run: str) -> Mapping[str, int]:
    """What this run was told before its process died behind its last model call, from the history's own mark."""
    return {workspace: entry[2] for workspace, entry in (snapshot.values.get(KEY) or {}).items() if entry[0] == run}


def _text(structured: Any) -> str:
    if hasattr(structured, "model_dump_json"):
        return str(structured.model_dump_json())
    try:
        return json.dumps(structured, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(structured)


def _told_of(error: Any, run: str) -> tuple[str, str]:
    """A code and a text for people. What an exception says may hold a secret: it is in the log, under the run's id."""
    name = type(error).__name__
    if isinstance(error, UnavailableError) or (isinstance(error, BaseException) and passing(error)):
        log.error("the run %s failed", run, exc_info=error)
        return "unavailable", "Something that this run needs does not answer. Try again later."
    if name == "GraphRecursionError":
        return "too_many_steps", "The assistant took more steps than it may, and was stopped."
    if isinstance(error, AbreastError):
        log.error("the run %s failed", run, exc_info=error)
        return "failed", "The assistant could not answer. The log of the service says why."
    log.error("the run %s failed", run, exc_info=error)
    return "failed", "The assistant failed. The log of the service says why."
