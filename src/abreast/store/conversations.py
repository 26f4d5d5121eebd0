"""Threads and messages: what people see of conversations. Who may see them is part of every statement (G26)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from abreast.records import Basis, Message, Thread, ToolUse
from abreast.store.schema import DialectName, own
from abreast.store.statement import Statement
from abreast.store.terms import locked, moment, now

OPEN = "('queued', 'running', 'awaiting_approval')"

MAY_READ = "t.tenant = :tenant and (t.user_id = :user or :granted = 1)"
"""Whose threads these are; `granted` is 1 for who has a role over others' in the same tenant."""

_MESSAGE = ("message", "role", "parent", "run", "status", "body")


def workspace_tenant_statement(dialect: DialectName, schema: str, *, workspace: str) -> Statement:
    """Whose a workspace is: one row with a tenant or null (public, or nobody said), none where it is unknown."""
    return Statement(
        f"select tenant from {own(dialect, 'workspace', schema)} where workspace = :workspace", {"workspace": workspace}
    )


def insert_thread_statement(
    dialect: DialectName, schema: str, *, thread: str, tenant: str, user: str, workspace: str, agent: str, title: str
) -> Statement:
    """A new thread; one that is there already stays as it is."""
    return Statement(
        f"insert into {own(dialect, 'thread', schema)} (thread, tenant, user_id, workspace, agent, title) "
        "values (:thread, :tenant, :user, :workspace, :agent, :title) on conflict do nothing",
        {"thread": thread, "tenant": tenant, "user": user, "workspace": workspace, "agent": agent, "title": title},
    )


def _thread_columns(dialect: DialectName, schema: str) -> str:
    run = own(dialect, "run", schema)
    going = f"from {run} r where r.thread = t.thread and r.status in {OPEN} order by r.status = 'queued', r.number limit 1"
    return (
        f"t.thread, t.tenant, t.user_id, t.workspace, t.agent, t.title, t.leaf, t.memory, {moment(dialect, 't.created_at')}, "
        f"{moment(dialect, 't.last_message_at')}, (select r.run {going}), (select r.status {going}), t.events"
    )


def thread_statement(dialect: DialectName, schema: str, *, thread: str, access: Mapping[str, Any]) -> Statement:
    """One thread, for who may see it."""
    return Statement(
        f"select {_thread_columns(dialect, schema)} from {own(dialect, 'thread', schema)} t "
        f"where t.thread = :thread and {MAY_READ}",
        {"thread": thread, **access},
    )


def lock_thread_statement(dialect: DialectName, schema: str, *, thread: str) -> Statement:
    """One thread, whoever's it is, locked: what orders the messages, events and runs of a thread. Leaf and checkpoint stand
    behind its other columns."""
    return Statement(
        f"select {_thread_columns(dialect, schema)}, t.checkpoint from {own(dialect, 'thread', schema)} t "
        f"where t.thread = :thread{locked(dialect, 't')}",
        {"thread": thread},
    )


def threads_statement(
    dialect: DialectName, schema: str, *, access: Mapping[str, Any], after: str | None, limit: int
) -> Statement:
    """Threads, newest first, behind one of them; whose they are alone (a role lists nobody else's)."""
    place = own(dialect, "thread", schema)
    behind = f"and (t.created_at, t.thread) < (select created_at, thread from {place} where thread = :after) " if after else ""
    return Statement(
        f"select {_thread_columns(dialect, schema)} from {place} t where t.tenant = :tenant and t.user_id = :user {behind}"
        f"order by t.created_at desc, t.thread desc limit :limit",
        {"tenant": access["tenant"], "user": access["user"], "limit": limit, **({"after": after} if after else {})},
    )


def read_thread(row: Sequence[Any]) -> Thread:
    """A thread of these columns."""
    thread, tenant, user, workspace, agent, title, leaf, memory, created, last, run, status, events = row[:13]
    going = None if status is None else "awaiting_approval" if status == "awaiting_approval" else "busy"
    return Thread(
        thread,
        tenant,
        user,
        workspace,
        agent,
        title,
        going or "idle",  # type: ignore[arg-type]
        run,
        leaf,
        None if memory is None else json.loads(memory),
        created,
        last,
        events,
    )


def title_statement(dialect: DialectName, schema: str, *, thread: str, title: str) -> Statement:
    """Names a thread that has no name."""
    return Statement(
        f"update {own(dialect, 'thread', schema)} set title = :title where thread = :thread and title = ''",
        {"thread": thread, "title": title},
    )


def move_thread_statement(
    dialect: DialectName,
    schema: str,
    *,
    thread: str,
    leaf: str | None = None,
    only_from: str | None = None,
    checkpoint: str | None = None,
    memory: str | None = None,
    spoken: bool = False,
) -> Statement:
    """Moves a thread on: the end of its branch (`only_from` where it ends), where the engine stands, what it remembers."""
    sets, parameters = [], {"thread": thread}
    if leaf is not None:
        sets.append("leaf = case when leaf = :only_from then :leaf else leaf end" if only_from else "leaf = :leaf")
        parameters["leaf"] = leaf
        if only_from:
            parameters["only_from"] = only_from
    if checkpoint is not None:
        sets.append("checkpoint = :checkpoint")
        parameters["checkpoint"] = checkpoint
    if memory is not None:
        sets.append("memory = :memory")
        parameters["memory"] = memory
    if spoken:
        sets.append(f"last_message_at = {now(dialect)}")
    return Statement(f"update {own(dialect, 'thread', schema)} set {', '.join(sets)} where thread = :thread", parameters)


