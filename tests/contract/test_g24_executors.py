"""G24 and G25: several services and hubs on one database, a service that stops, runs without leases, and code that hangs."""

from __future__ import annotations

import asyncio
import threading

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from abreast import InputError, RunContext, Transaction
from abreast.testing import ScriptedModel, calls
from planner import Plan
from serving import MINA, Gate, context, of_type
from talk import CORNERS

pytestmark = CORNERS


def agent_of(hub, *script):
    return create_agent(
        ScriptedModel(*script),
        tools=[],
        middleware=[hub.middleware()],
        context_schema=RunContext,
        checkpointer=hub.checkpointer(),
    )


def test_g24_a_run_waits_for_the_service_that_has_its_agent(desk, door):
    one = desk("from the first")
    second = one.hub.service({"second": agent_of(one.hub, "from the second")}, context=context)
    thread = door.wait(second.create_thread(MINA, workspace="w1")).id
    run = door.wait(second.send(MINA, thread, "Who are you?"))
    one.ask(one.thread())  # the first service has looked for runs since, and found its own
    assert one.call("run", MINA, thread, run.id).status == "queued"
    door.wait(second.start())
    try:
        one.settled(thread)
        assert one.said(thread)[-1] == ("assistant", "from the second")
    finally:
        door.wait(second.stop())


def test_g24_a_run_of_an_agent_that_nobody_has_ends_visibly(desk):
    one = desk("never said")
    thread = one.thread()
    one.sql(f"update {one.table('thread')} set agent = 'gone' where thread = '{thread}'")
    run = one.ask(thread)
    assert (run.status, run.error["code"]) == ("failed", "unknown_agent")


def test_g24_a_service_that_stops_gives_back_all_that_it_has_taken(desk, door):
    """Also a run that it is just taking, which nobody else would take up before its lease has ended."""
    one = desk(*["Yes."] * 200, start=False, service={"concurrency": 2})
    sends = one.hub.service(one.agent, context=context)  # hands nothing over: its runs are looked for
    for _ in range(8):
        one.call("start")
        for thread in [one.thread() for _ in range(8)]:
            door.wait(sends.send(MINA, thread, "Are you there?"))
        one.call("stop")
        left = {status for (status,) in one.rows(f"select distinct status from {one.table('run')}")}
        assert left <= {"queued", "succeeded"}, left


def test_g24_a_long_run_of_a_hub_without_tables_is_begun_once(database, hubs, door):
    """There are no leases then, and no heartbeat of one to tell that it lives."""
    hub = hubs(database, lease_seconds=1)
    door(hub).install()
    begun = []

    @tool
    async def slow() -> str:
        """Slow."""
        begun.append("slow")
        await asyncio.sleep(2.5)  # longer than a lease, and than two looks for runs whose process is gone
        return "slow"

    agent = create_agent(
        ScriptedModel(calls("slow"), *["done"] * 4), tools=[slow], context_schema=RunContext, checkpointer=InMemorySaver()
    )
    service = hub.service(agent, context=context)

    async def scene():
        async with service:
            thread = (await service.create_thread(MINA, workspace="w1")).id
            run = await service.send(MINA, thread, "go")
            events = [event async for event in service.stream(MINA, thread, until_done=True)]
            return await service.run(MINA, thread, run.id), events

    run, events = door.wait(scene())
    assert (run.status, len(begun), run.attempts) == ("succeeded", 1, 1)
    assert len(of_type(events, "run.started")) == 1


def test_g24_code_that_hangs_before_a_run_begins_does_not_take_its_place_for_ever(desk):
    hanging = asyncio.Event

    async def hangs(thread, user):
        if thread.title == "hangs" and asked:
            await hanging().wait()
        return context(thread, user)

    asked: list[int] = []
    one = desk("Yes.", service={"context": hangs, "concurrency": 1}, lease_seconds=1)
    stuck, other = one.thread(title="hangs"), one.thread()
    asked.append(1)
    run = one.call("send", MINA, stuck, "Are you there?")
    one.settled(stuck)
    assert one.call("run", MINA, stuck, run.id).error["code"] == "gave_up"
    assert one.ask(other).status == "succeeded"


# -- what is said --------------------------------------------------------------------------------------------------------


def test_g25_messages_from_two_processes_at_once_stand_on_one_branch(desk, database):
    one = desk(agent=lambda made: agent_of(made.hub, *["Yes."] * 80))
    two = desk(agent=lambda made: agent_of(made.hub, *["Yes."] * 80), fresh=False)
    threads = [one.thread() for _ in range(4)]

    def speaks(desk):
        for number in range(4):
            for thread in threads:
                desk.call("send", MINA, thread, f"{number}", on_busy="enqueue")

    speakers = [threading.Thread(target=speaks, args=(each,)) for each in (one, two)]
    for each in speakers:
        each.start()
    for each in speakers:
        each.join()
    for thread in threads:
        one.settled(thread)
        assert [role for role, _ in one.said(thread)] == ["user", "assistant"] * 8


def test_g25_a_key_that_comes_again_with_other_words_is_refused(desk):
    one = desk("Yes.", "Again.")
    thread = one.thread(idempotency="t")
    assert one.thread(idempotency="t") == thread
    with pytest.raises(InputError):
        one.thread(workspace="w1", agent="other", idempotency="t")
    run = one.ask(thread, "first", idempotency="k")
    assert one.call("send", MINA, thread, "first", idempotency="k").id == run.id
    with pytest.raises(InputError, match="another message"):
        one.call("send", MINA, thread, "second", idempotency="k")
    assert one.said(thread) == [("user", "first"), ("assistant", "Yes.")]


def test_g25_an_answer_is_not_outdated_by_what_its_own_turn_wrote(desk):
    """The tool's answer is the turn's: no model was asked behind the write."""

    def tools(hub):
        @hub.tool(policy="allow")
        def rename(tx: Transaction, title: str) -> str:
            """Rename."""
            tx.get(Plan, "p1").title = title
            return "renamed"

        rename.return_direct = True
        return [rename]

    one = desk(calls("rename", title="Seongsu"), tools=tools)
    thread = one.thread()
    one.ask(thread, "Rename it.")
    answer = one.messages(thread)[-1]
    assert (answer.content, answer.outdated, answer.changes) == ("renamed", False, ())
    one.sql("update plan set title = 'Hannam' where id = 'p1'")
    (change,) = one.messages(thread)[-1].changes
    assert change["values"]["title"] == ["Seongsu", "Hannam"]


def test_g25_an_answer_is_outdated_by_what_a_later_turn_of_its_own_conversation_wrote(desk):
    def tools(hub):
        @hub.tool(policy="allow")
        def rename(tx: Transaction, title: str) -> str:
            """Rename."""
            tx.get(Plan, "p1").title = title
            return "renamed"

        return [rename]

    gate = Gate("It is called Mapo.")
    one = desk(gate, calls("rename", title="Seongsu"), "Done.", tools=tools)
    gate.opened.set()
    thread = one.thread()
    one.ask(thread, "What is it called?")
    one.ask(thread, "Rename it.")
    first, second = (message for message in one.messages(thread) if message.role == "assistant")
    assert (first.outdated, second.outdated) == (True, False)
