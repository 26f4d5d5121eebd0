"""G18 beyond one turn: a call that was cut off, or whose outcome nobody knows, is not made again by the next message."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from test_g18_tools import answers, given, statuses

from abreast import MutationId, OpenEffect, RunContext
from abreast.testing import ScriptedModel, calls
from caller import LEASE_SECONDS, append, build, call, kept, mail_tool, put_tool, runtime_of, title, writing
from planner import CONTEXT, planner
from processes import started
from talk import CORNERS, Talk


class Killed:
    """A conversation whose process was killed in its tool, or behind it, and which goes on with new messages."""

    def __init__(self, database: Any, hubs: Any, door: Any, checkpointer: Any, tmp_path: Any, name: str, stage: str) -> None:
        self.door, self.mails, self.ran = door, tmp_path / "mails", []
        self.hub, self.engine = planner(database, hubs, lease_seconds=LEASE_SECONDS)
        with started("caller.py", (given(database, door, tmp_path, name, stage),)) as (process,):
            process.kill()
        table, moment = ("abreast_lease", "0") if database.kind == "sqlite" else ("abreast.lease", "'2000-01-01'")
        with self.engine.begin() as connection:
            connection.exec_driver_sql(f"update {table} set expires_at = {moment}")
        self.saver = checkpointer
        self.tools = [
            put_tool(self.hub, door.kind, lambda: self.ran.append("put")),
            mail_tool(self.hub, door.kind, self.mails, lambda: self.ran.append("mail")),
        ]

    def say(self, *asked: AIMessage, thread: str = "t", forget: bool = False) -> list[str]:
        """The answers to these calls after one more message of the person's; `forget` trims the history before it."""
        agent = build(self.hub, self.tools, self.saver, *asked, "ok")
        gone = [RemoveMessage(REMOVE_ALL_MESSAGES)] if forget else []
        result = self.door(self.hub).run(agent, [*gone, HumanMessage("again")], thread=thread, context=CONTEXT)
        assert result.status == "succeeded"
        return answers(result)[-len(asked) :]

    def sent(self) -> list[str]:
        return self.mails.read_text().splitlines()


MAIL, PUT = calls("mail", to="kim"), calls("put", text="!")


@CORNERS
def test_g18_a_mail_that_was_cut_off_is_not_sent_by_the_next_message(database, hubs, door, checkpointer, tmp_path):
    killed = Killed(database, hubs, door, checkpointer, tmp_path, "mail", "inside")
    (key,) = (line.split()[0] for line in killed.sent())
    for _ in range(2):
        (told,) = map(json.loads, killed.say(MAIL))
        assert (told["outcome"], told["mutation"]) == ("unknown", key)
    assert killed.ran == []
    killed.door(killed.hub).settle_mutation("w1", key, done=True, outcome="seen")
    assert list(map(json.loads, killed.say(MAIL))) == [{"answer": "seen", "repeated": True}]
    assert len(killed.sent()) == 1
    # That one was answered: the next is another mail.
    assert killed.say(MAIL) == ['{"sent": "kim"}']
    assert len({line.split()[0] for line in killed.sent()}) == 2


@CORNERS
def test_g18_a_mail_whose_answer_was_cut_off_is_answered_with_its_outcome_by_the_next_message(
    database, hubs, door, checkpointer, tmp_path
):
    killed = Killed(database, hubs, door, checkpointer, tmp_path, "mail", "after")
    assert list(map(json.loads, killed.say(MAIL))) == [{"sent": "kim", "repeated": True}]
    assert killed.ran == []
    assert len(killed.sent()) == 1
    assert killed.say(MAIL) == ['{"sent": "kim"}']
    assert killed.ran == ["mail"]


@CORNERS
@pytest.mark.parametrize("stage", ["inside", "after"])
def test_g18_a_write_that_was_cut_off_is_made_once_by_the_next_message(database, hubs, door, checkpointer, tmp_path, stage):
    killed = Killed(database, hubs, door, checkpointer, tmp_path, "put", stage)
    assert list(map(json.loads, killed.say(PUT))) == [{"title": "Mapo!", **({"repeated": True} if stage == "after" else {})}]
    assert killed.ran == ([] if stage == "after" else ["put"])
    assert title(killed.engine) == "Mapo!"
    assert kept(killed.engine) == 1
    assert killed.say(PUT) == ['{"title": "Mapo!!"}']


