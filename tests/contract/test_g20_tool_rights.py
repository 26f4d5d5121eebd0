"""G20 for `hub.tool`: who may call a tool and in which workspace, and what the model sees of a function."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import InjectedState, ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field

from abreast import AsyncTransaction, ConfigurationError, MutationId, RunContext, Transaction, agent
from abreast.testing import calls
from caller import append, by_hand, call, title, writing
from planner import CONTEXT, Plan, declare
from talk import CORNERS, Talk


def told(result) -> dict[str, ToolMessage]:
    return {m.tool_call_id: m for m in result.state["messages"] if isinstance(m, ToolMessage)}


@dataclass(frozen=True)
class Several:
    workspaces: tuple[str, ...]


def _over_18(context: Any) -> bool:
    return context.user == "u_1"


@CORNERS
@pytest.mark.parametrize("permission", ["plan.write", _over_18], ids=["named", "function"])
def test_g20_a_person_without_the_permission_is_told_what_is_missing_and_nothing_runs(database, hubs, door, permission):
    talk = Talk(database, hubs, door)
    ran: list[str] = []

    def body(tx, text):
        ran.append(text)
        return "done"

    built = talk.build([writing(talk, "put", body, permission=permission)])
    talk.say(calls("put", text="1"), "ok", calls("put", text="2"), "ok")
    allowed = RunContext("t1", "u_1", "w1", frozenset({"plan.write"}))
    refused = RunContext("t1", "u_2", "w1", frozenset({"plan.writer"}))
    answer = told(talk.run(agent=built, thread="a", context=refused))["call_1"]
    wanted = permission if isinstance(permission, str) else "_over_18"
    assert answer.status == "error"
    assert f"lacks the permission {wanted}" in answer.content
    assert ran == []
    assert told(talk.run(agent=built, thread="b", context=allowed))["call_1"].content == "done"
    assert ran == ["2"]


@pytest.mark.parametrize("context", [None, {}, {"permissions": None}, {"permissions": "plan.write"}, Several(())], ids=str)
@CORNERS
def test_g20_a_context_without_permissions_grants_none(database, hubs, door, context):
    talk = Talk(database, hubs, door)
    tool = writing(talk, "put", append, permission="plan.write")
    assert "lacks the permission" in call(door, tool, by_hand(context), text="!").content
    assert call(door, tool, by_hand({"permissions": ["plan.write"], "workspace": "w1"}), text="!").content == "done"


@CORNERS
def test_g20_the_workspace_comes_from_the_context_and_no_argument_reaches_outside(database, hubs, door, caplog):
    talk = Talk(database, hubs, door)
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w2', ''), ('p3', 'w3', '')")

    def body(tx, text):
        return tx.workspace

    chosen = writing(talk, "put", body, workspace=lambda context, arguments: arguments["text"])
    several = Several(("w1", "w2"))
    assert [call(door, chosen, by_hand(several), text=name).content for name in ("w1", "w2")] == ["w1", "w2"]
    outside = call(door, chosen, by_hand(several), text="w3")
    assert (outside.status, "w3 is not a workspace of this conversation" in outside.content) == ("error", True)
    plain = writing(talk, "put", body)
    assert call(door, plain, by_hand(Several(("w2",))), text="w1").content == "w2"
    caplog.clear()
    assert call(door, plain, by_hand(several), text="w1").status == "error"
    assert "names 2" in str(caplog.records[-1].exc_info)
    assert call(door, plain, by_hand(None), text="w1").status == "error"


# -- what the model sees of a function -------------------------------------------------------------------------------


class Period(BaseModel):
    begin: dt.date
    end: dt.date | None = None


@CORNERS
def test_g20_the_model_sees_the_arguments_and_what_is_said_of_them_and_nothing_else(database, hubs, door):
    talk = Talk(database, hubs, door)
    seen: list[Any] = []

    @talk.hub.tool(name="move_in", actor=agent("mover"))
    def move(
        tx: Transaction,
        period: Period,
        runtime: ToolRuntime,
        rooms: Annotated[int, Field(ge=1, description="Rooms, at least 1.")] = 2,
        *,
        note: str | None = None,
    ) -> dict[str, Any]:
        """Moves a household in.

        Args:
            tx: Not for the model.
            period: When, with
                both ends.
            note (str): What people should know.

        Example: {"period": {"begin": "2026-09-30"}} -> {"rooms": 2}
        """
        seen.append((period, rooms, note, runtime.context, runtime.tool_call_id))
        tx.get(Plan, "p1").title = "moved"
        return {"rooms": rooms}

    assert move.metadata == {"abreast": "function"}
    shown = convert_to_openai_tool(move)["function"]
    assert shown["name"] == "move_in"
    assert shown["description"].startswith("Moves a household in.")
    assert shown["description"].endswith('-> {"rooms": 2}')
    assert "Not for the model" not in json.dumps(shown)
    properties = shown["parameters"]["properties"]
    assert set(properties) == {"period", "rooms", "note"}
    assert [properties[name]["description"] for name in ("rooms", "note")] == ["Rooms, at least 1.", "What people should know."]
    assert "When, with both ends." in json.dumps(properties["period"])
    assert shown["parameters"]["required"] == ["period"]
    talk.say(calls("move_in", call_id="a", period={"begin": "2026-09-30"}), calls("move_in", call_id="b", period={}), "ok")
    result = talk.run(agent=talk.build([move]))
    assert seen == [(Period(begin=dt.date(2026, 9, 30)), 2, None, CONTEXT, "a")]
    assert told(result)["a"].content == '{"rooms": 2}'
    assert told(result)["b"].status == "error"
    assert talk.hub.blocking.history("w1", limit=1)[0].actor == agent("mover")


def test_g20_a_function_that_cannot_be_a_tool_is_refused_where_it_is_declared(database, hubs):
    hub = hubs(database)

    def without_docstring(tx: Transaction) -> str:
        return ""

    def untyped(tx: Transaction, text) -> str:  # type: ignore[no-untyped-def]
        """Writes."""
        return ""

    def wrong(tx: AsyncTransaction) -> str:
        """Writes."""
        return ""

    async def awrong(tx: Transaction) -> str:
        """Writes."""
        return ""

    def both(tx: Transaction, key: MutationId) -> str:
        """Writes."""
        return ""

    def many(*texts: str) -> str:
        """Writes."""
        return ""

    def named(config: str) -> str:
        """Writes."""
        return ""

    def optional(tx: Transaction | None = None) -> str:
        """Writes."""
        return ""

    def listed(keys: list[MutationId]) -> str:
        """Writes."""
        return ""

    def mapped(plan: Plan) -> str:
        """Writes."""
        return ""

    def function_of(what: Callable[[], str]) -> str:
        """Writes."""
        return ""

    def forged(context: dict[str, Any]) -> str:
        """Writes."""
        return ""

    def own(context: Several) -> str:
        """Writes."""
        return ""

    def stated(state: dict[str, Any]) -> str:
        """Writes."""
        return ""

    for function, words in (
        (optional, r"parameter tx .* is .*Transaction \| None.*stands alone"),
        (listed, "parameter keys .*stands alone"),
        (mapped, "parameter plan .* is Plan, which a model cannot give.*tx.get"),
        (function_of, "parameter what .* cannot give"),
        (forged, "context: RunContext"),
        (own, "runtime: ToolRuntime"),
        (stated, "runtime.state"),
        (without_docstring, "docstring"),
        (untyped, "no type"),
        (wrong, "its transaction is Transaction"),
        (awrong, "its transaction is AsyncTransaction"),
        (both, "two tools"),
        (many, "by name"),
        (named, "cannot be called config"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            hub.tool(function)


@dataclass(frozen=True)
class Staff(RunContext):
    """A run context of the application's own."""

    desk: str = ""


