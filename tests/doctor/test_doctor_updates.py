"""AB107 to AB111 on correct programs that look like mistakes: each one runs as it should, and the doctor says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_programs import looked_at
from doctor_texts import text_program

CORRECT = {
    "AB107 an item from before the fan-out": """
        class State(TypedDict):
            notes: Annotated[list[str], operator.add]
            first: str

        def begin(state: State):
            return {"notes": ["question"], "first": state["notes"][0]}

        def one(state: State):
            return {"notes": ["one"]}

        def two(state: State):
            return {"notes": ["two"]}

        def end(state: State):
            return {"first": state["notes"][0]}

        builder = side_by_side(State, begin)
        for node in (one, two):
            builder.add_node(node.__name__, node)
            builder.add_edge("begin", node.__name__)
        builder.add_node("end", end)
        builder.add_edge(["one", "two"], "end")
        graph = builder.compile()

        def check():
            return graph.invoke({"notes": ["given"]})["first"] == "given"
        """,
    "AB107 the first item is the caller's": """
        class State(TypedDict):
            notes: Annotated[list[str], operator.add]
            first: str

        def one(state: State):
            return {"notes": ["one"]}

        def two(state: State):
            return {"notes": ["two"]}

        def end(state: State):
            return {"first": state["notes"][0]}

        graph = side_by_side(State, one, two, then=end).compile()

        def check():
            return graph.invoke({"notes": ["question"]})["first"] == "question"
        """,
    "AB108 a number that Send has brought": """
        class State(TypedDict):
            items: list[int]
            total: Annotated[int, operator.add]

        def fan(state: State):
            return [Send("work", {"total": item}) for item in state["items"]]

        def work(state: State):
            return {"total": state["total"] + 1}

        graph = routed(State, fan, work).compile()

        def check():
            return graph.invoke({"items": [1, 2], "total": 10})["total"] == 15
        """,
    "AB108 the difference to a goal": """
        class State(TypedDict):
            total: Annotated[int, operator.add]

        def work(state: State):
            return {"total": state["total"] + (7 - 2 * state["total"])}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"total": 3})["total"] == 7
        """,
    "AB108 a name that means the step alone": """
        class State(TypedDict):
            total: Annotated[int, operator.add]

        def work(state: State):
            step = state["total"]
            step = 1
            step += 1
            return {"total": step}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"total": 3})["total"] == 5
        """,
    "AB108 zero first": """
        class State(TypedDict):
            total: Annotated[int, operator.add]

        def work(state: State):
            if state["total"]:
                return {"total": 1}
            return {"total": state["total"] + 1}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"total": 3})["total"] == 4
        """,
    "AB109 a name that is bound anew": """
        class State(TypedDict):
            log: Annotated[list[str], operator.add]

        def work(state: State) -> dict:
            state = {"log": [f"seen {len(state['log'])}"]}
            return state

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"log": ["a"]})["log"] == ["a", "seen 1"]
        """,
    "AB109 a payload is returned": """
        class State(TypedDict):
            items: list[str]
            results: Annotated[list[str], operator.add]

        class Payload(TypedDict):
            results: list[str]

        def fan(state: State):
            return [Send("collect", {"results": [item.upper()]}) for item in state["items"]]

        def collect(state: Payload):
            return state

        graph = routed(State, fan, collect).compile()

        def check():
            return graph.invoke({"items": ["a", "b"], "results": []})["results"] == ["A", "B"]
        """,
    "AB109 the appended key is taken out": """
        class State(TypedDict):
            log: Annotated[list[str], operator.add]
            done: bool

        def first(state: State) -> dict:
            state.pop("log")
            return state

        def second(state: State) -> dict:
            copied = {**state, "done": True}
            del copied["log"]
            return copied

        graph = chain(State, first, second).compile()

        def check():
            return graph.invoke({"log": ["a"], "done": False}) == {"log": ["a"], "done": True}
        """,
    "AB109 the appended key is replaced": """
        class State(TypedDict):
            log: Annotated[list[str], operator.add]
            done: bool

        def first(state: State) -> dict:
            state["log"] = ["first"]
            return state

        def second(state: State) -> dict:
            copied = dict(state)
            copied["log"] = ["second"]
            return copied

        def third(state: State) -> dict:
            return {**state, **{"log": ["third"]}}

        graph = chain(State, first, second, third).compile()

        def check():
            return graph.invoke({"log": ["a"], "done": False})["log"] == ["a", "first", "second", "third"]
        """,
    "AB110 a payload is changed": """
        class State(TypedDict):
            items: list[str]
            tags: list[str]
            sizes: Annotated[list[int], operator.add]

        def fan(state: State):
            return [Send("work", {"tags": [item]}) for item in state["items"]]

        def work(state: State):
            state["tags"].append("default")
            return {"sizes": [2]}

        graph = routed(State, fan, work).compile()

        def check():
            return graph.invoke({"items": ["a", "b"], "tags": ["x"]}) == {"items": ["a", "b"], "tags": ["x"], "sizes": [2, 2]}
        """,
    "AB110 a value that no checkpoint holds": """
        class State(TypedDict):
            cache: Annotated[dict, UntrackedValue]
            count: int

        def one(state: State):
            state["cache"].update(a=1)
            return {"count": 1}

        def two(state: State):
            return {"count": state["cache"]["a"] + 1}

        graph = chain(State, one, two).compile()

        def check():
            return graph.invoke({"cache": {}, "count": 0})["count"] == 2
        """,
    "AB110 scratch paper": """
        class State(TypedDict):
            names: list[str]
            todo: list[str]
            text: str

        def first(state: State):
            state["names"] = sorted(state["names"])
            return {"text": ", ".join(state["names"])}

        def second(state: State):
            done = []
            todo = list(state["todo"])
            while todo:
                done.append(todo.pop())
            return {"text": state["text"] + str(done)}

        def third(state: State):
            del state["names"]
            return {"text": state["text"] + str(sorted(state))}

        graph = chain(State, first, second, third).compile()

        def check():
            given = {"names": ["b", "a"], "todo": ["x"], "text": ""}
            return graph.invoke(given)["text"] == "a, b['x']['text', 'todo']" and given["names"] == ["b", "a"]
        """,
    "AB110 a decorator that hands in a copy": """
        def own_copy(call):
            @functools.wraps(call)
            def inner(state):
                return call(copy.deepcopy(state))

            return inner

        class State(TypedDict):
            names: list[str]
            count: int

        @own_copy
        def work(state: State):
            state["names"].append("new")
            return {"count": 1}

        graph = chain(State, work).compile()

        def check():
            given = {"names": ["a"], "count": 0}
            graph.invoke(given)
            return given["names"] == ["a"]
        """,
    "AB110 the copy of a model": """
        class State(BaseModel):
            names: list[str]
            count: int = 0

        def work(state: State):
            state.names.append("new")
            return {"count": len(state.names)}

        graph = chain(State, work).compile()

        def check():
            given = ["a"]
            return graph.invoke({"names": given})["count"] == 2 and given == ["a"]
        """,
    "AB111 a model takes what stays a tuple": """
        model = FakeListChatModel(responses=["Fine."])

        class State(TypedDict):
            messages: Annotated[list[AnyMessage], operator.add]

        def ask(state: State):
            return {"messages": [("user", "How?")]}

        def chat(state: State):
            return {"messages": [model.invoke(state["messages"])]}

        graph = chain(State, ask, chat).compile()

        def check():
            return len(graph.invoke({"messages": []})["messages"]) == 2
        """,
    "AB111 a reader that knows both": """
        class State(TypedDict):
            messages: Annotated[list[AnyMessage], operator.add]
            text: str

        def ask(state: State):
            return {"messages": [{"role": "user", "content": "How?"}]}

        def show(state: State):
            last = state["messages"][-1]
            return {"text": last.content if isinstance(last, BaseMessage) else last["content"]}

        graph = chain(State, ask, show).compile()

        def check():
            return graph.invoke({"messages": []})["text"] == "How?"
        """,
    "AB111 a reader of another item": """
        class State(TypedDict):
            messages: Annotated[list[AnyMessage], operator.add]
            text: str

        def ask(state: State):
            return {"messages": [("assistant", "Fine.")]}

        def show(state: State):
            return {"text": state["messages"][0].content}

        graph = chain(State, ask, show).compile()

        def check():
            return graph.invoke({"messages": [HumanMessage("How?")]})["text"] == "How?"
        """,
}


@pytest.mark.parametrize("case", list(CORRECT))
def test_a_correct_program_is_not_found(case: str, tmp_path: Path):
    with text_program(tmp_path, "correct", CORRECT[case]) as module:
        assert module.check()
        assert not [one for one in looked_at(module).findings if one.code == case[:5]]
