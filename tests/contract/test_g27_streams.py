"""G27: a stream may be cut anywhere and resumed: every durable event exactly once, and always a terminal one."""

from __future__ import annotations

import asyncio
import json

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool

from abreast import Decision, InputError
from abreast.testing import ScriptedModel, StreamingModel, calls
from planner import Plan
from serving import MINA, Gate, of_type
from talk import CORNERS

pytestmark = CORNERS


def rich(desk, **named):
    """A conversation with tools that work and fail, an approval, and an answer word by word."""

    @tool
    def weather(day: str) -> str:
        """The weather of a day."""
        return json.dumps({"day": day, "rain": True})

    @tool
    def broken() -> str:
        """Fails."""
        raise RuntimeError("the password is hunter2")

    one = desk(
        model=StreamingModel(
            calls("weather", day="2026-09-30"),
            calls("broken"),
            calls("update_plan", id="p1", version="r3", title="Seongsu"),
            "It is called Seongsu now",
        ),
        tools=lambda hub: [weather, broken, *hub.tools(Plan, write={"update_plan"})],
        approvals="writes",
        **named,
    )
    thread = one.thread()
    one.ask(thread, "Rename it")
    (approval,) = one.call("approvals", MINA).items
    one.call("decide", MINA, thread, approval.id, Decision("approve"))
    return one, thread


def durable(events):
    return [(event.id, event.type, json.dumps(dict(event.data), sort_keys=True)) for event in events if event.id is not None]


def test_g27_every_cut_is_mended(desk):
    one, thread = rich(desk)
    whole = durable(one.settled(thread))
    assert [number for number, _, _ in whole] == list(range(1, len(whole) + 1))
    for cut in range(len(whole) + 1):
        assert durable(one.settled(thread, after=cut)) == whole[cut:]


def test_g27_the_contract(desk):
    one, thread = rich(desk)
    events = one.settled(thread)
    types = [event.type for event in events if event.id is not None and event.type != "stage.changed"]
    assert types == [
        "run.queued",
        "run.started",
        *("tool.proposed", "tool.started", "tool.completed"),
        *("tool.proposed", "tool.started", "tool.failed"),
        *("tool.proposed", "approval.requested"),
        "done",
        "approval.decided",
        "run.started",
        *("tool.started", "tool.completed"),
        *("assistant.completed", "conversation.updated", "done"),
    ]
    assert all(event.data["thread"] == thread for event in events)
    assert [event.data["status"] for event in of_type(events, "done")] == ["awaiting_approval", "succeeded"]
    completed = of_type(events, "tool.completed")[0].data
    assert (completed["name"], completed["input"], completed["result"]) == (
        "weather",
        {"day": "2026-09-30"},
        {"day": "2026-09-30", "rain": True},
    )
    failed = of_type(events, "tool.failed")[0].data
    assert failed["error"]["code"] == "tool_failed"
    assert "hunter2" not in json.dumps([dict(event.data) for event in events])
    (answer,) = of_type(events, "assistant.completed")
    assert answer.data["message"]["content"] == "It is called Seongsu now" == one.said(thread)[1][1]
    tools = one.messages(thread)[1].tools
    assert [(t.name, t.status) for t in tools] == [("weather", "completed"), ("broken", "failed"), ("update_plan", "completed")]


def test_g27_deltas_are_a_preview_of_what_is_stored(desk):
    one = desk(model=StreamingModel("word by word it comes"))
    thread = one.thread()
    one.call("send", MINA, thread, "hello")
    events = one.settled(thread)
    spoken = {}
    for event in of_type(events, "assistant.delta"):
        assert event.id is None
        spoken[event.data["message"]] = spoken.get(event.data["message"], "") + event.data["delta"]
    # A reader that comes late has no previews; whoever saw any saw a beginning of what is stored.
    assert all("word by word it comes".endswith(text) for text in spoken.values())
    assert one.said(thread)[1][1] == "word by word it comes"
    assert not [r for r in one.rows(f"select type from {one.table('run_event')}") if r[0] == "assistant.delta"]


def test_g27_a_model_that_dies_ends_the_stream(desk):
    class Dying(ScriptedModel):
        def _stream(self, messages, stop=None, run_manager=None, **settings):
            for word in ("One ", "two ", "three "):
                chunk = ChatGenerationChunk(message=AIMessageChunk(word))
                if run_manager is not None:
                    run_manager.on_llm_new_token(word, chunk=chunk)
                yield chunk
            raise RuntimeError("the password is hunter2")

    one = desk(model=Dying())
    thread = one.thread()
    run = one.ask(thread)
    assert run.status == "failed"
    events = one.settled(thread)
    assert [event.type for event in events][-2:] == ["error", "done"]
    assert events[-1].data["status"] == "failed"
    assert "hunter2" not in json.dumps([dict(event.data) for event in events])
    assert one.said(thread) == [("user", "When do I move in?")]  # what a model said that failed is no answer
    assert one.place(thread) == 3  # where the conversation began: it dealt with nothing


