"""The words of the offline model: what people call things in Korean and English, how values look, how answers are put."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

NOT_SET = "not set"
GONE = "gone"

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if name[3:] else name for name in _MONTHS)
_DATE = re.compile(
    r"(?P<iso>\d{4}-\d\d-\d\d)"
    rf"|(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m1>{_MONTH})\b\.?,?(?: (?P<y1>\d{{4}}))?"
    rf"|(?P<m2>{_MONTH})\.? (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<y2>\d{{4}}))?"
    r"|(?:(?P<y3>\d{4})년\s*)?(?P<m3>\d{1,2})월\s*(?P<d3>\d{1,2})일",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?P<number>\d[\d,]{0,17})(?P<unit>\s?만)?")
_TEXT = re.compile(r'"(?P<json>(?:[^"\\\n]|\\.)*)"|“(?P<quoted>[^”\n]*)”')
_AMOUNT = re.compile(r"(?P<number>\d[\d,]{0,17}(?:\.\d+)?)\s?(?P<unit>million\b|만)?", re.IGNORECASE)
_UNITS = {"million": 1_000_000, "만": 10_000}
# A new text: in quotation marks, behind `to`, or in front of the Korean particle for it.
_NEW_TEXT = re.compile(
    r"[\"“](.+?)[\"”]|\bto\s+(.+?)[.!]?$|^(?:을|를)\s+(.+?)(?:으로|로)\s*(?:바꿔|변경|고쳐|수정|해)", re.IGNORECASE
)
_DUE = re.compile(rf",?\s*(?:\b(?:due|until|by|on)\s+)*(?:{_DATE.pattern})\s*(?:까지)?,?", re.IGNORECASE)
_NO_VALUE = re.compile(r"null\b|not set\b|미정|정해지지 않")
# What may stand between a name and its value: the rest of one clause, and nothing that looks like a value itself.
_BETWEEN = r"[^\n,;?!.{}\[\]\d“”]{0,40}?"
_BEFORE_TEXT = r"(?:\)\"?)?\s*(?:\([^)\n]{0,40}\)\"?)?\s*(?:is now|is again|is|:|=|은|는|이|가)?\s*(?:now|이제)?\s*"

_STATUS = {
    "preparing": ("preparing", "준비 중"),
    "confirmed": ("confirmed", "확정"),
    "moved": ("moved", "이사 완료"),
    "cancelled": ("cancelled", "취소"),
}


@dataclass(frozen=True)
class Field:
    """One thing that has one value. `words` name it in texts, `questions` are other ways to ask for it. `counts` is the
    list whose rows it counts, if it is not a field of the plan."""

    name: str
    kind: Literal["date", "money", "number", "text", "status"]
    english: str
    korean: str
    words: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    counts: str | None = None

    @property
    def _names(self) -> str:
        names = sorted({self.name, self.english, self.korean, *self.words}, key=len, reverse=True)
        return "|".join(rf"(?<![a-z_]){re.escape(name)}(?![a-z_])" for name in names)

    def is_asked(self, question: str) -> bool:
        """Whether a question names this field."""
        names = [self._names] if self.counts is None else []
        return any(re.search(pattern, question, re.IGNORECASE) for pattern in [*names, *self.questions])

    def mentions(self, text: str) -> Iterator[tuple[int, str]]:
        """Where a text names this field with a value, and the value."""
        between = _BEFORE_TEXT if self.kind == "text" else _BETWEEN
        for named in re.finditer(self._names, text, re.IGNORECASE):
            rest = text[named.end() : named.end() + 600]
            if rest.startswith('"') and text[: named.start()].endswith('"'):
                rest = rest[1:]  # the name's own closing mark opens no value
            for pattern in (self._values, _NO_VALUE):
                found = re.match(rf"({between})(?:{pattern.pattern})", rest, pattern.flags)
                value = NOT_SET if found and pattern is _NO_VALUE else self._value(found) if found else None
                if value is not None:
                    yield named.start(), value
                    break
        if self.counts is None:
            for gone in re.finditer(r'\bplan\b[^\n,;.:]{0,60}\bdeleted\b|"plan"\s*:\s*null|(?:계획|플랜)이? 삭제', text):
                yield gone.start(), GONE

    def wanted(self, request: str) -> str | None:
        """The new value that a request for a change names for this field; None if it names none."""
        named = list(re.finditer(self._names, request, re.IGNORECASE))
        behind = request[named[0].end() :] if named else request
        if self.kind == "date":
            return find_date(behind) or find_date(request)
        if self.kind == "text":
            found = _NEW_TEXT.search(behind)
            return next((one.strip() for one in found.groups() if one), None) if found else None
        if self.kind == "status":
            words = list(self._values.finditer(behind))
            return self._value(words[-1]) if words else None
        amounts = list(_AMOUNT.finditer(cut_date(behind)))
        if not amounts:
            return None
        unit = _UNITS.get((amounts[-1]["unit"] or "").lower(), 1)
        return str(round(float(amounts[-1]["number"].replace(",", "")) * unit))

    def sentence(self, value: str, *, korean: bool) -> str:
        """The answer in one sentence."""
        name = self.korean if korean else self.english
        if value in (NOT_SET, GONE, "unknown"):
            return say(f"value_{value.replace(' ', '_')}", korean=korean, name=name, topic=_topic(name))
        if self.kind == "number":
            return f"{_topic(name)} {value}개입니다." if korean else f"{name[0].upper()}{name[1:]}: {value}."
        shown = self._shown(value, korean)
        if korean:
            return f"{_topic(name)} {shown}입니다."
        return f"{'The' if self.kind == 'status' else 'Your'} {name} is {shown}."

    @property
    def _values(self) -> re.Pattern[str]:
        if self.kind == "status":
            words = sorted({word for both in _STATUS.items() for word in (both[0], *both[1])}, key=len, reverse=True)
            return re.compile(f"(?P<word>{'|'.join(words)})", re.IGNORECASE)
        return {"date": _DATE, "money": _NUMBER, "number": _NUMBER, "text": _TEXT}[self.kind]

    def _value(self, found: re.Match[str]) -> str | None:
        got = found.groupdict()
        if self.kind == "date":
            return _iso(got)
        if self.kind == "status":
            return read_status(got["word"]) or got["word"]
        if self.kind == "text":
            if got["quoted"] is not None:
                return str(got["quoted"])
            return re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), got["json"]).replace('\\"', '"')
        digits = int(got["number"].replace(",", "").rstrip(",") or 0)
        return str(digits * 10_000 if got["unit"] else digits)

    def _shown(self, value: str, korean: bool) -> str:
        if self.kind == "date":
            return written_date(value, korean=korean)
        if self.kind == "money":
            return written_money(int(value), korean=korean)
        if self.kind == "status":
            return _STATUS[value][int(korean)]
        return f"“{value}”"


FIELDS = (
    Field(
        "move_in_date",
        "date",
        "move-in date",
        "입주일",
        ("move in date", "moving date", "moving day", "이사일", "이삿날", "이사 날짜", "입주 날짜"),
        (
            r"\bdate\b|날짜",
            r"\bwhen\b.*\bmov(?:e|ing)\b",
            r"\bmove[- ]in\b.*\bwhen\b",
            r"언제.*(?:입주|이사)",
            r"(?:입주|이사).*언제",
            r"며칠.*(?:입주|이사)",
        ),
    ),
    Field("budget", "money", "budget", "예산", (), (r"how much (?:money|can|may)",)),
    Field("status", "status", "status", "상태", (), (r"진행 상황",)),
    Field("old_address", "text", "old address", "지금 주소", ("current address", "이전 주소", "현재 주소", "살던 집"), ()),
    Field(
        "new_address",
        "text",
        "new address",
        "새 주소",
        ("새집 주소", "이사 갈 주소"),
        (r"(?<!old )(?<!current )\baddress\b", r"(?<!지금 )(?<!이전 )(?<!현재 )주소", r"\bwhere\b.*\bmov", r"어디로"),
    ),
    Field("door_code", "text", "door code", "현관 비밀번호", ("비밀번호", "도어록"), (r"\bdoor\b.*\bcode\b",)),
    Field(
        "open_items",
        "number",
        "things left",
        "남은 할 일",
        (),
        (r"how many.*\b(?:left|open|remain|to do)", r"(?:남은|남았).*(?:몇|개수)", r"몇.*(?:남|해야)"),
        counts="open",
    ),
    Field(
        "done_items",
        "number",
        "things done",
        "끝난 일",
        (),
        (r"how many.*\b(?:done|finished)", r"(?:끝|완료|한 일).*(?:몇|개수)", r"몇.*(?:끝|완료|했)"),
        counts="done",
    ),
)


@dataclass(frozen=True)
class ListOf:
    """Several rows: by which fields a tool that lists them is known, and how they are put into words."""

    fields: tuple[str, ...]
    heading: str
    questions: tuple[str, ...]
    named_by: tuple[str, ...]
    match: Mapping[str, Any] = field(default_factory=dict)

    def meant(self, rows: Sequence[Mapping[str, Any]], question: str) -> list[Mapping[str, Any]]:
        """The rows that share most words with the question; none, if it names none of them."""
        asked = subject(question)

        def shared(row: Mapping[str, Any]) -> int:
            text = " ".join(str(row.get(name) or "") for name in self.named_by).lower()
            return sum(stem in text for stem in asked)

        most = max(map(shared, rows), default=0)
        return [row for row in rows if most and shared(row) == most]

    def order(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Rows by their day, then by their id."""
        return str(row.get("due_on") or "9999"), str(row.get("id", "")).rjust(12)

    def line(self, row: Mapping[str, Any], *, korean: bool) -> str:
        """One row in a few words."""
        if "title" not in row:
            return f"{row.get('name')} ({row.get('role')}): {row.get('phone') or '-'}"
        if row.get("done"):
            return f"{row['title']} ({'끝남' if korean else 'done'})"
        if not row.get("due_on"):
            return f"{row['title']} ({'남음' if korean else 'open'})"
        day = written_date(str(row["due_on"]), korean=korean, year=False)
        return f"{row['title']} ({day}까지)" if korean else f"{row['title']} (by {day})"


