"""Approvals: requests to let one tool call run, and what people decided. Statements and the reading of their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from abreast.records import Approval, Decision
from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.store.terms import locked, moment, now


@dataclass(frozen=True, slots=True)
class Past:
    """One request as its tool's record sees it. `mutation` is what its effect was made under, by workspace of `revisions`."""

    tool: str
    status: str
    at: str
    mutation: str | None
    revisions: Mapping[str, int]


def _due(dialect: DialectName) -> str:
    """Whether an open request's time is over, by the database's clock. It counts as expired from then on, stored or not."""
    return f"(a.status = 'open' and a.expires_at is not null and a.expires_at <= {now(dialect)})"


def _columns(dialect: DialectName) -> str:
    times = ", ".join(moment(dialect, f"a.{name}") for name in ("created_at", "expires_at", "decided_at"))
    status = f"case when {_due(dialect)} then 'expired' else a.status end"
    return f"a.approval, a.thread, a.run, a.tool, {status}, a.kind, a.tenant, a.user_id, a.body, a.decision, {times}"


def insert_statement(dialect: DialectName, schema: str, approval: Approval, *, mutation: str | None) -> Statement:
    """A new request: one row, or none where the same call has made it before. Whose it is says the thread, where the
    service knows it. It expires by the database's clock, so many seconds from now as its policy says."""
    seconds = approval.policy.get("expires")
    if dialect == "postgresql":
        expires = "clock_timestamp() + cast(:seconds as float8) * interval '1 second'"
    else:
        expires = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+' || :seconds || ' seconds')"
    thread = own(dialect, "thread", schema)
    owner = ", ".join(
        f"coalesce((select {name} from {thread} where thread = :thread), cast(:{name} as text))" for name in ("tenant", "user_id")
    )
    return Statement(
        f"insert into {own(dialect, 'approval', schema)} "
        f"(thread, approval, run, tenant, user_id, kind, tool, status, body, expires_at) "
        f"values (:thread, :approval, :run, {owner}, :kind, :tool, 'open', :body, {expires if seconds is not None else 'null'}) "
        f"on conflict (thread, approval) do nothing returning approval",
        {
            "thread": approval.thread,
            "approval": approval.id,
            "run": approval.run,
            "tenant": approval.tenant,
            "user_id": approval.user,
            "kind": approval.kind,
            "tool": approval.tool,
            "body": _body(approval, mutation),
            **({"seconds": seconds} if seconds is not None else {}),
        },
    )


def _body(approval: Approval, mutation: str | None) -> str:
    # In ASCII: a model may write half a character or a NUL, which a database does not take.
    return json.dumps(
        {
            "arguments": dict(approval.arguments),
            "digest": approval.digest,
            "call": approval.call,
            "question": approval.question,
            "revisions": dict(approval.revisions),
            "touches": None if approval.touches is None else [list(one) for one in approval.touches],
            "policy": dict(approval.policy),
            "schema": approval.schema,
            "mutation": mutation,
        }
    )


def find_statement(dialect: DialectName, schema: str, *, thread: str, approval: str, lock: bool = False) -> Statement:
    """One request of a thread. `lock`: nobody else decides about it before the transaction ends."""
    return Statement(
        f"select {_columns(dialect)} from {own(dialect, 'approval', schema)} a "
        f"where a.thread = :thread and a.approval = :approval{locked(dialect, 'a') if lock else ''}",
        {"thread": thread, "approval": approval},
    )


def list_statement(
    dialect: DialectName,
    schema: str,
    *,
    tenant: str | None = None,
    user: str | None = None,
    thread: str | None = None,
    run: str | None = None,
    status: str | None = None,
    after: str | None = None,
    limit: int,
) -> Statement:
    """Requests, newest first, behind one of them; of a tenant, a person, a thread, a run, or in one state."""
    place, due = own(dialect, "approval", schema), _due(dialect)
    given = {"tenant": tenant, "user_id": user, "thread": thread, "run": run}
    tests = [f"a.{name} = :{name}" for name, value in given.items() if value is not None]
    parameters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    among = "".join(f"and b.{name} = :{name} " for name in parameters)
    if status == "open":
        tests.append(f"a.status = 'open' and not {due}")
    elif status == "expired":
        tests.append(f"(a.status = 'expired' or {due})")
    elif status is not None:
        tests.append("a.status = :status")
        parameters["status"] = status
    if after is not None:
        tests.append(
            # One that is not among these says nothing about where they begin, and not even that it is there.
            f"(a.created_at, a.approval) < (select b.created_at, b.approval from {place} b where b.approval = :after "
            f"{among}order by b.created_at limit 1)"
        )
        parameters["after"] = after
    where = f"where {' and '.join(tests)} " if tests else ""
    return Statement(
        f"select {_columns(dialect)} from {place} a {where}order by a.created_at desc, a.approval desc limit :limit",
        {**parameters, "limit": limit},
    )


def open_statement(dialect: DialectName, schema: str, *, thread: str, run: str | None = None, due: bool = False) -> Statement:
    """The ids of a thread's open requests, or of one of its runs, oldest first, locked where others decide too. `due`: those
    whose time is over, and of which that was not stored yet."""
    of_run = "and a.run = :run " if run is not None else ""
    return Statement(
        f"select a.approval from {own(dialect, 'approval', schema)} a where a.thread = :thread {of_run}and a.status = 'open' "
        f"and {'' if due else 'not '}{_due(dialect)} order by a.created_at, a.approval{locked(dialect, 'a')}",
        {"thread": thread, **({"run": run} if run is not None else {})},
    )


