"""Long threads and large ones are read whole and in little memory; where that ends, the report says so."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint, uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from abreast.doctor import examine, thread_of
from abreast.doctor.formats import printed
from abreast.doctor.threads import saver_at


def nothing(state: MessagesState) -> dict:
    return {}


graph = StateGraph(MessagesState).add_node("nothing", nothing).add_edge(START, "nothing").compile()


def write(saver: Any, values: list[dict[str, Any]], thread: str = "t1") -> None:
    """One checkpoint for each of these, without a run."""
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    for number, value in enumerate(values):
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=number)),
            "channel_values": value,
            "channel_versions": dict.fromkeys(value, f"{number + 1:032}"),
        }
        metadata: Any = {"source": "input" if number == 0 else "loop", "step": number - 1, "tenant": "t" * 100}
        config = saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "sqlite":
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as made:
            yield made
    else:
        with PostgresSaver.from_conn_string(request.getfixturevalue("postgres").plain) as made:
            made.setup()
            yield made


def test_every_checkpoint_is_read_once_and_in_order(saver: Any):
    write(saver, [{"notes": "n" * 500, "count": number} for number in range(450)])
    write(saver, [{"notes": "of another"}], "t2")
    thread = thread_of(saver, "t1")
    assert [step.step for step in thread.steps] == list(range(-1, 449))
    assert not thread.partial
    assert thread.constant["notes"] == 450
    assert thread.newest == {"notes": "n" * 500, "count": 449}
    assert thread.steps[0].metadata["source"] == "input"
    assert thread.steps[5].metadata["tenant"] is True  # that there is a text, and not the text


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 9])
def test_the_newest_are_read_of_a_thread_that_is_too_long(saver: Any, limit: int):
    write(saver, [{"count": number} for number in range(9)])
    thread = thread_of(saver, "t1", limit=limit)
    assert [step.step for step in thread.steps] == list(range(8 - limit, 8))
    assert thread.partial == (limit < 9)


def test_a_report_on_a_part_of_a_thread_says_so():
    saver = InMemorySaver()
    write(saver, [{"count": number} for number in range(9)])
    report = examine(graph, thread=thread_of(saver, "t1", limit=5))
    assert report.status == 0
    (note,) = report.notes
    assert note.message == "not looked into: what is older than its newest 5 checkpoints"
    assert "note: thread t1: not looked into" in printed(report, "text")
    assert "thread t1: not looked into" in printed(report, "sarif")
    assert examine(graph, thread=thread_of(saver, "t1", limit=9)).notes == ()


def test_a_thread_of_an_async_saver_is_read_in_pages(tmp_path: Path):
    async def written() -> None:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
            run = StateGraph(MessagesState).add_node("nothing", nothing).add_edge(START, "nothing").compile(checkpointer=saver)
            for _ in range(4):
                await run.ainvoke({"messages": ["Hello!"]}, {"configurable": {"thread_id": "t1"}})

    class AsyncOnly:
        """A saver that has no other door."""

        def __init__(self, saver: Any) -> None:
            self.serde, self.saver = saver.serde, saver

        async def alist(self, config: Any, **options: Any) -> Any:
            for one in self.saver.list(config, **options):
                yield one

    asyncio.run(written())
    with saver_at(str(tmp_path / "checkpoints.db")) as saver:
        assert len(thread_of(AsyncOnly(saver), "t1").steps) == len(thread_of(saver, "t1").steps) == 12


def test_large_checkpoints_take_no_more_memory_than_a_few_of_them(saver: Any):
    """60 checkpoints of a megabyte, each another one: 60 MB of values."""
    write(saver, [{"notes": f"{number:08}" + "n" * 1_000_000} for number in range(60)])
    started_here = not tracemalloc.is_tracing()
    if started_here:
        tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    thread = thread_of(saver, "t1")
    after, peak = tracemalloc.get_traced_memory()
    if started_here:
        tracemalloc.stop()
    assert thread.stored("notes") > 60_000_000
    assert after - before < 5_000_000
    # A page holds about 8 MB, which the saver, its driver and its serializer each have once at the same time.
    assert peak - before < 50_000_000


def test_200_checkpoints_of_a_megabyte_take_under_200_megabytes(tmp_path: Path):
    """Measured on a process of its own, as the command is one; the rows are copies of one another."""
    path = tmp_path / "checkpoints.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        write(saver, [{"notes": "n" * 1_000_000}])
    with sqlite3.connect(path) as database:
        (first,) = database.execute("select checkpoint_id from checkpoints").fetchone()
        database.execute(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 199)"
            " insert into checkpoints select thread_id, checkpoint_ns, substr(checkpoint_id, 1, 32) || printf('%04d', i), null,"
            " type, checkpoint, metadata from checkpoints, n where checkpoint_id = ?",
            (first,),
        )
    database.close()
    text = (
        "import re, sys\nfrom pathlib import Path\nfrom abreast.doctor.threads import saver_at, thread_of\n"
        "with saver_at(sys.argv[1]) as saver:\n    thread = thread_of(saver, 't1')\n"
        "print(len(thread.steps), re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", text, str(path)], capture_output=True, text=True, check=True)
    number, kilobytes = map(int, done.stdout.split())
    assert number == 200
    assert kilobytes < 200_000


def test_messages_of_a_long_thread_are_kept_as_digests():
    """A history of 100 messages in 100 checkpoints is 5,050 messages; what each checkpoint added is 100."""
    saver = InMemorySaver()
    said = [(HumanMessage if number % 2 == 0 else AIMessage)(f"text {number}") for number in range(100)]
    write(saver, [{"messages": said[: number + 1]} for number in range(100)])
    thread = thread_of(saver, "t1")
    assert thread.conversations == {"messages"}
    arrivals = thread.arrivals["messages"]
    assert sum(len(one.new) for one in arrivals) == 100
    assert all(one.begin == arrivals[1].begin for one in arrivals[1:])


def test_a_channel_that_holds_something_else_too_is_no_history():
    saver = InMemorySaver()
    write(saver, [{"messages": [HumanMessage("a"), AIMessage("b")]}, {"messages": "none"}])
    thread = thread_of(saver, "t1")
    assert thread.arrivals == {}
    assert thread.conversations == {"messages"}
