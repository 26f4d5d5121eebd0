"""Pauses that look like a mistake and are none, and kinds that the programs do not show."""

from __future__ import annotations

import importlib
import random
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, hook_config
from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from abreast.doctor import examine, thread_of

kept: list[str] = []
database: Any = None
engine: Any = None
count = 0


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


def codes(graph: Any, module: str | None = None) -> list[str]:
    return [one.code for one in examine(graph, module=module, select=["AB4"]).findings]


def of_node(node: Any) -> Any:
    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile(checkpointer=InMemorySaver())


def local_list(state: MessagesState) -> dict:
    seen: list[str] = []
    seen.append("one")
    return {"messages": interrupt("Go on?")}


def after_the_question(state: MessagesState) -> dict:
    answer = interrupt("Go on?")
    kept.append(answer)
    return {}


def in_a_branch(state: MessagesState) -> dict:
    if state["messages"]:
        kept.append("one")
    return {"messages": interrupt("Go on?")}


def repeatable_row(state: MessagesState) -> dict:
    database.execute("INSERT INTO orders VALUES (1) ON CONFLICT DO NOTHING")
    database.commit()
    return {"messages": interrupt("Go on?")}


def not_committed(state: MessagesState) -> dict:
    database.execute("INSERT INTO orders VALUES (1)")
    return {"messages": interrupt("Go on?")}


def reads_only(state: MessagesState) -> dict:
    with Session(engine) as session:
        session.execute(sa.select(Order))
        session.commit()
    return {"messages": interrupt("Go on?")}


class Box:
    def __init__(self) -> None:
        self.letters: list[str] = []


box = Box()


def post(letter: str) -> None:
    kept.append(letter)


def post_once(letter: str) -> None:
    if letter not in kept:
        kept.append(letter)


def made(letter: str) -> list[str]:
    letters: list[str] = []
    letters.append(letter)
    return letters


def by_a_helper_that_may_be_repeated(state: MessagesState) -> dict:
    post_once("one")
    made("one")
    return {"messages": interrupt("Go on?")}


def of_a_new_object(state: MessagesState) -> dict:
    box = Box()
    box.letters.append("one")
    return {"messages": interrupt("Go on?")}


def no_question(state: MessagesState) -> dict:
    kept.append("one")
    return {}


@pytest.mark.parametrize(
    "node",
    [
        local_list,
        after_the_question,
        in_a_branch,
        repeatable_row,
        not_committed,
        reads_only,
        no_question,
        by_a_helper_that_may_be_repeated,
        of_a_new_object,
    ],
)
def test_what_may_stand_before_a_question(node: Any):
    assert codes(of_node(node)) == []


def inserts(state: MessagesState) -> dict:
    database.execute("INSERT INTO orders VALUES (1)")
    database.commit()
    return {"messages": interrupt("Go on?")}


def adds_a_row(state: MessagesState) -> dict:
    with Session(engine) as session:
        session.add(Order())
        session.commit()
    if state["messages"]:
        interrupt("Go on?")
    return {}


def inserts_in_a_block(state: MessagesState) -> dict:
    with engine.begin() as connection:
        connection.execute(sa.text("insert into orders values (1)"))
    return {"messages": interrupt("Go on?")}


async def sends(state: MessagesState) -> dict:
    await database.send_message("to Ada")
    return {"messages": interrupt("Go on?")}


def counts(state: MessagesState) -> dict:
    global count
    count += 1
    return {"messages": interrupt("Go on?")}


def keeps_in_an_object(state: MessagesState) -> dict:
    box.letters.append("one")
    return {"messages": interrupt("Go on?")}


def by_a_helper(state: MessagesState) -> dict:
    post("one")
    return {"messages": interrupt("Go on?")}


@pytest.mark.parametrize("node", [inserts, adds_a_row, inserts_in_a_block, sends, counts, keeps_in_an_object, by_a_helper])
def test_what_happens_twice(node: Any):
    assert codes(of_node(node)) == ["AB406"]


def one_of_two(amount: int) -> str:
    """Pays."""
    if amount > 100:
        return str(interrupt("Does the owner agree?"))
    return str(interrupt("Does the manager agree?"))


def either(amount: int) -> str:
    """Pays."""
    first = interrupt("Small?") if amount < 100 else interrupt("Large?")
    return str(first)


def until_it_is_right(amount: int) -> str:
    """Pays."""
    answer = interrupt("How much?")
    while not answer:
        answer = interrupt("How much?")
    return str(answer)


@pytest.mark.parametrize("tool", [one_of_two, either, until_it_is_right])
def test_a_tool_that_asks_once_on_every_way(tool: Any):
    assert codes(of_node(ToolNode([tool]))) == []


