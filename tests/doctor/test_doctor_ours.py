"""Our own rules on both databases, and what looks like a mistake in the use of abreast and is none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, dynamic_prompt
from sqlalchemy.orm import Session, sessionmaker

from abreast import Abreast, RunContext
from abreast.doctor import examine
from abreast.testing import ScriptedModel

metadata = sa.MetaData()
plan = sa.Table("plan", metadata, sa.Column("id", sa.String(40), primary_key=True), sa.Column("workspace_id", sa.String(40)))
item = sa.Table("item", metadata, sa.Column("id", sa.String(40), primary_key=True), sa.Column("workspace_id", sa.String(40)))


@pytest.fixture
def there(database: Any) -> Any:
    """The database with both tables."""
    engine = database.engine()
    metadata.create_all(engine)
    engine.dispose()
    return database


def tracks(hub: Abreast, *tables: sa.Table) -> Abreast:
    for table in tables:
        hub.track(table, workspace="workspace_id", record="all")
    return hub


def messages(hub: Abreast, code: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a rule says about an agent beside a hub, both in one module of the application."""
    graph = create_agent(ScriptedModel(), context_schema=RunContext)
    module = ModuleType("product")
    module.__file__ = __file__
    vars(module).update(hub=hub, graph=graph)
    monkeypatch.setitem(sys.modules, "product", module)
    return [one.message for one in examine(graph, module="product", select=[code]).findings]


def test_a_table_that_was_tracked_later(there: Any, hubs: Callable[..., Abreast], monkeypatch: pytest.MonkeyPatch):
    tracks(hubs(there), plan).blocking.install()
    hub = tracks(hubs(there), plan, item)
    assert messages(hub, "AB602", monkeypatch) == ["item has no trigger: its changes are in no log."]
    hub.blocking.install()
    assert messages(hub, "AB602", monkeypatch) == []


def test_where_nothing_is_installed_nothing_is_said(there: Any, hubs: Callable[..., Abreast], monkeypatch: pytest.MonkeyPatch):
    assert messages(tracks(hubs(there), plan), "AB602", monkeypatch) == []


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub = tracks(Abreast(f"sqlite:///{tmp_path / 'none.db'}"), plan)
    assert messages(hub, "AB602", monkeypatch) == []
    hub.blocking.close()
    assert not (tmp_path / "none.db").exists()


def test_a_server_that_cannot_be_reached_is_no_finding(monkeypatch: pytest.MonkeyPatch):
    hub = tracks(Abreast("postgresql+psycopg://nobody@127.0.0.1:1/none"), plan)
    assert messages(hub, "AB602", monkeypatch) == []
    hub.blocking.close()


engine: Any = None
elsewhere: Any = None
factory: Any = None


def opens_a_connection(session: Session, workspace: str, context: Any) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(sa.select(plan.c.id)))


def opens_a_session(session: Session, workspace: str, context: Any) -> list[str]:
    with Session(bind=engine) as own:
        return list(own.scalars(sa.select(plan.c.id)))


def asks_a_factory(session: Session, workspace: str, context: Any) -> list[str]:
    with factory() as own:
        return list(own.scalars(sa.select(plan.c.id)))


def reads_elsewhere(session: Session, workspace: str, context: Any) -> list[str]:
    with elsewhere.connect() as connection:
        return list(connection.scalars(sa.text("select 1")))


def uses_the_given_one(session: Session, workspace: str, context: Any) -> list[str]:
    with session.begin_nested():
        return list(session.scalars(sa.select(plan.c.id)))


@pytest.mark.parametrize(
    ("loader", "found"),
    [(opens_a_connection, 1), (opens_a_session, 1), (asks_a_factory, 1), (reads_elsewhere, 0), (uses_the_given_one, 0)],
)
def test_where_a_loader_reads(
    loader: Any, found: int, there: Any, tmp_path: Path, hubs: Callable[..., Abreast], monkeypatch: pytest.MonkeyPatch
):
    here = there.engine()
    other = sa.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    for name, value in (("engine", here), ("elsewhere", other), ("factory", sessionmaker(here))):
        monkeypatch.setitem(globals(), name, value)
    hub = tracks(hubs(there), plan)
    hub.loader(loader)
    assert len(messages(hub, "AB603", monkeypatch)) == found
    here.dispose()
    other.dispose()


class AfterTheModel(AgentMiddleware):
    def after_model(self, state: Any, runtime: Any) -> None:
        return None


class AroundTools(AgentMiddleware):
    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


@dynamic_prompt
def polite(request: Any) -> str:
    return "Be polite."


def test_what_may_stand_behind(tmp_path: Path):
    hub = Abreast(f"sqlite:///{tmp_path / 'app.db'}")

    def codes(*middleware: Any) -> list[str]:
        graph = create_agent(ScriptedModel(), middleware=middleware, context_schema=RunContext)
        return [one.code for one in examine(graph, select=["AB6"]).findings]

    assert codes(hub.middleware(), AfterTheModel(), AroundTools()) == []
    assert codes(polite, hub.middleware()) == []
    assert codes(polite) == []
    assert codes(hub.middleware(), polite) == ["AB601"]
    hub.blocking.close()
