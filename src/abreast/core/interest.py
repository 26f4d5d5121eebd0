"""Interest: the function of the application that says what a conversation has to do with, and what it answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast.core.gather import is_own
from abreast.core.loading import unanswered
from abreast.errors import AbreastError, ConfigurationError
from abreast.store.change import entity_id
from abreast.store.tracked import TrackedTable, table_of
from abreast.types import ChangeEvent

Interest = Callable[[Session, str, str, Any], "Iterable[Any] | None"]
"""Session of the batch's snapshot, workspace, thread and run context in; out come tracked models (all of their rows) and
pairs of a model or entity type and an id, or None for everything."""

_RETURNS = "it returns a list of tracked models and of pairs of a tracked model and an id, or None."


@dataclass(frozen=True, slots=True)
class Concerns:
    """What a conversation has to do with: whole entity types, and single entities of others."""

    types: frozenset[str]
    entities: frozenset[tuple[str, str]]

    def tells(self, entity_type: str, entity_id: str) -> bool:
        """Whether a change of this entity is told."""
        return entity_type in self.types or (entity_type, entity_id) in self.entities

    def whole(self, entity_type: str) -> bool | None:
        """Whether all changes of this type are told (True) or none (False); None where it depends on the entity."""
        if entity_type in self.types:
            return True
        return None if any(kind == entity_type for kind, _ in self.entities) else False


def ask(
    interest: Interest, session: Session, workspace: str, thread: str, context: Any, tables: Iterable[TrackedTable]
) -> Concerns | None:
    """What the function answered; None for everything. Raises ConfigurationError where it fails or answers something else."""
    name = name_of(interest)
    try:
        answer = interest(session, workspace, thread, context)
        listed = isinstance(answer, Iterable) and not isinstance(answer, str | bytes | Mapping | type)
        found = list(answer) if listed and answer is not None else None
    except AbreastError:
        raise
    except Exception as error:
        if isinstance(error, sa.exc.DBAPIError) and unanswered(error):
            raise  # the database is gone, not the function wrong
        raise ConfigurationError(f"The interest {name!r} failed with {type(error).__name__}. Nothing was read.") from error
    if answer is None:
        return None
    if found is None:
        raise ConfigurationError(f"The interest {name!r} returned {type(answer).__name__}; {_RETURNS} Nothing was read.")
    by_table = {tracked.table: tracked.entity_type for tracked in tables}
    types: set[str] = set()
    entities: set[tuple[str, str]] = set()
    for one in found:
        try:
            if isinstance(one, tuple):
                model, key = one
                entities.add((_type(model, by_table), entity_id(key)))
            else:
                types.add(_type(one, by_table))
        except (AbreastError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"The interest {name!r} returned {type(one).__name__} {str(one)[:80]!r} among it; {_RETURNS} Nothing was read."
            ) from error
    return Concerns(frozenset(types), frozenset(entities))


def concerned(concerns: Concerns | None, event: ChangeEvent, thread: str) -> bool:
    """Whether a conversation hears of a change; it hears of what it did itself, whatever it has to do with."""
    return concerns is None or concerns.tells(event.entity_type, event.entity_id) or is_own(event, thread)


def name_of(interest: Interest) -> str:
    """What the function is called."""
    return getattr(interest, "__name__", type(interest).__name__)


def _type(model: Any, by_table: Mapping[sa.Table, str]) -> str:
    if isinstance(model, str):
        if model not in by_table.values():
            raise KeyError(model)
        return model
    return by_table[table_of(model)]
