"""What the terminal says, in both languages. Every entry holds English and Korean, so neither can be forgotten."""

from __future__ import annotations

import os
from typing import Literal

Language = Literal["en", "ko"]

_WORDS: dict[str, tuple[str, str]] = {
    # the program
    "description": (
        "The move-in planner: an agent that stays in step with rows which others change.",
        "입주 플래너: 다른 곳에서 바뀌는 데이터와 보조를 맞추는 에이전트.",
    ),
    "help_lang": ("language of the screen and of the data (default: the locale's)", "화면과 데이터의 언어 (기본값: 로캘)"),
    "help_input": (
        "ask and edit after the scene (default: if this is a terminal)",
        "장면 뒤에 직접 묻고 고치기 (기본값: 터미널일 때)",
    ),
    "help_keep": ("keep the directory with the database and the checkpoints", "데이터베이스와 체크포인트 디렉터리를 남겨 두기"),
    "help_open": ("go on with a directory that --keep left, days later", "--keep로 남긴 디렉터리를 며칠 뒤 이어서 열기"),
    "title": ("abreast: the move-in planner", "abreast: 입주 플래너"),
    "directory": ("Data: {path}", "데이터: {path}"),
    "removed": ("removed at the end; --keep keeps it", "끝나면 지워집니다. --keep로 남길 수 있습니다"),
    "kept": ("kept; go on later with --open {path}", "남겨 둡니다. 나중에 이어서 열기: --open {path}"),
    "model_offline": (
        "Model: an offline one that reads its request and nothing else. ABREAST_MODEL=provider:name takes a real one.",
        "모델: 자신이 받은 요청만 읽는 오프라인 모델. ABREAST_MODEL=provider:name으로 실제 모델을 씁니다.",
    ),
    "model_named": ("Model: {name}", "모델: {name}"),
    "seeding": (
        "Another process writes the rows and holds the first conversations…",
        "다른 프로세스가 데이터를 쓰고 첫 대화들을 나눕니다…",
    ),
    "asking": ("asking…", "묻는 중…"),
    "no_directory": ("{path} holds no demo. Start one with --keep.", "{path}에는 데모가 없습니다. --keep로 먼저 만드세요."),
    "seed_failed": ("The first conversations could not be held: {error}", "첫 대화를 나누지 못했습니다: {error}"),
    "failed": ("This did not work: {error}", "실패했습니다: {error}"),
    "goodbye": ("Goodbye.", "안녕히 가세요."),
    # the scene
    "act_1": ("1. Days ago: conversation B", "1. 며칠 전: 대화 B"),
    "act_1_note": (
        "Read from its checkpoint. The process that held this conversation has ended; in the story that was days ago.",
        "체크포인트에서 읽었습니다. 이 대화를 나눈 프로세스는 이미 끝났습니다. 이야기 속에서는 며칠 전입니다.",
    ),
    "assistant": ("assistant", "어시스턴트"),
    "act_2": ("2. Another process changes the row with raw SQL", "2. 다른 프로세스가 SQL로 데이터를 바꿉니다"),
    "act_2_note": (
        "That program knows only sqlite3. Database and screen are right at once ({date}); conversation B still holds {old}.",
        "그 프로그램은 sqlite3만 압니다. 데이터베이스와 화면은 바로 맞지만({date}), 대화 B에는 아직 {old}로 남아 있습니다.",
    ),
    "act_3": ("3. B asks again: {question}", "3. B가 다시 묻습니다: {question}"),
    "block": ("What the model received around the question", "모델이 질문 앞뒤로 받은 것"),
    "act_3_note": (
        "It stood in this request only. The checkpoint holds {number} messages, and {size} bytes that say how far B was told.",
        "이 요청에만 들어 있었습니다. 체크포인트에는 메시지 {number}개와, B가 어디까지 들었는지 적은 {size}바이트만 있습니다.",
    ),
    "act_4": ("4. The answers", "4. 답"),
    "with": ("with abreast", "abreast 있음"),
    "without": ("without abreast", "abreast 없음"),
    "act_4_note": (
        "Same model, tools and question, days ago and now. Without abreast nothing tells the model that its old answer is old.",
        "모델도 도구도 며칠 전과 지금의 질문도 같습니다. abreast가 없으면 예전 답이 낡았다고 모델에 알려 주는 것이 없습니다.",
    ),
    "act_5": ("5. Who is how far behind", "5. 누가 얼마나 뒤처졌나"),
    "column_conversation": ("conversation", "대화"),
    "column_person": ("person", "사람"),
    "column_workspace": ("workspace", "작업 공간"),
    "column_at": ("stands at", "위치"),
    "column_behind": ("behind", "뒤처짐"),
    "no_place": ("no place: nothing tells it", "위치 없음: 아무도 알려 주지 않음"),
    "act_5_note": (
        "Each will hear what it missed with its next question, and only that.",
        "각 대화는 다음 질문 때 놓친 것만 듣습니다.",
    ),
    "act_6": ("6. B is asked for a change: {request}", "6. B에게 변경을 부탁합니다: {request}"),
    "tools_called": ("The assistant's tool calls, and what the tools answered", "어시스턴트의 도구 호출과 도구의 답"),
    "tools_wrote": ("The tool calls that write, and what the tools answered", "쓰기 도구 호출과 도구의 답"),
    "the_row": ("The row, as another process reads it", "다른 프로세스가 읽은 데이터"),
    "the_log": ("Its line in the log", "로그에 남은 줄"),
    "act_6_note": (
        "The write named the version that was read. Row and line of the log were committed together, with who did it.",
        "쓰기에는 읽은 버전이 들어 있습니다. 데이터와 로그의 줄은 누가 했는지와 함께 한 번에 커밋됩니다.",
    ),
    "act_7": ("7. Somebody is faster: {request}", "7. 다른 사람이 먼저 고칩니다: {request}"),
    "between_done": (
        "After the assistant has read the plan and before its tool writes, user {person} sets {date} on the screen.",
        "어시스턴트가 계획을 읽고 도구가 쓰기 전에, {person} 사용자가 화면에서 {date}로 바꿉니다.",
    ),
    "race_others": ("everybody else", "다른 사람과 프로그램"),
    "race_plan": ("plan {plan}", "계획 {plan}"),
    "race_assistant": ("B's assistant", "B의 어시스턴트"),
    "race_read": ("reads version {version}", "{version} 버전을 읽음"),
    "race_refused": ("{wanted} on version {version}: refused", "{version} 버전 위에 {wanted}: 거절됨"),
    "race_written": ("writes on version {version}", "{version} 버전 위에 씀"),
    "act_7_note": (
        "Nobody's edit was lost: the second write names the version that the person had heard of. Of the assistant the plan has "
        "{number} change.",
        "누구의 수정도 사라지지 않았습니다. 두 번째 쓰기에는 사용자가 들은 버전이 들어 있습니다. 계획에 남은 어시스턴트의 변경은 "
        "{number}개입니다.",
    ),
    "act_7_other": (
        "This model went its own way: it left no refused write to ask about. Of the assistant the plan has {number} change.",
        "이 모델은 다르게 했습니다. 거절되어 다시 물어볼 쓰기가 없습니다. 계획에 남은 어시스턴트의 변경은 {number}개입니다.",
    ),
    "act_8": ("8. A hears of it, and of who did it: {question}", "8. A가 듣습니다, 누가 했는지도: {question}"),
    "told_a": ("What A is told", "A가 들은 것"),
    "told_b": ("What B was told of its own write", "B가 자기 쓰기에 대해 들은 것"),
    "act_8_note": (
        "The same change: in A it was the assistant's, in B it says `you`.",
        "같은 변경입니다. A에는 어시스턴트가 한 일로, B에는 `you`로 적힙니다.",
    ),
    # the prompt
    "prompt": (
        "Now you. Ask, ask for a change, or edit first and then ask. /help lists the commands.",
        "이제 직접 해 보세요. 묻거나, 바꿔 달라고 하거나, 먼저 고치고 물어보세요. /help에 명령이 있습니다.",
    ),
    "help": (
        "TEXT                 ask in the conversation that the prompt names, or ask it to change something\n"
        "/thread NAME         go to conversation {names}\n"
        "/edit FIELD VALUE    the screen: change {fields},\n"
        "                     or tick an item by its number: /edit 15 done, /edit 15 open\n"
        "/sql STATEMENT       another process: any SQL, for example\n"
        "                     /sql update plan set budget = 4000000 where id = 'seongsu'\n"
        "/between /edit ...   the same (or /sql ...), by user junho, between the model's reading and its tool's writing\n"
        "/screen              the plan and the checklist as they are now\n"
        "/behind              who is how far behind\n"
        "/block               what the model received with the last question\n"
        "/history             who changed what, in which conversation, by which mutation\n"
        "/quit                the end",
        "글                   지금 대화에서 묻거나 바꿔 달라고 하기\n"
        "/thread 이름         다른 대화로 가기: {names}\n"
        "/edit 항목 값        화면에서 고치기: {fields},\n"
        "                     번호로 할 일 표시하기: /edit 15 done, /edit 15 open\n"
        "/sql SQL문           다른 프로세스에서 SQL 실행하기, 예를 들면\n"
        "                     /sql update plan set budget = 4000000 where id = 'seongsu'\n"
        "/between /edit ...   모델이 읽고 도구가 쓰기 전에 junho 사용자가 고치기 (/sql ...도 됩니다)\n"
        "/screen              지금의 계획과 체크리스트\n"
        "/behind              누가 얼마나 뒤처졌나\n"
        "/block               마지막 질문에서 모델이 받은 것\n"
        "/history             누가 무엇을 어느 대화에서 바꿨나, 뮤테이션까지\n"
        "/quit                끝내기",
    ),
    "unknown_command": ("There is no command {name}. /help lists them.", "{name} 명령은 없습니다. /help에서 확인하세요."),
    "needs": ("{name} needs more: {usage}", "{name}에는 더 필요합니다: {usage}"),
    "usage_thread": ("/thread NAME, one of {names}", "/thread 이름, {names} 중 하나"),
    "usage_edit": ("/edit FIELD VALUE, for example /edit budget 4000000", "/edit 항목 값, 예: /edit 예산 4000000"),
    "usage_sql": ("/sql STATEMENT", "/sql SQL문"),
    "unknown_thread": ("There is no conversation {name}. There are {names}.", "{name} 대화는 없습니다. 있는 대화: {names}."),
    "thread_is": ("Conversation {name}: {person} in workspace {workspace}.", "대화 {name}: {workspace} 작업 공간의 {person}."),
    "unknown_field": ("There is no field {name}. There are {fields}.", "{name} 항목은 없습니다. 있는 항목: {fields}."),
    "bad_date": (
        "{value} is no date. Examples: 2026-09-30, 30 September 2026.",
        "날짜로 읽을 수 없습니다: {value}. 예: 2026-09-30, 2026년 9월 30일.",
    ),
    "bad_number": ("{value} is no amount. Example: 4000000.", "금액으로 읽을 수 없습니다: {value}. 예: 4000000, 400만."),
    "bad_status": ("The status is one of {statuses}.", "상태는 다음 중 하나입니다: {statuses}."),
    "bad_done": ("An item is done or open: /edit {number} done.", "할 일은 done 아니면 open입니다: /edit {number} done."),
    "no_item": ("Workspace {workspace} has no item {number}.", "{workspace} 작업 공간에는 {number}번 할 일이 없습니다."),
    "no_plan": ("Workspace {workspace} has no plan any more.", "{workspace} 작업 공간에는 이제 계획이 없습니다."),
    "written": (
        "Written by the screen, as user {person}. Ask, or look at /behind.",
        "화면에서 {person} 사용자가 썼습니다. 물어보거나 /behind를 보세요.",
    ),
    "elsewhere": ("another process ended with status {status}", "다른 프로세스의 종료 코드: {status}"),
    "elsewhere_slow": (
        "The other process took more than ten seconds and was ended.",
        "다른 프로세스가 10초 넘게 걸려 끝냈습니다.",
    ),
    "between_armed": (
        "Kept: {edit}. It happens with the next change that you ask for, after the model has read and before its tool writes.",
        "기억했습니다: {edit}. 다음에 변경을 부탁하면, 모델이 읽고 나서 도구가 쓰기 전에 실행합니다.",
    ),
    "between_now": ("In between: {edit}", "그사이에: {edit}"),
    "between_waits": (
        "No tool has written, so what /between keeps still waits. /between off forgets it.",
        "쓰기 도구를 부르지 않아서 /between은 아직 기다립니다. 잊으려면 /between off.",
    ),
    "between_off": ("Nothing waits any more.", "이제 기다리는 것이 없습니다."),
    "usage_between": (
        "/between /edit FIELD VALUE, /between /sql STATEMENT or /between off, for example /between /edit move-in date 1 October",
        "/between /edit 항목 값, /between /sql SQL문 또는 /between off, 예: /between /edit 입주일 10월 1일",
    ),
    "busy": (
        "Another run holds conversation {name} until it ends. Should it have died, the conversation is free in {seconds} seconds "
        "at most; ask again then.",
        "대화 {name}: 다른 실행이 끝날 때까지 쥐고 있습니다. 그 실행이 죽었다면 늦어도 {seconds}초 뒤에 풀립니다. 그때 다시 "
        "물어보세요.",
    ),
    "no_block": (
        "Nothing: no question was asked yet, or it was asked without abreast.",
        "없습니다. 아직 묻지 않았거나 abreast 없이 물었습니다.",
    ),
    "kept_place": ("The conversation keeps its place: {reason}", "대화의 위치는 그대로입니다: {reason}"),
    "no_answer": ("(no answer)", "(답 없음)"),
    "no_changes": ("Nothing was changed that {person} may see.", "{person}에게 보일 변경이 없습니다."),
    "column_revision": ("revision", "리비전"),
    "column_time": ("time (UTC)", "시각 (UTC)"),
    "column_who": ("who", "누가"),
    "column_what": ("what", "무엇을"),
    "column_mutation": ("mutation", "뮤테이션"),
    "not_shown": ("not shown", "표시하지 않음"),
    "open": ("open", "남음"),
    "done": ("done", "끝남"),
}


class Words:
    """The terminal's words in one language: `words("goodbye")`."""

    def __init__(self, language: Language) -> None:
        self.language: Language = language

    def __call__(self, name: str, /, **values: object) -> str:
        return _WORDS[name][int(self.language == "ko")].format(**values)


def of_locale() -> Language:
    """The language that the environment asks for; English unless it is Korean."""
    asked = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "ko" if asked.lower().startswith("ko") else "en"
