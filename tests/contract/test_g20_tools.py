"""G20: a failing tool never wedges a conversation. Its siblings finish, every call gets an answer, secrets stay out."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field
from test_g07_every_model_call import gone
from test_g13_checkpoints import stored

from abreast import LeaseLostError, agent
from abreast.agents.repair import CUT_OFF, UNREADABLE
from abreast.testing import calls
from planner import CONTEXT, Item
from talk import CORNERS, Talk, said, update, write_tool

ASYNC = pytest.mark.parametrize("door", ["async"], indirect=True)
DSN = "postgresql://app:hunter2@db.example.com/app"


class Settings(BaseModel):
    """What a tool might read from its surroundings."""

    port: int = Field(gt=0)


def asks(*wanted: tuple[str, str | None], **arguments: Any) -> AIMessage:
    """A message that calls several tools: of each its name and the call's id."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": i, "type": "tool_call"} for name, i in wanted])


def tool_of(talk: Talk, name: str, body: Callable[[], Any]) -> BaseTool:
    """A tool of the door's kind that does this in a thread."""
    if talk.door.kind == "sync":
        return StructuredTool.from_function(body, name=name, description="Works.")

    async def call() -> Any:
        return await asyncio.to_thread(body)

    return StructuredTool.from_function(coroutine=call, name=name, description="Works.")


def answers(messages: Any) -> dict[str, ToolMessage]:
    """The answers among these messages, by the id of their call, as the tools gave them."""
    found = [message for message in messages if isinstance(message, ToolMessage)]
    return {one.tool_call_id: one.model_copy(update={"content": said(one)}) for one in found}


def is_legal(request: Any) -> bool:
    """Whether every call of a request has its one answer, behind its message: what providers ask for."""
    waiting: list[str | None] = []
    for message in request:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting:
            return False
        elif isinstance(message, AIMessage):
            waiting = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    return not waiting


class Before(AgentMiddleware):
    """Does something just before each tool call, outside the hub's middleware. What it puts on the stack lasts as long."""

    def __init__(self, does: Callable[[ExitStack], Any]) -> None:
        super().__init__()
        self._does = does

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        with ExitStack() as stack:
            self._does(stack)
            return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        with ExitStack() as stack:
            self._does(stack)
            return await handler(request)


# -- a tool that raises ------------------------------------------------------------------------------------------------


def test_g20_the_siblings_of_a_failing_tool_finish(database, hubs, door, checkpointer):
    """The slow one is at work when its sibling raises; without the answer LangGraph would cancel it there."""
    talk = Talk(database, hubs, door, saver=checkpointer)
    started, raised, finished = threading.Event(), threading.Event(), threading.Event()

    def slow() -> str:
        started.set()
        assert raised.wait(20)
        finished.set()
        return "slow one done"

    def failing() -> str:
        assert started.wait(20)
        raised.set()
        raise RuntimeError(f"could not connect to {DSN}")

    tools = [tool_of(talk, name, body) for name, body in (("ok", lambda: "ok"), ("failing", failing), ("slow", slow))]
    talk.say(asks(("ok", "1"), ("failing", "2"), ("slow", "3")), "done")
    result = talk.run(agent=talk.build(tools))
    assert (result.status, finished.is_set()) == ("succeeded", True)
    told = answers(talk.model.requests[1])
    assert {i: (m.status, m.name) for i, m in told.items()} == {
        "1": ("success", "ok"),
        "2": ("error", "failing"),
        "3": ("success", "slow"),
    }
    assert (told["1"].content, told["3"].content) == ("ok", "slow one done")


def _secret_error() -> None:
    raise RuntimeError(f"could not connect to {DSN}")


def _secret_cause() -> None:
    try:
        _secret_error()
    except RuntimeError as error:
        raise KeyError("row") from error


def _secret_validation() -> None:
    Settings.model_validate({"port": DSN})


