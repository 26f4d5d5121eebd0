"""SARIF that code scanning takes: every result has a place, every fingerprint is its own, every address is escaped."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from langchain.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from abreast.doctor import Finding, Note, Report, examine
from abreast.doctor.formats import printed
from abreast.doctor.rules import RULES


def run_of(report: Report) -> Any:
    (run,) = json.loads(printed(report, "sarif"))["runs"]
    return run


def finding(file: str | None, line: int | None = 3, message: str = "it took 17 bytes.", place: str = "channel notes") -> Finding:
    return Finding("AB201", place, file, line, message, "Do not.", "docs/reference/doctor/ab201.md")


def addresses(run: Any) -> list[str]:
    return [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]]


def test_a_file_is_written_as_an_address():
    names = ["src/app.py", "my files/äpp#1?%.py", "a:b.py", "/tmp/x y.py"]
    found = addresses(run_of(Report(tuple(finding(name) for name in names))))
    assert found == ["src/app.py", "my%20files/%C3%A4pp%231%3F%25.py", "a%3Ab.py", "file:///tmp/x%20y.py"]
    assert [unquote(one.removeprefix("file://")) for one in found] == names
    assert all(re.fullmatch(r"[A-Za-z0-9._~/%:-]+", one) for one in found)


def test_a_finding_without_a_file_is_shown_at_the_file_of_its_graph():
    run = run_of(Report((finding(None, None),), file="app.py"))
    (location,) = run["results"][0]["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "app.py"}, "region": {"startLine": 1}}
    assert location["logicalLocations"] == [{"fullyQualifiedName": "channel notes"}]
    (location,) = run_of(Report((finding(None, None),)))["results"][0]["locations"]
    assert location == {"logicalLocations": [{"fullyQualifiedName": "channel notes"}]}


def test_the_file_of_a_graph_is_known():
    @tool
    def find_notes(text: str) -> str:
        """Find notes."""
        return text

    report = examine(
        StateGraph(MessagesState).add_node("tools", ToolNode([find_notes])).add_edge(START, "tools"), module=__name__
    )
    assert report.file is not None
    assert Path(report.file).name == Path(__file__).name


def test_fingerprints_differ_and_stay():
    def prints(*findings: Finding) -> list[str]:
        return [one["partialFingerprints"]["place/v2"] for one in run_of(Report(findings))["results"]]

    first, second = prints(finding("app.py", 3, "asks for a."), finding("app.py", 3, "asks for b."))
    assert first != second
    assert len(set(prints(finding("app.py"), finding("app.py", 9), finding("app.py", 9)))) == 3
    assert prints(finding("app.py", 3, "it took 17 bytes.")) == prints(finding("app.py", 80, "it took 2000 bytes."))
    assert prints(finding("app.py")) != prints(finding("other.py"))


def test_the_log_has_what_the_standard_requires():
    """The required properties and the closed lists of values of SARIF 2.1.0, for what is written here."""
    log = json.loads(printed(Report((finding("app.py"),), (Note("graph", "not looked into"),)), "sarif"))
    assert log["version"] == "2.1.0"
    assert set(log) == {"$schema", "version", "runs"}
    run = log["runs"][0]
    driver = run["tool"]["driver"]
    assert driver["name"]
    assert [rule["id"] for rule in driver["rules"]] == [rule.code for rule in RULES]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["fullDescription"]["text"]
        assert f"docs/reference/doctor/{rule['id'].lower()}.md" in rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in {"none", "note", "warning", "error"}
        assert "helpUri" not in rule  # it must be an absolute address, and the pages have none
    (result,) = run["results"]
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] >= 1
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    assert invocation["toolExecutionNotifications"] == [{"level": "note", "message": {"text": "graph: not looked into"}}]
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
