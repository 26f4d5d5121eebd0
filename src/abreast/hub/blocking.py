"""The synchronous door: the hub's methods that touch the database, without coroutines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from abreast.access import Operation, perform
from abreast.core import install as installing
from abreast.core.read import Page
from abreast.hub.operations import Operations
from abreast.records import Approval, Caller, Decision, GateRecord, Listing
from abreast.store.change import Change
from abreast.types import (
    UNKNOWN,
    Actor,
    Applied,
    Attribution,
    Batch,
    ChangeEvent,
    Finding,
    Holder,
    Lease,
    OpenEffect,
    Row,
    Standing,
    Telling,
)

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from abreast.agents.nodes import PreparedCall
    from abreast.agents.runner import RunResult, Validator

T = TypeVar("T")

_BOTH = (
    *("track", "loader", "interest", "attribute", "write", "middleware", "tools", "tool", "gate", "lease", "checkpointer"),
    *("service", "services"),
)
"""What the hub itself hands out for both doors."""


class Blocking:
    """The methods of a hub that touch the database, without coroutines."""

    def __init__(self, core: Operations) -> None:
        self._core = core

    def install(self) -> None:
        """See `Abreast.install`."""
        self._script(self._do(self._core.install_plan()))

    def install_sql(self) -> list[str]:
        """See `Abreast.install_sql`."""
        return [statement for group in self._do(self._core.install_plan()) for statement in group]

    def uninstall(self, *, log_too: bool = False) -> None:
        """See `Abreast.uninstall`."""
        self._script(self._do(self._core.uninstall_plan(log_too)))

    def check(self) -> list[Finding]:
        """See `Abreast.check`."""
        return self._do(self._core.check())

    def batch(
        self, workspace: str, *, thread: str = "", after: int | None = None, limit: int | None = None, context: Any = None
    ) -> Batch:
        """See `Abreast.batch`."""
        return self._do(self._core.batch(workspace, thread, after, limit, context))

    def rows(
        self,
        model: Any,
        workspace: str,
        *,
        match: Mapping[str, Any] | None = None,
        after: Any = None,
        limit: int = 100,
        context: Any = None,
    ) -> Page:
        """See `Abreast.rows`."""
        return self._do(self._core.page(model, workspace, match, after, limit, context))

    def row(self, model: Any, entity_id: Any, workspace: str, *, context: Any = None) -> Row:
        """See `Abreast.row`."""
        return self._do(self._core.row(model, entity_id, workspace, context))

    def history(self, workspace: str, *, context: Any = None, **narrowed: Any) -> list[ChangeEvent]:
        """See `Abreast.history`."""
        return self._do(self._core.history(workspace, context, narrowed))

    def apply(
        self,
        workspace: str,
        *changes: Change,
        actor: Actor = UNKNOWN,
        thread: str | None = None,
        mutation: str | None = None,
        lease: Lease | None = None,
    ) -> Applied:
        """See `Abreast.apply`."""
        return self._do(self._core.apply(workspace, changes, Attribution(actor, thread, mutation), lease))

    def settle_mutation(self, workspace: str, mutation: str, *, done: bool, outcome: Any = None) -> None:
        """See `Abreast.settle_mutation`."""
        self._do(self._core.settle_mutation(workspace, mutation, done, outcome))

    def unsettled(self, workspace: str) -> list[OpenEffect]:
        """See `Abreast.unsettled`."""
        return self._do(self._core.unsettled(workspace))

    def holder(self, thread: str) -> Holder | None:
        """See `Abreast.holder`."""
        return self._do(self._core.holder(thread))

    def release(self, thread: str) -> None:
        """See `Abreast.release`."""
        lease = self._do(self._core.release(thread))
        while lease and (known := max([saver.announce(lease) for saver in list(self._core.savers)], default=0)) > lease.token:
            lease = self._do(self._core.release(thread, above=known))

    def add_workspace(self, workspace: str) -> None:
        """See `Abreast.add_workspace`."""
        self._do(self._core.add_workspace(workspace))

    def standings(self, workspace: str) -> list[Standing]:
        """See `Abreast.standings`."""
        return self._do(self._core.standings(workspace))

    def prune(self, workspace: str, *, horizon: int) -> None:
        """See `Abreast.prune`."""
        self._do(self._core.prune(workspace, horizon))

    def tell(self, telling: Telling) -> None:
        """See `Abreast.tell`."""
        self._do(self._core.tell(telling))

    def prepare(self, state: Mapping[str, Any], config: RunnableConfig, *, context: Any, model: Any = None) -> PreparedCall:
        """See `Abreast.prepare`; the answer goes back through `answered`."""
        return self._core.preparer.prepare(state, config, context, model)

    def run(
        self,
        agent: Any,
        input: Any,
        *,
        thread: str,
        context: Any,
        config: RunnableConfig | None = None,
        validate: Sequence[Validator] = (),
    ) -> RunResult:
        """See `Abreast.run`; calls the graph's `invoke`."""
        return self._core.runner.run(agent, input, thread=thread, context=context, config=config, validate=validate)

    def approvals(
        self,
        thread: str | None = None,
        *,
        run: str | None = None,
        status: str | None = "open",
        after: str | None = None,
        limit: int = 50,
    ) -> Listing:
        """See `Abreast.approvals`."""
        return self._do(self._core.approvals.listed(thread=thread, run=run, status=status, after=after, limit=limit))

    def approval(self, thread: str, approval: str, *, context: Any = None) -> Approval:
        """See `Abreast.approval`."""
        return self._do(self._core.approvals.one(thread, approval, context=context))

    def decide(
        self, thread: str, approval: str, decision: Decision, *, caller: Caller | None = None, context: Any = None
    ) -> Approval:
        """See `Abreast.decide`."""
        return self._do(self._core.approvals.decide(thread, approval, decision, by=caller, context=context))

    def gates(
        self, *, tenant: str | None = None, now: datetime | None = None, in_a_row: int = 20, days: float = 30
    ) -> list[GateRecord]:
        """See `Abreast.gates`."""
        return self._do(self._core.approvals.gates(tenant=tenant, now=now, in_a_row=in_a_row, days=days))

    def labels(self, *, tenant: str | None = None) -> Iterator[dict[str, Any]]:
        """See `Abreast.labels`."""
        for page in self._core.approvals.labels(tenant):
            found = self._do(page)
            yield from found
            if not found:
                return

    def close(self) -> None:
        """See `Abreast.close`."""
        self._core.close_savers()
        self._core.access.close()

    def __getattr__(self, name: str) -> NoReturn:
        both = name in _BOTH
        raise AttributeError(f"hub.blocking has no {name!r}." + (f" hub.{name} serves synchronous code too." if both else ""))

    def _do(self, operation: Operation[T]) -> T:
        return perform(self._core.access, operation)

    def _script(self, groups: installing.Groups) -> None:
        self._core.access.script(groups)
        self._core.verified = None
