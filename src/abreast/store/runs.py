"""Runs and their events: the queue, who has which run, and the stream that people follow."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from abreast.records import Event, Run
from abreast.store.schema import DialectName, own
from abreast.store.statement import Statement
from abreast.store.terms import moment, now

_ACTIVE = "('running', 'awaiting_approval')"


def _columns(dialect: DialectName) -> str:
    times = ", ".join(moment(dialect, f"r.{name}") for name in ("created_at", "started_at", "ended_at"))
    return f"r.run, r.thread, r.user_id, r.status, r.message, r.answer, r.attempts, r.error, {times}"


def insert_statement(
    dialect: DialectName, schema: str, *, thread: str, run: str, user: str, message: str, checkpoint: str | None
) -> Statement:
    """A run that waits for its turn, with the next number of its thread, which must be locked."""
    place = own(dialect, "run", schema)
    return Statement(
        f"insert into {place} (thread, run, number, user_id, status, message, checkpoint) "
        f"select :thread, :run, coalesce(max(number), 0) + 1, :user, 'queued', :message, :checkpoint from {place} "
        f"where thread = :thread",
        {"thread": thread, "run": run, "user": user, "message": message, "checkpoint": checkpoint},
    )


def run_statement(dialect: DialectName, schema: str, *, thread: str, run: str) -> Statement:
    """One run of a thread. Behind it: where it begins, who has it, what somebody wants of it, what its reader confirms."""
    return Statement(
        f"select {_columns(dialect)}, r.checkpoint, r.holder, r.wanted, r.told from {own(dialect, 'run', schema)} r "
        f"where r.thread = :thread and r.run = :run",
        {"thread": thread, "run": run},
    )


def runs_statement(dialect: DialectName, schema: str, *, thread: str, after: str | None, limit: int) -> Statement:
    """Runs of a thread, newest first, behind one of them."""
    place = own(dialect, "run", schema)
    behind = f"and r.number < (select number from {place} where thread = :thread and run = :after) " if after else ""
    return Statement(
        f"select {_columns(dialect)} from {place} r where r.thread = :thread {behind}order by r.number desc limit :limit",
        {"thread": thread, "limit": limit, **({"after": after} if after else {})},
    )


def open_statement(dialect: DialectName, schema: str, *, thread: str) -> Statement:
    """The runs of a thread that have not ended, in order."""
    return Statement(
        f"select {_columns(dialect)} from {own(dialect, 'run', schema)} r where r.thread = :thread "
        f"and r.status in ('queued', 'running', 'awaiting_approval') order by r.number",
        {"thread": thread},
    )


def read_run(row: Sequence[Any]) -> Run:
    """A run of these columns."""
    run, thread, user, status, message, answer, attempts, error, created, started, ended = row[:11]
    return Run(
        run,
        thread,
        user,
        status,
        message,
        answer,
        attempts,
        None if error is None else json.loads(error),
        created,
        started,
        ended,
    )


def candidates_statement(dialect: DialectName, schema: str, *, limit: int, locked: bool, but: Collection[str] = ()) -> Statement:
    """Runs whose turn it is, oldest first, `but` those of these agents. `locked`: their threads are, so that whoever claims
    too sees none of them."""
    names = {f"agent_{number}": agent for number, agent in enumerate(sorted(but))}
    others = f"and t.agent not in ({', '.join(f':{name}' for name in names)}) " if names else ""
    run, thread = own(dialect, "run", schema), own(dialect, "thread", schema)
    lock = " for update of t skip locked" if locked and dialect == "postgresql" else ""
    return Statement(
        f"select {_columns(dialect)} from {run} r join {thread} t on t.thread = r.thread "
        f"where r.status = 'queued' {others}and not exists (select 1 from {run} o "
        f"where o.thread = r.thread and (o.status in {_ACTIVE} or (o.status = 'queued' and o.number < r.number))) "
        f"order by r.created_at limit :limit{lock}",
        {"limit": limit, **names},
    )


def claim_statement(dialect: DialectName, schema: str, *, thread: str, run: str, holder: str) -> Statement:
    """Takes a queued run: one row if it was there to take."""
    return Statement(
        f"update {own(dialect, 'run', schema)} set status = 'running', holder = :holder, claimed_at = {now(dialect)}, "
        f"started_at = coalesce(started_at, {now(dialect)}), attempts = case when attempts = 0 then 1 else attempts end "
        f"where thread = :thread and run = :run and status = 'queued' returning run",
        {"thread": thread, "run": run, "holder": holder},
    )


def held_statement(dialect: DialectName, schema: str, *, thread: str, run: str, holder: str) -> Statement:
    """One row, with what somebody wants of the run, while this attempt has it."""
    lock = " for update" if dialect == "postgresql" else ""
    return Statement(
        f"select wanted from {own(dialect, 'run', schema)} where thread = :thread and run = :run and status = 'running' "
        f"and holder = :holder{lock}",
        {"thread": thread, "run": run, "holder": holder},
    )


def put_statement(
    dialect: DialectName,
    schema: str,
    *,
    thread: str,
    run: str,
    status: str,
    answer: str | None = None,
    error: Mapping[str, Any] | None = None,
    told: Mapping[str, Any] | None = None,
    again: bool = False,
) -> Statement:
    """A run's new status. `again` counts another beginning. What it was wanted for is done with."""
    ended = status in ("succeeded", "failed", "cancelled")
    return Statement(
        f"update {own(dialect, 'run', schema)} set status = :status, holder = null, answer = coalesce(:answer, answer), "
        f"error = :error, told = coalesce(:told, told), attempts = attempts + :more, "
        f"wanted = {'null' if ended else 'wanted'}, ended_at = {now(dialect) if ended else 'null'} "
        f"where thread = :thread and run = :run",
        {
            "thread": thread,
            "run": run,
            "status": status,
            "answer": answer,
            "error": None if error is None else json.dumps(error),
            "told": None if told is None else json.dumps(told),
            "more": int(again),
        },
    )


