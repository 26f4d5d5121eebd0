"""Programs that a stranger might write, each right on the real LangGraph, and beside them the mistakes that they look like."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from abreast.doctor import examine, thread_of
from doctor_programs import looked_at, program
from doctor_texts import text_program

MODEL = '''
import sqlite3

from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, hook_config
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.tools import StructuredTool


class Model(FakeMessagesListChatModel):
    def bind_tools(self, tools, **options):
        return self.bind(tools=tools, **options)


def asking(called, /, **arguments):
    call = {"name": called, "args": arguments, "id": "c1", "type": "tool_call"}
    return Model(responses=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])


@tool
def look(place: str) -> str:
    """Looks at a place of the board and says what stands there, such as a1."""
    return f"nothing on {place}"

'''

CORRECT = {
    "AB101 a graph for one answer, whose caller takes the last message": """
        class State(TypedDict):
            messages: list[AnyMessage]

        def answer(state: State):
            return {"messages": [AIMessage("42")]}

        graph = chain(State, answer).compile()

        def check():
            result = graph.invoke({"messages": [HumanMessage("6 * 7?")]})
            return result["messages"][-1].content == "42"
        """,
    "AB101 the next node takes the last message too": """
        class State(TypedDict):
            messages: list[AnyMessage]
            text: str

        def translate(state: State):
            return {"messages": [AIMessage("bonjour")]}

        def pick(state: State):
            return {"text": state["messages"][-1].content}

        graph = chain(State, translate, pick).compile()

        def check():
            return graph.invoke({"messages": [HumanMessage("hello")]})["text"] == "bonjour"
        """,
    "AB103 AB108 the first node of runs that begin with nothing": """
        class State(TypedDict):
            items: Annotated[list[str], operator.add]
            n: Annotated[int, operator.add]

        def first(state: State):
            return {"items": state["items"] + ["a"], "n": state["n"] + 1}

        def second(state: State):
            return {"items": ["b"], "n": 1}

        graph = chain(State, first, second).compile()

        def check():
            return graph.invoke({"items": [], "n": 0}) == {"items": ["a", "b"], "n": 2}
        """,
    "AB104 one name of the file, and one key of the state, from both": """
        VERSION = "v3"

        class State(TypedDict):
            lang: str
            facts: Annotated[dict, operator.or_]

        def one(state: State):
            return {"facts": {"one": 1, "version": VERSION, "lang": state["lang"]}}

        def two(state: State):
            return {"facts": {"two": 2, "version": VERSION, "lang": state["lang"]}}

        graph = side_by_side(State, one, two).compile()

        def check():
            return graph.invoke({"lang": "ko", "facts": {}})["facts"] == {"one": 1, "two": 2, "version": "v3", "lang": "ko"}
        """,
    "AB106 a difference is the same in every order": """
        def spend(left: int, cost: int) -> int:
            return left - cost

        class State(TypedDict):
            balance: Annotated[int, spend]

        def api(state: State):
            return {"balance": 3}

        def rows(state: State):
            return {"balance": 4}

        graph = side_by_side(State, api, rows).compile()

        def check():
            return graph.invoke({})["balance"] == side_by_side(State, rows, api).compile().invoke({})["balance"] == -7
        """,
    "AB107 are all votes the same": """
        class State(TypedDict):
            votes: Annotated[list[str], operator.add]
            agreed: bool

        def ada(state: State):
            return {"votes": ["yes"]}

        def bob(state: State):
            return {"votes": ["yes"]}

        def count(state: State):
            return {"agreed": all(vote == state["votes"][0] for vote in state["votes"])}

        graph = side_by_side(State, ada, bob, then=count).compile()

        def check():
            return graph.invoke({})["agreed"]
        """,
    "AB109 the first node spreads a state in which the lists are empty": """
        class State(TypedDict):
            raw: str
            question: str
            found: Annotated[list[str], operator.add]

        def prepare(state: State):
            return {**state, "question": state["raw"].strip()}

        def search(state: State):
            return {"found": [state["question"]]}

        graph = chain(State, prepare, search).compile()

        def check():
            return graph.invoke({"raw": " cats "})["found"] == ["cats"]
        """,
    "AB204 the scopes of work and the permissions of a house": """
        class State(TypedDict):
            scopes: list[str]
            permissions: dict[str, str]
            plan: list[str]

        def plan(state: State):
            return {"plan": [f"{one}: {state['permissions'].get(one, 'none')}" for one in state["scopes"]]}

        graph = chain(State, plan).compile()

        def check():
            given = {"scopes": ["roof"], "permissions": {"roof": "building permit"}}
            return list(map(graph.invoke, [given]))[0]["plan"] == ["roof: building permit"]
        """,
    "AB206 a tool runs the graph, with the context around it": '''
        @dataclass
        class Context:
            region: str

        class State(TypedDict):
            text: str

        def find(state: State, runtime: Runtime[Context]):
            return {"text": runtime.context.region + state["text"]}

        graph = chain(State, find, context_schema=Context).compile()

        @tool
        def lookup(text: str) -> str:
            """Looks a text up in the region of the person, such as a street."""
            return graph.invoke({"text": text})["text"]

        agent = create_agent(asking("lookup", text="x"), [lookup], context_schema=Context)

        def check():
            return agent.invoke({"messages": [("user", "?")]}, context=Context("eu"))["messages"][-2].content == "eux"
        ''',
    "AB208 the graph above fills the key": """
        class Inner(TypedDict):
            text: str
            lang: NotRequired[str]

        class State(TypedDict):
            text: str
            lang: str

        def translate(state: Inner):
            return {"text": state["lang"] + state["text"]}

        def detect(state: State):
            return {"lang": "ko"}

        inner = chain(Inner, translate).compile()
        builder = StateGraph(State).add_node("detect", detect).add_node("inner", inner)
        graph = builder.add_edge(START, "detect").add_edge("detect", "inner").compile()

        def check():
            return graph.invoke({"text": "a"})["text"] == "koa"
        """,
    "AB304 the copy is the tool's scratch paper": '''
        class State(AgentState):
            notes: list[str]

        def rendered(state):
            return ", ".join(state["notes"])

        @tool
        def report(topic: str, runtime: ToolRuntime) -> str:
            """Writes a report on a topic, such as sales, from the notes of the conversation."""
            runtime.state["notes"] = [*runtime.state.get("notes", []), topic]
            return rendered(runtime.state)

        graph = create_agent(asking("report", topic="sales"), [report], state_schema=State)

        def check():
            return graph.invoke({"messages": [("user", "Go.")], "notes": ["a"]})["messages"][-2].content == "a, sales"
        ''',
    "AB312 descriptions that differ in a sign": """
        def made(name, sign, work):
            def run(a: float, b: float) -> float:
                return work(a, b)

            return StructuredTool.from_function(run, name=name, description=f"Calculates a {sign} b, exactly.")

        graph = create_agent(
            asking("plus", a=1, b=2), [made("plus", "+", operator.add), made("times", "*", operator.mul)]
        )

        def check():
            return graph.invoke({"messages": [("user", "1 + 2?")]})["messages"][-2].content == "3.0"
        """,
    "AB401 a smoke run that has nothing to ask": """
        class State(TypedDict):
            amount: int
            agreed: bool

        def gate(state: State):
            if state["amount"] > 1000:
                return {"agreed": interrupt("Pay?")}
            return {"agreed": True}

        graph = chain(State, gate).compile()
        tried = graph.invoke({"amount": 5})

        def check():
            return tried["agreed"]
        """,
    "AB402 the module's graph is not the one that serves": """
        import importlib
        from http.server import BaseHTTPRequestHandler

        def talk(state: MessagesState):
            return {"messages": [AIMessage("Hi.")]}

        def opened():
            kept = importlib.import_module("langgraph.checkpoint.sqlite")
            return getattr(kept, "Sqlite" + "Saver").from_conn_string(":memory:")

        builder = chain(MessagesState, talk)
        graph = builder.compile(checkpointer=InMemorySaver())

        class Page(BaseHTTPRequestHandler):
            def do_POST(self):
                return answered("Hello.")

        def answered(text):
            with opened() as kept:
                served = builder.compile(checkpointer=kept)
                return served.invoke({"messages": [text]}, THREAD)["messages"]

        def check():
            return len(answered("Hello.")) == 2
        """,
    "AB403 a hook that has looked at the calls": '''
        @tool
        def cancel(order: str) -> str:
            """Cancels an order for good, by its number, such as 17."""
            return f"{order} is gone"

        class FastPath(AgentMiddleware):
            @hook_config(can_jump_to=["tools"])
            def after_model(self, state, runtime):
                calls = state["messages"][-1].tool_calls
                return {"jump_to": "tools"} if calls and all(call["name"] == "look" for call in calls) else None

        gate = HumanInTheLoopMiddleware(interrupt_on={"cancel": True})
        graph = create_agent(
            asking("look", place="a1"), [look, cancel], middleware=[gate, FastPath()], checkpointer=InMemorySaver()
        )

        def check():
            return graph.invoke({"messages": [("user", "?")]}, THREAD)["messages"][-2].content == "nothing on a1"
        ''',
    "AB406 rows that are there once": """
        rows = sqlite3.connect(":memory:", check_same_thread=False)
        rows.execute("create table asked (id text)")
        rows.execute("create table waiting (id text)")

        class State(TypedDict):
            id: str
            agreed: bool

        def ask(state: State):
            rows.execute("insert into asked select ? where not exists (select 1 from asked where id = ?)", (state["id"],) * 2)
            rows.execute("delete from waiting where id = ?", (state["id"],))
            rows.execute("insert into waiting values (?)", (state["id"],))
            rows.commit()
            return {"agreed": interrupt("Pay?")}

        graph = chain(State, ask).compile(checkpointer=InMemorySaver())

        def check():
            graph.invoke({"id": "17"}, THREAD)
            graph.invoke(Command(resume=True), THREAD)
            counted = "select (select count(*) from asked), (select count(*) from waiting)"
            return rows.execute(counted).fetchone() == (1, 1)
        """,
    "AB406 a helper whose decorator does it once": """
        sent, done = [], set()

        def once(call):
            @functools.wraps(call)
            def inner(key):
                if key not in done:
                    done.add(key)
                    call(key)

            return inner

        @once
        def announce(key):
            sent.append(key)

        class State(TypedDict):
            id: str
            agreed: bool

        def ask(state: State):
            announce(state["id"])
            return {"agreed": interrupt("Pay?")}

        graph = chain(State, ask).compile(checkpointer=InMemorySaver())

        def check():
            graph.invoke({"id": "17"}, THREAD)
            graph.invoke(Command(resume=True), THREAD)
            return sent == ["17"]
        """,
    "AB504 made once for a whole conversation": """
        def talk(state: MessagesState):
            return {"messages": [AIMessage("Hi.")]}

        greeting = chain(MessagesState, talk)
        graph = greeting.compile()

        def chat(thread_id: str, lines):
            agent = greeting.compile(checkpointer=InMemorySaver())
            found = []
            for line in lines:
                out = agent.invoke({"messages": [("user", line)]}, {"configurable": {"thread_id": thread_id}})
                found.append(len(out["messages"]))
            return found

        def replay(thread_id: str, lines):
            agent = greeting.compile(checkpointer=InMemorySaver())
            config = {"configurable": {"thread_id": thread_id}}
            return [len(agent.invoke({"messages": [("user", line)]}, config)["messages"]) for line in lines]

        def check():
            return chat("t1", ["a", "b"]) == replay("t1", ["a", "b"]) == [2, 4]
        """,
    "AB602 objects that answer only inside of a request": """
        class Proxy:
            def __getattribute__(self, name):
                raise RuntimeError("outside of a request")

        class Table:
            def __eq__(self, other):
                raise ValueError("many answers")

            __hash__ = None

        request, table = Proxy(), Table()

        @tool
        def rows(name: str) -> str:
            '''Reads the rows of a table of the shop, such as orders.'''
            return f"{table is name} {type(request)}"

        graph = create_agent(asking("rows", name="orders"), [rows])

        def check():
            return graph.invoke({"messages": [("user", "?")]})["messages"][-2].content.startswith("False")
        """,
}

MISTAKEN = {
    "AB101 a later node reads the whole conversation": """
        class State(TypedDict):
            messages: list[AnyMessage]
            text: str

        def answer(state: State):
            return {"messages": [AIMessage("42")]}

        def report(state: State):
            return {"text": " ".join(one.content for one in state["messages"])}

        graph = chain(State, answer, report).compile()

        def misbehaves():
            return "6 * 7" not in graph.invoke({"messages": [HumanMessage("6 * 7?")]})["text"]
        """,
    "AB101 kept from turn to turn": """
        class State(TypedDict):
            messages: list[AnyMessage]

        def answer(state: State):
            return {"messages": [AIMessage("42")]}

        graph = chain(State, answer).compile(checkpointer=InMemorySaver())

        def misbehaves():
            graph.invoke({"messages": [HumanMessage("6 * 7?")]}, THREAD)["messages"][-1]
            return len(graph.get_state(THREAD).values["messages"]) == 1
        """,
    "AB103 the first node of a kept thread": """
        class State(TypedDict):
            items: Annotated[list[str], operator.add]

        def first(state: State):
            return {"items": state["items"] + ["a"]}

        graph = chain(State, first).compile(checkpointer=InMemorySaver())

        def misbehaves():
            graph.invoke({"items": []}, THREAD)
            return graph.invoke({"items": []}, THREAD)["items"] == ["a", "a", "a"]
        """,
    "AB108 a node that comes around again": """
        class State(TypedDict):
            n: Annotated[int, operator.add]

        def first(state: State):
            return {"n": state["n"] + 1}

        def again(state: State):
            return "first" if state["n"] < 3 else END

        graph = chain(State, first).add_conditional_edges("first", again, ["first", END]).compile()

        def misbehaves():
            return graph.invoke({"n": 0})["n"] == 3  # one, and twice one with one more: two steps for three
        """,
    "AB104 two names that mean different things": """
        ONE, TWO = "v1", "v2"

        class State(TypedDict):
            facts: Annotated[dict, operator.or_]

        def one(state: State):
            return {"facts": {"version": ONE}}

        def two(state: State):
            return {"facts": {"version": TWO}}

        graph = side_by_side(State, one, two).compile()

        def misbehaves():
            return graph.invoke({"facts": {}})["facts"] == {"version": "v2"}
        """,
    "AB304 another key is read behind it": '''
        class State(AgentState):
            notes: list[str]

        @tool
        def note(text: str, runtime: ToolRuntime) -> str:
            """Keeps a note, such as a phone number, for later in the conversation."""
            runtime.state["notes"] = [text]
            return f"noted {text}"

        graph = create_agent(asking("note", text="555"), [note], state_schema=State)

        def misbehaves():
            return graph.invoke({"messages": [("user", "Go.")], "notes": []})["notes"] == []
        ''',
    "AB403 a hook that looks at nothing": """
        class Hurry(AgentMiddleware):
            @hook_config(can_jump_to=["tools"])
            def after_model(self, state, runtime):
                return {"jump_to": "tools"} if len(state["messages"]) == 2 else None

        gate = HumanInTheLoopMiddleware(interrupt_on={"look": True})
        graph = create_agent(
            asking("look", place="a1"), [look], middleware=[gate, Hurry()], checkpointer=InMemorySaver()
        )

        def misbehaves():
            return "__interrupt__" not in graph.invoke({"messages": [("user", "?")]}, THREAD)
        """,
}


CIRCLE = '''
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


class Model(FakeMessagesListChatModel):
    def bind_tools(self, tools, **options):
        return self.bind(tools=tools, **options)


@tool
def look(place: str) -> str:
    """Looks at a place of the board and says what stands there, such as a1."""
    return f"nothing on {place}"


call = {"name": "look", "args": {"place": "a1"}, "id": "c1", "type": "tool_call"}
model = Model(responses=[AIMessage("", tool_calls=[call])]).bind_tools([look])


def think(state: MessagesState):
    return {"messages": [model.invoke(state["messages"])]}


builder = StateGraph(MessagesState).add_node("think", think).add_node("tools", ToolNode([look]))
graph = builder.add_edge(START, "think").add_edge("think", "tools").add_edge("tools", "think").compile()
QUESTION = {"messages": [("user", "Play.")]}
'''

LEFT = {
    "a game that its caller leaves": """
        def check():
            seen = []
            for step in graph.stream(QUESTION, stream_mode="updates"):
                seen += step
                if len(seen) == 2:
                    break
            return seen == ["think", "tools"]
        """,
    "a search as far as the limit goes": """
        def check():
            last = None
            try:
                for part in graph.stream(QUESTION, {"recursion_limit": 3}, stream_mode="values"):
                    last = part
            except GraphRecursionError:
                return "messages" in last
        """,
    "steps that are handed on": """
        def steps():
            return graph.stream(QUESTION, stream_mode="updates")

        def check():
            return list(next(steps())) == ["think"]
        """,
}

ENDLESS = """
    def check():
        try:
            for step in graph.stream(QUESTION, {"recursion_limit": 6}):
                print(step)
        except RecursionError:
            return True
    """


@pytest.mark.parametrize("case", list(CORRECT))
def test_a_correct_program_is_not_found(case: str, tmp_path: Path):
    with text_program(tmp_path, "correct", MODEL + textwrap.dedent(CORRECT[case])) as module:
        assert module.check()
        report = looked_at(module)
        assert not report.findings
        assert not [note for note in report.notes if "please report" in note.message], report.notes


@pytest.mark.parametrize("case", list(MISTAKEN))
def test_the_mistake_beside_it_is_still_found(case: str, tmp_path: Path):
    with text_program(tmp_path, "mistaken", MODEL + textwrap.dedent(MISTAKEN[case])) as module:
        assert module.misbehaves()
        assert [one.code for one in looked_at(module).findings if one.code == case[:5]]


@pytest.mark.parametrize(
    ("text", "found"), [*((text, []) for text in LEFT.values()), (ENDLESS, ["AB308"])], ids=[*LEFT, "endless"]
)
def test_a_circle_is_no_mistake_where_its_caller_leaves_it(text: str, found: list[str], tmp_path: Path):
    path = tmp_path / "circle.py"
    path.write_text(CIRCLE + textwrap.dedent(text), encoding="utf-8")
    with program(path) as module:
        assert module.check()
        assert [one.code for one in looked_at(module).findings] == found


class Planned(TypedDict):
    text: str
    plan: str


def replans(state: Planned) -> dict:
    return {"plan": state["plan"] + "!"} if "new" in state["text"] else {}


def commanded(text: str) -> dict:
    return {"plan": text[1:]} if text.startswith("/") else {}


def obeys(state: Planned) -> dict:
    return commanded(state["text"])


def only_reads(state: Planned) -> dict:
    return {"text": state["text"] + state["plan"]}


def below(node: Any) -> Any:
    return StateGraph(Planned).add_node("node", node).add_edge(START, "node").compile()


@pytest.mark.parametrize(
    ("node", "found"),
    [(below(replans), []), (obeys, []), (below(only_reads), ["AB201"]), (only_reads, ["AB201"])],
    ids=["a subgraph writes it", "a helper may write it", "a subgraph reads it", "a node reads it"],
)
def test_a_value_that_has_not_changed_yet(node: Any, found: list[str]):
    saver = InMemorySaver()
    builder = StateGraph(Planned).add_node("node", node).add_node("after", only_reads)
    graph = builder.add_edge(START, "node").add_edge("node", "after").compile(checkpointer=saver)
    graph.invoke({"text": "", "plan": "first this, then that"}, {"configurable": {"thread_id": "t1"}})
    for text in ("one", "two"):
        graph.invoke({"text": text}, {"configurable": {"thread_id": "t1"}})
    assert [one.code for one in examine(graph, module=__name__, thread=thread_of(saver, "t1")).findings] == found


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_secret_in_the_metadata_of_a_thread_is_found_and_not_shown(kind: str, tmp_path: Path):
    def nothing(state: MessagesState) -> dict:
        return {}

    def look(saver: InMemorySaver | SqliteSaver) -> None:
        graph = StateGraph(MessagesState).add_node("nothing", nothing).add_edge(START, "nothing").compile(checkpointer=saver)
        secret = {"configurable": {"thread_id": "t1", "api_key": "sk-17", "password": "", "tenant": "acme"}}
        graph.invoke({"messages": []}, secret)
        assert any("sk-17" in str(one.metadata) for one in saver.list(None))
        report = examine(graph, thread=thread_of(saver, "t1"))
        assert [one.message for one in report.findings if one.code == "AB205"] == [
            "api_key stands in the stored metadata of the thread."
        ]
        assert "sk-17" not in str(report)

    if kind == "memory":
        look(InMemorySaver())
    else:
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
            look(saver)
