"""Hand-made graphs: the model node asks `hub.prepare` for its messages, and returns what `answered` makes of the answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from abreast import ContextError, RunContext, StateSchemaError
from abreast.agents.nodes import PreparedCall
from abreast.langgraph import SyncState
from abreast.testing import ScriptedModel, calls
from planner import CONTEXT
from talk import CORNERS, TOOL_CALL, Broken, Talk, snapshots, write_tool


def model_node(talk: Talk, *, reads: Any = SyncState, context: Any = CONTEXT, **asked: Any) -> Any:
    """A node of either door that asks the model; `reads` is the state that it says it reads."""

    def node(state, config: RunnableConfig) -> dict[str, Any]:
        call = talk.hub.blocking.prepare(state, config, context=context, **asked)
        return call.answered(talk.model.invoke(call.messages))

    async def anode(state, config: RunnableConfig) -> dict[str, Any]:
        call = await talk.hub.prepare(state, config, context=context, **asked)
        return await call.aanswered(await talk.model.ainvoke(call.messages))

    made = node if talk.door.kind == "sync" else anode
    made.__annotations__["state"] = reads
    return made


def graph_of(talk: Talk, *tools: Any, state: Any = SyncState, direct: bool = False, **node: Any) -> Any:
    """A model node and a tool node that call each other; with `direct` the tools' results are the answer."""
    graph = StateGraph(state, context_schema=RunContext)
    graph.add_node("model", model_node(talk, **node))
    graph.add_edge("__start__", "model")
    if tools:
        graph.add_node("tools", ToolNode(tools))
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "__end__" if direct else "model")
    return graph.compile(checkpointer=talk.saver)


def test_a_graph_is_told_and_moves_as_an_agent_does(database, hubs, door, checkpointer):
    talk = Talk(database, hubs, door, saver=checkpointer)
    graph = graph_of(talk, write_tool(lambda: talk.sql("update item set done = true where id = 1")))
    talk.run(agent=graph)
    talk.change()
    talk.say(TOOL_CALL, "done")
    result = talk.run(agent=graph)
    assert [talk.revisions(1), talk.revisions(2)] == [[4], [4, 5]]
    assert (result.status, result.told, talk.place(), set(result.state)) == ("succeeded", {"w1": 5}, 5, {"messages"})
    marked = [one.values.get("abreast_told", {}).get("w1", [None] * 3)[:3] for one in snapshots(door, graph)]
    assert marked[0] == [result.run, 3, 5]
    assert "CURRENT" not in str(snapshots(door, graph))
    talk.run(agent=graph)
    assert talk.revisions() == []


@CORNERS
def test_a_graph_that_fails_is_told_again(database, hubs, door):
    talk = Talk(database, hubs, door)
    graph = graph_of(talk, write_tool(lambda: None))
    talk.run(agent=graph)
    talk.change()
    talk.say(Broken(), "", TOOL_CALL, Broken(), "done")
    with pytest.raises(Broken):
        talk.run(agent=graph)
    assert talk.run(agent=graph).status == "failed"
    with pytest.raises(Broken):
        talk.run(agent=graph)
    assert [talk.revisions(n) for n in (1, 2, 3, 4)] == [[4]] * 4
    assert talk.place() == 3
    assert talk.run(agent=graph).told == {"w1": 4}


@CORNERS
def test_a_graph_may_end_in_a_tools_result(database, hubs, door):
    """Only the runner can say that this was the answer; then the next run goes on behind it."""
    talk = Talk(database, hubs, door)
    graph = graph_of(talk, write_tool(lambda: None), direct=True)
    talk.run(agent=graph)
    for n in (4, 5):
        talk.change(str(n))
        talk.say(TOOL_CALL)
        assert talk.run(agent=graph).told == {"w1": n}
        assert talk.revisions() == [n]
    for n in (6, 7):
        talk.change(str(n))
        talk.say(TOOL_CALL)
        talk.invoke(agent=graph)
    assert talk.revisions() == [7]
    assert 'title is now "7" (was "5")' in talk.block()  # told from where the last run was confirmed
    assert talk.place() == 5


@CORNERS
def test_a_graph_without_the_runner_confirms_with_its_next_run(database, hubs, door):
    talk = Talk(database, hubs, door)
    graph = graph_of(talk)
    told = []
    for _ in range(3):
        talk.invoke(agent=graph)
        told.append((talk.revisions(), talk.place()))
        talk.change(f"change {len(told)}")
    assert told == [([], None), ([4], 3), ([5], 4)]


