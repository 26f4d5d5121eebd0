"""G25: what a person sees and what the engine needs are separate data, stored and failing separately."""

from __future__ import annotations

import json
import threading

import pytest
import sqlalchemy as sa
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from abreast import AbsentError, ConfigurationError, DecidedError, Decision, InputError, NotAllowedError, ThreadBusyError
from abreast.testing import ScriptedModel, calls
from planner import Plan
from serving import APPROVER, JUNHO, MINA, OPERATOR, Gate, of_type
from talk import CORNERS

pytestmark = CORNERS


def drop_checkpoints(desk):
    """Deletes what the engine keeps, as an operator would who has to."""
    engine = desk.engine
    if engine.dialect.name == "sqlite":
        engine = sa.create_engine(desk.engine.url.set(database=desk.engine.url.database.replace("app.db", "app.checkpoints.db")))
    with engine.begin() as connection:
        for name in ("checkpoints", "writes", "checkpoint_writes", "checkpoint_blobs"):
            if sa.inspect(connection).has_table(name):
                connection.exec_driver_sql(f"delete from {name}")
    if engine is not desk.engine:
        engine.dispose()


def test_g25_the_history_is_whole_with_every_checkpoint_deleted(desk):
    one = desk(calls("get_plan", id="p1"), "On 28 September.", "As I said.", tools=lambda hub: hub.tools(Plan, write=False))
    thread = one.thread()
    one.ask(thread)
    before = one.messages(thread)
    drop_checkpoints(one)
    assert one.messages(thread) == before
    assert [(m.role, m.content) for m in before] == [("user", "When do I move in?"), ("assistant", "On 28 September.")]
    assert [(t.name, t.status, t.result["id"]) for t in before[1].tools] == [("get_plan", "completed", "p1")]


def test_g25_an_engine_that_forgot_is_told_what_was_said(desk):
    one = desk("On 28 September.", "As I said.")
    thread = one.thread()
    one.ask(thread)
    drop_checkpoints(one)
    assert one.ask(thread, "Really?").status == "succeeded"
    texts = [message.text for message in one.model.requests[-1]]
    assert texts[0] == "When do I move in?"
    assert texts[1] == "On 28 September."
    assert "Really?" in texts[-1]
    assert "earlier answers may be out of date" in texts[-1]  # its mark is gone with its checkpoints


def test_g25_the_question_is_stored_before_the_run_starts(desk):
    one = desk("never asked", start=False)
    one.call("start")
    one.call("stop")
    thread = one.thread()
    run = one.call("send", MINA, thread, "Is anybody there?")
    assert run.status == "queued"
    assert one.said(thread) == [("user", "Is anybody there?")]
    assert one.call("thread", MINA, thread).status == "busy"
    one.call("start")
    one.settled(thread)
    assert one.said(thread)[1] == ("assistant", "never asked")


def test_g25_a_question_stays_where_its_run_failed(desk):
    one = desk(RuntimeError("the password is hunter2"), "Now it works.")
    thread = one.thread()
    run = one.ask(thread)
    assert run.status == "failed"
    assert run.error["code"] == "failed"
    assert "hunter2" not in json.dumps([dict(event.data) for event in one.settled(thread)])
    assert one.said(thread) == [("user", "When do I move in?")]
    assert one.call("thread", MINA, thread).status == "idle"
    assert one.ask(thread, "And now?").status == "succeeded"
    assert [role for role, _ in one.said(thread)] == ["user", "user", "assistant"]


def test_g25_hidden_reasoning_is_in_neither_messages_nor_stream(desk):
    thought = AIMessage(
        [{"type": "reasoning", "reasoning": "SECRET THOUGHT"}, {"type": "text", "text": "On 28 September."}],
        additional_kwargs={"reasoning_content": "SECRET THOUGHT"},
    )
    one = desk(thought)
    thread = one.thread()
    one.ask(thread)
    assert one.said(thread)[1] == ("assistant", "On 28 September.")
    seen = json.dumps([dict(event.data) for event in one.settled(thread)])
    assert "SECRET" not in seen
    assert not [r for r in one.rows(f"select body from {one.table('message')}") if "SECRET" in r[0]]
    assert not [r for r in one.rows(f"select data from {one.table('run_event')}") if "SECRET" in r[0]]


