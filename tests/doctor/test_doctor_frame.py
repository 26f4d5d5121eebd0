"""The frame of the doctor: it never crashes, says what it did not look into, is quick, and speaks three formats."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import tool
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command, Send

from abreast.doctor import examine, thread_of
from abreast.doctor.subject import examine as taken_apart
from abreast.doctor.threads import saver_at
from abreast.errors import InputError
from doctor_programs import PROGRAMS, program


class State(TypedDict):
    items: Annotated[list[str], operator.add]
    size: int


def many(state: State) -> Any:
    return [Send("one", {"items": [item]}) for item in state["items"]]


def one(state: State) -> Any:
    return {"size": 1}


def leave(state: State) -> Command:
    return Command(goto=END)


class Called:
    def __call__(self, state: State) -> dict:
        return {"items": [*state["items"], "again"]}


def built(*names: str) -> StateGraph:
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, one)
        builder.add_edge(START, name)
    return builder


def fan_out() -> Any:
    builder = StateGraph(State)
    builder.add_node("one", one)
    builder.add_conditional_edges(START, many)
    return builder.compile()


def below() -> Any:
    builder = StateGraph(State)
    builder.add_node("below", built("a", "b").compile())
    builder.add_edge(START, "below")
    return builder.compile()


def of_text() -> Any:
    """A node whose source exists nowhere."""
    namespace: dict[str, Any] = {}
    exec("def made(state):\n    return {'size': 1}\n", namespace)
    return StateGraph(State).add_node("made", namespace["made"]).add_edge(START, "made").compile()


def functional() -> Any:
    @task
    def step(number: int) -> int:
        return number + 1

    @entrypoint()
    def flow(number: int) -> int:
        return step(number).result()

    return flow


def odd() -> dict[str, Any]:
    routed = StateGraph(State).add_node("leave", leave).add_edge(START, "leave")
    called = StateGraph(State).add_node("called", Called()).add_edge(START, "called")
    plain = StateGraph(dict).add_node("node", lambda state: state).add_edge(START, "node")
    two = StateGraph(State).add_node("x", (lambda s: {"size": 1})).add_node("y", (lambda s: {"size": 2})).add_edge(START, "x")
    return {
        "fan out": fan_out(),
        "below": below(),
        "text": of_text(),
        "functional": functional(),
        "command": routed.compile(),
        "uncompiled": built("a"),
        "callable": called.compile(),
        "root": plain.compile(),
        "lambdas": two.compile(),
        "agent": create_agent(FakeListChatModel(responses=["a"]), []),
        "remote": RemoteGraph("far", url="http://localhost:9"),
        "nothing": object(),
        "none": None,
    }


@pytest.mark.parametrize("kind", list(odd()))
def test_no_graph_crashes_the_doctor(kind: str):
    report = examine(odd()[kind])
    assert not [note for note in report.notes if "rule itself failed" in note.message], report.notes


@pytest.mark.parametrize("kind", ["remote", "nothing", "none"])
def test_what_cannot_be_looked_into_is_said_and_is_no_success(kind: str):
    report = examine(odd()[kind])
    assert report.status == 2
    assert "not looked into" in report.notes[0].message


@pytest.mark.parametrize("kind", ["text", "functional"])
def test_a_part_that_cannot_be_looked_into_is_a_note(kind: str):
    report = examine(odd()[kind])
    assert report.status == 0
    assert report.notes


def test_the_findings_of_a_subgraph_name_it():
    (finding,) = examine(below()).findings
    assert finding.place == "subgraph below, channel size"
    assert finding.code == "AB102"


def test_a_node_started_by_send_writes_in_one_step():
    (finding,) = examine(fan_out()).findings
    assert finding.code == "AB102"
    assert "many starts node one" in finding.message


def test_an_object_with_call_is_read_like_a_function():
    graph = StateGraph(State).add_node("called", Called()).add_edge(START, "called").compile()
    assert [one.code for one in examine(graph).findings] == ["AB103"]


def test_a_deferred_node_is_not_taken_for_parallel():
    builder = built("a")
    builder.add_node("b", one, defer=True)
    builder.add_edge(START, "b")
    assert examine(builder).findings == ()


def test_select_and_ignore():
    graph = built("a", "b").compile()
    assert examine(graph, select=["AB2"]).findings == ()
    assert examine(graph, ignore=["AB102"]).findings == ()
    assert examine(graph, select=["AB1"], ignore=["AB103"]).status == 1
    assert examine(graph, ignore=["ab102"]).findings == ()
    with pytest.raises(InputError, match="AB999"):
        examine(graph, select=["AB999"])
    with pytest.raises(InputError, match="AB999"):
        examine(graph, ignore=["AB999"])
    with pytest.raises(InputError, match="nothing"):
        examine(graph, select=[""])


@pytest.mark.parametrize(("select", "ignore"), [([], ["AB"]), ([], ["A"]), (["AB1"], ["AB1"]), (["AB102"], ["AB10"])])
def test_a_choice_that_leaves_no_rule_is_no_healthy_graph(select: list[str], ignore: list[str]):
    with pytest.raises(InputError, match="No rule is left"):
        examine(built("a", "b").compile(), select=select, ignore=ignore)


CHAINS = {
    "RunnableSequence": RunnableLambda(one) | RunnableLambda(one),
    "RunnableParallel": RunnableParallel(size=RunnableLambda(one)),
    "RunnableAssign": RunnablePassthrough.assign(size=RunnableLambda(one)),
    "RunnableRetry": RunnableLambda(one).with_retry(),
}


@pytest.mark.parametrize("kind", list(CHAINS))
def test_a_chain_is_not_looked_into_and_that_is_said(kind: str):
    builder = StateGraph(State).add_node("chain", CHAINS[kind]).add_edge(START, "chain")
    (note,) = examine(builder).notes
    assert note.place == "node chain"
    assert note.message.startswith(f"not looked into: a {kind}")


def test_a_function_as_a_runnable_is_looked_into():
    builder = StateGraph(State).add_node("plain", RunnableLambda(one)).add_edge(START, "plain")
    assert examine(builder).notes == ()
    assert [node.functions[0].name for node in taken_apart(builder).nodes.values()] == ["one"]


class Seen(TypedDict):
    hits: int  # abreast: ignore[AB102]


class AlsoSeen(TypedDict):
    # abreast: ignore[AB101, AB102]
    hits: int


class NotSeen(TypedDict):
    hits: int  # abreast: ignore[AB101]


def hit(state: Any) -> dict:
    return {"hits": 1}


@pytest.mark.parametrize(("state", "found"), [(Seen, 0), (AlsoSeen, 0), (NotSeen, 1)])
def test_a_comment_suppresses_its_codes_on_its_line(state: Any, found: int):
    builder = StateGraph(state).add_node("a", hit).add_node("b", hit).add_edge(START, "a").add_edge(START, "b")
    assert len(examine(builder).findings) == found


@tool
def look(what: str) -> str:
    """Look something up."""
    return what


class Outer(AgentMiddleware):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


class Inner(AgentMiddleware):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


class Before(AgentMiddleware):
    def before_model(self, state: Any, runtime: Any) -> None:
        return None


def test_an_agents_tools_and_middleware_are_seen_in_order():
    outer, before, inner = Outer(), Before(), Inner()
    agent = create_agent(FakeListChatModel(responses=["a"]), [look], middleware=[outer, before, inner], system_prompt="Be kind.")
    subject = taken_apart(agent)
    assert [one.name for one in subject.tools] == ["look"]
    assert subject.tools[0].function is not None
    assert subject.wrapping == ((outer, inner), (outer, inner))  # the sync door, the async door
    assert {id(one) for one in subject.middleware} == {id(outer), id(before), id(inner)}
    assert subject.prompts == ("Be kind.",)


def test_a_graph_of_200_nodes_takes_under_2_seconds_and_200_megabytes(tmp_path: Path):
    """The application's own import does not count; its 200 functions are read from a file."""
    lines = ["import operator", "from typing import Annotated, TypedDict", "", "class State(TypedDict):"]
    lines += ["    log: Annotated[list[str], operator.add]", ""]
    for number in range(200):
        lines += [f"def node_{number}(state: State) -> dict:", f"    text = 'node {number}'", "    return {'log': [text]}", ""]
    path = tmp_path / "large.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    with program(path) as module:
        builder = StateGraph(module.State)
        for number in range(200):
            builder.add_node(f"n{number}", getattr(module, f"node_{number}"))
            builder.add_edge(START if number < 20 else f"n{number - 20}", f"n{number}")
        graph = builder.compile()
        started = time.perf_counter()
        assert examine(graph, module=module.__name__).findings == ()
        assert time.perf_counter() - started < 2
        tracemalloc.start()
        examine(graph, module=module.__name__)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 200_000_000


