"""What CURRENT holds: the plan whole, the checklist as counts and the next few items. The rest is for the read tools."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import RunContext

from .models import ChecklistItem, Plan
from .policy import REDACTED, read_plan

NEXT = 3


def plan(session: Session, workspace: str, context: RunContext) -> dict[str, Any] | None:
    """The workspace's plan, without what this person may not read."""
    found = session.scalars(sa.select(Plan).where(Plan.workspace_id == workspace)).first()
    if found is None:
        return None
    hidden = REDACTED | read_plan(context).hide | {"id", "workspace_id"}
    return {column.key: getattr(found, column.key) for column in sa.inspect(Plan).column_attrs if column.key not in hidden}


def checklist(session: Session, workspace: str, context: RunContext) -> dict[str, Any]:
    """How much is open and done, and what is due next."""
    items = sa.select(ChecklistItem).join(Plan, Plan.id == ChecklistItem.plan_id).where(Plan.workspace_id == workspace)
    waiting = items.where(ChecklistItem.done.is_(False)).order_by(ChecklistItem.due_on, ChecklistItem.id)

    def count(done: bool) -> int:
        found = items.where(ChecklistItem.done.is_(done)).subquery()
        return session.scalar(sa.select(sa.func.count()).select_from(found)) or 0

    return {
        "open_items": count(False),
        "done_items": count(True),
        "next": [{"id": item.id, "title": item.title, "due_on": item.due_on} for item in session.scalars(waiting.limit(NEXT))],
    }