@pytest.mark.parametrize("fails", [_secret_error, _secret_cause, _secret_validation])
def test_g20_what_an_exception_says_is_in_no_message_and_no_checkpoint(
    database, hubs, door, checkpointer, tmp_path, caplog, fails
):
    talk = Talk(database, hubs, door, calls("failing"), "done", saver=checkpointer)
    with caplog.at_level(logging.ERROR, logger="abreast"):
        result = talk.run(agent=talk.build([tool_of(talk, "failing", fails)]))
    assert result.status == "succeeded"
    answer = answers(result.state["messages"])["call_1"]
    assert answer.status == "error"
    everything = b"\n".join(row for rows in stored(database, tmp_path).values() for row in rows)
    assert b"failing" in everything
    for text in ("hunter2", "db.example.com"):
        assert text not in str(talk.model.requests)
        assert text.encode() not in everything
        assert text in caplog.text  # whoever runs the service finds it
    reference = answer.content.split("reference ")[1][:8]
    assert reference in caplog.text


@CORNERS
def test_g20_what_is_meant_for_the_model_reaches_it(database, hubs, door):
    """A ToolException's text, and what is wrong with the arguments of a call."""
    talk = Talk(database, hubs, door)

    def refuses() -> None:
        raise ToolException("There is no such street.")

    @tool
    def move(day: int) -> str:
        """Moves."""
        return str(day)

    talk.say(asks(("refuses", "1"), ("move", "2"), ("absent", "3"), day="monday"), "done")
    assert talk.run(agent=talk.build([tool_of(talk, "refuses", refuses), move])).status == "succeeded"
    told = answers(talk.model.requests[1])
    assert "There is no such street." in told["1"].content
    assert "day: Input should be a valid integer" in told["2"].content
    assert "absent is not a valid tool" in told["3"].content
    assert {m.status for m in told.values()} == {"error"}


@CORNERS
def test_g20_a_foreign_tool_is_never_tried_again(database, hubs, door):
    talk = Talk(database, hubs, door, calls("failing"), "done")
    tried: list[int] = []

    def failing() -> None:
        tried.append(1)
        raise ConnectionError("reset by peer")

    assert talk.run(agent=talk.build([tool_of(talk, "failing", failing)])).status == "succeeded"
    assert tried == [1]
    assert "outcome" in answers(talk.model.requests[1])["call_1"].content  # nobody knows whether it did it


@CORNERS
def test_g20_a_middleware_that_tries_again_stands_behind(database, hubs, door):
    """It sees what the tool raised; what it gives up on is an answer all the same."""
    tried: list[int] = []
    talk = Talk(database, hubs, door, calls("failing"), "done")

    def failing() -> str:
        tried.append(1)
        if len(tried) % 3:
            raise ConnectionError(f"could not connect to {DSN}")
        return "worked"

    for retries, status in ((2, "success"), (1, "error")):
        again = ToolRetryMiddleware(max_retries=retries, initial_delay=0, jitter=False, on_failure="error")
        assert talk.run(agent=talk.build([tool_of(talk, "failing", failing)], after=[again]), thread=status).status == "succeeded"
        answer = answers(talk.model.requests[-1])["call_1"]
        assert (len(tried), answer.status) == ({"success": 3, "error": 5}[status], status)
        assert "hunter2" not in answer.content
        talk.say(calls("failing"), "done")


@pytest.mark.parametrize(
    "returns",
    [lambda: Command(update={"messages": []}), lambda: Command(update={"messages": [ToolMessage("x", tool_call_id="other")]})],
    ids=["without an answer", "with another call's answer"],
)
@CORNERS
def test_g20_a_command_without_its_answer_becomes_one(database, hubs, door, returns):
    talk = Talk(database, hubs, door, calls("commands"), "done")
    result = talk.run(agent=talk.build([tool_of(talk, "commands", returns)]))
    assert (result.status, result.answer) == ("succeeded", "done")
    assert answers(talk.model.requests[1])["call_1"].status == "error"


@CORNERS
def test_g20_a_command_with_its_answer_and_a_result_of_nothing_stay_as_they_are(database, hubs, door):
    talk = Talk(database, hubs, door)
    update_ = Command(update={"messages": [ToolMessage("moved", tool_call_id="1")]})
    tools = [tool_of(talk, "commands", lambda: update_), tool_of(talk, "nothing", lambda: None)]
    talk.say(asks(("commands", "1"), ("nothing", "2")), "done")
    assert talk.run(agent=talk.build(tools)).status == "succeeded"
    told = answers(talk.model.requests[1])
    assert (told["1"].content, told["2"].content) == ("moved", "null")


