"""Who may read and write what. The rules are asked at every read and write, with the run context that the server built."""

from __future__ import annotations

from abreast import Readable, RunContext, Writable

from .models import Contact

REDACTED = frozenset({"door_code"})
"""Never recorded in the log and never shown to a model: only that it changed is told."""

HOUSEHOLD = frozenset({"budget", "contacts", "plan"})
"""What members of the household may see and change, and helpers from outside may not."""

WRITE_TOOLS = frozenset(
    {
        "update_plan",
        "create_checklist_item",
        "update_checklist_item",
        "delete_checklist_item",
        "create_contact",
        "update_contact",
    }
)
"""What the assistant is given to write with: few tools, and none that makes or ends a whole plan."""


def read_plan(context: RunContext) -> Readable:
    """Everybody in the workspace reads the plan; the budget is for the household."""
    return Readable(hide=() if "budget" in context.permissions else {"budget"})


def read_contacts(context: RunContext) -> Readable | bool:
    """The household reads all contacts, helpers from outside those that were shared with them."""
    return True if "contacts" in context.permissions else Readable(Contact.shared.is_(True))


def write_plan(context: RunContext) -> Writable | bool:
    """The household's assistant changes the plan. The door code is redacted and not named here: nobody's assistant does."""
    return "plan" in context.permissions and Writable({"update"})


def write_checklist(context: RunContext) -> Writable | bool:
    """The household's assistant does everything with the checklist, that of helpers from outside ticks things off."""
    return "plan" in context.permissions or Writable({"update"}, fields={"done"})


def write_contacts(context: RunContext) -> Writable | bool:
    """Contacts are the household's."""
    return "contacts" in context.permissions and Writable({"insert", "update"})