@CORNERS
@pytest.mark.parametrize("done", [True, False])
def test_g18_a_mail_that_was_cut_off_is_not_sent_where_the_history_has_forgotten_it(
    database, hubs, door, checkpointer, tmp_path, done
):
    killed = Killed(database, hubs, door, checkpointer, tmp_path, "mail", "inside")
    (key,) = (line.split()[0] for line in killed.sent())
    for _ in range(2):
        (told,) = map(json.loads, killed.say(MAIL, forget=True))
        assert (told["outcome"], told["mutation"]) == ("unknown", key)
    # Another mail, and another conversation, are not held up by it.
    assert killed.say(calls("mail", to="lee")) == ['{"sent": "lee"}']
    assert killed.say(MAIL, thread="other") == ['{"sent": "kim"}']
    killed.ran.clear()
    killed.door(killed.hub).settle_mutation("w1", key, done=done, outcome="seen")
    (answer,) = map(json.loads, killed.say(MAIL))
    assert killed.ran == ([] if done else ["mail"])
    assert answer == ({"answer": "seen", "repeated": True} if done else {"sent": "kim"})
    assert [line.split()[0] for line in killed.sent()].count(key) == (1 if done else 2)
    # Nothing of it is left to hold up the next.
    assert killed.say(MAIL, forget=True) == ['{"sent": "kim"}']
    assert killed.door(killed.hub).unsettled("w1") == []


@CORNERS
def test_g18_open_effects_are_listed_until_they_are_settled(database, hubs, door, checkpointer, tmp_path):
    killed = Killed(database, hubs, door, checkpointer, tmp_path, "mail", "inside")
    hub = killed.door(killed.hub)
    (key,) = (line.split()[0] for line in killed.sent())
    (effect,) = hub.unsettled("w1")
    assert effect == OpenEffect("w1", key, "mail", {"to": "kim"}, "t", effect.at)
    assert effect.at.startswith("20")
    assert effect.at.endswith("Z")
    assert hub.unsettled("w2") == []
    hub.settle_mutation("w1", key, done=True)
    assert hub.unsettled("w1") == []
    assert kept(killed.engine) == 1


def effect_of(talk: Talk, name: str, body: Any, **options: Any) -> Any:
    """An effect whose body is a plain function of its key and a text, through either kind of function."""
    if talk.door.kind == "sync":

        def plain(text: str, key: MutationId) -> Any:
            """Sends."""
            return body(key, text)

        return talk.hub.tool(name=name, **options)(plain)

    async def asynchronous(text: str, key: MutationId) -> Any:
        """Sends."""
        return body(key, text)

    return talk.hub.tool(name=name, **options)(asynchronous)


@CORNERS
@pytest.mark.parametrize("repeatable", [False, True])
def test_g18_a_payment_with_an_unknown_outcome_is_not_made_in_a_later_turn(database, hubs, door, repeatable):
    talk = Talk(database, hubs, door)
    keys: list[str] = []

    def pay(key, text):
        keys.append(key)
        raise ValueError("502")

    agent = talk.build([effect_of(talk, "pay", pay, repeatable=repeatable)])
    for _ in range(3):
        talk.say(calls("pay", text="100"), "ok")
        result = talk.run(agent=agent)
    assert len(keys) == 1
    assert statuses(result) == ["error"] * 3
    assert {json.loads(text)["mutation"] for text in answers(result)} == set(keys)


@CORNERS
def test_g18_calls_of_one_message_that_mean_twice_do_not_stop_each_other_but_later_ones(database, hubs, door):
    talk = Talk(database, hubs, door)
    keys: list[str] = []

    def send(key, text):
        keys.append(key)
        if len(keys) <= 2:
            raise ValueError("502")
        return "sent"

    mail = effect_of(talk, "mail", send, repeatable=True)
    two = AIMessage("", id="m1", tool_calls=[{"name": "mail", "args": {"text": "x"}, "id": one} for one in "ab"])
    for one in "ab":
        call(door, mail, runtime_of(two, one), text="x")
    assert len(set(keys)) == 2
    assert {effect.mutation for effect in door(talk.hub).unsettled("w1")} == set(keys)
    later = AIMessage("", id="m2", tool_calls=[{"name": "mail", "args": {"text": "x"}, "id": "a"}])
    for key in tuple(keys):
        assert json.loads(call(door, mail, runtime_of(later), text="x").content)["mutation"] in keys
        door(talk.hub).settle_mutation("w1", key, done=True)
    assert call(door, mail, runtime_of(later), text="x").content == "sent"
    assert len(set(keys)) == 3


