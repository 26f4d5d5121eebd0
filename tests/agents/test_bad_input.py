"""What a caller can get wrong: each is an error of its own before the model is asked, or is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware, before_model
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.types import Command
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from abreast import (
    ConfigurationError,
    ContextError,
    InputError,
    NotInstalledError,
    NotTrackedError,
    RunContext,
    UnknownEntityError,
    UnknownWorkspaceError,
)
from abreast.testing import calls
from planner import CONTEXT, Item, Plan, declare
from talk import CORNERS, TOOL_CALL, Talk, write_tool


class Base(DeclarativeBase):
    pass


class Stranger(Base):
    """A table that nobody tracks."""

    __tablename__ = "stranger"
    id: Mapped[int] = mapped_column(primary_key=True)


def context(workspace: str) -> RunContext:
    return RunContext("t1", "u_1", workspace)


@CORNERS
@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"context": context("nowhere")}, UnknownWorkspaceError, "There is no workspace"),
        ({"context": context("")}, UnknownWorkspaceError, "There is no workspace"),
        ({"context": context("w\0")}, InputError, "NUL"),
        ({"thread": "t\0"}, InputError, "NUL"),
        ({"thread": "t\ud800"}, InputError, "surrogate"),
        ({"thread": ""}, InputError, "needs a thread"),
        ({"context": None}, ContextError, "Pass context="),
        ({"context": object()}, ContextError, "names no workspace"),
        ({"context": {"workspaces": []}}, ContextError, "names no workspace"),
        ({"config": {"configurable": {"thread_id": "another"}}}, ConfigurationError, "another thread_id"),
    ],
    ids=["unknown", "empty", "NUL", "NUL thread", "surrogate", "no thread", "no context", "wrong context", "none", "thread_id"],
)
def test_a_run_is_refused_before_the_model_is_asked(database, hubs, door, given, error, said):
    talk = Talk(database, hubs, door)
    with pytest.raises(error, match=said):
        talk.run(**given)
    assert talk.model.requests == []
    assert door(talk.hub).standings("w1") == []


@CORNERS
def test_what_is_not_there_is_said_to_be_not_there(database, hubs, door):
    talk = Talk(database, hubs, door)
    hub = door(talk.hub)
    with pytest.raises(NotTrackedError, match="stranger is not tracked"):
        hub.rows(Stranger, "w1")
    with pytest.raises(NotTrackedError, match="stranger is not tracked"):
        hub.row(Stranger, "1", "w1")
    with pytest.raises(NotTrackedError, match="stranger is not tracked"):
        talk.hub.tools(Stranger)
    with pytest.raises(NotTrackedError, match="Tracked are: contact, item, plan"):
        hub.history("w1", entity_type="stranger")
    for entity_id in ("nobody", "", "p1 "):
        with pytest.raises(UnknownEntityError):
            hub.row(Plan, entity_id, "w1")
    for entity_id in ("abc", "99999999999999999999", "1.0", ""):
        with pytest.raises(UnknownEntityError):
            hub.row(Item, entity_id, "w1")
    with pytest.raises(UnknownWorkspaceError):
        hub.batch("nowhere")
    with pytest.raises(InputError, match="no field 'nonsense'"):
        hub.rows(Plan, "w1", match={"nonsense": 1})
    with pytest.raises(InputError, match="is not a date or time"):
        hub.history("w1", since="yesterday")


@CORNERS
def test_a_model_that_asks_for_nonsense_is_answered_and_goes_on(database, hubs, door):
    talk = Talk(database, hubs, door)
    asks = [
        calls("list_plan", match={"nonsense": 1}),
        calls("list_item", match={"done": "perhaps"}),
        calls("read_history", entity_type="stranger"),
        calls("read_history", since="yesterday"),
        calls("list_item", after="abc"),
    ]
    for number, ask in enumerate(asks):
        ask.tool_calls[0]["id"] = f"c{number}"
    talk.say(*asks, "I give up")
    result = talk.run(agent=talk.build(talk.hub.tools()))
    answers = [message.text for message in talk.model.requests[-1] if message.type == "tool"]
    assert len(answers) == len(asks)
    assert all(answer.startswith('{"error": ') for answer in answers)
    assert (result.status, result.answer) == ("succeeded", "I give up")


@CORNERS
def test_a_resume_without_context_is_refused(database, hubs, door):
    """It could otherwise go on as nobody, or as somebody else."""
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    talk = Talk(database, hubs, door, TOOL_CALL)
    written: list[int] = []
    agent = talk.build([write_tool(lambda: written.append(1))], before=[HumanInTheLoopMiddleware({"write": True})])
    talk.run(agent=agent)
    approve = Command(resume={"decisions": [{"type": "approve"}]})
    with pytest.raises(ContextError):
        talk.run(approve, agent=agent, context=None)
    assert written == []
    talk.run(approve, agent=agent)
    assert written == [1]


class Seen(BaseCallbackHandler):
    """What a callback of the caller's hears."""

    def __init__(self) -> None:
        self.tags: list[Any] = []
        self.metadata: list[Any] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, *, tags: Any = None, metadata: Any = None, **more: Any) -> None:
        self.tags += tags or []
        self.metadata.append(metadata)


