"""G8: a conversation's place moves only after a run that succeeded, only to what stood in a request that returned, never back.

The cases are a table: what goes wrong in a run, how the run ends, and whether its changes count as told. Every case is
followed by a plain run, which must be told what was not and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelRetryMiddleware,
    ToolErrorMiddleware,
    after_model,
    before_agent,
    before_model,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

import child
from abreast import Budget, ConfigurationError, RunContext
from abreast.langgraph import SyncState
from abreast.testing import ScriptedModel, calls
from planner import CONTEXT, Plan
from talk import CORNERS, TOOL_CALL, Around, Broken, Talk, block_of, revisions_of, wait_tool, write_tool


@dataclass
class Case:
    """One way for a run to end. `moved`: its changes count as told. `raises`, or the result's `status`, `reason`, `text`."""

    name: str
    script: Sequence[Any] = ("an answer",)
    moved: bool = False
    raises: type[BaseException] | None = None
    status: str = "succeeded"
    reason: str | None = None
    before: Sequence[Callable[[], AgentMiddleware]] = ()
    after: Sequence[Callable[[], AgentMiddleware]] = ()
    tools: Sequence[Any] = ()
    run: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def breaks() -> None:
    raise Broken


def refuses(state: Any) -> bool:
    return False


def complains(state: Any) -> None:
    raise Broken("too short")


def accepts(state: Any) -> None:
    return None


def _guard(hook: Any, words: str | None = None) -> Callable[[], AgentMiddleware]:
    """Another middleware that ends the run, with or without a message."""

    @hook(can_jump_to=["end"])
    def guard(state: Any, runtime: Any) -> dict[str, Any]:
        return {"jump_to": "end", **({"messages": [AIMessage(words)]} if words else {})}

    return lambda: guard


def _guard_after_a_tool() -> AgentMiddleware:
    @before_model(can_jump_to=["end"])
    def guard(state: Any, runtime: Any) -> dict[str, Any] | None:
        return {"jump_to": "end"} if state["messages"][-1].type == "tool" else None

    return guard


def _cached() -> AgentMiddleware:
    def decide(request: Any) -> Any:
        return AIMessage("from the cache")
        yield

    return Around(decide)


def _cached_after_a_tool() -> AgentMiddleware:
    def decide(request: Any) -> Any:
        if request.messages[-1].type == "tool":
            return AIMessage("from the cache")
        return (yield request)

    return Around(decide)


def _swallows() -> AgentMiddleware:
    def decide(request: Any) -> Any:
        try:
            return (yield request)
        except Broken:
            return AIMessage("Sorry, try later.")

    return Around(decide)


def _replaces() -> AgentMiddleware:
    def decide(request: Any) -> Any:
        yield request
        return AIMessage("put better")

    return Around(decide)


def _asks_twice() -> AgentMiddleware:
    def decide(request: Any) -> Any:
        yield request
        return (yield request)

    return Around(decide)


def _breaks_after_the_model() -> AgentMiddleware:
    @after_model
    def broken(state: Any, runtime: Any) -> None:
        raise Broken

    return broken


class Verdict(BaseModel):
    """A structured answer."""

    day: str


class Plain(TypedDict):
    """A structured answer whose value does not know its schema's name."""

    day: str


@tool(return_direct=True)
def direct() -> str:
    """Answers by itself."""
    return "the tool's own answer"


@tool(return_direct=True)
def direct_failing() -> str:
    """Would answer by itself."""
    raise Broken


def tool_errors() -> AgentMiddleware:
    """Turns what a tool raises into a message, as applications do."""
    return ToolErrorMiddleware(lambda error, request: "It failed.")


BAD_CALL = AIMessage("", invalid_tool_calls=[{"name": "write", "args": "{", "id": "c", "error": "not JSON"}])
WORDS_AND_BAD_CALL = BAD_CALL.model_copy(update={"content": "let me see"})
THINKING = AIMessage([{"type": "reasoning", "reasoning": "hm"}])
PICTURE = AIMessage([{"type": "image", "url": "https://example.com/a.png"}])
VERDICT = calls("Verdict", call_id="v", day="Monday")
PLAIN = calls("Plain", call_id="v", day="Monday")

NOT_ASKED = "the model was not asked"
NO_ANSWER = "without an answer of the model"
EMPTY = "empty answer"
UNREADABLE = "called write with arguments that could not be read"

