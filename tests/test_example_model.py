"""The offline model of the example: it reads its request, and its words are the same in both languages."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def movein(monkeypatch):
    """Imports a module of the example."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"examples.movein.{name}")


def earlier(asked: str, around: str = "", before: str = "") -> list[BaseMessage]:
    """A request: an instruction, a question with its old answer, a new question and what was put around it."""
    said = "\n\n".join(text for text in (around, asked) if text)
    old = [HumanMessage("When do I move in?"), AIMessage("Your move-in date is 28 September 2026.")]
    return [SystemMessage(before or "Answer briefly."), *old, HumanMessage(said)]


OLD, NEW = "Your move-in date is 28 September 2026.", "Your move-in date is 30 September 2026."


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (earlier("And when do I move in?"), OLD),
        (earlier("입주일이 언제야?"), "입주일은 2026년 9월 28일입니다."),
        (earlier("move-in date?", before="The move-in date: September 30th, 2026"), OLD),
        (earlier("My move-in date is now 30 September 2026, right? What is my move-in date?"), NEW),
        (earlier("move-in date?", '{"move_in_date": "2026-09-30"}'), NEW),
        (earlier("move-in date?", '{"move_in_date": null, "lease_end": "2028-09-30"}'), "No move-in date is set."),
        (earlier("move-in date?", "move_in_date is now 2026-13-40"), OLD),
        (earlier("budget?", before="예산은 380만원입니다."), "Your budget is KRW 3,800,000."),
        (earlier("What is my budget?"), "I see no budget in what I was given."),
        (earlier("new address?", '{"new_address (새 주소)": "5 Elm Road"}'), "Your new address is “5 Elm Road”."),
        (earlier("door code?", '"door code" (door_code) was changed\n{"a": "b"}'), "I see no door code in what I was given."),
        (earlier("새 주소?", before='{"new_address": "5 \\"Elm\\" Road"}'), '새 주소는 “5 "Elm" Road”입니다.'),
    ],
)
def test_offline_model_repeats_the_last_mention_in_its_request(movein, request_, answer):
    assert movein("offline").OfflineModel().invoke(request_).text == answer


def test_offline_model_asks_a_tool_only_for_what_its_request_lacks(movein):
    def list_plan(limit: int) -> str:
        """List rows of plan. Fields: id, move_in_date."""
        raise NotImplementedError

    model = movein("offline").OfflineModel().bind_tools([list_plan])
    asked = [HumanMessage("When do I move in?")]
    call = model.invoke(asked)
    assert [one["name"] for one in call.tool_calls] == ["list_plan"]
    result = ToolMessage(
        '{"rows": [{"id": "p1", "move_in_date": "2026-09-30"}]}', tool_call_id=call.tool_calls[0]["id"], name="list_plan"
    )
    # What stands behind a tool's answer is no question.
    for behind in ("", "\n\nCURRENT\nbudget? status?"):
        told = result.model_copy(update={"content": f"{result.content}{behind}"})
        assert model.invoke([*asked, call, told]).text == "Your move-in date is 30 September 2026."
    assert not model.invoke(earlier("When do I move in?")).tool_calls


@pytest.mark.parametrize(
    ("request_", "wish"),
    [
        ("Move it to October 2nd, 2026", ("plan", {"move_in_date": "2026-10-02"}, None)),
        ("Move the dentist to 5 October", None),
        ("2월 31일로 입주일 바꿔줘", None),
        ("set the budget to 4.2 million", ("plan", {"budget": 4_200_000}, None)),
        ("예산을 420만원으로 바꿔줘", ("plan", {"budget": 4_200_000}, None)),
        ("change the status from preparing to confirmed", ("plan", {"status": "confirmed"}, None)),
        ("상태를 확정으로 바꿔줘", ("plan", {"status": "confirmed"}, None)),
        ("change the new address to 5 Elm Road", ("plan", {"new_address": "5 Elm Road"}, None)),
        ("새 주소를 서울 송파구 1로 바꿔줘", ("plan", {"new_address": "서울 송파구 1"}, None)),
        (
            "Set the budget to 4,000,000 and the date to 2 October",
            ("plan", {"budget": 4_000_000, "move_in_date": "--10-02"}, None),
        ),
        ("15 is done", ("item", {"done": True}, 15)),
        ("Is 15 done?", None),
        ("15번 끝냈어?", None),
        ("15번을 10월 3일로 옮겨줘", ("item", {"due_on": "--10-03"}, 15)),
        ("postpone the move by three days", ("postpone", {"days": 3}, None)),
        ("이사를 2주 미뤄줘", ("postpone", {"days": 14}, None)),
        ("delete the plan", None),
        ("remove contact 3", None),
        ("When do I move in?", None),
        ("Who moved it to 2 October?", None),
        ("끝난 일이 뭐야?", None),
    ],
)
def test_offline_model_takes_no_question_for_a_wish(movein, request_, wish):
    found = movein("wishes").wish_of(request_)
    assert (found and (found.kind, dict(found.values), found.number)) == wish


CONFLICT = {"error": "It moved.", "current": {"id": "p1", "version": 9, "move_in_date": "2026-10-01"}}


def refused_before(answer: str) -> list[BaseMessage]:
    """A conversation in which a write was refused, and what the person says to that."""
    asked = AIMessage("", tool_calls=[{"name": "update_plan", "args": UPDATE, "id": "c1"}])
    result = ToolMessage(json.dumps(CONFLICT), tool_call_id="c1", name="update_plan")
    return [HumanMessage("Move the date to 2 October"), asked, result, AIMessage("Shall I?"), HumanMessage(answer)]


UPDATE = {"id": "p1", "version": 7, "move_in_date": "2026-10-02"}


@pytest.mark.parametrize("answer", ["Yes.", "네, 그래도 바꿔줘."])
def test_offline_model_writes_on_the_version_that_the_person_heard_of(movein, answer):
    model = movein("offline").OfflineModel()
    (call,) = model.invoke(refused_before(answer)).tool_calls
    assert (call["name"], call["args"]) == ("update_plan", {**UPDATE, "version": 9})
    assert not model.invoke(refused_before("No." if answer == "Yes." else "아니요")).tool_calls
    assert not model.invoke([*refused_before(answer)[:-2], AIMessage("It was cut off."), HumanMessage("When?")]).tool_calls


def test_offline_model_answers_the_question_behind_a_turn_that_was_cut_off(movein):
    model, cut_off = movein("offline").OfflineModel(), refused_before("")[:3]
    question = {"type": "text", "text": "What is my budget?"}
    now = {"type": "text", "text": '{"budget": 5}'}
    assert model.invoke([*cut_off, HumanMessage([question, now])]).text == "Your budget is KRW 5."


def test_both_languages_say_the_same(movein):
    entries = [*movein("words")._WORDS.values(), *movein("vocabulary")._SENTENCES.values()]
    assert len(entries) > 100
    for english, korean in entries:
        names = [set(re.findall(r"\{(\w+)\}", text)) - {"name", "topic"} for text in (english, korean)]
        assert names[0] == names[1]
