"""G8 and G10 where a summary or a window takes the finished answers out of the history: telling still goes on."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from abreast import RunContext
from abreast.testing import ScriptedModel
from planner import CONTEXT, planner


class Window(AgentMiddleware):
    """Keeps the last message alone."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), state["messages"][-1]]}


@pytest.mark.parametrize("by_runner", [True, False], ids=["hub.run", "agent.invoke"])
def test_g10_more_changes_than_the_limit_are_all_told_though_no_answer_stays_in_the_history(
    database, hubs, door, checkpointer, by_runner
):
    hub, engine = planner(database, hubs, limit=3)
    model = ScriptedModel()
    agent = create_agent(model, middleware=[Window(), hub.middleware()], context_schema=RunContext, checkpointer=checkpointer)

    def ask() -> str:
        if by_runner:
            assert door(hub).run(agent, "?", thread="t", context=CONTEXT).status == "succeeded"
        else:
            config = {"configurable": {"thread_id": "t"}}
            door.invoke(agent, {"messages": ["?"]}, config, context=CONTEXT)
        return model.last_request

    ask()
    with engine.begin() as connection:
        for number in range(8):
            connection.exec_driver_sql(f"update item set title = 'step {number}' where id = {1 + number % 2}")
    asked = [ask() for _ in range(4)]
    told = [[r for r in range(4, 12) if f"\nr{r}," in request] for request in asked]
    assert {revision for one in told for revision in one} >= {10, 11}, told  # the newest of each row; older ones are folded
    assert "CHANGES" not in asked[3]


def test_g9_a_crash_stays_a_crash_when_another_workspace_was_answered_since(database, hubs, door, checkpointer):
    """Run A follows two workspaces and crashes; run B follows one of them and ends; C must hear of the other again."""
    hub, engine = planner(database, hubs)
    with engine.begin() as connection:
        connection.exec_driver_sql("insert into plan (id, workspace_id, title) values ('q1', 'w2', 'old')")
    model = ScriptedModel()
    agent = create_agent(model, tools=hub.tools(), middleware=[hub.middleware()], checkpointer=checkpointer)
    config = {"configurable": {"thread_id": "t"}}

    def ask(*workspaces: str) -> Any:
        return door.invoke(agent, {"messages": ["?"]}, config, context={"workspaces": list(workspaces)})

    ask("w1", "w2")
    with engine.begin() as connection:
        connection.exec_driver_sql("update plan set title = 'new' where id = 'q1'")
    # A is told w2's change, asks for a tool that does not exist, and its next call fails.
    model.script = [AIMessage("", tool_calls=[{"name": "nothing", "args": {}, "id": "c"}]), RuntimeError("crash")]
    with pytest.raises(RuntimeError):
        ask("w1", "w2")
    ask("w1")
    ask("w2")
    assert 'title is now "new" (was "old")' in model.last_request