CASES = [
    # -- it raises
    Case("the model raises", [Broken()], raises=Broken),
    Case("a tool raises, and nothing is said", [TOOL_CALL, ""], status="failed", reason=EMPTY, tools=[write_tool(breaks)]),
    Case("another middleware raises after the answer", raises=Broken, before=[_breaks_after_the_model]),
    Case(
        "the recursion limit is reached",
        [TOOL_CALL, TOOL_CALL, TOOL_CALL],
        raises=GraphRecursionError,
        tools=[write_tool(lambda: None)],
        run={"config": {"recursion_limit": 3}},
    ),
    # -- the model was not asked
    Case("a guard ends it before the agent, ours behind", reason=EMPTY, status="failed", before=[_guard(before_agent)]),
    Case("a guard ends it before the agent, ours in front", reason=EMPTY, status="failed", after=[_guard(before_agent)]),
    Case("a guard ends it before the model, ours behind", reason=NOT_ASKED, before=[_guard(before_model, "blocked")]),
    Case("a guard ends it before the model, ours in front", reason=NOT_ASKED, after=[_guard(before_model, "blocked")]),
    Case("a cache answers", reason=NOT_ASKED, before=[_cached]),
    Case("an error of the model is swallowed", [Broken()], reason=NOT_ASKED, before=[_swallows]),
    Case("the limit of calls is reached at once", reason=NOT_ASKED, before=[lambda: ModelCallLimitMiddleware(run_limit=0)]),
    # -- it was asked, but the answer is not its own
    Case(
        "the limit of calls is reached after a tool",
        [TOOL_CALL],
        reason=NO_ANSWER,
        tools=[write_tool(lambda: None)],
        before=[lambda: ModelCallLimitMiddleware(run_limit=1)],
    ),
    Case(
        "a cache answers after a tool",
        [TOOL_CALL],
        reason=NO_ANSWER,
        tools=[write_tool(lambda: None)],
        before=[_cached_after_a_tool],
    ),
    Case(
        "an error is swallowed after a tool",
        [TOOL_CALL, Broken()],
        reason=NO_ANSWER,
        tools=[write_tool(lambda: None)],
        before=[_swallows],
    ),
    Case(
        "a guard ends it after a tool",
        [TOOL_CALL],
        status="failed",
        reason=EMPTY,
        tools=[write_tool(lambda: None)],
        before=[_guard_after_a_tool],
    ),
    # -- it answered with nothing
    Case("the answer is empty", [""], status="failed", reason=EMPTY),
    Case("the answer is blank", [" \n"], status="failed", reason=EMPTY),
    Case("the answer is a list of nothing", [AIMessage([])], status="failed", reason=EMPTY),
    Case("the answer is thinking only", [THINKING], status="failed", reason=EMPTY),
    Case("the answer is a malformed call only", [BAD_CALL], status="failed", reason=UNREADABLE, tools=[write_tool(lambda: None)]),
    Case("the answer is words beside a malformed call", [WORDS_AND_BAD_CALL], status="failed", reason=UNREADABLE),
    Case(
        "a tool that would answer by itself fails",
        [calls("direct_failing")],
        status="failed",
        reason=EMPTY,
        tools=[direct_failing],
        before=[tool_errors],
    ),
    # -- the answer was judged
    Case("a validator says no", status="failed", reason="refuses refused the answer", run={"validate": [refuses]}),
    Case("a validator raises", status="failed", reason="complains refused the answer: too short", run={"validate": [complains]}),
    Case("one of two validators says no", status="failed", reason="refuses", run={"validate": [accepts, refuses, accepts]}),
    Case(
        "the run is paused",
        [TOOL_CALL],
        status="awaiting_approval",
        reason="paused",
        tools=[write_tool(lambda: None)],
        before=[lambda: HumanInTheLoopMiddleware({"write": True})],
    ),
    # -- it succeeded
    Case("a plain answer", moved=True),
    Case("all validators agree", moved=True, run={"validate": [accepts, accepts]}),
    Case("an answer after a tool", [TOOL_CALL, "done"], moved=True, tools=[write_tool(lambda: None)]),
    Case("an answer of a picture only", [PICTURE], moved=True),
    Case("the answer is replaced", moved=True, before=[_replaces]),
    Case("the model is asked twice for one answer", ["a draft", "an answer"], moved=True, before=[_asks_twice]),
    Case(
        "a retry after an error",
        [Broken(), "an answer"],
        moved=True,
        before=[lambda: ModelRetryMiddleware(max_retries=1, initial_delay=0)],
    ),
    Case("a structured answer by tool", [VERDICT], moved=True, settings={"response_format": ToolStrategy(Verdict)}),
    Case("a structured answer that is a dictionary", [PLAIN], moved=True, settings={"response_format": ToolStrategy(Plain)}),
    Case("a tool's own answer", [calls("direct")], moved=True, tools=[direct]),
]


