"""Leases: the right to run one thread, with a token that only grows and an expiry by the database's clock."""

from __future__ import annotations

from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.types import Lease

_NOW = {"postgresql": "clock_timestamp()", "sqlite": "(julianday('now') - 2440587.5) * 86400.0"}


def acquire_statement(
    dialect: DialectName, schema: str, *, thread: str, run: str, seconds: float, left: str | None = None
) -> Statement:
    """Takes the lease if it is free: one row with the new token, or none while another run holds it. Asking again, because
    the reply was lost, takes it again. `left` is a run of this process that has ended and could not give its lease back."""
    (text,) = script(dialect, "acquire", schema=quote(schema))
    return Statement(text, {"thread": thread, "run": run, "seconds": seconds, "left": left})


def free_statement(thread: str) -> Statement:
    """PostgreSQL: whether `acquire_statement` would wait for no write under an earlier lease; until the transaction ends none
    begins."""
    return Statement("select pg_try_advisory_xact_lock(hashtextextended(:thread, 1))", {"thread": thread})


def is_timeout(error: Exception) -> bool:
    """PostgreSQL: whether `acquire_statement` failed because a write under the old lease did not end. A table that somebody
    has locked fails earlier, at a place in the statement."""
    cause = getattr(error, "orig", error)
    place = getattr(getattr(cause, "diag", None), "statement_position", None)
    return getattr(cause, "sqlstate", None) == "55P03" and place is None


def holder_statement(dialect: DialectName, schema: str, *, thread: str) -> Statement:
    """The run that holds the thread, and for how many seconds more it does without a heartbeat."""
    now = _NOW[dialect]
    left = f"cast(extract(epoch from expires_at - {now}) as float8)" if dialect == "postgresql" else f"expires_at - {now}"
    return Statement(f"select run, {left} from {own(dialect, 'lease', schema)} where thread = :thread", {"thread": thread})


def extend_statement(dialect: DialectName, schema: str, lease: Lease, *, seconds: float) -> Statement:
    """The heartbeat: one row if the lease is still this run's, also after its expiry as long as nobody took it."""
    later = "cast(:seconds as float8) * interval '1 second'" if dialect == "postgresql" else ":seconds"
    return Statement(
        f"update {own(dialect, 'lease', schema)} set expires_at = {_NOW[dialect]} + {later} "
        f"where thread = :thread and token = :token and run is not null returning token",
        {"thread": lease.thread, "token": lease.token, "seconds": seconds},
    )


def release_statement(dialect: DialectName, schema: str, *, thread: str, run: str) -> Statement:
    """Gives the lease back, if this run has it; the row and its token stay. A run's name is its own, and so needs no token."""
    return Statement(
        f"update {own(dialect, 'lease', schema)} set run = null where thread = :thread and run = :run",
        {"thread": thread, "run": run},
    )


def take_back_statement(dialect: DialectName, schema: str, *, thread: str, above: int) -> Statement:
    """Takes the lease from whoever has it: one row with a token that nobody was given; none where the thread was never
    leased. `above` is a token that was found elsewhere: then only a lease that nobody has is raised."""
    greatest = "greatest" if dialect == "postgresql" else "max"
    return Statement(
        f"update {own(dialect, 'lease', schema)} set token = {greatest}(token, :above) + 1, run = null "
        f"where thread = :thread and (:above = 0 or run is null) returning token",
        {"thread": thread, "above": above},
    )


def lift_statement(dialect: DialectName, schema: str, lease: Lease, *, above: int) -> Statement:
    """Gives a lease that is still this run's a token above that one: one row with it. Asking again gives the same."""
    return Statement(
        f"update {own(dialect, 'lease', schema)} set token = :above + 1 "
        f"where thread = :thread and token in (:token, :above + 1) and run = :run returning token",
        {"thread": lease.thread, "token": lease.token, "run": lease.run, "above": above},
    )


def hold_statement(dialect: DialectName, schema: str, lease: Lease) -> Statement:
    """One row if the lease is this run's, and then nobody can take it before the transaction ends.

    PostgreSQL: whoever takes a lease waits for the shared lock of its thread (`acquire.sql`). It is not a lock of the row
    alone, so that a heartbeat is not kept waiting by a long transaction; the key share looks at the newest row.
    """
    condition = "thread = :thread and token = :token and run is not null"
    if dialect == "sqlite":
        text = f"select token from {own(dialect, 'lease', schema)} where {condition}"
    else:
        text = (
            "with waited as materialized (select pg_advisory_xact_lock_shared(hashtextextended(:thread, 1))) "
            f"select held.token from waited, {own(dialect, 'lease', schema)} as held where {condition} for key share of held"
        )
    return Statement(text, {"thread": lease.thread, "token": lease.token})
