"""G18 for effects outside the database: a mail, a payment. It is made once, and where nobody knows, a person is asked."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import sqlalchemy as sa
from langchain_core.messages import AIMessage

from abreast import InputError, MutationId, MutationReusedError, RefusedError, Transaction, update
from caller import call, kept, mail_tool, request_of, runtime_of
from planner import Plan, declare, planner
from relay import relay
from talk import CORNERS, Talk

MESSAGE = AIMessage("", id="m1", tool_calls=[{"name": "mail", "args": {"to": "kim"}, "id": "a"}])


def test_g18_an_effect_outside_gets_the_key_and_a_repeat_its_outcome(database, hubs, door, tmp_path):
    hub, engine = planner(database, hubs)
    tool = mail_tool(hub, door.kind, tmp_path / "mails")
    answered = [call(door, tool, runtime_of(MESSAGE), to="kim") for _ in range(2)]
    assert [(one.content, one.status) for one in answered] == [('{"sent": "kim"}', "success")] * 2
    (line,) = (tmp_path / "mails").read_text().splitlines()
    assert line.startswith("call:")
    assert kept(engine) == 1


def failing_mail(hub, door, errors, keys):
    """A mail that fails with these errors, one after the other."""

    def send(key: str) -> str:
        keys.append(key)
        if errors:
            raise errors.pop(0)
        return "sent"

    if door.kind == "sync":

        @hub.tool
        def mail(to: str, key: MutationId) -> str:
            """Sends."""
            assert type(key) is MutationId
            return send(key)

    else:

        @hub.tool
        async def mail(to: str, key: MutationId) -> str:
            """Sends."""
            assert type(key) is MutationId
            return send(key)

    return mail


def test_g18_an_effect_is_tried_three_times_with_one_key_where_the_connection_breaks(database, hubs, door):
    hub, _ = planner(database, hubs)
    keys: list[str] = []
    tool = failing_mail(hub, door, [ConnectionResetError(), TimeoutError()], keys)
    assert call(door, tool, runtime_of(MESSAGE), to="kim").content == "sent"
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize(
    "errors", [[ConnectionResetError()] * 3, [ValueError("postgresql://u:hunter2@h")]], ids=["lost", "failed"]
)
def test_g18_an_effect_that_failed_is_not_made_again_until_a_person_has_settled_it(database, hubs, door, errors):
    hub, engine = planner(database, hubs)
    keys: list[str] = []
    tool = failing_mail(hub, door, list(errors), keys)
    first = call(door, tool, runtime_of(MESSAGE), to="kim")
    again = call(door, tool, runtime_of(MESSAGE), to="kim")
    assert len(keys) == len(errors)
    for message in (first, again):
        told = json.loads(message.content)
        assert message.status == "error"
        assert "hunter2" not in message.content
        assert (told["outcome"], told["mutation"]) == ("unknown", keys[0])
    door(hub).settle_mutation("w1", keys[0], done=True, outcome="a person saw it")
    assert call(door, tool, runtime_of(MESSAGE), to="kim").content == "a person saw it"
    with pytest.raises(InputError, match="unknown outcome"):
        door(hub).settle_mutation("w1", keys[0], done=False)
    assert len(keys) == len(errors)
    assert kept(engine) == 1


def test_g18_an_effect_that_a_person_says_never_happened_is_made(database, hubs, door):
    hub, _ = planner(database, hubs)
    keys: list[str] = []
    tool = failing_mail(hub, door, [ValueError()], keys)
    call(door, tool, runtime_of(MESSAGE), to="kim")
    door(hub).settle_mutation("w1", keys[0], done=False)
    assert call(door, tool, runtime_of(MESSAGE), to="kim").content == "sent"
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert call(door, tool, runtime_of(MESSAGE), to="kim").content == "sent"
    assert len(keys) == 2


def test_g18_settling_wants_json_and_an_open_effect(database, hubs, door):
    hub, _ = planner(database, hubs)
    for mutation, outcome in (("call:x", None), ("call:x", object()), ("", None)):
        with pytest.raises(InputError):
            door(hub).settle_mutation("w1", mutation, done=True, outcome=outcome)


def test_g18_a_refused_effect_is_refused_again_without_the_function(database, hubs, door):
    hub, _ = planner(database, hubs)
    keys: list[str] = []
    tool = failing_mail(hub, door, [RefusedError("No such address.")], keys)
    told = [call(door, tool, runtime_of(MESSAGE), to="kim") for _ in range(2)]
    assert [json.loads(one.content) for one in told] == [{"error": "No such address."}] * 2
    assert len(keys) == 1


def test_g18_of_two_calls_of_one_effect_at_once_one_makes_it_and_the_other_is_told_that_it_runs(database, hubs, door):
    hub, _ = planner(database, hubs)
    begun, go, keys = Event(), Event(), []

    def send(key: str) -> str:
        keys.append(key)
        begun.set()
        assert go.wait(30)
        return "sent"

    if door.kind == "sync":

        @hub.tool
        def mail(to: str, key: MutationId) -> str:
            """Sends."""
            return send(key)

    else:

        @hub.tool
        async def mail(to: str, key: MutationId) -> str:
            """Sends."""
            return await asyncio.to_thread(send, key)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(call, door, mail, runtime_of(MESSAGE), to="kim")
        assert begun.wait(30)
        second = call(door, mail, runtime_of(MESSAGE), to="kim")
        go.set()
        assert first.result(30).content == "sent"
    assert json.loads(second.content)["outcome"] == "unknown"
    assert "is running" in second.content
    assert len(keys) == 1


def test_g18_an_effect_whose_answer_is_not_json_is_done_all_the_same(database, hubs, door):
    hub, _ = planner(database, hubs)
    keys: list[str] = []

    @hub.tool
    async def asend(to: str, key: MutationId) -> object:
        """Sends."""
        keys.append(key)
        return object()

    @hub.tool
    def send(to: str, key: MutationId) -> object:
        """Sends."""
        keys.append(key)
        return object()

    tool = send if door.kind == "sync" else asend
    message = AIMessage("", id="m1", tool_calls=[{"name": tool.name, "args": {"to": "kim"}, "id": "a"}])
    told = [call(door, tool, runtime_of(message), to="kim") for _ in range(2)]
    assert [json.loads(one.content)["done"] for one in told] == [True, True]
    assert len(keys) == 1


def test_g18_an_effect_that_a_person_settled_while_it_ran_keeps_his_outcome_and_is_answered_with_its_own(
    database, hubs, door, caplog
):
    hub, _ = planner(database, hubs)

    @hub.tool
    def mail(to: str, key: MutationId) -> str:
        """Sends."""
        hub.blocking.settle_mutation("w1", key, done=True, outcome="settled")
        return "sent"

    first, again = (call(door, mail, runtime_of(MESSAGE), to="kim").content for _ in range(2))
    assert (first, again) == ("sent", "settled")
    assert "was not stored" in caplog.text


def test_g18_an_effect_that_ends_late_says_nothing_of_another_attempt(database, hubs, door):
    """A person thought that the first had died and let the call be made again; how the second ended is still unknown."""
    hub, _ = planner(database, hubs)
    keys: list[str] = []

    @hub.tool
    def mail(to: str, key: MutationId) -> str:
        """Sends."""
        keys.append(key)
        if len(keys) == 2:
            raise ValueError
        hub.blocking.settle_mutation("w1", key, done=False)
        mail.invoke(request_of(mail, runtime_of(MESSAGE), to="kim"))
        return "sent"

    first, again = (call(door, mail, runtime_of(MESSAGE), to="kim").content for _ in range(2))
    assert first == "sent"
    assert json.loads(again)["outcome"] == "unknown"
    assert len(keys) == 2


def test_g18_an_effect_whose_claim_got_no_answer_is_made_all_the_same(postgres, hubs, door, tmp_path):
    """The claim that is found then is this call's own."""
    _hub, engine = planner(postgres, hubs)
    with relay(postgres.url) as between:
        far = declare(hubs(between.url))
        tool = mail_tool(far, door.kind, tmp_path / "mails")
        door(far).rows(Plan, "w1")
        between.lose_answer("COMMIT")
        answered = call(door, tool, runtime_of(MESSAGE), to="kim")
        assert between.lost == 1
        assert (answered.status, answered.content) == ("success", '{"sent": "kim"}')
    assert len((tmp_path / "mails").read_text().splitlines()) == 1
    assert kept(engine) == 1