LISTS = {
    "contacts": ListOf(
        ("name", "role", "phone"),
        "list_contacts",
        (r"\bcontacts?\b|\bphone\b|\bnumber\b|\bcall\b|\bwho is\b", r"연락처|전화|번호|누구"),
        ("name", "role"),
    ),
    "done": ListOf(
        ("title", "due_on", "done"),
        "list_done",
        (r"\b(?:what|which|show|list)\b.*\b(?:done|finished|completed)\b", r"끝난|끝냈|끝낸|완료한|완료된|한 일"),
        (),
        {"done": True},
    ),
    "open": ListOf(
        ("title", "due_on", "done"),
        "list_open",
        (
            r"\bleft\b|\bremain|\bto[- ]?do\b|\bunfinished\b|\bstill open\b|\bwhat(?:'s| is) next\b|\bcheck ?list\b",
            r"남은|남았|남아|할 일|해야|체크리스트|다음은",
        ),
        (),
        {"done": False},
    ),
    "items": ListOf(("title", "due_on", "done"), "list_open", (), ("title",)),
}


def list_of(question: str) -> ListOf | None:
    """The list that a question asks for."""
    for wanted in LISTS.values():
        if any(re.search(pattern, question, re.IGNORECASE) for pattern in wanted.questions):
            return wanted
    return None


