"""Connections beside the hub's own: LangGraph's savers want plain ones of the driver, in the hub's database or another."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url

from abreast.errors import ConfigurationError, MissingExtraError, UnavailableError

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

_PATIENCE = 30.0
"""Seconds to wait for another writer of a SQLite file: a transaction of the application that takes long is no reason to
lose a checkpoint."""


_TIMEOUT = 10.0
"""Seconds to wait for a connection to PostgreSQL, where the URL says nothing else."""


def checkpoint_url(own: URL, given: str | URL | None) -> URL:
    """Where checkpoints go: where they were asked for, or beside the hub's data. On SQLite that is a file of its own, so
    that a long transaction of the application holds up no conversation: `app.db` gets `app.checkpoints.db`."""
    if given is not None:
        try:
            url = make_url(given)
        except sa.exc.ArgumentError:
            raise ConfigurationError(
                "This is not a database URL. Examples: sqlite:///checkpoints.db, postgresql+psycopg://host/db."
            ) from None
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            raise ConfigurationError(f"Checkpoints are kept on SQLite or PostgreSQL, not on {url.get_backend_name()}.")
        if url.get_backend_name() == "sqlite" and (url.database in (None, "", ":memory:") or "mode=memory" in str(url.database)):
            raise ConfigurationError("Checkpoints in memory are lost with the process. Name a file.")
        return url
    if own.get_backend_name() == "postgresql":
        return own
    name, question, rest = str(own.database).partition("?")  # a file: URI has options behind its path
    path = Path(name)
    return own.set(database=str(path.with_name(f"{path.stem}.checkpoints{path.suffix}")) + question + rest)


def sqlite_connection(url: URL) -> sqlite3.Connection:
    """A connection that may be used by several threads, one after the other."""
    path = str(url.database)
    try:
        return sqlite3.connect(path, timeout=_PATIENCE, check_same_thread=False, uri=path.startswith("file:"))
    except sqlite3.OperationalError as error:
        raise UnavailableError(f"The file of the checkpoints cannot be opened: {error}.") from error


def postgres_pool(url: URL, *, size: int, prepared: bool) -> ConnectionPool[Any]:
    """A pool that is not open yet, of connections in autocommit whose rows are dicts, as LangGraph's saver wants them."""
    try:
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool
    except ModuleNotFoundError as error:
        raise MissingExtraError(f'PostgreSQL needs psycopg: pip install "abreast[postgres]" ({error.name} is missing).') from None
    _, arguments = sa.create_engine(url.set(drivername="postgresql+psycopg")).dialect.create_connect_args(url)
    options = {**arguments, "autocommit": True, "row_factory": dict_row, "prepare_threshold": 0 if prepared else None}
    timeout = float(str(url.query.get("connect_timeout", _TIMEOUT)))
    # It tries again for no longer than a caller waits: by default it would rest for minutes after an outage of minutes.
    return ConnectionPool(min_size=0, max_size=size, timeout=timeout, reconnect_timeout=timeout, open=False, kwargs=options)