# -- messages --------------------------------------------------------------------------------------------------------


def insert_message_statement(
    dialect: DialectName,
    schema: str,
    *,
    thread: str,
    message: str,
    parent: str | None,
    role: str,
    status: str,
    run: str | None,
    checkpoint: str | None,
    body: Mapping[str, Any],
) -> Statement:
    """A new message, with the next number of its thread, which must be locked."""
    place = own(dialect, "message", schema)
    return Statement(
        f"insert into {place} (thread, message, number, parent, role, status, run, checkpoint, body) "
        f"select :thread, :message, coalesce(max(number), 0) + 1, :parent, :role, :status, :run, :checkpoint, :body "
        f"from {place} where thread = :thread",
        {
            "thread": thread,
            "message": message,
            "parent": parent,
            "role": role,
            "status": status,
            "run": run,
            "checkpoint": checkpoint,
            "body": json.dumps(body),
        },
    )


def message_statement(dialect: DialectName, schema: str, *, thread: str, message: str) -> Statement:
    """One message of a thread, with its checkpoint behind it."""
    return Statement(
        f"select {_columns(dialect, 'm')}, m.checkpoint from {own(dialect, 'message', schema)} m "
        f"where m.thread = :thread and m.message = :message",
        {"thread": thread, "message": message},
    )


def keep_checkpoint_statement(
    dialect: DialectName, schema: str, *, thread: str, message: str, checkpoint: str | None
) -> Statement:
    """Where the engine stood after a question that got no answer."""
    return Statement(
        f"update {own(dialect, 'message', schema)} set checkpoint = :checkpoint where thread = :thread and message = :message",
        {"thread": thread, "message": message, "checkpoint": checkpoint},
    )


def follow_statement(dialect: DialectName, schema: str, *, thread: str, question: str, answer: str) -> Statement:
    """Questions that wait behind this one stand behind its answer."""
    message, run = own(dialect, "message", schema), own(dialect, "run", schema)
    return Statement(
        f"update {message} set parent = :answer where thread = :thread and parent = :question and run in "
        f"(select run from {run} where thread = :thread and status = 'queued' and checkpoint is null)",
        {"thread": thread, "question": question, "answer": answer},
    )


def _branch(message: str) -> str:
    """The messages of the branch that ends with `:leaf`, and how far above it each stands. By place on the branch, not by
    time: a question that waited was stored before the answer that it now follows."""
    return (
        f"with recursive branch(message, parent, above) as ("
        f"select message, parent, 0 from {message} where thread = :thread and message = :leaf union all "
        f"select m.message, m.parent, branch.above + 1 from {message} m join branch on m.message = branch.parent "
        f"where m.thread = :thread) "
    )


def remembered_statement(dialect: DialectName, schema: str, *, thread: str, leaf: str) -> Statement:
    """The bodies of a branch that may hold a working memory, newest first."""
    message = own(dialect, "message", schema)
    return Statement(
        f"{_branch(message)}select m.body from branch join {message} m on m.thread = :thread and m.message = branch.message "
        f"where m.role = 'assistant' and m.body like :wanted order by branch.above limit 50",
        {"thread": thread, "leaf": leaf, "wanted": '%"memory": %'},
    )


def branch_statement(dialect: DialectName, schema: str, *, thread: str, leaf: str, after: str | None, limit: int) -> Statement:
    """The messages of a branch, oldest first, behind one of them. Each with the ids that share its parent."""
    message = own(dialect, "message", schema)
    joined = "string_agg(s.message, ' ' order by s.number)" if dialect == "postgresql" else "group_concat(s.message, ' ')"
    return Statement(
        f"{_branch(message)}select {_columns(dialect, 'm')}, (select {joined} from {message} s where s.thread = :thread "
        f"and s.parent {_same(dialect)} m.parent and s.role = m.role) "
        f"from branch join {message} m on m.thread = :thread and m.message = branch.message "
        f"where branch.above < coalesce((select above from branch where message = :after), 1000000000) "
        f"order by branch.above desc limit :limit",
        {"thread": thread, "leaf": leaf, "after": after, "limit": limit},
    )


def _same(dialect: DialectName) -> str:
    return "is not distinct from" if dialect == "postgresql" else "is"


def _columns(dialect: DialectName, alias: str) -> str:
    return ", ".join(f"{alias}.{column}" for column in _MESSAGE) + f", {moment(dialect, f'{alias}.created_at')}"


def read_message(row: Sequence[Any], thread: str, siblings: str | None = None) -> Message:
    """A message of these columns."""
    message, role, parent, run, status, body, created = row[:7]
    told = json.loads(body)
    basis = told.get("basis")
    others = tuple(one for one in (siblings or "").split() if one != message)
    return Message(
        message,
        thread,
        role,
        told["content"],
        parent,
        run,
        status,
        tuple(told.get("citations", ())),
        tuple(ToolUse(**tool) for tool in told.get("tools", ())),
        None if basis is None else Basis(basis["revisions"], _pairs(basis.get("entities"))),
        told.get("memory"),
        others,
        created_at=created,
    )


def _pairs(found: Sequence[Sequence[str]] | None) -> tuple[tuple[str, str], ...] | None:
    return None if found is None else tuple((kind, wanted) for kind, wanted in found)
