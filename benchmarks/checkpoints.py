"""Checkpoints: what abreast adds to a conversation's stored state, beside two ways of keeping conversations current with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NotRequired

import sqlalchemy as sa
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import tool
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from abreast import RunContext
from abreast.testing import ScriptedModel, calls
from benchmarks.databases import Database, Kind
from benchmarks.harness import Bench, Benchmark, Key, Outcome, Outcomes, ratio, worse
from benchmarks.product import WORKSPACE, Product, product, rows

CONTEXT = RunContext(tenant="tenant", user="u1", workspace=WORKSPACE)
TOOL_ROUNDS = 5


@tool
def look_up(thing: str) -> str:
    """Look up one thing."""
    return thing.ljust(200, ".")


@contextmanager
def _saver(database: Database) -> Iterator[BaseCheckpointSaver[Any]]:
    """LangGraph's own saver for this kind of database."""
    if database.kind == "sqlite":
        with SqliteSaver.from_conn_string(database.plain) as saver:
            yield saver
        return
    with PostgresSaver.from_conn_string(database.plain) as saver:
        saver.setup()
        yield saver


# -- bytes -------------------------------------------------------------------------------------------------------------


class _SketchState(AgentState[Any]):
    workspace_rows: NotRequired[list[dict[str, Any]]]


class _Sketch(AgentMiddleware[_SketchState, Any, Any]):
    """The shortest way to show a model the current rows: read them when the run begins, keep them in the state, and write
    them into the system message of every model call. What is in the state is in every checkpoint of it."""

    state_schema = _SketchState

    def __init__(self, made: Product) -> None:
        super().__init__()
        self._made = made

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Reads the rows into the state."""
        with self._made.connect() as connection:
            cursor = connection.execute("select id, move_in, memo, rrn, n, version from tracked order by id")
            names = [column[0] for column in cursor.description]
            return {"workspace_rows": [dict(zip(names, map(str, row), strict=True)) for row in cursor.fetchall()]}

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Writes them into the system message."""
        said = json.dumps(request.state["workspace_rows"])  # type: ignore[typeddict-item]
        return handler(request.override(system_message=SystemMessage(said)))


def checkpoint_bytes(bench: Bench) -> Outcomes:
    sketches: list[Outcome] = []

    def on(kind: Kind) -> Outcome:
        workspace = rows(bench.size(1_000, 20), memo="a note of a thousand characters. ".ljust(1_000, "."))
        with product(bench.databases.fresh(kind), workspace) as made:
            database = bench.databases.fresh(kind)
            with _saver(database) as saver, _engine(database) as engine:

                def agent(*middleware: Any) -> Any:
                    asks = [calls("look_up", call_id=f"call_{number}", thing="gas") for number in range(TOOL_ROUNDS)]
                    return create_agent(
                        ScriptedModel(*asks, "Done."),
                        tools=[look_up],
                        middleware=middleware,
                        context_schema=RunContext,
                        checkpointer=saver,
                    )

                def invoke(one: Any, thread: str) -> int:
                    config: Any = {"configurable": {"thread_id": thread}}
                    one.invoke({"messages": [HumanMessage("What is new?")]}, config, context=CONTEXT, durability="sync")
                    return _stored(engine, thread)

                plain, in_state = invoke(agent(), "plain"), invoke(agent(_Sketch(made)), "state")
                result = made.hub.blocking.run(agent(made.hub.middleware()), "What is new?", thread="tells", context=CONTEXT)
                assert (result.status, result.answer) == ("succeeded", "Done.")
                told = _stored(engine, "tells")
                sketches.append(Outcome([ratio(in_state, plain)]))
                return Outcome([ratio(told, plain)], {"bytes": told, "bytes_plain": plain})

    outcomes = bench.on_both("checkpoint_bytes", on)
    return {**outcomes, "checkpoint_bytes_sketch": worse(sketches)} if sketches else outcomes


@contextmanager
def _engine(database: Database) -> Iterator[sa.Engine]:
    """An engine that is disposed of."""
    engine = database.engine()
    try:
        yield engine
    finally:
        engine.dispose()


def _stored(engine: sa.Engine, thread: str) -> int:
    """Bytes of all that a saver's tables hold of a thread, as they were handed to the database."""
    total = 0
    inspector = sa.inspect(engine)
    with engine.connect() as connection:
        for table in inspector.get_table_names():
            columns = inspector.get_columns(table)
            if not any(column["name"] == "thread_id" for column in columns):
                continue
            lengths = " + ".join(f"coalesce({_length(column, engine.dialect.name)}, 0)" for column in columns)
            text = f"select coalesce(sum({lengths}), 0) from {table} where thread_id = :thread"
            total += connection.execute(sa.text(text), {"thread": thread}).scalar_one()
    assert total > 0
    return int(total)


def _length(column: Any, dialect: str) -> str:
    name = f'"{column["name"]}"'
    if dialect == "sqlite":
        return f"length(cast({name} as blob))"
    return f"octet_length({name})" if isinstance(column["type"], sa.LargeBinary) else f"octet_length({name}::text)"


# -- telling every conversation at once --------------------------------------------------------------------------------


def fanout_naive(bench: Bench) -> Outcomes:
    number = bench.size(1_000, 10)
    with (
        product(bench.databases.fresh("sqlite"), rows(200)) as made,
        made.connect() as connection,
        _saver(bench.databases.fresh("sqlite")) as saver,
    ):
        agent: Any = create_agent(ScriptedModel(), tools=[], checkpointer=saver)
        threads: list[Any] = [{"configurable": {"thread_id": f"thread{index:05}"}} for index in range(number)]
        bench.progress(f"{number:,} conversations")
        for config in threads:
            agent.update_state(config, {"messages": [HumanMessage("When do I move in?"), AIMessage("On 28 September.")]})

        def tell_everybody() -> None:
            for config in threads:
                agent.update_state(config, {"messages": [HumanMessage("The move-in date is now 30 September.")]})

        ids = itertools.cycle(f"row{index:05}" for index in range(200))

        def write_once() -> None:
            connection.execute("update tracked set n = n + 1 where id = ?", (next(ids),))

        return {"fanout_naive": bench.compare(tell_everybody, write_once, pairs=1, rounds=3)}


_BYTES = "bytes of all checkpoints of a run of five tool rounds on a workspace of 1 MB / of the same agent without abreast"

BENCHMARKS = (
    Benchmark(
        (
            Key("checkpoint_bytes_postgresql", f"{_BYTES}; PostgreSQL saver", 1.06),
            Key("checkpoint_bytes_sqlite", f"{_BYTES}; SQLite saver", 1.06),
            Key("checkpoint_bytes", "the worse of the two", 1.06),
            Key("checkpoint_bytes_sketch", "the same, of an agent that keeps the rows in its state; the worse of the two"),
        ),
        checkpoint_bytes,
    ),
    Benchmark((Key("fanout_naive", "update_state on 1,000 conversations (SQLite saver) / one captured write"),), fanout_naive),
)
