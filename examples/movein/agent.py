"""The product's assistant: the hub over its database, and the same agent with and without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolCallRequest
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from sqlalchemy.orm import Session

from abreast import Abreast, AbreastError, ChangeEvent, Row, RunContext, Standing, ThreadBusyError, agent, user, via

from . import actions, elsewhere, loaders, models, policy
from .models import ChecklistItem, Contact, Plan
from .offline import OfflineModel

PROMPT = (
    "You help a household with its move. Answer briefly, in the language of the question. "
    "Go by what you are shown; look up with the tools what you are not shown. Never guess. Change only what you are asked "
    "to change. If a row has changed meanwhile, say what it holds now and who changed it, and ask before you write over it."
)
WRITER = agent("assistant")
"""Who stands in the log for what the assistant writes."""

LABELS = {
    "en": {"move_in_date": "move-in date", "budget": "budget", "new_address": "new address", "door_code": "door code"},
    "ko": {"move_in_date": "입주일", "budget": "예산", "new_address": "새 주소", "door_code": "현관 비밀번호"},
}


@dataclass(frozen=True)
class Conversation:
    """One conversation: whose it is, in which workspace, and whether abreast keeps it in step."""

    thread: str
    user: str
    workspace: str
    permissions: frozenset[str] = policy.HOUSEHOLD
    in_step: bool = True

    @property
    def context(self) -> RunContext:
        """The run context, as the product's server builds it for every run."""
        return RunContext(tenant="home", user=self.user, workspace=self.workspace, permissions=self.permissions)


