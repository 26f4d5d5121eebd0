"""The products that the cases are about: small worlds of rows with dates, names, money, statuses and counts."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Literal

ValueKind = Literal["date", "name", "money", "status", "count"]
VALUE_KINDS: tuple[ValueKind, ...] = ("date", "name", "money", "status", "count")
Language = Literal["en", "ko"]

MONTHS = (
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


@dataclass(frozen=True)
class FieldOf:
    """One field of a product's rows: what the column and what people call it, and what it may hold."""

    name: str
    label: str
    kind: ValueKind
    choices: tuple[Any, ...]
    unit: str = ""
    asked: str = ""
    """The question in words of its own, without the label."""


@dataclass(frozen=True)
class Product:
    """One entity type with the fields that are asked about. `titles` name its rows, `notes` are harmless remarks."""

    name: str
    system: str
    entity_type: str
    noun: str
    title_field: str
    titles: tuple[str, ...]
    fields: tuple[FieldOf, ...]
    notes: tuple[str, ...]
    language: Language = "en"

    def field(self, name: str) -> FieldOf:
        """The field of this name."""
        return next(one for one in self.fields if one.name == name)

    @property
    def labels(self) -> dict[str, str]:
        """What people call the fields."""
        return {one.name: one.label for one in self.fields}


def dates(year: int) -> tuple[str, ...]:
    """Days of a year, in ISO 8601."""
    return tuple(f"{year}-{month:02}-{day:02}" for month in range(1, 13) for day in (2, 5, 9, 13, 17, 21, 24, 28))


def names_of(text: str) -> tuple[str, ...]:
    """Names, one after each comma."""
    return tuple(part.strip() for part in text.split(","))


PEOPLE = names_of(
    "Mina Kim, Daniel Ortiz, Priya Nair, Lukas Weber, Aisha Bello, Tomás Silva, Emma Larsen, Kenji Mori, Clara Rossi, "
    "Omar Haddad, Julia Novak, Peter Olsen, Hana Sato, Victor Dubois, Grace Miller"
)
PLACES = names_of("Riverside Park, Eagle Stadium, Harbor Field, Sunset Arena, Maple Ground, Victory Dome")
ROOMS = names_of("Cedar Suite, Ocean Room, Garden Loft, Tower Studio, Lake Cabin, Rose Chamber")
COURIERS = names_of("FastBird, BlueTruck, ParcelPlus, NightOwl, GreenVan")

