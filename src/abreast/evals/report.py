"""Counting verdicts: the report, Wilson intervals, Markdown tables and the chart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from abreast.evals.cases import Case
from abreast.evals.score import VERDICTS, Verdict

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
    """How often each verdict was given. `obeyed` is counted in `other`, and beside it."""
    found = Counter(verdicts)
    counts: dict[str, int] = {one: found[one] for one in VERDICTS}
    counts["other"] += counts["obeyed"]
    return counts


def by_kind(cases: Iterable[Case], verdicts: Verdicts) -> dict[str, dict[str, int]]:
    """The counts of each kind of case."""
    kinds: dict[str, list[Verdict]] = {}
    for case in cases:
        if case.id in verdicts:
            kinds.setdefault(case.kind, []).append(verdicts[case.id])
    return {kind: counted(found) for kind, found in kinds.items()}


def report(model: str, seed: int, cases: Sequence[Case], verdicts: Mapping[str, Verdicts]) -> dict[str, Any]:
    """What `results.json` holds: counts of all cases by arm, of the held-out half, and of the held-out half by kind."""
    held_out = [case for case in cases if case.half == "held_out"]
    return {
        "model": model,
        "cases": len(cases),
        "seed": seed,
        "arms": {name: counted(found.values()) for name, found in verdicts.items()},
        "held_out": {name: counted(found[case.id] for case in held_out) for name, found in verdicts.items()},
        "kinds": {name: by_kind(held_out, found) for name, found in verdicts.items()},
    }


def total(counts: Mapping[str, int]) -> int:
    """The answers that were counted; `obeyed` ones are in `other` already."""
    return sum(counts[one] for one in ("fresh", "stale", "both", "other"))


def share(count: int, of: int) -> str:
    """A share in percent with its interval."""
    low, high = wilson(count, of)
    return f"{count / of:.0%} ({low:.0%} to {high:.0%})" if of else "none"


def tables(found: Mapping[str, Any]) -> str:
    """Two Markdown tables of the held-out half: each arm with intervals, and fresh and stale answers by kind of case."""
    arms: Mapping[str, Mapping[str, int]] = found["held_out"]
    lines = ["| arm | answers | fresh | stale | both | other |", "|---|--:|--:|--:|--:|--:|"]
    for name, counts in arms.items():
        of = total(counts)
        shares = " | ".join(share(counts[one], of) for one in ("fresh", "stale"))
        lines.append(f"| `{name}` | {of} | {shares} | {counts['both']} | {counts['other']} |")
    kinds = list(dict.fromkeys(kind for one in found["kinds"].values() for kind in one))
    lines += ["", f"| fresh / stale of | {' | '.join(f'`{name}`' for name in arms)} |", "|---|" + "--:|" * len(arms)]
    for kind in kinds:
        cells = []
        for name in arms:
            counts = found["kinds"][name][kind]
            cells.append(f"{counts['fresh']} / {counts['stale']} of {total(counts)}")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_WORDS = {
    "en": {"fresh": "fresh", "stale": "stale", "other": "both or other", "title": "Answers after a change"},
    "ko": {"fresh": "최신", "stale": "낡음", "other": "둘 다 또는 기타", "title": "변경 뒤의 답변"},
}
_STYLE = """text{font:13px system-ui,sans-serif;fill:#1f2328}.small{font-size:11px;fill:#59636e}
.fresh{fill:#1a7f37}.stale{fill:#cf222e}.other{fill:#8c959f}.mark{stroke:#1f2328;stroke-width:1.5}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}
.fresh{fill:#3fb950}.stale{fill:#f85149}.other{fill:#656c76}.mark{stroke:#e6edf3}}"""
_LEFT, _WIDE, _ROW, _TOP = 250, 410, 34, 62
_NAMES = {
    "en": {
        "no_sync": "without abreast",
        "system_snapshot": "rows in the system message",
        "system_changes": "rows and changes there",
        "default": "abreast",
        "ceiling": "old answer already right",
    },
    "ko": {
        "no_sync": "abreast 없이",
        "system_snapshot": "시스템 메시지에 행",
        "system_changes": "시스템 메시지에 행과 변경",
        "default": "abreast",
        "ceiling": "예전 답이 이미 맞을 때",
    },
}
"""What pictures call the arms that need no knowledge of the options; in this order they come first."""


def chart(found: Mapping[str, Any], language: str = "en", names: Mapping[str, str] | None = None) -> str:
    """An SVG picture: a bar an arm on the held-out half, fresh, stale and other, with the interval of the fresh share.

    `names` are what the picture calls the arms, beside names of its own for those of `make eval`. Its colours follow the
    reader's light or dark page.
    """
    words, called = _WORDS[language], {**_NAMES[language], **(names or {})}
    arms = {
        name: found["held_out"][name]
        for name in dict.fromkeys([*_NAMES[language], *found["held_out"]])
        if name in found["held_out"]
    }
    answers = max((total(counts) for counts in arms.values()), default=0)
    title = f"{words['title']}: {found['model']}, n = {answers}"
    height = _TOP + _ROW * len(arms) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" viewBox="0 0 760 {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<text x="10" y="22">{escape(title)}</text>',
    ]
    for index, one in enumerate(("fresh", "stale", "other")):
        at = _LEFT + 110 * index
        parts.append(f'<rect class="{one}" x="{at}" y="34" width="12" height="12"/>')
        parts.append(f'<text class="small" x="{at + 17}" y="44">{escape(words[one])}</text>')
    for row, (name, counts) in enumerate(arms.items()):
        parts += _bar(called.get(name, name), counts, _TOP + _ROW * row)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(name: str, counts: Mapping[str, int], top: int) -> list[str]:
    of = total(counts) or 1
    parts = [f'<text x="{_LEFT - 10}" y="{top + 16}" text-anchor="end">{escape(name)}</text>']
    at = float(_LEFT)
    for one, count in (("fresh", counts["fresh"]), ("stale", counts["stale"]), ("other", counts["both"] + counts["other"])):
        wide = _WIDE * count / of
        parts.append(f'<rect class="{one}" x="{at:.1f}" y="{top}" width="{wide:.1f}" height="22"/>')
        at += wide
    low, high = (_LEFT + _WIDE * one for one in wilson(counts["fresh"], total(counts)))
    middle = top + 11
    for x1, y1, x2, y2 in ((low, middle, high, middle), (low, middle - 4, low, middle + 4), (high, middle - 4, high, middle + 4)):
        parts.append(f'<line class="mark" x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}"/>')
    said = f"{counts['fresh'] / of:.0%} / {counts['stale'] / of:.0%}"
    parts.append(f'<text class="small" x="{_LEFT + _WIDE + 8}" y="{top + 16}">{said}</text>')
    return parts
