"""Fills a directory with the product's rows and with conversations that really took place.

python -m examples.movein.seed DIRECTORY --lang en

The conversations are runs of the demo's own agent, not invented messages: when this process has ended, all that is left
of them is their checkpoints, as of a conversation that has rested for days.
"""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast import Abreast, user

from .agent import CONVERSATIONS, Assistant, open_assistant, open_model
from .models import Base, ChecklistItem, Contact, Plan

MOVE_IN = dt.date(2026, 9, 28)
QUESTION = {"en": "When is my move-in date?", "ko": "입주일이 언제야?"}
LEFT = {"en": "What is left to do?", "ko": "남은 할 일이 뭐야?"}

PLANS = {
    "en": (
        ("seongsu", "Moving to Seongsu", "12 World Cup-ro, Mapo-gu, Seoul", "77 Seongsui-ro, Seongdong-gu, Seoul"),
        ("parents", "Our parents' move", "3 Gijang-daero, Busan", "40 Haeundae-ro, Busan"),
    ),
    "ko": (
        ("seongsu", "성수동 이사", "서울 마포구 월드컵로 12", "서울 성동구 성수이로 77"),
        ("parents", "부모님 이사", "부산 기장군 기장대로 3", "부산 해운대구 해운대로 40"),
    ),
}

# English, Korean, days before (-) or after (+) the move-in date, done.
ITEMS = (
    ("Sign the lease", "임대차 계약서 서명", -60, True),
    ("Transfer the deposit", "계약금 송금", -58, True),
    ("Give notice to the old landlord", "지금 집주인에게 이사 통보", -56, True),
    ("Compare three removal quotes", "이사 견적 세 곳 비교", -45, True),
    ("Book the movers", "이삿짐센터 예약", -40, True),
    ("Reserve the lift of the new building", "새 건물 엘리베이터 예약", -35, True),
    ("Measure the rooms and doors", "방과 문 치수 재기", -34, True),
    ("Draw where the furniture goes", "가구 배치도 그리기", -30, True),
    ("Ask for days off work", "휴가 신청", -30, True),
    ("Tell the school", "학교에 전학 알리기", -28, False),
    ("Move the internet line", "인터넷 이전 신청", -21, False),
    ("Move the water purifier", "정수기 이전 설치 신청", -21, False),
    ("Buy moving boxes", "이사 박스 구입", -20, True),
    ("Sort out clothes", "옷 정리", -20, False),
    ("Sell the old sofa", "낡은 소파 팔기", -18, False),
    ("Order the new bed", "새 침대 주문", -18, False),
    ("Order curtains", "커튼 주문", -17, False),
    ("Ask the landlord for new wallpaper", "집주인에게 도배 요청", -16, False),
    ("Check the boiler", "보일러 점검", -15, False),
    ("Book cleaning of the new flat", "입주 청소 예약", -14, False),
    ("Register bulky waste", "대형 폐기물 신고", -12, False),
    ("Forward the post", "우편물 주소 이전", -12, False),
    ("Change the address at the bank", "은행 주소 변경", -10, False),
    ("Change the address at the insurance", "보험 주소 변경", -10, False),
    ("Change the address at the card company", "카드사 주소 변경", -10, False),
    ("Pack the books", "책 포장", -9, False),
    ("Pack winter clothes", "겨울옷 포장", -8, False),
    ("Pack the study", "서재 포장", -7, False),
    ("Arrange pet care for the day", "당일 반려동물 맡기기", -6, False),
    ("Settle the maintenance fee", "관리비 정산", -5, False),
    ("Read the electricity meter", "전기 계량기 확인", -3, False),
    ("Read the water meter", "수도 계량기 확인", -3, False),
    ("Book the gas engineer", "도시가스 연결 예약", -3, False),
    ("Empty the fridge", "냉장고 비우기", -2, False),
    ("Pack a first-night bag", "첫날 밤 가방 싸기", -2, False),
    ("Take photos of the old flat", "지금 집 사진 찍기", -1, False),
    ("Hand over the old keys", "지금 집 열쇠 반납", 0, False),
    ("Pay the balance of the deposit", "보증금 잔금 송금", 0, False),
    ("Check the furniture for damage", "가구 파손 확인", 0, False),
    ("Change the front door code", "현관 비밀번호 변경", 0, False),
    ("Report the new residence", "전입신고", 1, False),
    ("Get the fixed date on the lease", "확정일자 받기", 1, False),
    ("Put up the smoke alarms", "화재경보기 설치", 3, False),
    ("Greet the neighbours", "이웃에게 인사", 5, False),
)
CONTACTS = (
    (("Hana Removals", "하나이사"), ("movers", "이삿짐센터"), "02-555-0101", True),
    (("Ms Park", "박지영"), ("landlord", "집주인"), "02-555-0102", False),
    (("Seongsu Realty", "성수부동산"), ("estate agent", "부동산"), "02-555-0103", False),
    (("Building office", "성수타워 관리실"), ("building office", "관리사무소"), "02-555-0104", True),
    (("City Gas", "도시가스"), ("gas", "가스"), "02-555-0105", False),
    (("Net One", "넷원"), ("internet", "인터넷"), "02-555-0106", False),
)