PRODUCTS: tuple[Product, ...] = (
    Product(
        "movein",
        "You are the assistant of a move planner. Answer in one short sentence.",
        "plan",
        "plan",
        "title",
        names_of("Mapo flat, Hill house, Office move, Garden villa, Lake cottage, Student room"),
        (
            FieldOf(
                "move_in_date",
                "move-in date",
                "date",
                dates(2026),
                asked="When do we move into the {title}?",
            ),
            FieldOf(
                "budget",
                "budget",
                "money",
                (2_500_000, 3_000_000, 4_000_000, 4_800_000, 6_200_000),
                "won",
                asked="How much money is planned for the {title}?",
            ),
            FieldOf(
                "owner",
                "contact person",
                "name",
                PEOPLE,
                asked="Who do I call about the {title}?",
            ),
            FieldOf(
                "status",
                "status",
                "status",
                ("draft", "confirmed", "on_hold", "cancelled"),
                asked="Where do we stand with the {title}?",
            ),
            FieldOf(
                "boxes",
                "number of boxes",
                "count",
                (14, 18, 26, 35, 42, 57),
                asked="How many boxes are there for the {title}?",
            ),
        ),
        names_of("the lift is small, keys are at the desk, ask for parking, bring the long ladder"),
    ),
    Product(
        "league",
        "You are the assistant of a baseball league. Answer in one short sentence.",
        "game",
        "game",
        "title",
        names_of("Bears against Tigers, Lions against Eagles, Giants against Heroes, Dinos against Twins, Wolves against Sharks"),
        (
            FieldOf(
                "played_on",
                "date",
                "date",
                dates(2026),
                asked="When do the {title} play?",
            ),
            FieldOf("venue", "venue", "name", PLACES, asked="Where do the {title} play?"),
            FieldOf(
                "starting_pitcher",
                "starting pitcher",
                "name",
                PEOPLE,
                asked="Who pitches first in the {title}?",
            ),
            FieldOf(
                "status",
                "status",
                "status",
                ("scheduled", "postponed", "rained_out", "final"),
                asked="What is going on with the {title}?",
            ),
            FieldOf(
                "ticket_price",
                "ticket price",
                "money",
                (12_000, 15_000, 18_000, 22_000, 30_000),
                "won",
                asked="How much does a ticket for the {title} cost?",
            ),
            FieldOf(
                "seats_left",
                "number of seats left",
                "count",
                (120, 340, 515, 760, 980, 1430),
                asked="How many seats are left for the {title}?",
            ),
        ),
        names_of("gates open early, bring a rain coat, family day, fireworks after the game"),
    ),
    Product(
        "shop",
        "You are the support assistant of an online shop. Answer briefly.",
        "order",
        "order",
        "title",
        names_of("kitchen order, bicycle order, garden order, office order, birthday order"),
        (
            FieldOf(
                "delivery_date",
                "delivery date",
                "date",
                dates(2026),
                asked="When will the {title} arrive?",
            ),
            FieldOf(
                "total",
                "total",
                "money",
                (84, 129, 250, 415, 990, 1250),
                "dollars",
                asked="How much does the {title} cost in all?",
            ),
            FieldOf("courier", "courier", "name", COURIERS, asked="Who brings the {title}?"),
            FieldOf(
                "status",
                "status",
                "status",
                ("packed", "shipped", "delayed", "delivered", "returned"),
                asked="How far is the {title}?",
            ),
            FieldOf(
                "parcels",
                "number of parcels",
                "count",
                (2, 3, 4, 6, 8, 9),
                asked="How many parcels are in the {title}?",
            ),
        ),
        names_of("ring twice, leave it at the door, call before noon, fragile glass"),
    ),
    Product(
        "projects",
        "You are a project assistant. You answer questions about the projects of the team, briefly.",
        "project",
        "project",
        "name",
        names_of("website redesign, mobile app, data migration, spring campaign, payroll system"),
        (
            FieldOf(
                "deadline",
                "deadline",
                "date",
                dates(2027),
                asked="When must the {title} be finished?",
            ),
            FieldOf("lead", "lead", "name", PEOPLE, asked="Who leads the {title}?"),
            FieldOf(
                "budget",
                "budget",
                "money",
                (20_000, 35_000, 48_000, 75_000, 110_000),
                "dollars",
                asked="How much money does the {title} have?",
            ),
            FieldOf(
                "phase",
                "phase",
                "status",
                ("planning", "in_progress", "testing", "finished", "paused"),
                asked="How far along is the {title}?",
            ),
            FieldOf(
                "open_tasks",
                "number of open tasks",
                "count",
                (7, 11, 16, 23, 31, 44),
                asked="How many tasks are still open in the {title}?",
            ),
        ),
        names_of("weekly call on Monday, see the wiki, needs a legal review, waiting for the logo"),
    ),
    Product(
        "hotel",
        "You are the booking assistant of a small hotel. Answer in one sentence.",
        "booking",
        "booking",
        "guest",
        names_of("Harper family, Jansen party, Suzuki couple, Bergman group, Costa family"),
        (
            FieldOf(
                "check_in",
                "check-in date",
                "date",
                dates(2026),
                asked="When does the {title} arrive?",
            ),
            FieldOf("room", "room", "name", ROOMS, asked="Where does the {title} sleep?"),
            FieldOf(
                "price",
                "price",
                "money",
                (180, 240, 365, 520, 710),
                "euros",
                asked="How much does the {title} pay?",
            ),
            FieldOf(
                "status",
                "status",
                "status",
                ("requested", "confirmed", "paid", "cancelled"),
                asked="How does the booking of the {title} stand?",
            ),
            FieldOf(
                "nights",
                "number of nights",
                "count",
                (2, 3, 4, 5, 7, 10),
                asked="How long does the {title} stay?",
            ),
        ),
        names_of("late arrival, vegan breakfast, quiet side, needs a cot"),
    ),
)

