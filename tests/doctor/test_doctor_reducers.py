"""AB101 to AB105 on correct programs that look like mistakes: each one runs as it should, and the doctor says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_programs import looked_at
from doctor_texts import text_program

CORRECT = {
    "AB101 a prompt that is built anew": """
        class State(TypedDict):
            question: str
            messages: list[AnyMessage]

        def build(state: State):
            return {"messages": [SystemMessage("Be brief."), HumanMessage(state["question"])]}

        graph = chain(State, build).compile()

        def check():
            return len(graph.invoke({"question": "Why?"})["messages"]) == 2
        """,
    "AB101 a summary in place of the history": """
        class State(TypedDict):
            messages: list[AnyMessage]

        def chat(state: State):
            return {"messages": [*state["messages"], AIMessage("Fine.")]}

        def shorten(state: State):
            return {"messages": [AIMessage("So far: " + " / ".join(one.content for one in state["messages"]))]}

        graph = chain(State, chat, shorten).compile()

        def check():
            return graph.invoke({"messages": [HumanMessage("How?")]})["messages"][0].content == "So far: How? / Fine."
        """,
    "AB101 an answer to another key": """
        class State(TypedDict):
            question: str
            messages: list[AnyMessage]

        def answer(state: State):
            return {"messages": [AIMessage(f"You asked: {state['question']}")]}

        graph = chain(State, answer).compile()

        def check():
            return graph.invoke({"question": "Why?"})["messages"][0].content == "You asked: Why?"
        """,
    "AB101 a greeting before anything was said": """
        class State(TypedDict):
            messages: list[AnyMessage]

        def greet(state: State):
            return {"messages": [AIMessage("Welcome.")]}

        graph = chain(State, greet).compile()

        def check():
            return len(graph.invoke({"messages": []})["messages"]) == 1
        """,
    "AB101 a list that is filled up before it is returned": """
        class State(TypedDict):
            messages: list[AnyMessage]

        def chat(state: State):
            said = [AIMessage("Fine.")]
            said[:0] = state["messages"]
            return {"messages": said}

        graph = chain(State, chat).compile()

        def check():
            return len(graph.invoke({"messages": [HumanMessage("How?")]})["messages"]) == 2
        """,
    "AB102 a key that is taken out again": """
        class State(TypedDict):
            hits: list[str]
            seen: int

        def first(state: State) -> dict:
            found = {"hits": [], "seen": 1}
            found.pop("hits")
            return found

        def second(state: State) -> dict:
            return {"hits": ["one"]}

        graph = side_by_side(State, first, second).compile()

        def check():
            return graph.invoke({"hits": []}) == {"hits": ["one"], "seen": 1}
        """,
    "AB102 a key that is written under a condition": """
        class State(TypedDict):
            hits: list[str]
            seen: int

        def first(state: State) -> dict:
            found = {"seen": 1}
            if state["hits"]:
                found["hits"] = []
            return found

        def second(state: State) -> dict:
            return {"hits": ["one"]}

        graph = side_by_side(State, first, second).compile()

        def check():
            return graph.invoke({"hits": []})["hits"] == ["one"]
        """,
    "AB102 an update of the graph above": """
        class Inner(TypedDict):
            hits: list[str]

        def up(state: Inner):
            return Command(graph=Command.PARENT, update={"note": "up"})

        def beside(state: Inner):
            return {"hits": ["one"]}

        class State(TypedDict):
            note: str

        below = side_by_side(Inner, beside, up)
        builder = StateGraph(State)
        builder.add_node("below", below.compile())
        builder.add_edge(START, "below")
        graph = builder.compile()

        def check():
            return graph.invoke({"note": ""})["note"] == "up"
        """,
    "AB102 Send for the chosen item only": """
        class State(TypedDict):
            jobs: list[dict]
            chosen: int
            done: str

        def pick(state: State):
            return [Send("work", job) for job in state["jobs"] if job["id"] == state["chosen"]]

        def work(state: dict):
            return {"done": state["name"]}

        graph = routed(State, pick, work).compile()

        def check():
            return graph.invoke({"jobs": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], "chosen": 2})["done"] == "b"
        """,
    "AB102 Send for the first item only": """
        class State(TypedDict):
            jobs: list[str]
            done: str

        def pick(state: State):
            for job in state["jobs"]:
                if job != "skip":
                    return Send("work", {"jobs": [job]})
            return END

        def work(state: State):
            return {"done": state["jobs"][0]}

        graph = routed(State, pick, work).compile()

        def check():
            return graph.invoke({"jobs": ["skip", "a", "b"]})["done"] == "a"
        """,
    "AB102 Send for one item of many, cut off afterwards": """
        class State(TypedDict):
            jobs: list[str]
            done: str

        def pick(state: State):
            sends = [Send("work", {"jobs": [job]}) for job in state["jobs"]]
            return sends[:1]

        def work(state: State):
            return {"done": state["jobs"][0]}

        graph = routed(State, pick, work).compile()

        def check():
            return graph.invoke({"jobs": ["a", "b"]})["done"] == "a"
        """,
    "AB102 Send for a list that holds one item": """
        class State(TypedDict):
            jobs: list[str]
            done: str

        def pick(state: State):
            if len(state["jobs"]) != 1:
                return END
            return [Send("work", {"jobs": [job]}) for job in state["jobs"]]

        def work(state: State):
            return {"done": state["jobs"][0]}

        graph = routed(State, pick, work).compile()

        def check():
            return graph.invoke({"jobs": ["a", "b"], "done": ""})["done"] == ""
        """,
    "AB103 a list that Send has brought": """
        class State(TypedDict):
            items: list[str]
            notes: Annotated[list[str], operator.add]

        def fan(state: State):
            return [Send("work", {"notes": [f"about {item}"]}) for item in state["items"]]

        def work(state: State):
            return {"notes": state["notes"] + ["done"]}

        graph = routed(State, fan, work).compile()

        def check():
            return graph.invoke({"items": ["a"], "notes": ["old"]})["notes"] == ["old", "about a", "done"]
        """,
    "AB103 a list that the node has replaced": """
        class State(TypedDict):
            log: Annotated[list[str], operator.add]

        def work(state: State):
            state["log"] = []
            return {"log": state["log"] + ["new"]}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"log": ["old"]})["log"] == ["old", "new"]
        """,
    "AB103 a copy without the old items": """
        class State(TypedDict):
            log: Annotated[list[str], operator.add]

        def work(state: State):
            log = list(state["log"])
            log.clear()
            log.append("new")
            return {"log": log}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"log": ["old"]})["log"] == ["old", "new"]
        """,
    "AB103 the last item is repeated on purpose": """
        class State(TypedDict):
            log: Annotated[list[str], operator.add]

        def work(state: State):
            log = state["log"][-1:]
            return {"log": log + ["again"]}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"log": ["a", "b"]})["log"] == ["a", "b", "b", "again"]
        """,
    "AB103 a decorator that takes the old items off": """
        def only_new(call):
            @functools.wraps(call)
            def inner(state):
                return {"log": call(state)["log"][len(state["log"]) :]}

            return inner

        class State(TypedDict):
            log: Annotated[list[str], operator.add]

        @only_new
        def work(state: State):
            return {"log": state["log"] + ["new"]}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"log": ["old"]})["log"] == ["old", "new"]
        """,
    "AB103 a helper makes the Send": """
        class State(TypedDict):
            items: list[str]
            notes: Annotated[list[str], operator.add]

        def sent_to(name, item):
            return Send(name, {"notes": [item]})

        def fan(state: State):
            return [sent_to("work", item) for item in state["items"]]

        def work(state: State):
            return {"notes": state["notes"] + ["done"]}

        graph = routed(State, fan, work).compile()

        def check():
            return graph.invoke({"items": ["a"], "notes": ["old"]})["notes"] == ["old", "a", "done"]
        """,
    "AB103 the list is empty there": """
        class State(TypedDict):
            log: Annotated[list[str], operator.add]

        def work(state: State):
            if not state["log"]:
                return {"log": state["log"] + ["first"]}
            return {"log": ["next"]}

        graph = chain(State, work).compile()

        def check():
            return graph.invoke({"log": []})["log"] == ["first"]
        """,
    "AB104 the same constant from both": """
        class State(TypedDict):
            facts: Annotated[dict, operator.or_]

        def first(state: State):
            return {"facts": {"searched": True, "mail": 1}}

        def second(state: State):
            return {"facts": {"searched": True, "files": 2}}

        graph = side_by_side(State, first, second).compile()

        def check():
            return graph.invoke({"facts": {}})["facts"] == {"searched": True, "mail": 1, "files": 2}
        """,
    "AB104 a key that one of two returns writes": """
        class State(TypedDict):
            facts: Annotated[dict, operator.or_]

        def first(state: State):
            if state["facts"]:
                return {"facts": {"day": 1}}
            return {"facts": {"mail": 1}}

        def second(state: State):
            return {"facts": {"day": 2}}

        graph = side_by_side(State, first, second).compile()

        def check():
            return graph.invoke({"facts": {}})["facts"] == {"mail": 1, "day": 2}
        """,
    "AB105 names that are bound to copies": """
        def both(old: list, new: list) -> list:
            old, new = list(old), list(new)
            old.extend(new)
            return old

        def noted(old: list, new: list) -> list:
            old: list = list(old)
            old += new
            return old

        class State(TypedDict):
            first: Annotated[list, both]
            second: Annotated[list, noted]

        def work(state: State):
            return {"first": [1], "second": [1]}

        graph = chain(State, work).compile()

        def check():
            given = [5]
            return graph.invoke({"first": given, "second": given})["first"] == [5, 1] and given == [5]
        """,
    "AB105 a number and a text": """
        def total(old: int, new: int) -> int:
            old += new
            return old

        def joined(old: str, new: str) -> str:
            old += new
            return old

        class State(TypedDict):
            count: Annotated[int, total]
            text: Annotated[str, joined]

        def work(state: State):
            return {"count": 1, "text": "b"}

        graph = chain(State, work).compile()

        def check():
            given = {"count": 5, "text": "a"}
            return graph.invoke(given) == {"count": 6, "text": "ab"} and given == {"count": 5, "text": "a"}
        """,
    "AB105 a method of a value that cannot change": """
        @dataclass(frozen=True)
        class Money:
            cents: int = 0

            def add(self, other: Money) -> Money:
                return Money(self.cents + other.cents)

        def plus(old: Money, new: Money) -> Money:
            return old.add(new)

        class State(TypedDict):
            cost: Annotated[Money, plus]

        def work(state: State):
            return {"cost": Money(3)}

        graph = chain(State, work).compile()

        def check():
            given = Money(2)
            return graph.invoke({"cost": given})["cost"] == Money(5) and given == Money(2)
        """,
    "AB105 the copy of a walrus": """
        def merge(old: dict, new: dict) -> dict:
            (old := dict(old)).update(new)
            return old

        class State(TypedDict):
            facts: Annotated[dict, merge]

        def work(state: State):
            return {"facts": {"b": 2}}

        graph = chain(State, work).compile()

        def check():
            given = {"a": 1}
            return graph.invoke({"facts": given})["facts"] == {"a": 1, "b": 2} and given == {"a": 1}
        """,
}


@pytest.mark.parametrize("case", list(CORRECT))
def test_a_correct_program_is_not_found(case: str, tmp_path: Path):
    with text_program(tmp_path, "correct", CORRECT[case]) as module:
        assert module.check()
        assert not [one for one in looked_at(module).findings if one.code == case[:5]]
