"""Interest: the function of the application that says what a conversation has to do with, and what it answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast.core.gather import is_own
from abreast.core.loading import unanswered
from abreast.errors import AbreastError, ConfigurationError, InputError
from abreast.store.change import entity_id
from abreast.store.tracked import TrackedTable, table_of
from abreast.store.values import has_typed_key, typed_key
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

    @property
    def may_lack(self) -> bool:
        """Whether an entity may be missing because its row is gone: what names it in the application's database often goes
        with the row. Only an answer of whole types is the same before and after."""
        return bool(self.entities) or not self.types

    def tells(self, event: ChangeEvent) -> bool:
        """Whether a change is told: of what was named, and every deletion of what may have been named while it was there."""
        if event.op == "delete" and self.may_lack:
            return True
        return event.entity_type in self.types or (event.entity_type, event.entity_id) in self.entities

    def whole(self, event: ChangeEvent) -> bool | None:
        """Whether all changes of this one's type and operation are told (True) or none (False); None where it depends on
        the entity."""
        if event.entity_type in self.types or (event.op == "delete" and self.may_lack):
            return True
        return None if any(kind == event.entity_type for kind, _ in self.entities) else False


def ask(
    interest: Interest, session: Session, workspace: str, thread: str, context: Any, tables: Iterable[TrackedTable]
) -> Concerns | None:
    """What the function answered; None for everything. Raises ConfigurationError where it fails or answers something else."""
    name = name_of(interest)
    connection = session.connection()
    transaction = connection.get_transaction()
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
    _same_snapshot(name, connection, transaction)
    if answer is None:
        return None
    if found is None:
        raise ConfigurationError(f"The interest {name!r} returned {type(answer).__name__}; {_RETURNS} Nothing was read.")
    by_table = {tracked.table: tracked for tracked in tables}
    types: set[str] = set()
    entities: set[tuple[str, str]] = set()
    for one in found:
        try:
            if isinstance(one, tuple):
                model, key = one
                tracked = _tracked(model, by_table)
                entities.add((tracked.entity_type, _id(tracked, key)))
            else:
                types.add(_tracked(one, by_table).entity_type)
        except (AbreastError, KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"The interest {name!r} returned {type(one).__name__} {str(one)[:80]!r} among it; {_RETURNS} Nothing was read."
            ) from error
    return Concerns(frozenset(types), frozenset(entities))


def concerned(concerns: Concerns | None, event: ChangeEvent, thread: str) -> bool:
    """Whether a conversation hears of a change; it hears of what it did itself, whatever it has to do with."""
    return concerns is None or concerns.tells(event) or is_own(event, thread)


def name_of(interest: Interest) -> str:
    """What the function is called."""
    return getattr(interest, "__name__", type(interest).__name__)


def _same_snapshot(name: str, connection: sa.Connection, transaction: sa.RootTransaction | None) -> None:
    """Raises ConfigurationError where the function ended the transaction of the batch, or left it failed."""
    if transaction is None or connection.get_transaction() is not transaction or not transaction.is_active:
        raise ConfigurationError(f"The interest {name!r} ended the transaction that it was given. Nothing was read.")
    try:
        connection.execute(sa.select(1))
    except sa.exc.DBAPIError as error:
        if unanswered(error):
            raise
        raise ConfigurationError(f"A statement of the interest {name!r} failed, and it went on. Nothing was read.") from error


def _tracked(model: Any, by_table: Mapping[sa.Table, TrackedTable]) -> TrackedTable:
    if isinstance(model, str):
        return {tracked.entity_type: tracked for tracked in by_table.values()}[model]
    return by_table[table_of(model)]


def _id(tracked: TrackedTable, key: Any) -> str:
    """The id in the one form that the log has; other spellings of the same number or UUID are the same entity."""
    if isinstance(key, sa.Row):
        key = tuple(key)
    if isinstance(key, tuple) and len(key) == 1 == len(tracked.key):
        key = key[0]  # a row of a query for one column
    given = entity_id(key)
    if not has_typed_key(tracked):
        return given
    values = typed_key(tracked, given)
    if values is None:
        raise InputError(f"{given!r} is not an id of {tracked.entity_type}.")
    return entity_id(values[0] if len(values) == 1 else values)
