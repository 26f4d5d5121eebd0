"""What people see of a run: every event in order, nothing hidden, nothing twice."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.middleware.internal_call_transformer import internal_call_metadata
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from abreast.agents.gating import GATED
from abreast.agents.translating import WIDTH, Translator, uses
from abreast.errors import LeaseLostError
from abreast.records import Event, ToolUse
from abreast.testing import ScriptedModel, calls


class Speaking(ScriptedModel):
    """Streams what a ScriptedModel says, word by word. An exception in the script's text is raised in mid-answer."""

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **settings: Any) -> Iterator[Any]:
        self._requests.append(messages)
        answer = self.script.pop(0) if self.script else "ok"
        for chunk in answer if isinstance(answer, list) else _chunks(answer):
            if isinstance(chunk, Exception):
                raise chunk
            made = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(made.text, chunk=made)
            yield made


def _chunks(answer: str | AIMessage) -> list[AIMessageChunk]:
    message = answer if isinstance(answer, AIMessage) else AIMessage(answer)
    wanted = [
        {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
        for index, call in enumerate(message.tool_calls)
    ]
    words = [AIMessageChunk(piece) for piece in message.text.split("|") if piece]
    return [*words, *([AIMessageChunk("", tool_call_chunks=wanted)] if wanted else []), AIMessageChunk("", chunk_position="last")]


class Watch:
    """Runs of one agent, and the events of each."""

    def __init__(self, door: Any, agent: Any) -> None:
        self.door, self.agent = door, agent
        self.events: list[Event] = []
        self.history: list[Event] = []
        self.error: BaseException | None = None

    def run(self, input: Any = "What is left?", known: Sequence[ToolUse] = (), watch: Any = None) -> Watch:
        self.events, self.error = [], None
        self.translator = Translator("t_1", "r_1", watch(self) if watch else self.events.append, known)
        given = {"messages": [HumanMessage(input)]} if isinstance(input, str) else input
        config: Any = merge_configs({"configurable": {"thread_id": "t"}}, {"callbacks": self.translator.callbacks})
        options: Any = {"stream_mode": Translator.modes, "subgraphs": True, "durability": "sync"}

        async def through() -> None:
            async for part in self.agent.astream(given, config, **options):
                self.translator.part(*part)

        try:
            if self.door.kind == "sync":
                for part in self.agent.stream(given, config, **options):
                    self.translator.part(*part)
            else:
                self.door.wait(through())
        except Exception as error:
            self.error = error
        self.translator.finish(paused=bool(self.translator.interrupts))
        self.history = [*(self.history if known else ()), *self.events]
        without = [replace(use, result=None) for use in self.translator.tools]
        assert [replace(use, result=None) for use in uses(self.history)] == without
        for event in self.events:
            assert event.data["thread"] == "t_1"
            assert event.data["run"] == "r_1"
            assert json.loads(json.dumps(event.data, allow_nan=False)) == event.data
        return self

    def resume(self, value: Any = None) -> Watch:
        """The next attempt of the same run."""
        return self.run(Command(resume=value) if value is not None else None, known=uses(self.history))

    @property
    def told(self) -> list[str]:
        """The events without previews and stages: `started a`, in order."""
        return [f"{e.type.partition('.')[2]} {e.data['call']}" for e in self.events if e.type.startswith("tool.")]

    @property
    def stages(self) -> list[Any]:
        return [e.data["stage"] for e in self.events if e.type == "stage.changed"]

    @property
    def said(self) -> dict[str, str]:
        """What the previews amount to, message by message."""
        texts: dict[str, str] = {}
        for event in self.events:
            if event.type == "assistant.delta":
                texts[event.data["message"]] = texts.get(event.data["message"], "") + event.data["delta"]
        return texts

    def of(self, type: str) -> list[Any]:
        return [event.data for event in self.events if event.type == type]

    @property
    def all(self) -> str:
        return json.dumps([event.data for event in self.events])


@pytest.fixture
def watch(door: Any) -> Callable[[Any], Watch]:
    return lambda agent: Watch(door, agent)


@tool
def look(x: int) -> str:
    """Looks."""
    return json.dumps({"x": x})


@tool
def ask(x: int) -> str:
    """Asks a person."""
    return f"{x}: {interrupt({'x': x})}"


@tool
def broken(x: int) -> str:
    """Breaks."""
    raise RuntimeError("password=hunter2")


def call(name: str, id: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": id}


def both(first: str = "look", text: str = "") -> AIMessage:
    """An answer that calls two tools at once."""
    return AIMessage(text, tool_calls=[call(first, "a", x=1), call("look", "b", x=2)])


def agent(*script: Any, tools: Sequence[Any] = (look,), model: Any = Speaking, **settings: Any) -> Any:
    return create_agent(model(*script), list(tools), checkpointer=InMemorySaver(), **settings)


def by_hand(*script: Any, tools: Sequence[Any] = (look,)) -> Any:
    """A graph of a model's node and a tool's, as people make them."""
    model = Speaking(*script)
    graph = StateGraph(MessagesState)
    graph.add_node("call_model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_edge(START, "call_model")
    graph.add_conditional_edges("call_model", tools_condition)
    graph.add_edge("tools", "call_model")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("make", [agent, by_hand])
def test_every_tool_call_is_proposed_then_started_then_completed(watch: Any, make: Any) -> None:
    seen = watch(make(both(text="I |look."), "Two |are left.")).run()
    assert seen.told[:2] == ["proposed a", "proposed b"]
    for id in "ab":
        assert [one for one in seen.told if one.endswith(id)] == [f"proposed {id}", f"started {id}", f"completed {id}"]
    assert sorted((e["call"], e["input"]["x"], e["result"]["x"]) for e in seen.of("tool.completed")) == [("a", 1, 1), ("b", 2, 2)]
    assert list(seen.said.values()) == ["I look.", "Two are left."]
    assert seen.translator.partial == "Two are left."
    assert seen.translator.tools == (
        ToolUse("a", "look", "completed", {"x": 1}, {"x": 1}),
        ToolUse("b", "look", "completed", {"x": 2}, {"x": 2}),
    )
    assert uses(seen.events) == seen.translator.tools


def test_previews_are_in_front_of_what_the_model_then_wants(watch: Any) -> None:
    seen = watch(agent(both(text="I |look."), "Done.")).run()
    types = [event.type for event in seen.events if event.type != "stage.changed"]
    assert types[:4] == ["assistant.delta", "assistant.delta", "tool.proposed", "tool.proposed"]


def test_a_model_that_does_not_stream_says_it_at_once(watch: Any) -> None:
    seen = watch(agent("Two are left.", model=ScriptedModel)).run()
    assert [event["delta"] for event in seen.of("assistant.delta")] == ["Two are left."]


def test_hidden_reasoning_is_in_no_event(watch: Any) -> None:
    thinking: list[Any] = [
        AIMessageChunk([{"type": "thinking", "thinking": "SECRET one", "index": 0}]),
        AIMessageChunk([{"type": "reasoning", "reasoning": "SECRET two", "index": 1}]),
        AIMessageChunk("", additional_kwargs={"reasoning_content": "SECRET three"}),
        AIMessageChunk([{"type": "text", "text": "Two.", "index": 2}]),
        AIMessageChunk("", chunk_position="last"),
    ]
    whole = AIMessage([{"type": "thinking", "thinking": "SECRET"}, {"type": "text", "text": "Three."}])
    assert list(watch(agent(thinking)).run().said.values()) == ["Two."]
    for model, answer in [(Speaking, thinking), (ScriptedModel, whole)]:
        seen = watch(agent(answer if model is ScriptedModel else list(answer), model=model)).run()
        assert len(seen.said) == 1
        assert "SECRET" not in seen.all
        assert "SECRET" not in seen.translator.partial


def test_what_happens_inside_a_tool_is_the_tools_own(watch: Any) -> None:
    sub = create_agent(Speaking(calls("look", call_id="inner", x=9), "SECRET |answer"), [look])

    def research(question: str) -> str:
        """Asks another agent."""
        get_stream_writer()({"stage": "researching", "text": question})
        get_stream_writer()({"note": "SECRET"})
        look.invoke({"x": 5})
        Speaking("SECRET |words").invoke(question)
        return f"{len(sub.invoke({'messages': [HumanMessage(question)]})['messages'])} messages"

    seen = watch(agent(calls("research", question="why"), "Done.", tools=[StructuredTool.from_function(research)])).run()
    assert seen.told == ["proposed call_1", "started call_1", "completed call_1"]
    assert seen.stages == ["thinking", "researching", "thinking"]
    assert seen.of("stage.changed")[1]["text"] == "why"
    assert list(seen.said.values()) == ["Done."]
    assert "SECRET" not in seen.all


def test_an_asynchronous_sub_agent_is_as_silent(loop: Any) -> None:
    sub = create_agent(Speaking(calls("look", call_id="inner", x=9), "SECRET |answer"), [look])

    async def research(question: str) -> str:
        """Asks another agent."""
        async for _ in sub.astream({"messages": [HumanMessage(question)]}, stream_mode="messages"):
            pass
        return "done"

    seen = Watch(Loop(loop), agent(calls("research", question="why"), "Done.", tools=[_async(research)])).run()
    assert seen.told == ["proposed call_1", "started call_1", "completed call_1"]
    assert list(seen.said.values()) == ["Done."]


def test_what_middlewares_ask_models_for_is_not_shown(watch: Any) -> None:
    class Choosing(Speaking):
        def with_structured_output(self, schema: Any, **settings: Any) -> Any:
            return self | (lambda message: {"tools": ["look"]})

    class Deciding(AgentMiddleware):
        """Asks a model in a node of its own."""

        def before_model(self, state: Any, runtime: Any) -> None:
            decider.invoke("which way?")

    decider, chooser, summarizer = (Speaking(*["SECRET |words"] * 2), Choosing(*["SECRET |words"] * 2), Speaking("SECRET |words"))
    summary = SummarizationMiddleware(model=summarizer, trigger=("messages", 3), keep=("messages", 2))
    choice = LLMToolSelectorMiddleware(model=chooser, max_tools=1)
    seen = watch(agent(both(), "Done.", middleware=[Deciding(), summary, choice])).run()
    assert [len(model.requests) for model in (decider, chooser, summarizer)] == [2, 2, 1]
    assert list(seen.said.values()) == ["Done."]


@pytest.mark.parametrize(
    "quiet",
    [
        lambda model: model.with_config(tags=["nostream"]),
        lambda model: model.with_config(metadata=internal_call_metadata()),
        lambda model: model.bind(
            ls_structured_output_format={
                "kwargs": {},
                "schema": {"title": "t", "description": "d", "type": "object", "properties": {}},
            }
        ),
    ],
    ids=["tag", "metadata", "structured"],
)
def test_what_a_node_asks_a_model_for_itself_is_not_shown(watch: Any, quiet: Any) -> None:
    model = Speaking("SECRET |routing", "Done.")
    graph = StateGraph(MessagesState)
    graph.add_node("route", lambda state: (quiet(model).invoke("which?"), {"messages": []})[1])
    graph.add_node("answer", lambda state: {"messages": [model.invoke("q")]})
    graph.add_edge(START, "route")
    graph.add_edge("route", "answer")
    seen = watch(graph.compile(checkpointer=InMemorySaver())).run()
    assert list(seen.said.values()) == ["Done."]
    assert seen.stages == ["route", "answer"]


def test_a_model_call_made_again_is_a_new_message_and_voids_the_first(watch: Any) -> None:
    broken_off = [AIMessageChunk("Two "), AIMessageChunk("a"), TimeoutError("slow")]
    seen = watch(agent(broken_off, "Two |are left.", middleware=[ModelRetryMiddleware(initial_delay=0.0, jitter=False)])).run()
    first, second = seen.said
    assert seen.said == {first: "Two a", second: "Two are left."}
    (void,) = [event for event in seen.of("assistant.delta") if event.get("void")]
    assert void["message"] == first
    assert seen.translator.partial == "Two are left."


def test_a_run_that_dies_in_mid_answer_leaves_no_part_of_it(watch: Any) -> None:
    seen = watch(agent([AIMessageChunk("Two "), RuntimeError("gone")])).run()
    assert isinstance(seen.error, RuntimeError)
    assert seen.of("assistant.delta")[-1]["void"]
    assert seen.translator.partial == ""


class Loop:
    """The asynchronous door alone, for what only it can do."""

    kind = "async"

    def __init__(self, loop: Any) -> None:
        self.loop = loop

    def wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout=60)


def _async(function: Any) -> Any:
    return StructuredTool.from_function(coroutine=function)


def test_a_stopped_run_keeps_what_was_shown(loop: Any) -> None:
    class Waiting(Speaking):
        async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **settings: Any) -> AsyncIterator[Any]:
            chunk = ChatGenerationChunk(message=AIMessageChunk("Two are"))
            yield chunk
            await asyncio.Event().wait()

    async def stop() -> Translator:
        shown = asyncio.Event()
        translator = Translator("t_1", "r_1", lambda event: shown.set() if event.type == "assistant.delta" else None)
        config: Any = {"configurable": {"thread_id": "t"}, "callbacks": translator.callbacks}

        async def through() -> None:
            given = {"messages": [HumanMessage("q")]}
            async for part in agent(model=Waiting).astream(given, config, stream_mode=Translator.modes, subgraphs=True):
                translator.part(*part)

        running = asyncio.ensure_future(through())
        await shown.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        translator.finish()
        return translator

    assert Loop(loop).wait(stop()).partial == "Two are"


def test_failed_tools_say_so_with_the_text_that_the_model_reads(watch: Any) -> None:
    seen = watch(agent(calls("nope", x=1), calls("look", x="no"), "Done.")).run()
    assert [use.status for use in seen.translator.tools] == ["failed", "failed"]
    unknown, invalid = seen.of("tool.failed")
    assert unknown["error"]["code"] == "tool_failed"
    assert "nope is not a valid tool" in unknown["error"]["message"]
    assert "look" in invalid["error"]["message"]
    assert seen.told == ["proposed call_1", "failed call_1", "proposed call_1", "started call_1", "failed call_1"]


def test_a_tool_that_ends_the_run_has_failed_and_tells_no_secret(watch: Any) -> None:
    seen = watch(agent(calls("broken", x=1), tools=[broken])).run()
    assert isinstance(seen.error, RuntimeError)
    assert seen.told == ["proposed call_1", "started call_1", "failed call_1"]
    assert "hunter2" not in seen.all


def test_a_tool_that_ends_the_run_for_reasons_of_the_run_has_not_failed(watch: Any) -> None:
    @tool
    def late(x: int) -> str:
        """Comes too late."""
        raise LeaseLostError("Another run has taken over.", thread="t_1")

    seen = watch(agent(calls("late", x=1), tools=[late])).run()
    assert isinstance(seen.error, LeaseLostError)
    assert seen.told == ["proposed call_1", "started call_1"]
    assert [use.status for use in seen.translator.tools] == ["stopped"]


def test_arguments_that_a_middleware_changes_are_those_of_the_call(watch: Any) -> None:
    class Careful(AgentMiddleware):
        def _changed(self, request: Any) -> Any:
            return request.override(tool_call={**request.tool_call, "args": {"x": 7}})

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(self._changed(request))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await handler(self._changed(request))

    seen = watch(agent(calls("look", x=1), "Done.", middleware=[Careful()])).run()
    assert [event["input"] for event in seen.of("tool.started")] == [{"x": 7}]
    assert seen.translator.tools == (ToolUse("call_1", "look", "completed", {"x": 7}, {"x": 7}),)


def test_a_tool_tried_again_by_a_middleware_fails_once(watch: Any) -> None:
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False, on_failure=lambda error: "Not today.")
    seen = watch(agent(calls("broken", x=1), "Done.", tools=[broken], middleware=[retry])).run()
    assert seen.told == ["proposed call_1", "started call_1", "failed call_1"]
    assert seen.of("tool.failed")[0]["error"]["message"] == "Not today."


