"""Conversations: threads and messages as people see them, and the one check of who may see them (G25, G26)."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from abreast.access import Operation, read, snapshot, write
from abreast.core.basis import Marking
from abreast.core.sync import check_id
from abreast.errors import AbsentError, InputError, NotAllowedError, ThreadBusyError
from abreast.records import APPROVER, OPERATOR, Caller, Event, Listing, Message, Thread
from abreast.store import conversations, runs
from abreast.store.schema import DialectName
from abreast.store.statement import Flow

LONGEST = 100_000
"""Characters of one message of a person."""

_TITLE = 200
_PAGE = 200


def new_id(prefix: str, key: str | None = None) -> str:
    """An id that nobody can guess: of `key`, always the same one; else a new one, in the order of time."""
    if key is not None:
        return f"{prefix}_{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    return f"{prefix}_{int(time.time() * 1000):012x}{secrets.token_hex(10)}"


def access_of(caller: Caller) -> Mapping[str, Any]:
    """What every statement about a thread asks of who asks. Raises InputError where the caller names nobody."""
    if not caller.tenant or not caller.user:
        raise InputError("A caller has a tenant and a user.")
    granted = bool(caller.roles & {APPROVER, OPERATOR})
    return {"tenant": caller.tenant, "user": caller.user, "granted": int(granted)}


@dataclass(frozen=True)
class Conversations:
    """The threads and messages of one hub's database."""

    dialect: DialectName
    schema: str
    verify: Callable[[], Operation[None]]

    # -- threads -------------------------------------------------------------------------------------------------

    def create(self, thread: Thread) -> Operation[Thread]:
        """Stores a new thread. One that was made with the same id by the same person is returned as it is. Raises
        AbsentError where the workspace is another tenant's."""
        _check_title(thread.title)
        check_id(thread.workspace)
        yield from self.verify()
        access = access_of(Caller(thread.tenant, thread.user))

        def flow() -> Flow[Thread]:
            owner = yield conversations.workspace_tenant_statement(self.dialect, self.schema, workspace=thread.workspace)
            if owner and owner[0][0] not in (None, thread.tenant):
                raise AbsentError()
            yield conversations.insert_thread_statement(
                self.dialect,
                self.schema,
                thread=thread.id,
                tenant=thread.tenant,
                user=thread.user,
                workspace=thread.workspace,
                agent=thread.agent,
                title=thread.title,
            )
            found = yield from self.find(thread.id, access)
            if (found.workspace, found.agent) != (thread.workspace, thread.agent):
                raise InputError("This name of a request stands for another conversation. A new one needs a new one.")
            return found

        return (yield from write(flow))

    def may_use(self, tenant: str, workspace: str) -> Operation[None]:
        """Raises AbsentError where the workspace is another tenant's."""
        check_id(workspace)
        yield from self.verify()

        def flow() -> Flow[None]:
            owner = yield conversations.workspace_tenant_statement(self.dialect, self.schema, workspace=workspace)
            if owner and owner[0][0] not in (None, tenant):
                raise AbsentError()

        yield from read(flow)

    def find(self, thread: str, access: Mapping[str, Any]) -> Flow[Thread]:
        """The thread, for who may see it. Raises AbsentError: for everybody else it is not there."""
        rows = yield conversations.thread_statement(self.dialect, self.schema, thread=known_id(thread), access=access)
        if not rows:
            raise AbsentError()
        return conversations.read_thread(rows[0])

    def own(self, thread: str, caller: Caller) -> Flow[Thread]:
        """The thread, for its own person. Raises AbsentError, and NotAllowedError for who may only look."""
        found = yield from self.find(thread, access_of(caller))
        if found.user != caller.user:
            raise NotAllowedError("This is somebody else's conversation: you may read it, not speak in it.")
        return found

    def thread(self, caller: Caller, thread: str) -> Operation[Thread]:
        yield from self.verify()
        return (yield from read(lambda: self.find(thread, access_of(caller))))

    def threads(self, caller: Caller, after: str | None, limit: int) -> Operation[Listing]:
        """The caller's own threads, newest first."""
        yield from self.verify()
        access, number = access_of(caller), page(limit)

        def flow() -> Flow[Listing]:
            if after is not None:
                yield from self.find(after, access)
            rows = yield conversations.threads_statement(self.dialect, self.schema, access=access, after=after, limit=number + 1)
            found = [conversations.read_thread(row) for row in rows]
            return listing(found, number, lambda one: one.id)

        return (yield from snapshot(flow))

    # -- messages ------------------------------------------------------------------------------------------------

    def messages(
        self, caller: Caller, thread: str, after: str | None, limit: int, leaf: str | None, marking: Marking | None
    ) -> Operation[Listing]:
        """A page of the shown branch, or of the one that ends with `leaf`, oldest first, each answer marked as far as what
        it rests on has changed."""
        yield from self.verify()
        number = page(limit)

        def flow() -> Flow[Listing]:
            found = yield from self.find(thread, access_of(caller))
            end = leaf if leaf is not None else found.leaf
            if leaf is not None:
                yield from self.must_have(found.id, leaf)
            if after is not None:
                yield from self.must_have(found.id, after)
            if end is None:
                return Listing((), None)
            rows = yield conversations.branch_statement(
                self.dialect, self.schema, thread=found.id, leaf=end, after=after, limit=number + 1
            )
            read_rows = [conversations.read_message(row, found.id, row[7]) for row in rows]
            one_page = listing(read_rows, number, lambda one: one.id)
            if marking is None:
                return one_page
            return Listing((yield from marking.marked(one_page.items)), one_page.next)

        return (yield from snapshot(flow))

    def message(self, caller: Caller, thread: str, message: str, marking: Marking | None) -> Operation[Message]:
        """One message."""
        yield from self.verify()

        def flow() -> Flow[Message]:
            found = yield from self.find(thread, access_of(caller))
            one, _ = yield from self.must_have(found.id, message)
            row = (
                yield conversations.branch_statement(
                    self.dialect, self.schema, thread=found.id, leaf=one.id, after=one.parent, limit=1
                )
            )[0]
            whole = conversations.read_message(row, found.id, row[7])
            if marking is None:
                return whole
            return (yield from marking.marked([whole]))[0]

        return (yield from snapshot(flow))

    def select(self, caller: Caller, thread: str, message: str) -> Operation[Thread]:
        """Shows the branch that ends with a message; what is said next goes on from there."""
        yield from self.verify()

        def flow() -> Flow[Thread]:
            found = yield from self.own(thread, caller)
            yield conversations.lock_thread_statement(self.dialect, self.schema, thread=found.id)
            yield from self.must_have(found.id, message)
            if going := (yield runs.open_statement(self.dialect, self.schema, thread=found.id)):
                raise ThreadBusyError(
                    "A run is going on in this conversation, or waits for a decision. Wait for its end, or cancel it.",
                    thread=found.id,
                    run=runs.read_run(going[0]).id,
                    seconds=0.0,
                )
            memory = yield from self.remembered(found.id, message)
            yield conversations.move_thread_statement(self.dialect, self.schema, thread=found.id, leaf=message, memory=memory)
            told = {"id": found.id, "title": found.title, "last_message_at": found.last_message_at, "leaf": message}
            event = Event("conversation.updated", {"thread": found.id, "conversation": told})
            for statement in runs.append_statements(self.dialect, self.schema, found.id, [event]):
                yield statement
            return (yield from self.find(thread, access_of(caller)))

        return (yield from write(flow))

    def remembered(self, thread: str, message: str | None) -> Flow[str]:
        """The working memory that is in force behind a message, as JSON: what the nearest turn of its branch left."""
        if message is None:
            return "null"
        rows = yield conversations.remembered_statement(self.dialect, self.schema, thread=thread, leaf=message)
        kept = (json.loads(body).get("memory") for (body,) in rows)
        return json.dumps(next((one for one in kept if one is not None), None))

    def must_have(self, thread: str, message: str) -> Flow[tuple[Message, str | None]]:
        """A message of a thread and the checkpoint it stands at. Raises AbsentError."""
        rows = yield conversations.message_statement(self.dialect, self.schema, thread=thread, message=known_id(message))
        if not rows:
            raise AbsentError()
        return conversations.read_message(rows[0], thread), rows[0][7]


def known_id(given: str) -> str:
    """An id that somebody names. What cannot be one is as absent as one that is not there."""
    if not isinstance(given, str) or not 0 < len(given) <= 200 or "\0" in given or not given.isascii():
        raise AbsentError()
    return given


def check_text(text: str) -> str:
    """What a person says. Raises InputError where it is nothing, or too long."""
    if not isinstance(text, str) or not text.strip():
        raise InputError("A message has a text.")
    if len(text) > LONGEST:
        raise InputError(f"A message has at most {LONGEST} characters; this one has {len(text)}.")
    return text


def _check_title(title: str) -> None:
    if len(title) > _TITLE or "\0" in title:
        raise InputError(f"A title has at most {_TITLE} characters, and no NUL among them.")


def page(limit: int) -> int:
    """The number of things on a page. Raises InputError."""
    if not 1 <= limit <= _PAGE:
        raise InputError(f"limit is 1 to {_PAGE}, not {limit}.")
    return limit


def listing(found: list[Any], number: int, key: Callable[[Any], str]) -> Listing:
    """A page of what was read, one more than fits, and where the next begins."""
    shown = tuple(found[:number])
    return Listing(shown, key(shown[-1]) if len(found) > number else None)
