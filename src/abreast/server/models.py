"""The HTTP face's requests and answers, as Pydantic models: what clients may send, and what the OpenAPI document says.

They are apart from the records of the service, so that neither changes with the other. Requests refuse what they do not
know: a client that sends history, state or a place in a graph is told so instead of being half obeyed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from abreast.records import ApprovalStatus, DecisionType, MessageStatus, OnBusy, Role, RunStatus, ThreadStatus

Id = Annotated[str, Field(min_length=1, max_length=200)]
Time = Annotated[str, Field(description="UTC, ISO 8601.")]
Revisions = Annotated[dict[str, int], Field(description="A revision of each workspace.")]
Json: TypeAlias = Any

_THREAD = "t_0190f3c1a2b47c3d8e4f5a6b7c8d9e0f"
_MESSAGE = "m_0190f3c1a2b47c3d8e4f5a6b7c8d9e10"
_ANSWER = "m_0190f3c1a2b47c3d8e4f5a6b7c8d9e12"
_RUN = "r_0190f3c1a2b47c3d8e4f5a6b7c8d9e11"
_APPROVAL = "a_4fb1c8a0e2d34f6f9a7b5c3d1e0f2a4b"
_AT = "2026-09-20T08:30:00.000Z"


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


# -- requests ------------------------------------------------------------------------------------------------------------


class NewThread(_Request):
    """A new conversation."""

    workspace: Id = Field(description="The workspace whose data the conversation is about.", examples=["w1"])
    agent: Id | None = Field(None, description="Which agent answers, where the service has several.", examples=["assistant"])
    title: str = Field(
        "", max_length=200, pattern="^[^\\x00]*$", description="What the conversation is called.", examples=["The move to Mapo"]
    )


class NewMessage(_Request):
    """A person's message. It is stored before the run that answers it begins."""

    text: str = Field(min_length=1, description="What the person says.", examples=["When do I move in?"])
    parent: Id | None = Field(
        None,
        description="The message that this one follows, to branch there; null for a new first message. Left out, it follows "
        "the newest message of the shown branch.",
        examples=[_ANSWER],
    )
    on_busy: OnBusy | None = Field(
        None,
        description="What to do while another run of the conversation goes on: refuse this message, let it wait, stop that "
        "run, or stop it and take its turn back. Left out, as the service is set up.",
        examples=["enqueue"],
    )


class Leaf(_Request):
    """The message where the shown branch is to end."""

    message: Id = Field(examples=[_ANSWER])


class NewDecision(_Request):
    """What a person decides about a tool call. The tool itself cannot be changed."""

    type: DecisionType = Field(
        description="Run the call as it stands, run it with other arguments, do not run it, or answer in the tool's place.",
        examples=["approve"],
    )
    arguments: dict[str, Any] | None = Field(
        None, description="With `edit`: all arguments, in place of the proposed ones.", examples=[{"id": "p1", "version": 3}]
    )
    message: Json = Field(
        None, description="With `reject` the reason, with `respond` the answer.", examples=["Not before the keys are here."]
    )
    confirmed: dict[str, Annotated[int, Field(ge=0, le=2**63 - 1)]] | None = Field(
        None,
        description="The `revisions` of the problem `outdated`, once the person has seen its changes.",
        examples=[{"w1": 41}],
    )


# -- answers -------------------------------------------------------------------------------------------------------------


class Thread(_Answer):
    """One conversation."""

    id: str = Field(examples=[_THREAD])
    user: str = Field(description="Whose conversation it is.", examples=["u_1"])
    workspace: str = Field(examples=["w1"])
    agent: str = Field(examples=["assistant"])
    title: str = Field(examples=["The move to Mapo"])
    status: ThreadStatus = Field(description="Derived from the conversation's runs.", examples=["idle"])
    run: str | None = Field(description="The run that is going on or waits for a decision.", examples=[_RUN])
    leaf: str | None = Field(description="The newest message of the branch that is shown.", examples=[_ANSWER])
    memory: Json = Field(description="The working memory that the turns of the shown branch left.", examples=[{"plan": "p1"}])
    created_at: Time = Field(examples=[_AT])
    last_message_at: Time | None = Field(examples=[_AT])
    last_event: int = Field(
        description="Where the stream stands: who has read this and the messages follows from there.", examples=[9]
    )


class ToolUse(_Answer):
    """A tool call of a turn, with its answer."""

    id: str = Field(examples=["call_1"])
    name: str = Field(examples=["update_plan"])
    status: Literal["completed", "failed", "stopped"] = Field(examples=["completed"])
    arguments: dict[str, Any] = Field(description="As the model gave them.", examples=[{"id": "p1", "version": 3}])
    result: Json = Field(description="As the model read it.", examples=[{"version": 4}])
    edited: dict[str, Any] | None = Field(description="What a person put in their place.", examples=[None])
    approval: str | None = Field(examples=[_APPROVAL])


class Basis(_Answer):
    """What an answer rests on."""

    revisions: Revisions = Field(examples=[{"w1": 41}])
    entities: list[tuple[str, str]] | None = Field(
        description="Type and id of the rows that it has to do with; null for the whole workspace.", examples=[[["plan", "p1"]]]
    )


