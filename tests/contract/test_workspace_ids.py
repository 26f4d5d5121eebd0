"""One workspace has one id, however a caller spells it, and tables of different id types live side by side."""

from __future__ import annotations

import uuid

import pytest
import sqlalchemy as sa
import sqlalchemy.orm
from langchain.agents import create_agent
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from abreast import RunContext, UnknownWorkspaceError, constant
from abreast.testing import ScriptedModel


class Base(DeclarativeBase):
    pass


class Shop(Base):
    __tablename__ = "shop"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    name: Mapped[str]


class Team(Base):
    __tablename__ = "team"
    id: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int]
    name: Mapped[str]


class Holiday(Base):
    __tablename__ = "holiday"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


SHOP = uuid.UUID("0000abc0-0000-4000-8000-00000000abcd")


@pytest.fixture
def mixed(database, hubs):
    engine = database.engine()
    Base.metadata.create_all(engine)
    hub = hubs(database)
    hub.track(Shop, workspace="id", record="all")
    hub.track(Team, workspace="number", record="all")
    hub.track(Holiday, workspace=constant("calendar"), record="all")
    hub.blocking.install()
    with sa.orm.Session(engine) as session:
        session.add_all([Shop(id=SHOP, name="old"), Team(id=1, number=42, name="old"), Holiday(id=1, name="old")])
        session.commit()
    return hub, engine


@pytest.mark.parametrize(
    ("table", "spelled", "kept"),
    [
        ("shop", str(SHOP), str(SHOP)),
        ("shop", SHOP, str(SHOP)),
        ("shop", SHOP.hex, str(SHOP)),
        ("shop", str(SHOP).upper(), str(SHOP)),
        ("team", "42", "42"),
        ("team", 42, "42"),
        ("team", " 042", "42"),
        ("holiday", "calendar", "calendar"),
    ],
)
def test_every_spelling_of_a_workspace_is_told_its_changes(mixed, door, table, spelled, kept):
    hub, engine = mixed
    model = ScriptedModel()
    agent = create_agent(model, middleware=[hub.middleware()])
    context = RunContext("t", "u", spelled)
    assert door(hub).run(agent, "?", thread="a", context=context).told == {kept: 1}
    with engine.begin() as connection:
        connection.exec_driver_sql(f"update {table} set name = 'new'")
    assert door(hub).run(agent, "?", thread="a", context=context).told == {kept: 2}
    assert 'name is now "new" (was "old")' in model.last_request
    assert [(s.workspace, s.revision) for s in door(hub).standings(spelled)] == [(kept, 2)]
    assert [event.revision for event in door(hub).history(spelled)] == [2, 1]
    assert "shop" in model.last_request if table == "shop" else "shop" not in model.last_request


def test_several_workspaces_of_different_kinds_are_followed_at_once(mixed, door):
    hub, _ = mixed
    model = ScriptedModel()
    agent = create_agent(model, middleware=[hub.middleware()])
    context = {"workspaces": [str(SHOP), "calendar", "42"]}
    result = door(hub).run(agent, "?", thread="a", context=context)
    assert result.told == {str(SHOP): 1, "calendar": 1, "42": 1}


@pytest.mark.parametrize("spelled", ["nope", "43", "00000000-0000-4000-8000-00000000000f", str(2**70)])
def test_a_workspace_that_nothing_belongs_to_is_named_in_the_error(mixed, door, spelled):
    hub, _ = mixed
    for call in (door(hub).batch, door(hub).standings, lambda w: door(hub).prune(w, horizon=1)):
        with pytest.raises(UnknownWorkspaceError) as caught:
            call(spelled)
        assert spelled in str(caught.value)
