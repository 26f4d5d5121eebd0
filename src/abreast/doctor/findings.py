"""What an examination says: findings, notes on what was not looked into, and the status for whoever runs it in CI."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

NOTHING, FOUND, NOT_LOOKED = 0, 1, 2
"""Exit status: nothing was found, something was found, or it could not be looked."""

_COMMENT = re.compile(r"#\s*abreast\s*:(?P<rest>.*)", re.IGNORECASE)
_MEANT = re.compile(r"\s*(?:ignore|noqa|disable|suppress|skip)\b", re.IGNORECASE)
_CODES = re.compile(r"\s*ignore\s*\[(?P<codes>[\w\s,;]*)\]", re.IGNORECASE)


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
    file: str | None = None
    """The file that names the graph: where a finding without a line of its own is shown."""

    @property
    def status(self) -> int:
        """0: nothing found. 1: findings. 2: the graph as a whole could not be looked into."""
        if self.findings:
            return FOUND
        return NOTHING if self.looked else NOT_LOOKED


class Selection:
    """Which codes count. A code may be shortened: `AB1` names all codes that begin with it. `ignore` goes before `select`."""

    def __init__(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> None:
        self.select, self.ignore = tuple(map(str.upper, select)), tuple(map(str.upper, ignore))

    def __contains__(self, code: object) -> bool:
        text = str(code)
        return text.startswith(self.select or ("",)) and not (self.ignore and text.startswith(self.ignore))

    def unknown(self, codes: Sequence[str]) -> tuple[str, ...]:
        """What was asked for and names no code: a misspelt selection would look like a healthy graph."""
        given = (*self.select, *self.ignore)
        return tuple(part or "(nothing)" for part in given if not part or not any(code.startswith(part) for code in codes))


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment `# abreast: ignore[CODE]`: where it stands, the lines that it is about, and the codes, or their beginnings."""

    line: int
    about: frozenset[int]
    codes: tuple[str, ...]
    wrong: str = ""
    """What is wrong with it; empty where it is understood."""


def unsuppressed(
    findings: Iterable[Finding], files: Mapping[str, Sequence[str]], known: Sequence[str]
) -> tuple[list[Finding], list[Note]]:
    """The findings that no comment in `files` (name to lines) silences, and notes on comments that do not do what they seem to.

    A comment silences the codes that it names, or begins, on its line; alone on a line, on the statement below. It is noted if it
    cannot be understood, names no rule (`known` has the codes), or misses the line of a finding with its code.
    """
    comments = {file: comments_in(lines, known) for file, lines in files.items()}
    used: set[tuple[str, int]] = set()
    kept = []
    for finding in findings:
        silencing = [
            one
            for one in comments.get(finding.file or "", ())
            if finding.line in one.about and finding.code.startswith(one.codes or ("-",))
        ]
        used |= {(finding.file or "", one.line) for one in silencing}
        if not silencing:
            kept.append(finding)
    notes = []
    for file, found in comments.items():
        for one in found:
            wrong = one.wrong
            if not wrong and (file, one.line) not in used:
                missed = [each for each in kept if each.file == file and each.code.startswith(one.codes)]
                wrong = f"it silences nothing; {missed[0].code} was found in line {missed[0].line}" if missed else ""
            if wrong:
                notes.append(Note(f"{file}:{one.line}", f"this `abreast: ignore` comment does not silence: {wrong}"))
    return kept, notes


def comments_in(lines: Sequence[str], known: Sequence[str]) -> list[Comment]:
    """The comments in a file that speak to the doctor. What only stands in a text of the program is none."""
    if not any("abreast" in line.lower() and "#" in line for line in lines):
        return []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO("".join(lines)).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    found = []
    for at, token in enumerate(tokens):
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match is not None and _MEANT.match(match["rest"]):
            found.append(_comment(token.start[0], match["rest"], _about(tokens, at), known))
    return found


def _comment(line: int, rest: str, about: frozenset[int], known: Sequence[str]) -> Comment:
    match = _CODES.match(rest)
    codes = tuple(code for code in re.split(r"[\s,;]+", match["codes"].upper()) if code) if match else ()
    unknown = [code for code in codes if not any(one.startswith(code) for one in known)]
    if not codes:
        return Comment(line, about, (), "write it as `# abreast: ignore[AB102]`, with the codes in brackets")
    wrong = f"no rule is called {', '.join(unknown)}" if unknown else ""
    return Comment(line, about, tuple(code for code in codes if code not in unknown), wrong)


def _about(tokens: Sequence[tokenize.TokenInfo], at: int) -> frozenset[int]:
    """The lines that a comment is about.

    Behind code it is its own line, and at the end of a statement of several lines the first of these too. Alone on a line it is
    the next line with code; above decorators, the lines down to the `def` or `class` that they decorate.
    """
    line = tokens[at].start[0]
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    before = [one for one in tokens[max(0, at - 200) : at] if one.type not in blank and one.end[0] == line]
    if before:
        follows = tokens[at + 1].type if at + 1 < len(tokens) else tokenize.NEWLINE
        first = next((at for at in range(at - 1, -1, -1) if tokens[at].type == tokenize.NEWLINE), -1)
        start = next((one.start[0] for one in tokens[first + 1 :] if one.type not in blank), line)
        return frozenset((line, start)) if follows == tokenize.NEWLINE else frozenset((line,))
    behind = [one for one in tokens[at + 1 :] if one.type not in blank]
    if not behind:
        return frozenset()
    last = behind[0]
    if last.string == "@":
        last = next((one for one in behind if one.string in ("def", "class", "async") and _opens(one)), last)
    return frozenset(range(behind[0].start[0], last.start[0] + 1))


def _opens(token: tokenize.TokenInfo) -> bool:
    """True for the word at the beginning of its line."""
    return token.line[: token.start[1]].strip() == ""