_INTENTS = {
    "who_changed": (
        r"\bwho\b.*\b(?:changed?|moved it|edited)\b|\bwhen was\b.*\bchanged\b",
        r"누가.*(?:바꿨|바꾼|변경|고쳤|수정)|언제(?!로).*(?:바뀌|바꿨|변경)|변경 ?(?:이력|내역)",
    ),
    "to_change": (
        r"^(?:please |can you |could you )?(?:change|set|update|move(?![- ]in)|mark|delete|add)\b",
        r"바꿔|변경해|고쳐|수정해|추가해|삭제해|지워",
    ),
}


def asks(intent: str, question: str) -> bool:
    """Whether a question is of this kind."""
    return any(re.search(pattern, question.strip(), re.IGNORECASE) for pattern in _INTENTS[intent])


# Words that every question has, so that they say nothing about what it is about.
_EMPTY_WORDS = frozenset(
    re.findall(
        r"\S+",
        """
        the and for has have had was were are is did does done been with that this from what when where which who how much
        many my our your you can could would should please tell show about already yet not number phone call contact contacts
        list 뭐야 뭐가 무엇 언제 어디 누가 누구 얼마 알려줘 보여줘 있어 했어 됐어 되었 연락처 전화 번호 전화번호 우리 이사
        """,
    )
)


