"""The examples as their readers run them: processes of their own, offline, in both languages."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FRESH = {"en": "Your move-in date is 30 September 2026.", "ko": "입주일은 2026년 9월 30일입니다."}
STALE = {"en": "Your move-in date is 28 September 2026.", "ko": "입주일은 2026년 9월 28일입니다."}
NOW = {"en": "Your move-in date is 2 October 2026.", "ko": "입주일은 2026년 10월 2일입니다."}
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


def rows(directory: Path, query: str, file: str = "planner.db") -> list[tuple[Any, ...]]:
    """What a database file holds."""
    with contextlib.closing(sqlite3.connect(directory / file)) as connection:
        return connection.execute(query).fetchall()


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


def test_tools_example_is_refused_once_and_says_who_wrote(tmp_path):
    printed = run(tmp_path, "-W", "error", "examples/04_tools.py")
    answers = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    read, refused, written, booked = answers
    assert (read["version"], refused["current"]["version"], written["version"]) == (1, 2, 3)
    assert (refused["current"]["move_in_date"], written["move_in_date"]) == ("2026-10-01", "2026-10-02")
    assert "Nothing was written" in refused["error"]
    assert booked == {"lift_booked": "2026-10-02"}
    assert re.findall(r"^r\d \w+ by ([^:]*):", printed, re.MULTILINE) == ["user mina", "unknown ", *["agent assistant"] * 2]


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
    assert_change(printed, language)
    assert lines[-1] == GOODBYE[language]


def assert_change(printed: str, language: str) -> None:
    """Steps 6 to 8: a change that was asked for, one that was refused and then made, and who heard what of it."""
    label = re.escape(LABEL[language])
    facts = (
        r'update_checklist_item \{"id": 15, "version": 16, "done": true\}',
        r'"version": 58, "revision": 58, "done": true',
        r" 15 \| [^|]* \| 1 ",
        r" r58  agent assistant, B  update checklist_item 15 \(done: False -> True\)",
        r'update_plan \{"id": "seongsu", "version": 57, "move_in_date": "2026-10-02"\}',
        r'"current": \{"id": "seongsu", "version": 59, .*"move_in_date": "2026-10-01"',
        r'update_plan \{"id": "seongsu", "version": 59, "move_in_date": "2026-10-02"\}',
        r'"version": 60, "revision": 60, "move_in_date": "2026-10-02"',
        r"unknown ──▶ +│ r57  2026-09-30",
        r"│ r57 +│ ──▶ .*57",
        r"user junho ──▶ +│ r59  2026-10-01",
        r"│ r59 +│ ✗── .*57.*",
        r"│ r60  2026-10-02 │ ◀── .*59",
        rf"r60, you, plan seongsu: {label}",
        rf"r60, agent assistant, plan seongsu: {label}",
        re.escape(NOW[language]),
    )
    printed, place = re.sub(r" *│\n│ *", " ", printed), 0  # what was too long for one line
    for fact in facts:
        found = re.compile(fact).search(printed, place)
        assert found, f"{fact} does not stand behind {printed[max(0, place - 80) : place]}"
        place = found.end()


def test_scene_in_english_answers_fresh_and_without_abreast_stale(played):
    assert_scene(played[0], "en")
    assert "B>" not in played[0]  # without a terminal nobody is asked for input, whatever stands there


OF_THE_PLAN = "select revision, actor_type, actor_id, thread from abreast_event where entity_id = 'seongsu' and revision > 56"


def test_scene_in_korean_by_the_locale_leaves_nothing_behind(tmp_path):
    asked = f"/sql {OF_THE_PLAN}", "/sql select move_in_date from plan where id = 'seongsu'"
    printed = run(tmp_path, "-m", "examples.movein", "--input", typed="\n".join(asked), LANG="ko_KR.UTF-8")
    scene, _, facts = printed.partition("B> ")
    assert_scene(f"{scene}\n{GOODBYE['ko']}", "ko")
    assert re.findall(r"│ (\d+ \| .*?) +│", facts) == [
        "57 | unknown | null | null",
        "59 | user | junho | null",
        "60 | agent | assistant | B",
    ]
    assert "│ 2026-10-02 " in facts
    assert list(tmp_path.iterdir()) == []


def test_kept_directory_holds_one_agent_event_for_each_change(played):
    of_plan = rows(played[1], OF_THE_PLAN)
    assert of_plan == [(57, "unknown", None, None), (59, "user", "junho", None), (60, "agent", "assistant", "B")]
    (ticked,) = rows(played[1], "select actor_type, thread, mutation from abreast_event where revision = 58")
    assert ticked[:2] == ("agent", "B")
    assert rows(
        played[1], "select move_in_date, (select done from checklist_item where id = 15) from plan where id = 'seongsu'"
    ) == [("2026-10-02", 1)]
    mutations = {row[0] for row in rows(played[1], "select mutation from abreast_mutation")}
    made = {row[0] for row in rows(played[1], "select mutation from abreast_event where actor_type = 'agent'")}
    assert (len(mutations), len(made)) == (3, 2)  # the refused one is remembered too, and has no event
    assert made < mutations
    assert ticked[2] in made
    assert rows(played[1], "select thread, run from abreast_lease") == [(thread, None) for thread in "ABCD"]


def test_kept_directory_holds_real_conversations_and_no_block(played):
    threads = "select distinct thread_id from checkpoints"
    assert {row[0] for row in rows(played[1], threads, "planner.checkpoints.db")} == {"A", "B", "C", "D"}
    assert rows(played[1], threads, "without.db") == [("B-without",)]
    stored = b"".join(path.read_bytes() for path in played[1].glob("planner.checkpoints.db*"))
    assert STALE["en"].encode() in stored
    assert FRESH["en"].encode() in stored
    assert b"Nothing was written" in stored
    for line in ("CHANGES SINCE", "CURRENT (what"):
        assert line in played[0]
        assert line.encode() not in stored
    numbers = "select (select count(*) from plan), (select count(*) from checklist_item), (select count(*) from contact)"
    ((plans, items, contacts),) = rows(played[1], numbers)
    assert (plans, items >= 40, contacts) == (2, True, 6)


# -- the prompt --------------------------------------------------------------------------------------------------------


ASKED = {
    "en": [
        ("/edit move-in date 31 October", "as user mina"),
        ("When do I move in, and how many things are left?", "Your move-in date is 31 October 2026. Things left: 29."),
        ("/block", 'user mina, plan seongsu: "move-in date" (move_in_date) is now "2026-10-31" (was "2026-10-02")'),
        ("/sql update plan set budget = 4200000 where id = 'seongsu'", "rows changed: 1"),
        ("/behind", "r61 / r62 │   1"),
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
        ("이사 언제 하고 할 일은 몇 개 남았어?", "입주일은 2026년 10월 31일입니다. 남은 할 일은 29개입니다."),
        ("/block", '입주일 (move_in_date) is now "2026-10-31" (was "2026-10-02")'),
        ("/sql update plan set budget = 4200000 where id = 'seongsu'", "rows changed: 1"),
        ("/behind", "r61 / r62 │   1"),
        ("예산 얼마야?", "예산은 4,200,000원입니다."),
        ("/edit 상태 확정", "mina 사용자가 썼습니다"),
        ("상태 알려줘", "상태는 확정입니다."),
        ("/edit 16 끝남", "mina 사용자가 썼습니다"),
        ("남은 할 일이 뭐야?", "남은 할 일은 28개입니다."),
        ("누가 예산을 바꿨어?", "plan seongsu의 budget: 마지막으로 unknown"),
        ("/screen", "2026년 10월 31일"),
        ("/thread B-without", "seongsu 작업 공간의 mina"),
        ("입주일이 언제야?", "입주일은 2026년 9월 28일입니다."),
        ("/thread C", "seongsu 작업 공간의 mover"),
        ("예산 얼마야?", "예산 정보가 없습니다"),
        ("/thread B", "seongsu 작업 공간의 mina"),
    ],
}
CHANGED = {
    "en": [
        ("/between /edit move-in date 5 October", "Kept: /edit move-in date 5 October"),
        ("What is left?", "still waits"),
        ("Move the date to 9 October", "by user junho. Your move-in date is 5 October 2026. Shall I"),
        ("/between /sql update plan set budget = 5000000 where id = 'seongsu'", "Kept: /sql"),
        ("Yes", "by unknown. Your move-in date is 5 October 2026. Your budget is KRW 5,000,000. Shall I"),
        ("yes, all the same", "Done. Your move-in date is 9 October 2026."),
        ("/block", "you, plan seongsu"),
        ("Postpone the move by a week.", "Done. Your move-in date is 16 October 2026. The due dates of 29 open things moved"),
        ("/between /edit 18 done", "Kept"),
        ("Delete 18", "Now: Ask the landlord for new wallpaper (done). Shall I"),
        ("No.", "Then it stays as it is."),
        ("Tick off order curtains", "Now: Order curtains (done)."),
        ("Add: buy tape by 20 September", "Added: Buy tape (by 20 September)."),
        ("Add contact: Kim, electrician, 010-1234-5678", "Added: Kim (electrician): 010-1234-5678."),
        ("Set the door code to 1357", "I have no tool that changes that."),
        ("Change everything", "I did not understand what to change."),
        ("/between", "/between needs more"),
        ("/between /edit budget lots", "lots is no amount"),
        ("/between /quit", "/between needs more"),
        ("/between /edit 999 done", "Kept"),
        ("Tick off 19", "no item 999"),
        ("/between /sql drop everything", "Kept"),
        ("Untick 19", "syntax error"),
        ("/between /edit 20 done", "Kept"),
        ("/between off", "Nothing waits any more."),
        ("/thread A", "mina in workspace seongsu"),
        ("When do I move in?", "16 October 2026"),
        ("/block", "agent assistant, plan seongsu"),
        ("/thread C", "mover in workspace seongsu"),
        ("Tick off 16", "Now: Order the new bed (done)."),
        ("Move the date to 2 October", "This person may not update rows of plan."),
        ("Postpone the move by a week", "lacks the permission plan"),
        ("Add: water", "may not create rows of checklist_item"),
        ("Delete 20", "may not delete rows of checklist_item"),
        ("Move item 20 to 3 October", "checklist_item.due_on may not be written here"),
        ("/history", "agent assistant, C"),
    ],
    "ko": [
        ("/between /edit 입주일 10월 5일", "기억했습니다: /edit 입주일 10월 5일"),
        ("남은 할 일이 뭐야?", "아직 기다립니다"),
        ("입주일을 10월 9일로 바꿔줘", "(user junho). 입주일은 2026년 10월 5일입니다. 그래도 바꿀까요?"),
        ("/between /sql update plan set budget = 5000000 where id = 'seongsu'", "기억했습니다: /sql"),
        ("네", "(unknown). 입주일은 2026년 10월 5일입니다. 예산은 5,000,000원입니다. 그래도 바꿀까요?"),
        ("네, 그래도 바꿔줘", "바꿨습니다. 입주일은 2026년 10월 9일입니다."),
        ("/block", "you, plan seongsu"),
        ("이사를 일주일 미뤄줘", "미뤘습니다. 입주일은 2026년 10월 16일입니다. 남은 할 일 29개"),
        ("/between /edit 18 끝남", "기억했습니다"),
        ("18번 지워줘", "지금: Ask the landlord for new wallpaper (끝남). 그래도"),
        ("아니요", "그럼 그대로 두겠습니다."),
        ("Order curtains 체크해줘", "지금: Order curtains (끝남)."),
        ("할 일 추가: 9월 20일까지 테이프 사기", "추가했습니다: 테이프 사기 (9월 20일까지)."),
        ("연락처 추가: 김전기, 전기, 010-1234-5678", "추가했습니다: 김전기 (전기): 010-1234-5678."),
        ("현관 비밀번호를 1357로 바꿔줘", "도구가 없습니다."),
        ("다 바꿔줘", "알아듣지 못했습니다"),
        ("/between", "/between에는 더 필요합니다"),
        ("/between /edit 예산 많이", "금액으로 읽을 수 없습니다"),
        ("19번 끝냈어", "지금: Check the boiler (끝남)."),
        ("19번 다시 열어줘", "지금: Check the boiler ("),
        ("/between off", "기다리는 것이 없습니다"),
        ("/thread A", "seongsu 작업 공간의 mina"),
        ("입주일이 언제야?", "2026년 10월 16일"),
        ("/block", "agent assistant, plan seongsu"),
        ("/thread C", "seongsu 작업 공간의 mover"),
        ("16번 끝냈어", "지금: Order the new bed (끝남)."),
        ("입주일을 10월 2일로 바꿔줘", "This person may not update rows of plan."),
        ("이사를 3일 미뤄줘", "lacks the permission plan"),
        ("20번 지워줘", "may not delete rows of checklist_item"),
        ("/history", "agent assistant, C"),
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


@pytest.mark.parametrize("language", ["en", "ko"])
def test_prompt_changes_what_it_is_asked_to_and_nothing_else(opened, language):
    answers = at_prompt(opened, language, *(line for line, _ in CHANGED[language]))
    for (line, expected), answer in zip(CHANGED[language], answers, strict=True):
        assert expected in " ".join(re.sub(r"[│╭╰─╮╯]", " ", answer).split()), line
    plan = rows(opened, "select move_in_date, budget, door_code from plan where id = 'seongsu'")
    assert plan == [("2026-10-16", 5_000_000, "4821")]
    items = dict(rows(opened, "select id, done from checklist_item where id in (16, 17, 18, 19, 20)"))
    assert items == {16: 1, 17: 1, 18: 1, 19: 0, 20: 0}
    added = rows(opened, "select due_on, done from checklist_item where id > 106")
    assert added == [("2026-09-20", 0)]
    assert rows(opened, "select phone from contact where id > 6") == [("010-1234-5678",)]
    by_agent = "from abreast_event where actor_type = 'agent' and revision > 60"
    assert rows(opened, f"select count(distinct mutation) {by_agent} and entity_type = 'plan'") == [(2,)]
    ((postponed,),) = rows(opened, f"select mutation {by_agent} group by mutation having count(*) > 1")
    assert rows(opened, f"select count(*) {by_agent} and mutation = '{postponed}'") == [(30,)]
    assert set(rows(opened, f"select thread, actor_id {by_agent}")) == {("B", "assistant"), ("C", "assistant")}
    assert rows(opened, f"select entity_id {by_agent} and thread = 'C'") == [("16",)]


ENDLESS = "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n"


def test_conversation_of_a_killed_process_says_how_long_it_is_held(opened):
    command = [sys.executable, "-u", "-m", "examples.movein", "--open", str(opened), "--input", "--lang", "en"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(opened.parent), stdin=pipe, stdout=pipe, start_new_session=True, encoding="utf-8"
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"/between /sql {ENDLESS}\nTick off 19\n")
    process.stdin.flush()
    assert any(line.startswith("In between:") for line in process.stdout)
    os.killpg(process.pid, signal.SIGKILL)  # with the other process that it waits for
    process.stdin.close()
    process.stdout.close()
    assert process.wait(timeout=30) == -signal.SIGKILL
    arguments = ("-m", "examples.movein", "--open", str(opened), "--input", "--lang", "en")
    printed = run(opened.parent, *arguments, typed="Tick off 20\n/thread A\nWhen do I move in?\n")
    greeting, *answers = re.split(r"^\S+> .*\n", printed, flags=re.MULTILINE)
    held = [re.search(r"holds conversation B until .* free in (\d+) seconds", text) for text in (greeting, answers[0])]
    assert all(found and 0 < int(found[1]) <= 30 for found in held), printed
    assert NOW["en"] in answers[2]
    # The seconds have passed: what was cut off is not done, and the conversation goes on.
    with contextlib.closing(sqlite3.connect(opened / "planner.db")) as connection, connection:
        connection.execute("update abreast_lease set expires_at = 0 where thread = 'B'")
    (answer,) = at_prompt(opened, "en", "Tick off 20")
    assert "Now: Book cleaning of the new flat (done)." in answer
    assert rows(opened, "select id, done from checklist_item where id in (19, 20)") == [(19, 0), (20, 1)]


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