def want_statement(dialect: DialectName, schema: str, *, thread: str, run: str, wanted: str) -> Statement:
    """How somebody wants a running run to end; who asked first is heard."""
    return Statement(
        f"update {own(dialect, 'run', schema)} set wanted = coalesce(wanted, :wanted) where thread = :thread and run = :run "
        f"and status = 'running'",
        {"thread": thread, "run": run, "wanted": wanted},
    )


def wanted_statement(dialect: DialectName, schema: str, *, holders: Sequence[str]) -> Statement:
    """Of these attempts those that somebody wants to end: holder and how."""
    names = {f"holder_{number}": holder for number, holder in enumerate(holders)}
    listed = ", ".join(f":{name}" for name in names)
    return Statement(
        f"select holder, wanted from {own(dialect, 'run', schema)} where status = 'running' and wanted is not null "
        f"and holder in ({listed})",
        names,
    )


def lives_statement(dialect: DialectName, schema: str, *, holders: Sequence[str]) -> Statement:
    """These attempts count as claimed just now."""
    names = {f"holder_{number}": holder for number, holder in enumerate(holders)}
    listed = ", ".join(f":{name}" for name in names)
    return Statement(
        f"update {own(dialect, 'run', schema)} set claimed_at = {now(dialect)} where status = 'running' and holder in ({listed})",
        names,
    )


def abandoned_statement(dialect: DialectName, schema: str, *, seconds: float, thread: str | None = None) -> Statement:
    """Running runs, of all threads or of one, that nobody holds any more, by the database's clock: thread, run, attempts, what
    was wanted of them."""
    run, lease = own(dialect, "run", schema), own(dialect, "lease", schema)
    if dialect == "sqlite":
        alive = "l.expires_at > (julianday('now') - 2440587.5) * 86400.0"
        late = "(julianday('now') - julianday(r.claimed_at)) * 86400.0 > :seconds"
    else:
        alive = "l.expires_at > clock_timestamp()"
        late = "r.claimed_at < clock_timestamp() - cast(:seconds as float8) * interval '1 second'"
    one = "" if thread is None else "r.thread = :thread and "
    return Statement(
        f"select r.thread, r.run, r.attempts, r.wanted from {run} r where {one}r.status = 'running' and not exists "
        f"(select 1 from {lease} l where l.thread = r.thread and l.run = r.holder and {alive}) "
        f"and ({late} or exists (select 1 from {lease} l where l.thread = r.thread and l.run = r.holder)) limit 50",
        {"seconds": seconds, **({} if thread is None else {"thread": thread})},
    )


