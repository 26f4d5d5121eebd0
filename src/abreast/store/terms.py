"""Pieces of SQL that the two databases say differently: times as the service's tables keep them, and locks."""

from __future__ import annotations

from abreast.store.schema import DialectName


def now(dialect: DialectName) -> str:
    """The database's own clock."""
    return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')" if dialect == "sqlite" else "clock_timestamp()"


def moment(dialect: DialectName, column: str) -> str:
    """A time as ISO 8601 text, UTC."""
    if dialect == "sqlite":
        return column
    return f"""to_char({column} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""


def locked(dialect: DialectName, of: str, *, skip: bool = False) -> str:
    """What a select ends with that keeps its rows until the transaction ends; SQLite's writer has locked everything. `skip`:
    rows that others have locked are left out."""
    return f" for update of {of}{' skip locked' if skip else ''}" if dialect == "postgresql" else ""
