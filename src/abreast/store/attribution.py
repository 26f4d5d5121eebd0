"""Who and why, for the writes of one transaction: settings on PostgreSQL, a one-row table on SQLite."""

from __future__ import annotations

from typing import Any

from abreast.errors import ConfigurationError
from abreast.store.schema import DialectName, own
from abreast.store.statement import Statement
from abreast.types import Actor, Attribution


def check_actor(actor: Any) -> None:
    """Raises ConfigurationError for what is no actor."""
    if not isinstance(actor, Actor):
        raise ConfigurationError(f"An actor is made by user(…), agent(…) or system(…), not {type(actor).__name__}.")


def set_statement(dialect: DialectName, attribution: Attribution) -> Statement:
    """Attributes the writes that follow in this transaction; a savepoint that is rolled back takes it back too."""
    parameters = {
        "actor_type": attribution.actor.type,
        "actor_id": attribution.actor.id,
        "thread": attribution.thread,
        "mutation": attribution.mutation,
    }
    if dialect == "postgresql":
        return Statement(
            "select set_config('abreast.actor_type', :actor_type, true), "
            "set_config('abreast.actor_id', coalesce(:actor_id, ''), true), "
            "set_config('abreast.thread', coalesce(:thread, ''), true), "
            "set_config('abreast.mutation', coalesce(:mutation, ''), true)",
            parameters,
        )
    return Statement(
        f"insert into {own('sqlite', 'context')} (id, actor_type, actor_id, thread, mutation) "
        f"values (1, :actor_type, :actor_id, :thread, :mutation) on conflict (id) do update "
        f"set actor_type = excluded.actor_type, actor_id = excluded.actor_id, "
        f"thread = excluded.thread, mutation = excluded.mutation",
        parameters,
    )


def clear_statement(dialect: DialectName) -> Statement:
    """Ends the attribution. On SQLite this must happen before the commit: the row would speak for the next writer."""
    if dialect == "postgresql":
        return set_statement(dialect, Attribution())
    return Statement(f"delete from {own('sqlite', 'context')}")