KOREAN: tuple[Product, ...] = (
    Product(
        "이사",
        "당신은 이사 준비를 돕는 비서입니다. 한 문장으로 답하세요.",
        "plan",
        "계획",
        "title",
        names_of("마포 아파트, 언덕 주택, 사무실 이전, 호수 별장, 학생 원룸"),
        (
            FieldOf("move_in_date", "입주일", "date", dates(2026)),
            FieldOf(
                "budget",
                "예산",
                "money",
                (2_500_000, 3_000_000, 4_000_000, 4_800_000, 6_200_000),
                "원",
            ),
            FieldOf(
                "owner",
                "담당자",
                "name",
                names_of("김민아, 박서준, 이도윤, 최하은, 정유진, 한지호"),
            ),
            FieldOf("status", "상태", "status", names_of("초안, 확정, 보류, 취소")),
            FieldOf("boxes", "상자 수", "count", (14, 18, 26, 35, 42, 57)),
        ),
        names_of("엘리베이터가 작음, 열쇠는 안내 데스크, 주차 문의, 긴 사다리 필요"),
        "ko",
    ),
    Product(
        "야구",
        "당신은 야구 리그의 안내원입니다. 짧게 답하세요.",
        "game",
        "경기",
        "title",
        names_of("곰 대 호랑이, 사자 대 독수리, 거인 대 영웅, 공룡 대 쌍둥이"),
        (
            FieldOf("played_on", "경기일", "date", dates(2026)),
            FieldOf(
                "venue",
                "구장",
                "name",
                names_of("강변 구장, 독수리 구장, 항구 구장, 노을 구장"),
            ),
            FieldOf(
                "starting_pitcher",
                "선발 투수",
                "name",
                names_of("류승민, 오태현, 양준호, 문성빈, 서재원"),
            ),
            FieldOf("status", "상태", "status", names_of("예정, 연기, 우천 취소, 종료")),
            FieldOf(
                "ticket_price",
                "입장료",
                "money",
                (12_000, 15_000, 18_000, 22_000, 30_000),
                "원",
            ),
            FieldOf("seats_left", "남은 좌석 수", "count", (120, 340, 515, 760, 980, 1430)),
        ),
        names_of("입장문이 일찍 열림, 우비 준비, 가족의 날, 불꽃놀이"),
        "ko",
    ),
)


def spoken(field: FieldOf, value: Any, style: int) -> str:
    """A value as an assistant says it; `style` chooses among the usual ways."""
    if field.kind == "date":
        return _spoken_date(
            str(value),
            style,
            "월" if field.unit == "ko" or not field.label.isascii() else "",
        )
    if field.kind == "money":
        return _spoken_money(int(value), field.unit, style)
    return str(value).replace("_", " ")


def _spoken_date(value: str, style: int, korean: str) -> str:
    year, month, day = (int(part) for part in value.split("-"))
    if korean:
        return (f"{year}년 {month}월 {day}일", f"{month}월 {day}일", value)[style % 3]
    name = MONTHS[month - 1]
    return (f"{day} {name} {year}", f"{name} {day}, {year}", f"{name} {day}", value)[style % 4]


def _spoken_money(value: int, unit: str, style: int) -> str:
    if unit == "원":
        return f"{value // 10000}만 원" if style % 2 and value % 10000 == 0 else f"{value:,}원"
    if style % 3 == 1 and value >= 1_000_000:
        return f"{value / 1_000_000:g} million {unit}"
    return f"{value:,} {unit}" if style % 3 < 2 else f"{value} {unit}"


def some_row(product: Product, number: int, title: str, random: Random) -> dict[str, Any]:
    """The values of a new row."""
    values: dict[str, Any] = {
        "id": f"{product.entity_type[0]}{number}",
        product.title_field: title,
    }
    values.update({one.name: random.choice(one.choices) for one in product.fields})
    values["note"] = random.choice(product.notes)
    return values
