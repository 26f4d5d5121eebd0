"""Leases: the right to run one thread, with a token that only grows and an expiry by the database's clock."""

from __future__ import annotations

from abreast.store.schema import DialectName, own, quote, script
from abreast.store.statement import Statement
from abreast.types import Lease

_NOW = {"postgresql": "clock_timestamp()", "sqlite": "(julianday('now') - 2440587.5) * 86400.0"}


def acquire_statement(dialect: DialectName, schema: str, *, thread: str, run: str, seconds: float) -> Statement:
    """Takes the lease if it is free: one row with the new token, or none while another run holds it."""
    (text,) = script(dialect, "acquire", schema=quote(schema))
    return Statement(text, {"thread": thread, "run": run, "seconds": seconds})


def extend_statement(dialect: DialectName, schema: str, lease: Lease, *, seconds: float) -> Statement:
    """The heartbeat: one row if the lease is still this run's, also after its expiry as long as nobody took it."""
    later = "cast(:seconds as float8) * interval '1 second'" if dialect == "postgresql" else ":seconds"
    return Statement(
        f"update {own(dialect, 'lease', schema)} set expires_at = {_NOW[dialect]} + {later} "
        f"where thread = :thread and token = :token and run is not null returning token",
        {"thread": lease.thread, "token": lease.token, "seconds": seconds},
    )


def release_statement(dialect: DialectName, schema: str, lease: Lease) -> Statement:
    """Gives the lease back; the row and its token stay."""
    return Statement(
        f"update {own(dialect, 'lease', schema)} set run = null where thread = :thread and token = :token",
        {"thread": lease.thread, "token": lease.token},
    )


def hold_statement(dialect: DialectName, schema: str, lease: Lease) -> Statement:
    """One row if the lease is this run's, and then nobody can take it before the transaction ends."""
    lock = " for share" if dialect == "postgresql" else ""
    return Statement(
        f"select token from {own(dialect, 'lease', schema)} where thread = :thread and token = :token and run is not null{lock}",
        {"thread": lease.thread, "token": lease.token},
    )