CONVERSATIONS = {
    one.thread: one
    for one in (
        Conversation("A", "mina", "seongsu"),
        Conversation("B", "mina", "seongsu"),
        Conversation("B-without", "mina", "seongsu", in_step=False),
        Conversation("C", "mover", "seongsu", permissions=frozenset()),
        Conversation("D", "junho", "parents"),
    )
}


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the assistant and what the tool answered."""

    name: str
    arguments: Mapping[str, Any]
    answer: str
    failed: bool

    @property
    def told(self) -> Mapping[str, Any]:
        """The answer as JSON; empty if it is none."""
        with suppress(ValueError):
            read = json.loads(self.answer)
            if isinstance(read, dict):
                return read
        return {}


@dataclass(frozen=True)
class Asked:
    """What came of a question: the answer, what the last model request held beside the conversation, the tool calls, and
    why the conversation kept its place, if it did."""

    answer: str
    block: str
    calls: Sequence[ToolCall] = ()
    reason: str | None = None


def open_hub(database: str, language: str, approvals: Literal["named", "writes"] = "named") -> Abreast:
    """The hub over the product's database: what is tracked, what CURRENT holds, who may read and write what. In the terminal
    nobody is asked before a tool writes; `served.py` asks."""
    hub = Abreast(database, approvals=approvals)
    hub.track(
        Plan,
        workspace="workspace_id",
        record={"status", "move_in_date", "budget", "old_address", "new_address"},
        redact=policy.REDACTED,
        labels=LABELS[language],
        readable=policy.read_plan,
        writable=policy.write_plan,
    )
    hub.track(ChecklistItem, workspace=via("plan_id", Plan), record="all", writable=policy.write_checklist)
    hub.track(
        Contact,
        workspace=via("plan_id", Plan),
        record={"name", "role"},
        readable=policy.read_contacts,
        writable=policy.write_contacts,
    )
    hub.loader(loaders.plan)
    hub.loader(loaders.checklist)
    return hub


def open_model() -> BaseChatModel:
    """The model that ABREAST_MODEL names (`provider:name`, anything that LangChain knows), or the offline one."""
    name = os.environ.get("ABREAST_MODEL", "").strip()
    return init_chat_model(name) if name else OfflineModel()


class Requests(BaseCallbackHandler):
    """Listens to what the model receives, whichever model it is."""

    def __init__(self) -> None:
        self.last: Sequence[BaseMessage] = ()

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **rest: Any) -> None:
        self.last = messages[0]


class Between(AgentMiddleware[Any, Any, Any]):
    """For the demo: somebody edits a row after the model has read it and before its tool writes."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: Callable[[], None] | None = None

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Does what waits, once, and then lets the tool go on."""
        kind = ((request.tool and request.tool.metadata) or {}).get("abreast")
        if self.waiting is not None and kind in ("write", "function"):
            edit, self.waiting = self.waiting, None
            edit()
        return handler(request)


class Assistant:
    """The assistant of one directory: the product's rows, the checkpoints of its conversations, and the agents."""

    def __init__(self, directory: Path, language: str, model: BaseChatModel, without: SqliteSaver) -> None:
        self.directory = directory
        self.engine = models.open_engine(directory)
        self.hub = open_hub(f"sqlite:///{models.database_file(directory)}", language)
        self.between = Between()
        shared: dict[str, Any] = {
            "model": model,
            "tools": [
                *self.hub.tools(write=policy.WRITE_TOOLS, actor=WRITER),
                self.hub.tool(permission="plan", actor=WRITER)(actions.postpone_move),
            ],
            "system_prompt": PROMPT,
            "context_schema": RunContext,
        }
        self._agents = {
            True: create_agent(**shared, middleware=[self.between, self.hub.middleware()], checkpointer=self.hub.checkpointer()),
            # The same agent without abreast, for comparison, with LangGraph's own saver.
            False: create_agent(**shared, middleware=[self.between], checkpointer=without),
        }

    # -- conversations -------------------------------------------------------------------------------------------

    def ask(self, conversation: Conversation, question: str) -> Asked:
        """Puts a question and runs the agent to its answer. Raises ThreadBusyError while another run holds the
        conversation."""
        requests = Requests()
        graph, context = self._agents[conversation.in_step], conversation.context
        if conversation.in_step:
            result = self.hub.blocking.run(
                graph, question, thread=conversation.thread, context=context, config={"callbacks": [requests]}
            )
            kept = result.state["messages"]
            return Asked(result.answer, _beside(requests.last, kept), _calls(kept), result.reason)
        state = graph.invoke(
            {"messages": [HumanMessage(question)]},
            {"configurable": {"thread_id": conversation.thread}, "callbacks": [requests]},
            context=context,
        )
        kept = state["messages"]
        return Asked(kept[-1].text, _beside(requests.last, kept), _calls(kept))

    def held(self) -> dict[str, float]:
        """Conversations that a run holds just now, and for how many seconds at most, should that run have died."""
        found = {}
        for conversation in filter(lambda one: one.in_step, CONVERSATIONS.values()):
            try:
                with self.hub.lease(conversation.thread):
                    pass
            except ThreadBusyError as busy:
                found[busy.thread] = busy.seconds
            except AbreastError:
                break  # what is wrong with the database is said to whoever asks
        return found

    def said(self, conversation: Conversation) -> list[tuple[str, str]]:
        """Who said what so far, from the conversation's checkpoint: `user` or `assistant`, and the text."""
        messages = self._state(conversation).get("messages", [])
        spoken = {"human": "user", "ai": "assistant"}
        return [(spoken[m.type], m.text) for m in messages if m.type in spoken and m.text]

    def mark_size(self, conversation: Conversation) -> int:
        """Bytes of JSON that abreast keeps in the conversation's checkpoint: which run was told, from where to where."""
        return len(json.dumps(self._state(conversation).get("abreast_told") or {}))

    def _state(self, conversation: Conversation) -> Mapping[str, Any]:
        graph = self._agents[conversation.in_step]
        return graph.get_state({"configurable": {"thread_id": conversation.thread}}).values

    # -- the product ---------------------------------------------------------------------------------------------

    def plan(self, workspace: str) -> Plan | None:
        """The plan as the screen reads it."""
        with Session(self.engine) as session:
            return session.scalars(sa.select(Plan).where(Plan.workspace_id == workspace)).first()

    def items(self, conversation: Conversation) -> Sequence[Row]:
        """The checklist as this conversation's person may read it."""
        return self.hub.blocking.rows(ChecklistItem, conversation.workspace, limit=200, context=conversation.context).rows

    def edit_plan(self, workspace: str, field: str, value: Any, by: str) -> bool:
        """The screen's write path: the ORM, and who did it. False if there is no plan."""
        with Session(self.engine) as session, self.hub.attribute(session, actor=user(by)):
            plan = session.scalars(sa.select(Plan).where(Plan.workspace_id == workspace)).first()
            if plan is None:
                return False
            setattr(plan, field, value)
            session.commit()
            return True

    def edit_item(self, workspace: str, number: int, done: bool, by: str) -> bool:
        """Ticks an item, or opens it again. False if the workspace has no such item."""
        with Session(self.engine) as session, self.hub.attribute(session, actor=user(by)):
            items = sa.select(ChecklistItem).join(Plan, Plan.id == ChecklistItem.plan_id)
            item = session.scalars(items.where(Plan.workspace_id == workspace, ChecklistItem.id == number)).first()
            if item is None:
                return False
            item.done = done
            session.commit()
            return True

    def elsewhere(self, statement: str) -> subprocess.CompletedProcess[str]:
        """Runs one statement in another process, with nothing but sqlite3. Raises TimeoutExpired after ten seconds."""
        command = [sys.executable, "-X", "utf8", elsewhere.__file__, str(models.database_file(self.directory)), statement]
        return subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=10, check=False)

    # -- where everybody stands ----------------------------------------------------------------------------------

    def standings(self) -> list[Standing]:
        """Every conversation's place, workspace by workspace, the furthest behind first."""
        workspaces = dict.fromkeys(one.workspace for one in CONVERSATIONS.values())
        return [standing for workspace in workspaces for standing in self.hub.blocking.standings(workspace)]

    def changes(self, conversation: Conversation, number: int) -> list[ChangeEvent]:
        """The newest changes that this conversation's person may hear of."""
        return self.hub.blocking.history(conversation.workspace, context=conversation.context, limit=number)

    def plan_changes(self, conversation: Conversation) -> list[ChangeEvent]:
        """Changes of the plan, oldest first."""
        newest = self.hub.blocking.history(
            conversation.workspace, context=conversation.context, entity_type=Plan.__tablename__, limit=100
        )
        return newest[::-1]

    def close(self) -> None:
        """Closes the hub and the engine."""
        self.hub.blocking.close()
        self.engine.dispose()


