"""The mistakes of AB101 to AB210 in other clothes: each program goes wrong on the real LangGraph, and the doctor says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_programs import looked_at
from doctor_texts import text_program

STATE = """
class State(TypedDict):
    messages: list[AnyMessage]
    hits: list[str]
    log: Annotated[list[str], operator.add]
    n: Annotated[int, operator.add]
    facts: Annotated[dict, operator.or_]
    kept: dict


def full():
    return {"messages": [HumanMessage("Hi.")], "hits": ["h"], "log": ["old"], "n": 3, "facts": {}, "kept": {}}


def refused():
    try:
        graph.invoke(full())
    except InvalidUpdateError:
        return True
    return False
"""

LOST = '\ndef misbehaves():\n    return len(graph.invoke({"messages": [HumanMessage("Hi.")]})["messages"]) == 1\n'
REFUSED = "\ndef misbehaves():\n    return refused()\n"
TWICE = '\ndef misbehaves():\n    return graph.invoke(full())["log"].count("old") == 2\n'
COUNTED = '\ndef misbehaves():\n    return graph.invoke(full())["n"] == 7\n'
FORGOTTEN = (
    "\nsaver = InMemorySaver()\n\ndef misbehaves():\n    chain(State, one).compile(checkpointer=saver).invoke(full(), THREAD)\n"
    '    kept = saver.get_tuple(THREAD).checkpoint["channel_values"]\n'
    '    return (kept["hits"], kept["kept"]) == (["h"], {})\n'
)

BODIES: dict[str, tuple[str, str]] = {
    "AB101 written to a dict": (
        'def one(state: State):\n    found = {}\n    found["messages"] = [AIMessage("Fine.")]\n    return found\n',
        LOST,
    ),
    "AB101 in a Command": ('def one(state: State):\n    return Command(update={"messages": [AIMessage("Fine.")]})\n', LOST),
    "AB101 what a model answers": (
        'model = FakeListChatModel(responses=["Fine."])\n\n'
        'def one(state: State):\n    return {"messages": [model.invoke(state["messages"])]}\n',
        LOST,
    ),
    "AB103 a local name": ('def one(state: State):\n    log = state["log"]\n    return {"log": log + ["new"]}\n', TWICE),
    "AB103 appended to the old list": (
        'def one(state: State):\n    log = list(state["log"])\n    log.append("new")\n    return {"log": log}\n',
        TWICE,
    ),
    "AB103 a copy": ('def one(state: State):\n    return {"log": list(state["log"]) + ["new"]}\n', TWICE),
    "AB103 with get": ('def one(state: State):\n    return {"log": state.get("log", []) + ["new"]}\n', TWICE),
    "AB103 in the middle of a sum": ('def one(state: State):\n    return {"log": ["a"] + state["log"] + ["b"]}\n', TWICE),
    "AB103 with update": (
        'def one(state: State):\n    found = {}\n    found.update({"log": [*state["log"], "new"]})\n    return found\n',
        TWICE,
    ),
    "AB108 a local name": ('def one(state: State):\n    n = state["n"]\n    return {"n": n + 1}\n', COUNTED),
    "AB108 +=": ('def one(state: State):\n    n = state.get("n", 0)\n    n += 1\n    return {"n": n}\n', COUNTED),
    "AB108 += in the state": ('def one(state: State):\n    state["n"] += 1\n    return {"n": state["n"]}\n', COUNTED),
    "AB109 changed and returned": ('def one(state: State):\n    state["hits"] = ["x"]\n    return state\n', TWICE),
    "AB109 a copy with another key": (
        'def one(state: State):\n    copied = dict(state)\n    copied["hits"] = []\n    return copied\n',
        TWICE,
    ),
    "AB110 deleted": ('def one(state: State):\n    del state["hits"][0]\n    return {"n": 1}\n', FORGOTTEN),
    "AB110 a local name": (
        'def one(state: State):\n    hits = state["hits"]\n    hits.append("x")\n    return {"n": 1}\n',
        FORGOTTEN,
    ),
    "AB110 an item of a dict": ('def one(state: State):\n    state["kept"]["k"] = 1\n    return {"n": 1}\n', FORGOTTEN),
    "AB110 nothing is returned": ('def one(state: State):\n    state["hits"].append("x")\n', FORGOTTEN),
    "AB110 bound anew for nobody": ('def one(state: State):\n    state["hits"] = ["x"]\n    return {"n": 1}\n', FORGOTTEN),
}

PROGRAMS: dict[str, str] = {
    "AB101 a list of anything": """
        class Bare(TypedDict):
            messages: list

        def one(state: Bare):
            return {"messages": [AIMessage("Fine.")]}

        graph = chain(Bare, one).compile()

        def misbehaves():
            return len(graph.invoke({"messages": [HumanMessage("Hi.")]})["messages"]) == 1
        """,
    "AB101 a message where a list belongs": """
        class Plain(TypedDict):
            messages: list[BaseMessage]

        def one(state: Plain):
            answer = AIMessage("Fine.")
            return {"messages": answer}

        graph = chain(Plain, one).compile()

        def misbehaves():
            return isinstance(graph.invoke({"messages": [HumanMessage("Hi.")]})["messages"], AIMessage)
        """,
    "AB103 a dataclass": """
        @dataclass
        class Data:
            log: Annotated[list[str], operator.add] = field(default_factory=list)

        def one(state: Data):
            return {"log": state.log + ["new"]}

        graph = chain(Data, one).compile()

        def misbehaves():
            return graph.invoke({"log": ["old"]})["log"] == ["old", "old", "new"]
        """,
    "AB103 behind a decorator that hands on": """
        def noted(call):
            @functools.wraps(call)
            def inner(*arguments, **options):
                found = call(*arguments, **options)
                return found

            return inner

        class Noted(TypedDict):
            log: Annotated[list[str], operator.add]

        @noted
        def one(state: Noted):
            return {"log": state["log"] + ["new"]}

        graph = chain(Noted, one).compile()

        def misbehaves():
            return graph.invoke({"log": ["old"]})["log"] == ["old", "old", "new"]
        """,
    "AB103 a reducer by hand": """
        def both(old, new):
            return old + new

        class Hand(TypedDict):
            log: Annotated[list[str], both]

        def one(state: Hand):
            return {"log": state["log"] + ["new"]}

        graph = chain(Hand, one).compile()

        def misbehaves():
            return graph.invoke({"log": ["old"]})["log"] == ["old", "old", "new"]
        """,
    "AB105 |= of a dict": """
        def merge(old: dict, new: dict):
            old |= new
            return old

        class Merged(TypedDict):
            facts: Annotated[dict, merge]

        def one(state: Merged):
            return {"facts": {"b": 2}}

        graph = chain(Merged, one).compile()

        def misbehaves():
            steps = list(graph.stream({"facts": {"a": 1}}, stream_mode="values"))
            return steps[0]["facts"] == {"a": 1, "b": 2}
        """,
    "AB105 behind a partial": """
        def merge(old, new):
            for one in new:
                if one not in old:
                    old.append(one)
            return old

        class Merged(TypedDict):
            names: Annotated[list, functools.partial(merge)]

        def one(state: Merged):
            return {"names": ["b"]}

        graph = chain(Merged, one).compile()

        def misbehaves():
            return list(graph.stream({"names": ["a"]}, stream_mode="values"))[0]["names"] == ["a", "b"]
        """,
    "AB107 the last item": """
        class Notes(TypedDict):
            notes: Annotated[list[str], operator.add]
            text: str

        def prices(state: Notes):
            return {"notes": ["12 euros"]}

        def news(state: Notes):
            return {"notes": ["rain"]}

        def write(state: Notes):
            return {"text": state["notes"][-1]}

        graph = side_by_side(Notes, prices, news, then=write).compile()

        def misbehaves():
            return graph.invoke({"notes": []})["text"] == "12 euros"  # the edge to the news was drawn last
        """,
    "AB110 a dataclass": """
        @dataclass
        class Data:
            log: Annotated[list[str], operator.add] = field(default_factory=list)
            done: bool = False

        def one(state: Data):
            state.log.append("a")
            return {"done": True}

        graph = chain(Data, one).compile(checkpointer=InMemorySaver())

        def misbehaves():
            graph.invoke({"log": ["old"]}, THREAD)
            return graph.get_state(THREAD).values["log"] == ["old"]
        """,
    "AB203 copied from the config": """
        class Link(TypedDict):
            thread_id: str

        def one(state: Link, config: RunnableConfig):
            return {"thread_id": config["configurable"]["thread_id"]}

        graph = chain(Link, one).compile(checkpointer=InMemorySaver())

        def misbehaves():
            graph.invoke({"thread_id": ""}, THREAD)
            values = graph.get_state(THREAD).values
            other = {"configurable": {"thread_id": "t2"}}
            graph.update_state(other, values)
            return graph.get_state(other).values["thread_id"] == "t1"
        """,
    "AB204 a dataclass": """
        @dataclass
        class Person:
            is_admin: bool = False
            text: str = ""

        def one(state: Person):
            return {"text": "all of it"} if state.is_admin else {"text": "nothing"}

        graph = chain(Person, one).compile(checkpointer=InMemorySaver())

        def misbehaves():
            graph.invoke({"is_admin": True}, THREAD)
            return graph.invoke({"text": ""}, THREAD)["text"] == "all of it"
        """,
    "AB204 another name for the state": """
        class Person(TypedDict):
            userid: str
            text: str

        def one(s: Person):
            who = s["userid"]
            return {"text": who}

        graph = chain(Person, one).compile(checkpointer=InMemorySaver())

        def misbehaves():
            graph.invoke({"userid": "ada"}, THREAD)
            return graph.invoke({"text": ""}, THREAD)["text"] == "ada"
        """,
    "AB204 configurable with get": """
        class Person(TypedDict):
            text: str

        def one(state: Person, config: RunnableConfig):
            given = config.get("configurable", {})
            return {"text": given.get("user_id") or config["configurable"]["tenant_id"]}

        graph = chain(Person, one).compile()

        def misbehaves():
            sent = {"user_id": "somebody else"}
            return graph.invoke({"text": ""}, dict([("configurable", sent)]))["text"] == "somebody else"
        """,
    "AB204 a tool": """
        class Person(AgentState):
            user_id: str

        @tool
        def orders(runtime: ToolRuntime) -> str:
            \"\"\"The orders of the person who asks.\"\"\"
            return runtime.state["user_id"]

        from langgraph.prebuilt import ToolNode

        builder = StateGraph(Person)
        builder.add_node("tools", ToolNode([orders]))
        builder.add_edge(START, "tools")
        graph = builder.compile(checkpointer=InMemorySaver())

        def asked():
            return AIMessage("", tool_calls=[{"name": "orders", "args": {}, "id": "c1"}])

        def misbehaves():
            graph.invoke({"messages": [asked()], "user_id": "ada"}, THREAD)
            return graph.invoke({"messages": [asked()]}, THREAD)["messages"][-1].content == "ada"
        """,
    "AB205 built step by step": """
        class Size(TypedDict):
            size: int

        def one(state: Size):
            return {"size": 1}

        saver = InMemorySaver()
        graph = chain(Size, one).compile(checkpointer=saver)

        def first(key):
            config = {"configurable": dict(thread_id="t1", api_key=key)}
            graph.invoke({"size": 0}, config=config)

        def second(key: str):
            config = {"configurable": {"thread_id": "t2"}}
            config["configurable"]["openai_api_key"] = key
            config["metadata"] = {"password": key}
            graph.with_config(configurable={"access_token": key}).invoke({"size": 0}, config)

        def misbehaves():
            first("k-1")
            second("k-2")
            text = str([one.metadata for one in saver.list(None)])
            return "k-1" in text and "k-2" in text
        """,
    "AB206 the second node reads it": """
        @dataclass
        class Context:
            name: str

        class Text(TypedDict):
            text: str

        def one(state: Text):
            return {"text": "Hello"}

        def two(state: Text, runtime: Runtime[Context]):
            with suppress(ZeroDivisionError):
                pass
            return {"text": f"{state['text']}, {runtime.context.name}."}

        graph = chain(Text, one, two, context_schema=Context).compile()

        def misbehaves():
            try:
                graph.invoke({"text": ""})
            except AttributeError:
                return True
            return False
        """,
    "AB208 total=False, and the run leaves it out": """
        class Asked(TypedDict, total=False):
            question: str
            answer: str

        def one(state: Asked):
            return {"answer": state["question"]}

        graph = chain(Asked, one).compile()

        def misbehaves():
            try:
                graph.invoke({"answer": ""})
            except KeyError:
                return True
            return False
        """,
}

TOGETHER = {
    "AB102 written to a dict": """
        def one(state: State):
            found = {}
            found["hits"] = ["a"]
            return found

        def two(state: State):
            return dict(hits=["b"])

        graph = side_by_side(State, one, two).compile()
        """,
    "AB102 in every branch": """
        def one(state: State):
            if state["n"]:
                return {"hits": ["a"]}
            return {"hits": []}

        def two(state: State):
            print(state)
            found = {"hits": ["b"], "n": 0}
            found["n"] = 1
            return found

        graph = side_by_side(State, one, two).compile()
        """,
    "AB102 a method and a partial": """
        class Nodes:
            def one(self, state: State):
                try:
                    found = 1
                finally:
                    pass
                return {"hits": ["a"]}

        def other(state: State, k):
            return {"hits": ["b"]}

        builder = StateGraph(State).add_node("one", Nodes().one).add_node("two", functools.partial(other, k=1))
        graph = builder.add_edge(START, "one").add_edge(START, "two").compile()
        """,
    "AB102 a router with one answer": """
        def one(state: State):
            return {"hits": ["a"]}

        def two(state: State):
            return {"hits": ["b"]}

        def both(state: State):
            return ["one", "two"]

        graph = routed(State, both, one, two).compile()
        """,
    "AB102 Send to a named constant": """
        NODE = "work"

        def work(state: dict):
            return {"hits": ["a"]}

        def fan(state: State):
            return [Send(NODE, {"hits": [hit]}) for hit in [*state["log"], "more"]]

        def each(state: State):
            return [Send(NODE, {"hits": [hit]}) for hit in state["messages"]]

        def full():
            return {"messages": [HumanMessage("a"), HumanMessage("b")], "log": ["a"]}

        graph = routed(State, each, work).compile()
        """,
    "AB102 Send in a map": """
        def work(state: dict):
            return {"hits": ["a"]}

        def each(state: State):
            return list(map(lambda hit: Send("work", {"hits": [hit]}), state["messages"]))

        def full():
            return {"messages": [HumanMessage("a"), HumanMessage("b")]}

        graph = routed(State, each, work).compile()
        """,
    "AB102 Send in a loop": """
        def work(state: dict):
            return {"hits": ["a"]}

        def each(state: State):
            sends = []
            for index, hit in enumerate(state["messages"]):
                sends.append(Send("work", {"hits": [hit, index]}))
            return sends or END

        def full():
            return {"messages": [HumanMessage("a"), HumanMessage("b")]}

        graph = routed(State, each, work).compile()
        """,
}


def texts() -> dict[str, str]:
    found = dict(PROGRAMS)
    for case, (body, ending) in BODIES.items():
        found[case] = f"{STATE}\n{body}\ngraph = chain(State, one).compile()\n{ending}"
    for case, body in TOGETHER.items():
        found[case] = STATE + "\n".join(line[8:] for line in body.splitlines()) + REFUSED
    return found


@pytest.mark.parametrize("case", list(texts()))
def test_a_mistake_is_found(case: str, tmp_path: Path):
    with text_program(tmp_path, "mistaken", texts()[case]) as module:
        assert module.misbehaves()
        assert case[:5] in {one.code for one in looked_at(module).findings}