def test_g20_an_interrupt_is_no_failure(database, hubs, door, checkpointer):
    """It pauses the run; its failing sibling does not take the approval away."""
    talk = Talk(database, hubs, door, saver=checkpointer)
    agent_ = talk.build([write_tool(lambda: interrupt("may I?"), name="gated"), tool_of(talk, "failing", _secret_error)])
    talk.say(asks(("gated", "1"), ("failing", "2")), "done")
    paused = talk.run(agent=agent_)
    assert (paused.status, [one.value for one in paused.interrupts]) == ("awaiting_approval", ["may I?"])
    assert talk.run(Command(resume="yes"), agent=agent_).status == "succeeded"
    told = answers(talk.model.requests[1])
    assert (told["1"].content, told["2"].status) == ("done", "error")


def test_g20_three_write_tools_at_once_write_three_times(database, hubs, door, checkpointer):
    talk = Talk(database, hubs, door, saver=checkpointer)

    def add(number: int, name: str) -> BaseTool:
        def call() -> str:
            with talk.hub.write("w1", actor=agent("helper"), thread="t") as tx:
                tx.add(Item(id=number, plan_id="p1", title=name))
            return "added"

        async def acall() -> str:
            async with talk.hub.write("w1", actor=agent("helper"), thread="t") as tx:
                tx.add(Item(id=number, plan_id="p1", title=name))
            return "added"

        return StructuredTool.from_function(call, acall, name=name, description="Adds an item.")

    names = ["keys", "lamps", "boxes"]
    agent_ = talk.build([add(number, name) for number, name in enumerate(names, 10)])
    talk.say(asks(*((name, name) for name in names)), "done")
    assert talk.run(agent=agent_).status == "succeeded"
    assert {m.content for m in answers(talk.model.requests[1]).values()} == {"added"}
    assert talk.revisions(1) == [4, 5, 6]
    assert sorted(e.values["title"][1] for e in talk.hub.blocking.history("w1")[:3]) == sorted(names)


# -- the fence ---------------------------------------------------------------------------------------------------------


def taken(talk: Talk) -> None:
    """Another run has the conversation, as after a stall that outlasted the lease."""
    table = "abreast_lease" if talk.engine.dialect.name == "sqlite" else "abreast.lease"
    talk.sql(f"update {table} set token = token + 1, run = 'another' where thread = 't'")


def test_g19_a_tool_of_a_run_that_lost_its_conversation_does_not_run(database, hubs, door):
    """G20 makes no answer of it: it ends the run."""
    ran: list[str] = []
    talk = Talk(database, hubs, door, calls("write"), "done")
    agent_ = talk.build([write_tool(lambda: ran.append("write"))], before=[Before(lambda _: taken(talk))])
    with pytest.raises(LeaseLostError):
        talk.run(agent=agent_)
    assert (ran, len(talk.model.requests)) == ([], 1)


@pytest.mark.parametrize("kind", ["write", "function"])
@CORNERS
def test_g19_a_tool_of_the_hubs_asks_in_its_own_transaction(database, hubs, door, kind):
    """Its body is reached without a question before it; that it lost the conversation is no answer there either."""
    ran: list[str] = []

    def body() -> None:
        ran.append(kind)
        raise LeaseLostError()

    talk = Talk(database, hubs, door, calls("own"), "done")
    own = StructuredTool.from_function(body, name="own", description="Works.", metadata={"abreast": kind})
    with pytest.raises(LeaseLostError):
        talk.run(agent=talk.build([own], before=[Before(lambda _: taken(talk))]))
    assert (ran, len(talk.model.requests)) == ([kind], 1)


@pytest.mark.parametrize("thread", [None, "own"], ids=["the run's thread", "its own thread"])
@CORNERS
def test_g19_a_sub_agents_tools_are_the_runs_whatever_its_thread(database, hubs, door, thread):
    done: list[str] = []
    talk = Talk(database, hubs, door, calls("ask"), calls("write"), "done", saver=None)
    inner = talk.build([write_tool(lambda: done.append("write"))], before=[Before(lambda _: taken(talk))])
    config: Any = {"configurable": {"thread_id": thread}} if thread else None

    def ask() -> str:
        return str(inner.invoke({"messages": [("user", "write")]}, config, context=CONTEXT))

    async def aask() -> str:
        return str(await inner.ainvoke({"messages": [("user", "write")]}, config, context=CONTEXT))

    outer = talk.build([StructuredTool.from_function(ask, aask, name="ask", description="Asks another agent.")])
    with pytest.raises(LeaseLostError):
        talk.run(agent=outer)
    assert done == []