def test_g25_citations_are_kept(desk):
    cited = AIMessage(
        [
            {
                "type": "text",
                "text": "The movers come at nine.",
                "annotations": [
                    {"type": "citation", "url": "https://movers.example/plan", "title": "Plan", "cited_text": "9:00"}
                ],
            }
        ]
    )
    one = desk(cited)
    thread = one.thread()
    one.ask(thread)
    (citation,) = one.messages(thread)[1].citations
    assert citation == {"type": "citation", "url": "https://movers.example/plan", "title": "Plan", "cited_text": "9:00"}


def test_g25_working_memory_is_kept_with_the_message_and_the_thread(desk):
    one = desk("first", "second", service={"memory": lambda state: {"turns": len(state["messages"]) // 2}})
    thread = one.thread()
    one.ask(thread)
    one.ask(thread)
    assert [m.memory for m in one.messages(thread) if m.role == "assistant"] == [{"turns": 1}, {"turns": 2}]
    assert one.call("thread", MINA, thread).memory == {"turns": 2}


def test_g25_working_memory_is_the_branches_own(desk):
    one = desk(
        "one",
        "two",
        "three",
        service={"memory": lambda state: {"seen": state["messages"][-1].text} if len(state["messages"]) != 6 else None},
    )
    thread = one.thread()
    one.ask(thread, "first")
    first = one.messages(thread)[-1].id
    one.ask(thread, "second")
    assert one.call("thread", MINA, thread).memory == {"seen": "two"}
    assert one.call("select", MINA, thread, first).memory == {"seen": "one"}
    second = [event for event in one.settled(thread) if event.type == "conversation.updated"][-1]
    assert second.data["conversation"]["leaf"] == first
    one.ask(thread, "another second", parent=first)
    assert one.call("thread", MINA, thread).memory == {"seen": "three"}
    one.model.script[:] = ["four"]
    one.ask(thread, "third")  # it leaves nothing: what was there before stays
    assert one.call("thread", MINA, thread).memory == {"seen": "three"}
    known = one.call("thread", MINA, thread)
    assert known.last_event == one.settled(thread)[-1].id
    assert one.call("send", MINA, thread, "anew", parent=None).thread == thread
    one.settled(thread)


@pytest.mark.parametrize("memory", [lambda state: state["nothing"], lambda state: object()], ids=["raises", "no_json"])
def test_g25_a_bad_memory_costs_no_answer(desk, memory):
    one = desk("first", service={"memory": memory})
    thread = one.thread()
    assert one.ask(thread).status == "succeeded"
    assert one.messages(thread)[1].memory is None
    assert one.call("thread", MINA, thread).memory is None


def test_g25_an_answer_is_marked_when_what_it_rests_on_changes(desk):
    one = desk(calls("get_plan", id="p1"), "On 28 September.", "fine", tools=lambda hub: hub.tools(Plan, write=False))
    thread = one.thread()
    one.ask(thread)
    one.sql("update item set done = true where id = 1")
    assert [m.outdated for m in one.messages(thread)] == [False, False]  # it has nothing to do with the item
    one.sql("update plan set move_in_date = '2026-09-30' where id = 'p1'")
    question, answer = one.messages(thread)
    assert not question.outdated
    assert answer.outdated
    assert [(c["entity_id"], c["values"]["move_in_date"]) for c in answer.changes] == [("p1", ["2026-09-28", "2026-09-30"])]
    assert one.call("message", MINA, thread, answer.id).outdated


def test_g25_an_answer_is_not_marked_by_what_its_reader_may_not_read(desk):
    from abreast import Readable

    def rule(context):
        return Readable(hide=() if "budget" in context.permissions else {"budget"})

    one = desk(calls("get_plan", id="p1"), "done", tools=lambda hub: hub.tools(Plan, write=False), plan={"readable": rule})
    thread = one.thread()
    one.ask(thread)
    one.sql("update plan set budget = 1 where id = 'p1'")
    assert not one.messages(thread)[1].outdated


def test_g25_a_turn_that_wrote_rests_on_what_it_wrote(desk):
    one = desk(
        calls("update_plan", id="p1", version="r3", title="Seongsu"),
        "done",
        tools=lambda hub: hub.tools(Plan, write={"update_plan"}),
    )
    thread = one.thread()
    one.ask(thread)
    answer = one.messages(thread)[1]
    assert answer.basis.revisions == {"w1": 4}
    assert not answer.outdated


def test_g25_nul_and_half_characters_are_kept(desk):
    one = desk("a\0b\ud800c")
    thread = one.thread()
    one.ask(thread, "x\0y\ud800z")
    assert one.said(thread) == [("user", "x\0y\ud800z"), ("assistant", "a\0b?c")]  # the engine keeps no half characters


def test_g25_pages_hold_every_message_once(desk):
    one = desk(*[f"answer {n}" for n in range(5)])
    thread = one.thread()
    for n in range(5):
        one.ask(thread, f"question {n}")
    found, after = [], None
    while True:
        page = one.call("messages", MINA, thread, after=after, limit=3)
        found += [m.content for m in page.items]
        after = page.next
        if after is None:
            break
    assert found == [text for n in range(5) for text in (f"question {n}", f"answer {n}")]
    runs, after = [], None
    while True:
        page = one.call("runs", MINA, thread, after=after, limit=2)
        runs += page.items
        after = page.next
        if after is None:
            break
    assert [run.message for run in reversed(runs)] == [m.id for m in one.messages(thread) if m.role == "user"]


def test_g25_a_validator_that_refuses_stores_no_answer(desk):
    one = desk("too short", service={"validate": [lambda state: len(state["messages"][-1].text) > 20]})
    thread = one.thread()
    one.sql("update plan set title = 'x' where id = 'p1'")
    run = one.ask(thread)
    assert (run.status, run.error["code"]) == ("failed", "no_answer")
    assert run.answer is None or one.call("message", MINA, thread, run.answer).status == "stopped"


def test_g25_bad_input_is_refused_and_changes_nothing(desk):
    one = desk("ok")
    thread = one.thread()
    for text in ("", "   ", "x" * 100_001):
        with pytest.raises(InputError):
            one.call("send", MINA, thread, text)
    with pytest.raises(InputError):
        one.call("send", MINA, thread, "hello", on_busy="whenever")
    with pytest.raises(AbsentError):
        one.call("send", MINA, thread, "hello", parent="m_nothing")
    with pytest.raises(InputError):
        one.call("create_thread", MINA, workspace="w1", agent="nobody")
    with pytest.raises(InputError):
        one.call("messages", MINA, thread, limit=0)
    assert one.said(thread) == []
    assert one.call("runs", MINA, thread).items == ()


def test_g25_a_service_needs_a_checkpointer(desk):
    from langchain.agents import create_agent

    one = desk("ok")
    with pytest.raises(ConfigurationError, match="no checkpointer"):
        one.hub.service(create_agent(ScriptedModel(), []), context=lambda thread, user: None)


# -- a second message on a busy thread -------------------------------------------------------------------------------


def slow(desk, **named):
    """A desk whose first answer comes when it is let."""
    gate = Gate("at last")
    one = desk(gate, "second", "third", **named)
    thread = one.thread()
    run = one.call("send", MINA, thread, "first question")
    assert gate.entered.wait(60)
    return one, thread, run, gate.opened


def test_busy_reject(desk):
    one, thread, run, gate = slow(desk)
    for verb, wanted in (("send", "second question"), ("select", run.message)):
        with pytest.raises(ThreadBusyError) as busy:
            one.call(verb, MINA, thread, wanted)
        assert busy.value.run == run.id
    gate.set()
    one.settled(thread)
    assert one.said(thread) == [("user", "first question"), ("assistant", "at last")]


def test_busy_enqueue(desk):
    one, thread, _, gate = slow(desk)
    second = one.call("send", MINA, thread, "second question", on_busy="enqueue")
    third = one.call("send", MINA, thread, "third question", on_busy="enqueue")
    assert (second.status, third.status) == ("queued", "queued")
    gate.set()
    one.settled(thread)
    assert [text for _, text in one.said(thread)] == [
        *("first question", "at last"),
        *("second question", "second"),
        *("third question", "third"),
    ]
    done = [event.data["run"] for event in of_type(one.settled(thread), "done")]
    assert done[1:] == [second.id, third.id]
    assert [m.text.split("\n\n")[0] for m in one.model.requests[-1][:-1]] == [
        "first question",
        "at last",
        "second question",
        "second",
    ]


def test_busy_interrupt_keeps_what_was_said(desk):
    one, thread, run, gate = slow(desk)
    second = one.call("send", MINA, thread, "second question", on_busy="interrupt")
    gate.set()
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "cancelled"
    assert one.call("run", MINA, thread, second.id).status == "succeeded"
    texts = [text for _, text in one.said(thread)]
    assert texts[0] == "first question"
    assert texts[-2:] == ["second question", "second"]
    assert len([e for e in of_type(one.settled(thread), "done") if e.data["run"] == run.id]) == 1


def test_busy_rollback_leaves_the_shown_branch(desk):
    one, thread, run, gate = slow(desk)
    one.call("send", MINA, thread, "second question", on_busy="rollback")
    gate.set()
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "cancelled"
    assert one.said(thread) == [("user", "second question"), ("assistant", "second")]
    assert [m.text.split("\n\n")[0] for m in one.model.requests[-1]][:-1] == []  # the engine has forgotten it too


def asked(desk, *script):
    """A desk whose first run waits for an approval."""
    one = desk(
        calls("update_plan", id="p1", version="r3", title="x"), *script, tools=lambda hub: hub.tools(Plan), approvals="writes"
    )
    thread = one.thread()
    run = one.ask(thread, "rename it")
    (approval,) = one.call("approvals", MINA).items
    return one, thread, run, approval


def test_busy_enqueue_behind_an_approval(desk):
    one, thread, _, approval = asked(desk, "renamed", "second")
    second = one.call("send", MINA, thread, "second question", on_busy="enqueue")
    assert one.call("thread", MINA, thread).status == "awaiting_approval"
    assert one.call("run", MINA, thread, second.id).status == "queued"
    one.call("decide", MINA, thread, approval.id, Decision("approve"))
    one.settled(thread)
    assert [text for _, text in one.said(thread)] == ["rename it", "renamed", "second question", "second"]
    assert one.rows("select title from plan") == [("x",)]


@pytest.mark.parametrize("on_busy", ["interrupt", "rollback"])
def test_busy_who_types_instead_of_deciding_steers_away(desk, on_busy):
    one, thread, run, approval = asked(desk, "all right")
    one.ask(thread, "never mind", on_busy=on_busy)
    assert one.call("run", MINA, thread, run.id).status == "cancelled"
    assert one.call("approval", MINA, thread, approval.id).status == "withdrawn"
    with pytest.raises(DecidedError):
        one.call("decide", MINA, thread, approval.id, Decision("approve"))
    kept = ["rename it"] if on_busy == "interrupt" else []
    assert [text for _, text in one.said(thread)] == [*kept, "never mind", "all right"]
    assert one.rows("select title from plan") == [("Mapo",)]


def test_cancel_keeps_the_partial_answer(desk, door):
    class Halting(ScriptedModel):
        """Says three words, and then waits to be let."""

        def _stream(self, messages, stop=None, run_manager=None, **settings):
            from langchain_core.messages import AIMessageChunk
            from langchain_core.outputs import ChatGenerationChunk

            self._requests.append(messages)
            for word in ("One ", "two ", "three "):
                chunk = ChatGenerationChunk(message=AIMessageChunk(word))
                if run_manager is not None:
                    run_manager.on_llm_new_token(word, chunk=chunk)
                yield chunk
            assert gate.wait(60)

    gate = threading.Event()
    gate.set()
    one = desk(model=Halting())
    thread = one.thread()
    one.ask(thread)
    gate.clear()
    one.sql("update plan set title = 'x' where id = 'p1'")
    before = one.place(thread)
    run = one.call("send", MINA, thread, "Count.")
    seen = ""
    for event in one.events(thread):
        if event.type == "assistant.delta":
            seen += event.data["delta"]
        if seen == "One two three ":
            break
    assert one.call("cancel", MINA, thread, run.id).status in ("running", "cancelled")
    one.settled(thread)
    gate.set()
    answer = one.messages(thread)[-1]
    assert (answer.content, answer.status) == ("One two three ", "stopped")
    assert one.call("run", MINA, thread, run.id).status == "cancelled"
    assert one.call("cancel", MINA, thread, run.id).status == "cancelled"  # once more changes nothing
    assert one.place(thread) == before == 3
    assert [event.type for event in one.settled(thread)][-3:] == ["assistant.completed", "conversation.updated", "done"]


def test_cancel_ends_what_waits(desk):
    one = desk("first", start=False)
    one.call("start")
    one.call("stop")
    thread = one.thread()
    run = one.call("send", MINA, thread, "hello")
    assert one.call("cancel", MINA, thread, run.id).status == "cancelled"
    assert one.call("thread", MINA, thread).status == "idle"
    one.call("start")
    assert one.said(thread) == [("user", "hello")]
    assert one.model.requests == []


def test_cancel_of_a_waiting_approval_withdraws_it(desk):
    one = desk(
        calls("update_plan", id="p1", version="r3", title="x"),
        "never",
        tools=lambda hub: hub.tools(Plan),
        approvals="writes",
    )
    thread = one.thread()
    run = one.ask(thread)
    assert run.status == "awaiting_approval"
    assert one.call("thread", MINA, thread).status == "awaiting_approval"
    with pytest.raises(ThreadBusyError, match="waits for a decision"):
        one.call("send", MINA, thread, "hello?")
    assert one.call("cancel", MINA, thread, run.id).status == "cancelled"
    assert one.call("approvals", MINA).items == ()
    (row,) = one.call("approvals", MINA, status=None).items
    assert row.status == "withdrawn"
    one.model.script[:] = ["all right"]
    assert one.ask(thread, "Then not.").status == "succeeded"
    assert one.rows("select title from plan") == [("Mapo",)]


# -- who may do what ---------------------------------------------------------------------------------------------------


def test_g26_who_may_only_look_may_not_speak_or_end(desk):
    one = desk("ok")
    thread = one.thread()
    for caller in (APPROVER, OPERATOR):
        assert one.call("thread", caller, thread).id == thread
        with pytest.raises(NotAllowedError):
            one.call("send", caller, thread, "hello")
        with pytest.raises(NotAllowedError):
            one.call("select", caller, thread, "m_x")
    run = one.ask(thread)
    with pytest.raises(NotAllowedError):
        one.call("cancel", APPROVER, thread, run.id)
    assert one.call("cancel", OPERATOR, thread, run.id).status == "succeeded"
    assert one.call("threads", OPERATOR).items == ()  # a role looks at what it is led to; its own list is its own
    assert [t.id for t in one.call("threads", MINA).items] == [thread]
    with pytest.raises(AbsentError):
        one.call("thread", JUNHO, thread)


# -- branches ----------------------------------------------------------------------------------------------------------


def history(request):
    """What a model was told before the question, without what the hub put there."""
    return [message.text.split("\n\n")[0] for message in request[:-1]]


def test_g9_an_edited_first_message_begins_anew(desk):
    one = desk("one", "two", "three")
    thread = one.thread()
    one.ask(thread, "first")
    one.ask(thread, "second")
    one.ask(thread, "first, in other words", parent=None)
    assert one.said(thread) == [("user", "first, in other words"), ("assistant", "three")]
    assert history(one.model.requests[-1]) == []
    question = one.messages(thread)[0]
    (sibling,) = question.siblings
    assert one.call("message", MINA, thread, question.id) == question
    assert [text for _, text in one.said(thread, leaf=sibling)] == ["first"]


def test_g9_a_branch_is_told_again_from_its_own_mark(desk):
    one = desk("one", "two", "three", "four")
    thread = one.thread()
    one.ask(thread, "first")
    first = one.messages(thread)[-1].id
    one.sql("update plan set title = 'Seongsu' where id = 'p1'")
    one.ask(thread, "second")
    assert "r4" in one.model.last_request
    one.ask(thread, "third")
    assert "r4" not in one.model.last_request.split("CURRENT")[0]
    one.ask(thread, "second, in other words", parent=first)
    assert history(one.model.requests[-1]) == ["first", "one"]
    assert "r4" in one.model.last_request.split("CURRENT")[0]  # that history was never told
    assert [text for _, text in one.said(thread)] == ["first", "one", "second, in other words", "four"]


def test_g9_going_back_to_a_turn(desk):
    one = desk("one", "two", "three", "four")
    thread = one.thread()
    one.ask(thread, "first")
    first = one.messages(thread)[-1].id
    one.ask(thread, "second")
    second = one.messages(thread)[-1].id
    assert one.call("select", MINA, thread, first).leaf == first
    assert [text for _, text in one.said(thread)] == ["first", "one"]
    one.ask(thread, "another second")
    assert [text for _, text in one.said(thread)] == ["first", "one", "another second", "three"]
    assert history(one.model.requests[-1]) == ["first", "one"]
    one.call("select", MINA, thread, second)
    one.ask(thread, "fourth")
    assert [text for _, text in one.said(thread)] == ["first", "one", "second", "two", "fourth", "four"]
    assert history(one.model.requests[-1]) == ["first", "one", "second", "two"]


def test_g9_what_a_left_branch_wrote_stays_written_and_is_told_as_this_conversations(desk):
    one = desk(
        "hello",
        calls("update_plan", id="p1", version="r3", title="Seongsu"),
        "done",
        "another",
        tools=lambda hub: hub.tools(Plan, write={"update_plan"}),
    )
    thread = one.thread()
    one.ask(thread, "hello")
    first = one.messages(thread)[-1].id
    one.ask(thread, "rename it")
    one.ask(thread, "what is it called?", parent=first)
    assert one.rows("select title from plan") == [("Seongsu",)]
    assert "r4, you, plan" in one.model.last_request
    assert '"Seongsu"' in one.model.last_request


def test_a_tool_of_a_stopped_run_is_shown_as_stopped(desk):
    gate, entered = threading.Event(), threading.Event()

    @tool
    def slow_look() -> str:
        """Look, slowly."""
        entered.set()
        assert gate.wait(60)
        return "seen"

    one = desk(calls("slow_look"), "never", tools=lambda hub: [slow_look])
    thread = one.thread()
    run = one.call("send", MINA, thread, "look")
    assert entered.wait(60)
    one.call("cancel", MINA, thread, run.id)
    gate.set()
    one.settled(thread)
    assert one.call("run", MINA, thread, run.id).status == "cancelled"
    one.model.script[:] = ["fine"]
    assert one.ask(thread, "again").status == "succeeded"
