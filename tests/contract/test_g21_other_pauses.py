"""Graphs that stop by other means than the hub's gates get the same rows: before a node, and by a question of their own."""

from __future__ import annotations

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from abreast import DecidedError, Decision, DecisionError, RunContext
from abreast.langgraph import SyncState
from abreast.testing import calls
from serving import MINA, of_type
from talk import CORNERS

pytestmark = CORNERS


def two(*numbers):
    return AIMessage("thinking", tool_calls=[{"name": "put", "args": {"x": n}, "id": f"call_{n}"} for n in numbers])


def hand_made(ran):
    """A graph of one's own that stops before its tools."""

    @tool
    def put(x: int) -> str:
        """Put."""
        ran.append(x)
        return f"put {x}"

    def build(desk):
        async def model(state, config, runtime):
            call = await desk.hub.prepare(state, config, context=runtime.context)
            return await call.aanswered(await desk.model.ainvoke(call.messages))

        graph = StateGraph(SyncState, context_schema=RunContext)
        graph.add_node("model", model)
        graph.add_node("tools", ToolNode([put]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=desk.hub.checkpointer(), interrupt_before=["tools"])

    return build


def ready_made(ran):
    """LangChain's agent, stopped before its tools."""

    @tool
    def put(x: int) -> str:
        """Put."""
        ran.append(x)
        return f"put {x}"

    def build(desk):
        return create_agent(
            desk.model,
            [put],
            middleware=[desk.hub.middleware()],
            context_schema=RunContext,
            checkpointer=desk.hub.checkpointer(),
            interrupt_before=["tools"],
        )

    return build


KINDS = pytest.mark.parametrize("kind", [hand_made, ready_made], ids=["hand_made", "ready_made"])


@KINDS
def test_g21_before_a_node_approved_and_edited(desk, kind):
    ran = []
    one = desk(two(1, 2), "done", agent=kind(ran))
    thread = one.thread()
    run = one.ask(thread)
    assert run.status == "awaiting_approval"
    rows = {row.call: row for row in one.call("approvals", MINA).items}
    assert {(row.kind, row.tool, row.arguments["x"]) for row in rows.values()} == {("node", "put", 1), ("node", "put", 2)}
    one.call("decide", MINA, thread, rows["call_1"].id, Decision("approve", confirmed={"w1": 3}))
    assert one.call("run", MINA, thread, run.id).status == "awaiting_approval"
    with pytest.raises(DecisionError):
        one.call(
            "decide", MINA, thread, rows["call_2"].id, Decision("edit", arguments={"x": "no number", "y": 2}, confirmed={"w1": 3})
        )
    one.call("decide", MINA, thread, rows["call_2"].id, Decision("edit", arguments={"x": 7}, confirmed={"w1": 3}))
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "succeeded"
    assert sorted(ran) == [1, 7]
    assert one.said(thread)[-1] == ("assistant", "done")


@KINDS
def test_g21_before_a_node_rejected_beside_approved(desk, kind):
    ran = []
    one = desk(two(1, 2), "done", agent=kind(ran))
    thread = one.thread()
    run = one.ask(thread)
    rows = {row.call: row for row in one.call("approvals", MINA).items}
    one.call("decide", MINA, thread, rows["call_1"].id, Decision("reject", message="too early"))
    one.call("decide", MINA, thread, rows["call_2"].id, Decision("approve"))
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "succeeded"
    assert ran == [2]
    assert any("too early" in message.text for message in one.model.requests[-1])


@KINDS
def test_g21_before_a_node_all_rejected(desk, kind):
    ran = []
    one = desk(two(1, 2), "all right then", agent=kind(ran))
    thread = one.thread()
    run = one.ask(thread)
    for row in one.call("approvals", MINA).items:
        one.call("decide", MINA, thread, row.id, Decision("reject", message="no"))
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "succeeded"
    assert ran == []
    assert [m.type for m in one.model.requests[-1]].count("tool") == 2
    assert one.said(thread)[-1] == ("assistant", "all right then")


def asks(ran):
    @tool
    def book(day: str) -> str:
        """Book."""
        hour = interrupt({"question": "At which hour?", "day": day})
        sure = interrupt({"question": "Sure?"})
        ran.append((day, hour, sure))
        return f"{day} {hour}"

    return book


def test_g21_a_question_of_the_applications_own(desk):
    ran = []
    one = desk(calls("book", day="Monday"), "booked", tools=lambda hub: [asks(ran)])
    thread = one.thread()
    run = one.ask(thread)
    (first,) = one.call("approvals", MINA).items
    assert (first.kind, first.question["value"]) == ("interrupt", {"question": "At which hour?", "day": "Monday"})
    for wrong in (Decision("approve"), Decision("reject"), Decision("respond")):
        with pytest.raises(DecisionError):
            one.call("decide", MINA, thread, first.id, wrong)
    one.call("decide", MINA, thread, first.id, Decision("respond", message=9))
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "awaiting_approval"
    assert ran == []
    (second,) = one.call("approvals", MINA).items
    assert second.id != first.id
    assert second.question["value"] == {"question": "Sure?"}
    with pytest.raises(DecidedError):
        one.call("decide", MINA, thread, first.id, Decision("respond", message=10))
    one.call("decide", MINA, thread, second.id, Decision("respond", message=True))
    one.settled(thread)
    assert ran == [("Monday", 9, True)]
    assert one.call("run", MINA, thread, run.id).status == "succeeded"
    asked = of_type(one.settled(thread), "approval.requested")
    assert [event.data["approval"] for event in asked] == [first.id, second.id]


def test_g22_langchains_own_middleware_is_never_poisoned(desk):
    """PITFALLS M1: a malformed decision would be kept by the checkpoint and raised at every later answer."""
    ran = []

    @tool
    def put(x: int) -> str:
        """Put."""
        ran.append(x)
        return f"put {x}"

    one = desk(
        two(1, 2),
        "done",
        tools=lambda hub: [put],
        middleware=lambda hub: [HumanInTheLoopMiddleware(interrupt_on={"put": True})],
    )
    thread = one.thread()
    run = one.ask(thread)
    (row,) = one.call("approvals", MINA).items
    approve = {"type": "approve"}
    other = {"type": "edit", "edited_action": {"name": "other", "args": {}}}
    for wrong in (
        *(None, True, "approve", [approve, approve], {"approve": True}, {"decisions": [approve]}, {"decisions": [{}, {}]}),
        *({"decisions": [approve] * 3}, {"decisions": [approve, {"type": "edit"}]}, {"decisions": [approve, other]}),
        *({"decisions": [approve, {"type": "whatever"}]},),
    ):
        with pytest.raises(DecisionError):
            one.call("decide", MINA, thread, row.id, Decision("respond", message=wrong))
    edited = {"type": "edit", "edited_action": {"name": "put", "args": {"x": 7}}}
    one.call("decide", MINA, thread, row.id, Decision("respond", message={"decisions": [approve, edited]}))
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "succeeded"
    assert sorted(ran) == [1, 7]
