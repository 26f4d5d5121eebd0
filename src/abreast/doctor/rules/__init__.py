"""The families of rules, each a module with its own tuple RULES."""

from __future__ import annotations

from abreast.doctor.rule import Rule
from abreast.doctor.rules import erasure, ours, pauses, place, reducers, streams, threads, tool_loops, tool_schemas, tools

_FAMILIES = (
    *reducers.RULES,
    *place.RULES,
    *tools.RULES,
    *tool_loops.RULES,
    *tool_schemas.RULES,
    *pauses.RULES,
    *threads.RULES,
    *streams.RULES,
    *erasure.RULES,
    *ours.RULES,
)
RULES: tuple[Rule, ...] = tuple(sorted(_FAMILIES, key=lambda rule: rule.code))
"""All rules, in the order of their codes."""
