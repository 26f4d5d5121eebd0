"""Who may read what. The rules are asked at every read, with the run context that the server built."""

from __future__ import annotations

from abreast import Readable, RunContext

from .models import Contact

REDACTED = frozenset({"door_code"})
"""Never recorded in the log and never shown to a model: only that it changed is told."""

HOUSEHOLD = frozenset({"budget", "contacts"})
"""What members of the household may see and helpers from outside may not."""


def read_plan(context: RunContext) -> Readable:
    """Everybody in the workspace reads the plan; the budget is for the household."""
    return Readable(hide=() if "budget" in context.permissions else {"budget"})


def read_contacts(context: RunContext) -> Readable | bool:
    """The household reads all contacts, helpers from outside those that were shared with them."""
    return True if "contacts" in context.permissions else Readable(Contact.shared.is_(True))
