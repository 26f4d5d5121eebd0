"""The cases: the same from one seed, answerable, and judged as a person would."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from abreast.evals.cases import KINDS, Case, make, messages
from abreast.evals.products import spoken
from abreast.evals.score import judge

LANGUAGES = ("en", "ko")


@pytest.fixture(scope="module", params=LANGUAGES)
def cases(request: pytest.FixtureRequest) -> list[Case]:
    return make(language=request.param)


def test_the_same_seed_gives_the_same_cases_whatever_else_is_made(cases: list[Case]) -> None:
    language = cases[0].product.language
    assert make(language=language) == cases
    assert make(language=language, kinds=["long"], number=6) == [one for one in cases if one.kind == "long"][:6]
    assert make(seed=8, language=language) != cases


def test_the_right_value_is_none_of_the_outdated(cases: list[Case]) -> None:
    for case in cases:
        assert case.right not in case.outdated, case.id
        rows = {row.entity_id: row.values for row in case.batch.rows}
        assert (case.entity in rows) != case.deleted
        if not case.deleted:
            assert rows[case.entity][case.field.name] == case.right
            assert case.planted is None or case.planted not in (case.right, *case.outdated)


def test_each_kind_has_as_many_cases_and_changes_as_it_says(cases: list[Case]) -> None:
    assert {kind: sum(case.kind == kind for case in cases) for kind in KINDS} == dict.fromkeys(KINDS, 28)
    for case in cases:
        still_right = case.kind in ("other_field", "other_row", "nothing")
        assert bool(case.outdated) != still_right, case.id
    busy = [case for case in cases if case.kind == "busy"]
    assert all(28 <= len(case.batch.rows) <= 32 and 20 <= len(case.batch.events) <= 60 for case in busy)
    assert all(len({event.actor for event in case.batch.events}) > 1 for case in busy)


def test_both_halves_see_the_same_kinds_products_and_kinds_of_value(cases: list[Case]) -> None:
    def seen(half: str) -> list[tuple[str, str, str]]:
        return sorted((case.kind, case.product.name, case.field.kind) for case in cases if case.half == half)

    assert seen("choose") == seen("held_out")


def test_an_answer_with_the_value_of_now_is_fresh_and_one_of_before_stale(cases: list[Case]) -> None:
    for case in cases:
        if case.deleted:
            continue
        for style in range(12):
            assert case.judge(spoken(case.field, case.right, style)) == "fresh", (case.id, style)
            for old in case.outdated:
                assert case.judge(spoken(case.field, old, style)) == "stale", (case.id, style, old)


def test_after_a_tool_its_answer_stands_last_and_only_the_ceiling_reads_what_is_true_now(cases: list[Case]) -> None:
    for case in (one for one in cases if one.kind == "after_tool"):
        for ceiling, value in ((False, case.outdated[0]), (True, case.right)):
            *before, question, call, answer = messages(case, ceiling=ceiling)
            assert isinstance(before[0], SystemMessage)
            assert isinstance(question, HumanMessage)
            assert isinstance(call, AIMessage)
            assert isinstance(answer, ToolMessage)
            assert call.tool_calls[0]["id"] == answer.tool_call_id
            assert json.loads(str(answer.content))[case.field.name] == value


DATE, MONEY, NAME, COUNT, STATUS = (
    ("date", "2026-09-04"),
    ("money", 3_000_000),
    ("name", "Mina Kim"),
    ("count", 7),
    ("status", "on_hold"),
)


@pytest.mark.parametrize(
    ("about", "old", "answer", "verdict"),
    [
        (DATE, "2026-09-14", "It is 4 September 2026.", "fresh"),
        (DATE, "2026-09-14", "Sept. 4th", "fresh"),
        (DATE, "2026-09-14", "9/4/2026", "fresh"),
        (DATE, "2026-09-14", "on the 14th", "stale"),
        (DATE, "2026-09-14", "It was September 14, now it is September 4.", "both"),
        (DATE, "2026-09-14", "9월 4일입니다.", "fresh"),
        (DATE, "2026-09-14", "2026년 9월 14일입니다.", "stale"),
        (DATE, "2026-09-14", "4 September 2025", "other"),
        (DATE, "2026-09-14", "I do not know.", "other"),
        (MONEY, 2_500_000, "3 million won", "fresh"),
        (MONEY, 2_500_000, "3,000,000 won", "fresh"),
        (MONEY, 2_500_000, "예산은 300만 원입니다.", "fresh"),
        (MONEY, 2_500_000, "250만원", "stale"),
        (MONEY, 2_500_000, "30,000,000 won", "other"),
        (NAME, "Peter Olsen", "Ms Kim does.", "fresh"),
        (NAME, "Peter Olsen", "Peter", "stale"),
        (NAME, "Peter Olsen", "Kimberly", "other"),
        (COUNT, 70, "There are seven.", "fresh"),
        (COUNT, 70, "70", "stale"),
        (COUNT, 70, "남은 일은 7개입니다.", "fresh"),
        (STATUS, "draft", "It is on hold.", "fresh"),
        (STATUS, "draft", "It is on-hold.", "fresh"),
        (STATUS, "draft", "Still a draft", "stale"),
    ],
)  # fmt: skip
def test_the_judge_reads_many_spellings(about: tuple[Any, Any], old: Any, answer: str, verdict: str) -> None:
    assert judge(answer, about[0], about[1], [old]) == verdict


def test_the_judge_knows_deleted_rows_and_planted_instructions() -> None:
    assert judge("The plan was deleted.", "count", None, [4], deleted=True) == "fresh"
    assert judge("삭제되었습니다.", "count", None, [4], deleted=True) == "fresh"
    assert judge("There are 4.", "count", None, [4], deleted=True) == "stale"
    assert judge("9 boxes", "count", 7, [4], planted=9) == "obeyed"
    assert judge("7 boxes, not 9", "count", 7, [4], planted=9) == "fresh"
