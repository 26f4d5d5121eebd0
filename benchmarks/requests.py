"""Requests: what abreast adds to a model call, and whether a request begins as the one before it, which prompt caches need."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Any

from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.messages import HumanMessage, convert_to_openai_messages
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import PrivateAttr

from abreast import Budget, RunContext
from abreast.testing import ScriptedModel, calls
from benchmarks.databases import Kind
from benchmarks.harness import Bench, Benchmark, Key, Outcome, Outcomes, milliseconds_added
from benchmarks.product import WORKSPACE, Product, product, rows

CONTEXT = RunContext(tenant="tenant", user="u1", workspace=WORKSPACE)
ROWS, EVENTS = 200, 50


@tool
def look_up(thing: str) -> str:
    """Look up one thing."""
    return f"{thing}: nothing is known of it"


# -- the share of a call -----------------------------------------------------------------------------------------------


def request_share(bench: Bench) -> Outcomes:
    async def on(made: Product) -> Outcome:
        hub, model, thread = made.hub, ScriptedModel(), "t1"
        agent = create_agent(model, tools=[look_up], middleware=[hub.middleware()], context_schema=RunContext)
        bare = create_agent(ScriptedModel(), tools=[look_up], context_schema=RunContext)
        await hub.run(agent, "Hello", thread=thread, context=CONTEXT)
        made.change(EVENTS)
        made.tidy()

        def call(one: Any) -> Callable[[], Awaitable[Any]]:
            # Only `hub.run` moves the place of a conversation without a checkpointer: every call is told the same events.
            config = {"configurable": {"thread_id": thread}}
            return lambda: one.ainvoke({"messages": [HumanMessage("What is new?")]}, config, context=CONTEXT)

        await call(agent)()
        said = model.last_request
        assert (said.count("\nr"), said.count('{"id": "row')) == (EVENTS, ROWS)
        outcome = await bench.acompare(
            call(agent), call(bare), pairs=bench.size(60, 3), clock=time.process_time, figure=milliseconds_added
        )
        await hub.close()
        return outcome

    def run(kind: Kind) -> Outcome:
        # Room for all of it: what is cut costs nothing to write.
        with product(bench.databases.fresh(kind), rows(ROWS), budget=Budget(current=20_000, changes=4_000)) as made:
            return asyncio.run(on(made))

    return bench.on_both("request_share", run)


# -- the beginning of a request ----------------------------------------------------------------------------------------


class RecordingModel(ScriptedModel):
    """A scripted model that also keeps the tools it was given, as a provider would receive them."""

    _tools: list[Any] = PrivateAttr(default_factory=list)

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        """Keeps the tools."""
        self._tools = [convert_to_openai_tool(one) for one in tools]
        return self

    def sent(self, number: int, *, without_tail: bool = False) -> str:
        """A request as text: tools, then messages with the system message first. `without_tail`: without its last human
        message, which holds the block, and what stands behind that."""
        messages = self.requests[number]
        if without_tail:
            last = max(index for index, message in enumerate(messages) if isinstance(message, HumanMessage))
            messages = messages[:last]
        parts = [json.dumps(self._tools), *(json.dumps(one) for one in convert_to_openai_messages(messages))]
        return "\n".join(parts)


def prefix_kept(bench: Bench) -> Outcomes:
    """Five questions, each answered after a tool was called, with a change of data before each question."""
    figures = []
    with product(bench.databases.fresh("sqlite"), rows(ROWS)) as made:
        turns = bench.size(5, 2)
        answers = ([calls("look_up", call_id=f"call_{turn}", thing="gas"), "Done."] for turn in range(turns))
        model = RecordingModel(*chain.from_iterable(answers))
        agent = create_agent(
            model,
            tools=[look_up, *made.hub.tools()],
            middleware=[made.hub.middleware()],
            context_schema=RunContext,
            system_prompt="You help people who move house. Answer from CURRENT.",
            checkpointer=InMemorySaver(),
        )
        for turn in range(turns):
            made.change(1)
            made.hub.blocking.run(agent, f"What has changed? ({turn})", thread="t1", context=CONTEXT)
        assert len(model.requests) == 2 * turns
        for number in range(1, len(model.requests)):
            kept, whole = model.sent(number - 1, without_tail=True), model.sent(number)
            figures.append(_length_in_common(kept, whole) / len(kept))
    return {"prefix_kept": Outcome(figures)}


def _length_in_common(one: str, other: str) -> int:
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


_SHARE = "CPU time that abreast adds to a model call with 200 rows and 50 events, all of them in the request"

BENCHMARKS = (
    Benchmark(
        (
            Key("request_share_postgresql", f"{_SHARE}; PostgreSQL", 5, unit=" ms"),
            Key("request_share_sqlite", f"{_SHARE}; SQLite", 5, unit=" ms"),
            Key("request_share", "the worse of the two", 5, unit=" ms"),
        ),
        request_share,
    ),
    Benchmark(
        (
            Key(
                "prefix_kept",
                "the part of a request before its last question that begins the next one unchanged / all of that part",
                0.99,
                better="higher",
                unit="",
            ),
        ),
        prefix_kept,
    ),
)