def fill(engine: sa.Engine, hub: Abreast, language: str) -> None:
    """The rows of two households, as their screens wrote them."""
    Base.metadata.create_all(engine)
    hub.blocking.install()
    korean = int(language == "ko")
    with Session(engine) as session, hub.attribute(session, actor=user("mina")):
        for name, title, old, new in PLANS[language]:
            session.add(
                Plan(
                    id=name,
                    workspace_id=name,
                    title=title,
                    status="preparing",
                    move_in_date=MOVE_IN,
                    budget=3_500_000,
                    old_address=old,
                    new_address=new,
                    door_code="4821",
                )
            )
        session.flush()
        for number, (*titles, days, done) in enumerate(ITEMS, 1):
            due = MOVE_IN + dt.timedelta(days=days)
            session.add(ChecklistItem(id=number, plan_id="seongsu", title=titles[korean], due_on=due, done=done))
        for number, (*titles, days, _) in enumerate(ITEMS[3:9], 101):
            due = MOVE_IN + dt.timedelta(days=days)
            session.add(ChecklistItem(id=number, plan_id="parents", title=titles[korean], due_on=due))
        for names, roles, phone, shared in CONTACTS:
            session.add(Contact(plan_id="seongsu", name=names[korean], role=roles[korean], phone=phone, shared=shared))
        if engine.dialect.name == "postgresql":  # its sequence knows nothing of the ids that were given
            highest = sa.select(sa.func.max(ChecklistItem.id)).scalar_subquery()
            session.execute(sa.select(sa.func.setval(sa.func.pg_get_serial_sequence("checklist_item", "id"), highest)))
        session.commit()


def tick(assistant: Assistant, *numbers: int) -> None:
    """Junho ticks things off."""
    for number in numbers:
        assistant.edit_item("seongsu", number, True, by="junho")


def converse(assistant: Assistant, language: str) -> None:
    """What people asked, days ago in the story, and what they did in between."""

    def ask(thread: str, question: str) -> None:
        assistant.ask(CONVERSATIONS[thread], question)

    ask("D", QUESTION[language])
    ask("C", QUESTION[language])
    tick(assistant, 10, 11)
    assistant.edit_plan("seongsu", "budget", 3_800_000, by="mina")
    ask("B", QUESTION[language])
    ask("B-without", QUESTION[language])
    tick(assistant, 12, 14)
    ask("A", LEFT[language])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.movein.seed")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--lang", choices=("en", "ko"), default="en")
    given = parser.parse_args()
    try:
        given.directory.mkdir(parents=True, exist_ok=True)
        with open_assistant(given.directory, given.lang, open_model()) as assistant:
            if sa.inspect(assistant.engine).has_table(Plan.__tablename__):
                raise SystemExit(f"{given.directory} is filled already.")
            fill(assistant.engine, assistant.hub, given.lang)
            converse(assistant, given.lang)
    except Exception as error:  # a provider of models may raise anything
        said = str(error).strip().split("\n")[0]
        raise SystemExit(f"{type(error).__name__}: {said}") from None


if __name__ == "__main__":
    main()