def subject(question: str) -> list[str]:
    """The beginnings of the words that a question is about, without what every question has."""
    stems = []
    for found in re.findall(r"[a-z]{3,}|[가-힣]{2,}", question.lower()):
        if found not in _EMPTY_WORDS:
            stems.append(found[:4] if found.isascii() else found[:2])
    return [stem for stem in stems if stem not in _EMPTY_WORDS]


_SENTENCES = {
    "value_not_set": ("No {name} is set.", "{topic} 아직 정해지지 않았습니다."),
    "value_gone": ("The plan was deleted, so there is no {name} any more.", "계획이 삭제되어 {topic} 더 이상 없습니다."),
    "value_unknown": ("I see no {name} in what I was given.", "제가 받은 내용에는 {name} 정보가 없습니다."),
    "list_open": ("Things left: {number}.", "남은 할 일은 {number}개입니다."),
    "list_done": ("Things done: {number}.", "끝난 일은 {number}개입니다."),
    "list_contacts": ("Contacts: {number}.", "연락처는 {number}개입니다."),
    "list_none": ("None of the {number} that I see fits.", "제가 볼 수 있는 {number}개 가운데 맞는 것이 없습니다."),
    "and_more": (", and {number} more.", " 외 {number}개."),
    "cannot_see": ("I have no tool that shows me that.", "그것을 볼 수 있는 도구가 없습니다."),
    "cannot_change": ("I have no tool that changes that.", "그것을 바꿀 수 있는 도구가 없습니다."),
    "change_how": (
        "I did not understand what to change. For example: move the date to 2 October; set the budget to 4000000; tick off 15; "
        "add: buy tape by 20 September; delete 18; postpone the move by a week.",
        "무엇을 바꿀지 알아듣지 못했습니다. 예: 입주일을 10월 2일로 바꿔줘, 예산을 400만원으로 바꿔줘, 15번 끝냈어, "
        "할 일 추가: 9월 20일까지 테이프 사기, 18번 지워줘, 이사를 일주일 미뤄줘.",
    ),
    "no_plan": ("I see no plan that could be changed.", "바꿀 수 있는 계획이 보이지 않습니다."),
    "which_item": (
        "I find no one thing to do that this names. Say its number.",
        "어느 할 일인지 모르겠습니다. 번호로 말해 주세요.",
    ),
    "not_later": ("That is not later than it is now.", "지금보다 늦은 날이 아닙니다."),
    "done": ("Done. {now}", "바꿨습니다. {now}"),
    "item_now": ("Now: {line}.", "지금: {line}."),
    "added": ("Added: {line}.", "추가했습니다: {line}."),
    "deleted": ("Deleted: {line}.", "지웠습니다: {line}."),
    "postponed": (
        "Done. {now} The due dates of {number} open things moved with it.",
        "미뤘습니다. {now} 남은 할 일 {number}개의 날짜도 함께 옮겼습니다.",
    ),
    "conflict": (
        "I have changed nothing: the data changed after I had read it{who}. {now} Shall I change it all the same? Say yes or no.",
        "아무것도 바꾸지 않았습니다. 제가 읽은 뒤에 데이터가 바뀌었습니다{who}. {now} 그래도 바꿀까요? 네, 아니요로 답해 주세요.",
    ),
    "conflict_who": (", by {who}", " ({who})"),
    "stays": ("Then it stays as it is.", "그럼 그대로 두겠습니다."),
    "refused": ("I could not do that: {reason}", "하지 못했습니다: {reason}"),
    "tool_failed": ("The tool answered with an error: {reason}", "도구가 오류로 답했습니다: {reason}"),
    "changed": (
        "{what} of {of} was last changed by {who}, at {at} UTC.",
        "{of}의 {what}: 마지막으로 {who}, {at} UTC에 바꿨습니다.",
    ),
    "nothing_changed": ("I find no such change in the history.", "그런 변경은 기록에 없습니다."),
    "help": (
        "I am a small offline model, not a real one. Ask me for the move-in date, budget, status, addresses, what is left or "
        "done, contacts, one thing to do by its name, or who changed what. Or ask me to change it: move the date to 2 October, "
        "tick off 15, add: buy tape.",
        "저는 진짜 언어 모델이 아니라 작은 오프라인 모델입니다. 입주일, 예산, 상태, 주소, 남은 일과 끝난 일, 연락처, 할 일 "
        "하나의 이름, 누가 무엇을 바꿨는지 물어보세요. 바꿔 달라고 해도 됩니다: 입주일을 10월 2일로 바꿔줘, 15번 끝냈어, "
        "할 일 추가: 테이프 사기.",
    ),
}


