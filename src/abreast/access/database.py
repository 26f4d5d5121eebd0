"""Which access a database gets: ours by URL, or one beside the application's own engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine, make_url

from abreast.access.base import Access
from abreast.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


def open_access(database: str | URL | Engine | AsyncEngine, *, prepared: bool = True) -> Access:
    """The access for a URL or an engine. Nothing is connected yet. `prepared` is PostgreSQL's prepared statements.

    Raises ConfigurationError for a database that is neither SQLite nor PostgreSQL and for SQLite in memory, and
    MissingExtraError where psycopg is not installed.
    """
    # sqlalchemy.ext.asyncio cannot be imported without greenlet, which a synchronous application need not have.
    given: Any = getattr(database, "sync_engine", database)
    engine = given if isinstance(given, Engine) else None
    try:
        url = make_url(database) if isinstance(database, str) else engine.url if engine is not None else database
    except sa.exc.ArgumentError:
        raise ConfigurationError(
            "This is not a database URL. Examples: sqlite:///app.db, postgresql+psycopg://host/db."
        ) from None
    assert isinstance(url, URL)
    backend = url.get_backend_name()
    if backend == "sqlite":
        from abreast.access.sqlite import SQLiteAccess

        if url.database in (None, "", ":memory:") or "mode=memory" in str(url.database):
            raise ConfigurationError(
                "SQLite in memory belongs to one connection; the hub reads and writes on its own. Use a file."
            )
        return SQLiteAccess(url)
    if backend == "postgresql":
        try:
            from abreast.access.postgres import PostgresAccess
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f'PostgreSQL needs psycopg: pip install "abreast[postgres]" ({error.name} is missing).'
            ) from None
        shared = engine if engine is not None and isinstance(database, Engine) and engine.driver == "psycopg" else None
        return PostgresAccess(url, shared, prepared=prepared)
    raise ConfigurationError(f"abreast works on SQLite and PostgreSQL, not on {backend}.")
