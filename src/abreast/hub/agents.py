"""What a hub hands out for agents, and the approvals of what they ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from sqlalchemy.engine import URL

from abreast.access import aperform
from abreast.core.permits import Permits
from abreast.core.policy import Given, as_policy
from abreast.core.text import HISTORY, WRITES
from abreast.errors import ConfigurationError
from abreast.hub.operations import Operations, agents_module
from abreast.records import Approval, Caller, Decision, GateRecord, Listing
from abreast.store.attribution import check_actor
from abreast.types import AGENT

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from abreast.agents.calls import ActorOf
    from abreast.agents.heartbeat import Holds
    from abreast.agents.middleware import SyncMiddleware
    from abreast.agents.nodes import PreparedCall
    from abreast.agents.runner import RunResult, Validator

TouchesOf: TypeAlias = "Callable[[Any, Mapping[str, Any]], Any] | Sequence[Any]"


class AgentsOfHub:
    """The half of a hub that agents have to do with. `Abreast` is the whole one."""

    _core: Operations

    def middleware(self) -> SyncMiddleware:
        """The LangChain middleware. Put it last in the agent's list."""
        module = agents_module("middleware")
        core = self._core
        return module.SyncMiddleware(  # type: ignore[no-any-return]
            *(core.access, core.teller, core.workspaces_of, core.placement, core.after_tools, core.schema),
            *(core.gatekeeper, core.gated),
        )

    def tools(
        self,
        *models: Any,
        write: bool | Collection[str] = True,
        actor: ActorOf = AGENT,
        policy: Mapping[str, Given] | None = None,
    ) -> list[BaseTool]:
        """Tools for each of these tables, or for all: list and get (with version), create, update and delete, and the
        history of changes.

        A write names the version that was read, and is made once, in the conversation's thread, as `actor` or as what it
        returns for the run context. `write=False` makes only those that read, `{"update_plan"}` only the write tools of
        these names. Workspace and rights are the run context's: see `track`.

        `policy` says by a tool's name what must be done before it runs: `ask` a person, `allow`, `deny`, a function of
        arguments and run context that returns one of these, or a `Policy`. For the others counts what the hub was made
        with (`approvals`). Raises ConfigurationError for a name that none of these tools has.
        """
        if not callable(actor):
            check_actor(actor)
        tables = [self._core.of(model) for model in models] or list(self._core.tracked.values())
        module = agents_module("tools")
        core = self._core
        core.tool_names.update({t.entity_type: module.list_tool_name(t) for t in tables} | {HISTORY: module.HISTORY})
        policies = {name: as_policy(given, name) for name, given in (policy or {}).items()}
        made = agents_module("write_tools").WriteTools(core, Permits(core.sync), actor, policies).of(tables, write)
        if made and any(t.version_column is None for t in tables):
            core.tool_names[WRITES] = made[0].name
        tools = [*module.ReadTools(core, policies).of(tables), *made]
        if unknown := sorted(policies.keys() - {tool.name for tool in tools}):
            known = ", ".join(tool.name for tool in tools)
            raise ConfigurationError(f"policy names {unknown[0]!r}, and there is no such tool. There are: {known}.")
        return tools

    def checkpointer(self, database: str | URL | None = None, *, serde: Any = None) -> BaseCheckpointSaver[str]:
        """A saver for the agent's checkpoints that writes them only for the run that holds the thread.

        It is LangGraph's own, behind one check inside each write; one object serves `invoke` and `ainvoke`, makes its
        tables itself, and needs no event loop to be made. Without `database` the checkpoints go beside the hub's data:
        on PostgreSQL into the same database, on SQLite into a file of their own (`app.db`: `app.checkpoints.db`).
        Conversations that LangGraph's saver wrote there go on. Outside `hub.run`, write under `hub.lease`.
        """
        return self._core.saver(database, serde)  # type: ignore[no-any-return]

    def lease(self, thread: str) -> Holds:
        """`with` or `async with`: holds a thread outside a run, for `agent.update_state(held.config, …)` for example.

        Raises ThreadBusyError while a run has it, and LeaseLostError at the end if another run took it meanwhile.
        """
        return self._core.hold(thread)

    @overload
    def tool(self, function: Callable[..., Any], /) -> BaseTool: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        permission: str | Callable[[Any], bool] | None = None,
        actor: ActorOf = AGENT,
        repeatable: bool = False,
        workspace: Callable[[Any, Mapping[str, Any]], str] | None = None,
        policy: Given | None = None,
        touches: TouchesOf | None = None,
    ) -> Callable[[Callable[..., Any]], BaseTool]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        permission: str | Callable[[Any], bool] | None = None,
        actor: ActorOf = AGENT,
        repeatable: bool = False,
        workspace: Callable[[Any, Mapping[str, Any]], str] | None = None,
        policy: Given | None = None,
        touches: TouchesOf | None = None,
    ) -> BaseTool | Callable[[Callable[..., Any]], BaseTool]:
        """Decorator: the application's own function as a tool of an agent. Its docstring and types are what the model reads.

        The types of its parameters say what it does; the model sees none of these. With a `Transaction` (in an
        asynchronous function an `AsyncTransaction`) it writes: the parameter is the open transaction of `hub.write`, and
        what it returns (JSON, as a loader's) is stored as the outcome. The same call again, after a crash or in the same
        turn, is answered with that, and so is the next one after a call that was cut off; `repeatable` where twice in a
        turn means twice. With a `MutationId` it has an effect outside, a mail or a payment: it gets the key that makes a
        repeat harmless there, and a call whose outcome is unknown is not made again before `settle_mutation`, in no turn.
        It raises RefusedError where it did nothing. `ToolRuntime` is LangChain's, `RunContext` the run's context.

        `permission` is a name among the run context's `permissions`, or a function of the context. `workspace` chooses one
        where the context has several: run context and arguments in. Errors are answers to the model, not the end of the
        run; what the function raises of its own is logged, and the model sees a reference to it.

        `policy` is as in `tools`. `touches` says what a call has to do with, so that an approval is out of date when that
        changes: a function of run context and arguments that returns pairs of a tracked model and an id, or `()` for
        nothing that is tracked. Without it, it is the whole workspace.
        """
        if not callable(actor):
            check_actor(actor)
        module = agents_module("function_tool")

        def options(function: Callable[..., Any]) -> Any:
            called = str(name or getattr(function, "__name__", "tool"))
            chosen = None if policy is None else as_policy(policy, called)
            return module.Options(name, permission, actor, repeatable, workspace, chosen, _touches(touches))

        def made(function: Callable[..., Any]) -> BaseTool:
            return module.FunctionTool(self._core, function, options(function)).made()  # type: ignore[no-any-return]

        return made if function is None else made(function)

    def gate(self, tool: BaseTool, *, policy: Given = "ask", touches: TouchesOf | None = None) -> BaseTool:
        """Somebody else's tool with a gate inside it. It keeps its name, its schema and what it returns.

        `policy` and `touches` are as in `tool`. A call of it that is made again after a crash runs again: nothing here
        knows whether it was done.
        """
        module = agents_module("gated_tool")
        return module.gated_tool(self._core, tool, as_policy(policy, tool.name), _touches(touches))  # type: ignore[no-any-return]

    async def prepare(self, state: Mapping[str, Any], config: RunnableConfig, *, context: Any, model: Any = None) -> PreparedCall:
        """The messages for a model node's call in a hand-made graph; its answer goes back through `aanswered`.

        `model`, the chat model that gets them, is asked only where the block may stand after tool answers.
        """
        return await self._core.preparer.aprepare(state, config, context, model)

    async def run(
        self,
        agent: Any,
        input: Any,
        *,
        thread: str,
        context: Any,
        config: RunnableConfig | None = None,
        validate: Sequence[Validator] = (),
    ) -> RunResult:
        """Runs an agent for a conversation and moves its place if it succeeded.

        `input` is text, messages, a state, a `Command` (to resume) or None. Other keys of `config` pass through. Each of
        `validate` gets the final state; it raises or returns False where the answer must not count. Exceptions of the
        agent are raised as they are; the conversation then keeps its place.

        Raises ThreadBusyError while another run holds the thread, and LeaseLostError if another run took it from this one,
        which was frozen or cut off for longer than `lease_seconds`: then nothing of it counts. A run for the same thread
        inside a tool of this one is part of it.
        """
        return await self._core.runner.arun(agent, input, thread=thread, context=context, config=config, validate=validate)

    # -- approvals -----------------------------------------------------------------------------------------------

    async def approvals(
        self,
        thread: str | None = None,
        *,
        run: str | None = None,
        status: str | None = "open",
        after: str | None = None,
        limit: int = 50,
    ) -> Listing:
        """Requests to let a tool call run, newest first; of a thread, of a run, or in a status (None for all)."""
        listed = self._core.approvals.listed(thread=thread, run=run, status=status, after=after, limit=limit)
        return await aperform(self._core.access, listed)

    async def approval(self, thread: str, approval: str, *, context: Any = None) -> Approval:
        """One request, while it is open with what has changed since it was made, as the person of this run context may read
        it. Raises AbsentError."""
        return await aperform(self._core.access, self._core.approvals.one(thread, approval, context=context))

    async def decide(
        self, thread: str, approval: str, decision: Decision, *, caller: Caller | None = None, context: Any = None
    ) -> Approval:
        """Decides about a request. `hub.run(agent, None, thread=…)` then goes on with its run.

        Without `caller` the application decides, and has asked who may itself. The first decision stands: the same again
        gets the same answer. Raises AbsentError; NotAllowedError where the policy does not let this person decide;
        DecidedError where another decision was made; DecisionError where it cannot be made like this, and the request stays
        open; OutdatedError where what the call touches has changed: its `changes` are those that the person of `context`
        may read, and its `revisions` are what a decision must carry as `confirmed` then.
        """
        operation = self._core.approvals.decide(thread, approval, decision, by=caller, context=context)
        return await aperform(self._core.access, operation)

    async def gates(
        self, *, tenant: str | None = None, now: datetime | None = None, in_a_row: int = 20, days: float = 30
    ) -> list[GateRecord]:
        """Each tool's record of what people decided, all of them or a tenant's. `earned`: the newest `in_a_row` decisions
        approved unchanged, and none rejected for `days`. For an operator: it reads all requests and their workspaces' log."""
        return await aperform(self._core.access, self._core.approvals.gates(tenant=tenant, now=now, in_a_row=in_a_row, days=days))

    async def labels(self, *, tenant: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """What people decided, all of it or a tenant's, as JSON objects with the arguments of each call before and after: for
        training and tests."""
        for page in self._core.approvals.labels(tenant):
            found = await aperform(self._core.access, page)
            for one in found:
                yield one
            if not found:
                return


def _touches(given: TouchesOf | None) -> Any:
    """What `touches` says, as a function; None where it says nothing."""
    if given is None or callable(given):
        return given
    if isinstance(given, str):
        raise ConfigurationError(f"touches is a function or a list of (model, id), not {given!r}.")
    rows = tuple(given)
    return lambda context, arguments: rows
