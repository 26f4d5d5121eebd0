"""A report as text for people, as JSON, and as SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import PurePath
from typing import Any, Literal
from urllib.parse import quote

from abreast.doctor.findings import Finding, Report
from abreast.doctor.rule import Rule
from abreast.doctor.rules import RULES


def printed(report: Report, form: Literal["text", "json", "sarif"]) -> str:
    """The report in one of the three forms."""
    if form == "sarif":
        return as_sarif(report, RULES, version("abreast"))
    return as_json(report) if form == "json" else as_text(report)


def as_text(report: Report) -> str:
    """Two lines a finding: where and what, then the mend; then what was not looked into; then the count."""
    lines = []
    for one in report.findings:
        where = f"{one.file}:{one.line}: " if one.file else ""
        lines += [f"{where}{one.code} {one.place}: {one.message}", f"    {one.mend} ({one.url})"]
    lines += [f"note: {note.place}: {note.message}" for note in report.notes]
    count = len(report.findings)
    if report.looked:
        lines.append("Nothing was found." if not count else f"{count} finding{'s' * (count > 1)}.")
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """A list of findings: code, place, file, line, message, mend, url. Notes are not in it; the command says them on stderr."""
    return json.dumps([one.as_dict() for one in report.findings], ensure_ascii=False, indent=2)


def as_sarif(report: Report, rules: Iterable[Rule], release: str) -> str:
    """One run with every rule described, a result a finding, and each note as a notification."""
    known = tuple(rules)
    index = {rule.code: at for at, rule in enumerate(known)}
    run = {
        "tool": {"driver": {"name": "abreast doctor", "version": release, "rules": [_rule(rule) for rule in known]}},
        "invocations": [
            {
                "executionSuccessful": report.looked,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": f"{note.place}: {note.message}"}} for note in report.notes
                ],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": _results(report, index),
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, ensure_ascii=False, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.text},
        "help": {"text": f"{rule.mend} See {rule.url}."},
        "defaultConfiguration": {"level": "warning"},
    }


def _results(report: Report, index: dict[str, int]) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    results = []
    for one in report.findings:
        # Lines move, and what was measured grows; the code, the place, the file and the words are what make a finding the
        # same as yesterday's. Two that are alike in all of these are told apart by their number.
        words = re.sub(r"\d+", "0", one.message)
        same = hashlib.sha256("\n".join((one.code, one.place, one.file or "", words)).encode()).hexdigest()
        seen[same] += 1
        results.append(
            {
                "ruleId": one.code,
                "ruleIndex": index[one.code],
                "level": "warning",
                "message": {"text": f"{one.place}: {one.message} {one.mend}"},
                "locations": [_location(one, report.file)],
                "partialFingerprints": {"place/v2": f"{same}:{seen[same]}"},
            }
        )
    return results


def _location(one: Finding, module: str | None) -> dict[str, Any]:
    """Where a finding is. Code scanning takes no result without a file: what has none is shown at the head of the graph's."""
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": one.place}]}
    file = one.file or module
    if file is not None:
        path = PurePath(file)
        uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
        region = {"startLine": (one.line or 1) if one.file else 1}
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": region}
    return location
