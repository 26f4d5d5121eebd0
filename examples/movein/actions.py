"""What the product does in one step over several rows. `hub.tool` makes a tool of it; a screen would call it as it is."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import Field

from abreast import RefusedError, Transaction

from .models import ChecklistItem, Plan


def postpone_move(plan_id: str, version: int, days: Annotated[int, Field(ge=1, le=366)], tx: Transaction) -> dict[str, Any]:
    """Postpone the whole move: the move-in date and the due dates of all open things to do, by the same number of days.

    Example: {"plan_id": "a1", "version": 7, "days": 7} -> {"move_in_date": "2026-10-05", "due_dates_moved": 31}.
    All of it is written or nothing. If the plan has changed since it was read, nothing is written and the answer holds it
    as it is now.

    Args:
        plan_id: The plan's id, as the list tool shows it.
        version: The version of the plan that you decided on, as the list tool shows it.
        days: How many days later, 1 to 366.
    """
    plan = tx.get(Plan, plan_id, version=version)
    if plan.status in ("moved", "cancelled") or plan.move_in_date is None:
        raise RefusedError("There is no move ahead that could be postponed. Nothing was written.", status=plan.status)
    by = dt.timedelta(days=days)
    plan.move_in_date += by
    of_plan = sa.select(ChecklistItem).where(ChecklistItem.plan_id == plan_id)
    waiting = tx.session.scalars(of_plan.where(ChecklistItem.done.is_(False), ChecklistItem.due_on.is_not(None))).all()
    for item in waiting:
        assert item.due_on is not None
        item.due_on += by
    return {"move_in_date": plan.move_in_date.isoformat(), "due_dates_moved": len(waiting)}
