"""Readers are woken at once, in this process and in others, and nothing of it is needed to be right."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from abreast.access import open_access
from abreast.access.signals import CHANNEL, Signals

LONG = 30.0
"""Seconds that no wait takes which is woken."""

SHORT = 0.3
"""Seconds that a wait takes for which nothing happens."""


@pytest.fixture
def signals(database: Any) -> Iterator[Callable[..., Signals]]:
    """Makes signals on the test's database, each as in a process of its own."""
    made: list[Any] = []

    def make(**options: Any) -> Signals:
        access = open_access(database.url)
        made.append((access, Signals(access, **options)))
        return made[-1][1]

    yield make
    for access, one in made:
        one.close()
        access.close()


def blocked(watch: Any, door: Any, seconds: float = LONG) -> bool:
    """One wait at either door."""
    return watch.block(seconds) if door.kind == "sync" else door.wait(watch.wait(seconds))


def settled(watch: Any, door: Any) -> Any:
    """The watch, once nothing rings it any more: the listener rings all when it begins."""
    blocked(watch, door, LONG if watch._signals._wire is not None else 0.0)
    while blocked(watch, door, SHORT):
        pass
    return watch


def in_thread(call: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "abreast-signals"]


def listeners(database: Any) -> list[int]:
    """The server's processes that listen for signals in this database."""
    with psycopg.connect(database.plain) as connection:
        found = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        return [pid for (pid,) in connection.execute(f"{found} and query in ('listen abreast', 'select pg_notify($1, $2)')")]


def test_who_waits_is_woken_at_once(signals: Any, door: Any) -> None:
    here = signals()
    with here.watch("thread:1") as watch:
        settled(watch, door)
        answers: list[Any] = []
        waiting = in_thread(lambda: answers.append((blocked(watch, door), time.monotonic())))
        while watch.waiting is None:  # until it waits
            os.sched_yield()
        began = time.monotonic()
        here.notify("thread:1")
        waiting.join()
        ((woken, at),) = answers
        assert woken
        assert at - began < LONG / 10


def test_a_signal_between_looking_and_waiting_is_kept_and_many_are_one(signals: Any, door: Any) -> None:
    here = signals()
    with here.watch("thread:1") as watch:
        settled(watch, door)
        for _ in range(3):
            here.notify("thread:1")
        assert blocked(watch, door)
        assert not blocked(watch, door, SHORT)


def test_a_signal_wakes_its_topic_only_and_all_who_wait_for_it(signals: Any, door: Any) -> None:
    here = signals()
    with here.watch("thread:1") as one, here.watch("thread:1") as same, here.watch("thread:2") as other:
        settled(one, door)
        settled(other, door)
        settled(same, door)
        here.notify("thread:1", "workspace:w")
        assert blocked(one, door)
        assert blocked(same, door)
        assert not blocked(other, door, SHORT)
    assert not here._watches


def test_a_single_wait_without_a_watch(signals: Any, door: Any) -> None:
    here = signals()
    heard: list[bool] = []
    wait = (lambda s: here.block("runs", s)) if door.kind == "sync" else (lambda s: door.wait(here.wait("runs", s)))
    waiting = in_thread(lambda: heard.append(wait(LONG)))
    while not here._watches:
        os.sched_yield()
    here.notify("runs")
    waiting.join()
    assert heard == [True]
    while wait(SHORT):
        pass


def test_a_cancelled_wait_loses_nothing(signals: Any, loop: Any) -> None:
    here = signals()

    async def run() -> bool:
        with here.watch("runs") as watch:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await watch.wait(LONG)
            here.notify("runs")
            return await watch.wait(LONG)

    assert asyncio.run_coroutine_threadsafe(run(), loop).result(timeout=LONG)


def test_event_loops_come_and_go(signals: Any) -> None:
    here = signals()
    watch = here.watch("thread:1")
    gone = asyncio.new_event_loop()
    task = gone.create_task(watch.wait(LONG))
    gone.run_until_complete(asyncio.sleep(0))
    gone.close()
    here.notify("thread:1")
    del task
    assert asyncio.run(watch.wait(LONG))
    watch.close()


def test_closing_wakes_all_and_signals_still_work_here(signals: Any, door: Any) -> None:
    here = signals()
    with here.watch("runs") as watch:
        settled(watch, door)
        here.close()
        assert blocked(watch, door)
        assert not blocked(watch, door, SHORT)
        here.notify("runs")
        assert blocked(watch, door)
    assert not ours()