def settle_statement(
    dialect: DialectName, schema: str, *, thread: str, approval: str, status: str, decision: Decision | None
) -> Statement:
    """What came of a request: one row if it was open."""
    return Statement(
        f"update {own(dialect, 'approval', schema)} set status = :status, decision = :decision, decided_at = {now(dialect)} "
        f"where thread = :thread and approval = :approval and status = 'open' returning approval",
        {"thread": thread, "approval": approval, "status": status, "decision": decision and _decision_text(decision)},
    )


def _decision_text(decision: Decision) -> str:
    arguments = None if decision.arguments is None else dict(decision.arguments)
    made = {"type": decision.type, "arguments": arguments, "message": decision.message}
    return json.dumps({**made, "confirmed": dict(decision.confirmed), "by": decision.by})


def adopt_statement(dialect: DialectName, schema: str, *, thread: str, approval: str, run: str) -> Statement:
    """Says which run waits for an open request now."""
    return Statement(
        f"update {own(dialect, 'approval', schema)} set run = :run "
        f"where thread = :thread and approval = :approval and status = 'open'",
        {"thread": thread, "approval": approval, "run": run},
    )


def due_statement(dialect: DialectName, schema: str, *, limit: int) -> Statement:
    """Open requests whose time is over, that nobody is deciding about: thread and id."""
    return Statement(
        f"select a.thread, a.approval from {own(dialect, 'approval', schema)} a where {_due(dialect)} "
        f"order by a.thread, a.approval limit :limit{locked(dialect, 'a', skip=True)}",
        {"limit": limit},
    )


def read_approvals(rows: Sequence[Sequence[Any]]) -> list[Approval]:
    """The requests of these rows."""
    return [_approval(row) for row in rows]


def _approval(row: Sequence[Any]) -> Approval:
    approval, thread, run, tool, status, kind, tenant, user, body, decision, created, expires, decided = row
    known = json.loads(body)
    touches = known["touches"]
    return Approval(
        id=approval,
        thread=thread,
        run=run,
        tool=tool,
        arguments=known["arguments"],
        digest=known["digest"],
        status=status,
        kind=kind,
        tenant=tenant,
        user=user,
        call=known["call"],
        question=known["question"],
        revisions=known["revisions"],
        touches=None if touches is None else tuple((kind, wanted, version) for kind, wanted, version in touches),
        policy=known["policy"],
        schema=known["schema"],
        decision=None if decision is None else Decision(**json.loads(decision), at=decided or ""),
        created_at=created,
        expires_at=expires,
    )


# -- records ---------------------------------------------------------------------------------------------------------


def _of(tenant: str | None) -> str:
    return "" if tenant is None else " and a.tenant = :tenant"


def past_statement(dialect: DialectName, schema: str, *, tenant: str | None) -> Statement:
    """Every request to let a tool run, or those of a tenant, oldest first, as `read_past` reads it. Reads the whole table: for
    an operator."""
    status = f"case when {_due(dialect)} then 'expired' else a.status end"
    return Statement(
        f"select a.tool, {status}, coalesce({moment(dialect, 'a.decided_at')}, {moment(dialect, 'a.created_at')}), a.body "
        f"from {own(dialect, 'approval', schema)} a where a.kind = 'tool'{_of(tenant)} order by a.created_at, a.approval",
        {} if tenant is None else {"tenant": tenant},
    )


def read_past(rows: Sequence[Sequence[Any]]) -> list[Past]:
    """What a `past_statement` answered."""
    found = []
    for tool, status, at, text in rows:
        body = json.loads(text)
        found.append(Past(tool, status, at, body["mutation"], body["revisions"]))
    return found


def decided_statement(dialect: DialectName, schema: str, *, tenant: str | None, after: tuple[str, str], limit: int) -> Statement:
    """Requests that a person decided about, of a tenant or all, in a fixed order, behind the one of this thread and id."""
    return Statement(
        f"select {_columns(dialect)} from {own(dialect, 'approval', schema)} a where a.decision is not null "
        f"and (a.thread, a.approval) > (:thread, :approval){_of(tenant)} order by a.thread, a.approval limit :limit",
        {"thread": after[0], "approval": after[1], "limit": limit, **({} if tenant is None else {"tenant": tenant})},
    )


def effects_statement(dialect: DialectName, schema: str, *, workspace: str, mutations: Sequence[str]) -> Statement:
    """The events that these mutations made in a workspace, as `log.read_history` reads them. Reads the workspace's log."""
    names = {f"mutation_{number}": mutation for number, mutation in enumerate(mutations)}
    listed = ", ".join(f":{name}" for name in names)
    (text,) = script(dialect, "history", schema=quote(schema), **{"and": f"and e.mutation in ({listed}) "})
    return Statement(text, {"workspace": workspace, "limit": 100_000, **names})


def used_statement(dialect: DialectName, schema: str, *, thread: str, approval: str) -> Statement:
    """Whether the answer to a question was handed to the graph that asked."""
    place = own(dialect, "approval", schema)
    return Statement(
        f"select used from {place} where thread = :thread and approval = :approval", {"thread": thread, "approval": approval}
    )


def use_statement(dialect: DialectName, schema: str, *, thread: str, approval: str) -> Statement:
    """Notes that the answer to a question was handed to the graph that asked: one row, the first time."""
    place = own(dialect, "approval", schema)
    return Statement(
        f"update {place} set used = 1 where thread = :thread and approval = :approval and used = 0 "
        f"and decision is not null returning approval",
        {"thread": thread, "approval": approval},
    )
