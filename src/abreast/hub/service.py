"""The service: conversations, runs, approvals and streams of one hub, for many people of many tenants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from abreast.access import Access, Operation, aperform
from abreast.core.basis import Marking
from abreast.core.conversations import Conversations, known_id, listing, new_id, page
from abreast.core.execution import Claimed, Execution
from abreast.core.policy import may_see
from abreast.core.replies import Replies
from abreast.core.runs import Runs
from abreast.errors import AbsentError, ConfigurationError, InputError
from abreast.hub.blocking_service import BlockingService
from abreast.hub.operations import Operations, agents_module
from abreast.records import (
    APPROVER,
    KEEP,
    OPERATOR,
    Acknowledge,
    Approval,
    Caller,
    Decision,
    Event,
    Listing,
    Message,
    OnBusy,
    Run,
    Thread,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from abreast.agents.executor import Executor
    from abreast.agents.previews import Previews
    from abreast.agents.served import Served
    from abreast.core.feed import Fed

T = TypeVar("T")

_BATCH = 200
"""Durable events that a reader takes from the database at once."""


class Service:
    """Conversations with one or several agents, for many people. `hub.service(...)` makes it.

    Its methods are coroutines and take the caller first, as the application's own authentication found it. Whatever a
    caller may not see is absent: AbsentError. `start` and `stop` stand around the life of the process that executes runs;
    a process that only asks needs neither. `blocking` mirrors the methods for synchronous applications.
    """

    def __init__(
        self,
        core: Operations,
        agents: Mapping[str, Any],
        *,
        context: Callable[[Thread, str], Any],
        on_busy: OnBusy,
        validate: Sequence[Any],
        memory: Callable[[Mapping[str, Any]], Any] | None,
        acknowledge: Acknowledge,
        authenticate: Callable[[Any], Any] | None,
        config: RunnableConfig | None,
        concurrency: int,
        attempts: int,
    ) -> None:
        if not agents:
            raise ConfigurationError("A service has at least one agent.")
        for name, agent in agents.items():
            if not getattr(agent, "checkpointer", None):
                raise ConfigurationError(
                    f"The agent {name!r} has no checkpointer, so its runs could neither wait nor go on after a crash. "
                    f"Compile it with checkpointer=hub.checkpointer()."
                )
        if on_busy not in ("reject", "enqueue", "interrupt", "rollback"):
            raise ConfigurationError(f"on_busy is one of reject, enqueue, interrupt, rollback, not {on_busy!r}.")
        if acknowledge not in ("run", "client"):
            raise ConfigurationError(f"acknowledge is run or client, not {acknowledge!r}.")
        if concurrency < 1 or attempts < 1:
            raise ConfigurationError("concurrency and attempts are at least 1.")
        self.authenticate = authenticate
        """The application's authentication, for the HTTP face: a request in, a Caller or None out."""
        self._core, self._on_busy, self._default = core, on_busy, next(iter(agents))
        served = agents_module("served").Served
        self._agents: dict[str, Served] = {
            name: served(name, agent, context, tuple(validate), memory, acknowledge, config, self._kinds)
            for name, agent in agents.items()
        }
        gating = agents_module("gating")
        for agent in agents.values():
            for tool in gating.tools_of(agent):
                # A graph that stops before its tools has people decide about those that are nobody's of the hub.
                core.checks.setdefault(tool.name, gating.check_arguments(tool))
        self._concurrency, self._attempts = concurrency, attempts
        self._starts = 0

    # -- threads -------------------------------------------------------------------------------------------------

    async def create_thread(
        self, caller: Caller, *, workspace: str, agent: str | None = None, title: str = "", idempotency: str | None = None
    ) -> Thread:
        """A new conversation in a workspace that this person may use. `idempotency` names the request: a repeat gets the
        thread of the first one. Raises AbsentError for a workspace that is not this person's, InputError for an agent that
        there is not."""
        name = agent if agent is not None else self._default
        if name not in self._agents:
            raise InputError(f"There is no agent {name!r} here. There are: {', '.join(self._agents)}.")
        key = None if idempotency is None else "\0".join(("t", caller.tenant, caller.user, idempotency))
        known = Thread(new_id("t", key), caller.tenant, caller.user, self._core.canonical(workspace), name, title)
        if await self._context(known, caller.user) is None:
            raise AbsentError()
        return await self._do(self._conversations.create(known))

    async def threads(self, caller: Caller, *, after: str | None = None, limit: int = 50) -> Listing:
        """The caller's own conversations, newest first, behind the one with the id `after`."""
        return await self._do(self._conversations.threads(caller, after, limit))

    async def thread(self, caller: Caller, thread: str) -> Thread:
        """One conversation."""
        return await self._do(self._conversations.thread(caller, thread))

    # -- messages ------------------------------------------------------------------------------------------------

    async def messages(
        self, caller: Caller, thread: str, *, after: str | None = None, limit: int = 100, leaf: str | None = None
    ) -> Listing:
        """A page of the shown branch, oldest first; of another branch where `leaf` names its last message. Each answer is
        marked `outdated`, with the changes, where what it rests on has changed since."""
        marking = await self._marking(caller, thread)
        return await self._do(self._conversations.messages(caller, thread, after, limit, leaf, marking))

    async def message(self, caller: Caller, thread: str, message: str) -> Message:
        """One message."""
        found = await self._do(self._conversations.message(caller, thread, message, None))
        marking = await self._marking(caller, thread) if found.basis is not None else None
        return found if marking is None else await self._do(self._conversations.message(caller, thread, message, marking))

    async def send(
        self,
        caller: Caller,
        thread: str,
        text: str,
        *,
        parent: Any = KEEP,
        on_busy: OnBusy | None = None,
        idempotency: str | None = None,
    ) -> Run:
        """Stores what a person says and the run that will answer it. Returns at once; `stream` tells how it goes.

        `parent` is the message that it follows, where it begins a new branch (None: before all others): to say something
        again in other words, give the parent of what was said. `on_busy` says what becomes of a run that has not ended:
        `reject` (ThreadBusyError), `enqueue`, `interrupt` it (what it wrote so far is kept), or `rollback`: what it was
        asked leaves the shown branch. What its tools have written stays written.
        """
        if on_busy is not None and on_busy not in ("reject", "enqueue", "interrupt", "rollback"):
            raise InputError(f"on_busy is one of reject, enqueue, interrupt, rollback, not {on_busy!r}.")
        operation = partial(self._runs.send, caller, thread, text, parent, on_busy or self._on_busy, idempotency)
        # A task of its own: whoever asked may be gone before what was stored is handed on.
        return await asyncio.shield(asyncio.ensure_future(self._sent(thread, operation)))

    async def _sent(self, thread: str, operation: Callable[..., Operation[tuple[Run, list[Event], Claimed | None]]]) -> Run:
        executor = self.__dict__.get("_executor")
        with executor.room() if executor is not None else nullcontext(False) as room:
            run, events, claimed = await self._do(operation(self._execution.take if room else None))
            self._previews.publish(thread, *events)
            if executor is not None and claimed is not None:
                await executor.adopt(claimed)
            else:
                self._core.signals.notify(agents_module("executor").RUNS)
        return run

    async def select(self, caller: Caller, thread: str, message: str) -> Thread:
        """Goes back to a turn: the shown branch ends with this message, and what is said next follows it."""
        found = await self._do(self._conversations.select(caller, thread, message))
        self._previews.signal(thread)
        return found

    async def receipt(self, caller: Caller, thread: str, message: str) -> None:
        """The reader has this answer. With `acknowledge="client"` the conversation's place moves only now."""
        await self._do(self._runs.receipt(caller, thread, message))

    # -- runs ----------------------------------------------------------------------------------------------------

    async def runs(self, caller: Caller, thread: str, *, after: str | None = None, limit: int = 50) -> Listing:
        """The runs of a conversation, newest first."""
        return await self._do(self._runs.runs(caller, thread, after, limit))

    async def run(self, caller: Caller, thread: str, run: str) -> Run:
        """One run."""
        return await self._do(self._runs.run(caller, thread, run))

    async def cancel(self, caller: Caller, thread: str, run: str) -> Run:
        """Ends a run. What it has said so far stays, marked as stopped. One that is going on ends a moment later."""
        found = await self._do(self._runs.cancel(caller, thread, run))
        self._wake(thread)
        return found

    # -- approvals -----------------------------------------------------------------------------------------------

    async def approvals(
        self, caller: Caller, *, thread: str | None = None, status: str | None = "open", after: str | None = None, limit: int = 50
    ) -> Listing:
        """Approvals that this person may see, newest first: those of the own conversations, those whose policy names a role of
        this person, and with the role of an approver or operator those of the tenant."""
        of_all = bool(caller.roles & {APPROVER, OPERATOR})
        if caller.roles and not of_all:
            return await self._for_deciders(caller, thread, status, after, page(limit))
        if thread is not None:
            await self.thread(caller, thread)
        return await self._do(
            self._core.approvals.listed(
                after=after,
                limit=page(limit),
                tenant=caller.tenant,
                thread=thread,
                status=status,
                user=None if of_all else caller.user,
            )
        )

    async def _for_deciders(
        self, caller: Caller, thread: str | None, status: str | None, after: str | None, number: int
    ) -> Listing:
        """`approvals`, for who has a role of the application's own: which requests name it stands in each of them."""
        found: list[Approval] = []
        more, place = True, after
        while more and len(found) <= number:
            some = await self._do(
                self._core.approvals.listed(
                    after=place, limit=_BATCH, tenant=caller.tenant, thread=thread and known_id(thread), status=status
                )
            )
            found += [one for one in some.items if may_see(one, caller)]
            more, place = some.next is not None, some.next
        if thread is not None and not found:
            await self.thread(caller, thread)  # it may be absent
        return listing(found, number, lambda one: one.id)

    async def _concerned(self, caller: Caller, thread: str, approval: str) -> Thread:
        """The conversation of an approval, for who may see that or the approval: its policy may name other roles than those
        that read whole conversations. Raises AbsentError."""
        try:
            return await self.thread(caller, thread)
        except AbsentError:
            await self._do(self._core.approvals.one(known_id(thread), known_id(approval), by=caller))
            return await self._do(self._conversations.thread(replace(caller, roles=frozenset({APPROVER})), thread))

    async def approval(self, caller: Caller, thread: str, approval: str) -> Approval:
        """One approval, with what has changed since it was proposed, as this person may read it."""
        known = await self._concerned(caller, thread, approval)
        context = await self._context(known, caller.user)
        return await self._do(self._core.approvals.one(thread, known_id(approval), by=caller, context=context))

    async def decide(self, caller: Caller, thread: str, approval: str, decision: Decision) -> Approval:
        """Decides an approval; where it was the last one that its run waits for, the run goes on. Both in one transaction.

        The first decision wins: the same one again gets the same answer, another DecidedError. Raises OutdatedError where
        what the call touches has changed since it was proposed, DecisionError for what is no decision, NotAllowedError.
        """
        known = await self._concerned(caller, thread, approval)
        context = await self._context(known, caller.user)
        if isinstance(decision, Decision) and decision.type == "respond":
            asked = await self._do(self._core.approvals.one(thread, known_id(approval), by=caller, context=context))
            if asked.kind == "interrupt":
                agents_module("pauses").check_answer(asked.question, decision.message)
        found: Approval = await self._do(
            self._core.approvals.decide(
                thread,
                known_id(approval),
                decision,
                by=caller,
                context=context,
                more=lambda one: self._runs.goes_on(one.thread, one.run),
            )
        )
        self._wake(thread)
        return found

    # -- streams -------------------------------------------------------------------------------------------------

    async def stream(self, caller: Caller, thread: str, *, after: int = 0, until_done: bool = False) -> AsyncIterator[Event]:
        """The events of a conversation behind one of them: every durable one exactly once and in order, and between them the
        text of an answer as it is written. Follows for ever; `until_done` ends it when no run is going on any more."""
        if after < 0:
            raise InputError("after is the id of an event, or 0.")
        known = await self.thread(caller, thread)
        with self._previews.subscribed(known.id) as reader:
            seen = after
            while True:
                found = await self._do(self._runs.events(caller, known.id, seen, _BATCH))
                for event in found:
                    assert event.id is not None
                    seen = event.id
                    yield event
                if len(found) < _BATCH:
                    if until_done and not await self._do(self._runs.going(caller, known.id)):
                        # What was stored between the two looks is read before the end.
                        for event in await self._do(self._runs.events(caller, known.id, seen, _BATCH)):
                            yield event
                        return
                    async for event in reader.until_signal(seen, until_done=until_done):
                        if event.id is not None:
                            seen = event.id
                        yield event

    async def changes(self, caller: Caller, workspace: str, *, after: int | None = None) -> AsyncIterator[Fed]:
        """The changes of a workspace behind a revision (default: HEAD), as this person may read them, for ever."""
        thread = Thread("", caller.tenant, caller.user, self._core.canonical(workspace), self._default)
        await self._do(self._conversations.may_use(caller.tenant, thread.workspace))
        at = after
        with self._core.signals.watch(f"workspace:{thread.workspace}") as watch:
            while True:
                context = await self._context(thread, caller.user)
                if context is None:
                    raise AbsentError()
                fed = await self._do(self._core.feed.after(thread.workspace, at, context, _BATCH))
                yield fed
                at = fed.to
                if not fed.more:
                    await watch.wait(self._poll)

    # -- the process ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Executes runs in this process, in this event loop: those that were left, and whatever comes."""
        self._starts += 1
        if self._starts == 1:
            await self._do(self._core.verify())
            await self._executor.start()

    async def stop(self) -> None:
        """Ends what `start` began. Runs that are going on go back to the queue; where nobody takes them up they wait for the
        next start."""
        self._starts = max(self._starts - 1, 0)
        if self._starts == 0 and "_executor" in self.__dict__:
            await self._executor.stop()
            del self._executor

    async def __aenter__(self) -> Service:
        await self.start()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.stop()

    @cached_property
    def blocking(self) -> BlockingService:
        """The same, for synchronous applications: it executes runs in a thread of its own."""
        return BlockingService(self)

    # -- pieces --------------------------------------------------------------------------------------------------

    @cached_property
    def _conversations(self) -> Conversations:
        return Conversations(self._core.access.dialect, self._core.schema, self._core.verify)

    @cached_property
    def _runs(self) -> Runs:
        core = self._core
        return Runs(
            core.access.dialect,
            core.schema,
            core.lease_seconds,
            core.verify,
            self._conversations,
            core.approvals,
            self._attempts,
        )

    @cached_property
    def _execution(self) -> Execution:
        return Execution(self._runs, leased=bool(self._core.sync.tables))

    @cached_property
    def _previews(self) -> Previews:
        return agents_module("previews").Previews(self._core.signals, self._poll)  # type: ignore[no-any-return]

    @cached_property
    def _executor(self) -> Executor:
        core = self._core
        pauses = agents_module("pauses").Pauses(core.access, core.approvals)
        means = agents_module("served").Means(core.access, self._execution, core.runner, pauses, self._previews, core.signals)
        return agents_module("executor").Executor(  # type: ignore[no-any-return]
            means, self._agents, concurrency=self._concurrency, seconds=core.lease_seconds, others=self._others
        )

    def _others(self) -> set[str]:
        """The agents that other services of this hub have, and this one has not: their runs wait for those."""
        return {name for other in self._core.services for name in other._agents} - self._agents.keys()

    @property
    def access(self) -> Access:
        """The hub's database, for the HTTP face's own rows."""
        return self._core.access

    @cached_property
    def replies(self) -> Replies:
        """The replies that the HTTP face keeps for repeated requests."""
        return Replies(self._core.access.dialect, self._core.schema, self._core.verify)

    @property
    def _poll(self) -> float:
        return float(agents_module("served").POLL)

    def _wake(self, thread: str) -> None:
        self._previews.signal(thread)
        self._core.signals.notify(agents_module("executor").RUNS)

    async def _context(self, thread: Thread, user: str) -> Any:
        """The run context as the application builds it for this person now; None where there is no access."""
        served = self._agents.get(thread.agent) or self._agents[self._default]
        return await agents_module("served").context_of(served.context, thread, user)

    def _kinds(self) -> Mapping[str, str]:
        """The hub's own tools, by name, and the entity types that they are about."""
        named = agents_module("tools").identifier
        verbs = ("list", "get", "create", "update", "delete")
        return {f"{verb}_{named(t.entity_type)}": t.entity_type for t in self._core.sync.tables for verb in verbs}

    async def _marking(self, caller: Caller, thread: str) -> Marking | None:
        known = await self.thread(caller, thread)
        context = await self._context(known, caller.user)
        if context is None or not self._core.sync.tables:
            return None
        return Marking(self._core.reader, context, self._core.sync.rules(context))

    async def _do(self, operation: Operation[T]) -> T:
        return await aperform(self._core.access, operation)
