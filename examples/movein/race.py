"""The picture of two versions racing: who read which version of the plan, who wrote on it, and whose write was refused.

It is made of facts only: the log of the plan, and the tool calls of the assistant with their answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from abreast import ChangeEvent

from .agent import ToolCall
from .show import Stage, plain, who, writes

FIELD = "move_in_date"


def race(stage: Stage, plan_id: str, changes: Sequence[ChangeEvent], calls: Sequence[ToolCall]) -> Table:
    """Three lanes, from top to bottom: everybody else, the versions of the plan, the assistant."""
    words = stage.words
    left, right, cross = ("──▶", "◀──", "✗──") if stage.drawn else ("-->", "<--", "x--")
    table = Table(
        words("race_others"), words("race_plan", plan=plan_id), words("race_assistant"), show_edge=False, pad_edge=False
    )
    seen = 0

    def until(revision: int) -> None:
        """Writes of others up to this revision."""
        nonlocal seen
        for change in changes:
            if seen < change.revision <= revision:
                by = Text.assemble(who(change), (f" {left}", "cyan"))
                table.add_row(by, Text(_version(change), style="bold"), "")
        seen = max(seen, revision)

    for call in calls:
        if call in writes(calls):
            version, current, wrote = call.arguments.get("version"), call.told.get("current"), call.told.get("revision")
            wanted = _wanted(call.arguments, plan_id)
            if current is not None and wanted is not None:
                until(int(current["version"]))
                said = words("race_refused", version=version, wanted=wanted)
                table.add_row("", Text(f"r{current['version']}", style="dim"), Text(f"{cross} {said}", style="red"))
            elif wrote is not None and wanted is not None:
                mine = next((change for change in changes if change.revision == wrote), None)
                until(int(wrote) - 1)
                seen = max(seen, int(wrote))
                said = words("race_written", version=version)
                shown = Text(_version(mine) if mine else f"r{wrote}", style="bold")
                table.add_row("", shown, Text(f"{right} {said}", style="green"))
            continue
        for row in _rows(call.told, plan_id):
            version = int(row["version"])
            if version > seen:
                seen = version - 1
                until(version)
            table.add_row("", Text(f"r{version}", style="dim"), Text(f"{left} {words('race_read', version=version)}"))
    return table


def _version(change: ChangeEvent) -> str:
    """A version of the plan, by the date that it holds."""
    return plain(f"r{change.revision}  {change.values[FIELD][1]}" if FIELD in change.values else f"r{change.revision}")


def _wanted(arguments: Mapping[str, Any], plan_id: str) -> str | None:
    """What a call wants the date to be; None if it is about something else."""
    return plain(str(arguments.get(FIELD))) if arguments.get("id") == plan_id and FIELD in arguments else None


def _rows(told: Mapping[str, Any], plan_id: str) -> list[Mapping[str, Any]]:
    """The plan, where a tool's answer holds it."""
    found = told.get("rows") if isinstance(told.get("rows"), list) else [told]
    return [row for row in found or () if isinstance(row, dict) and row.get("id") == plan_id and "version" in row]
