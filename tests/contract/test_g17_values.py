"""G17: what `apply` writes is what the ORM would have written, for every kind of column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import InputError, agent, delete, insert, update
from columns import Cents, Colour

WHO = agent("helper")


class Base(DeclarativeBase):
    pass


class Kinds(Base):
    __tablename__ = "kinds"
    id: Mapped[UUID] = mapped_column(sa.Uuid, primary_key=True)
    home: Mapped[int]
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
    listed: Mapped[Any | None] = mapped_column(sa.JSON().with_variant(postgresql.ARRAY(sa.Text), "postgresql"))


class Paired(Base):
    __tablename__ = "paired"
    day: Mapped[dt.date] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    home: Mapped[int]
    note: Mapped[str | None]


VALUES: dict[str, Any] = {
    "text": "Ein 'Satz' mit \"Zeichen\" \\ und 한글 :workspace %s $1 {{row}}",
    "number": -(2**62),
    "real": 0.1 + 0.2,
    "price": Decimal("12345.678"),
    "cents": Decimal("12.34"),
    "yes": True,
    "day": dt.date(2026, 9, 30),
    "moment": dt.datetime.fromisoformat("2026-09-30T12:30:01.250000"),
    "zoned": dt.datetime(2026, 9, 30, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=9))),
    "clock": dt.time(23, 59, 1),
    "span": dt.timedelta(days=2, seconds=5),
    "other": UUID(int=77),
    "colour": Colour.BLUE,
    "data": b"\x00\xff'\\",
    "json": {"b": [1, 2.5, None, "x"], "a": {"ü": True}},
    "maybe": [1],
    "shaped": {"k": ["v", 1]},
    "listed": ["a", "b,c", '"d"', "NULL", ""],
}


@pytest.fixture
def kinds(database, hubs):
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = hubs(database)
    hub.track(Kinds, workspace="home", record="all")
    hub.track(Paired, workspace="home", record="all")
    hub.blocking.install()
    return hub, engine


def stored(engine, key):
    """The row as the database holds it, without the types of the model."""
    blob = "hex(data)" if engine.dialect.name == "sqlite" else "encode(data, 'hex')"
    names = [c.name for c in Kinds.__table__.columns if c.name != "id"]
    columns = ", ".join(blob if name == "data" else f'cast("{name}" as text)' for name in names)
    with engine.connect() as connection:
        text = sa.text(f"select {columns} from kinds where id = :key").bindparams(sa.bindparam("key", type_=sa.Uuid))
        return tuple(connection.execute(text, {"key": key}).one())


def by_the_orm(engine, key, **values):
    with Session(engine) as session:
        session.add(Kinds(id=key, home=1, **values))
        session.commit()


ONE, TWO = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize("values", [VALUES, dict.fromkeys(VALUES)], ids=["values", "none"])
def test_g17_an_insert_writes_what_the_orm_writes(kinds, door, values):
    hub, engine = kinds
    by_the_orm(engine, ONE, **values)
    door(hub).apply("1", insert(Kinds, id=TWO, home=1, **values), actor=WHO)
    assert stored(engine, TWO) == stored(engine, ONE)


@pytest.mark.parametrize("name", VALUES)
def test_g17_an_update_writes_what_the_orm_writes(kinds, name):
    hub, engine = kinds
    for value in (VALUES[name], None):
        with Session(engine) as session:
            session.execute(sa.delete(Kinds))
            session.commit()
        by_the_orm(engine, ONE, **{name: value})
        by_the_orm(engine, TWO)
        (row,) = hub.blocking.apply("1", update(Kinds, TWO, **{name: value}), actor=WHO).rows
        assert stored(engine, TWO)[1:] == stored(engine, ONE)[1:] or (value is None and name in ("json", "shaped", "listed"))
        with Session(engine) as session:
            one, two = session.get(Kinds, ONE), session.get(Kinds, TWO)
            assert getattr(two, name) == getattr(one, name)
        assert row == hub.blocking.row(Kinds, str(TWO), "1")


def test_g17_all_at_once_and_then_gone(kinds, door):
    hub, engine = kinds
    by_the_orm(engine, ONE, **VALUES)
    by_the_orm(engine, TWO)
    door(hub).apply("1", update(Kinds, TWO, version=2, **VALUES), actor=WHO)
    assert stored(engine, TWO) == stored(engine, ONE)
    door(hub).apply("1", delete(Kinds, TWO), delete(Kinds, str(ONE)), actor=WHO)
    with Session(engine) as session:
        assert session.scalars(sa.select(Kinds)).all() == []


def test_g17_a_key_of_several_columns(kinds, door):
    hub, _ = kinds
    key = (dt.date(2026, 9, 30), 'a "b" 한')
    (made,) = door(hub).apply("1", insert(Paired, day=key[0], name=key[1], home=1), actor=WHO).rows
    (changed,) = door(hub).apply("1", update(Paired, key, version=made.version, note="x"), actor=WHO).rows
    assert changed.values["note"] == "x"
    (again,) = door(hub).apply("1", update(Paired, made.entity_id, version=changed.version, note="y"), actor=WHO).rows
    assert again.entity_id == made.entity_id
    door(hub).apply("1", delete(Paired, key, version=again.version), actor=WHO)
    assert [event.op for event in hub.blocking.history("1")] == ["delete", "update", "update", "insert"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", "GREEN"),
        ("other", "no uuid"),
        ("price", "12"),
        ("yes", 1),
        ("number", True),
        ("number", 2**70),
        ("data", "text"),
        ("clock", "12:00"),
        ("json", {1, 2}),
        ("cents", "a"),
        ("real", "1"),
    ],
)
def test_g17_a_value_of_another_kind_is_refused(kinds, name, value):
    hub, engine = kinds
    by_the_orm(engine, ONE)
    with pytest.raises(InputError):
        hub.blocking.apply("1", update(Kinds, ONE, **{name: value}), actor=WHO)
    with Session(engine) as session:
        assert getattr(session.get(Kinds, ONE), name) is None


def test_g17_workspaces_have_the_kind_of_their_column(kinds):
    hub, _ = kinds
    with pytest.raises(InputError, match="workspace"):
        hub.blocking.apply("first", insert(Kinds, id=ONE, home=1), actor=WHO)
