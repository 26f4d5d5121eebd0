"""The service: what it costs to store, lease and stream a run, how soon its first words come, and what readers cost."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import after_model
from langchain.tools import tool
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel, generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import Field

from abreast import Abreast, Caller, RunContext
from abreast.server.running import serve
from benchmarks.databases import Kind
from benchmarks.harness import Bench, Benchmark, Key, Outcome, Outcomes, ratio, typical
from benchmarks.product import WORKSPACE, Product, declared, product, rows
from benchmarks.savers import _astock

MINA = Caller("tenant", "u1")
CONTEXT = RunContext(tenant="tenant", user="u1", workspace=WORKSPACE)
ROWS = 10
CALLS, TOOLS = 10, 5


class StreamingModel(BaseChatModel):
    """Answers at once, in pieces. `answers` are texts, or names of a tool to call; which of them is next is told by the
    number of answers in the request, so that it serves any number of conversations."""

    answers: list[str] = Field(default_factory=list)
    pieces: int = 4
    patient: bool = False
    """Gives others their turn behind each piece, as a model does that is far away: readers get piece after piece."""

    @property
    def _llm_type(self) -> str:
        return "streaming"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        """Accepts tools and goes on."""
        return self

    def _chunks(self, messages: Sequence[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        said = sum(1 for message in messages if isinstance(message, AIMessage))
        answer = self.answers[said % len(self.answers)]
        if answer.startswith("call "):
            call = tool_call_chunk(name=answer.removeprefix("call "), args='{"thing": "gas"}', id=f"call_{said}", index=0)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call], chunk_position="last"))
            return
        width = -(-len(answer) // self.pieces)
        for at in range(0, len(answer), width):
            last = at + width >= len(answer)
            yield ChatGenerationChunk(
                message=AIMessageChunk(content=answer[at : at + width], chunk_position="last" if last else None)
            )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> ChatResult:
        return generate_from_stream(self._chunks(messages))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            yield chunk
            if self.patient:
                await asyncio.sleep(0)


@tool
async def look_up(thing: str) -> str:
    """Look up one thing."""
    return f"{thing}: nothing is known of it"


_RUN = (
    "CPU time of a run of ten model calls and five tool calls through the service, stored, leased and streamed to a reader / "
    "of the same agent without abreast, with LangGraph's own saver"
)
_SAID = "The gas is on from the first of October, and somebody comes to read the meter. "
SCRIPT = ["call look_up", _SAID] * TOOLS


@after_model(can_jump_to=["model"])
def goes_on(state: Any, runtime: Any) -> dict[str, Any] | None:
    """The application's own loop: what was said is not the end before the tenth time."""
    said = [message for message in state["messages"] if isinstance(message, AIMessage)]
    return None if said[-1].tool_calls or len(said) == CALLS else {"jump_to": "model"}


def _agent(hub: Abreast | None, saver: Any, answers: Sequence[str] = SCRIPT, **model: Any) -> Any:
    """The same agent with the hub's middleware, or bare."""
    middleware: list[Any] = [goes_on] if answers is SCRIPT else []
    if hub is not None:
        middleware.append(hub.middleware())
    return create_agent(
        StreamingModel(answers=list(answers), **model),
        tools=[look_up],
        middleware=middleware,
        context_schema=RunContext,
        checkpointer=saver,
    )


# -- what a run costs --------------------------------------------------------------------------------------------------