def say(what: str, /, *, korean: bool, **values: Any) -> str:
    """One of the model's sentences."""
    return _SENTENCES[what][int(korean)].format(**values)


def written_date(iso: str, *, korean: bool, year: bool = True) -> str:
    """A date as people write it: `28 September 2026`, `2026년 9월 28일`; without the year where it is not known."""
    parts = [int(part) for part in iso.split("-") if part]
    known = parts[0] if len(parts) == 3 and year else None
    month, day = parts[-2:]
    if korean:
        return f"{known}년 {month}월 {day}일" if known else f"{month}월 {day}일"
    return f"{day} {_MONTHS[month - 1]} {known}" if known else f"{day} {_MONTHS[month - 1]}"


def written_money(amount: int, *, korean: bool) -> str:
    """An amount of won."""
    return f"{amount:,}원" if korean else f"KRW {amount:,}"


def read_date(text: str) -> str | None:
    """The date that a text is, as ISO 8601 (`--09-28` where it names no year); None if it is none."""
    found = _DATE.fullmatch(text.strip())
    return _iso(found.groupdict()) if found else None


def find_date(text: str) -> str | None:
    """The last date in a text, as ISO 8601 (`--09-28` where it names no year); None if there is none."""
    found = [_iso(one.groupdict()) for one in _DATE.finditer(text)]
    return found[-1] if found else None


def cut_date(text: str) -> str:
    """A text without its dates and what leads up to them (`by`, `까지`)."""
    return " ".join(_DUE.sub(" ", text).split())


def read_status(text: str) -> str | None:
    """The status that a word in either language means; None if it is none."""
    return next((code for code, words in _STATUS.items() if text.lower() in (code, *words)), None)


def statuses(*, korean: bool) -> str:
    """All statuses, for a sentence."""
    return ", ".join(words[int(korean)] for words in _STATUS.values())


def _iso(got: Mapping[str, str | None]) -> str | None:
    """ISO 8601 from the groups of _DATE; None for a day that no calendar has."""
    iso = got["iso"] or ""
    for number in "123":
        month, day, year = got[f"m{number}"], got[f"d{number}"], got[f"y{number}"]
        if month and day:
            named = next((i for i, name in enumerate(_MONTHS, 1) if name[:3].lower() == month[:3].lower()), None)
            iso = f"{year or '-'}-{named or int(month):02d}-{int(day):02d}"
    try:
        dt.date.fromisoformat(iso if not iso.startswith("--") else f"2024{iso[1:]}")
    except ValueError:
        return None
    return iso


def _topic(name: str) -> str:
    """A Korean name with the particle that its last syllable asks for."""
    code = ord(name[-1]) - 0xAC00
    if not 0 <= code < 11172:
        return name
    return name + ("은" if code % 28 else "는")