@CORNERS
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:hub.middleware\\(\\) is not the last")
def test_g8(database, hubs, door, case):
    talk = Talk(database, hubs, door, "first")
    talk.run()
    talk.change()
    agent = talk.build(case.tools, [make() for make in case.before], [make() for make in case.after], **case.settings)
    talk.say(*case.script)
    if case.raises is not None:
        with pytest.raises(case.raises):
            talk.run(agent=agent, **case.run)
    else:
        result = talk.run(agent=agent, **case.run)
        assert (result.status, result.told) == (case.status, {"w1": 4} if case.moved else {})
        assert case.reason in result.reason if case.reason else result.reason is None
    assert talk.place() == (4 if case.moved else 3)
    talk.model.script.clear()
    talk.sql("update item set done = true where id = 1")
    talk.run()
    assert (talk.revisions(), talk.place()) == ([5] if case.moved else [4, 5], 5)
    talk.run()
    assert talk.revisions() == []


# -- cancelled, killed, overtaken --------------------------------------------------------------------------------------


class Hanging(ScriptedModel):
    """A model whose next answer never comes. `reached` is set when it is asked."""

    reached: Any = None

    async def _agenerate(self, messages: Any, *rest: Any, **more: Any) -> Any:
        if self.reached is not None:
            self._requests.append(messages)
            self.reached.set()
            await asyncio.Event().wait()
        return await super()._agenerate(messages, *rest, **more)


@pytest.mark.parametrize("door", ["async"], indirect=True)
@pytest.mark.parametrize("where", ["cancelled in the model", "timed out in the model", "cancelled in a tool"])
def test_g8_a_run_that_is_cancelled_moves_nothing(database, hubs, door, where):
    talk = Talk(database, hubs, door, model=Hanging())
    talk.run()
    talk.change()

    async def go() -> None:
        reached = asyncio.Event()

        async def wait() -> None:
            reached.set()
            await asyncio.Event().wait()

        agent = talk.build([wait_tool(wait)])
        if where == "cancelled in a tool":
            talk.say(calls("wait"))
        else:
            talk.model.reached = reached
        run = talk.hub.run(agent, "q", thread="t", context=CONTEXT)
        if where == "timed out in the model":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run, 0.3)
            assert reached.is_set()
            return
        running = asyncio.ensure_future(run)
        await reached.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    door.wait(go())
    assert (talk.revisions(), talk.place()) == ([4], 3)
    talk.model.reached = None
    talk.run("go on")
    assert (talk.revisions(), talk.place()) == ([4], 4)


@pytest.mark.parametrize("door", ["sync"], indirect=True)
def test_g8_a_process_that_is_killed_moves_nothing(database, hubs, door, tmp_path, checkpointer):
    """Killed in the model, in a tool, and when the answer is stored but not yet judged."""
    talk = Talk(database, hubs, door, saver=checkpointer)
    for thread in child.STAGES:
        talk.run(thread=thread)
    talk.change()
    with child.at(database, tmp_path / "checkpoints.db", **{stage: stage for stage in child.STAGES}):
        pass
    last = {
        stage: door.state(talk.agent, {"configurable": {"thread_id": stage}}).values["messages"][-1] for stage in child.STAGES
    }
    assert {stage: message.type for stage, message in last.items()} == {"model": "human", "tool": "ai", "validator": "ai"}
    assert last["validator"].text == "an answer"
    for stage in child.STAGES:
        assert talk.place(stage) == 3
        talk.expire(stage)
        talk.run("go on", thread=stage)
        assert (talk.revisions(), talk.place(stage)) == ([4], 4)


@CORNERS
def test_g8_a_run_that_was_overtaken_does_not_move_the_place_back(database, hubs, door):
    """A newer run of the same conversation ends while an older one waits for its model."""
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change()

    def overtaken(_: Any) -> str:
        talk.sql("update item set done = true where id = 1")
        assert talk.run("the newer one").told == {"w1": 5}
        return "late"

    talk.say(overtaken)
    assert talk.run().told == {"w1": 4}
    assert talk.place() == 5


@CORNERS
def test_g8_an_asynchronous_validator_judges_too(database, hubs, door):
    async def refuses_later(state: Any) -> bool:
        await asyncio.sleep(0)
        return False

    async def complains_later(state: Any) -> None:
        raise Broken("too short")

    async def accepts_later(state: Any) -> None: ...

    talk = Talk(database, hubs, door)
    talk.run()
    talk.change()
    if door.kind == "sync":
        with pytest.raises(ConfigurationError, match="asynchronous"):
            talk.run(validate=[accepts_later])
        assert talk.place() == 3
        return
    for validator, reason in ((refuses_later, "refuses_later refused"), (complains_later, "too short")):
        result = talk.run(validate=[validator])
        assert (result.status, reason in result.reason, talk.place()) == ("failed", True, 3)
    assert talk.run(validate=[accepts_later]).told == {"w1": 4}