def run_overhead(bench: Bench) -> Outcomes:
    async def on(made: Product, kind: Kind) -> Outcome:
        pairs, rounds = bench.size(6, 1), bench.rounds(9)
        service = made.hub.service(_agent(made.hub, made.hub.checkpointer()), context=lambda thread, user: CONTEXT)
        async with service, _astock(bench.databases.fresh(kind)) as saver:
            bare = _agent(None, saver)
            threads = [await service.create_thread(MINA, workspace=WORKSPACE) for _ in range(pairs * (rounds + 1))]
            ours, theirs = iter(threads), itertools.count()

            async def served() -> None:
                thread = next(ours).id
                reader = asyncio.create_task(_read(service, thread))
                await asyncio.sleep(0)
                await service.send(MINA, thread, "What is new?")
                await reader

            async def plain() -> None:
                config: Any = {"configurable": {"thread_id": f"thread{next(theirs)}"}}
                given: Any = {"messages": [HumanMessage("What is new?")]}
                async for _ in bare.astream(given, config, context=CONTEXT, stream_mode=["messages", "updates"]):
                    pass

            outcome = await bench.acompare(served, plain, pairs=pairs, rounds=rounds, clock=time.process_time)
            await _check(service, threads[-1].id)
        await made.hub.close()
        return outcome

    def run(kind: Kind) -> Outcome:
        with product(bench.databases.fresh(kind), rows(ROWS)) as made:
            return asyncio.run(on(made, kind))

    return bench.on_both("run_overhead", run)


async def _read(service: Any, thread: str) -> list[Any]:
    """The events of one run, to its end."""
    found = []
    async for event in service.stream(MINA, thread):
        found.append(event)
        if event.type == "done":
            break
    return found


async def _check(service: Any, thread: str) -> None:
    """What was measured is a run of so many calls, and was stored."""
    (run,) = (await service.runs(MINA, thread)).items
    answer = (await service.messages(MINA, thread)).items[-1]
    assert (run.status, answer.role, len(answer.tools), answer.content) == ("succeeded", "assistant", TOOLS, _SAID), run


# -- how soon it speaks -------------------------------------------------------------------------------------------------