# -- threads -------------------------------------------------------------------------------------------------------------


def talk(state: MessagesState) -> dict:
    return {"messages": [("assistant", "Yes.")]}


def talked(saver: Any) -> None:
    graph = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile(checkpointer=saver)
    for _ in range(2):
        graph.invoke({"messages": [HumanMessage("Is it open?")]}, {"configurable": {"thread_id": "t1"}})


def test_a_sqlite_thread_is_read_and_not_changed(tmp_path: Path):
    path = tmp_path / "checkpoints.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        talked(saver)
    before = path.read_bytes()
    with saver_at(str(path)) as saver:
        thread = thread_of(saver, "t1")
    assert len(thread.steps) == 6
    assert thread.whole
    assert thread.stored("messages") > thread.largest["messages"] > 0
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError), saver_at(str(tmp_path / "absent.db")):
        pass


def test_a_postgresql_thread_is_read(postgres: Any):
    with PostgresSaver.from_conn_string(postgres.plain) as saver:
        saver.setup()
        talked(saver)
    with saver_at(postgres.url) as saver:
        thread = thread_of(saver, "t1")
    assert len(thread.steps) == 6
    assert not thread.whole


# -- the command ---------------------------------------------------------------------------------------------------------


def command(*arguments: str, folder: Path = PROGRAMS) -> subprocess.CompletedProcess[str]:
    abreast = Path(sys.executable).with_name("abreast")
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        [abreast, "doctor", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_command_says_where_what_and_how_to_mend_it():
    done = command("ab102_bad:graph")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("ab102_bad.py:12: AB102 channel hits: ")
    assert command("ab102_good").returncode == 0


def test_json_is_a_list_of_findings():
    (finding,) = json.loads(command("ab102_bad:graph", "--format", "json").stdout)
    assert list(finding) == ["code", "place", "file", "line", "message", "mend", "url"]
    assert (finding["code"], finding["file"], finding["line"]) == ("AB102", "ab102_bad.py", 12)


def test_sarif_names_its_rules_and_places():
    log = json.loads(command("ab102_bad:graph", "--format", "sarif").stdout)
    (run,) = log["runs"]
    (result,) = run["results"]
    assert log["version"] == "2.1.0"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "AB102"
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "ab102_bad.py"}, "region": {"startLine": 12}}


