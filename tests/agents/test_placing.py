"""Where the block stands among a request's messages, against the rules that providers publish.

Every validator returns what its provider would refuse, or warns of. A history may break a rule by itself, so what counts is
that placing adds nothing to it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda

from abreast.agents.placing import AGAIN, inside_answers, place
from abreast.testing import ScriptedModel
from abreast.types import Block, Placement

TEXT, FACTS = "CURRENT\n{}", "The budget is now 1200."
FULL = Block(TEXT, {}, 1, "d", facts=FACTS)
PLAIN = Block(TEXT, {}, 1, "d")
IMAGE = {"type": "image", "url": "https://example.com/a.png", "id": "i"}
PDF = {"type": "file", "file_id": "f1", "id": "doc"}
CACHED = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
PLACEMENTS = get_args(Placement)


def asks(*ids: str) -> AIMessage:
    return AIMessage("", id="a" + ids[0], tool_calls=[{"name": "look", "args": {}, "id": one} for one in ids])


def answer(call: str, content: Any = "1000", **more: Any) -> ToolMessage:
    return ToolMessage(content, tool_call_id=call, id="t" + call, **more)


Q = HumanMessage("What is the budget?", id="q", name="Kim", additional_kwargs={"x": 1})
OLD = [HumanMessage("Hello", id="h"), AIMessage("Hello.", id="a")]
LOOPED = [*OLD, Q, asks("1"), answer("1")]
PAUSED = AIMessage(
    [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}],
    id="p",
    response_metadata={"stop_reason": "pause_turn"},
)
HISTORIES: dict[str, list[Any]] = {
    "question": [Q],
    "question after a history": [*OLD, Q],
    "image": [*OLD, HumanMessage([IMAGE, {"type": "text", "text": "What is this?"}], id="q")],
    "documents around text": [HumanMessage([PDF, {"type": "text", "text": "Sum up."}, IMAGE], id="q")],
    "bare text in a list": [HumanMessage(["What is this?", IMAGE], id="q")],
    "image alone": [HumanMessage([IMAGE], id="q")],
    "empty list of parts": [HumanMessage([], id="q")],
    "empty question": [*OLD, HumanMessage("", id="q")],
    "long question": [HumanMessage("x" * (AGAIN + 1), id="q")],
    "several in a row": [*OLD, HumanMessage("One thing.", id="q1"), Q],
    "tool answer": LOOPED,
    "parallel tool answers": [Q, asks("1", "2"), answer("1"), answer("2")],
    "second round of tools": [*LOOPED, asks("2"), answer("2")],
    "failed tool": [Q, asks("1"), answer("1", "no such plan", status="error")],
    "empty tool answer": [Q, asks("1"), answer("1", "")],
    "tool answer of parts": [Q, asks("1"), answer("1", [{"type": "text", "text": "1000"}, IMAGE], artifact={"rows": [1]})],
    "question after tools": [*LOOPED, AIMessage("1000.", id="b"), HumanMessage("And now?", id="q2")],
    "answer of the model": [Q, AIMessage("1000.", id="b")],
    "paused in a tool of the provider": [*OLD, Q, PAUSED],
    "system message first": [SystemMessage("Be brief.", id="s"), Q],
    "system message last": [*OLD, SystemMessage("The import is done.", id="s")],
    "nothing": [],
}
WITH_ANSWERS = [name for name, messages in HISTORIES.items() if messages and isinstance(messages[-1], ToolMessage)]

# -- what providers publish ----------------------------------------------------------------------------------------------

ROLES = {"system": "system", "human": "user", "ai": "assistant", "tool": "tool"}


def roles(messages: Sequence[BaseMessage]) -> list[str]:
    return [ROLES[message.type] for message in messages]


def everywhere(messages: Sequence[BaseMessage]) -> set[str]:
    """Every provider: the answers directly behind their calls, no empty text, at most one system message."""
    found = set()
    for at, message in enumerate(messages):
        if isinstance(message, AIMessage) and message.tool_calls:
            wanted = {call["id"] for call in message.tool_calls}
            behind = messages[at + 1 : at + 1 + len(wanted)]
            if {getattr(one, "tool_call_id", None) for one in behind} != wanted:
                found.add("a call is not answered directly behind its message")
        parts = message.content if isinstance(message.content, list) else []
        if any(isinstance(part, dict) and part.get("type") == "text" and not part["text"].strip() for part in parts):
            found.add("an empty text part")
    if roles(messages).count("system") > 1:
        found.add("two system messages")
    if messages and isinstance(messages[-1], AIMessage) and messages[-1] is not PAUSED:
        found.add("ends with the assistant")
    return found


def anthropic(messages: Sequence[BaseMessage]) -> set[str]:
    """A user turn has the tool results first; text behind them teaches the model to end its turn with nothing."""
    found = everywhere(messages)
    for before, after in itertools.pairwise(roles(messages)):
        if (before, after) == ("user", "tool"):
            found.add("text before tool results")
        if (before, after) == ("tool", "user"):
            found.add("text behind tool results")
    if PAUSED in messages and messages[-1] is not PAUSED:
        found.add("a paused turn is not the last")
    return found


def google(messages: Sequence[BaseMessage]) -> set[str]:
    """A turn of function responses holds nothing else: a user turn behind it is the same turn."""
    found = everywhere(messages)
    if ("tool", "user") in itertools.pairwise(roles(messages)):
        found.add("a function response turn with something else in it")
    return found


def mistral(messages: Sequence[BaseMessage]) -> set[str]:
    found = everywhere(messages)
    for before, after in itertools.pairwise(roles(messages)):
        if (before, after) in (("tool", "user"), ("user", "tool")):
            found.add(f"Unexpected role {after!r} after role {before!r}")
    return found


def template(messages: Sequence[BaseMessage]) -> set[str]:
    """Chat templates of Gemma, Llama and Mistral on vLLM, Ollama and other servers: calls and answers aside, roles alternate."""
    found = everywhere(messages)
    spoken = [m for m in messages if m.type in ("human", "ai") and not (isinstance(m, AIMessage) and m.tool_calls)]
    for at, message in enumerate(spoken):
        if (message.type == "human") != (at % 2 == 0):
            found.add("Conversation roles must alternate user/assistant/user/assistant/...")
    return found


def bedrock(messages: Sequence[BaseMessage]) -> set[str]:
    """Converse: neighbours of one role are merged; text may stand beside tool results, but never blank."""
    found = everywhere(messages)
    if any(isinstance(m, HumanMessage) and m.content in ("", []) for m in messages):
        found.add("blank content")
    return found


def cohere(messages: Sequence[BaseMessage]) -> set[str]:
    found = everywhere(messages)
    if roles(messages)[-2:] == ["tool", "user"]:
        found.add("cannot specify message if the last entry in chat history contains tool results")
    return found


def deepseek(messages: Sequence[BaseMessage]) -> set[str]:
    found = everywhere(messages)
    for message in messages:
        if not isinstance(message.content, str) and message is not PAUSED:
            found.add(f"invalid type: sequence, expected a string ({message.id})")
    if ("user", "user") in itertools.pairwise(roles(messages)):
        found.add("does not support successive user messages")
    return found


Validator = Callable[[Sequence[BaseMessage]], set[str]]
FAMILIES: dict[str, tuple[Validator, str]] = {
    "openai": (everywhere, "message"),
    "xai": (everywhere, "message"),
    "anthropic": (anthropic, "answer"),
    "google": (google, "answer"),
    "mistral": (mistral, "answer"),
    "bedrock": (bedrock, "answer"),
    "cohere": (cohere, "answer"),
    "deepseek": (deepseek, "answer"),
    "groq, together": (template, "answer"),
    "vllm, ollama": (template, "answer"),
}


def request(messages: Sequence[Any], placement: Any, *, inside: bool, block: Block = FULL) -> list[Any]:
    placed, system = place(messages, None, block, placement, inside_answers=inside)
    return [system, *placed] if system is not None else placed


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_provider_refuses_what_was_placed(family, name, placement):
    refused, form = FAMILIES[family]
    made = request(HISTORIES[name], placement, inside=form == "answer")
    assert refused(made) <= refused(HISTORIES[name])
    assert refused(request(HISTORIES[name], placement, inside=True)) <= refused(HISTORIES[name])  # legal everywhere


@pytest.mark.parametrize("family", ["anthropic", "google", "mistral", "cohere", "vllm, ollama"])
def test_a_message_behind_tool_answers_is_what_some_refuse(family):
    refused, _ = FAMILIES[family]
    assert not refused(LOOPED)
    assert refused(request(LOOPED, "tail", inside=False))


# -- nothing of the request is lost --------------------------------------------------------------------------------------

OURS = {TEXT, FACTS, f"{TEXT}\n\n{FACTS}"}


def without_ours(content: Any, original: Any) -> Any:
    if isinstance(content, list):
        again = original and not isinstance(content[-1], str) and content[-1].get("text", "").strip().startswith(FACTS)
        kept = [part for part in content if isinstance(part, str) or str(part.get("text", "")).strip() not in OURS]
        return kept[:-1] if again and len(kept) > len(original) else kept
    left = [text for text in content.split("\n\n") if text and text not in OURS]
    return original if left in ([original], [original, original]) or (left == [] and original == "") else left


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("name", HISTORIES)
def test_without_our_text_a_request_is_what_was_given(name, placement, inside):
    messages = HISTORIES[name]
    before = copy.deepcopy(messages)
    made = request(messages, placement, inside=inside)
    assert messages == before
    known = {message.id for message in messages}
    assert sum(TEXT in str(message.content).replace("\\n", "\n") for message in made) == 1
    kept = [message for message in made if message.id in known and message.id]
    for given, message in zip(messages, kept, strict=True):
        assert without_ours(message.content, given.content) == given.content
        assert message.model_copy(update={"content": given.content}) == given
        assert isinstance(message.content, type(given.content))
    assert [m.content for m in made if not m.id] in ([], [f"{TEXT}\n\n{FACTS}"])


@pytest.mark.parametrize("placement", ["tail", "before", "after"])
@pytest.mark.parametrize("name", [name for name in HISTORIES if name != "paused in a tool of the provider"])
def test_everything_before_the_last_message_stays_byte_for_byte(name, placement):
    messages = HISTORIES[name]
    for inside in (True, False):
        made = request(messages, placement, inside=inside)
        assert [m.model_dump_json() for m in made[: len(messages) - 1]] == [m.model_dump_json() for m in messages[:-1]]
        assert all(a is b for a, b in zip(made, messages[:-1], strict=False))


# -- the forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "block", "content"),
    [
        ("tail", FULL, f"{TEXT}\n\n{FACTS}\n\n{Q.content}\n\n{FACTS}\n\n{Q.content}"),
        ("tail", PLAIN, f"{TEXT}\n\n{Q.content}"),
        ("before", FULL, f"{TEXT}\n\n{FACTS}\n\n{Q.content}"),
        ("after", FULL, f"{Q.content}\n\n{TEXT}\n\n{FACTS}"),
        ("after", PLAIN, f"{Q.content}\n\n{TEXT}"),
        ("system", FULL, Q.content),
    ],
)
def test_the_text_around_a_question(placement, block, content):
    (*_, question) = request([Q], placement, inside=True, block=block)
    assert question.content == content


def test_parts_keep_their_order_and_ids_between_the_texts():
    given = [PDF, {"type": "text", "text": "Sum up."}, IMAGE]
    (tail,), _ = place([HumanMessage(given)], None, FULL, "tail")
    assert tail.content == [
        {"type": "text", "text": f"{TEXT}\n\n{FACTS}\n\n"},
        *given,
        {"type": "text", "text": f"\n\n{FACTS}\n\nSum up."},
    ]


@pytest.mark.parametrize("content", ["x" * (AGAIN + 1), [IMAGE], [], "", " "])
def test_what_is_too_long_or_no_text_is_not_said_again(content):
    (tail,), _ = place([HumanMessage(content)], None, FULL, "tail")
    assert tail.text.endswith(FACTS)
    (exact,), _ = place([HumanMessage("x" * AGAIN)], None, FULL, "tail")
    assert exact.text.endswith(f"{FACTS}\n\n{'x' * AGAIN}")


@pytest.mark.parametrize("placement", ["tail", "before", "after"])
def test_after_tools_it_stands_in_the_last_answer_or_behind_it(placement):
    messages = HISTORIES["parallel tool answers"]
    within = request(messages, placement, inside=True)
    assert within[:-1] == messages[:-1]
    assert within[-1].content == f"1000\n\n{TEXT}\n\n{FACTS}"
    behind = request(messages, placement, inside=False)
    assert behind[:-1] == messages
    assert (behind[-1].type, behind[-1].content) == ("human", f"{TEXT}\n\n{FACTS}")


def test_an_answer_of_parts_gets_one_more_and_keeps_its_artifact_and_status():
    (*_, parts) = request(HISTORIES["tool answer of parts"], "tail", inside=True)
    given = HISTORIES["tool answer of parts"][-1]
    assert parts.content == [*given.content, {"type": "text", "text": f"\n\n{TEXT}\n\n{FACTS}"}]
    assert parts.artifact is given.artifact
    (*_, failed) = request(HISTORIES["failed tool"], "tail", inside=True)
    assert (failed.status, failed.content) == ("error", f"no such plan\n\n{TEXT}\n\n{FACTS}")
    (*_, empty) = request(HISTORIES["empty tool answer"], "tail", inside=True)
    assert empty.content == f"{TEXT}\n\n{FACTS}"


def test_beside_no_parts_there_is_no_space():
    (made,), _ = place([HumanMessage([])], None, FULL, "before")
    assert made.content == [{"type": "text", "text": f"{TEXT}\n\n{FACTS}"}]


def test_a_turn_that_the_provider_paused_stays_the_last_message():
    made = request([*OLD, Q, PAUSED], "after", inside=True)
    assert made[-1] is PAUSED
    assert made[-2].content == f"{Q.content}\n\n{TEXT}\n\n{FACTS}"
    assert [m.type for m in request([PAUSED], "tail", inside=True)] == ["human", "ai"]


def test_in_the_system_message_it_stands_last_and_there_is_only_one():
    system = SystemMessage([CACHED], id="s")
    placed, made = place([Q], system, PLAIN, "system")
    assert (placed, made.content, made.id) == ([Q], [CACHED, {"type": "text", "text": f"\n\n{TEXT}"}], "s")
    assert system.content == [CACHED]
    assert place([Q], SystemMessage("Be brief."), PLAIN, "system")[1].content == f"Be brief.\n\n{TEXT}"
    assert place([], None, PLAIN, "system") == ([], SystemMessage(TEXT))
    for name in ("system message first", "system message last"):
        placed, made = place(HISTORIES[name], None, PLAIN, "system")
        assert made is None
        assert [m.content.endswith(f"\n\n{TEXT}") for m in placed] == [m.type == "system" for m in placed]


def test_nothing_to_say_changes_nothing():
    for placement in PLACEMENTS:
        assert place(LOOPED, None, Block("", {}, 0, ""), placement) == (LOOPED, None)


# -- which form a model gets ---------------------------------------------------------------------------------------------


class Client:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url


class Speaking(ScriptedModel):
    """A chat model of OpenAI's protocol."""

    root_client: Any = None
    root_async_client: Any = None


