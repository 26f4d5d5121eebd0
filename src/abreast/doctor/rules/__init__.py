"""The families of rules, each a module with its own tuple RULES."""

from __future__ import annotations

from abreast.doctor.rule import Rule
from abreast.doctor.rules import ours, pauses, place, reducers, threads, tool_loops, tool_schemas, tools

RULES: tuple[Rule, ...] = (
    *reducers.RULES,
    *place.RULES,
    *tools.RULES,
    *tool_loops.RULES,
    *tool_schemas.RULES,
    *pauses.RULES,
    *threads.RULES,
    *ours.RULES,
)
"""All rules, in the order of their codes."""
