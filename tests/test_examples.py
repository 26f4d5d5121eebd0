"""The examples as their readers run them: processes of their own, offline, in both languages."""

from __future__ import annotations

import contextlib
import importlib
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

ROOT = Path(__file__).resolve().parents[1]
FRESH = {"en": "Your move-in date is 30 September 2026.", "ko": "입주일은 2026년 9월 30일입니다."}
STALE = {"en": "Your move-in date is 28 September 2026.", "ko": "입주일은 2026년 9월 28일입니다."}
LABEL = {"en": '"move-in date"', "ko": "입주일"}
GOODBYE = {"en": "Goodbye.", "ko": "안녕히 가세요."}


def environment(directory: Path, **more: str) -> dict[str, str]:
    """A reader's environment: no key, no model, a wide window, temporary files where the test can see them."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ABREAST", "LANG", "LC_", "OPENAI", "ANTHROPIC"))
    }
    return kept | {"COLUMNS": "200", "PYTHONUTF8": "1", "TMPDIR": str(directory), "TERM": "dumb", **more}


def run(directory: Path, *arguments: str, typed: str = "", **more: str) -> str:
    """What a process printed; it must end with status 0 and without a word on its error output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment(directory, **more),
        input=typed,
        capture_output=True,
        encoding="utf-8",
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The English scene, played once, and the directory that it kept."""
    directory = tmp_path_factory.mktemp("played")
    printed = run(directory, "-m", "examples.movein", "--no-input", "--keep", "--lang", "en", typed="What is left?\n")
    (kept,) = directory.glob("abreast-demo-*")
    return printed, kept


@pytest.fixture
def opened(played: tuple[str, Path], tmp_path: Path) -> Path:
    """A copy of the kept directory, as somebody opens it days later."""
    return Path(shutil.copytree(played[1], tmp_path / "kept"))


def at_prompt(opened: Path, language: str, *lines: str) -> list[str]:
    """What the prompt answered to each of these lines."""
    arguments = ("-m", "examples.movein", "--open", str(opened), "--input", "--lang", language)
    printed = run(opened.parent, *arguments, typed="\n".join([*lines, "/quit"]) + "\n")
    answers = re.split(r"^\S+> .*\n", printed, flags=re.MULTILINE)[1:]
    assert len(answers) == len(lines) + 1
    assert answers.pop().strip() == GOODBYE[language]
    assert "Traceback" not in printed
    return answers


# -- one screen each ---------------------------------------------------------------------------------------------------


def test_minimal_example_answers_with_the_new_date(tmp_path):
    printed = run(tmp_path, "-W", "error", "examples/01_minimal.py")
    first, standing, second, *_ = printed.splitlines()
    assert (first, second) == ("You move in on 2026-09-28", "You move in on 2026-09-30")
    assert "revision=1, head=2" in standing
    assert 'move_in_date) is now "2026-09-30" (was "2026-09-28")' in printed


def test_langgraph_example_answers_with_the_new_budget(tmp_path):
    printed = run(tmp_path, "-W", "error", "examples/03_langgraph.py")
    assert printed.splitlines()[:2] == ["The budget is 3500000 {'w1': 2}", "The budget is 3800000 {'w1': 3}"]
    assert "budget is now 3800000 (was 3500000)" in printed


# -- the scene ---------------------------------------------------------------------------------------------------------


def assert_scene(printed: str, language: str) -> None:
    lines = printed.splitlines()
    earlier = next(index for index, line in enumerate(lines) if STALE[language] in line)
    change = next(index for index, line in enumerate(lines) if "update plan set move_in_date = '2026-09-30'" in line)
    told = next(index for index, line in enumerate(lines) if f'{LABEL[language]} (move_in_date) is now "2026-09-30" (was' in line)
    both = next(index for index, line in enumerate(lines) if FRESH[language] in line)
    behind = next(index for index, line in enumerate(lines) if re.search(r"│ C +│ mover .*│ r51 / r57 │ +6 █+", line))
    assert earlier < change < told < both < behind
    assert "rows changed: 1" in lines[change + 1]
    assert "r57, unknown, plan seongsu" in lines[told]
    assert re.search(rf"│ {re.escape(FRESH[language])} +│ │ {re.escape(STALE[language])} +│", lines[both])
    places = dict(re.findall(r"│ (\S+) +│ \w+ +│ \w+ +│ (r\d+ / r\d+|-) ", printed))
    assert places == {"A": "r56 / r57", "B": "r57 / r57", "B-without": "-", "C": "r51 / r57", "D": "r7 / r7"}
    assert lines[-1] == GOODBYE[language]


def test_scene_in_english_answers_fresh_and_without_abreast_stale(played):
    assert_scene(played[0], "en")
    assert "B>" not in played[0]  # without a terminal nobody is asked for input, whatever stands there


def test_scene_in_korean_by_the_locale_leaves_nothing_behind(tmp_path):
    assert_scene(run(tmp_path, "-m", "examples.movein", "--no-input", LANG="ko_KR.UTF-8"), "ko")
    assert list(tmp_path.iterdir()) == []


def test_kept_directory_holds_real_conversations_and_no_block(played):
    with sqlite3.connect(played[1] / "checkpoints.db") as connection:
        threads = {row[0] for row in connection.execute("select distinct thread_id from checkpoints")}
    connection.close()
    assert threads == {"A", "B", "B-without", "C", "D"}
    stored = b"".join(path.read_bytes() for path in played[1].glob("checkpoints.db*"))
    assert STALE["en"].encode() in stored
    assert FRESH["en"].encode() in stored
    for line in ("CHANGES SINCE", "CURRENT (what"):
        assert line in played[0]
        assert line.encode() not in stored
    with sqlite3.connect(played[1] / "planner.db") as connection:
        numbers = connection.execute(
            "select (select count(*) from plan), (select count(*) from checklist_item), (select count(*) from contact)"
        )
        plans, items, contacts = numbers.fetchone()
    connection.close()
    assert (plans, items >= 40, contacts) == (2, True, 6)


# -- the prompt --------------------------------------------------------------------------------------------------------


ASKED = {
    "en": [
        ("/edit move-in date 31 October", "as user mina"),
        ("When do I move in, and how many things are left?", "Your move-in date is 31 October 2026. Things left: 30."),
        ("/block", 'user mina, plan seongsu: "move-in date" (move_in_date) is now "2026-10-31" (was "2026-09-30")'),
        ("/sql update plan set budget = 4200000 where id = 'seongsu'", "rows changed: 1"),
        ("/behind", "r58 / r59 │   1"),
        ("What is the budget?", "Your budget is KRW 4,200,000."),
        ("/edit door code 1357", "as user mina"),
        ("What is the door code?", "I see no door code"),
        ("/block", '"door code" (door_code) was changed (not shown)'),
        ("/edit 15 done", "as user mina"),
        ("What is left?", "Things left: 29. Order the new bed (by 10 September)"),
        ("Have the movers been booked?", "Book the movers (done)."),
        ("Who changed the budget?", "budget of plan seongsu was last changed by unknown"),
        ("/history", "update plan seongsu (door_code: not shown)"),
        ("/thread B-without", "mina in workspace seongsu"),
        ("When is my move-in date?", "Your move-in date is 28 September 2026."),
        ("/thread C", "mover in workspace seongsu"),
        ("What is the budget?", "I see no budget"),
        ("Who is the landlord?", "None of the 2 that I see fits."),
    ],
    "ko": [
        ("/edit 입주일 10월 31일", "mina 사용자가 썼습니다"),
        ("이사 언제 하고 할 일은 몇 개 남았어?", "입주일은 2026년 10월 31일입니다. 남은 할 일은 30개입니다."),
        ("/block", '입주일 (move_in_date) is now "2026-10-31" (was "2026-09-30")'),
        ("/sql update plan set budget = 4200000 where id = 'seongsu'", "rows changed: 1"),
        ("/behind", "r58 / r59 │   1"),
        ("예산 얼마야?", "예산은 4,200,000원입니다."),
        ("/edit 상태 확정", "mina 사용자가 썼습니다"),
        ("상태 알려줘", "상태는 확정입니다."),
        ("/edit 15 끝남", "mina 사용자가 썼습니다"),
        ("남은 할 일이 뭐야?", "남은 할 일은 29개입니다."),
        ("누가 예산을 바꿨어?", "plan seongsu의 budget: 마지막으로 unknown"),
        ("/screen", "2026년 10월 31일"),
        ("/thread B-without", "seongsu 작업 공간의 mina"),
        ("입주일이 언제야?", "입주일은 2026년 9월 28일입니다."),
        ("/thread C", "seongsu 작업 공간의 mover"),
        ("예산 얼마야?", "예산 정보가 없습니다"),
        ("/thread B", "seongsu 작업 공간의 mina"),
    ],
}
WRONG = [
    ("/nope", "no command /nope", "/nope 명령은 없습니다"),
    ("/thread", "/thread needs more", "/thread에는 더 필요합니다"),
    ("/thread Z", "no conversation Z", "Z 대화는 없습니다"),
    ("/edit", "/edit needs more", "/edit에는 더 필요합니다"),
    ("/edit colour red", "no field colour", "colour 항목은 없습니다"),
    ("/edit budget", "/edit needs more", "/edit에는 더 필요합니다"),
    ("/edit budget lots", "lots is no amount", "금액으로 읽을 수 없습니다: lots"),
    ("/edit move_in_date 2026-02-31", "2026-02-31 is no date", "날짜로 읽을 수 없습니다: 2026-02-31"),
    ("/edit status flying", "one of preparing, confirmed", "다음 중 하나입니다: 준비 중, 확정"),
    ("/edit 15 maybe", "done or open", "done 아니면 open"),
    ("/edit 999 done", "no item 999", "999번 할 일이 없습니다"),
    ("/sql", "/sql needs more", "/sql에는 더 필요합니다"),
    ("/sql drop everything", "syntax error", "syntax error"),
    ("/thread A", "mina in workspace seongsu", "seongsu 작업 공간의 mina"),
    ("/block", "no question was asked yet", "아직 묻지 않았거나"),
    ("Sing \x1b[31m[bold]a song", "offline model", "offline model"),
    ("/sql drop table plan", "rows changed: 0", "rows changed: 0"),
    ("When is my move-in date?", "plan is missing", "plan is missing"),
    ("/screen", "no such table", "no such table"),
    ("/edit budget 1", "no such table", "no such table"),
    ("/help", "/sql STATEMENT", "/sql SQL문"),
]


@pytest.mark.parametrize("language", ["en", "ko"])
def test_prompt_asks_edits_and_says_what_is_wrong(opened, language):
    wrong = [(line, {"en": english, "ko": korean}[language]) for line, english, korean in WRONG]
    lines = [*ASKED[language], *wrong]
    answers = at_prompt(opened, language, *(line for line, _ in lines))
    for (line, expected), answer in zip(lines, answers, strict=True):
        assert expected in answer, line
    assert "\x1b" not in "".join(answers)
    assert "1357" not in "".join(answers)


@pytest.mark.parametrize("ending", ["interrupt", "end of input"])
def test_prompt_at_a_terminal_ends_politely(opened, ending):
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "examples.movein", "--open", str(opened), "--lang", "en"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(opened.parent), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    printed = read_until(master, b"B> ")
    if ending == "end of input":
        os.write(master, b"\x04")
    while ending == "interrupt" and process.poll() is None:
        # Python's line editor overlooks a signal that comes between its prompt and its waiting, until the next one.
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
    printed += read_until(master, None)
    os.close(master)
    assert process.wait(timeout=30) == 0
    assert b"Goodbye." in printed
    assert b"Traceback" not in printed
    assert (opened / "planner.db").exists()


def read_until(master: int, wanted: bytes | None) -> bytes:
    """What a terminal showed until these bytes, or until its program ended."""
    seen = b""
    while wanted is None or wanted not in seen:
        try:
            more = os.read(master, 4096)
        except OSError:  # Linux reports the end of the program so
            break
        if not more:
            break
        seen += more
    return seen


@pytest.mark.parametrize(
    ("arguments", "more", "said"),
    [
        (("--open", "{directory}"), {}, "holds no demo"),
        (("--no-input",), {"ABREAST_MODEL": "nonsense"}, "nonsense"),
    ],
)
def test_what_cannot_be_opened_is_said_in_a_sentence(tmp_path, arguments, more, said):
    command = [sys.executable, "-m", "examples.movein", *(one.format(directory=tmp_path) for one in arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(tmp_path, **more), capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert said in done.stdout
    assert list(tmp_path.iterdir()) == []


# -- the offline model -------------------------------------------------------------------------------------------------


@pytest.fixture
def movein(monkeypatch):
    """Imports a module of the example."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"examples.movein.{name}")


def earlier(asked: str, behind: str = "", before: str = "") -> list[BaseMessage]:
    """A request: an instruction, a question with its old answer, a new question and what stands behind it."""
    parts: list[str | dict[str, str]] = [{"type": "text", "text": text} for text in (asked, behind) if text]
    old = [HumanMessage("When do I move in?"), AIMessage("Your move-in date is 28 September 2026.")]
    return [SystemMessage(before or "Answer briefly."), *old, HumanMessage(parts)]


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
    # Behind a tool's result stands no question, even under a person's name.
    for behind in ([], [HumanMessage("budget? status?")]):
        assert model.invoke([*asked, call, result, *behind]).text == "Your move-in date is 30 September 2026."
    assert not model.invoke(earlier("When do I move in?")).tool_calls


def test_both_languages_say_the_same(movein):
    entries = [*movein("words")._WORDS.values(), *movein("vocabulary")._SENTENCES.values()]
    assert len(entries) > 60
    for english, korean in entries:
        names = [set(re.findall(r"\{(\w+)\}", text)) - {"name", "topic"} for text in (english, korean)]
        assert names[0] == names[1]