@CORNERS
def test_what_a_caller_configures_reaches_the_graph_untouched(database, hubs, door):
    talk = Talk(database, hubs, door)
    seen = Seen()
    given = {
        "tags": ["mine"],
        "metadata": {"a": "b"},
        "callbacks": [seen],
        "configurable": {"own": "value"},
        "recursion_limit": 9,
    }
    configs: list[Any] = []

    @before_model
    def spy(state: Any, runtime: Any) -> None:
        from langgraph.config import get_config

        configs.append(get_config())

    before = repr({**given, "callbacks": None})
    talk.run(agent=talk.build(before=[spy]), config=given)
    assert repr({**given, "callbacks": None}) == before
    assert "mine" in seen.tags
    assert seen.metadata[0]["a"] == "b"
    assert (configs[0]["configurable"]["own"], configs[0]["configurable"]["thread_id"]) == ("value", "t")
    assert configs[0]["recursion_limit"] == 9
    talk.run(config={"configurable": {"thread_id": "t"}})  # the same thread twice is no conflict


@CORNERS
@pytest.mark.parametrize("form", ["text", "message", "messages", "tuples", "state", "dictionary"])
def test_an_input_may_have_any_form_that_a_graph_takes(database, hubs, door, form):
    from langchain_core.messages import HumanMessage

    forms: dict[str, Any] = {
        "text": "hello",
        "message": HumanMessage("hello"),
        "messages": [HumanMessage("hello", id="mine")],
        "tuples": [("user", "hello")],
        "state": {"messages": [HumanMessage("hello")]},
        "dictionary": {"messages": {"role": "user", "content": "hello"}},
    }
    talk = Talk(database, hubs, door)
    talk.run(forms[form])
    assert talk.model.last_request.startswith("CURRENT")
    assert talk.model.last_request.endswith("\n\nhello")
    talk.change()
    result = talk.run(forms[form])
    assert (result.answer, talk.revisions(), result.told) == ("ok", [4], {"w1": 4})


@CORNERS
def test_a_database_without_our_tables_says_what_to_do(database, hubs, door):
    from planner import Base as Tables

    engine = database.engine()
    Tables.metadata.create_all(engine)
    hub = declare(hubs(database))
    for go in (lambda: door(hub).run(None, "q", thread="t", context=CONTEXT), lambda: door(hub).batch("w1")):
        with pytest.raises(NotInstalledError, match=r"Run hub.install"):
            go()


class Behind(AgentMiddleware):
    """Another middleware around model calls."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


@CORNERS
def test_a_middleware_behind_ours_is_warned_of_once(database, hubs, door):
    talk = Talk(database, hubs, door)
    agent = talk.build(after=[Behind()])
    with pytest.warns(UserWarning, match="not the last middleware"):
        talk.run(agent=agent)
    talk.run(agent=agent)  # warnings are errors here: there is no second one
    talk.run(agent=talk.build(before=[Behind()]))
