"""G21: a gated tool runs only with a recorded approval for exactly this tool and these arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from abreast import ConfigurationError, Decision, MutationId, Policy, RunContext
from abreast.testing import ScriptedModel, calls
from caller import append, by_hand, call, runtime_of, writing
from gated import Asked, answers, foreign, rename, said, together
from planner import CONTEXT, planner
from talk import CORNERS, Talk

UNTOUCHED = "Mapo"


def test_g21_a_write_tool_waits_for_a_person_and_runs_once_approved(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    assert (asked.tool, asked.status, asked.call, asked.touches) == ("update_plan", "open", "c1", (("plan", "p1", 1),))
    assert asked.arguments == {"id": "p1", "version": 1, "title": "renamed"}
    assert asked.revisions == {"w1": 3}
    assert asked.policy["decisions"] == ["approve", "edit", "reject", "respond"]
    assert talk.title() == UNTOUCHED
    paused = talk.go()  # nobody has decided
    assert (paused.status, len(paused.interrupts)) == ("awaiting_approval", 1)
    assert paused.interrupts[0].value == {"approval": asked.id, "tool": "update_plan", "arguments": dict(asked.arguments)}
    assert talk.waiting(status=None) == [asked]
    decided = talk.decide(asked)
    assert (decided.status, decided.decision.by) == ("approved", "u_9")
    assert talk.title() == UNTOUCHED
    result = talk.go()
    assert result.status == "succeeded"
    assert talk.title() == "renamed"
    assert said(result)[0][0]["title"] == "renamed"
    assert len(talk.written()) == 1


@pytest.mark.parametrize("kind", ["transaction", "effect", "plain", "foreign", "foreign async"])
def test_g21_every_kind_of_tool_asks_by_itself(database, hubs, door, kind):
    talk = Asked(database, hubs, door)
    ran: list[str] = []

    def effect(key: MutationId, text: str) -> str:
        """Puts."""
        ran.append(text)
        return "done"

    def plain(text: str) -> str:
        """Puts."""
        ran.append(text)
        return "done"

    def note(tx, text):
        ran.append(text)
        return append(tx, text)

    made = {
        "transaction": lambda: writing(talk, "put", note, policy="ask"),
        "effect": lambda: talk.hub.tool(name="put", policy="ask")(effect),
        "plain": lambda: talk.hub.tool(name="put", policy="ask")(plain),
        "foreign": lambda: talk.hub.gate(foreign(lambda text: ran.append(text) or "done")),
        "foreign async": lambda: talk.hub.gate(foreign(lambda text: ran.append(text) or "done", asynchronous=True)),
    }
    if kind == "foreign async" and door.kind == "sync":
        kind = "foreign"
    tools = [made[kind]()]
    (first,) = talk.ask(calls("put", call_id="a", text="1"), tools=tools)
    assert ran == []
    talk.decide(first, "reject", message="Not today.")
    result = talk.go(tools=tools)
    assert result.status == "succeeded"
    assert ran == []
    told, status = said(result)[-1]
    assert (status, told["reason"], told["error"]) == ("error", "Not today.", "A person rejected this call. Nothing was done.")
    (second,) = talk.ask(calls("put", call_id="b", text="2"), tools=tools)
    talk.decide(second)
    assert talk.go(tools=tools).status == "succeeded"
    assert ran == ["2"]
    (third,) = talk.ask(calls("put", call_id="c", text="3"), tools=tools)
    talk.decide(third, "respond", message="I did it myself.")
    result = talk.go(tools=tools)
    assert (answers(result)[-1].content, answers(result)[-1].status) == ("I did it myself.", "success")
    assert ran == ["2"]
    (fourth,) = talk.ask(calls("put", call_id="d", text="4"), tools=tools)
    talk.decide(fourth, "edit", arguments={"text": "5"})
    result = talk.go(tools=tools)
    assert ran == ["2", "5"]
    assert json.loads(answers(result)[-1].content)["changed_by_person"]["arguments"] == {"text": "5"}
    assert [one.status for one in talk.waiting(status=None)] == ["rejected", "approved", "answered", "edited"]


def test_g21_an_edit_runs_with_what_the_person_put_and_the_model_is_told_so(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename("first"))
    talk.decide(asked, "edit", arguments={"id": "p1", "version": 1, "title": "better"})
    result = talk.go()
    assert talk.title() == "better"
    told, status = said(result)[0]
    assert (status, told["title"]) == ("success", "better")
    assert told["changed_by_person"]["arguments"] == {"id": "p1", "version": 1, "title": "better"}
    (kept,) = talk.waiting(status=None)
    assert (kept.arguments["title"], kept.decision.arguments["title"]) == ("first", "better")
    # The model makes its own call once more: that is not the one that was made, and nobody has allowed it (C25).
    (again,) = talk.ask(rename("first", version=4))
    assert again.id != asked.id
    assert talk.title() == "better"


def test_g21_the_original_call_after_an_edit_in_the_same_turn_asks_again(database, hubs, door):
    talk = Asked(database, hubs, door)
    put = writing(talk, "put", append, policy="ask")
    (asked,) = talk.ask(calls("put", call_id="a", text="100"), calls("put", call_id="b", text="100"), tools=[put])
    talk.decide(asked, "edit", arguments={"text": "50"})
    assert talk.go(tools=[put]).status == "awaiting_approval"
    assert talk.title() == "Mapo50"
    (again,) = talk.waiting()
    assert (again.arguments, again.call) == ({"text": "100"}, "b")
    talk.decide(again)
    assert talk.go(tools=[put]).status == "succeeded"
    assert talk.title() == "Mapo50100"


@pytest.mark.parametrize("kind", ["write", "function"])
def test_g21_the_same_approved_call_again_in_a_turn_asks_nobody_and_does_nothing(database, hubs, door, kind):
    talk = Asked(database, hubs, door)
    tools = talk.tools() if kind == "write" else [writing(talk, "put", append, policy="ask")]
    one = rename() if kind == "write" else calls("put", call_id="c1", text="!")
    again = one.model_copy(update={"tool_calls": [{**one.tool_calls[0], "id": "c2"}]})
    (asked,) = talk.ask(one, again, tools=tools)
    talk.decide(asked)
    result = talk.go(tools=tools)
    assert result.status == "succeeded"
    assert json.loads(answers(result)[1].content)["repeated"] is True
    assert len(talk.written()) == 1


# -- policies --------------------------------------------------------------------------------------------------------


@CORNERS
def test_g21_rules_look_at_arguments_and_context(database, hubs, door):
    seen: list[Any] = []

    def rule(arguments, context):
        seen.append((arguments["title"], context.user))
        return {"a": "allow", "b": "deny"}.get(arguments["title"], "ask")

    talk = Asked(database, hubs, door, policy={"update_plan": rule})
    talk.say(rename("a"), rename("b", version=4))
    result = talk.go("Please.")
    assert result.status == "succeeded"
    assert talk.title() == "a"
    assert [status for _, status in said(result)] == ["success", "error"]
    assert said(result)[1][0]["error"] == "update_plan is not allowed here. Nothing was done."
    assert talk.waiting(status=None) == []
    (asked,) = talk.ask(rename("c", version=4))
    assert seen[0] == ("a", "u_1")
    talk.decide(asked, "edit", arguments={"id": "p1", "version": 4, "title": "b"})
    result = talk.go()
    assert talk.title() == "a"  # what is denied is denied to whoever edits, too
    assert "not allowed" in said(result)[-1][0]["error"]


@CORNERS
@pytest.mark.parametrize("kind", ["raises", "nonsense", "none", "asynchronous"])
def test_g21_a_rule_that_fails_lets_nothing_through(database, hubs, door, kind, caplog):
    def raises(arguments, context):
        raise ValueError("secret")

    async def asynchronous(arguments, context):
        return "allow"

    rules = {"raises": raises, "nonsense": lambda a, c: True, "none": lambda a, c: None, "asynchronous": asynchronous}
    talk = Asked(database, hubs, door, policy={"update_plan": rules[kind]})
    talk.say(rename())
    result = talk.go("Please.")
    assert talk.title() == UNTOUCHED
    assert said(result)[0][1] == "error"
    assert "secret" not in answers(result)[0].content
    assert talk.waiting(status=None) == []
    assert any("update_plan" in str(record.exc_info) for record in caplog.records)


def test_g21_a_policy_that_says_nothing_or_names_nothing_stops_the_start(sqlite, hubs):
    hub, _ = planner(sqlite, hubs)
    with pytest.raises(ConfigurationError, match="policy names 'update_plans', and there is no such tool"):
        hub.tools(policy={"update_plans": "ask"})
    for wrong in ("maybe", None, 3, Policy("never"), Policy(deciders="approver"), Policy(decisions=frozenset({"maybe"}))):
        with pytest.raises(ConfigurationError, match=r"update_plan|decision"):
            hub.tools(policy={"update_plan": wrong})
    for wrong in (Policy(decisions=frozenset()), Policy(expires=0), Policy(own=False, deciders=frozenset())):
        with pytest.raises(ConfigurationError, match="update_plan"):
            hub.tools(policy={"update_plan": wrong})
    (made, *_) = hub.tools()
    with pytest.raises(ConfigurationError, match="asks by itself"):
        hub.gate(made)
    with pytest.raises(ConfigurationError, match="approvals is one of strict, writes, named"):
        hubs(sqlite, approvals="sometimes")


@CORNERS
def test_g21_by_default_what_writes_asks_and_what_reads_does_not(database, hubs, door):
    talk = Talk(database, hubs, door, approvals="writes")

    @talk.hub.tool
    def look(text: str) -> str:
        """Looks."""
        return text

    @talk.hub.tool
    def mail(key: MutationId, to: str) -> str:
        """Sends."""
        return "sent"

    put = writing(talk, "put", append)
    talk.say(
        together(
            calls("look", call_id="look", text="x"),
            calls("get_plan", call_id="get", id="p1"),
            calls("mail", call_id="mail", to="x"),
            calls("put", call_id="put", text="!"),
            rename(call_id="rename"),
        )
    )
    result = talk.run(agent=talk.build([look, mail, put, *talk.hub.tools()]))
    assert result.status == "awaiting_approval"
    assert sorted(one.call for one in door(talk.hub).approvals("t").items) == ["mail", "put", "rename"]
    assert sorted(one.tool_call_id for one in answers(result)) == ["get", "look"]
    asked = {one.call: one for one in door(talk.hub).approvals("t").items}
    assert asked["mail"].touches is None
    assert asked["rename"].touches == (("plan", "p1", 1),)


@CORNERS
def test_g21_strict_gates_every_tool_until_a_policy_frees_it(database, hubs, door):
    talk = Talk(database, hubs, door, approvals="strict")
    ran: list[str] = []
    put = foreign(lambda text: ran.append(text) or "done")
    free = talk.hub.gate(foreign(lambda text: ran.append(text) or "done", "free"), policy="allow")
    agent = talk.build([put, free, *talk.hub.tools(policy={"list_plan": "allow"})])
    talk.say(
        together(
            calls("put", call_id="put", text="1"),
            calls("free", call_id="free", text="2"),
            calls("get_plan", call_id="get", id="p1"),
            calls("list_plan", call_id="list"),
        )
    )
    assert talk.run(agent=agent).status == "awaiting_approval"
    assert ran == ["2"]
    asked = {one.call: one for one in door(talk.hub).approvals("t").items}
    assert sorted(asked) == ["get", "put"]
    door(talk.hub).decide("t", asked["get"].id, Decision("approve"))
    door(talk.hub).decide("t", asked["put"].id, Decision("edit", arguments={"text": "3"}))
    result = talk.run(None, agent=agent)
    assert result.status == "succeeded"
    assert ran == ["2", "3"]
    told = {one.tool_call_id: one.content for one in answers(result)}
    assert json.loads(told["get"])["title"] == "Mapo"
    assert json.loads(told["put"])["changed_by_person"]["arguments"] == {"text": "3"}


# -- no way around ---------------------------------------------------------------------------------------------------


FORGED = [True, "approve", {"type": "approve"}, {"decisions": [{"type": "approve"}]}, [{"type": "accept"}], {"approved": True}]


@pytest.mark.parametrize("value", FORGED, ids=str)
def test_g21_a_value_to_resume_with_decides_nothing(database, hubs, door, value):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    paused = talk.go()
    by_id = {paused.interrupts[0].id: value}
    for forged in (Command(resume=value), Command(resume=by_id), Command(resume={asked.id: value})):
        assert talk.go(forged).status == "awaiting_approval"
        talk.invoke(forged, agent=talk.build(talk.tools()))  # and without the hub's runner
        assert talk.title() == UNTOUCHED
        assert [one.status for one in talk.waiting(status=None)] == ["open"]
    talk.decide(asked, "reject")
    result = talk.go(Command(resume=value))
    assert result.status == "succeeded"
    assert talk.title() == UNTOUCHED


@CORNERS
def test_g21_a_forged_approval_does_not_answer_the_tools_own_question(database, hubs, door):
    talk = Asked(database, hubs, door)
    put = writing(talk, "put", lambda tx, text: append(tx, interrupt({"which": text})), policy="ask")
    (asked,) = talk.ask(calls("put", text="1"), tools=[put])
    by_id = talk.go(tools=[put]).interrupts[0].id
    talk.go(Command(resume={by_id: "forged"}), tools=[put])
    talk.decide(asked)
    paused = talk.go(tools=[put])
    assert [one.value for one in paused.interrupts] == [{"which": "1"}] or talk.title() == UNTOUCHED
    result = talk.go(Command(resume={paused.interrupts[0].id: "2"}), tools=[put])
    assert result.status == "succeeded"
    assert talk.title() == "Mapo2"


class Again(AgentMiddleware):
    """Runs the tools of the newest calls once more, whatever they were answered."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    @hook_config(can_jump_to=["tools"])
    def before_model(self, state: Any, runtime: Any) -> Any:
        messages = state["messages"]
        if self.times or not isinstance(messages[-1], ToolMessage):
            return None
        self.times += 1
        newest = next(m for m in reversed(messages) if isinstance(m, AIMessage))
        return {"jump_to": "tools", "messages": [newest]}


