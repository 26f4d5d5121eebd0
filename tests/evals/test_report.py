"""The report: intervals, counts, tables and a picture that any page can hold."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from abreast.evals.cases import make
from abreast.evals.report import chart, report, tables, wilson


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662), (0, 0, 0.0, 1.0)],
)
def test_wilson_gives_the_published_intervals(count: int, of: int, low: float, high: float) -> None:
    assert wilson(count, of) == pytest.approx((low, high), abs=5e-5)


@pytest.fixture
def found() -> dict[str, Any]:
    cases = make(number=4, kinds=["plain", "planted"])
    fresh = {case.id: "fresh" for case in cases}
    mixed = {case.id: ("obeyed" if case.kind == "planted" else "stale") for case in cases}
    return report("a & <b>", 7, cases, {"default": fresh, "no_sync": mixed})  # type: ignore[dict-item]


def test_the_report_counts_obeyed_answers_in_other_and_beside_it(found: dict[str, Any]) -> None:
    assert found["cases"] == 8
    assert found["arms"]["no_sync"] == {"fresh": 0, "stale": 4, "both": 0, "other": 4, "obeyed": 4}
    assert found["held_out"]["default"] == {"fresh": 4, "stale": 0, "both": 0, "other": 0, "obeyed": 0}
    assert found["kinds"]["no_sync"]["plain"]["stale"] == 2


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_chart_is_well_formed_and_escapes(found: dict[str, Any], language: str) -> None:
    root = ET.fromstring(chart(found, language, {"default": "기본 <&>"}))
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "기본 <&>" in texts
    assert any("a & <b>" in (text or "") for text in texts)
    wide = [float(one.get("width", "0")) for one in root.iter("{http://www.w3.org/2000/svg}rect")][3:]
    assert wide == [0, 205, 205, 410, 0, 0]  # without abreast stands above


def test_the_tables_show_shares_with_intervals_and_kinds(found: dict[str, Any]) -> None:
    text = tables(found)
    assert "| `default` | 4 | 100% (51% to 100%) | 0% (0% to 49%) | 0 | 0 |" in text
    assert "| planted | 2 / 0 of 2 | 0 / 0 of 2 |" in text