class _Connection:
    """One connection to the server, with as little of a client as there can be: what a client costs is not measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def opened(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def ask(self, method: str, path: str, body: Any = None) -> None:
        """Sends a request."""
        text = b"" if body is None else json.dumps(body).encode()
        head = f"{method} /v1{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._writer.write(f"{head}content-length: {len(text)}\r\n\r\n".encode() + text)

    async def head(self) -> int:
        """Reads the head of an answer. Returns the length of its body, -1 where it has none."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.split()[1] in ("200", "201", "202"), head
        return next((int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length")), -1)

    async def answer(self) -> Any:
        """Reads an answer."""
        return json.loads(await self._reader.readexactly(await self.head()))

    async def event(self, type: str) -> None:
        """Waits for an event of this type."""
        wanted = f"event: {type}".encode()
        while (line := await self._reader.readline()).rstrip() != wanted:
            assert line, "the stream ended"

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def _serve(url: str) -> None:
    """A server as `abreast serve` starts it, in a process of its own. What it says is where it is."""
    hub = declared(url)
    agent = _agent(hub, hub.checkpointer(), [_SAID])
    hub.service(agent, context=lambda thread, user: CONTEXT, authenticate=_mina)
    serve(hub, host="127.0.0.1", port=0, development=False, say=partial(print, flush=True))


async def _mina(request: Any) -> Caller:
    return MINA


@contextmanager
def _server(url: str) -> Iterator[int]:
    """Its port."""
    command = [sys.executable, "-m", "benchmarks.service", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().partition("127.0.0.1:")[2].partition("/")[0])
        finally:
            process.terminate()


def first_token(bench: Bench) -> Outcomes:
    async def on(port: int, bare: Any) -> Outcome:
        number, figures, waits = itertools.count(), [], []
        client = await _Connection.opened(port)

        async def served() -> float:
            client.ask("POST", "/threads", {"workspace": WORKSPACE})
            thread = (await client.answer())["id"]
            stream = await _Connection.opened(port)
            stream.ask("GET", f"/threads/{thread}/stream")
            await stream.head()
            began = time.perf_counter()
            client.ask("POST", f"/threads/{thread}/messages", {"text": "What is new?"})
            await stream.event("assistant.delta")
            took = time.perf_counter() - began
            await client.answer()
            await stream.event("done")
            await stream.close()
            return took

        async def plain() -> float:
            config: Any = {"configurable": {"thread_id": f"thread{next(number)}"}}
            given: Any = {"messages": [HumanMessage("What is new?")]}
            took = 0.0
            began = time.perf_counter()
            async for mode, _ in bare.astream(given, config, context=CONTEXT, stream_mode=["messages", "updates"]):
                took = took or (time.perf_counter() - began if mode == "messages" else 0.0)
            return took

        for round in range(bench.rounds(9) + 1):
            bench.progress(f"round {round}" if round else "warming up")
            pairs = [(await served(), await plain()) for _ in range(bench.size(30, 2))]
            ours, theirs = (typical(one) for one in zip(*pairs, strict=True))
            figures.append(ratio(ours, theirs))
            waits.append(ours)
        await client.close()
        return Outcome(figures[1:], {"milliseconds": round_to(statistics.median(waits[1:]) * 1000)})

    async def main(port: int) -> Outcome:
        async with _astock(bench.databases.fresh("sqlite")) as saver:
            return await on(port, _agent(None, saver, [_SAID]))

    with product(bench.databases.fresh("sqlite"), rows(ROWS)) as made, _server(made.database.url) as port:
        return {"first_token": asyncio.run(main(port))}


def round_to(value: float) -> float:
    """As much of it as the report shows."""
    return round(value, 2)


# -- readers -----------------------------------------------------------------------------------------------------------


def stream_fanout(bench: Bench) -> Outcomes:
    """A run that says a long answer, with one reader and with many; and without any, which tells what the readers alone cost."""
    many, pieces, runs = bench.size(200, 4), bench.size(400, 40), bench.size(5, 1)

    async def on(made: Product) -> Outcome:
        agent = _agent(made.hub, made.hub.checkpointer(), [_SAID * 40], pieces=pieces, patient=True)
        service = made.hub.service(agent, context=lambda thread, user: CONTEXT)
        figures, shares, each = [], [], []
        async with service:

            async def told(readers: int) -> tuple[float, int]:
                """CPU time of a run with so many readers, and events that one of them got."""
                thread = (await service.create_thread(MINA, workspace=WORKSPACE)).id
                began = time.process_time()
                tasks = [asyncio.create_task(_read(service, thread)) for _ in range(readers)]
                await asyncio.sleep(0)
                await service.send(MINA, thread, "What is new?")
                found = await asyncio.gather(*tasks) if tasks else []
                await asyncio.gather(*(task for _, task in list(service._executor._going.values())))
                took = time.process_time() - began
                assert all(len(one) == len(found[0]) > pieces for one in found)
                return took, len(found[0]) if found else 0

            for round in range(bench.rounds(9) + 1):
                bench.progress(f"round {round}" if round else "warming up")
                nobody, one = [], []
                for _ in range(runs):
                    nobody.append((await told(0))[0])
                    one.append((await told(1))[0])
                took, events = await told(many)
                without, alone = statistics.mean(nobody), statistics.mean(one)
                figures.append((took / many) / alone)
                shares.append(((took - without) / many) / (alone - without))
                each.append((took - without) / many / events)
        await made.hub.close()
        extra = {"readers_alone": statistics.median(shares[1:]), "microseconds": statistics.median(each[1:]) * 1e6}
        return Outcome(figures[1:], {name: round_to(value) for name, value in extra.items()})

    with product(bench.databases.fresh("sqlite"), rows(ROWS)) as made:
        return {"stream_fanout": asyncio.run(on(made))}


BENCHMARKS = (
    Benchmark(
        (
            Key("run_overhead_postgresql", f"{_RUN}; PostgreSQL", 2),
            Key("run_overhead_sqlite", f"{_RUN}; SQLite", 2),
            Key("run_overhead", "the worse of the two", 2),
        ),
        run_overhead,
    ),
    Benchmark(
        (
            Key(
                "first_token",
                "from the POST of a message to the first words in an open HTTP stream / to the first chunk of the bare agent's "
                "astream; a model that answers at once; SQLite",
                2.5,
            ),
        ),
        first_token,
    ),
    Benchmark(
        (
            Key(
                "stream_fanout",
                "CPU time of a run / events that its readers got, with 200 readers / with one; beside it what the readers alone "
                "cost, and an event of one of the 200",
                1.2,
            ),
        ),
        stream_fanout,
    ),
)

if __name__ == "__main__":
    _serve(sys.argv[1])