@CORNERS
def test_g20_a_fence_that_cannot_be_asked_is_an_answer(database, hubs, door):
    ran: list[str] = []
    talk = Talk(database, hubs, door, calls("write"), "done", on_unavailable="warn")
    tools, before = [write_tool(lambda: ran.append("write"))], [Before(lambda stack: stack.enter_context(gone(database)))]
    result = talk.run(agent=talk.build(tools, before))
    assert (result.answer, ran) == ("done", [])
    answer = answers(result.state["messages"])["call_1"]
    assert answer.status == "error"
    assert "did not run" in answer.content


@CORNERS
def test_g20_without_a_lease_nothing_is_asked(database, hubs, door):
    """Somebody calls the agent himself, and the database is away while the tool runs."""
    ran: list[str] = []
    talk = Talk(database, hubs, door, calls("write"), "done")
    tools, before = [write_tool(lambda: ran.append("write"))], [Before(lambda stack: stack.enter_context(gone(database)))]
    assert talk.invoke(agent=talk.build(tools, before))["messages"][-1].content == "done"
    assert ran == ["write"]


# -- calls that were cut off -------------------------------------------------------------------------------------------


async def cut_off_in_mid_tool(talk: Talk, agent_: Any, waiting: asyncio.Event, **how: Any) -> None:
    """A run that is cancelled while a tool is at work."""
    run = asyncio.create_task(talk.hub.run(agent_, "first", thread="t", context=CONTEXT))
    await waiting.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


@ASYNC
def test_g20_after_a_cancelled_run_the_next_message_is_answered(database, hubs, door, checkpointer):
    talk = Talk(database, hubs, door, asks(("quick", "1"), ("wait", "2")), "done", saver=checkpointer)

    async def both() -> tuple[Any, Any]:
        waiting = asyncio.Event()

        async def wait() -> str:
            waiting.set()
            await asyncio.Event().wait()
            return "never"

        slow = StructuredTool.from_function(coroutine=wait, name="wait", description="Waits.")
        agent_ = talk.build([tool_of(talk, "quick", lambda: "quick one done"), slow])
        await cut_off_in_mid_tool(talk, agent_, waiting)
        result = await talk.hub.run(agent_, "second", thread="t", context=CONTEXT)
        return result, await agent_.aget_state({"configurable": {"thread_id": "t"}})

    result, state = door.wait(both())
    assert (result.status, result.answer) == ("succeeded", "done")
    request = talk.model.requests[1]
    assert [m.type for m in request] == ["human", "ai", "tool", "tool", "human"]
    assert is_legal(request)
    assert answers(request)["2"].content == CUT_OFF
    # What happened is kept as it happened.
    assert [m.type for m in state.values["messages"]] == ["human", "ai", "human", "ai"]


@CORNERS
@pytest.mark.parametrize("switch", ["on", "shadow", "off"])
@pytest.mark.parametrize("placement", ["tail", "system"])
def test_g20_a_history_is_mended_with_and_without_the_block(database, hubs, door, switch, placement):
    talk = Talk(database, hubs, door, placement=placement)
    door(talk.hub).tell(switch)
    talk.run()
    config = {"configurable": {"thread_id": "t"}}
    update(door, talk.agent, config, {"messages": [calls("write", call_id="1")]}, as_node="model")
    for question in ("and now?", "and now?"):
        assert talk.run(question).status == "succeeded"
        assert is_legal(talk.model.requests[-1])
        assert answers(talk.model.requests[-1])["1"].content == CUT_OFF
    before, after = talk.model.requests[-2:]
    same = [m for m in before if m.type != "system"][:-1]
    assert [m for m in after if m.type != "system"][: len(same)] == same  # a prefix that caches recognise


@CORNERS
def test_g20_an_answer_whose_call_was_summarised_away_is_left_out(database, hubs, door):
    talk = Talk(database, hubs, door, calls("write"), "done")
    agent_ = talk.build([write_tool(lambda: None)])
    talk.run(agent=agent_)
    kept = answers(door.state(agent_, {"configurable": {"thread_id": "t"}}).values["messages"])["call_1"]
    update(
        door,
        agent_,
        {"configurable": {"thread_id": "t"}},
        {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), kept]},
        as_node="model",
    )
    assert talk.run(agent=agent_).status == "succeeded"
    assert [m.type for m in talk.model.requests[-1]] == ["human"]


