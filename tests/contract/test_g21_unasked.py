"""G21: what might run unasked: after a process died before it asked, with one id for two calls, with added arguments."""

from __future__ import annotations

import json

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from abreast import Decision, RunContext
from abreast.testing import calls
from planner import CONTEXT
from serving import MINA
from talk import CORNERS

pytestmark = CORNERS


def putting(ran):
    @tool
    def put(x: int, twice: bool = False) -> str:
        """Put."""
        ran.append((x, twice))
        return f"put {x}"

    return put


def stopping(ran, **stops):
    def build(desk):
        return create_agent(
            desk.model,
            [putting(ran)],
            middleware=[desk.hub.middleware()],
            context_schema=RunContext,
            checkpointer=desk.hub.checkpointer(),
            **stops,
        )

    return build


@pytest.mark.parametrize("stops", [{"interrupt_before": ["tools"]}, {"interrupt_after": ["model"]}], ids=["before", "after"])
def test_g21_a_graph_that_stopped_though_nobody_was_asked_asks_when_it_is_taken_up(desk, door, stops):
    """Its process died between the checkpoint of the pause and the request: what runs on must not take that for an answer."""
    ran = []
    one = desk("Hello.", agent=stopping(ran, **stops))
    thread = one.thread()
    one.ask(thread, "Hello?")
    for waiting in one.call("approvals", MINA).items:  # behind the model, where no tool waits
        one.call("decide", MINA, thread, waiting.id, Decision("approve"))
    one.settled(thread)
    one.close()
    one.say(calls("put", x=1), "done")
    run = one.call("send", MINA, thread, "Put it.")
    said = {"messages": [HumanMessage("Put it.", id=run.message)]}

    async def until_it_stops():
        async with one.hub.lease(thread) as held:
            await one.agent.ainvoke(said, held.config, context=CONTEXT)

    door.wait(until_it_stops())
    one.call("start")
    one.settled(thread)
    assert ran == []
    assert one.call("run", MINA, thread, run.id).status == "awaiting_approval"
    (asked,) = one.call("approvals", MINA).items
    assert (asked.kind, asked.tool, asked.arguments) == ("node", "put", {"x": 1})
    one.call("decide", MINA, thread, asked.id, Decision("approve"))
    one.settled(thread)
    assert ran == [(1, False)]


@pytest.mark.parametrize("approved", [1, 2])
def test_g21_of_two_calls_with_one_id_the_one_that_was_approved_runs(desk, approved):
    """A graph that is all the application's own: nobody has made its ids unique."""
    ran = []
    both = AIMessage("", tool_calls=[{"name": "put", "args": {"x": n}, "id": "call_0"} for n in (1, 2)])

    def build(desk):
        async def model(state):
            return {"messages": [await desk.model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState, context_schema=RunContext)
        graph.add_node("model", model)
        graph.add_node("tools", ToolNode([putting(ran)]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=desk.hub.checkpointer(), interrupt_before=["tools"])

    one = desk(both, "done", agent=build)
    thread = one.thread()
    one.ask(thread)
    for asked in one.call("approvals", MINA).items:
        decision = "approve" if asked.arguments["x"] == approved else "reject"
        one.call("decide", MINA, thread, asked.id, Decision(decision))
    one.settled(thread)
    assert ran == [(approved, False)]


class Adds(AgentMiddleware):
    """Puts an argument into each call, of which the model has said nothing."""

    def __init__(self):
        super().__init__()
        self.value = True

    async def awrap_tool_call(self, request, handler):
        arguments = {**request.tool_call["args"], "twice": self.value}
        return await handler(request.override(tool_call={**request.tool_call, "args": arguments}))


def gated(hub, ran):
    return hub.gate(putting(ran))


def own(hub, ran):
    @hub.tool(policy="ask")
    def put(x: int, twice: bool = False) -> str:
        """Put."""
        ran.append((x, twice))
        return f"put {x}"

    return put


@pytest.mark.parametrize("kind", [gated, own])
def test_g21_what_a_middleware_puts_into_a_call_is_asked_for_too(desk, kind):
    ran, adds = [], Adds()
    one = desk(calls("put", x=1), "done", tools=lambda hub: [kind(hub, ran)], middleware=lambda hub: [adds])
    thread = one.thread()
    one.ask(thread)
    (asked,) = one.call("approvals", MINA).items
    assert asked.arguments == {"x": 1, "twice": True}
    one.call("decide", MINA, thread, asked.id, Decision("approve"))
    one.settled(thread)
    assert ran == [(1, True)]


@pytest.mark.parametrize("kind", [gated, own])
def test_g21_what_a_middleware_puts_into_a_call_after_it_was_approved_does_not_run(desk, kind):
    ran, adds = [], Adds()
    adds.value = False
    one = desk(calls("put", x=1), "done", tools=lambda hub: [kind(hub, ran)], middleware=lambda hub: [adds])
    thread = one.thread()
    one.ask(thread)
    (asked,) = one.call("approvals", MINA).items
    assert asked.arguments == {"x": 1}  # the tool's own default says nothing
    adds.value = True
    one.call("decide", MINA, thread, asked.id, Decision("approve"))
    one.settled(thread)
    assert ran == []
    (use,) = one.messages(thread)[-1].tools
    assert "not the one" in json.dumps(use.result)


def test_g21_a_question_that_looks_like_a_gate_is_asked(desk):
    """It has no request of its own, so that nothing would ever answer it, and the run went round and round."""

    @tool
    def confirm(x: int) -> str:
        """Confirm."""
        return str(interrupt({"approval": "a_17", "x": x}))

    one = desk(calls("confirm", x=1), "done", tools=lambda hub: [confirm])
    thread = one.thread()
    run = one.call("send", MINA, thread, "go")
    begun = 0
    for event in one.events(thread):
        begun += event.type == "run.started"
        assert begun < 3
        if event.type == "done":
            break
    assert one.call("run", MINA, thread, run.id).status == "awaiting_approval"
    (asked,) = one.call("approvals", MINA).items
    assert (asked.kind, asked.question["value"]) == ("interrupt", {"approval": "a_17", "x": 1})
    one.call("decide", MINA, thread, asked.id, Decision("respond", message="yes"))
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "succeeded"
