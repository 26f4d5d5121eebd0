"""Which saver a database of checkpoints gets."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy.engine import URL

from abreast.access import postgres_pool, sqlite_connection
from abreast.agents.saver import Fenced
from abreast.errors import MissingExtraError


def open_saver(url: URL, *, prepared: bool, serde: Any = None) -> Fenced:
    """The saver for a database; it connects at its first use. Raises MissingExtraError where LangGraph's is missing."""
    kind = url.get_backend_name()
    try:
        if kind == "sqlite":
            from abreast.agents.saver_sqlite import FencedSqliteSaver

            return FencedSqliteSaver(partial(sqlite_connection, url), serde=serde)
        from abreast.agents.saver_postgres import FencedPostgresSaver
    except ModuleNotFoundError as error:
        extra = "langchain" if kind == "sqlite" else "langchain-postgres"
        raise MissingExtraError(
            f'Checkpoints on {kind} need LangGraph\'s saver: pip install "abreast[{extra}]" ({error.name} is missing).'
        ) from None
    size = FencedPostgresSaver.threads
    return FencedPostgresSaver(partial(postgres_pool, url, size=size, prepared=prepared), serde=serde)