@CORNERS
def test_g18_an_effect_that_a_fork_of_the_history_left_behind_open_is_not_made_there(database, hubs, door):
    """A person goes back to before the question, and asks it again."""
    talk = Talk(database, hubs, door)
    keys: list[str] = []

    def pay(key, text):
        keys.append(key)
        raise ValueError("502")

    agent = talk.build([effect_of(talk, "pay", pay)])
    talk.say("hello", calls("pay", text="100"), "ok", calls("pay", text="100"), "ok")
    talk.run(agent=agent)
    place = door.state(agent, {"configurable": {"thread_id": "t"}}).config
    talk.run(agent=agent)
    result = talk.run(agent=agent, config=place)
    assert len(answers(result)) == 1
    assert json.loads(answers(result)[0])["mutation"] == keys[0]
    assert len(keys) == 1


@CORNERS
def test_g18_of_many_calls_at_once_that_mean_the_same_effect_one_makes_it(database, hubs, door):
    """Each from another message, as several runs of one conversation without the hub's lease would make them."""
    talk = Talk(database, hubs, door)
    go, keys, told = Event(), [], []

    def send(key: str) -> str:
        keys.append(key)
        assert go.wait(30)
        return "sent"

    @talk.hub.tool
    def mail(key: MutationId) -> str:
        """Sends."""
        return send(key)

    def one(number: int) -> None:
        message = AIMessage("", id=f"m{number}", tool_calls=[{"name": "mail", "args": {}, "id": "a"}])
        told.append(call(door, mail, runtime_of(message)).content)
        if len(told) == 5:
            go.set()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(6)))
    assert told.pop() == "sent"
    assert len(keys) == 1
    assert {json.loads(text)["mutation"] for text in told} == set(keys)
    assert kept(talk.engine) == 1


def asking(door: Any, sub: Any) -> Any:
    """A tool of the parent's that asks a sub-agent."""
    question = {"messages": [("user", "do it")]}

    def ask() -> str:
        return str(sub.invoke(question, context=CONTEXT)["messages"][-1].text)

    async def aask() -> str:
        return str((await sub.ainvoke(question, context=CONTEXT))["messages"][-1].text)

    plain = ask if door.kind == "sync" else None
    return StructuredTool.from_function(plain, None if plain else aask, name="ask", description="Asks.")


@CORNERS
@pytest.mark.parametrize("remembers", [True, None])
def test_g18_what_a_sub_agent_left_open_is_not_made_in_its_next_turn(database, hubs, door, remembers):
    """A sub-agent with a history of its own knows the call; one that begins anew each time is stopped by what is open."""
    talk = Talk(database, hubs, door)
    seen: list[str] = []

    def pay(key, text):
        seen.append(key)
        raise ValueError("502")

    def put(tx, text):
        seen.append(tx.mutation)
        append(tx, text)
        if len(seen) <= 3:
            raise ConnectionResetError
        return "done"

    name = "put" if remembers else "pay"
    tools = [writing(talk, "put", put)] if remembers else [effect_of(talk, "pay", pay)]
    model = ScriptedModel(calls(name, text="!"), "tried", calls(name, text="!"), "tried")
    sub = create_agent(model, tools=tools, context_schema=RunContext, checkpointer=remembers)
    agent = talk.build([asking(door, sub)])
    for _ in range(2):
        talk.say(calls("ask"), "ok")
        talk.run(agent=agent)
    assert len(set(seen)) == 1
    assert len(seen) == (4 if remembers else 1)
    assert title(talk.engine) == ("Mapo!" if remembers else "Mapo")
    (told,) = (m.content for m in model.requests[-1][-1:] if isinstance(m, ToolMessage))
    assert told == "done" if remembers else json.loads(told)["mutation"] == seen[0]
