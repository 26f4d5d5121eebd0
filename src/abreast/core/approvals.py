"""Approvals: stored requests to let one tool call run, and the decisions of people about them (G21 to G23).

The row is the only authority. A tool asks it whenever its call is made, and what resumes a run carries no decision. Each
flow here is for one transaction, so that a decision and what follows from it are made together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from abreast.access import Operation, read, snapshot, write
from abreast.core import policy
from abreast.core.basis import moment_of, said
from abreast.core.lease import must_hold
from abreast.core.mark import Start
from abreast.core.rules import visible_event
from abreast.core.sync import Sync, Wanted, check_id
from abreast.errors import (
    AbreastError,
    AbsentError,
    ConfigurationError,
    DecidedError,
    DecisionError,
    NotAllowedError,
    OutdatedError,
)
from abreast.records import Approval, Caller, Decision, Event, GateRecord, Listing
from abreast.store import approvals as store
from abreast.store import conversations, log, mutations, runs
from abreast.store.statement import Flow
from abreast.telemetry import log as logger
from abreast.types import ChangeEvent, Lease

SHOWN = 100
"""Changes that a refused decision names at most, the newest."""

_ENDED = {
    "expired": "Nobody decided in time; the request has expired.",
    "withdrawn": "The request was withdrawn: its run was ended.",
}

Check = Callable[[Mapping[str, Any]], None]
"""Arguments that a person gave in place of a call's. Raises InputError that says what is wrong with them."""

CheckAnswer = Callable[[Any, Any], None]
"""A graph's own question and a person's answer in. Raises DecisionError for one that the graph could not go on with."""

More = Callable[[Approval], Flow[Any]]
"""What else happens in the transaction of a decision: the run that waits for it is queued, for example."""


