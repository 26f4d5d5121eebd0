"""Hand-made graphs: the middleware's half for tools in a ToolNode of one's own, histories and ids through `prepare` (G20)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from test_nodes import model_node

from abreast import LeaseLostError, RunContext
from abreast.agents.repair import CUT_OFF, UNREADABLE
from abreast.langgraph import SyncState
from abreast.testing import calls
from talk import CORNERS, Talk, update, write_tool

DSN = "postgresql://app:hunter2@db.example.com/app"


def graph_of(talk: Talk, *tools: Any, before: Callable[[], Any] = lambda: None) -> Any:
    """A model node and a tool node with the hub's guard around its tools; `before` happens just before it is asked."""
    middleware = talk.hub.middleware()

    def guard(request: Any, handler: Any) -> Any:
        before()
        return middleware.wrap_tool_call(request, handler)

    async def aguard(request: Any, handler: Any) -> Any:
        before()
        return await middleware.awrap_tool_call(request, handler)

    graph = StateGraph(SyncState, context_schema=RunContext)
    graph.add_node("model", model_node(talk))
    graph.add_edge("__start__", "model")
    graph.add_node("tools", ToolNode(tools, wrap_tool_call=guard, awrap_tool_call=aguard))
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=talk.saver)


def fails() -> None:
    raise RuntimeError(f"could not connect to {DSN}")


def two(first: str, second: str) -> AIMessage:
    """A message that calls two tools."""
    return AIMessage("", tool_calls=[{"name": name, "args": {}, "id": name} for name in (first, second)])


def answers(messages: Any) -> list[tuple[str, str]]:
    return [(m.tool_call_id, m.status) for m in messages if isinstance(m, ToolMessage)]


@CORNERS
def test_g20_a_failing_tool_is_an_answer_beside_its_siblings(database, hubs, door):
    talk = Talk(database, hubs, door, two("fails", "write"), "done")
    graph = graph_of(talk, write_tool(fails, name="fails"), write_tool(lambda: None))
    assert talk.run(agent=graph).status == "succeeded"
    assert answers(talk.model.requests[1]) == [("fails", "error"), ("write", "success")]
    assert "hunter2" not in str(talk.model.requests)


@CORNERS
def test_g20_an_interrupt_pauses_the_graph(database, hubs, door):
    talk = Talk(database, hubs, door, two("fails", "write"), "done")
    graph = graph_of(talk, write_tool(fails, name="fails"), write_tool(lambda: interrupt("may I?")))
    assert talk.run(agent=graph).status == "awaiting_approval"
    assert talk.run(Command(resume="yes"), agent=graph).status == "succeeded"
    assert answers(talk.model.requests[1]) == [("fails", "error"), ("write", "success")]


@CORNERS
def test_g19_a_graph_that_lost_its_conversation_runs_no_tool(database, hubs, door):
    ran: list[str] = []
    talk = Talk(database, hubs, door)
    table = "abreast_lease" if database.kind == "sqlite" else "abreast.lease"

    def taken() -> None:
        talk.sql(f"update {table} set token = token + 1, run = 'another' where thread = 't'")

    graph = graph_of(talk, write_tool(lambda: ran.append("write")), before=taken)
    talk.say(calls("write"), "done")
    with pytest.raises(LeaseLostError):
        talk.run(agent=graph)
    assert (ran, len(talk.model.requests)) == ([], 1)


@pytest.mark.parametrize("ids", [(None, None), ("", ""), ("x", "x")], ids=str)
@CORNERS
def test_g20_calls_that_share_an_id_or_have_none_get_one(database, hubs, door, ids):
    ran: list[int] = []
    talk = Talk(database, hubs, door)

    @tool
    def put(n: int) -> str:
        """Puts."""
        ran.append(n)
        return f"put {n}"

    talk.say(AIMessage("", tool_calls=[{"name": "put", "args": {"n": n}, "id": i} for n, i in enumerate(ids)]), "done")
    result = talk.run(agent=graph_of(talk, put))
    assert (result.status, sorted(ran)) == ("succeeded", [0, 1])
    assert len({m.tool_call_id for m in result.state["messages"] if isinstance(m, ToolMessage)} - {""}) == 2
    _, asked, first, second = talk.model.requests[1][:4]
    assert [first.tool_call_id, second.tool_call_id] == [call["id"] for call in asked.tool_calls]
    assert first.tool_call_id != second.tool_call_id
    assert first.content == "put 0"
    assert second.content.startswith("put 1\n\n")


@CORNERS
@pytest.mark.parametrize("switch", ["on", "shadow", "off"])
def test_g20_a_prepared_history_is_mended(database, hubs, door, switch):
    """A call that was cut off, one that could not be read, and an answer that nobody asked for."""
    talk = Talk(database, hubs, door)
    door(talk.hub).tell(switch)
    graph = graph_of(talk, write_tool(lambda: None))
    bad = AIMessage("", invalid_tool_calls=[{"name": "write", "args": "{", "id": "2", "error": "not JSON"}])
    history = [
        SystemMessage("Be brief."),
        HumanMessage("first"),
        calls("write", call_id="1"),
        HumanMessage("second"),
        bad,
        HumanMessage("third"),
        ToolMessage("late", tool_call_id="3"),
    ]
    config = {"configurable": {"thread_id": "t"}}
    update(door, graph, config, {"messages": history}, as_node="__start__")
    assert talk.run("fourth", agent=graph).status == "succeeded"
    request = talk.model.requests[0]
    assert [m.type for m in request] == ["system", "human", "ai", "tool", "human", "ai", "tool", "human", "human"]
    assert [m.content for m in request if isinstance(m, ToolMessage)] == [CUT_OFF, UNREADABLE]
    assert ("CURRENT" in request[-1].text) == (switch == "on")
    kept = door.state(graph, config).values["messages"]
    assert [m.content for m in kept if isinstance(m, ToolMessage)] == ["late"]


@CORNERS
def test_g20_a_graph_whose_call_cannot_be_read_says_so(database, hubs, door):
    bad = AIMessage("", invalid_tool_calls=[{"name": "write", "args": "{", "id": "2", "error": "not JSON"}])
    talk = Talk(database, hubs, door, bad)
    result = talk.run(agent=graph_of(talk, write_tool(lambda: None)))
    assert (result.status, result.reason) == ("failed", "the model called write with arguments that could not be read")
