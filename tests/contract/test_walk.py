"""The thin path through all floors: a change on the screen reaches the next answer, and the place moves."""

from __future__ import annotations

from langchain.agents import create_agent

from abreast import RunContext
from abreast.testing import ScriptedModel
from planner import CONTEXT, planner


def test_a_change_on_the_screen_reaches_the_next_model_call(database, hubs, door, checkpointer):
    hub, engine = planner(database, hubs)
    model = ScriptedModel("28 September", "30 September")
    agent = create_agent(model, middleware=[hub.middleware()], context_schema=RunContext, checkpointer=checkpointer)
    first = door(hub).run(agent, "When do I move in?", thread="b", context=CONTEXT)
    assert (first.status, first.told) == ("succeeded", {"w1": 3})
    with engine.begin() as connection:
        connection.exec_driver_sql("update plan set move_in_date = '2026-09-30' where id = 'p1'")
    second = door(hub).run(agent, "When do I move in?", thread="b", context=CONTEXT)
    assert (second.status, second.told) == ("succeeded", {"w1": 4})
    assert 'r4, unknown, plan p1: 입주일 (move_in_date) is now "2026-09-30" (was "2026-09-28")' in model.last_request
    assert [s.behind for s in door(hub).standings("w1")] == [0]
    assert door(hub).check() == []