@CORNERS
@pytest.mark.parametrize("wanted", [RunContext, Staff])
def test_g20_a_run_context_comes_from_the_run_and_never_from_the_model(database, hubs, door, wanted, caplog):
    talk = Talk(database, hubs, door)
    seen: list[Any] = []

    def look(context, text: str) -> str:
        """Looks."""
        seen.append(context)
        return text

    look.__annotations__["context"] = wanted
    made = talk.hub.tool(look)
    assert set(convert_to_openai_tool(made)["function"]["parameters"]["properties"]) == {"text"}
    staff = Staff("t1", "u_1", "w1", desk="north")
    forged = calls("look", text="a", context={"tenant": "t9", "user": "u_9", "workspace": "w9"})
    talk.say(forged, "ok", forged, "ok")
    agent = create_agent(talk.model, [made], middleware=[talk.hub.middleware()], context_schema=Staff)
    assert told(talk.run(agent=agent, context=staff))["call_1"].content == "a"
    assert seen == [staff]
    answer = call(door, made, by_hand({"tenant": "t1", "user": "u_1", "workspace": "w1"}), text="a")
    assert answer.status == "error"
    assert f"takes a {wanted.__name__}, and the context of this run is dict" in str(caplog.records[-1].exc_info)
    assert seen == [staff]


@CORNERS
def test_g20_what_langgraph_fills_is_left_to_it(database, hubs, door):
    talk = Talk(database, hubs, door)

    @talk.hub.tool
    def count(state: Annotated[dict[str, Any], InjectedState], text: str) -> str:
        """Counts."""
        return str(len(state["messages"]))

    assert set(convert_to_openai_tool(count)["function"]["parameters"]["properties"]) == {"text"}
    talk.say(calls("count", text="a"), "ok")
    assert told(talk.run(agent=talk.build([count])))["call_1"].content == "2"


@CORNERS
def test_g20_a_tool_may_be_declared_before_the_last_table(database, hubs, door):
    talk = Talk(database, hubs, door)
    hub = hubs(database)

    @hub.tool
    def put(tx: Transaction) -> str:
        """Writes."""
        return append(tx, "!")

    declare(hub)
    assert call(door, put, by_hand()).content == "done"
    assert title(talk.engine) == "Mapo!"


def test_g20_an_asynchronous_function_under_a_synchronous_agent_is_langchains_own_error(database, hubs):
    hub = hubs(database)

    @hub.tool
    async def put(tx: AsyncTransaction) -> str:
        """Writes."""
        return ""

    with pytest.raises(NotImplementedError, match="sync"):
        put.invoke({})