def test_a_tool_that_returns_a_command(watch: Any) -> None:
    @tool
    def move(x: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Moves."""
        return Command(update={"messages": [ToolMessage(f"moved {x}", tool_call_id=tool_call_id)]})

    seen = watch(agent(calls("move", x=3), "Done.", tools=[move])).run()
    assert seen.told == ["proposed call_1", "started call_1", "completed call_1"]
    assert seen.of("tool.completed")[0]["result"] == "moved 3"
    assert seen.of("tool.proposed")[0]["input"] == {"x": 3}


def test_a_call_id_that_comes_again_is_another_call(watch: Any) -> None:
    seen = watch(agent(calls("look", x=1), calls("look", x=2), "Done.")).run()
    assert [use.result for use in seen.translator.tools] == [{"x": 1}, {"x": 2}]
    assert seen.told == ["proposed call_1", "started call_1", "completed call_1"] * 2
    assert uses(seen.events) == seen.translator.tools


@pytest.mark.parametrize("make", [agent, by_hand])
def test_a_pause_is_no_failure_and_a_resume_repeats_nothing(watch: Any, make: Any) -> None:
    seen = watch(make(both("ask"), "Done.", tools=[ask, look])).run()
    assert not seen.of("tool.failed")
    assert [one.value for one in seen.translator.interrupts] == [{"x": 1}]
    assert seen.translator.tools[0].status == "stopped"
    before = seen.told
    seen.resume("yes")
    assert not seen.of("tool.proposed")
    assert seen.translator.interrupts == ()
    assert [one for one in before + seen.told if one.startswith("completed")] == (
        ["completed b", "completed a"] if make is agent else ["completed a", "completed b"]
    )
    assert [use.result for use in seen.translator.tools] == ["1: yes", {"x": 2}]
    assert list(seen.said.values()) == ["Done."]


def test_a_gated_tool_starts_when_its_gate_lets_it_pass(watch: Any) -> None:
    seen: Watch

    def gate(x: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Asks first."""
        if not interrupt({"x": x}):
            seen.translator.noted(tool_call_id, approval=f"a_{x}")
            return "a person's answer"
        seen.translator.passed(tool_call_id, approval=f"a_{x}", edited={"x": 7} if x == 1 else None)
        return f"did {x}"

    gated = StructuredTool.from_function(gate, metadata={"abreast": GATED})
    two = AIMessage("", tool_calls=[call("gate", "a", x=1), call("gate", "b", x=2)])
    seen = watch(agent(two, "Done.", tools=[gated]))
    seen.run()
    assert seen.told == ["proposed a", "proposed b"]
    seen.resume({one.id: one.value["x"] == 1 for one in seen.translator.interrupts})
    assert sorted(seen.told) == ["completed a", "completed b", "started a"]
    (started,) = seen.of("tool.started")
    assert (started["approval"], started["input"]) == ("a_1", {"x": 7})
    use = seen.translator.tools[0]
    assert (use.arguments, use.edited, use.approval, use.result) == ({"x": 1}, {"x": 7}, "a_1", "did 1")
    assert {event["approval"] for event in seen.of("tool.completed")} == {"a_1", "a_2"}


def test_a_tool_that_was_allowed_without_asking_has_started(watch: Any) -> None:
    def change(x: int) -> str:
        """Changes."""
        return f"did {x}"

    seen = watch(
        agent(calls("change", x=1), "Done.", tools=[StructuredTool.from_function(change, metadata={"abreast": "write"})])
    )
    assert seen.run().told == ["proposed call_1", "started call_1", "completed call_1"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_what_a_person_edits_or_rejects_in_langchains_own_gate(watch: Any, mode: Any) -> None:
    gate = HumanInTheLoopMiddleware(interrupt_on={"look": True}, interrupt_mode=mode)
    seen = watch(agent(both(), "Done.", middleware=[gate])).run()
    edit = {"type": "edit", "edited_action": {"name": "look", "args": {"x": 7}}}
    reject = {"type": "reject", "message": "not that one"}
    paused = seen.translator.interrupts
    seen.resume(
        {"decisions": [edit, reject]}
        if mode == "batched"
        else dict(
            zip([i.id for i in paused], [{**edit, "edited_action": {"name": "look", "args": {"x": 7}}}, reject], strict=True)
        )
    )
    assert sorted(seen.told) == ["completed a", "failed b", "started a"]
    assert "not that one" in seen.of("tool.failed")[0]["error"]["message"]
    use = seen.translator.tools[0]
    assert (use.arguments, use.edited) == ({"x": 1}, {"x": 7})


def test_a_structured_answer_is_no_tool(watch: Any) -> None:
    class Left(BaseModel):
        count: int

    script = [calls("Left", call_id="bad", count="many"), calls("look", x=1), calls("Left", call_id="good", count=2)]
    seen = watch(agent(*script, response_format=ToolStrategy(Left))).run()
    assert seen.told == ["proposed call_1", "started call_1", "completed call_1"]


def test_old_calls_in_a_history_put_in_order_are_not_told_again(watch: Any) -> None:
    keep = SummarizationMiddleware(model=Speaking("summary"), trigger=("messages", 5), keep=("messages", 5))
    seen = watch(agent(both(), "Done.", "Again.", middleware=[keep])).run()
    assert len(seen.of("tool.proposed")) == 2
    seen.run("And now?")
    assert seen.told == []
    assert list(seen.said.values()) == ["Again."]


def test_an_agent_that_is_a_node_speaks_for_the_run_and_tells_its_history_once(watch: Any) -> None:
    inner = create_agent(Speaking(both(), "Done.", both(), "Again."), [look])
    graph = StateGraph(MessagesState)
    graph.add_node("helper", inner)
    graph.add_edge(START, "helper")
    seen = watch(graph.compile(checkpointer=InMemorySaver())).run()
    for answer in ("Done.", "Again."):
        assert sorted(seen.told) == [f"{what} {id}" for what in ("completed", "proposed", "started") for id in "ab"]
        assert list(seen.said.values()) == [answer]
        assert seen.stages == ["helper"]
        seen.run("And now?")
    assert seen.told == []


def test_an_old_call_that_was_never_answered_is_not_told_again(watch: Any) -> None:
    """A run was stopped in its tool; what puts the history in order, or hands it in whole, brings the call again."""
    keep = SummarizationMiddleware(model=Speaking("summary"), trigger=("messages", 3), keep=("messages", 2))
    model = Speaking(calls("broken", x=1), "Again.")
    graph = StateGraph(MessagesState)
    graph.add_node("call_model", lambda state: {"messages": [*state["messages"], model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([broken], handle_tool_errors=False))
    graph.add_edge(START, "call_model")
    graph.add_conditional_edges("call_model", tools_condition)
    for made in (
        agent(calls("broken", x=1), "Again.", tools=[broken], middleware=[keep]),
        graph.compile(checkpointer=InMemorySaver()),
    ):
        seen = watch(made).run()
        assert isinstance(seen.error, RuntimeError)
        seen.run("And now?")
        assert list(seen.said.values()) == ["Again."]
        assert seen.told == []


def test_a_node_that_hands_in_the_whole_history_tells_its_own_part(watch: Any) -> None:
    model = Speaking(both(), "Done.", "Again.")
    graph = StateGraph(MessagesState)
    graph.add_node("call_model", lambda state: {"messages": [*state["messages"], model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "call_model")
    graph.add_conditional_edges("call_model", tools_condition)
    graph.add_edge("tools", "call_model")
    seen = watch(graph.compile(checkpointer=InMemorySaver())).run()
    assert len(seen.told) == 6
    assert seen.run("And now?").told == []


def test_what_a_nodes_own_graph_remembers_is_not_told_with_what_it_hands_in(watch: Any) -> None:
    class Short(AgentMiddleware):
        """Shows the model the question alone, so that nothing says what the history is."""

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(messages=request.messages[-1:]))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(messages=request.messages[-1:]))

    graph = StateGraph(MessagesState)
    graph.add_node("helper", create_agent(Speaking(both(), "Done.", "Again."), [look], middleware=[Short()]))
    graph.add_edge(START, "helper")
    seen = watch(graph.compile(checkpointer=InMemorySaver())).run()
    assert len(seen.told) == 6
    assert seen.run("And now?").told == []


def test_what_stood_before_a_pause_and_comes_again_with_the_resume_is_old(watch: Any) -> None:
    model = Speaking(both(text="Look|ing."), "Done.")
    graph = StateGraph(MessagesState)
    graph.add_node("think", lambda state: {"messages": [model.invoke("q")]})
    graph.add_node("wait", lambda state: (interrupt("?"), {"messages": []})[1])
    graph.add_edge(START, "think")
    graph.add_edge(START, "wait")
    seen = watch(graph.compile(checkpointer=InMemorySaver())).run()
    assert seen.told == ["proposed a", "proposed b"]
    assert seen.run(Command(resume="go on")).told == []


def test_the_functional_api(watch: Any) -> None:
    model = Speaking(both(), "Done.")

    @task
    def think(messages: list[BaseMessage]) -> BaseMessage:
        return model.invoke(messages)

    @task
    def use(wanted: Any) -> Any:
        return look.invoke({**wanted, "type": "tool_call"})

    @entrypoint(checkpointer=InMemorySaver())
    def flow(given: Any) -> BaseMessage:
        answer: Any = think(given["messages"]).result()
        results = [future.result() for future in [use(wanted) for wanted in answer.tool_calls]]
        return think([*given["messages"], answer, *results]).result()

    seen = watch(flow).run()
    for id in "ab":
        assert [one for one in seen.told if one.endswith(id)] == [f"proposed {id}", f"started {id}", f"completed {id}"]
    assert list(seen.said.values()) == ["Done."]
    assert seen.stages == ["flow", "think", "use", "think"]


def test_a_tool_that_a_node_calls_by_itself(watch: Any) -> None:
    class State(MessagesState):
        found: Any

    graph = StateGraph(State)
    graph.add_node("search", lambda state: {"found": look.invoke({"x": 4})})
    graph.add_node("answer", lambda state: {"messages": [AIMessage("Four.")]})
    graph.add_edge(START, "search")
    graph.add_edge("search", "answer")
    seen = watch(graph.compile(checkpointer=InMemorySaver())).run()
    types = ["stage.changed", "tool.proposed", "tool.started", "tool.completed", "stage.changed"]
    assert [event.type for event in seen.events] == types
    assert seen.of("tool.completed")[0]["result"] == {"x": 4}
    assert seen.stages == ["search", "answer"]


def test_a_tool_whose_answer_a_node_keeps_for_itself_still_ends(watch: Any) -> None:
    class State(MessagesState):
        found: Any

    model = Speaking(calls("look", x=4), "Four.")
    graph = StateGraph(State)
    graph.add_node("think", lambda state: {"messages": [model.invoke("q")]})
    graph.add_node("use", lambda state: {"found": look.invoke({**state["messages"][-1].tool_calls[0], "type": "tool_call"}).text})
    graph.add_node("answer", lambda state: {"messages": [model.invoke("q")]})
    for before, after in [(START, "think"), ("think", "use"), ("use", "answer")]:
        graph.add_edge(before, after)
    seen = watch(graph.compile(checkpointer=InMemorySaver())).run()
    assert seen.told == ["proposed call_1", "started call_1", "completed call_1"]
    assert seen.events[-1].type == "assistant.delta"


def test_long_results_are_cut_in_the_event_and_whole_beside_the_message(watch: Any) -> None:
    @tool
    def tell(what: str) -> Any:
        """Tells."""
        blocks = [{"type": "text", "text": "see"}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
        return {
            "long": "x" * (WIDTH + 1),
            "list": ["y" * WIDTH, 1],
            "odd": json.dumps({"a\x00": "\ud800"}),
            "no": "[not json",
            "see": blocks,
        }[what]

    script = [calls("tell", call_id=what, what=what) for what in ("long", "list", "odd", "no", "see")]
    seen = watch(agent(*script, "Do\x00ne.", tools=[tell])).run()
    ended = {event["call"]: event for event in seen.of("tool.completed")}
    whole = {use.id: use.result for use in seen.translator.tools}
    assert seen.error is None
    assert ended["long"]["cut"]
    assert ended["long"]["result"] == "x" * WIDTH
    assert whole["long"] == "x" * (WIDTH + 1)
    assert ended["list"]["cut"]
    assert isinstance(ended["list"]["result"], str)
    assert whole["list"] == ["y" * WIDTH, 1]
    assert ended["odd"]["result"] == whole["odd"] == {"a\x00": "\ud800"}
    assert ended["no"]["result"] == "[not json"
    assert ended["see"]["result"] == [{"type": "text", "text": "see"}, {"type": "image"}]
    assert list(seen.said.values()) == ["Do\x00ne."]


def test_events_of_many_threads_come_one_at_a_time(watch: Any) -> None:
    meet = threading.Barrier(4)

    def work(x: int) -> str:
        """Works beside others."""
        meet.wait(timeout=30)
        return str(x)

    busy = threading.Lock()

    def alone(seen: Watch) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            if not busy.acquire(blocking=False):
                seen.error = AssertionError("two at a time")
                return
            seen.events.append(event)
            if event.type == "tool.started":
                threading.Event().wait(0.02)  # time for another to come in between
            busy.release()

        return take

    four = AIMessage("", tool_calls=[call("work", f"c{x}", x=x) for x in range(4)])
    seen = watch(agent(four, "Done.", tools=[StructuredTool.from_function(work)])).run(watch=alone)
    assert seen.error is None
    assert sorted(seen.told) == sorted(f"{what} c{x}" for what in ("proposed", "started", "completed") for x in range(4))
