"""G17: what a write tool is given is what the row holds and what a read tool shows, for every kind of column."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import RunContext
from abreast.testing import ScriptedModel, calls
from columns import Cents, Colour
from talk import Talk
from toolcalls import ask


class Base(DeclarativeBase):
    pass


class Kinds(Base):
    __tablename__ = "kinds"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    home: Mapped[UUID]
    text: Mapped[str | None] = mapped_column("text of it", sa.Text)
    number: Mapped[int | None] = mapped_column(sa.BigInteger)
    real: Mapped[float | None] = mapped_column(sa.Float(53))
    price: Mapped[Decimal | None] = mapped_column(sa.Numeric(12, 3))
    cents: Mapped[Decimal | None] = mapped_column(Cents)
    yes: Mapped[bool | None]
    day: Mapped[dt.date | None]
    moment: Mapped[dt.datetime | None] = mapped_column(sa.DateTime(timezone=False))
    zoned: Mapped[dt.datetime | None] = mapped_column(sa.DateTime(timezone=True))
    clock: Mapped[dt.time | None]
    span: Mapped[dt.timedelta | None]
    other: Mapped[UUID | None]
    colour: Mapped[Colour | None] = mapped_column(sa.Enum(Colour, name="colour"))
    data: Mapped[bytes | None]
    json: Mapped[Any | None] = mapped_column(sa.JSON)
    maybe: Mapped[Any | None] = mapped_column(sa.JSON(none_as_null=True))
    shaped: Mapped[Any | None] = mapped_column(sa.JSON().with_variant(postgresql.JSONB, "postgresql"))


HOME, ONE, TWO = UUID(int=1), UUID(int=2), UUID(int=3)

TEXT = "Ein 'Satz' mit \"Zeichen\" \\ und 한글 :workspace %s $1"

VALUES: dict[str, tuple[Any, Any]] = {
    "text": (
        "Ein 'Satz' mit \"Zeichen\" \\ und 한글 :workspace %s $1",
        "Ein 'Satz' mit \"Zeichen\" \\ und 한글 :workspace %s $1",
    ),
    "number": (-(2**62), -(2**62)),
    "real": (0.1 + 0.2, 0.1 + 0.2),
    "price": ("12345.678", Decimal("12345.678")),
    "cents": (1234, Decimal("12.34")),
    "yes": (True, True),
    "day": ("2026-09-30", dt.date(2026, 9, 30)),
    "moment": ("2026-09-30T12:30:01.25", dt.datetime.fromisoformat("2026-09-30T12:30:01.250000")),
    "zoned": ("2026-09-30T12:30:00+09:00", dt.datetime(2026, 9, 30, 3, 30, tzinfo=dt.UTC)),
    "clock": ("23:59:01", dt.time(23, 59, 1)),
    "span": ("P2DT5S", dt.timedelta(days=2, seconds=5)),
    "other": (str(UUID(int=77)), UUID(int=77)),
    "colour": ("BLUE", Colour.BLUE),
    "data": ("AP8nXA==", b"\x00\xff'\\"),
    "json": ({"b": [1, 2.5, None, "x"], "a": {"ü": True}}, {"b": [1, 2.5, None, "x"], "a": {"ü": True}}),
    "maybe": ([1], [1]),
    "shaped": ({"k": ["v", 1]}, {"k": ["v", 1]}),
}
"""By field: what a model says, and what an ORM would be given."""

CONTEXT = RunContext(tenant="t1", user="u_1", workspace=str(HOME))


@pytest.fixture
def talk(database, hubs, door):
    made = Talk.__new__(Talk)
    made.door, made.engine = door, database.engine()
    Base.metadata.create_all(made.engine)
    made.hub = hubs(database)
    made.hub.track(Kinds, workspace="home", record="all")
    made.hub.blocking.install()
    made.model, made.saver = ScriptedModel(), None
    with Session(made.engine) as session:
        session.add(Kinds(id=ONE, home=HOME, **{name: value for name, (_, value) in VALUES.items()}))
        session.commit()
    return made


def arguments(talk):
    """The names of the update tool's arguments, by field."""
    names = {name: name for name in VALUES}
    tool = next(tool for tool in talk.hub.tools() if tool.name == "update_kinds")
    (names["text"],) = (name for name in tool.args if name not in names and name not in ("id", "version"))
    return names


def held(talk, key):
    """The row as the ORM reads it."""
    with Session(talk.engine) as session:
        row = session.get(Kinds, key)
        return {name: getattr(row, name) for name in VALUES}


def test_g17_a_tool_writes_what_the_orm_writes(talk):
    names = arguments(talk)
    given = {names[name]: said for name, (said, _) in VALUES.items()}
    ((told, status),) = ask(talk, calls("create_kinds", id=str(TWO), **given), context=CONTEXT)
    assert status == "success", told
    assert held(talk, TWO) == held(talk, ONE)
    assert (told["id"], told["version"]) == (str(TWO), 2)
    assert [event.values["home"][1] for event in talk.hub.blocking.history(str(HOME), limit=1)] == [str(HOME)]
    emptied, filled = ask(
        talk,
        calls("update_kinds", id=str(TWO), version=2, **dict.fromkeys(given)),
        calls("update_kinds", id=str(TWO).upper(), version=3, **given),
        context=CONTEXT,
    )
    assert emptied[1] == "success", emptied
    assert {value for name, value in emptied[0].items() if name not in ("id", "version", "revision")} == {None}
    assert filled[1] == "success", filled
    assert held(talk, TWO) == held(talk, ONE)
    assert talk.hub.blocking.check() == []


def test_g17_writing_what_was_read_changes_nothing(talk):
    """All kinds but two are written as they are read: bytes are only counted, and a span has no form of its own."""
    names = arguments(talk)
    row = talk.hub.blocking.row(Kinds, str(ONE), str(HOME))
    shown = {"text" if name == "text of it" else name: value for name, value in row.values.items()}
    same = {names[name]: shown[name] for name in VALUES if name not in ("data", "span")}
    ((told, status),) = ask(talk, calls("update_kinds", id=str(ONE), version=1, **json.loads(json.dumps(same))), context=CONTEXT)
    assert status == "success", told
    assert (told["version"], told["revision"]) == (1, 1)
    assert len(talk.hub.blocking.history(str(HOME))) == 1
