"""Ids are given as to `update`, whoever is asked: as they are, or as the key's value; a composite key as a tuple."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast import InputError, NotTrackedError, UnknownEntityError, update
from talk import CORNERS

ONE, TWO = UUID(int=1), UUID(int=2)


class Base(DeclarativeBase):
    pass


class Seat(Base):
    __tablename__ = "seat"
    id: Mapped[int] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    name: Mapped[str] = mapped_column(default="")


class Guest(Base):
    __tablename__ = "guest"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    name: Mapped[str] = mapped_column(default="")


class Visit(Base):
    __tablename__ = "visit"
    guest: Mapped[int] = mapped_column(primary_key=True)
    day: Mapped[dt.date] = mapped_column(primary_key=True)
    workspace_id: Mapped[str]
    name: Mapped[str] = mapped_column(default="")


DAY = dt.date(2026, 9, 30)


@CORNERS
@pytest.mark.parametrize(
    ("model", "first", "second", "text"),
    [
        (Seat, 1, 2, "1"),
        (Guest, ONE, TWO, str(ONE)),
        (Visit, (1, DAY), (2, DAY), '["1","2026-09-30"]'),
    ],
    ids=["integer", "uuid", "composite"],
)
def test_reading_takes_the_ids_that_writing_takes(database, hubs, door, model: Any, first: Any, second: Any, text: str):
    hub, engine = hubs(database), database.engine()
    Base.metadata.create_all(engine)
    hub.track(model, workspace="workspace_id", record="all")
    hub.blocking.install()
    names = [column.name for column in model.__table__.primary_key.columns]
    with Session(engine) as session:
        for key in (first, second):
            session.add(model(**dict(zip(names, key if isinstance(key, tuple) else (key,), strict=True)), workspace_id="w1"))
            session.flush()
        session.commit()
    hub.blocking.apply("w1", update(model, first, name="x"))

    asked = door(hub)
    row = asked.row(model, first, "w1")
    assert (row.entity_id, row.values["name"], row.version) == (text, "x", 3)
    assert asked.row(model, text, "w1") == row
    page = asked.rows(model, "w1", after=first)
    assert ([one.values["name"] for one in page.rows], page) == ([""], asked.rows(model, "w1", after=text))
    history = asked.history("w1", entity_type=model, entity_id=first)
    assert [event.revision for event in history] == [3, 1]
    assert asked.history("w1", entity_type=model.__tablename__, entity_id=text) == history
    assert asked.history("w1", entity_id=second)[0].revision == 2


@CORNERS
def test_what_can_be_no_id_is_said_to_be_none(database, hubs, door):
    hub, engine = hubs(database), database.engine()
    Base.metadata.create_all(engine)
    hub.track(Seat, workspace="workspace_id")
    hub.blocking.install()
    asked = door(hub)
    for wrong in (None, True, 1.5, {"id": 1}):
        with pytest.raises(InputError, match="An id is a text, a number"):
            asked.row(Seat, wrong, "w1")
    for wrong in (True, {"id": 1}):
        with pytest.raises(InputError, match="An id is a text, a number"):
            asked.rows(Seat, "w1", after=wrong)
        with pytest.raises(InputError, match="An id is a text, a number"):
            asked.history("w1", entity_id=wrong)
    with pytest.raises(UnknownEntityError):
        asked.row(Seat, 9, "w1")
    with pytest.raises(NotTrackedError, match="guest is not tracked"):
        asked.history("w1", entity_type=Guest)
