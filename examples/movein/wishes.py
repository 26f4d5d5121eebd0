"""What a person asks the offline model to change: the words for it in Korean and English, and the values in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .vocabulary import FIELDS, Field, asks, cut_date, find_date

Kind = Literal["plan", "item", "add", "add_contact", "delete", "postpone"]

ITEM = ("title", "due_on", "done")
CONTACT = ("name", "role", "phone")


@dataclass(frozen=True)
class Wish:
    """One change that a person asks for. `values` are fields with their new values (a date may lack its year: `--10-02`),
    `number` is the id of the thing to do that is meant, `name` what else it is called by."""

    kind: Kind
    values: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None
    name: str = ""


_PLEASE = r"^(?:please |now |can you |could you |would you )*"
_NUMBER = r"(?:\bitem |\bnumber |\bno\.? |#)?(?P<number>\d{1,9})\b"
_NUMBERED = r"#?(?P<number>\d{1,9})번?"

_DONE = (
    _PLEASE + r"(?:tick|check|cross)(?: off)?\b\D*" + _NUMBER,
    _PLEASE + r"mark\b\D*" + _NUMBER + r".*\b(?:done|finished|off)\b",
    r"\b(?:finished|completed|done with)\b\D{0,20}" + _NUMBER + r"[^?]*$",
    r"^" + _NUMBER + r" is (?:now )?(?:done|finished)[^?]*$",
    _NUMBERED + r".*(?:끝냈|끝났|완료|다 했|체크|처리했)[^?]*$",
)
_REOPENED = (
    _PLEASE + r"(?:re-?open|untick|uncheck|open)\b\D*" + _NUMBER,
    _PLEASE + r"mark\b\D*" + _NUMBER + r".*\b(?:open|not done)\b",
    _NUMBERED + r".*(?:다시 열|다시 해야|안 끝났|끝나지 않|되돌려)",
)
_TICKED_BY_NAME = (
    _PLEASE + r"(?:tick|check|cross) off (?P<name>[^\d?]{3,80})$",
    _PLEASE + r"mark (?P<name>[^\d?]{3,80}?) (?:as )?(?:done|finished)[.!]?$",
    r"^(?P<name>[^\d?]{2,80}?)(?:을|를|은|는)? (?:체크해|끝난 일로|완료로 (?:표시|바꿔))",
)
_DELETED = (
    _PLEASE + r"(?:delete|remove|drop)\b\D*" + _NUMBER,
    _NUMBERED + r".*(?:삭제|지워|빼 ?줘)",
)
_CONTACT_ADDED = (
    _PLEASE + r"add (?:a |the )?(?:new )?contact\b:?\s*(?P<name>.+)$",
    r"^연락처(?:에|를)? ?추가(?:해 ?줘)?\s*:\s*(?P<name>.+)$",
)
_ADDED = (
    _PLEASE + r"add(?: (?:an? )?(?:item|thing|task|to-?do)| to (?:the |my )?(?:check ?)?list)?\s*:\s*(?P<name>.+)$",
    _PLEASE + r"add (?P<name>.+?)(?: to (?:the |my )?(?:check ?)?list)?$",
    r"^(?:할 ?일|체크리스트)?(?:에|을|를)? ?추가(?:해 ?줘)?\s*:\s*(?P<name>.+)$",
    r"^(?P<name>.+?)(?:을|를)? (?:할 ?일|체크리스트)(?:에|로)? ?(?:추가|넣어)",
    r"^(?P<name>.+?)(?:을|를)? 추가해",
)
_POSTPONED = (r"\b(?:postpone|delay|put off|push back)\b", r"미뤄|미루|연기해")
_SET = (
    _PLEASE + r"(?:change|set|update|move(?![- ]in)|make|put|shift)\b",
    r"바꿔|변경해|고쳐|수정해|옮겨|잡아 ?줘|정해 ?줘|(?:으로|로) 해 ?줘",
)
_ITEM_NUMBER = r"(?:\bitem |\bnumber |#)(?P<number>\d{1,9})\b"
_ITEM_NUMBER_KO = r"(?P<number>\d{1,9})번"
_THE_MOVE = r"\bit\b|\bthe move\b|\bmoving\b|이사|입주|그걸|그거"
_DAYS = {"하루": 1, "이틀": 2, "사흘": 3, "나흘": 4, "일주일": 7, "한 주": 7, "두 주": 14, "보름": 15}
_COUNT = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4}

_YES = (
    r"^(?:yes|yeah|yep|ok(?:ay)?|sure|please do|do it|go ahead)\b|\banyway\b|\ball the same\b",
    r"^(?:네|넵|응|예|그래|좋아|그렇게 해)(?:[\s,.!]|$)|그래도|그대로 진행",
)
_NO = (r"^(?:no|nope|leave it|never ?mind|don't)\b", r"^(?:아니|아뇨|됐어|그만|놔둬|그대로 둬)")


def agrees(answer: str) -> bool | None:
    """Whether somebody says yes (True) or no (False) to what he was asked; None if it is neither."""
    if _match(_NO, answer):
        return False
    return True if _match(_YES, answer) else None


def wish_of(question: str) -> Wish | None:
    """The change that a question asks for; None if it asks for none, or for one that nobody understands."""
    text = question.strip().rstrip(".!").strip()
    if found := _match(_CONTACT_ADDED, text):
        return Wish("add_contact", _contact(found["name"]))
    if re.search(r"\bcontacts?\b|연락처", text, re.IGNORECASE):
        return None
    date = find_date(text)
    if date and (found := _match((_ITEM_NUMBER, _ITEM_NUMBER_KO), cut_date(text))) and _match(_SET + _POSTPONED, text):
        return Wish("item", {"due_on": date}, int(found["number"]))
    if _match(_POSTPONED, text):
        return _postponed(text)
    if found := _match(_REOPENED, text):
        return Wish("item", {"done": False}, int(found["number"]))
    if found := _match(_DELETED, text):
        return Wish("delete", number=int(found["number"]))
    fields = [field for field in FIELDS if field.counts is None and field.is_asked(text)]
    if _match(_SET, text) and (values := _values(text, fields)):
        return Wish("plan", values)
    if found := _match(_DONE, text):
        return Wish("item", {"done": True}, int(found["number"]))
    if found := _match(_TICKED_BY_NAME, text):
        return Wish("item", {"done": True}, name=found["name"].strip())
    if found := _match(_ADDED, text):
        return Wish("add", _item(found["name"]))
    return None


def asks_for_change(question: str) -> bool:
    """Whether a question asks for a change at all."""
    return asks("to_change", question) or bool(_match(_POSTPONED, question))


def _match(patterns: tuple[str, ...], text: str) -> re.Match[str] | None:
    found = (re.search(pattern, text.strip(), re.IGNORECASE) for pattern in patterns)
    return next((one for one in found if one), None)


def _values(text: str, fields: list[Field]) -> dict[str, Any]:
    """New values of the plan's fields. The date of `move it to 2 October` is the day of the move."""
    values: dict[str, Any] = {}
    for one in fields:
        value = one.wanted(text)
        if value is not None:
            values[one.name] = int(value) if one.kind == "money" else value
    date = find_date(text)
    if not fields and date and re.search(_THE_MOVE, text, re.IGNORECASE):
        values["move_in_date"] = date
    return values


