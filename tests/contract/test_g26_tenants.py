"""G26: another tenant's id, and another person's without a role, behaves like an absent one, whatever is asked."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage

from abreast import AbsentError, Caller, Decision, InputError, RefusedError, RunContext
from abreast.testing import calls
from planner import Plan
from serving import APPROVER, JUNHO, MINA, OPERATOR, RIGHTS, STRANGER, Gate
from talk import CORNERS

pytestmark = CORNERS


def waiting_desk(desk):
    """A conversation of Mina's that waits for an approval: thread, run, message, approval."""
    one = desk(calls("update_plan", id="p1", version="r3", title="x"), tools=lambda hub: hub.tools(Plan), approvals="writes")
    thread = one.thread()
    run = one.ask(thread, "SECRET QUESTION")
    (approval,) = one.call("approvals", MINA).items
    return one, {"thread": thread, "run": run.id, "message": run.message, "approval": approval.id}


VERBS = {
    "thread": lambda ids: ((ids["thread"],), {}),
    "messages": lambda ids: ((ids["thread"],), {}),
    "message": lambda ids: ((ids["thread"], ids["message"]), {}),
    "send": lambda ids: ((ids["thread"], "hello"), {"on_busy": "enqueue"}),
    "select": lambda ids: ((ids["thread"], ids["message"]), {}),
    "receipt": lambda ids: ((ids["thread"], ids["message"]), {}),
    "runs": lambda ids: ((ids["thread"],), {}),
    "run": lambda ids: ((ids["thread"], ids["run"]), {}),
    "cancel": lambda ids: ((ids["thread"], ids["run"]), {}),
    "approvals": lambda ids: ((), {"thread": ids["thread"]}),
    "approval": lambda ids: ((ids["thread"], ids["approval"]), {}),
    "decide": lambda ids: ((ids["thread"], ids["approval"], Decision("reject")), {}),
}


def told(one, verb, caller, ids):
    """What somebody is told who asks this: the error's class, text and fields."""
    arguments, named = VERBS[verb](ids)
    with pytest.raises(AbsentError) as error:
        one.call(verb, caller, *arguments, **named)
    return type(error.value), error.value.message, error.value.fields


@pytest.mark.parametrize(
    "caller", [STRANGER, JUNHO, Caller("t2", "mina", frozenset({"approver", "operator"}))], ids=["stranger", "neighbour", "roles"]
)
def test_g26_somebody_elses_ids_are_absent_on_every_verb(desk, caller):
    one, ids = waiting_desk(desk)
    nothing = {name: f"{wanted[0]}_{'0' * 32}" for name, wanted in ids.items()}
    for verb in VERBS:
        assert told(one, verb, caller, ids) == told(one, verb, caller, nothing), verb
    with pytest.raises(AbsentError):
        next(iter(one.events(ids["thread"], caller)))
    assert one.call("threads", caller).items == ()
    assert one.call("approvals", caller).items == ()
    assert one.said(ids["thread"]) == [("user", "SECRET QUESTION")]
    assert one.call("run", MINA, ids["thread"], ids["run"]).status == "awaiting_approval"
    assert one.call("approval", MINA, ids["thread"], ids["approval"]).status == "open"


def test_g26_ids_of_one_thread_are_absent_in_another(desk):
    one, ids = waiting_desk(desk)
    other = one.thread()
    for verb in ("message", "run", "cancel", "approval", "decide", "select", "receipt"):
        told(one, verb, MINA, {**ids, "thread": other})
    with pytest.raises(AbsentError):
        one.call("send", MINA, other, "hello", parent=ids["message"])
    with pytest.raises(AbsentError):
        one.call("messages", MINA, other, after=ids["message"])
    with pytest.raises(AbsentError):
        one.call("threads", MINA, after="t_nothing")


@pytest.mark.parametrize("wanted", ["", "\0", "x" * 300, "t_ü", "' or 1=1 --"], ids=["empty", "nul", "long", "umlaut", "quote"])
def test_g26_what_can_be_no_id_is_absent(desk, wanted):
    one = desk("ok")
    for verb in ("thread", "messages", "runs"):
        with pytest.raises(AbsentError):
            one.call(verb, MINA, wanted)


def test_g26_another_tenants_workspace_is_absent(desk):
    one = desk("ok")
    one.sql(f"update {one.table('workspace')} set tenant = 't1' where workspace = 'w1'")
    RIGHTS[("t3", "eve")] = frozenset({"w1"})  # a mistake in the application's own rights
    try:
        with pytest.raises(AbsentError):
            one.call("create_thread", Caller("t3", "eve"), workspace="w1")
        changes = one.service.changes(Caller("t3", "eve"), "w1")
        with pytest.raises(AbsentError):
            one.door.wait(anext(changes))
    finally:
        del RIGHTS[("t3", "eve")]
    for caller, workspace in ((STRANGER, "w1"), (MINA, "w2"), (MINA, "nowhere"), (Caller("t9", "x"), "w1")):
        with pytest.raises(AbsentError):
            one.call("create_thread", caller, workspace=workspace)
        with pytest.raises(AbsentError):
            one.door.wait(anext(one.service.changes(caller, workspace)))
    assert one.call("create_thread", MINA, workspace="w1").workspace == "w1"


