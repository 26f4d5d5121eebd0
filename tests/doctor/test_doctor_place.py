"""AB206 to AB210 on correct programs that look like mistakes: each one runs as it should, and the doctor says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_programs import looked_at
from doctor_texts import text_program

CORRECT = {
    "AB206 the branch that reads it does not run": """
        @dataclass
        class Context:
            name: str = "?"

        class State(TypedDict):
            text: str
            public: bool

        def route(state: State):
            return "public" if state["public"] else "private"

        def private(state: State, runtime: Runtime[Context]):
            return {"text": runtime.context.name}

        def public(state: State):
            return {"text": "hello"}

        graph = routed(State, route, private, public, context_schema=Context).compile()

        def check():
            return graph.invoke({"text": "", "public": True})["text"] == "hello"
        """,
    "AB206 a branch inside of the node": """
        @dataclass
        class Context:
            name: str

        class State(TypedDict):
            text: str
            public: bool

        def greet(state: State, runtime: Runtime[Context]):
            if state["public"]:
                return {"text": "hello"}
            return {"text": runtime.context.name}

        graph = chain(State, greet, context_schema=Context).compile()

        def check():
            return graph.invoke({"text": "", "public": True})["text"] == "hello"
        """,
    "AB206 other graphs of the same name": """
        @dataclass
        class Context:
            name: str

        class State(TypedDict):
            text: str

        def greet(state: State, runtime: Runtime[Context]):
            return {"text": runtime.context.name}

        def other(state: State):
            return {"text": "other"}

        graph = chain(State, other).compile()
        before = graph.invoke({"text": ""})["text"]
        graph = chain(State, greet, context_schema=Context).compile()

        def local():
            graph = chain(State, other).compile()
            return graph.invoke({"text": ""})["text"]

        def given(graph):
            return graph.invoke({"text": ""})["text"]

        def check():
            return before == local() == given(chain(State, other).compile()) == "other"
        """,
    "AB206 a run inside of a run has its context": """
        @dataclass
        class Context:
            name: str

        class State(TypedDict):
            text: str

        def greet(state: State, runtime: Runtime[Context]):
            return {"text": runtime.context.name}

        def outside(state: State):
            return graph.invoke({"text": state["text"]})

        graph = chain(State, greet, context_schema=Context).compile()
        around = chain(State, outside, context_schema=Context).compile()

        def check():
            return around.invoke({"text": ""}, context=Context("Ada"))["text"] == "Ada"
        """,
    "AB206 a run that stops before the node": """
        @dataclass
        class Context:
            name: str

        class State(TypedDict):
            text: str

        def greet(state: State, runtime: Runtime[Context]):
            return {"text": runtime.context.name}

        graph = chain(State, greet, context_schema=Context).compile(checkpointer=InMemorySaver())

        def check():
            graph.invoke({"text": ""}, THREAD, interrupt_before=["greet"])
            return graph.invoke(None, THREAD, context=Context("Ada"))["text"] == "Ada"
        """,
    "AB206 a context that may be None": """
        @dataclass
        class Context:
            name: str

        class State(TypedDict):
            text: str

        def greet(state: State, runtime: Runtime[Context]):
            context = runtime.context or Context("you")
            return {"text": context.name}

        graph = chain(State, greet, context_schema=Context).compile()

        def check():
            return graph.invoke({"text": ""})["text"] == "you"
        """,
    "AB207 the paused node reads none": """
        @dataclass
        class Context:
            name: str

        class State(TypedDict):
            text: str

        def greet(state: State, runtime: Runtime[Context]):
            return {"text": runtime.context.name}

        def ask(state: State):
            return {"text": state["text"] + interrupt("Sure?")}

        graph = chain(State, greet, ask, context_schema=Context).compile(checkpointer=InMemorySaver())

        def check():
            graph.invoke({"text": ""}, THREAD, context=Context("Ada"))
            return graph.invoke(Command(resume="!"), THREAD)["text"] == "Ada!"
        """,
    "AB208 the input requires it": """
        class Input(TypedDict):
            question: str

        class State(TypedDict):
            question: NotRequired[str]
            answer: NotRequired[str]

        def reply(state: State):
            return {"answer": state["question"]}

        graph = chain(State, reply, input_schema=Input).compile()

        def check():
            return graph.invoke({"question": "Why?"})["answer"] == "Why?"
        """,
    "AB208 total=False for all keys": """
        class State(TypedDict, total=False):
            question: str
            answer: str

        def reply(state: State):
            return {"answer": state["question"]}

        graph = chain(State, reply).compile()

        def check():
            return graph.invoke({"question": "Why?"})["answer"] == "Why?"
        """,
    "AB208 a read behind another question": """
        class State(TypedDict):
            polite: bool
            name: NotRequired[str]
            text: NotRequired[str]

        def reply(state: State):
            return {"text": f"Dear {state['name']}" if state["polite"] else "Hi"}

        graph = chain(State, reply).compile()

        def check():
            return graph.invoke({"polite": False})["text"] == "Hi"
        """,
    "AB208 an earlier run has brought it": """
        class State(TypedDict, total=False):
            name: str
            text: str

        def reply(state: State):
            return {"text": state["name"]}

        graph = chain(State, reply).compile(checkpointer=InMemorySaver())

        def check():
            graph.invoke({"name": "Ada"}, THREAD)
            return graph.invoke({"text": ""}, THREAD)["text"] == "Ada"
        """,
    "AB208 the node sets it itself": """
        class State(TypedDict):
            name: NotRequired[str]
            text: NotRequired[str]

        def reply(state: State):
            state.setdefault("name", "you")
            return {"text": state["name"]}

        graph = chain(State, reply).compile()

        def check():
            return graph.invoke({"text": ""})["text"] == "you"
        """,
    "AB209 a middleware fills it in": """
        seen = []

        class State(AgentState):
            city: str

        @wrap_model_call(state_schema=State)
        def fill(request, handler):
            filled = request.override(system_prompt=request.system_prompt.format(**request.state))
            seen.append(filled.system_prompt)
            return handler(filled)

        model = FakeListChatModel(responses=["Fine."])
        graph = create_agent(model, system_prompt="The city is {city}.", middleware=[fill], state_schema=State)

        def check():
            graph.invoke({"messages": [("user", "Where?")], "city": "Bonn"})
            return seen == ["The city is Bonn."]
        """,
    "AB209 a prompt about templates": """
        class State(AgentState):
            name: str

        model = FakeListChatModel(responses=["Fine."])
        text = "Write mails with Jinja placeholders such as {{name}}. Leave {name} as it is."
        graph = create_agent(model, system_prompt=text, state_schema=State)

        def check():
            return len(graph.invoke({"messages": [("user", "Go.")], "name": ""})["messages"]) == 2
        """,
    "AB209 braces in quotes": """
        class State(AgentState):
            name: str

        model = FakeListChatModel(responses=["Fine."])
        text = "Each mail begins with `Dear {name}`; write '{name}' there."
        graph = create_agent(model, system_prompt=text, state_schema=State)

        def check():
            return len(graph.invoke({"messages": [("user", "Go.")], "name": ""})["messages"]) == 2
        """,
    "AB210 a row that no checkpoint holds": """
        from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

        class Base(DeclarativeBase):
            pass

        class Row(Base):
            __tablename__ = "kept_nowhere"
            id: Mapped[int] = mapped_column(primary_key=True)

        class State(TypedDict):
            count: int
            row: Annotated[Row, UntrackedValue]

        def load(state: State):
            return {"row": Row(id=1)}

        saver = InMemorySaver()
        graph = chain(State, load).compile(checkpointer=saver)

        def check():
            graph.invoke({"count": 1}, THREAD)
            return all("row" not in one.checkpoint["channel_values"] for one in saver.list(None))
        """,
    "AB210 a row for one run": """
        from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

        class Base(DeclarativeBase):
            pass

        class Row(Base):
            __tablename__ = "kept_for_a_run"
            id: Mapped[int] = mapped_column(primary_key=True)

        class State(TypedDict):
            row: Row

        def load(state: State):
            return {"row": Row(id=1)}

        graph = chain(State, load).compile()

        def check():
            return graph.invoke({"row": None})["row"].id == 1
        """,
}


@pytest.mark.parametrize("case", list(CORRECT))
def test_a_correct_program_is_not_found(case: str, tmp_path: Path):
    with text_program(tmp_path, "correct", CORRECT[case]) as module:
        assert module.check()
        assert not [one for one in looked_at(module).findings if one.code == case[:5]]