def _postponed(text: str) -> Wish | None:
    date = find_date(text)
    if date:
        return Wish("postpone", {"until": date})
    for word, days in _DAYS.items():
        if word in text:
            return Wish("postpone", {"days": days})
    found = re.search(r"(?P<count>\d{1,3}|an?|one|two|three|four) ?(?P<unit>days?|weeks?)\b", text, re.IGNORECASE)
    found = found or re.search(r"(?P<count>\d{1,3}) ?(?P<unit>일|주)", text)
    if not found:
        return None
    count = _COUNT.get(found["count"].lower()) or int(found["count"])
    return Wish("postpone", {"days": count * (7 if found["unit"].lower()[:1] in ("w", "주") else 1)})


def _item(said: str) -> dict[str, Any]:
    """A thing to do, from `buy tape by 20 September` or `9월 20일까지 테이프 사기`."""
    date = find_date(said)
    title = cut_date(said).strip(" ,.:\"'“”‘’")
    return {"title": title[:1].upper() + title[1:], **({"due_on": date} if date else {})}


def _contact(said: str) -> dict[str, Any]:
    """Somebody to call, from `Kim, electrician, 010-1234-5678`."""
    parts = [part.strip(" \"'“”") for part in said.split(",")]
    number = next((part for part in parts if re.fullmatch(r"[\d+][\d ()-]{5,}", part)), None)
    words = [part for part in parts if part and part != number]
    return {"name": words[0] if words else said, "role": words[1] if len(words) > 1 else "-", "phone": number}