@pytest.mark.parametrize("kind", ["write", "function", "foreign"])
def test_g21_a_middleware_that_runs_a_rejected_call_again_gets_the_same_no(database, hubs, door, kind):
    """langchain#40491: `jump_to="tools"` behind a rejection (C23)."""
    talk = Asked(database, hubs, door)
    ran: list[str] = []
    made = {
        "write": talk.tools,
        "function": lambda: [writing(talk, "put", append, policy="ask")],
        "foreign": lambda: [talk.hub.gate(foreign(lambda text: ran.append(text) or "done"))],
    }
    tools = made[kind]()
    (asked,) = talk.ask(rename() if kind == "write" else calls("put", text="!"), tools=tools)
    talk.decide(asked, "reject")
    again = Again()
    talk.say("ok", "ok")
    result = talk.go(tools=tools, before=[again])
    assert again.times == 1
    assert result.status == "succeeded"
    assert (talk.title(), ran) == (UNTOUCHED, [])


class Renamed(AgentMiddleware):
    """A middleware that was not there before."""

    def before_model(self, state: Any, runtime: Any) -> Any:
        return None


class More(AgentState):
    """A state with a channel that was not there before."""

    topic: str


class WithChannel(AgentMiddleware):
    state_schema = More


DEPLOYMENTS = ["same", "allow", "deny", "middleware", "channel", "named"]


