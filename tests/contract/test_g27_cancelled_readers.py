"""G27: whoever stops reading has stopped, at whatever moment that is: otherwise neither he nor his server would ever end."""

from __future__ import annotations

import asyncio

import pytest

from abreast import Caller
from serving import MINA, Desk
from talk import CORNERS

pytestmark = CORNERS


@pytest.fixture
def desk(database, hubs, door):
    one = Desk(database, hubs, door, "Yes.")
    yield one
    one.close()


def test_g27_readers_that_are_cancelled_while_they_wait_for_a_connection_end(desk, loop):
    """More of them than connections, each cancelled a little later than the one before."""
    thread = desk.thread()

    async def looks(caller: Caller) -> None:
        while True:
            await desk.service.thread(caller, thread)

    async def scene() -> int:
        readers = [asyncio.create_task(looks(MINA)) for _ in range(40)]
        for _ in range(20):
            await desk.service.thread(MINA, thread)
        for reader in readers:
            reader.cancel()
            await desk.service.thread(MINA, thread)
        _, left = await asyncio.wait(readers, timeout=10)
        for reader in left:
            reader.cancel()
        return len(left)

    for _ in range(5):
        assert asyncio.run_coroutine_threadsafe(scene(), loop).result(60) == 0