def test_g27_a_second_approval_behind_a_resume_is_told(desk):
    one = desk(
        calls("update_plan", id="p1", version="r3", title="a"),
        calls("update_plan", id="p1", version="r4", title="b"),
        "done",
        tools=lambda hub: hub.tools(Plan, write={"update_plan"}),
        approvals="writes",
    )
    thread = one.thread()
    one.ask(thread)
    for _ in range(2):
        (approval,) = one.call("approvals", MINA).items
        one.call("decide", MINA, thread, approval.id, Decision("approve"))
        events = one.settled(thread)
    asked = of_type(events, "approval.requested")
    assert [event.data["arguments"]["title"] for event in asked] == ["a", "b"]
    assert [event.data["status"] for event in of_type(events, "done")] == ["awaiting_approval", "awaiting_approval", "succeeded"]


def test_g27_a_reader_that_reads_nothing_holds_up_no_run(desk, door):
    gate = Gate("at last")
    one = desk(model=StreamingModel(gate, *[" ".join(["word"] * 3000)] * 2))
    thread = one.thread()
    one.call("send", MINA, thread, "hello")
    assert gate.entered.wait(60)
    idle = [one.service.stream(MINA, thread) for _ in range(5)]
    wait = door.wait if door.kind == "async" else one.service.blocking._wait

    async def begun(stream):
        return await anext(stream)

    for stream in idle:
        wait(begun(stream))
    gate.opened.set()
    one.settled(thread)
    assert one.ask(thread, "go on").status == "succeeded"

    async def rest(stream):
        found = []
        async for event in stream:
            found.append(event)
            if len([e for e in found if e.type == "done"]) == 2:
                break
        await stream.aclose()
        return found

    for stream in idle:
        events = wait(rest(stream))
        numbers = [event.id for event in events if event.id is not None]
        assert numbers == list(range(2, len(numbers) + 2))


def test_g27_bad_places_are_refused(desk):
    one = desk("ok")
    thread = one.thread()
    with pytest.raises(InputError):
        next(iter(one.events(thread, after=-1)))


def test_g27_stages_for_people(desk):
    from langgraph.config import get_stream_writer

    @tool
    def long_look() -> str:
        """Look for long."""
        writer = get_stream_writer()
        writer({"stage": "searching", "text": "목록을 찾는 중"})
        writer({"stage": "searching", "text": "목록을 찾는 중"})
        return "found"

    one = desk(calls("long_look"), "done", tools=lambda hub: [long_look])
    thread = one.thread()
    one.ask(thread)
    stages = [event.data for event in of_type(one.settled(thread), "stage.changed")]
    assert [(s["stage"], s.get("text")) for s in stages if s["stage"] == "searching"] == [("searching", "목록을 찾는 중")]


# -- the reader's receipt ----------------------------------------------------------------------------------------------


def test_g8_a_place_moves_with_the_readers_receipt(desk):
    one = desk("first", "second", "third", service={"acknowledge": "client"})
    thread = one.thread()
    one.ask(thread)
    one.sql("update plan set title = 'x' where id = 'p1'")
    one.ask(thread)
    assert "r4" in one.model.last_request
    assert one.place(thread) == 3
    one.ask(thread)
    assert "r4" in one.model.last_request.split("CURRENT")[0]  # nobody has confirmed that he was told
    answer = one.messages(thread)[-1]
    one.call("receipt", MINA, thread, answer.id)
    one.call("receipt", MINA, thread, answer.id)
    assert one.place(thread) == 4
    one.call("receipt", MINA, thread, one.messages(thread)[1].id)  # a late one of an earlier answer moves nothing back
    assert one.place(thread) == 4


# -- the feed of a workspace -------------------------------------------------------------------------------------------


def test_g27_the_feed_wakes_and_resumes(desk, door):
    one = desk("ok")

    async def read(after, number):
        found = []
        async with asyncio.timeout(30):
            stream = one.service.changes(MINA, "w1", after=after)
            try:
                async for fed in stream:
                    found += [event.revision for event in fed.events]
                    if len(found) >= number:
                        return found
            finally:
                await stream.aclose()
        return found

    wait = door.wait if door.kind == "async" else one.service.blocking._wait
    one.sql("update plan set title = 'a' where id = 'p1'")
    assert wait(read(0, 4)) == [1, 2, 3, 4]
    assert wait(read(2, 2)) == [3, 4]
    one.sql("update plan set title = 'b' where id = 'p1'")
    assert wait(read(4, 1)) == [5]