@pytest.mark.parametrize("deployed", DEPLOYMENTS)
@pytest.mark.parametrize("decided", ["reject", "approve"])
def test_g21_a_deployment_in_between_changes_nothing_of_what_a_person_decides(
    database, hubs, door, checkpointer, deployed, decided
):
    """M2 and C34: the gate is dropped, middlewares come and go, the state gets another channel."""
    talk = Asked(database, hubs, door, saver=checkpointer)
    (asked,) = talk.ask(rename())
    talk.renew(hubs(database))
    if deployed in ("allow", "deny"):
        talk.policy = {"update_plan": deployed}
    elif deployed == "named":
        talk.policy = {}  # nobody says anything of the tool any more
    before: list[Any] = [Renamed()] if deployed == "middleware" else []
    if deployed == "channel":
        before = [WithChannel()]
    assert [one.id for one in talk.waiting()] == [asked.id]
    talk.decide(asked, decided)
    talk.say("ok")
    result = talk.go(before=before)
    assert result.status == "succeeded"
    assert talk.title() == (UNTOUCHED if decided == "reject" else "renamed")
    assert len(talk.written()) == (decided == "approve")


@pytest.mark.parametrize("decided", ["reject", "approve"])
def test_g21_a_foreign_tool_whose_gate_was_dropped_heeds_what_was_decided(database, hubs, door, decided):
    talk = Asked(database, hubs, door)
    ran: list[str] = []
    put = foreign(lambda text: ran.append(text) or "done")
    (asked,) = talk.ask(calls("put", text="1"), tools=[talk.hub.gate(put)])
    assert talk.go(tools=[put]).status == "awaiting_approval"
    talk.decide(asked, decided)
    talk.say(calls("put", call_id="c2", text="2"))
    result = talk.go(tools=[put])
    assert result.status == "succeeded"
    assert ran == (["1", "2"] if decided == "approve" else ["2"])  # a new call is free: so it was deployed