@CORNERS
def test_a_graph_that_waits_for_a_person(database, hubs, door):
    talk = Talk(database, hubs, door)

    def gated() -> str:
        return str(interrupt("may I?"))

    graph = graph_of(talk, write_tool(gated))
    talk.run(agent=graph)
    talk.change()
    talk.say(TOOL_CALL, "done")
    assert talk.run(agent=graph).status == "awaiting_approval"
    talk.sql("update item set done = true where id = 1")
    result = talk.run(Command(resume="yes"), agent=graph)
    assert (talk.revisions(), result.told) == ([4, 5], {"w1": 5})


@CORNERS
def test_a_state_without_the_marks_place_is_an_error_that_says_so(database, hubs, door):
    """LangGraph would drop the mark without a word; also where only the node says that it reads less."""
    talk = Talk(database, hubs, door)
    for graph in (graph_of(talk, state=MessagesState, reads=MessagesState), graph_of(talk, reads=MessagesState)):
        with pytest.raises(StateSchemaError, match="SyncState"):
            talk.run(agent=graph)
    assert talk.model.requests == []


@CORNERS
@pytest.mark.parametrize("placement", ["tail", "system"])
def test_a_system_message_at_the_front_stays_there(database, hubs, door, placement):
    talk = Talk(database, hubs, door, placement=placement)
    talk.run([SystemMessage("Be brief."), ("user", "q")], agent=graph_of(talk))
    system, question = talk.model.requests[0]
    assert (system.type, question.type) == ("system", "human")
    assert ("CURRENT" in system.text, "CURRENT" in question.text) == (placement == "system", placement == "tail")
    assert system.text.startswith("Be brief.")


@CORNERS
def test_a_system_placement_makes_a_message_where_there_is_none(database, hubs, door):
    talk = Talk(database, hubs, door, placement="system")
    talk.run(agent=graph_of(talk))
    assert [message.type for message in talk.model.requests[0]] == ["system", "human"]
    talk.run()
    assert [message.type for message in talk.model.requests[1]] == ["system", "human", "ai", "human"]


class Speaking(ScriptedModel):
    """A chat model of OpenAI's protocol, at OpenAI's address."""

    root_client: Any = SimpleNamespace(base_url="https://api.openai.com/v1/")


@CORNERS
@pytest.mark.parametrize("known", [False, True])
def test_after_tools_a_node_asks_the_model_that_it_was_given(database, hubs, door, known):
    talk = Talk(database, hubs, door, TOOL_CALL, "done")
    talk.run(agent=graph_of(talk, write_tool(talk.change), **({"model": Speaking()} if known else {})))
    last = talk.model.requests[1][-1]
    assert last.type == ("human" if known else "tool")
    assert "\n\nCURRENT" in last.text


@CORNERS
def test_without_a_context_a_node_gets_nothing(database, hubs, door):
    talk = Talk(database, hubs, door)
    with pytest.raises(ContextError):
        talk.run(agent=graph_of(talk, context=None))
    assert talk.model.requests == []


@CORNERS
def test_a_subgraph_is_told_as_its_parent_is(database, hubs, door):
    """The same state, one floor down: its mark reaches the parent's checkpoint."""
    talk = Talk(database, hubs, door)
    saver, talk.saver = talk.saver, None
    inner = graph_of(talk, write_tool(lambda: None))
    outer = StateGraph(SyncState, context_schema=RunContext)
    outer.add_node("inner", inner)
    outer.add_edge("__start__", "inner")
    graph = outer.compile(checkpointer=saver)
    talk.run(agent=graph)
    talk.change()
    talk.say(TOOL_CALL, "done")
    assert (talk.run(agent=graph).told, talk.revisions()) == ({"w1": 4}, [4])
    assert talk.mark(agent=graph)["w1"][1:3] == [3, 4]
    talk.run(agent=graph)
    assert talk.revisions() == []


def test_a_prepared_call_keeps_the_given_messages_untouched(sqlite, hubs, door):
    talk = Talk(sqlite, hubs, door)
    seen: list[PreparedCall] = []

    def node(state: SyncState, config: RunnableConfig) -> dict[str, Any]:
        before = str(state["messages"])
        call = talk.hub.blocking.prepare(state, config, context=CONTEXT)
        assert str(state["messages"]) == before
        seen.append(call)
        return call.answered(calls("nothing"))

    graph = StateGraph(SyncState)
    graph.add_node("model", node)
    graph.add_edge("__start__", "model")
    talk.run(agent=graph.compile())
    assert "CURRENT" in str(seen[0].messages)