def test_g18_nothing_of_a_claim_is_an_outcome_of_another_kind_of_write(database, hubs, door):
    """A mutation id that stands for an effect cannot be used for rows."""
    hub, engine = planner(database, hubs)
    keys: list[str] = []
    call(door, failing_mail(hub, door, [ValueError()], keys), runtime_of(MESSAGE), to="kim")
    with pytest.raises(MutationReusedError):
        door(hub).apply("w1", update(Plan, "p1", title="x"), mutation=keys[0])
    with engine.connect() as connection:
        assert connection.execute(sa.select(Plan.title)).scalar_one() == "Mapo"


@CORNERS
def test_g18_a_repeat_has_the_numbers_of_the_first_answer_as_they_were(database, hubs, door):
    talk = Talk(database, hubs, door)

    @talk.hub.tool
    def quote(key: MutationId) -> dict[str, float]:
        """Asks for a price."""
        return {"price": 1.5}

    @talk.hub.tool
    def keep(tx: Transaction) -> dict[str, float]:
        """Keeps a price."""
        return {"price": 1.5}

    for tool in (quote, keep):
        message = AIMessage("", id=tool.name, tool_calls=[{"name": tool.name, "args": {}, "id": "a"}])
        assert [call(door, tool, runtime_of(message)).content for _ in range(2)] == ['{"price": 1.5}'] * 2


@CORNERS
def test_g18_the_second_of_two_equal_effects_is_told_that_it_is_a_repeat(database, hubs, door):
    hub, _ = planner(database, hubs)
    keys: list[str] = []
    tool = failing_mail(hub, door, [], keys)
    two = AIMessage("", id="m1", tool_calls=[{"name": "mail", "args": {"to": "kim"}, "id": one} for one in "ab"])
    told = [call(door, tool, runtime_of(two, one), to="kim").content for one in "ab"]
    assert told == ["sent", '{"answer": "sent", "repeated": true}']
    assert len(keys) == 1