def test_g21_so_does_one_in_a_graph_that_somebody_runs_by_himself(database, hubs, door):
    talk = Asked(database, hubs, door)
    ran: list[str] = []
    put = foreign(lambda text: ran.append(text) or "done")
    gated, free = talk.build([talk.hub.gate(put)]), talk.build([put])
    talk.say(calls("put", text="1"), "done")
    talk.invoke("Please.", agent=gated)
    (asked,) = talk.waiting()
    talk.decide(asked, "reject")
    talk.invoke(None, agent=free)
    assert ran == []
    talk.say(calls("put", call_id="c2", text="2"), "done")
    talk.invoke("Once more.", agent=free)
    assert ran == ["2"]


def test_g21_a_hand_made_graph_asks_without_the_middleware(database, hubs, door, checkpointer):
    talk = Asked(database, hubs, door, saver=checkpointer)
    graph = StateGraph(MessagesState, context_schema=RunContext)
    graph.add_node("model", lambda state: {"messages": [talk.model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(talk.tools()))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    built = graph.compile(checkpointer=checkpointer)
    talk.say(together(rename(), calls("get_plan", call_id="get", id="p1")), "done")
    talk.invoke("Please.", agent=built)
    (asked,) = talk.waiting()
    talk.invoke(Command(resume=True), agent=built)
    assert talk.title() == UNTOUCHED
    talk.decide(asked)
    state = talk.invoke(None, agent=built)
    assert talk.title() == "renamed"
    assert [m.status for m in state["messages"] if isinstance(m, ToolMessage)] == ["success", "success"]
    assert len(talk.written()) == 1


@pytest.mark.parametrize("decided", ["reject", "approve"])
def test_g21_a_tool_that_was_renamed_meanwhile_does_not_run(database, hubs, door, decided):
    talk = Asked(database, hubs, door)
    old = writing(talk, "put", append, policy="ask")
    (asked,) = talk.ask(calls("put", text="!"), tools=[old])
    talk.decide(asked, decided)
    result = talk.go(tools=[writing(talk, "put_text", append)])
    assert talk.title() == UNTOUCHED
    assert answers(result)[0].status == "error"


def test_g21_a_tool_with_other_arguments_meanwhile_runs_with_what_was_approved_or_not_at_all(database, hubs, door):
    talk = Asked(database, hubs, door)
    old = writing(talk, "put", append, policy="ask")
    (asked,) = talk.ask(calls("put", text="!"), tools=[old])
    talk.decide(asked, "edit", arguments={"text": "?"})

    if door.kind == "sync":

        @talk.hub.tool(name="put", policy="ask")
        def newer(text: int) -> str:
            """Puts."""
            talk.sql("update plan set title = 'never'")
            return "done"

    else:

        @talk.hub.tool(name="put", policy="ask")
        async def newer(text: int) -> str:
            """Puts."""
            talk.sql("update plan set title = 'never'")
            return "done"

    result = talk.go(tools=[newer])
    assert talk.title() == UNTOUCHED
    assert answers(result)[0].status == "error"


def test_g21_no_checkpointer_no_thread_and_no_graph_is_no_way_around(database, hubs, door):
    talk = Asked(database, hubs, door)
    talk.saver = None
    talk.say(rename())
    result = talk.go("Please.")
    assert result.status == "succeeded"
    told, status = said(result)[0]
    assert (told["error"], status) == (
        "update_plan needs a person's approval, and nobody can be asked for it here. Nothing was done.",
        "error",
    )
    put = writing(talk, "put", append, policy="ask")
    for runtime in (by_hand(), runtime_of(calls("put", call_id="a", text="!"))):
        answer = call(door, put, runtime, text="!")
        assert (json.loads(answer.content)["error"][:28], answer.status) == ("put needs a person's approva", "error")
    gated = next(one for one in talk.tools() if one.name == "update_plan")
    answer = call(door, gated, by_hand(), id="p1", version=1, title="!")
    assert answer.status == "error"
    assert talk.title() == UNTOUCHED
    assert talk.waiting(status=None) == []


# -- several calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1])
def test_g21_two_calls_of_one_message_are_decided_one_by_one_in_any_order(database, hubs, door, first):
    talk = Asked(database, hubs, door)
    talk.sql("insert into plan (id, workspace_id, title) values ('p2', 'w1', 'Mapo')")
    asked = talk.ask(together(rename("a", call_id="a"), rename("b", version=4, plan="p2", call_id="b")))
    asked.sort(key=lambda one: one.call or "")
    assert [one.call for one in asked] == ["a", "b"]
    talk.decide(asked[first])
    paused = talk.go()
    assert paused.status == "awaiting_approval"
    assert [talk.title("p1"), talk.title("p2")] == (["a", "Mapo"] if first == 0 else ["Mapo", "b"])
    talk.decide(asked[1 - first], "reject")
    result = talk.go()
    assert result.status == "succeeded"
    assert [talk.title("p1"), talk.title("p2")] == (["a", "Mapo"] if first == 0 else ["Mapo", "b"])
    assert len(talk.written()) == 1
    assert sorted(status for _, status in said(result)) == ["error", "success"]


def test_g21_one_gated_and_one_free_call_take_one_decision(database, hubs, door):
    """C26."""
    talk = Asked(database, hubs, door)
    ran: list[str] = []
    free = foreign(lambda text: ran.append(text) or "done", "free")
    tools = [free, *talk.tools()]
    (asked,) = talk.ask(together(calls("free", call_id="f", text="1"), rename()), tools=tools)
    assert ran == ["1"]
    talk.decide(asked)
    result = talk.go(tools=tools)
    assert result.status == "succeeded"
    assert {one.tool_call_id: one.status for one in answers(result)} == {"f": "success", "c1": "success"}
    assert (ran, talk.title()) == (["1"], "renamed")


def test_g21_a_second_gated_call_behind_a_resume_is_asked_for(database, hubs, door):
    """C27: the run pauses again, with the next request."""
    talk = Asked(database, hubs, door)
    (first,) = talk.ask(rename("a"), rename("b", version=4, call_id="c2"), "done")
    talk.decide(first)
    paused = talk.go()
    assert paused.status == "awaiting_approval"
    (second,) = talk.waiting()
    assert second.arguments["title"] == "b"
    assert paused.interrupts[0].value["approval"] == second.id
    talk.decide(second)
    assert talk.go().status == "succeeded"
    assert talk.title() == "b"


@pytest.mark.parametrize("decided", ["approve", "reject"])
def test_g21_a_tool_of_a_sub_agent_inside_a_tool_asks_too(database, hubs, door, decided):
    talk = Asked(database, hubs, door)
    put = writing(talk, "put", append, policy="ask")
    model = ScriptedModel(calls("put", call_id="inner", text="!"), "inner done", "inner done")
    inner = create_agent(model, tools=[put], middleware=[talk.hub.middleware()], context_schema=RunContext)
    given = {"messages": [("user", "Do it.")]}

    @tool
    def delegate(text: str) -> str:
        """Delegates."""
        return str(inner.invoke(given, context=CONTEXT)["messages"][-1].text)

    @tool("delegate")
    async def adelegate(text: str) -> str:
        """Delegates."""
        return str((await inner.ainvoke(given, context=CONTEXT))["messages"][-1].text)

    tools = [delegate if door.kind == "sync" else adelegate]
    (asked,) = talk.ask(calls("delegate", call_id="outer", text="x"), tools=tools)
    assert (asked.call, asked.thread) == ("inner", "t")
    assert talk.title() == UNTOUCHED
    talk.decide(asked, decided)
    result = talk.go(tools=tools)
    assert result.status == "succeeded"
    assert talk.title() == ("Mapo!" if decided == "approve" else UNTOUCHED)
    assert answers(result)[0].content == "inner done"


# -- while it waits --------------------------------------------------------------------------------------------------


def test_g21_a_right_that_is_withdrawn_while_it_waits_is_gone_when_it_runs(database, hubs, door):
    talk = Asked(database, hubs, door)
    put = writing(talk, "put", append, policy="ask", permission="edit")
    may = RunContext("t1", "u_1", "w1", frozenset({"edit"}))
    (asked,) = talk.ask(calls("put", text="!"), tools=[put], context=may)
    talk.decide(asked)
    result = talk.go(tools=[put], context=CONTEXT)
    assert talk.title() == UNTOUCHED
    assert "lacks the permission edit" in said(result)[0][0]["error"]


class Dies(AgentMiddleware):
    """Ends the run behind a tool that has done its work, as a process that is killed there."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = True

    def _fire(self) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        answer = handler(request)
        self._fire()
        return answer


@pytest.mark.parametrize("edited", [False, True])
@pytest.mark.parametrize("door", ["sync"], indirect=True)
def test_g21_what_was_approved_is_done_once_though_the_run_dies_behind_it(database, hubs, door, edited):
    talk = Asked(database, hubs, door)
    put = writing(talk, "put", append, policy="ask")
    (asked,) = talk.ask(calls("put", text="!"), tools=[put])
    if edited:
        talk.decide(asked, "edit", arguments={"text": "?"})
    else:
        talk.decide(asked)
    with pytest.raises(KeyboardInterrupt):
        talk.go(tools=[put], before=[Dies()])
    assert talk.title() == ("Mapo?" if edited else "Mapo!")
    result = talk.go(tools=[put])
    assert result.status == "succeeded"
    assert talk.title() == ("Mapo?" if edited else "Mapo!")
    assert len(talk.written()) == 1
    assert answers(result)[0].status == "success"


@CORNERS
def test_g21_a_new_message_leaves_a_request_behind_and_the_call_is_asked_for_again(database, hubs, door):
    talk = Asked(database, hubs, door)
    (asked,) = talk.ask(rename())
    talk.say("Something else.")
    assert talk.go("Something else?").status == "succeeded"
    assert talk.title() == UNTOUCHED
    (again,) = talk.ask(rename(call_id="c2"))
    assert again.id == asked.id  # it stands for the call that got no answer
    assert again.run != asked.run  # and this run waits for it now
    talk.decide(again)
    assert talk.go().status == "succeeded"
    assert len(talk.written()) == 1


@CORNERS
def test_g21_what_waits_is_the_conversations_own(database, hubs, door):
    """C29 and C30: nothing is kept on an agent or a middleware that others share."""
    talk = Asked(database, hubs, door)
    agent = talk.build(talk.tools())
    for number in range(5):
        talk.say(rename(f"t{number}"))
        assert talk.run("Please.", thread=f"t{number}", agent=agent).status == "awaiting_approval"
    for number in range(5):
        (asked,) = talk.waiting(f"t{number}")
        assert (asked.thread, asked.arguments["title"]) == (f"t{number}", f"t{number}")
    (third,) = talk.waiting("t3")
    talk.decide(third)
    assert talk.run(None, thread="t2", agent=agent).status == "awaiting_approval"
    assert talk.title() == UNTOUCHED
    assert talk.run(None, thread="t3", agent=agent).status == "succeeded"
    assert talk.title() == "t3"
