"""What looks like a mistake with tools and is none: the rules AB301 to AB314 stay silent where it is not certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, LLMToolSelectorMiddleware
from langchain.tools import InjectedState, InjectedToolCallId, ToolRuntime, tool
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ConfigDict, Field

from abreast.doctor import examine
from abreast.doctor.bindings import bindings
from abreast.doctor.subject import examine as taken_apart


class State(MessagesState):
    step: int


@dataclass
class Context:
    tenant_id: str
    user_id: str
    user_role: str = ""


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> RunnableBinding:
        given = [convert_to_openai_tool(one) for one in tools]
        return RunnableBinding(bound=self, kwargs={"tools": given, **options})


@tool
def look(what: str) -> str:
    """Looks something up in the handbook."""
    return what


@tool
def clock() -> str:
    """The clock."""
    return "12:00"


@tool
def moves_elsewhere(what: str) -> Command:
    """Hands the conversation to the parent graph."""
    return Command(graph=Command.PARENT, update={"step": 1})


@tool
def answers_in_a_variable(what: str, runtime: ToolRuntime) -> Command:
    """Sets the step and says so in a message made before."""
    messages = [ToolMessage(what, tool_call_id=runtime.tool_call_id)]
    return Command(update={"step": 1, "messages": messages})


@tool
def an_update_made_elsewhere(what: str, runtime: ToolRuntime) -> Command:
    """Sets the step with an update of a helper."""
    return Command(update=made(what, runtime.tool_call_id))


def made(what: str, call: str) -> dict:
    return {"step": 1, "messages": [ToolMessage(what, tool_call_id=call)]}


@tool
def only_goes_on(what: str) -> Command:
    """Goes to another node without an update."""
    return Command(goto="other")


@tool
def a_copy_of_the_state(what: str, runtime: ToolRuntime) -> str:
    """Works on a copy of what it was given."""
    state = dict(runtime.state)
    state["step"] = 2
    return what


@tool
def returns_what_it_changed(what: str, runtime: ToolRuntime) -> Command:
    """Changes the state that it was given, and returns the change."""
    runtime.state["step"] = 2
    return Command(update={"step": 2, "messages": [ToolMessage(what, tool_call_id=runtime.tool_call_id)]})


class Machine:
    def __init__(self) -> None:
        self.state: dict = {}


machine = Machine()


@tool
def state_of_something_else(what: str) -> str:
    """Sets the state of a machine, which is no graph."""
    machine.state["on"] = what
    return what


@tool
def injected(
    what: str, tool_call_id: Annotated[str, InjectedToolCallId], state: Annotated[State, InjectedState], tenant: str = ""
) -> str:
    """Takes the state and the id of its call without the model."""
    return what


@tool
def user_to_look_up(user_id: str) -> str:
    """A person of the product by the id, whoever asks."""
    return user_id


@tool
def anything(what: Any) -> str:
    """Notes whatever it is given."""
    return str(what)


class Given(BaseModel):
    what: Any = Field(description="Anything that can be noted.")


@tool(args_schema=Given)
def schema_of_its_own(what) -> str:
    """Notes whatever it is given, by a schema of its own."""
    return str(what)


class Odd:
    """No type that a schema can say."""


class Unwritable(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    odd: Odd


@tool(args_schema=Unwritable)
def no_schema_can_be_written(odd: Odd) -> str:
    """Takes what no model can send."""
    return str(odd)


@tool
def answers_key_by_key(what: str, runtime: ToolRuntime) -> Command:
    """Sets the step, and puts the answer into the update afterwards."""
    update: dict[str, Any] = {}
    update["step"] = 1
    update["messages"] = [ToolMessage(what, tool_call_id=runtime.tool_call_id)]
    return Command(update=update)


@tool
def an_update_that_is_handed_on(what: str, runtime: ToolRuntime) -> Command:
    """Sets the step; a helper puts the answer into the update."""
    update: dict[str, Any] = {"step": 1}
    answered(update, what, runtime.tool_call_id)
    return Command(update=update)


def answered(update: dict[str, Any], what: str, call: str) -> None:
    update["messages"] = [ToolMessage(what, tool_call_id=call)]


class Query(BaseModel):
    sql: str = Field(description="One SELECT over the table plan, at most 100 rows. Example: select * from plan limit 5")


@tool("run_sql", args_schema=Query, description="Run SQL.")
def told_by_its_parameter(sql: str) -> str:
    return sql


@tool
def convert_temperature(unit: Literal["C", "F"], value: float) -> str:
    """Convert a temperature."""
    return f"{value} {unit}"


@tool
def read_day(day: Annotated[str, Field(description="A day, such as 2026-05-03.")]) -> str:
    """Read the day."""
    return day


@tool
def find_order_by_its_number(number: int) -> str:
    """Find the order by its number."""
    return str(number)


@tool
def grant(user: str, user_role: str, runtime: ToolRuntime[Context]) -> str:
    """Gives a colleague another place in the team."""
    return "Done." if runtime.context.user_id == "admin" else "Not allowed."


@tool
def usage(tenant_id: str) -> str:
    """How much storage a tenant uses, by the id that list_tenants shows. For operators only."""
    return tenant_id


@tool
def trace(tool_call_id: str) -> str:
    """Shows the trace of an earlier call by its id, as the monitoring page prints it."""
    return tool_call_id.upper()


SINGLE = [
    answers_key_by_key,
    an_update_that_is_handed_on,
    told_by_its_parameter,
    convert_temperature,
    read_day,
    find_order_by_its_number,
    grant,
    usage,
    trace,
    look,
    clock,
    moves_elsewhere,
    answers_in_a_variable,
    an_update_made_elsewhere,
    only_goes_on,
    a_copy_of_the_state,
    returns_what_it_changed,
    state_of_something_else,
    injected,
    user_to_look_up,
    anything,
    schema_of_its_own,
]


@pytest.mark.parametrize("one", SINGLE, ids=lambda one: one.name)
def test_a_tool_that_is_fine_is_not_found(one: BaseTool):
    builder = StateGraph(State, context_schema=Context)
    builder.add_node("tools", ToolNode([one])).add_edge(START, "tools")
    assert examine(builder).findings == ()
    assert examine(create_agent(GenericFakeChatModel(messages=iter([])), [one], state_schema=State)).findings == ()


@tool
def key_by_key(what: str, runtime: ToolRuntime) -> Command:
    """Sets the step, key by key."""
    update = {}
    update["step"] = 1
    return Command(update=update)


@tool
def one_of_two(what: str) -> Command:
    """Sets the step in one of two ways."""
    return Command(update=dict(step=1)) if what else Command(update={"step": 2})


@tool
def in_a_list(what: str) -> list:
    """Sets the step with a list of updates."""
    return [Command(update={"step": 1})]


@tool
def by_another_name(what: str, runtime: ToolRuntime) -> str:
    """Sets the step in what it was given, by another name."""
    state = runtime.state
    state["step"] = 2
    return what


@tool
def findNotes(text: str) -> str:  # a name as other languages write it
    """Find the notes."""
    return text


@tool
def invoices(month: str, tenant_id: str) -> str:
    """The invoices of a month, such as 2026-05."""
    return tenant_id


@tool
def answers_by_itself(what: str, tool_call_id: str) -> Command:
    """Sets the step and answers under an id that the model makes up."""
    return Command(update={"step": 1, "messages": [ToolMessage(what, tool_call_id=tool_call_id)]})


WRONG = [
    (key_by_key, "AB302"),
    (one_of_two, "AB302"),
    (in_a_list, "AB302"),
    (by_another_name, "AB304"),
    (findNotes, "AB309"),
    (invoices, "AB311"),
    (answers_by_itself, "AB311"),
]


@pytest.mark.parametrize(("one", "code"), WRONG, ids=lambda one: getattr(one, "name", ""))
def test_a_tool_that_is_wrong_is_found(one: BaseTool, code: str):
    builder = StateGraph(State, context_schema=Context).add_node("tools", ToolNode([one])).add_edge(START, "tools")
    assert {finding.code for finding in examine(builder).findings} == {code}


def many(number: int) -> list[BaseTool]:
    def made(at: int) -> BaseTool:
        def run(query: str) -> str:
            return f"{at}: {query}"

        text = "Looks up a thing in the register. " * 30
        return StructuredTool.from_function(run, name=f"part_{at}", description=text)

    return [made(at) for at in range(number)]


class Chooses(AgentMiddleware):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=request.tools[:3]))


class OnlyBefore(AgentMiddleware):
    def before_model(self, state: Any, runtime: Any) -> None:
        return None


def codes_of_agent(*middleware: AgentMiddleware) -> set[str]:
    model = GenericFakeChatModel(messages=iter([]))
    return {one.code for one in examine(create_agent(model, many(40), middleware=middleware)).findings}


def test_tools_that_a_middleware_may_choose_from_are_not_judged_together():
    model = GenericFakeChatModel(messages=iter([]))
    assert codes_of_agent() == codes_of_agent(OnlyBefore()) == {"AB312", "AB313"}
    assert codes_of_agent(Chooses()) == codes_of_agent(LLMToolSelectorMiddleware(model=model, max_tools=3)) == set()


def test_a_tool_node_alone_says_nothing_about_what_the_model_is_given():
    tools = many(40)
    builder = StateGraph(State).add_node("tools", ToolNode(tools)).add_edge(START, "tools")
    assert examine(builder).findings == ()
    assert {one.code for one in examine(loop(tools, ToolNode(tools))).findings} == {"AB312", "AB313"}
    assert "AB313" not in {one.code for one in examine(loop(tools[:2], ToolNode(tools))).findings}


def test_a_tool_without_a_schema_crashes_no_rule():
    report = examine(StateGraph(State).add_node("tools", ToolNode([no_schema_can_be_written])).add_edge(START, "tools"))
    assert report.findings == ()
    assert report.notes == ()


def test_tools_that_differ_in_a_parameter_can_be_told_apart():
    @tool
    def by_name(name: str) -> str:
        """Finds a person."""
        return name

    @tool
    def by_number(number: int) -> str:
        """Finds a person."""
        return str(number)

    builder = StateGraph(State).add_node("tools", ToolNode([by_name, by_number])).add_edge(START, "tools")
    assert examine(builder).findings == ()


# -- loops ---------------------------------------------------------------------------------------------------------------


def loop(bound: list[Any], run: Any, *, router: Any = tools_condition, back: bool = True, **options: Any) -> StateGraph:
    """A model with tools and whatever runs them."""
    model = Model(messages=iter([])).bind_tools(bound, **options)

    def chat(state: State) -> dict:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(State).add_node("chat", chat).add_node("tools", run).add_edge(START, "chat")
    builder.add_conditional_edges("chat", router, ["tools", END])
    return builder.add_edge("tools", "chat") if back else builder


def finishes(state: State) -> str:
    calls = state["messages"][-1].tool_calls
    return END if not calls or calls[0]["name"] == "clock" else "tools"


def by_hand(state: State) -> dict:
    return {
        "messages": [ToolMessage(look.invoke(one["args"]), tool_call_id=one["id"]) for one in state["messages"][-1].tool_calls]
    }


def passes_on(state: State) -> dict:
    found = []
    for one in state["messages"][-1].tool_calls:
        result = returns_what_it_changed.invoke(one["args"])
        found.append(result if isinstance(result, Command) else ToolMessage(result, tool_call_id=one["id"]))
    return {"messages": found}


def test_the_tools_of_a_binding_in_a_closure_are_seen():
    (one,) = bindings(taken_apart(loop([look, clock], ToolNode([look, clock]))))
    assert one.names == {"look", "clock"}
    assert one.known
    assert not one.forced


LOOPS = {
    "the same list": lambda: loop([look, clock], ToolNode([look, clock])),
    "a router that takes one tool for the end": lambda: loop([look, clock], ToolNode([look]), router=finishes),
    "a node that runs tools by hand": lambda: loop([look, clock], by_hand),
    "a node that passes a Command on": lambda: loop([look], passes_on),
    "tools of the provider": lambda: loop([look, {"type": "web_search", "name": "web_search"}], ToolNode([look])),
    "a forced call for structured output": lambda: loop([look, clock], ToolNode([look]), tool_choice="clock"),
    "the edge to the end is written": lambda: loop([look], ToolNode([look]), back=False).add_edge("tools", END),
    "a wrapper that may run others": lambda: loop(
        [look, clock], ToolNode([look], wrap_tool_call=lambda request, execute: execute(request))
    ),
}


@pytest.mark.parametrize("kind", list(LOOPS))
def test_a_loop_that_is_fine_is_not_found(kind: str):
    findings = [one for one in examine(LOOPS[kind]()).findings if one.code.startswith("AB3")]
    assert findings == []


def test_a_tool_node_that_leads_on_by_itself_is_no_dead_end():
    assert "AB307" not in {one.code for one in examine(loop([only_goes_on], ToolNode([only_goes_on]), back=False)).findings}


def speaks(state: State) -> dict:
    return {"step": 1}


def asks(state: State) -> dict:
    return {"messages": [("user", interrupt("And now?"))]}


def test_a_circle_without_tools_is_not_looked_at():
    builder = StateGraph(State).add_node("speaks", speaks).add_node("again", speaks)
    builder.add_edge(START, "speaks").add_edge("speaks", "again").add_edge("again", "speaks")
    assert "AB308" not in {one.code for one in examine(builder).findings}


def test_a_circle_that_waits_for_a_person_is_a_conversation():
    builder = StateGraph(State).add_node("asks", asks).add_node("speaks", speaks)
    builder.add_edge(START, "asks").add_edge("asks", "speaks").add_edge("speaks", "asks")
    assert "AB308" not in {one.code for one in examine(builder).findings}


def test_a_model_whose_calls_the_caller_runs_is_not_certain():
    """This file reads tool calls, so nothing is said about a graph without a tool node."""
    model = Model(messages=iter([AIMessage("")])).bind_tools([state_of_something_else])

    def chat(state: State) -> dict:
        return {"messages": [model.invoke(state["messages"])]}

    assert examine(StateGraph(State).add_node("chat", chat).add_edge(START, "chat")).findings == ()
