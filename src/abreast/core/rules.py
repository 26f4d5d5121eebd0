"""Read rules: what a rule of the application answers, and rows and events as it lets them be seen. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from abreast.errors import ConfigurationError
from abreast.store.tracked import Readable, TrackedTable
from abreast.types import ChangeEvent, Row


def as_readable(answer: Any, tracked: TrackedTable) -> Readable:
    """What a read rule answered, as a Readable. Raises ConfigurationError for anything that is not an answer."""
    if isinstance(answer, Readable):
        names = {f.name for f in tracked.fields}
        unknown = answer.hide - names
        if unknown:
            raise ConfigurationError(
                f"The read rule of {tracked.entity_type} hides {sorted(unknown)}, which are not its columns."
            )
        return answer
    if answer is True:
        return Readable()
    if answer is False:
        return Readable(sa.false())
    if isinstance(answer, sa.ColumnElement):
        return Readable(answer)
    raise ConfigurationError(
        f"The read rule of {tracked.entity_type} returned {type(answer).__name__}; "
        f"it returns Readable(...), a condition, True or False."
    )


def visible_event(event: ChangeEvent, rule: Readable | None) -> ChangeEvent | None:
    """The event without hidden fields; None if it concerns hidden fields only."""
    if rule is None or not rule.hide:
        return event
    fields = tuple(name for name in event.fields if name not in rule.hide)
    if event.op == "update" and not fields:
        return None
    return replace(event, fields=fields, values={k: v for k, v in event.values.items() if k not in rule.hide})


def visible_row(row: Row, rule: Readable) -> Row:
    """The row without hidden fields."""
    if not rule.hide:
        return row
    return replace(row, values={name: value for name, value in row.values.items() if name not in rule.hide})
