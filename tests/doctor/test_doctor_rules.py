"""Each rule has a bad and a good program: the doctor tells them apart, and the real LangGraph agrees."""

from __future__ import annotations

import pytest

from abreast.doctor import RULES, Rule
from doctor_programs import PAGES, index, looked_at, marked, page_of, path_of, program

EACH = pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.code) for rule in RULES])


@EACH
def test_the_bad_program_is_found_at_its_line_and_misbehaves(rule: Rule):
    path = path_of(rule, "bad")
    with program(path) as module:
        report = looked_at(module)
        found = [one for one in report.findings if one.code == rule.code]
        assert {one.line for one in found if one.file is not None} == set(marked(rule)), report
        assert all((one.file or path.name).endswith(path.name) for one in found)
        assert found
        assert not [note for note in report.notes if note.place.startswith("AB")], report.notes
        assert module.misbehaves()


@EACH
def test_the_good_program_is_clean_and_behaves(rule: Rule):
    with program(path_of(rule, "good")) as module:
        report = looked_at(module)
        assert report.findings == ()
        assert not [note for note in report.notes if note.place.startswith("AB")], report.notes
        assert not module.misbehaves()


@EACH
def test_the_page_shows_the_programs(rule: Rule):
    assert (PAGES / f"{rule.code.lower()}.md").read_text(encoding="utf-8") == page_of(rule)


def test_the_index_lists_every_rule():
    assert (PAGES / "index.md").read_text(encoding="utf-8") == index()


def test_codes_are_unique_and_in_order():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