@pytest.mark.parametrize(
    "arguments",
    [
        ["absent:graph"],
        ["ab102_bad:absent"],
        ["ab102_bad:graph", "--select", "AB999"],
        ["ab102_bad:graph", "--ignore", "AB"],
        ["ab102_bad:graph", "--thread", "t1"],
        ["ab102_bad:graph", "--thread", "t1", "--checkpointer", "absent.db"],
    ],
)
def test_status_2_where_it_could_not_be_looked(arguments: list[str]):
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("abreast: ")
    assert "Traceback" not in done.stderr


def test_a_thread_of_a_saver_by_name(tmp_path: Path):
    (tmp_path / "app.py").write_text((PROGRAMS / "ab112_bad.py").read_text(encoding="utf-8") + "\n\nthread()\n", encoding="utf-8")
    done = command("app:graph", "--thread", "t1", "--checkpointer", "app:saver", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "AB112 channel messages" in done.stdout


FACTORIES = [
    "def make():\n    return graph",
    "async def make(config):\n    return graph",
    "import functools\nmake = functools.partial(lambda name, config: graph, 'a')",
    "import functools\nmake = functools.partial(lambda name: graph, name='a')",
    "class Maker:\n    def __call__(self):\n        return graph\nmake = Maker()",
    "class Maker:\n    async def __call__(self, config):\n        return graph\nmake = Maker()",
    "class Maker:\n    def made(self, config):\n        return graph\nmake = Maker().made",
]


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_factory_is_called(tmp_path: Path, factory: str):
    text = (PROGRAMS / "ab102_bad.py").read_text(encoding="utf-8")
    (tmp_path / "app.py").write_text(f"{text}\n\n{factory}\n", encoding="utf-8")
    assert "AB102" in command("app:make", folder=tmp_path).stdout


@pytest.mark.parametrize("ends", ["raise SystemExit(0)", "raise ValueError('hunter2')"])
def test_a_module_that_ends_at_import_is_not_healthy_and_says_no_secret(tmp_path: Path, ends: str) -> None:
    (tmp_path / "ending.py").write_text(f"{ends}\n", encoding="utf-8")
    done = command("ending:graph", folder=tmp_path)
    assert done.returncode == 2
    assert "ending.py:1" in " ".join(done.stderr.split())
    assert "hunter2" not in done.stdout + done.stderr


def test_what_the_application_prints_is_no_part_of_the_report(tmp_path: Path) -> None:
    text = (PROGRAMS / "ab101_good.py").read_text(encoding="utf-8")
    (tmp_path / "talking.py").write_text(f"{text}\nprint('hello')\n", encoding="utf-8")
    done = command("talking:graph", "--format", "json", folder=tmp_path)
    assert (json.loads(done.stdout), done.returncode) == ([], 0)


@pytest.mark.parametrize(
    "where",
    ["postgresql://u:hun%zzter2@h/db", "json://u:hun%zzter2@h/db", "host=h password=hun%zzter2", "postgresql:u:hun%zzter2@h"],
)
def test_no_password_of_an_address_is_printed(where: str) -> None:
    done = command("ab101_good:graph", "--thread", "t", "--checkpointer", where)
    assert done.returncode == 2
    assert "zzter2" not in done.stdout + done.stderr


def test_a_graph_that_cannot_be_taken_apart_is_a_note() -> None:
    class Odd:
        @property
        def tools_by_name(self) -> Any:
            raise RuntimeError("no")

        def __call__(self, state: State) -> dict:
            return {}

    builder = StateGraph(State)
    builder.add_node("odd", Odd())
    builder.add_edge(START, "odd")
    report = examine(builder)
    assert report.status in (0, 2)