@dataclass(frozen=True)
class Approvals:
    """The requests of one hub. `checks` knows the arguments of its gated tools, by their names."""

    sync: Sync
    verify: Callable[[], Operation[None]]
    checks: Mapping[str, Check] = field(default_factory=dict)
    check_answer: CheckAnswer | None = None

    # -- asking --------------------------------------------------------------------------------------------------

    def find(self, thread: str, approval: str) -> Operation[Approval | None]:
        """The request of that id, if there is one."""
        return (yield from read(lambda: self._found(thread, approval)))

    def request(self, approval: Approval, *, mutation: str | None = None, lease: Lease | None = None) -> Operation[Approval]:
        """Stores a request with HEAD of the workspaces that its `revisions` name, under the run's lease, and tells the
        thread's stream. The one that the same call has made before comes back as it is now. Raises LeaseLostError."""
        check_id(approval.thread)
        yield from self.verify()
        return (yield from write(lambda: self.requesting(approval, mutation=mutation, lease=lease)))

    def requesting(self, approval: Approval, *, mutation: str | None = None, lease: Lease | None = None) -> Flow[Approval]:
        """`request`, inside the caller's transaction."""
        if lease is not None:
            yield from must_hold(self._dialect, self._schema, lease)
        yield from self._lock(approval.thread)
        asked = replace(approval, revisions=(yield from self._heads(approval.revisions)))
        told = {"tool": asked.tool, "arguments": dict(asked.arguments), "call": asked.call}
        if (yield store.insert_statement(self._dialect, self._schema, asked, mutation=mutation)):
            yield from self._tell("approval.requested", asked, told)
        found = yield from self._found(approval.thread, approval.id)
        assert found is not None
        if found.status == "open" and asked.run and found.run != asked.run:
            # A later run makes the call that an earlier one has left without an answer, and waits for it now.
            yield store.adopt_statement(self._dialect, self._schema, thread=found.thread, approval=found.id, run=asked.run)
            found = replace(found, run=asked.run)
            yield from self._tell("approval.requested", found, told)
        return found

    def last(self, workspace: str, entity_type: str, entity_id: str) -> Operation[int | None]:
        """The revision of a row's last change in a workspace; None where the workspace has no such row."""

        def flow() -> Flow[int | None]:
            found = yield log.versions_statement(
                self._dialect, self._schema, workspace=workspace, entity_type=entity_type, entity_ids=[entity_id]
            )
            return int(found[0][1]) if found and found[0][1] is not None else None

        return (yield from read(flow))

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(
        self, thread: str, approval: str, decision: Decision, *, by: Caller | None, context: Any = None, more: More | None = None
    ) -> Operation[Approval]:
        """Decides, and returns the request as it is then. The same decision again returns it too.

        `more` happens in the same transaction. `context` is the run context of whoever decides: what has changed is told
        as it lets that person read it. Raises AbsentError, NotAllowedError, DecidedError, DecisionError or OutdatedError.
        """
        check_id(thread, approval)
        yield from self.verify()
        try:
            return (yield from write(lambda: self.deciding(thread, approval, decision, by=by, more=more)))
        except OutdatedError as error:
            raise (yield from self.as_read(error, context)) from None

    def deciding(
        self, thread: str, approval: str, decision: Decision, *, by: Caller | None, more: More | None = None
    ) -> Flow[Approval]:
        """`decide`, inside the caller's transaction. The changes of its OutdatedError are those of the log; show them as
        `as_read` makes them."""
        yield from self._lock(thread)
        found = yield from self._found(thread, approval, lock=True)
        if found is None or not policy.may_see(found, by):
            raise AbsentError()
        if not policy.may_decide(found, by):
            raise NotAllowedError()
        if found.status != "open":
            if policy.same_decision(found.decision, decision):
                return found
            raise DecidedError(_ENDED.get(found.status), approval=found.id, status=found.status)
        wrong = policy.malformed(found, decision)
        if wrong is not None:
            raise DecisionError(wrong, approval=found.id)
        if decision.type == "edit":
            assert decision.arguments is not None
            self._check(found, decision.arguments)
        if found.kind == "interrupt" and self.check_answer is not None:
            self.check_answer(found.question, decision.message)
        if decision.type in ("approve", "edit"):
            yield from self._must_stand(found, decision.confirmed)
        made = replace(decision, by=by.user if by is not None else decision.by)
        status = policy.STATUS[decision.type]
        settled = yield store.settle_statement(
            self._dialect, self._schema, thread=thread, approval=approval, status=status, decision=made
        )
        assert settled, "the row was locked while it was open"
        yield from self._tell("approval.decided", found, {"decision": made.type, "status": status, "by": made.by})
        after = yield from self._found(thread, approval)
        assert after is not None
        if more is not None:
            yield from more(after)
        return after

    def _check(self, approval: Approval, arguments: Mapping[str, Any]) -> None:
        """Raises DecisionError unless these could be the arguments of this very tool."""
        check = self.checks.get(approval.tool)
        if check is None:
            raise DecisionError(
                f"This process does not know the tool {approval.tool}, so an edit of its arguments cannot be checked here.",
                approval=approval.id,
            )
        try:
            check(arguments)
        except DecisionError:
            raise
        except AbreastError as error:
            raise DecisionError(error.message, approval=approval.id) from error

    def _must_stand(self, approval: Approval, confirmed: Mapping[str, int]) -> Flow[None]:
        """Raises OutdatedError where what the call touches has changed since it was proposed, or since the confirmed
        revision. HEAD is read first: what comes after it is not shown, and so is not confirmed by who confirms HEAD."""
        heads = yield from self._heads(approval.revisions)
        for workspace, revision in confirmed.items():
            if revision > heads[workspace]:
                raise DecisionError(f"{workspace} has no revision {revision} yet: nobody can have seen it.", approval=approval.id)
        changes, count = yield from self._changes(approval, heads, confirmed)
        if count:
            raise OutdatedError(approval=approval.id, changes=changes, revisions=heads, count=count)

    def withdraw(self, thread: str, run: str | None = None, *, more: More | None = None) -> Flow[list[Approval]]:
        """Takes back the open requests of a thread, or of one of its runs, inside the caller's transaction. Those whose time is
        over end as such: nothing is told of a run behind its end."""
        yield from self._lock(thread)
        taken = []
        for status in ("withdrawn", "expired"):
            late = status == "expired"
            for (approval,) in (yield store.open_statement(self._dialect, self._schema, thread=thread, run=run, due=late)):
                if (yield from self._end(thread, approval, status, more)):
                    found = yield from self._found(thread, approval)
                    assert found is not None
                    taken.append(found)
        return taken

    def open_ids(self, thread: str, run: str | None = None) -> Flow[list[str]]:
        """The ids of the open requests of a thread, or of one of its runs, oldest first. Locks them."""
        return [row[0] for row in (yield store.open_statement(self._dialect, self._schema, thread=thread, run=run))]

    def expire_due(self, *, more: More | None = None, limit: int = 100) -> Operation[list[Approval]]:
        """Ends the requests whose time is over, each in a transaction of its own with `more`. Nobody waits for it: a
        request counts as expired from its moment on."""

        def due() -> Flow[list[tuple[str, str]]]:
            return [(row[0], row[1]) for row in (yield store.due_statement(self._dialect, self._schema, limit=limit))]

        ended = []
        for thread, approval in (yield from write(due)):

            def flow(thread: str = thread, approval: str = approval) -> Flow[Approval | None]:
                yield from self._lock(thread)
                if not (yield from self._end(thread, approval, "expired", more)):
                    return None
                return (yield from self._found(thread, approval))

            one = yield from write(flow)
            if one is not None:
                ended.append(one)
        return ended

    def _end(self, thread: str, approval: str, status: str, more: More | None) -> Flow[bool]:
        """Ends an open request without a decision; False where somebody decided meanwhile."""
        if not (
            yield store.settle_statement(
                self._dialect, self._schema, thread=thread, approval=approval, status=status, decision=None
            )
        ):
            return False
        found = yield from self._found(thread, approval)
        assert found is not None
        yield from self._tell("approval.decided", found, {"decision": None, "status": status, "by": ""})
        if more is not None:
            yield from more(found)
        return True

    # -- reading -------------------------------------------------------------------------------------------------

    def listed(self, *, after: str | None = None, limit: int = 50, **narrowed: str | None) -> Operation[Listing]:
        """Requests, newest first: of a `tenant`, a `user`, a `thread`, a `run`, or in a `status`."""

        def flow() -> Flow[Listing]:
            statement = store.list_statement(self._dialect, self._schema, after=after, limit=limit + 1, **narrowed)
            found = store.read_approvals((yield statement))
            return Listing(tuple(found[:limit]), found[limit - 1].id if len(found) > limit else None)

        return (yield from read(flow))

    def one(self, thread: str, approval: str, *, by: Caller | None = None, context: Any = None) -> Operation[Approval]:
        """One request; while it is open with what it touches that has changed since, as this person may read it. Raises
        AbsentError."""
        check_id(thread, approval)
        found = yield from self.find(thread, approval)
        if found is None or not policy.may_see(found, by):
            raise AbsentError()
        if found.status != "open":
            return found

        def flow() -> Flow[list[ChangeEvent]]:
            heads = yield from self._heads(found.revisions)
            return (yield from self._changes(found, heads, {}))[0]

        events = yield from snapshot(flow)
        return replace(found, changes=tuple((yield from self._readable(events, context))))

    def as_read(self, error: OutdatedError, context: Any) -> Operation[OutdatedError]:
        """The error with the changes as JSON that this person may read. `unreadable` says how many more there are: they
        make a decision outdated all the same."""
        count = error.fields.get("count", len(error.changes))
        shown = yield from self._readable(error.changes, context)
        return OutdatedError(
            error.message,
            approval=error.approval,
            changes=shown,
            revisions=error.revisions,
            unreadable=max(0, count - len(shown)),
        )

    def _readable(self, events: Sequence[ChangeEvent], context: Any) -> Operation[list[Mapping[str, Any]]]:
        if not events:
            return []
        try:
            rules = self.sync.rules(context)
        except ConfigurationError as error:
            if context is not None:
                logger.warning("what has changed could not be shown to whoever decides: %s", error.message)
            return []

        def flow() -> Flow[list[Mapping[str, Any]]]:
            shown = []
            for workspace in dict.fromkeys(event.workspace for event in events):
                own = [event for event in events if event.workspace == workspace]
                wanted = Wanted(workspace, "", Start("head"), context, len(own), 1)
                readable = yield from self.sync.readable(wanted, rules, own, {})
                for event in own:
                    seen = visible_event(event, rules.get(event.entity_type))
                    if seen is not None and readable((event.entity_type, event.entity_id)):
                        shown.append(said(self.sync.spoken(seen, rules)))
            return shown

        return (yield from snapshot(flow))

    def _changes(
        self, approval: Approval, heads: Mapping[str, int], confirmed: Mapping[str, int]
    ) -> Flow[tuple[list[ChangeEvent], int]]:
        """What concerns the call between the revision that it stands on and HEAD, newest first, and how much that is."""
        found: list[ChangeEvent] = []
        count = 0
        for workspace, proposed in approval.revisions.items():
            base, head = max(proposed, confirmed.get(workspace, 0)), heads[workspace]
            if head <= base:
                continue
            if approval.touches is None:
                found += yield from self._since(workspace, base, head, {})
                count += head - base
                continue
            for kind, wanted, _ in approval.touches:
                events = yield from self._since(workspace, base, head, {"entity_type": kind, "entity_id": wanted})
                found += events
                count += len(events)
        return found, count

    def _since(self, workspace: str, base: int, head: int, narrowed: Mapping[str, str]) -> Flow[list[ChangeEvent]]:
        named: dict[str, Any] = {"entity_type": None, "entity_id": None, **narrowed}
        statement = log.history_statement(
            self._dialect,
            self._schema,
            workspace=workspace,
            since=None,
            until=None,
            before=head + 1,
            limit=SHOWN,
            **named,
        )
        events = log.read_history(self._dialect, (yield statement), workspace, self.sync.fields_of)
        return [event for event in events if event.revision > base]

    # -- records -------------------------------------------------------------------------------------------------

    def gates(
        self, *, tenant: str | None = None, now: datetime | None = None, in_a_row: int = 20, days: float = 30
    ) -> Operation[list[GateRecord]]:
        """The record of every tool that was asked for, by name. It reads all requests, and the log of their workspaces:
        for an operator, not for every request. `core.policy` has the rule by which a tool earns `allow`."""
        past = yield from read(lambda: self._past(tenant))
        undone = yield from snapshot(lambda: self._undone(past))
        tools: dict[str, list[policy.Judged]] = {}
        for one in past:
            judged = policy.Judged(one.status, moment_of(one.at), one.mutation in undone)
            tools.setdefault(one.tool, []).append(judged)
        moment = now or datetime.now(UTC)
        return [policy.record_of(tool, tools[tool], now=moment, in_a_row=in_a_row, days=days) for tool in sorted(tools)]

    def _past(self, tenant: str | None) -> Flow[list[store.Past]]:
        return store.read_past((yield store.past_statement(self._dialect, self._schema, tenant=tenant)))

    def _undone(self, past: Sequence[store.Past]) -> Flow[set[str]]:
        """The mutations that were approved, and whose change a person took back later."""
        wanted: dict[str, list[str]] = {}
        for one in past:
            if one.mutation and one.status in ("approved", "edited"):
                for workspace in one.revisions:
                    wanted.setdefault(workspace, []).append(one.mutation)
        undone: set[str] = set()
        for workspace, ids in wanted.items():
            for chunk in (ids[at : at + 200] for at in range(0, len(ids), 200)):
                statement = store.effects_statement(self._dialect, self._schema, workspace=workspace, mutations=chunk)
                made = log.read_history(self._dialect, (yield statement), workspace, self.sync.fields_of)
                for event in made:
                    if (yield from self._taken_back(event)):
                        undone.add(event.mutation or "")
        return undone

    def _taken_back(self, event: ChangeEvent) -> Flow[bool]:
        head = (yield from self._heads({event.workspace: 0}))[event.workspace]
        entity = {"entity_type": event.entity_type, "entity_id": event.entity_id}
        later = yield from self._since(event.workspace, event.revision, head, entity)
        return any(_takes_back(one, event) for one in later)

    def labels(self, tenant: str | None = None) -> Iterator[Operation[list[dict[str, Any]]]]:
        """What people decided, in pages until an empty one: JSON objects with a call's arguments before and after."""
        place = ("", "")

        def page() -> Flow[list[Approval]]:
            return store.read_approvals(
                (yield store.decided_statement(self._dialect, self._schema, tenant=tenant, after=place, limit=500))
            )

        def operation() -> Operation[list[dict[str, Any]]]:
            nonlocal place
            found = yield from read(page)
            if found:
                place = (found[-1].thread, found[-1].id)
            return [_label(one) for one in found]

        while True:
            yield operation()

    # -- around it -----------------------------------------------------------------------------------------------

    @property
    def _dialect(self) -> Any:
        return self.sync.dialect

    @property
    def _schema(self) -> str:
        return self.sync.schema

    def _found(self, thread: str, approval: str, *, lock: bool = False) -> Flow[Approval | None]:
        statement = store.find_statement(self._dialect, self._schema, thread=thread, approval=approval, lock=lock)
        found = store.read_approvals((yield statement))
        return found[0] if found else None

    def _lock(self, thread: str) -> Flow[None]:
        """Whoever decides about a thread's requests, and whoever ends its runs, comes one after the other."""
        yield conversations.lock_thread_statement(self._dialect, self._schema, thread=thread)

    def _heads(self, workspaces: Mapping[str, int]) -> Flow[dict[str, int]]:
        heads = {}
        for workspace in workspaces:
            found = yield mutations.head_statement(self._dialect, self._schema, workspace)
            heads[workspace] = int(found[0][0]) if found else 0
        return heads

    def _tell(self, type: Any, approval: Approval, data: Mapping[str, Any]) -> Flow[None]:
        event = Event(type, {"thread": approval.thread, "run": approval.run, "approval": approval.id, **data})
        for statement in runs.append_statements(self._dialect, self._schema, approval.thread, [event]):
            yield statement


def _takes_back(later: ChangeEvent, event: ChangeEvent) -> bool:
    """Whether a person's later change takes an agent's back: what it made is gone, what it deleted is there again, and
    what it set stands as before. Only recorded values can be compared."""
    if later.actor.type != "user":
        return False
    if event.op != "update":
        return later.op == ("delete" if event.op == "insert" else "insert")
    if later.op != "update" or not event.values:
        return False
    return all(name in later.values and later.values[name][1] == old for name, (old, _) in event.values.items())


def _label(approval: Approval) -> dict[str, Any]:
    decision = approval.decision
    assert decision is not None
    after = {"approve": approval.arguments, "edit": decision.arguments}.get(decision.type)
    return {
        "tool": approval.tool,
        "before": dict(approval.arguments),
        "after": None if after is None else dict(after),
        "decision": decision.type,
        "message": decision.message,
        "by": decision.by,
        "at": decision.at,
        "tenant": approval.tenant,
        "user": approval.user,
        "workspaces": sorted(approval.revisions),
        "thread": approval.thread,
        "run": approval.run,
        "approval": approval.id,
    }
