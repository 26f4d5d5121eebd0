"""A report as text for people, as JSON, and as SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import PurePath
from typing import Any, Literal

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
        "results": [_result(one, index) for one in report.findings],
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


def _result(one: Finding, index: dict[str, int]) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": one.place}]}
    if one.file is not None:
        uri = PurePath(one.file)
        artifact = {"uri": uri.as_uri() if uri.is_absolute() else uri.as_posix().replace(" ", "%20")}
        location["physicalLocation"] = {"artifactLocation": artifact, "region": {"startLine": one.line or 1}}
    # Lines move; the code, the place and the file are what make a finding the same as yesterday's.
    same = hashlib.sha256("\n".join((one.code, one.place, one.file or "")).encode()).hexdigest()
    return {
        "ruleId": one.code,
        "ruleIndex": index[one.code],
        "level": "warning",
        "message": {"text": f"{one.place}: {one.message} {one.mend}"},
        "locations": [location],
        "partialFingerprints": {"place/v1": same},
    }