@CORNERS
def test_g20_a_call_that_cannot_be_read_fails_the_run_and_is_answered_in_the_next(database, hubs, door):
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change()
    bad = AIMessage("", invalid_tool_calls=[{"name": "write", "args": '{"x', "id": "1", "error": "not JSON"}])
    good = calls("write", call_id="1")
    agent_ = talk.build([write_tool(lambda: None)])
    # The second one has an id that an earlier turn has used: LangChain would take it for answered.
    for script in ([bad], [good, "done"], [bad]):
        talk.say(*script)
        result = talk.run(agent=agent_)
        if script[0] is bad:
            assert (result.status, result.told) == ("failed", {})
            assert result.reason == "the model called write with arguments that could not be read"
    talk.say("done")
    assert talk.run(agent=agent_).status == "succeeded"
    assert is_legal(talk.model.requests[-1])
    errors = [said(m) for m in talk.model.requests[-1] if isinstance(m, ToolMessage) and m.status == "error"]
    assert len(errors) == 2
    assert errors[1] == UNREADABLE


# -- ids of calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [(None, None), ("", ""), ("x", "x"), (None, "x")], ids=str)
@CORNERS
def test_g20_calls_that_share_an_id_or_have_none_run_and_are_answered_each(database, hubs, door, ids):
    """Without an id LangGraph runs the tool and then ends the run; two of one id could not be told apart."""
    ran: list[int] = []
    talk = Talk(database, hubs, door)

    @tool
    def put(n: int) -> str:
        """Puts."""
        ran.append(n)
        return f"put {n}"

    block = {"type": "tool_use", "name": "put", "input": {}}
    wanted = AIMessage(
        [{**block, "id": i} for i in ids], tool_calls=[{"name": "put", "args": {"n": n}, "id": i} for n, i in enumerate(ids)]
    )
    talk.say(wanted, "done")
    result = talk.run(agent=talk.build([put]))
    assert (result.status, sorted(ran), len(answers(result.state["messages"]))) == ("succeeded", [0, 1], 2)
    (asked,) = [m for m in talk.model.requests[1] if isinstance(m, AIMessage)]
    told = answers(talk.model.requests[1])
    assert {call["id"]: f"put {call['args']['n']}" for call in asked.tool_calls} == {i: m.content for i, m in told.items()}
    assert len(told) == 2
    assert [part["id"] for part in asked.content] == [call["id"] for call in asked.tool_calls]


@CORNERS
def test_g20_ids_that_repeat_across_turns_are_each_turns_own(database, hubs, door):
    ran: list[int] = []
    talk = Talk(database, hubs, door)

    @tool
    def put(n: int) -> str:
        """Puts."""
        ran.append(n)
        return f"put {n}"

    agent_ = talk.build([put])
    for n in (1, 2):
        talk.say(calls("put", call_id="put:0", n=n), "done")
        talk.run(agent=agent_)
    talk.run(agent=agent_)
    assert ran == [1, 2]
    assert [said(m) for m in talk.model.requests[-1] if isinstance(m, ToolMessage)] == ["put 1", "put 2"]
    assert is_legal(talk.model.requests[-1])


@CORNERS
def test_g20_a_structured_answer_beside_a_call_of_the_same_id_is_told_apart(database, hubs, door):
    class Verdict(BaseModel):
        """What was decided."""

        day: str

    talk = Talk(database, hubs, door)
    both = AIMessage(
        "", tool_calls=[{"name": "write", "args": {}, "id": "x"}, {"name": "Verdict", "args": {"day": "Monday"}, "id": "x"}]
    )
    talk.say(both)
    agent_ = talk.build([write_tool(lambda: None)], response_format=ToolStrategy(Verdict))
    result = talk.run(agent=agent_)
    assert result.state["structured_response"] == Verdict(day="Monday")
    told = answers(result.state["messages"])
    assert {m.name for m in told.values()} == {"write", "Verdict"}
    assert is_legal(result.state["messages"])
