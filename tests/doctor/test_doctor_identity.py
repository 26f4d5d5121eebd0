"""AB203 to AB205 on correct programs that look like mistakes: each one runs as it should, and the doctor says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_programs import looked_at
from doctor_texts import text_program

CORRECT = {
    "AB203 the threads and runs of other systems": """
        class Mail(TypedDict):
            thread_id: str
            subject: str

        class Build(Mail):
            run_id: int

        def read(state: Build):
            return {"subject": f"{state['thread_id']} of {state['run_id']}"}

        graph = chain(Build, read).compile(checkpointer=InMemorySaver())

        def check():
            return graph.invoke({"thread_id": "m7", "run_id": 3}, THREAD)["subject"] == "m7 of 3"
        """,
    "AB203 a mail thread in the context": """
        @dataclass
        class Context:
            thread_id: str

        class State(TypedDict):
            subject: str

        def read(state: State, runtime: Runtime[Context]):
            return {"subject": runtime.context.thread_id}

        graph = chain(State, read, context_schema=Context).compile(checkpointer=InMemorySaver())

        def check():
            return graph.invoke({"subject": ""}, THREAD, context=Context(thread_id="m7"))["subject"] == "m7"
        """,
    "AB203 the id of a run of something else is written": """
        class State(TypedDict):
            run_id: str

        def start(state: State):
            return {"run_id": "build-7"}

        graph = chain(State, start).compile()

        def check():
            return graph.invoke({"run_id": ""})["run_id"] == "build-7"
        """,
    "AB204 what was read from a text": """
        class State(TypedDict):
            text: str
            user_id: str
            row: dict

        def extract(state: State):
            return {"user_id": state["text"].split()[-1]}

        def look(state: State):
            return {"row": {"id": state["user_id"]}}

        graph = chain(State, extract, look).compile(checkpointer=InMemorySaver())

        def check():
            return graph.invoke({"text": "show user 7"}, THREAD)["row"]["id"] == "7"
        """,
    "AB204 the account of a customer": """
        class State(TypedDict):
            account_id: str
            row: dict

        def look(state: State):
            return {"row": {"id": state["account_id"]}}

        graph = chain(State, look).compile()

        def check():
            return graph.invoke({"account_id": "7"})["row"]["id"] == "7"
        """,
    "AB204 rights that each run loads anew": """
        @dataclass
        class Context:
            user_id: str

        RIGHTS = {"mina": ["read"]}

        class State(TypedDict):
            permissions: list[str]
            allowed: bool

        def loaded(user: str) -> dict:
            return {"permissions": RIGHTS[user]}

        def load(state: State, runtime: Runtime[Context]):
            return loaded(runtime.context.user_id)

        def ask(state: State):
            return {"allowed": "write" in state["permissions"]}

        graph = chain(State, load, ask, context_schema=Context).compile(checkpointer=InMemorySaver())

        def check():
            return not graph.invoke({"permissions": ["write"]}, THREAD, context=Context("mina"))["allowed"]
        """,
    "AB204 the person whom Send names": """
        class State(TypedDict):
            users: list[str]
            sent: Annotated[list[str], operator.add]

        class Payload(TypedDict):
            user_id: str

        def fan(state: State):
            return [Send("notify", {"user_id": user}) for user in state["users"]]

        def notify(state: Payload):
            return {"sent": [state["user_id"]]}

        graph = routed(State, fan, notify).compile(checkpointer=InMemorySaver())

        def check():
            return graph.invoke({"users": ["a", "b"]}, THREAD)["sent"] == ["a", "b"]
        """,
    "AB204 the application gives it to every run": """
        class State(TypedDict):
            user_id: str
            text: str

        def greet(state: State):
            return {"text": f"Hello, {state['user_id']}."}

        graph = chain(State, greet).compile(checkpointer=InMemorySaver())

        def answer(user: str):
            return graph.invoke({"user_id": user}, THREAD)["text"]

        def check():
            return [answer("ada"), answer("bob")] == ["Hello, ada.", "Hello, bob."]
        """,
    "AB204 the application gives it to a graph that it makes": """
        class State(TypedDict):
            user_id: str
            text: str

        def greet(state: State):
            return {"text": f"Hello, {state['user_id']}."}

        def make():
            return chain(State, greet).compile()

        graph = make()

        def answer(user: str):
            made = make()
            return made.invoke({"user_id": user})["text"]

        def check():
            return answer("ada") == "Hello, ada."
        """,
    "AB204 the application puts it into configurable": """
        class State(TypedDict):
            text: str

        def greet(state: State, config: RunnableConfig):
            return {"text": config["configurable"]["user_id"]}

        graph = chain(State, greet).compile(checkpointer=InMemorySaver())

        def answer(user: str):
            return graph.invoke({"text": ""}, {"configurable": {"thread_id": user, "user_id": user}})["text"]

        def check():
            return answer("ada") == "ada"
        """,
    "AB204 the state of something else": """
        class Machine:
            state = {"user_id": "m1"}

        machine = Machine()

        class State(TypedDict):
            text: str

        def read(state: State):
            return {"text": machine.state["user_id"]}

        graph = chain(State, read).compile()

        def check():
            return graph.invoke({"text": ""})["text"] == "m1"
        """,
    "AB205 no checkpointer": """
        class State(TypedDict):
            size: int

        def ask(state: State, config: RunnableConfig):
            return {"size": len(config["configurable"]["api_key"])}

        graph = chain(State, ask).compile()

        def run(key: str):
            return graph.invoke({"size": 0}, {"configurable": {"api_key": key}})

        def check():
            return run("abc")["size"] == 3
        """,
    "AB205 names that only look like secrets, and an object": """
        saver = InMemorySaver()

        class State(TypedDict):
            size: int

        def ask(state: State):
            return {"size": 1}

        graph = chain(State, ask).compile(checkpointer=saver)

        def run(key: str):
            hidden = SecretStr(key)
            about = {"password_required": True, "secret_arn": "arn:x", "api_key": hidden, "access_token": None}
            return graph.invoke({"size": 0}, {"configurable": {"thread_id": "t1", **about, "auth_token": SecretStr(key)}})

        def keep(key: SecretStr):
            return graph.invoke({"size": 0}, {"configurable": {"thread_id": "t1", "api_key": key}})

        def check():
            run("abc")
            keep(SecretStr("abc"))
            return all("abc" not in str(one.metadata) for one in saver.list(None))
        """,
    "AB205 the config of something else": """
        saver = InMemorySaver()
        CLIENT = {"configurable": {"api_key": "abc"}}

        class State(TypedDict):
            size: int

        def ask(state: State):
            return {"size": len(CLIENT["configurable"]["api_key"])}

        graph = chain(State, ask).compile(checkpointer=saver)

        def check():
            done = graph.invoke({"size": 0}, THREAD)["size"] == 3
            return done and all("abc" not in str(one.metadata) for one in saver.list(None))
        """,
}


@pytest.mark.parametrize("case", list(CORRECT))
def test_a_correct_program_is_not_found(case: str, tmp_path: Path):
    with text_program(tmp_path, "correct", CORRECT[case]) as module:
        assert module.check()
        assert not [one for one in looked_at(module).findings if one.code == case[:5]]