class Message(_Answer):
    """One message as a person sees it."""

    id: str = Field(examples=[_ANSWER])
    thread: str = Field(examples=[_THREAD])
    role: Role = Field(examples=["assistant"])
    content: str = Field(examples=["You move in on 30 September."])
    parent: str | None = Field(description="The message before it.", examples=[_MESSAGE])
    run: str | None = Field(examples=[_RUN])
    status: MessageStatus = Field(description="`stopped`: part of an answer that somebody stopped.", examples=["complete"])
    citations: list[dict[str, Any]] = Field(examples=[[{"entity_type": "plan", "entity_id": "p1"}]])
    tools: list[ToolUse]
    basis: Basis | None
    memory: Json = Field(description="The working memory that came out of the turn.", examples=[{"plan": "p1"}])
    siblings: list[str] = Field(description="The messages in the same place, on other branches.", examples=[[_ANSWER]])
    outdated: bool = Field(description="What the answer rests on has changed since.", examples=[False])
    changes: list[dict[str, Any]] = Field(description="What has changed, where it is outdated.", examples=[[]])
    created_at: Time = Field(examples=[_AT])


class Run(_Answer):
    """One invocation of an agent for a conversation, with all its attempts."""

    id: str = Field(examples=[_RUN])
    thread: str = Field(examples=[_THREAD])
    user: str = Field(examples=["u_1"])
    status: RunStatus = Field(examples=["queued"])
    message: str | None = Field(description="The message that it answers.", examples=[_MESSAGE])
    answer: str | None = Field(description="Its own message.", examples=[None])
    attempts: int = Field(description="How often it began; more than once only after a crash.", examples=[0])
    error: dict[str, Any] | None = Field(description="A code and a text for people.", examples=[None])
    created_at: Time = Field(examples=[_AT])
    started_at: Time | None = Field(examples=[None])
    ended_at: Time | None = Field(examples=[None])


class Sent(_Answer):
    """A message that was stored, and the run that will answer it."""

    run: Run
    message: Message


class DecisionMade(_Answer):
    """What was decided."""

    type: DecisionType = Field(examples=["approve"])
    arguments: dict[str, Any] | None = Field(examples=[None])
    message: Json = Field(examples=[None])
    confirmed: Revisions = Field(examples=[{}])
    by: str = Field(description="Who decided.", examples=["u_1"])
    at: Time = Field(examples=[_AT])


class Approval(_Answer):
    """A stored request to let one tool call run."""

    id: str = Field(examples=[_APPROVAL])
    thread: str = Field(examples=[_THREAD])
    run: str = Field(examples=[_RUN])
    user: str | None = Field(description="Whose conversation it is.", examples=["u_1"])
    kind: Literal["tool", "node", "interrupt"] = Field(
        description="A tool call; a graph that stops before its tools; a question of the application's own.", examples=["tool"]
    )
    tool: str = Field(examples=["update_plan"])
    arguments: dict[str, Any] = Field(
        description="Exactly what is asked for.", examples=[{"id": "p1", "version": 3, "move_in_date": "2026-09-30"}]
    )
    schema_: dict[str, Any] | None = Field(
        alias="schema", description="The JSON schema of the tool's arguments, for a form.", examples=[{"type": "object"}]
    )
    question: Json = Field(examples=[None])
    status: ApprovalStatus = Field(examples=["open"])
    policy: dict[str, Any] = Field(description="The policy that was in force, as it stays.", examples=[{"gate": "ask"}])
    revisions: Revisions = Field(description="HEAD of each workspace as it was proposed.", examples=[{"w1": 41}])
    touches: list[tuple[str, str, int | None]] | None = Field(
        description="Type, id and version of the rows that the call has to do with; null for the whole workspace.",
        examples=[[["plan", "p1", 3]]],
    )
    changes: list[dict[str, Any]] = Field(description="What of it has changed since it was proposed.", examples=[[]])
    decision: DecisionMade | None
    created_at: Time = Field(examples=[_AT])
    expires_at: Time | None = Field(examples=[None])


_Next = Annotated[
    str | None, Field(description="Send it as `after` for the next page; null at the end.", examples=["dGhyZWFkczp0XzAx"])
]


class ThreadPage(_Answer):
    """Conversations, the newest first."""

    items: list[Thread]
    next: _Next


class MessagePage(_Answer):
    """Messages of one branch, the oldest first."""

    items: list[Message]
    next: _Next


class RunPage(_Answer):
    """Runs of a conversation, the newest first."""

    items: list[Run]
    next: _Next


class ApprovalPage(_Answer):
    """Approvals."""

    items: list[Approval]
    next: _Next


class Problem(BaseModel):
    """An error, as RFC 9457 has it. Some types have more members."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Which problem it is; it never changes.", examples=["urn:abreast:problem:absent"])
    title: str = Field(examples=["There is no such thing here."])
    status: int = Field(examples=[404])
    detail: str | None = Field(None, examples=["There is no such thing here."])
