"""The product's assistant: the hub over its database, and the same agent with and without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from sqlalchemy.orm import Session

from abreast import Abreast, ChangeEvent, Row, RunContext, Standing, user, via

from . import elsewhere, loaders, models, policy
from .models import ChecklistItem, Contact, Plan
from .offline import OfflineModel

PROMPT = (
    "You help a household with its move. Answer briefly, in the language of the question. "
    "Go by what you are shown; look up with the tools what you are not shown. Never guess."
)
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
class Asked:
    """What came of a question: the answer, what the last model request held beside the conversation, and why the
    conversation kept its place, if it did."""

    answer: str
    block: str
    reason: str | None = None


def open_hub(directory: Path, language: str) -> Abreast:
    """The hub over the product's database: what is tracked, what CURRENT holds, who may read what."""
    hub = Abreast(f"sqlite:///{models.database_file(directory)}")
    hub.track(
        Plan,
        workspace="workspace_id",
        record={"status", "move_in_date", "budget", "old_address", "new_address"},
        redact=policy.REDACTED,
        labels=LABELS[language],
        readable=policy.read_plan,
    )
    hub.track(ChecklistItem, workspace=via("plan_id", Plan), record="all")
    hub.track(Contact, workspace=via("plan_id", Plan), record={"name", "role"}, readable=policy.read_contacts)
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


class Assistant:
    """The assistant of one directory: the product's rows, the checkpoints of its conversations, and the agents."""

    def __init__(self, directory: Path, language: str, model: BaseChatModel, saver: SqliteSaver) -> None:
        self.directory = directory
        self.engine = models.open_engine(directory)
        self.hub = open_hub(directory, language)
        shared: dict[str, Any] = {
            "model": model,
            "tools": self.hub.tools(),
            "system_prompt": PROMPT,
            "context_schema": RunContext,
            "checkpointer": saver,
        }
        self._agents = {
            True: create_agent(**shared, middleware=[self.hub.middleware()]),
            False: create_agent(**shared),  # the same agent without abreast, for comparison
        }

    # -- conversations -------------------------------------------------------------------------------------------

    def ask(self, conversation: Conversation, question: str) -> Asked:
        """Puts a question and runs the agent to its answer."""
        requests = Requests()
        agent, context = self._agents[conversation.in_step], conversation.context
        if conversation.in_step:
            result = self.hub.blocking.run(
                agent, question, thread=conversation.thread, context=context, config={"callbacks": [requests]}
            )
            return Asked(result.answer, _beside(requests.last, result.state["messages"]), result.reason)
        state = agent.invoke(
            {"messages": [HumanMessage(question)]},
            {"configurable": {"thread_id": conversation.thread}, "callbacks": [requests]},
            context=context,
        )
        return Asked(state["messages"][-1].text, _beside(requests.last, state["messages"]))

    def said(self, conversation: Conversation) -> list[tuple[str, str]]:
        """Who said what so far, from the conversation's checkpoint: `user` or `assistant`, and the text."""
        messages = self._state(conversation).get("messages", [])
        spoken = {"human": "user", "ai": "assistant"}
        return [(spoken[m.type], m.text) for m in messages if m.type in spoken and m.text]

    def mark_size(self, conversation: Conversation) -> int:
        """Bytes of JSON that abreast keeps in the conversation's checkpoint: which run was told, from where to where."""
        return len(json.dumps(self._state(conversation).get("abreast_told") or {}))

    def _state(self, conversation: Conversation) -> Mapping[str, Any]:
        agent = self._agents[conversation.in_step]
        return agent.get_state({"configurable": {"thread_id": conversation.thread}}).values

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

    def close(self) -> None:
        """Closes the hub and the engine."""
        self.hub.blocking.close()
        self.engine.dispose()


@contextmanager
def open_assistant(directory: Path, language: str, model: BaseChatModel) -> Iterator[Assistant]:
    """The assistant over a directory's database and checkpoint file, closed at the end."""
    with SqliteSaver.from_conn_string(str(directory / "checkpoints.db")) as saver:
        assistant = Assistant(directory, language, model, saver)
        try:
            yield assistant
        finally:
            assistant.close()


def _beside(request: Sequence[BaseMessage], kept: Sequence[BaseMessage]) -> str:
    """What stood in the last message of a request and is in no message of the conversation."""
    if not request:
        return ""
    spoken = {message.text for message in kept}
    last = request[-1]
    if last.text in spoken:
        return ""
    parts = [part if isinstance(part, str) else part.get("text", "") for part in last.content]
    texts = [last.content] if isinstance(last.content, str) else parts
    return "\n".join(text.strip() for text in texts if text not in spoken)