# -- events ----------------------------------------------------------------------------------------------------------


def append_statements(
    dialect: DialectName, schema: str, thread: str, events: Sequence[Event], holder: str | None = None
) -> list[Statement]:
    """Durable events of a thread, with its next numbers. They lock the thread until the transaction ends, which puts them in
    the order in which they become visible. A thread that the service does not know gets none, and none is told where the
    attempt `holder` has no run of it any more. The last statement answers with number and time of each; on PostgreSQL there
    is only one."""
    if not events:
        return []
    thread_table, place = own(dialect, "thread", schema), own(dialect, "run_event", schema)
    rows: list[str] = []
    values: dict[str, Any] = {}
    for number, event in enumerate(events):
        names = (f"{name}_{number}" for name in ("run", "type", "data"))
        rows.append(
            f"select {number} as place, " + ", ".join(f"cast(:{name} as text) as {name[: name.rindex('_')]}" for name in names)
        )
        values |= {f"run_{number}": event.data.get("run"), f"type_{number}": event.type, f"data_{number}": json.dumps(event.data)}
    held = ""
    if holder is not None:
        held = (
            f" and exists (select 1 from {own(dialect, 'run', schema)} h where h.thread = :thread and h.holder = :holder "
            f"and h.status = 'running')"
        )
        values["holder"] = holder
    count = f"update {thread_table} set events = events + :count where thread = :thread{held}"
    insert = (
        f"insert into {place} (thread, event, run, type, data) select t.thread, t.events - :count + 1 + n.place, n.run, n.type, "
        f"n.data from {'counted' if dialect == 'postgresql' else thread_table} t, ({' union all '.join(rows)}) n "
        f"where t.thread = :thread{'' if dialect == 'postgresql' else held} returning event, {moment(dialect, 'at')}"
    )
    values |= {"thread": thread, "count": len(events)}
    if dialect == "postgresql":
        return [Statement(f"with counted as ({count} returning thread, events) {insert}", values)]
    first: dict[str, Any] = {name: values[name] for name in ("thread", "count", "holder") if name in values}
    return [Statement(count, first), Statement(insert, values)]


def events_statement(
    dialect: DialectName, schema: str, *, thread: str, may_read: str, access: Mapping[str, Any], after: int, limit: int
) -> Statement:
    """The durable events of a thread behind one of them, in order, for who may see it (`may_read`): no row where he
    may not, and one without a number where there are no events."""
    return Statement(
        f"select e.event, e.type, e.data, {moment(dialect, 'e.at')} from {own(dialect, 'thread', schema)} t "
        f"left join {own(dialect, 'run_event', schema)} e on e.thread = t.thread and e.event > :after "
        f"where t.thread = :thread and {may_read} order by e.event limit :limit",
        {"thread": thread, "after": after, "limit": limit, **access},
    )


def tool_events_statement(dialect: DialectName, schema: str, *, thread: str, run: str) -> Statement:
    """The events of a run's tools, in order."""
    return Statement(
        f"select event, type, data, {moment(dialect, 'at')} from {own(dialect, 'run_event', schema)} "
        f"where thread = :thread and run = :run and type like 'tool.%' order by event",
        {"thread": thread, "run": run},
    )


def read_events(rows: Sequence[Sequence[Any]]) -> list[Event]:
    """The events of these rows."""
    return [Event(type, json.loads(data), number, at) for number, type, data, at in rows]


def read_told(text: str) -> dict[str, tuple[int, int]]:
    """What a reader's receipt confirms: by workspace the revision and its check number."""
    return {workspace: (revision, check) for workspace, (revision, check) in json.loads(text).items()}
