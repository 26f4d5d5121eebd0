"""The hub: one application's database, what is tracked in it, and everything that is handed out of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine
from sqlalchemy.orm import Session

from abreast.access import Attribute, Operation, aperform
from abreast.core import install as installing
from abreast.core.blocks import Writes
from abreast.core.interest import Interest
from abreast.core.loading import Loader
from abreast.core.read import Page
from abreast.core.tell import Options
from abreast.core.text import count_bytes
from abreast.errors import ConfigurationError
from abreast.hub.agents import AgentsOfHub
from abreast.hub.blocking import Blocking
from abreast.hub.budget import checked
from abreast.hub.operations import Operations
from abreast.hub.serving import Serving
from abreast.records import Gating
from abreast.store.attribution import check_actor
from abreast.store.change import Change
from abreast.store.tracked import ReadRule, Writable, WriteRule, resolve
from abreast.types import (
    UNKNOWN,
    Actor,
    AfterTools,
    Applied,
    Attribution,
    Batch,
    Budget,
    ChangeEvent,
    CountTokens,
    Finding,
    Holder,
    Lease,
    OnUnavailable,
    OpenEffect,
    Phrasing,
    Placement,
    Refresh,
    Row,
    Standing,
    Telling,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

T = TypeVar("T")
LoaderT = TypeVar("LoaderT", bound=Loader)
InterestT = TypeVar("InterestT", bound=Interest)
SessionLike: TypeAlias = "Session | AsyncSession | sa.Connection | AsyncConnection"


class Abreast(AgentsOfHub, Serving):
    """Keeps the agents of one application in step with its database.

    `database` is a URL (`sqlite:///app.db`, `postgresql+psycopg://…`) or the application's own SQLAlchemy engine. Declare
    with `track` and `loader`, then use it; what touches the database is a coroutine here and a plain method of
    `blocking`. Thread-safe; one instance serves the whole process.

    `workspaces` finds the workspaces of a run in its context (default: its `workspace`, `workspace_id` or `workspaces`).
    `limit` is the number of changes told at once, a workspace; `budget` what CURRENT and CHANGES may take, in tokens as
    `count_tokens` counts them (default: UTF-8 bytes over 3). `placement` is where the text goes: `tail` (around the
    question), `before` or `after` it, or `system`; `after_tools` whether behind tool answers it is a `message` of its own
    or stands inside the last `answer` (`auto`: as the model's provider takes it); `wording` whether what the question
    touches is also said in `sentences`, or in `lines` only. `refresh="run"` reads once a run instead of at every model
    call. `on_unavailable="warn"` lets a run go on when the state cannot be read, and tells the model so. `lease_seconds`
    is how long a run that died keeps its thread. `approvals` says which tools ask a person before they run: `strict` all of
    them, until a policy frees one; `writes` those that write; `named` those that a policy names. `schema` is where
    PostgreSQL keeps our tables; `prepared_statements=False` is for a transaction pooler that does not keep them.
    """

    def __init__(
        self,
        database: str | URL | Engine | AsyncEngine,
        *,
        workspaces: Callable[[Any], str | Sequence[str]] | None = None,
        limit: int = 50,
        budget: Budget | None = None,
        count_tokens: CountTokens | None = None,
        placement: Placement = "tail",
        after_tools: AfterTools = "auto",
        wording: Phrasing = "sentences",
        refresh: Refresh = "call",
        on_unavailable: OnUnavailable = "stop",
        lease_seconds: float = 30.0,
        approvals: Gating = "writes",
        schema: str = "abreast",
        prepared_statements: bool = True,
    ) -> None:
        for name, value, allowed in (
            ("placement", placement, get_args(Placement)),
            ("after_tools", after_tools, get_args(AfterTools)),
            ("wording", wording, get_args(Phrasing)),
            ("refresh", refresh, ("call", "run")),
            ("on_unavailable", on_unavailable, ("stop", "warn")),
            ("approvals", approvals, get_args(Gating)),
        ):
            if value not in allowed:
                raise ConfigurationError(f"{name} is one of {', '.join(allowed)}, not {value!r}.")
        if limit < 1:
            raise ConfigurationError("limit is the number of changes told at once: at least 1.")
        if not lease_seconds > 0:
            raise ConfigurationError("lease_seconds is how long a lease lasts without a heartbeat: more than 0.")
        if not schema.isidentifier():
            raise ConfigurationError(f"schema is a plain name, not {schema!r}.")
        options = Options(limit, checked(budget), count_tokens or count_bytes, refresh, on_unavailable, wording)
        self._core = Operations(
            database,
            workspaces=workspaces,
            schema=schema,
            placement=placement,
            after_tools=after_tools,
            options=options,
            lease_seconds=lease_seconds,
            gating=approvals,
            prepared=prepared_statements,
        )

    # -- declarations --------------------------------------------------------------------------------------------

    def track(
        self,
        model: Any,
        *,
        workspace: Any,
        name: str | None = None,
        record: Collection[str] | Literal["all"] = (),
        redact: Collection[str] = (),
        labels: Mapping[str, str] | None = None,
        readable: ReadRule | None = None,
        writable: WriteRule | Writable | None = None,
        version: str | None = None,
        without_workspace: Literal["error", "record"] = "error",
        title: Any = None,
        noun: str | None = None,
    ) -> None:
        """Puts a table under watch.

        `workspace` is the column that holds it, `via("plan_id", Plan)`, or `constant("league")`. `record` names fields
        whose old and new values the log keeps (others are logged by name); `redact` fields whose values are never
        recorded and never shown. `labels` say what people call a field; `title` is the field by which they name a row
        (default: the first of title, name, label and subject that there is), `noun` what they call such a row (default: the
        entity type). `readable` is the read rule, of this table only and not of its children: run context in, `Readable`,
        a condition, True or False out. `writable` is the write rule of the tools that `tools` makes: a `Writable`, or run
        context in and `Writable`, True or False out; without it a person may write what he may read. `apply` and `write`
        are the application's own and ask no rule. `version` is the application's own version column, kept right for raw
        writers too. A row without a workspace is an error, or with `without_workspace="record"` a line in our table `miss`.
        """
        if self._core.in_use:
            raise ConfigurationError("track(...) comes before the first use of the hub.")
        made = resolve(
            model,
            workspace=workspace,
            tracked=self._core.tracked,
            name=name,
            record=record,
            redact=redact,
            labels=labels,
            readable=readable,
            writable=writable,
            version=version,
            without_workspace=without_workspace,
            title=title,
            noun=noun,
        )
        if made.table in self._core.tracked:
            raise ConfigurationError(f"{made.table.name} is tracked already.")
        if any(t.entity_type == made.entity_type and t.table is not made.table for t in self._core.tracked.values()):
            raise ConfigurationError(f"Two tables are called {made.entity_type!r}; give one of them a name=.")
        self._core.tracked[made.table] = made

    def loader(self, function: LoaderT) -> LoaderT:
        """Decorator: what this function returns is CURRENT, instead of the tracked rows.

        It gets an SQLAlchemy session of the batch's snapshot, the workspace and the run context, and returns JSON
        (dates, decimals, UUIDs and enums are converted). Several loaders stand side by side under their names.
        """
        if self._core.in_use:
            raise ConfigurationError("loader(...) comes before the first use of the hub.")
        if inspect.iscoroutinefunction(function):
            raise ConfigurationError("A loader is a plain function: it runs in a thread, with a synchronous session.")
        self._core.loaders[getattr(function, "__name__", "loaded")] = function
        return function

    def interest(self, function: InterestT) -> InterestT:
        """Decorator: what this function returns is what a conversation has to do with. Other changes are counted, not told.

        It gets an SQLAlchemy session of the batch's snapshot, the workspace, the thread and the run context, and returns
        tracked models (all of their rows) and pairs of a model and an id (`(Plan, "p1")`), or None for everything. The
        conversation's own changes are always told, and CURRENT stays what it is."""
        if self._core.in_use:
            raise ConfigurationError("interest(...) comes before the first use of the hub.")
        if self._core.interest is not None:
            raise ConfigurationError("This hub has an interest already: one function answers for all workspaces.")
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError("An interest is a plain function: it runs in a thread, with a synchronous session.")
        self._core.interest = function
        return function

    def attribute(
        self, session: SessionLike, *, actor: Actor = UNKNOWN, thread: str | None = None, mutation: str | None = None
    ) -> Attribute:
        """`with` or `async with`: who makes the changes of this session, in which conversation, by which mutation."""
        check_actor(actor)
        return Attribute(session, Attribution(actor, thread, mutation), self._core.access.dialect)

    def write(
        self,
        workspace: str,
        *,
        actor: Actor = UNKNOWN,
        thread: str | None = None,
        mutation: str | None = None,
        lease: Lease | None = None,
        payload: Any = None,
    ) -> Writes:
        """`with` or `async with`: one transaction of the application's own code, under the same rules as `apply`.

        `with` gives a `Transaction`, `async with` an `AsyncTransaction`, whose `get` is awaited. It is committed when
        the block ends, and rolled back if it raises. Under a `mutation` the block runs once: at a repeat `tx.repeated`
        is True and `tx.outcome` what the first one stored with `tx.returns`; `payload` is JSON that says what is meant,
        so that the same id with another payload is an error. A RefusedError or VersionConflictError that leaves the
        block is the mutation's outcome, and is raised again at a repeat.
        """
        return self._core.write(workspace, Attribution(actor, thread, mutation), lease, payload)

    # -- what touches the database -------------------------------------------------------------------------------

    @cached_property
    def blocking(self) -> Blocking:
        """The same methods, for synchronous applications."""
        return Blocking(self._core)

    async def install(self) -> None:
        """Makes our tables and the triggers of the tracked tables, or renews them. Safe on a live database, and twice."""
        await self._script(await self._do(self._core.install_plan()))

    async def install_sql(self) -> list[str]:
        """The statements that `install` would run, for a migration: `for s in ...: op.execute(s)`. Changes nothing."""
        return [statement for group in await self._do(self._core.install_plan()) for statement in group]

    async def uninstall(self, *, log_too: bool = False) -> None:
        """Removes the triggers; with `log_too` also our tables and all that is in them."""
        await self._script(await self._do(self._core.uninstall_plan(log_too)))

    async def check(self) -> list[Finding]:
        """What is wrong between the tracked rows and the log; empty if nothing is."""
        return await self._do(self._core.check())

    async def batch(
        self, workspace: str, *, thread: str = "", after: int | None = None, limit: int | None = None, context: Any = None
    ) -> Batch:
        """CURRENT, HEAD and the changes after a revision, or after the conversation's cursor, in one snapshot."""
        return await self._do(self._core.batch(workspace, thread, after, limit, context))

    async def rows(
        self,
        model: Any,
        workspace: str,
        *,
        match: Mapping[str, Any] | None = None,
        after: Any = None,
        limit: int = 100,
        context: Any = None,
    ) -> Page:
        """Rows of a tracked table with their versions, as this person may read them. `after` is the id of the last one of
        the page before; ids are given as to `update`."""
        return await self._do(self._core.page(model, workspace, match, after, limit, context))

    async def row(self, model: Any, entity_id: Any, workspace: str, *, context: Any = None) -> Row:
        """One row with its version. The id is given as to `update`. Raises UnknownEntityError."""
        return await self._do(self._core.row(model, entity_id, workspace, context))

    async def history(self, workspace: str, *, context: Any = None, **narrowed: Any) -> list[ChangeEvent]:
        """Who changed what, newest first; narrowed by `entity_type` (a model or its name), `entity_id`, `since`, `until`,
        `before`, `limit`."""
        return await self._do(self._core.history(workspace, context, narrowed))

    async def apply(
        self,
        workspace: str,
        *changes: Change,
        actor: Actor = UNKNOWN,
        thread: str | None = None,
        mutation: str | None = None,
        lease: Lease | None = None,
    ) -> Applied:
        """Writes rows: all of these changes or none, in one transaction and, on PostgreSQL, one round trip.

        `actor`, `thread` and `mutation` stand in the log. With a `mutation` id the call may be repeated: it returns or
        raises what the first one did, and so it is repeated here where the database asks for that. With a `lease`
        nothing is written unless that run still holds it; in the code of a run it is that run's. Read rules are not asked.

        Raises VersionConflictError, with the row as it is now, where a change carries another version than the row has;
        UnknownEntityError where a row is not in this workspace; MutationReusedError where the id stands for another
        write; LeaseLostError; InputError for what the database refuses; UnavailableError where it does not answer.
        """
        return await self._do(self._core.apply(workspace, changes, Attribution(actor, thread, mutation), lease))

    async def settle_mutation(self, workspace: str, mutation: str, *, done: bool, outcome: Any = None) -> None:
        """What a person found out about an effect outside that was started and whose outcome nobody knows.

        `done`: it happened, and a repeat of the call gets `outcome`. Otherwise it did not, and a repeat may try it.
        `unsettled` lists them. Raises InputError where no such effect is open.
        """
        await self._do(self._core.settle_mutation(workspace, mutation, done, outcome))

    async def unsettled(self, workspace: str) -> list[OpenEffect]:
        """The effects outside whose outcome is open, oldest first: what `settle_mutation` wants to hear of, and what is
        running just now. It reads all mutations of the workspace: for an operator, not for every request."""
        return await self._do(self._core.unsettled(workspace))

    async def holder(self, thread: str) -> Holder | None:
        """The run that holds a thread now, and for how long at most should it have died; None where the thread is free."""
        return await self._do(self._core.holder(thread))

    async def release(self, thread: str) -> None:
        """Takes a thread from the run that holds it, whose process is known to be gone, without waiting for its lease.

        Should the run live after all, it has lost the thread: it writes no rows and moves no cursor any more, and no
        checkpoints through a saver that this hub has handed out for them. A write of it that is under way may still be
        made; the next run waits for its end.
        """
        lease = await self._do(self._core.release(thread))
        while lease and (known := max([await s.aannounce(lease) for s in list(self._core.savers)], default=0)) > lease.token:
            lease = await self._do(self._core.release(thread, above=known))

    async def add_workspace(self, workspace: str) -> None:
        """Makes a new workspace known before it has a row, so that an assistant can run in it. One that is known stays as
        it is. The first row of a workspace does the same."""
        await self._do(self._core.add_workspace(workspace))

    async def standings(self, workspace: str) -> list[Standing]:
        """Every conversation's place in a workspace, the furthest behind first."""
        return await self._do(self._core.standings(workspace))

    async def prune(self, workspace: str, *, horizon: int) -> None:
        """Deletes events up to a revision, except the newest of each entity. Conversations further back are told so."""
        await self._do(self._core.prune(workspace, horizon))

    async def tell(self, telling: Telling) -> None:
        """The switch for all processes at once: `on`, `shadow` (read and noted, not told) or `off`."""
        await self._do(self._core.tell(telling))

    async def close(self) -> None:
        """Closes the hub's own connections, and those of the savers that it handed out."""
        await asyncio.to_thread(self._core.close_savers)
        await self._core.access.aclose()

    async def _do(self, operation: Operation[T]) -> T:
        return await aperform(self._core.access, operation)

    async def _script(self, groups: installing.Groups) -> None:
        await asyncio.to_thread(self._core.access.script, groups)
        self._core.verified = None
