"""What an examination says: findings, notes on what was not looked into, and the status for whoever runs it in CI."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

NOTHING, FOUND, NOT_LOOKED = 0, 1, 2
"""Exit status: nothing was found, something was found, or it could not be looked."""

_SUPPRESSION = re.compile(r"#\s*abreast:\s*ignore\[([A-Z0-9,\s]+)\]")


@dataclass(frozen=True, slots=True)
class Spot:
    """A line of a source file. `file` is as the interpreter knows it; findings carry it relative to the working folder."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One value in the wrong place: what, where, and what to do about it. `url` is the rule's page in the documentation."""

    code: str
    place: str
    file: str | None
    line: int | None
    message: str
    mend: str
    url: str

    def as_dict(self) -> dict[str, str | int | None]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Note:
    """What was not looked into, and why. A note is no finding; it keeps an empty list from reading as "all is well"."""

    place: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of one examination, in the order of file and line, and its notes."""

    findings: tuple[Finding, ...]
    notes: tuple[Note, ...] = ()
    looked: bool = True

    @property
    def status(self) -> int:
        """0: nothing found. 1: findings. 2: the graph as a whole could not be looked into."""
        if self.findings:
            return FOUND
        return NOTHING if self.looked else NOT_LOOKED


class Selection:
    """Which codes count. A code may be shortened: `AB1` names all codes that begin with it. `ignore` goes before `select`."""

    def __init__(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> None:
        self.select, self.ignore = tuple(select), tuple(ignore)

    def __contains__(self, code: object) -> bool:
        text = str(code)
        return text.startswith(self.select or ("",)) and not (self.ignore and text.startswith(self.ignore))

    def unknown(self, codes: Sequence[str]) -> tuple[str, ...]:
        """What was asked for and names no code: a misspelt selection would look like a healthy graph."""
        return tuple(part for part in (*self.select, *self.ignore) if not any(code.startswith(part) for code in codes))


def unsuppressed(findings: Iterable[Finding], lines: Callable[[str], Sequence[str]]) -> list[Finding]:
    """The findings without those that a comment `# abreast: ignore[CODE]` on their line, or alone on the line above, names."""
    known: dict[str, Mapping[int, frozenset[str]]] = {}
    kept = []
    for finding in findings:
        if finding.file is not None and finding.line is not None:
            if finding.file not in known:
                known[finding.file] = suppressions(lines(finding.file))
            if finding.code in known[finding.file].get(finding.line, ()):
                continue
        kept.append(finding)
    return kept


def suppressions(lines: Sequence[str]) -> dict[int, frozenset[str]]:
    """Line number to the codes that are ignored there."""
    found: dict[int, frozenset[str]] = {}
    for number, line in enumerate(lines, 1):
        match = _SUPPRESSION.search(line)
        if match is None:
            continue
        codes = frozenset(code.strip() for code in match[1].split(",") if code.strip())
        at = number + 1 if line.lstrip().startswith("#") else number
        found[at] = found.get(at, frozenset()) | codes
    return found