def test_g26_a_caller_names_somebody(desk):
    one = desk("ok")
    thread = one.thread()
    for caller in (Caller("", "mina"), Caller("t1", "")):
        with pytest.raises(InputError):
            one.call("thread", caller, thread)


def test_g26_the_context_is_built_anew_for_every_attempt_and_resume(desk):
    asked = []

    def context(thread, user):
        asked.append((thread.id, thread.tenant, user))
        return RunContext(thread.tenant, user, thread.workspace)

    one = desk(
        calls("update_plan", id="p1", version="r3", title="x"),
        "done",
        tools=lambda hub: hub.tools(Plan),
        approvals="writes",
        service={"context": context},
    )
    thread = one.thread()
    one.ask(thread)
    (approval,) = one.call("approvals", MINA).items
    asked.clear()
    one.call("decide", MINA, thread, approval.id, Decision("approve"))
    one.settled(thread)
    assert (thread, "t1", "mina") in asked
    assert one.rows("select title from plan") == [("x",)]


def test_g26_a_right_that_was_withdrawn_ends_the_run(desk):
    one, ids = waiting_desk(desk)
    RIGHTS[("t1", "mina")] = frozenset()
    try:
        one.call("decide", APPROVER, ids["thread"], ids["approval"], Decision("approve"))
        one.settled(ids["thread"], OPERATOR)
        run = one.call("run", MINA, ids["thread"], ids["run"])
        assert (run.status, run.error["code"]) == ("failed", "not_allowed")
        assert one.rows("select title from plan") == [("Mapo",)]
    finally:
        RIGHTS[("t1", "mina")] = frozenset({"w1"})
    one.model.script[:] = ["all right"]
    assert one.ask(ids["thread"], "and now?").status == "succeeded"


def test_g26_a_refusal_of_the_context_is_no_access(desk):
    refuse = []

    def context(thread, user):
        if refuse:
            raise RefusedError("not today")
        return RunContext(thread.tenant, user, thread.workspace)

    one = desk("ok", service={"context": context})
    thread = one.thread()
    refuse.append(True)
    assert one.ask(thread).error["code"] == "not_allowed"
    with pytest.raises(AbsentError):
        one.thread()


def test_g26_the_context_may_be_a_coroutine(desk):
    async def context(thread, user):
        return RunContext(thread.tenant, user, thread.workspace)

    one = desk("ok", service={"context": context})
    assert one.ask(one.thread()).status == "succeeded"


def test_g26_many_people_at_once_see_only_their_own(desk):
    """PITFALLS G59: a canary of each person stands in nobody else's request, stream or messages."""

    def answer(messages):
        canary = next(m.text for m in reversed(messages) if isinstance(m, HumanMessage) and "canary" in m.text)
        return f"you said {canary.split()[-1]}"

    one = desk(*[answer] * 20)
    people = [Caller("t1", f"p{n}") for n in range(20)]
    for person in people:
        RIGHTS[(person.tenant, person.user)] = frozenset({"w1"})
    try:
        threads = [one.thread(person) for person in people]
        for n, (person, thread) in enumerate(zip(people, threads, strict=True)):
            one.call("send", person, thread, f"my canary is CANARY{n:02}")
        for n, (person, thread) in enumerate(zip(people, threads, strict=True)):
            seen = [str(event.data) for event in one.settled(thread, person)]
            said = str(one.said(thread, person))
            others = [f"CANARY{m:02}" for m in range(20) if m != n]
            assert not [canary for canary in others if canary in said or any(canary in text for text in seen)]
            assert f"CANARY{n:02}" in said
        for request in one.model.requests:
            assert len({word for m in request for word in m.text.split() if word.startswith("CANARY")}) == 1
    finally:
        for person in people:
            del RIGHTS[(person.tenant, person.user)]


def test_g26_a_threads_approval_shows_in_no_other_threads_stream(desk):
    one, _ = waiting_desk(desk)
    gate = Gate("fine")
    one.model.script[:] = [gate]
    other = one.thread()
    one.call("send", MINA, other, "hello")
    assert gate.entered.wait(60)
    gate.opened.set()
    assert not [event for event in one.settled(other) if event.type.startswith("approval.")]
    assert one.call("approvals", MINA, thread=other).items == ()
