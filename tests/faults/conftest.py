"""What the tests of faults share: a house with enough rows, on either database or on a server of its own; processes that serve
conversations and are killed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

import workers
from house import House, build
from server import OwnDatabase, Server
from workers import Office
from writer import PLANS, WORKSPACES


def fill(house: House) -> House:
    """Twelve plans in three workspaces, and nothing that is news."""
    rows = ", ".join(f"('{plan}', '{WORKSPACES[plan]}', '')" for plan in PLANS)
    house.run(f"insert into plan (id, workspace_id, title) values {rows}")
    house.news()
    return house


@pytest.fixture
def busy_house(database, hubs) -> House:
    """A house on either database."""
    return fill(build(database, hubs))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def own_house(server, hubs) -> Iterator[House]:
    """A house on the server that the test may stop."""
    server.start()
    admin = sa.create_engine(server.url, isolation_level="AUTOCOMMIT")
    name = "own"
    with admin.connect() as connection:
        connection.exec_driver_sql(f"drop database if exists {name} with (force)")
        connection.exec_driver_sql(f"create database {name}")
    admin.dispose()
    database = OwnDatabase(make_url(server.url).set(database=name).render_as_string(hide_password=False))
    yield fill(build(database, lambda database: hubs(database.url)))
    server.start()
    database.close()


@pytest.fixture(scope="session")
def nursery() -> Iterator[socket.socket]:
    """A process that forks workers."""
    with workers.nursery() as made:
        yield made


@pytest.fixture
def offices(database, hubs, door, nursery) -> Iterator[Callable[..., Office]]:
    """Makes offices, and ends them and their workers."""
    made: list[Office] = []

    def make(**options: Any) -> Office:
        made.append(Office(database, hubs, door, nursery, **options))
        return made[-1]

    yield make
    for one in reversed(made):
        one.close()