# -- agents within agents ----------------------------------------------------------------------------------------------


@CORNERS
@pytest.mark.parametrize("keeps", [False, True], ids=["forgets", "remembers"])
def test_g8_a_sub_agent_in_a_tool_counts_for_nothing(database, hubs, door, keeps):
    """It has the hub's middleware and answers; the run that called it fails all the same."""
    talk = Talk(database, hubs, door)
    talk.run()
    talk.change()
    inner = ScriptedModel()
    agent = create_agent(inner, middleware=[talk.hub.middleware()], context_schema=RunContext, checkpointer=keeps or None)

    @tool
    def ask() -> str:
        """Asks another agent."""
        return agent.invoke({"messages": [("user", "inner question")]}, context=CONTEXT)["messages"][-1].text

    outer = talk.build([ask])
    for end in (Broken(), ""):
        talk.say(calls("ask"), end)
        if end:
            with pytest.raises(Broken):
                talk.run(agent=outer)
        else:
            assert talk.run(agent=outer).status == "failed"
        assert revisions_of(block_of(inner.requests[-1])) == [4]
        assert talk.place() == 3
    talk.say(calls("ask"), "done")
    assert (talk.run(agent=outer).told, talk.place()) == ({"w1": 4}, 4)


@CORNERS
def test_g8_an_agent_that_is_a_node_of_the_graph_counts(database, hubs, door):
    """Its messages become the run's own."""
    talk = Talk(database, hubs, door, saver=None)
    graph = StateGraph(SyncState, context_schema=RunContext)
    graph.add_node("agent", talk.agent)
    graph.add_edge("__start__", "agent")
    whole = graph.compile(checkpointer=InMemorySaver())
    talk.run(agent=whole)
    talk.change()
    talk.say(Broken(), "done")
    with pytest.raises(Broken):
        talk.run(agent=whole)
    assert talk.place() == 3
    result = talk.run(agent=whole)
    assert (talk.revisions(), result.told, talk.place()) == ([4], {"w1": 4}, 4)
    talk.run(agent=whole)
    assert talk.revisions() == []


# -- how much is told --------------------------------------------------------------------------------------------------


@CORNERS
def test_g8_76_waiting_are_told_as_50_and_then_26(database, hubs, door):
    talk = Talk(database, hubs, door, budget=Budget(changes=100_000))
    talk.run()
    for n in range(10, 48):  # in turn, so that they are no import
        talk.sql(f"insert into item (id, plan_id, title, done) values ({n}, 'p1', 'box', false)")
        talk.sql(f"insert into contact (id, plan_id, name) values ({n}, 'p1', 'somebody')")
    told = []
    for _ in range(3):
        result = talk.run()
        told.append((talk.revisions(), result.told["w1"]))
    assert told == [(list(range(4, 54)), 53), (list(range(54, 80)), 79), ([], 79)]


@CORNERS
def test_g8_changes_that_a_person_may_not_read_are_passed_silently(database, hubs, door):
    """They take no room in the batch: five readable ones are told by a limit of five, whatever stands between them."""
    talk = Talk(database, hubs, door, limit=5, plan={"readable": lambda context: Plan.id.not_like("secret%")})
    talk.sql("insert into plan (id, workspace_id, title) values ('secret', 'w1', 'hush')")
    talk.run()
    assert talk.place() == 4
    for n in range(5):
        talk.sql(*(f"update plan set title = 'hush {n} {m}' where id = 'secret'" for m in range(7)))
        talk.sql(f"insert into item (id, plan_id, title, done) values ({n + 10}, 'p1', 'box', false)")
    talk.run()
    assert (talk.revisions(), talk.place()) == ([12, 20, 28, 36, 44], 44)
    assert "hush" not in talk.block()
    talk.sql("update plan set title = 'hush again' where id = 'secret'")
    result = talk.run()
    assert (talk.revisions(), result.told, talk.place()) == ([], {"w1": 45}, 45)
    assert "CHANGES" not in talk.block()


@CORNERS
def test_g8_a_budget_ends_the_batch_and_the_rest_waits(database, hubs, door):
    talk = Talk(database, hubs, door, budget=Budget(changes=200))
    talk.run()
    talk.sql(*(f"insert into item (id, plan_id, title, done) values ({n}, 'p1', 'box', false)" for n in range(10, 40)))
    seen: list[int] = []
    while talk.place() < 33:
        before = talk.place()
        talk.run()
        assert talk.revisions() == list(range(before + 1, talk.place() + 1))
        waiting = 33 - talk.place()
        assert (f"\n{waiting} more " in talk.block()) == (waiting > 0)
        seen += talk.revisions()
    assert seen == list(range(4, 34))


# acknowledge="client", which waits for the reader's receipt too, comes with the service.