def test_there_is_no_thread_where_nobody_waits(signals: Any, database: Any) -> None:
    here = signals(linger=0.0)
    assert not ours()
    with here.watch("runs") as watch:
        threads = ours()
        assert len(threads) == (1 if database.kind == "postgresql" else 0)
        watch.block(LONG if threads else 0.0)
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    here.notify("runs")  # sends, and is gone again
    for thread in ours():
        thread.join(LONG)
    assert not ours()
    with here.watch("runs") as watch:  # and comes back
        watch.block(LONG if threads else 0.0)
        here.notify("runs")
        assert watch.block(LONG)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_signals_of_its_own(signals: Any, door: Any, database: Any) -> None:
    here = signals()
    with here.watch("runs") as watch:
        settled(watch, door)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with here.watch("own") as own:
                    here.notify("own", "runs")
                    code = 0 if own.block(LONG) else 2
                for thread in ours():
                    thread.join(1.0)
                here.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert blocked(watch, door, LONG if database.kind == "postgresql" else SHORT) == (database.kind == "postgresql")
        here.notify("runs")
        assert blocked(watch, door)


class TestPostgreSQL:
    """Between processes."""

    @pytest.fixture
    def database(self, postgres: Any) -> Any:
        return postgres

    @pytest.mark.parametrize("topic", ["thread:1", "workspace:" + "w" * 5000, "workspace:a\x00b\ud800'\"", "workspace:서울"])
    def test_another_process_is_woken(self, signals: Any, door: Any, topic: str) -> None:
        here, there = signals(), signals()
        with there.watch(topic) as watch:
            settled(watch, door)
            here.notify(topic)
            assert blocked(watch, door)
            assert not blocked(watch, door, SHORT)

    def test_own_signals_do_not_come_back(self, signals: Any, door: Any) -> None:
        here, there = signals(), signals()
        with here.watch("runs") as own, there.watch("runs") as other:
            settled(own, door)
            settled(other, door)
            here.notify("runs")
            assert blocked(own, door)
            assert blocked(other, door)
            assert not blocked(own, door, SHORT)

    def test_a_burst_is_a_few_notifications(self, signals: Any, database: Any) -> None:
        here = signals()
        with psycopg.connect(database.plain, autocommit=True) as connection:
            connection.execute(f"listen {CHANNEL}")
            began, sent = time.monotonic(), 0
            while time.monotonic() - began < 0.5:
                here.notify(f"thread:{sent % 10}", "runs")
                sent += 1
            here.notify("end")
            took = time.monotonic() - began
            topics: set[str] = set()
            payloads = 0
            for found in connection.notifies(timeout=LONG):
                payloads += 1
                topics |= set(json.loads(found.payload))
                if "end" in topics:
                    break
        assert topics == {*(f"thread:{number}" for number in range(10)), "runs", "end"}
        assert sent > 100
        assert payloads <= took / 0.02 + 2

    def test_between_two_notifications_there_is_a_pause(self, signals: Any, database: Any) -> None:
        here = signals()
        with psycopg.connect(database.plain, autocommit=True) as connection:
            connection.execute(f"listen {CHANNEL}")
            times = []
            for number in range(20):
                here.notify(f"thread:{number}")
                for _ in connection.notifies(timeout=LONG, stop_after=1):
                    times.append(time.monotonic())
        assert times[-1] - times[0] > 18 * 0.02

    def test_more_topics_than_one_notification_holds(self, signals: Any, door: Any) -> None:
        here, there = signals(), signals()
        topics = [f"thread:{number}:{'x' * 100}" for number in range(200)]
        with there.watch(topics[0]) as first, there.watch(topics[-1]) as last:
            settled(first, door)
            settled(last, door)
            here.notify(*topics)
            assert blocked(first, door)
            assert blocked(last, door)

    def test_it_is_sent_outside_any_transaction_of_the_writer(self, signals: Any, database: Any) -> None:
        here, there = signals(), signals()
        with there.watch("runs") as watch, database.engine().connect() as writer:
            watch.block(LONG)
            writer.execute(sa.text("create table t (a int)"))  # its transaction stays open
            here.notify("runs")
            assert watch.block(LONG)

    def test_a_lost_connection_is_made_again(self, signals: Any, door: Any, database: Any) -> None:
        here, there = signals(), signals()
        with there.watch("runs") as watch:
            settled(watch, door)
            here.notify("runs")
            assert blocked(watch, door)
            gone = listeners(database)
            assert len(gone) == 2
            with psycopg.connect(database.plain, autocommit=True) as admin:
                for pid in gone:
                    admin.execute("select pg_terminate_backend(%s)", (pid,))
            assert blocked(watch, door)  # it listens again, and has its readers look at what it may have missed
            while not any(here.notify("runs") or blocked(watch, door, SHORT) for _ in range(20)):
                pass
            assert set(listeners(database)).isdisjoint(gone)

    def test_a_database_that_does_not_answer_costs_the_writer_nothing(self, door: Any) -> None:
        access = open_access("postgresql+psycopg://nobody@127.0.0.1:1/none")
        here = Signals(access)
        with here.watch("runs") as watch:
            assert not blocked(watch, door, SHORT)
            here.notify("runs")
            assert blocked(watch, door)
        here.close()
        access.close()
        assert not ours()
