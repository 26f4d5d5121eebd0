"""Counting verdicts: shares, Wilson intervals, tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from evals.cases import Case
from evals.score import VERDICTS, Verdict

Verdicts = Mapping[str, Verdict]
"""Verdict by case id."""


def wilson(count: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The interval in which the true share lies with 95 %, after Wilson (1927)."""
    if total == 0:
        return 0.0, 1.0
    share = count / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def counted(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How often each verdict was given."""
    found = Counter(verdicts)
    return {one: found[one] for one in VERDICTS}


def by_kind(cases: Iterable[Case], verdicts: Verdicts) -> dict[str, dict[str, int]]:
    """The counts of each kind of case."""
    kinds: dict[str, list[Verdict]] = {}
    for case in cases:
        if case.id in verdicts:
            kinds.setdefault(case.kind, []).append(verdicts[case.id])
    return {kind: counted(found) for kind, found in kinds.items()}