@contextmanager
def open_assistant(directory: Path, language: str, model: BaseChatModel) -> Iterator[Assistant]:
    """The assistant over a directory's database and checkpoint files, closed at the end."""
    with SqliteSaver.from_conn_string(str(directory / "without.db")) as without:
        assistant = Assistant(directory, language, model, without)
        try:
            yield assistant
        finally:
            assistant.close()


def _calls(messages: Sequence[BaseMessage]) -> list[ToolCall]:
    """The tool calls since the last question, with their answers."""
    begin = max((index for index, message in enumerate(messages) if isinstance(message, HumanMessage)), default=0)
    answers = {m.tool_call_id: m for m in messages[begin:] if isinstance(m, ToolMessage)}
    made = [call for message in messages[begin:] if isinstance(message, AIMessage) for call in message.tool_calls]
    return [
        ToolCall(call["name"], call["args"], answers[call["id"]].text, answers[call["id"]].status == "error")
        for call in made
        if call["id"] in answers
    ]


def _beside(request: Sequence[BaseMessage], kept: Sequence[BaseMessage]) -> str:
    """The last message of a request, if it is in no message of the conversation; of a tool's answer what stands behind it."""
    if not request or request[-1].text in {message.text for message in kept}:
        return ""
    answered = (m.text for m in kept if isinstance(m, ToolMessage) and m.text and request[-1].text.startswith(m.text))
    return request[-1].text.removeprefix(next(answered, "")).strip()
