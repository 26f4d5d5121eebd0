"""The fence beside the checkpoints: the newest token that was announced for each thread, and what refuses an older one.

It is a table of its own, in whatever database holds the checkpoints, because the leases may be in another one.
"""

from __future__ import annotations

from abreast.store.schema import DialectName, literal, script
from abreast.store.statement import Statement
from abreast.types import Lease

REFUSED = "abreast: this run does not hold the thread"
REFUSED_STATE = "AB001"

TOKEN_FUNCTION = "abreast_token"  # noqa: S105 - the name of a function
"""SQLite: the function of the connection that says which token the writer has."""


def create_statements(dialect: DialectName) -> list[str]:
    """Statements that make the fence where it is missing. SQLite: for one connection, since temporary triggers may call
    a function of it; other programs that write the same file never see them."""
    if dialect == "postgresql":
        return script(dialect, "fence")
    return [
        "create table if not exists main.abreast_fence (thread text primary key, token integer not null)",
        *(
            f"create temp trigger if not exists abreast_fence_{table} before insert on main.{table} when coalesce("
            f"(select token from main.abreast_fence where thread = new.thread_id), -2) is not {TOKEN_FUNCTION}() "
            f"begin select raise(abort, {literal(REFUSED)}); end"
            for table in ("checkpoints", "writes")
        ),
    ]


def announce_statement(lease: Lease) -> Statement:
    """Makes this lease's token the one that counts, unless a newer one does. One row with the one that does."""
    return Statement(
        "insert into abreast_fence as known (thread, token) values (:thread, :token) on conflict (thread) do update "
        "set token = case when known.token < excluded.token then excluded.token else known.token end returning token",
        {"thread": lease.thread, "token": lease.token},
    )


def check_statement(thread: str, token: int) -> Statement:
    """PostgreSQL: raises `REFUSED_STATE` unless this is the newest token, and keeps it so until the transaction ends."""
    return Statement("select abreast_check_fence(:thread, :token)", {"thread": thread, "token": token})


def ready_statements() -> tuple[Statement, Statement]:
    """PostgreSQL: whether the tables of checkpoints and fence are there; and the newest migration of LangGraph's."""
    return (
        Statement(
            "select to_regclass('checkpoint_migrations') is not null and to_regclass('abreast_fence') is not null "
            "and to_regproc('abreast_check_fence') is not null as ready"
        ),
        Statement("select coalesce(max(v), -1) as newest from checkpoint_migrations"),
    )
