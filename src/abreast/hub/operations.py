"""What a hub does, once for both doors: its declarations, and the operations on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine

from abreast.access import Access, Operation, checkpoint_url, lead, open_access, read, snapshot, write
from abreast.access.signals import Signals
from abreast.agents.scope import running
from abreast.core import install as installing
from abreast.core.approvals import Approvals, Check
from abreast.core.blocks import Writes
from abreast.core.effects import Effects, is_json
from abreast.core.feed import Feed
from abreast.core.interest import Interest
from abreast.core.lease import Leases
from abreast.core.loading import Loader
from abreast.core.mark import Start
from abreast.core.permits import spelled
from abreast.core.read import Page, Reader
from abreast.core.sync import Sync, Wanted
from abreast.core.tell import Options, Teller
from abreast.core.text import Wording
from abreast.core.transaction import Transaction
from abreast.core.write import Writing
from abreast.errors import ConfigurationError, ContextError, InputError, MissingExtraError, NotTrackedError
from abreast.records import Gating
from abreast.store import cursors, log, upkeep
from abreast.store.change import Change
from abreast.store.change import entity_id as id_of
from abreast.store.statement import Flow, Statement
from abreast.store.tracked import TrackedTable, table_of
from abreast.store.values import canonical_workspace
from abreast.types import (
    AfterTools,
    Applied,
    Attribution,
    Batch,
    ChangeEvent,
    Finding,
    Holder,
    Lease,
    OpenEffect,
    Placement,
    Position,
    Row,
    Standing,
    Telling,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from abreast.agents.gating import Gated, Gatekeeper
    from abreast.agents.heartbeat import Heartbeat, Holds
    from abreast.agents.nodes import Preparer
    from abreast.agents.runner import Runner


def workspaces_of_context(context: Any) -> Sequence[str]:
    """The workspaces that a run context names under `workspaces`, `workspace` or `workspace_id`, as attribute or key.

    Raises ContextError where there is no context, or none of these in it.
    """
    if context is None:
        raise ContextError()
    for name in ("workspaces", "workspace", "workspace_id"):
        found = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
        if found is None:
            continue
        if not isinstance(found, list | tuple | set | frozenset):
            return (str(found),)
        named = tuple(str(one) for one in found)
        if named:
            return tuple(sorted(named)) if isinstance(found, set | frozenset) else named
    raise ContextError(
        f"The run context ({type(context).__name__}) names no workspace: give it `workspace`, or the hub `workspaces=function`."
    )


class Operations:
    """What both doors of a hub share: declarations, and the flows of everything that it does."""

    def __init__(
        self,
        database: str | URL | Engine | AsyncEngine,
        *,
        workspaces: Callable[[Any], str | Sequence[str]] | None,
        schema: str,
        placement: Placement,
        after_tools: AfterTools,
        options: Options,
        lease_seconds: float,
        gating: Gating,
        prepared: bool,
    ) -> None:
        self.access: Access = open_access(database, prepared=prepared)
        self.schema, self.placement, self.after_tools, self.options = schema, placement, after_tools, options
        self.tracked: dict[sa.Table, TrackedTable] = {}
        self.loaders: dict[str, Loader] = {}
        self.interest: Interest | None = None
        self.tool_names: dict[str, str] = {}
        self.lease_seconds, self.gating, self.prepared = lease_seconds, gating, prepared
        self.checks: dict[str, Check] = {}
        self.savers: WeakSet[Any] = WeakSet()
        self.services: list[Any] = []
        self._workspaces = workspaces
        self.verified: Any = None

    def workspaces_of(self, context: Any) -> Sequence[str]:
        if self._workspaces is None:
            found: tuple[Any, ...] = tuple(workspaces_of_context(context))
        elif context is None:
            raise ContextError()
        else:
            given = self._workspaces(context)
            found = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
        return tuple(self.canonical(workspace) for workspace in found)

    def canonical(self, workspace: Any) -> str:
        """A workspace's id in the form that the log has. Raises InputError for what is no id."""
        if (
            workspace is None
            or isinstance(workspace, bool)
            or (isinstance(workspace, Collection) and not isinstance(workspace, str))
        ):
            raise InputError(f"{workspace!r} cannot be a workspace.")
        return canonical_workspace(self.sync.tables, workspace)

    # Declarations end with the first use: a batch that was read under half of them would be wrong.

    @cached_property
    def sync(self) -> Sync:
        return Sync(self.access.dialect, self.schema, tuple(self.tracked.values()), dict(self.loaders), self.interest)

    @cached_property
    def teller(self) -> Teller:
        return Teller(self.sync, self.options, self._wording(), self.verify)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.sync)

    @cached_property
    def writing(self) -> Writing:
        return Writing(self.access, self.schema, self.sync.tables, self.of, self._look, self._told)

    def _told(self, workspace: str) -> None:
        """Wakes the readers of a workspace's feed, where this process has any; others look for themselves."""
        if "signals" in self.__dict__:
            self.signals.notify(f"workspace:{workspace}")

    @cached_property
    def effects(self) -> Effects:
        return Effects(self.writing)

    @cached_property
    def feed(self) -> Feed:
        return Feed(self.reader)

    @cached_property
    def signals(self) -> Signals:
        return Signals(self.access)

    @cached_property
    def approvals(self) -> Approvals:
        return Approvals(
            self.sync,
            self.verify,
            self.checks,
            lambda question, message: agents_module("pauses").check_answer(question, message),
        )

    @cached_property
    def gatekeeper(self) -> Gatekeeper:
        made = agents_module("gating").Gatekeeper
        stored = bool(self.sync.tables)
        return made(self.access, self.approvals, self.workspaces_of, self.entity, self.gating, stored=stored)  # type: ignore[no-any-return]

    def gated(self, gated: Gated) -> Gated:
        """Notes a tool that has a gate: an edit of its arguments is held against its own schema."""
        self.checks[gated.name] = agents_module("gating").check_of(gated)
        return gated

    def entity(self, model: Any, entity_id: Any) -> tuple[str, str] | None:
        """A row as the log names it, of a model or an entity type and an id; None where nobody can say which it is."""
        tracked = self.reader.tracked(model) if isinstance(model, str) else self.of(model)
        known = spelled(tracked, id_of(entity_id))
        return None if known is None else (tracked.entity_type, known)

    @property
    def in_use(self) -> bool:
        return "sync" in self.__dict__

    def _wording(self) -> Wording:
        from_tables = self.sync.tables
        return Wording(
            labels={t.entity_type: {f.name: f.label for f in t.fields if f.label} for t in from_tables},
            redacted={t.entity_type: frozenset(f.name for f in t.fields if f.redacted) for t in from_tables},
            implied={
                t.entity_type: frozenset({t.workspace_column} - {f.name for f in t.key} if t.workspace_column else ())
                for t in from_tables
            },
            tools=self.tool_names,
            titles={t.entity_type: t.title for t in from_tables if t.title},
            nouns={t.entity_type: t.noun for t in from_tables},
            keys={t.entity_type: frozenset(f.name for f in t.key) for t in from_tables},
        )

    def of(self, model: Any) -> TrackedTable:
        table = table_of(model)
        if table not in self.tracked:
            raise NotTrackedError(f"{table.name} is not tracked. Declare it with hub.track(...).")
        return self.tracked[table]

    def verify(self) -> Operation[None]:
        """Looks at the triggers before the first batch, and on SQLite again whenever the file's schema has changed."""
        if not self.sync.tables:
            return

        if self.verified is None:
            yield from read(self._look)
        elif self.access.dialect == "sqlite":
            yield from lead(self._look)

    def _look(self) -> Flow[None]:
        stamp: Any = True
        if self.access.dialect == "sqlite":
            stamp = (yield Statement("pragma schema_version"))[0][0]
        if stamp != self.verified:
            yield from installing.verify(self.access.dialect, self.schema, self.sync.tables)
        self.verified = stamp

    # -- operations ----------------------------------------------------------------------------------------------

    def install_plan(self) -> Operation[installing.Groups]:
        return (yield from read(lambda: installing.install_plan(self.access.dialect, self.schema, self.sync.tables)))

    def uninstall_plan(self, log_too: bool) -> Operation[installing.Groups]:
        return (
            yield from read(
                lambda: installing.uninstall_plan(self.access.dialect, self.schema, self.sync.tables, log_too=log_too)
            )
        )

    def check(self) -> Operation[list[Finding]]:
        return (yield from snapshot(lambda: installing.check(self.access.dialect, self.schema, self.sync.tables)))

    def batch(self, workspace: str, thread: str, after: int | None, limit: int | None, context: Any) -> Operation[Batch]:
        yield from self.verify()
        start = Start("cursor") if after is None else Start("at", Position(after))
        wanted = Wanted(
            self.canonical(workspace), thread, start, context, limit or self.options.limit, max(self.options.budget.value, 1)
        )
        return (yield from self.teller.batch(wanted, self.sync.rules(context)))

    def page(
        self, model: Any, workspace: str, match: Mapping[str, Any] | None, after: Any, limit: int, context: Any
    ) -> Operation[Page]:
        tracked = self.of(model)
        rule = self.sync.rules(context)[tracked.entity_type]
        behind = None if after is None else id_of(after)
        return (
            yield from snapshot(
                lambda: self.reader.page(
                    tracked, rule, workspace=self.canonical(workspace), match=match, after=behind, limit=limit
                )
            )
        )

    def row(self, model: Any, entity_id: Any, workspace: str, context: Any) -> Operation[Row]:
        tracked = self.of(model)
        rule = self.sync.rules(context)[tracked.entity_type]
        wanted = id_of(entity_id)
        return (
            yield from snapshot(lambda: self.reader.row(tracked, rule, workspace=self.canonical(workspace), entity_id=wanted))
        )

    def history(self, workspace: str, context: Any, narrowed: Mapping[str, Any]) -> Operation[list[ChangeEvent]]:
        rules = self.sync.rules(context)
        named = dict(narrowed)
        if named.get("entity_id") is not None:
            named["entity_id"] = id_of(named["entity_id"])
        if not isinstance(named.get("entity_type"), str | None):
            named["entity_type"] = self.of(named["entity_type"]).entity_type
        return (
            yield from snapshot(lambda: self.reader.history(rules, workspace=self.canonical(workspace), context=context, **named))
        )

    def add_workspace(self, workspace: str) -> Operation[None]:
        workspace = self.canonical(workspace)
        self.writing.check(workspace, Attribution())
        yield from self.verify()

        def flow() -> Flow[None]:
            yield upkeep.add_workspace_statement(self.access.dialect, self.schema, workspace=workspace)

        yield from write(flow)

    def standings(self, workspace: str) -> Operation[list[Standing]]:
        workspace = self.canonical(workspace)

        def flow() -> Flow[list[Standing]]:
            rows = yield cursors.standings_statement(self.access.dialect, self.schema, workspace=workspace)
            if not rows:
                yield from self.sync.must_exist(workspace)
            return cursors.read_standings(rows, workspace)

        return (yield from read(flow))

    def prune(self, workspace: str, horizon: int) -> Operation[None]:
        workspace = self.canonical(workspace)

        def flow() -> Flow[None]:
            yield from self.sync.must_exist(workspace)
            for statement in upkeep.prune_statements(self.access.dialect, self.schema, workspace=workspace, horizon=horizon):
                yield statement

        yield from write(flow)

    def tell(self, telling: Telling) -> Operation[None]:
        if telling not in ("on", "shadow", "off"):
            raise ConfigurationError(f"telling is 'on', 'shadow' or 'off', not {telling!r}.")

        def flow() -> Flow[None]:
            yield log.telling_statement(self.access.dialect, self.schema, telling)

        yield from write(flow)

    def apply(
        self, workspace: str, changes: Sequence[Change], attribution: Attribution, lease: Lease | None
    ) -> Operation[Applied]:
        if self.access.dialect != "sqlite" and self.verified is None:  # SQLite looks in the write itself
            yield from self.verify()
        return (yield from self.writing.apply(workspace, changes, attribution, lease or self._lease_of_run()))

    def _was_shown(self, workspace: str, revision: int, entity_type: str, entity_id: str) -> bool:
        """Whether the run in whose code this is was shown this row, whole, as of this revision."""
        scope = running(self.access)
        return scope is not None and (entity_type, entity_id) in scope.shown.get((workspace, revision), ())

    def _lease_of_run(self) -> Lease | None:
        """The lease of the run in whose code this is, whichever conversation the write is said to be of."""
        scope = running(self.access)
        return scope.lease if scope is not None else None

    def write(self, workspace: str, attribution: Attribution, lease: Lease | None, payload: Any) -> Writes:
        held = lease or self._lease_of_run()
        scope = running(self.access)
        approved = scope.approved.get(attribution.mutation or "") if scope is not None else None

        def made() -> Transaction:
            if approved is None:
                return Transaction(self.writing, workspace, attribution, held, payload, self._was_shown)
            return Transaction(self.writing, workspace, attribution, held, payload, self._was_shown, approved)

        return Writes(made)

    def settle_mutation(self, workspace: str, mutation: str, done: bool, outcome: Any) -> Operation[None]:
        if not is_json(outcome):
            raise InputError("The outcome of a mutation is stored as JSON.")
        yield from self.effects.settle_by_hand(self.canonical(workspace), mutation, done=done, outcome=outcome)

    def unsettled(self, workspace: str) -> Operation[list[OpenEffect]]:
        return (yield from self.effects.unsettled(self.canonical(workspace)))

    # -- agents --------------------------------------------------------------------------------------------------

    @cached_property
    def runner(self) -> Runner:
        return agents_module("runner").Runner(  # type: ignore[no-any-return]
            self.access, self.teller, self.workspaces_of, self.heartbeat, leased=bool(self.sync.tables)
        )

    def holder(self, thread: str) -> Operation[Holder | None]:
        return (yield from self.leases.holder(thread))

    def release(self, thread: str, above: int = 0) -> Operation[Lease | None]:
        self._must_lease()
        token = yield from self.leases.take_back(thread, above)
        return None if token is None else Lease(thread, token, "")

    @cached_property
    def leases(self) -> Leases:
        return Leases(self.access.dialect, self.schema, self.lease_seconds, self.verify)

    @cached_property
    def heartbeat(self) -> Heartbeat:
        optional = self.options.on_unavailable == "warn"
        return agents_module("heartbeat").Heartbeat(self.access, self.leases, optional=optional)  # type: ignore[no-any-return]

    def hold(self, thread: str) -> Holds:
        """A thread, held outside a run. Raises ConfigurationError where nothing is tracked, and so nothing leased."""
        self._must_lease()
        return agents_module("heartbeat").Holds(self.heartbeat, thread, list(self.savers))  # type: ignore[no-any-return]

    def _must_lease(self) -> None:
        if not self.sync.tables:
            raise ConfigurationError("This hub tracks no tables, so it has no leases. Declare them with hub.track(...).")

    def saver(self, database: str | URL | None, serde: Any) -> Any:
        """A new saver; `close` closes it."""
        url = checkpoint_url(self.access.url, database)
        made = agents_module("savers").open_saver(url, prepared=self.prepared, serde=serde)
        self.savers.add(made)
        return made

    def close_savers(self) -> None:
        """Closes the savers that were handed out and the threads of services, and wakes who waits for signals."""
        for service in self.services:
            if "blocking" in service.__dict__:
                service.blocking.close()
        for saver in list(self.savers):
            saver.close()
        if "signals" in self.__dict__:
            self.signals.close()

    @cached_property
    def preparer(self) -> Preparer:
        made = agents_module("nodes").Preparer
        return made(self.access, self.teller, self.workspaces_of, self.placement, self.after_tools)  # type: ignore[no-any-return]


def agents_module(module: str) -> Any:
    """A module of the agents' floor, or what to install. The face needs no extra, so it is imported here."""
    try:
        return import_module(f"abreast.agents.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f'Agents need LangChain: pip install "abreast[langchain]" ({error.name} is missing).') from None