def at(url: str) -> Speaking:
    return Speaking(root_client=Client(url))


OPENAI = at("https://api.openai.com/v1/")


@pytest.mark.parametrize(
    ("model", "inside"),
    [
        (None, True),
        ("openai:gpt-5-mini", True),
        (3, True),
        (RunnableLambda(str), True),
        (ScriptedModel(), True),
        (Speaking(), True),
        (OPENAI, False),
        (Speaking(root_async_client=Client("https://api.openai.com/v1/")), False),
        (at("https://eu.api.openai.com/v1/"), False),
        (at("https://api.x.ai/v1/"), False),
        (at("http://localhost:8000/v1"), True),
        (at("https://api.deepseek.com/v1"), True),
        (at("https://api.openai.com.example.com/v1"), True),
        (at("https://notapi.openai.com/v1"), True),
        (OPENAI.bind(stop=["x"]), False),
        (ScriptedModel().bind(stop=["x"]).with_config(tags=["t"]), True),
        (OPENAI.with_fallbacks([OPENAI]), False),
        (OPENAI.with_fallbacks([at("http://localhost:8000/v1")]), True),
        (OPENAI.with_retry().with_config(tags=["t"]), False),
    ],
)
def test_a_message_of_its_own_only_where_the_address_is_known_to_take_it(model, inside):
    assert inside_answers(model) is inside
    assert inside_answers(model, "message") is False
    assert inside_answers(model, "answer") is True