class Jumps(AgentMiddleware):
    @hook_config(can_jump_to=["tools"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return {"jump_to": "tools"}


class SaysSo(AgentMiddleware):
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return {"jump_to": "tools"}


def send(text: str) -> str:
    """Sends a letter to the customer."""
    return text


def agent(*middleware: Any) -> Any:
    return create_agent(FakeListChatModel(responses=["Yes."]), [send], middleware=middleware, checkpointer=InMemorySaver())


def test_a_jump_without_a_gate_or_without_a_way_is_no_finding():
    assert codes(agent(Jumps())) == []
    assert codes(agent(HumanInTheLoopMiddleware({"send": True}), SaysSo())) == []


def test_a_jump_is_found_in_front_of_the_gate_and_behind_it():
    assert codes(agent(Jumps(), HumanInTheLoopMiddleware({"send": True}))) == ["AB403"]
    assert codes(agent(HumanInTheLoopMiddleware({"send": True}), Jumps())) == ["AB403"]


def by_chance(request: Any) -> bool:
    drawn = random.random()
    return drawn < 0.5


def chance_beside(request: Any) -> bool:
    kept.append(str(random.random()))
    return bool(request.tool_call["args"]["text"])


def test_when_is_looked_at_where_it_decides():
    def gate(when: Any) -> Any:
        return agent(HumanInTheLoopMiddleware({"send": {"allowed_decisions": ["approve"], "when": when}}))

    assert codes(gate(by_chance)) == ["AB404"]
    assert codes(gate(chance_beside)) == []
    assert codes(gate(sqlite3.connect)) == []


def asks(state: MessagesState) -> dict:
    return {"messages": interrupt("Go on?")}


child = StateGraph(MessagesState).add_node("asks", asks).add_edge(START, "asks").compile()


def runs_the_child(state: MessagesState) -> Any:
    return child.invoke({"messages": state["messages"]})


def takes_another() -> Any:
    child = of_node(asks)
    return child.invoke({"messages": []}, {"configurable": {"thread_id": "t1"}})


def test_a_graph_that_runs_inside_another_has_its_checkpointer():
    assert codes(child, __name__) == []


def test_a_question_that_waits_in_sqlite(tmp_path: Path):
    def paused(name: str, saver: Any) -> Any:
        builder = StateGraph(MessagesState).add_node("first", no_question).add_node(name, asks)
        return builder.add_edge(START, "first").add_edge("first", name).compile(checkpointer=saver)

    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        graph, config = paused("asks", saver), {"configurable": {"thread_id": "t1"}}
        graph.invoke({"messages": []}, config)
        thread = thread_of(saver, "t1")
        assert thread.waiting == ("asks",)
        assert examine(graph, thread=thread, select=["AB407"]).findings == ()
        assert [one.place for one in examine(paused("inquires", saver), thread=thread, select=["AB407"]).findings] == [
            "node asks"
        ]
        graph.invoke(Command(resume="yes"), config)
        assert thread_of(saver, "t1").waiting == ()
    assert thread_of(InMemorySaver(), "none").waiting == ()


def in_module(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What the rules say about the graph of a module of this text."""
    (tmp_path / "pauses_under_test.py").write_text("from test_doctor_pauses import *\n" + text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        return codes(importlib.import_module("pauses_under_test").graph, "pauses_under_test")
    finally:
        sys.modules.pop("pauses_under_test", None)


PLAIN = "graph = StateGraph(MessagesState).add_node('asks', asks).add_edge(START, 'asks').compile()\n"
CALLED = {
    "def main():\n    graph.invoke({})\n": ["AB401"],
    "if __name__ == '__main__':\n    graph.invoke({})\n": ["AB401"],
    "def main(graph=graph):\n    graph.invoke({})\n": [],
    "def main():\n    graph = of_node(asks)\n    graph.invoke({})\n": [],
    "def answer(state):\n    graph.invoke(state)\n": [],
    "def main():\n    graph.checkpointer = InMemorySaver()\n    graph.invoke({})\n": [],
    "def main():\n    graph.get_graph()\n": [],
    # A call with a thread of its own takes no checkpointer from around it, wherever it stands.
    "def answer(text):\n    graph.invoke({'messages': text}, {'configurable': {'thread_id': '1'}})\n": ["AB401"],
    "class App:\n    def go(self, thread):\n        graph.invoke({}, {'configurable': {'thread_id': thread}})\n": ["AB401"],
    "def main():\n    mine = graph\n    mine.invoke({'messages': []})\n": ["AB401"],
    "def ask(text):\n    graph.invoke({'messages': text})\nif __name__ == '__main__':\n    ask('Hello!')\n": ["AB401"],
    # Nobody knows from where these are called: a node of another graph may do so.
    "def run_inner():\n    return graph.invoke({})\n": [],
    "def run_inner():\n    return graph.invoke({})\ndef outer(state):\n    return run_inner()\n": [],
    "def run_inner():\n    return graph.invoke({})\nouter = lambda state: run_inner()\n": [],
    "class Outer:\n    def __call__(self, state):\n        return self.run()\n"
    "    def run(self):\n        return graph.invoke({})\n": [],
    "def answer(text, config):\n    graph.invoke({'messages': text}, config)\n": [],
}


other = StateGraph(MessagesState).add_node("asks", asks).add_edge(START, "asks").compile()


def with_a_thread_of_its_own(state: MessagesState) -> Any:
    return other.invoke({"messages": []}, {"configurable": {"thread_id": "1"}})


def test_a_graph_inside_another_keeps_its_pause_unless_it_is_given_a_thread_of_its_own():
    config = {"configurable": {"thread_id": "t1"}}
    kept, lost = of_node(runs_the_child), of_node(with_a_thread_of_its_own)
    assert "__interrupt__" in kept.invoke({"messages": []}, config)
    assert "__interrupt__" not in lost.invoke({"messages": []}, config)


@pytest.mark.parametrize(("text", "found"), CALLED.items())
def test_where_a_graph_without_a_checkpointer_is_run(
    text: str, found: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    assert in_module(PLAIN + text, monkeypatch, tmp_path) == found


SERVER = "from http.server import BaseHTTPRequestHandler\n"
PAGE = "class Page(BaseHTTPRequestHandler):\n    pass\n"
KEPT = (
    "def node(state: MessagesState):\n    return {}\n"
    "builder = StateGraph(MessagesState).add_node('node', node).add_edge(START, 'node')\n"
)
IN_MEMORY = KEPT + "graph = builder.compile(checkpointer=InMemorySaver())\n"
CONNECTION = KEPT + "graph = builder.compile(checkpointer=SqliteSaver(sqlite3.connect(FILE, check_same_thread=False)))\n"
SERVED = {
    IN_MEMORY: [],
    SERVER + IN_MEMORY: [],
    SERVER + PAGE + IN_MEMORY: ["AB402"],
    SERVER + PAGE + KEPT + "saver = InMemorySaver()\ngraph = builder.compile(checkpointer=saver)\n": ["AB402"],
    SERVER + PAGE + KEPT + "def made():\n    return builder.compile(checkpointer=InMemorySaver())\ngraph = made()\n": ["AB402"],
    SERVER + PAGE + IN_MEMORY + "def of_production():\n    return PostgresSaver\n": [],
    "class Starlette: pass\nStarlette.__module__ = 'starlette.applications'\napp = Starlette()\n" + IN_MEMORY: ["AB402"],
    SERVER + PAGE + CONNECTION.replace("FILE", "':memory:'"): ["AB402"],
    SERVER + PAGE + CONNECTION.replace("FILE", "__file__ + '.db'"): [],
    # The application may choose another saver: these are programs for development and production.
    SERVER + PAGE + KEPT + "import os\n"
    "graph = builder.compile(checkpointer=opened() if 'DATABASE' in os.environ else InMemorySaver())\n": [],
    SERVER + PAGE + KEPT + "given = None\ngraph = builder.compile(checkpointer=given or InMemorySaver())\n": [],
    SERVER + PAGE + KEPT + "import os\ndef saver():\n    if os.environ.get('DATABASE'):\n        return opened()\n"
    "    return InMemorySaver()\ngraph = builder.compile(checkpointer=saver())\n": [],
    SERVER + PAGE + KEPT + "import os\nsaver = InMemorySaver()\nif os.environ.get('DATABASE'):\n    saver = opened()\n"
    "graph = builder.compile(checkpointer=saver)\n": [],
    SERVER + PAGE + KEPT + "def made(saver=InMemorySaver()):\n    return builder.compile(checkpointer=saver)\n"
    "graph = made()\n": [],
    SERVER + PAGE + KEPT + "import os\nkinds = {'memory': InMemorySaver}\n"
    "graph = builder.compile(checkpointer=kinds[os.environ.get('KIND', 'memory')]())\n": [],
    SERVER + PAGE + KEPT + "graph = of_node(node)\n": [],  # made in a file that was not read
}


@pytest.mark.parametrize(("text", "found"), SERVED.items())
def test_what_serves_from_memory(text: str, found: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert in_module(text, monkeypatch, tmp_path) == found


def test_a_saver_in_memory_in_a_file_that_serves_nothing_is_no_finding():
    assert codes(of_node(asks), __name__) == []
