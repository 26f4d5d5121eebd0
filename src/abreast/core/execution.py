"""Execution: who has which run, and how its attempts pause, end, and are taken up again (G24, G25)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from abreast.access import Operation, read, snapshot, write
from abreast.core.conversations import new_id
from abreast.core.lease import must_hold
from abreast.core.runs import ROOT, Runs
from abreast.errors import ConfigurationError, LeaseLostError
from abreast.records import Event, Message, Run, Thread
from abreast.store import conversations, leases, runs
from abreast.store.statement import Flow, Statement
from abreast.types import Lease


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that this process executes. `begin` is the checkpoint where its branch stands, None where that is the newest.

    `resumed`: it was begun before, so that its question may stand in the engine already. `events` were stored with that,
    and `lease` was taken, where the thread was free.
    """

    run: Run
    thread: Thread
    question: Message
    holder: str
    begin: str | None
    resumed: bool
    events: Sequence[Event] = ()
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended: the run's status, the answer as it is stored, the cursors' moves, and what else is written.
    `preview` is the id under which the answer's text was shown as it was written."""

    status: str
    answer: Mapping[str, Any] | None = None
    stopped: bool = False
    error: Mapping[str, Any] | None = None
    checkpoint: str | None = None
    memory: str | None = None
    moves: Sequence[Statement] = ()
    told: Mapping[str, Sequence[int]] | None = None
    events: Sequence[Event] = ()
    preview: str | None = None


@dataclass(frozen=True)
class Execution:
    """The runs of one hub's database, for the processes that execute them. `leased`: their threads are held by leases."""

    runs: Runs
    leased: bool = True

    def claim(self, skip: Collection[str], others: Collection[str] = ()) -> Operation[Claimed | None]:
        """Takes the oldest run whose turn it is, but none of these threads, and none of these agents, whom another service
        has; None where there is none."""
        yield from self.runs.verify()

        def flow() -> Flow[Claimed | None]:
            # Their threads are locked, and nobody waits for that: whoever locks a run has locked its thread before.
            for known in (yield from self._waiting(skip, others, locked=True)):
                if (claimed := (yield from self.take(known))) is not None:
                    return claimed
            return None

        # Most looks find nothing, and a look is cheaper than a transaction.
        if not (yield from read(lambda: self._waiting(skip, others, locked=False))):
            return None
        return (yield from write(flow))

    def take(self, known: Run) -> Flow[Claimed | None]:
        """Claims a run whose turn it is, inside a transaction, and takes its thread where that is free: None where another
        process was faster."""
        holder = f"{known.id}:{secrets.token_hex(6)}"
        taken = yield runs.claim_statement(self.runs.dialect, self.runs.schema, thread=known.thread, run=known.id, holder=holder)
        if not taken:
            return None
        claimed = yield from self._claimed(known, holder)
        return replace(claimed, lease=(yield from self._lease(claimed))) if self.leased else claimed

    def _lease(self, claimed: Claimed) -> Flow[Lease | None]:
        """The thread's lease; None where it is not free at once: then whoever begins the run waits for it, or is refused."""
        thread, holder = claimed.thread.id, claimed.holder
        if self.runs.dialect == "postgresql" and not (yield leases.free_statement(thread))[0][0]:
            return None
        rows = yield leases.acquire_statement(
            self.runs.dialect, self.runs.schema, thread=thread, run=holder, seconds=self.runs.seconds
        )
        return Lease(thread, rows[0][0], holder) if rows else None

    def _release(self, claimed: Claimed) -> Flow[None]:
        """Gives back a lease that was taken with the run, whose attempt ended before it held its thread."""
        if claimed.lease is not None:
            yield leases.release_statement(self.runs.dialect, self.runs.schema, thread=claimed.thread.id, run=claimed.holder)

    def _waiting(self, skip: Collection[str], others: Collection[str], *, locked: bool) -> Flow[list[Run]]:
        rows = yield runs.candidates_statement(
            self.runs.dialect, self.runs.schema, limit=2 + len(skip), locked=locked, but=others
        )
        return [known for known in map(runs.read_run, rows) if known.thread not in skip]

    def _claimed(self, known: Run, holder: str) -> Flow[Claimed]:
        row = yield from self.runs.lock(known.thread)
        newest = row[13]
        if known.message is None:
            raise ConfigurationError(f"The run {known.id} has no message.")
        question, _ = yield from self.runs.conversations.must_have(known.thread, known.message)
        begin = None
        above = question.parent
        while newest is not None:
            if above is None:
                begin = ROOT
                break
            one, checkpoint = yield from self.runs.conversations.must_have(known.thread, above)
            if checkpoint is not None:
                begin = None if checkpoint == newest else checkpoint
                break
            above = one.parent
        resumed = known.started_at is not None
        event = self.runs.event("run.started", known.thread, known.id, attempt=max(known.attempts, 1), resumed=resumed)
        events = yield from self.runs.tell(known.thread, event)
        running = replace(known, status="running", attempts=max(known.attempts, 1))
        return Claimed(running, conversations.read_thread(row), question, holder, begin, resumed, events)

    def put_back(self, claimed: Claimed, *, again: bool = False, events: Sequence[Event] = ()) -> Operation[list[Event]]:
        """Gives a run back to whoever claims it next. `again`: what went wrong may pass; it counts as a beginning. Returns
        the events as they are stored."""

        def flow() -> Flow[list[Event]]:
            yield from self.runs.lock(claimed.thread.id)
            if not (yield self._held(claimed)):
                return []
            yield self.runs.put(claimed.run, "queued", again=again)
            yield from self._release(claimed)
            return (yield from self.runs.tell(claimed.thread.id, *events))

        return (yield from write(flow))

    def lives(self, holders: Sequence[str]) -> Operation[None]:
        """These attempts are going on: what a lease's heartbeat says, where there are no leases."""
        if holders and not self.leased:

            def flow() -> Flow[None]:
                yield runs.lives_statement(self.runs.dialect, self.runs.schema, holders=holders)

            yield from write(flow)

    def wanted(self, holders: Sequence[str]) -> Operation[dict[str, str]]:
        """How somebody wants these attempts to end."""

        def flow() -> Flow[dict[str, str]]:
            rows = yield runs.wanted_statement(self.runs.dialect, self.runs.schema, holders=holders)
            return {holder: wanted for holder, wanted in rows}

        return (yield from read(flow))

    def append(self, claimed: Claimed, events: Sequence[Event]) -> Operation[list[Event]]:
        """Durable events of a run that is going on. Returns them with their ids; none where another process has the run: what
        one that stood still has left to say is not told any more."""
        # One statement is a transaction of its own on PostgreSQL, and costs a quarter of one that is begun and ended.
        alone = read if self.runs.dialect == "postgresql" else write
        return (yield from alone(lambda: self.runs.tell(claimed.thread.id, *events, holder=claimed.holder)))

    def begins(self, claimed: Claimed, more: Callable[[], Flow[None]] | None) -> Operation[None]:
        """Right before the engine begins, under the lease: raises LeaseLostError unless this attempt still has the run.
        `more` happens in the same transaction."""

        def looks() -> Flow[None]:
            ((*_, holder, _, _),) = yield self.runs.found(claimed.thread.id, claimed.run.id)
            if holder != claimed.holder:
                raise LeaseLostError(thread=claimed.thread.id)

        def flow() -> Flow[None]:
            yield from self._must_have(claimed, None)
            assert more is not None
            yield from more()

        yield from (read(looks) if more is None else write(flow))

    def park(self, claimed: Claimed, ended: Ended, lease: Lease | None, more: Callable[[], Flow[None]]) -> Operation[list[Event]]:
        """The end of an attempt that waits for people. `more` stores what else they are asked. The run goes on at once where
        all has been decided meanwhile. Returns the events as they are stored. Raises LeaseLostError."""

        def flow() -> Flow[list[Event]]:
            yield from self._must_have(claimed, lease)
            if lease is None:
                yield from self._release(claimed)
            told = yield from self.runs.tell(claimed.thread.id, *ended.events)
            yield from more()
            waits = yield from self.runs.pending.open_ids(claimed.thread.id, claimed.run.id)
            status = "awaiting_approval" if waits else "queued"
            wanted = (yield self._held(claimed))[0][0]
            if wanted is not None:
                return told + (yield from self.runs.cancelled(claimed.run))
            yield self.runs.put(claimed.run, status)
            yield from self._stand(claimed, ended.checkpoint)
            if waits:
                done = self.runs.event("done", claimed.thread.id, claimed.run.id, status=status, approvals=waits)
                told += yield from self.runs.tell(claimed.thread.id, done)
            return told

        return (yield from write(flow))

    def finish(self, claimed: Claimed, ended: Ended, lease: Lease | None) -> Operation[list[Event]]:
        """The end of a run: answer, cursors, status and the last events, in one transaction under its lease. Returns the
        events as they are stored. Raises LeaseLostError, and then nothing of it is written."""
        thread, run = claimed.thread.id, claimed.run

        def flow() -> Flow[list[Event]]:
            yield from self._must_have(claimed, lease)
            if lease is None:
                yield from self._release(claimed)
            for statement in ended.moves:
                yield statement
            yield from self.runs.pending.withdraw(thread, run.id)
            events = list(ended.events)
            answer = None
            if ended.answer is not None:
                answer = new_id("m", f"answer\0{run.id}")
                yield conversations.insert_message_statement(
                    self.runs.dialect,
                    self.runs.schema,
                    thread=thread,
                    message=answer,
                    parent=claimed.question.id,
                    role="assistant",
                    status="stopped" if ended.stopped else "complete",
                    run=run.id,
                    checkpoint=ended.checkpoint,
                    body=ended.answer,
                )
                follow = {"thread": thread, "question": claimed.question.id, "answer": answer}
                yield conversations.follow_statement(self.runs.dialect, self.runs.schema, **follow)
                yield conversations.move_thread_statement(
                    self.runs.dialect, self.runs.schema, thread=thread, leaf=answer, only_from=claimed.question.id, spoken=True
                )
            yield from self._stand(claimed, ended.checkpoint)
            if ended.memory is not None:
                yield conversations.move_thread_statement(self.runs.dialect, self.runs.schema, thread=thread, memory=ended.memory)
            yield self.runs.put(run, ended.status, answer=answer, error=ended.error, told=ended.told)
            if answer is not None:
                row = (yield conversations.message_statement(self.runs.dialect, self.runs.schema, thread=thread, message=answer))[
                    0
                ]
                shown = as_json(conversations.read_message(row, thread))
                events.append(self.runs.event("assistant.completed", thread, run.id, message=shown, preview=ended.preview))
                kept = conversations.read_thread((yield from self.runs.lock(thread)))
                told = {"id": thread, "title": kept.title, "last_message_at": kept.last_message_at, "leaf": kept.leaf}
                events.append(self.runs.event("conversation.updated", thread, run.id, conversation=told))
            if ended.error is not None:
                events.append(self.runs.event("error", thread, run.id, **ended.error))
            events.append(self.runs.event("done", thread, run.id, status=ended.status))
            return (yield from self.runs.tell(thread, *events))

        return (yield from write(flow))

    def recover(self) -> Operation[list[Run]]:
        """Takes up the runs whose process is gone: those that wait for people wait, others get another beginning, a bounded
        number of times. Returns them as they stand now."""
        yield from self.runs.verify()

        def left() -> Flow[list[tuple[str, str]]]:
            rows = yield runs.abandoned_statement(self.runs.dialect, self.runs.schema, seconds=self.runs.seconds)
            return [(thread, run) for thread, run, _, _ in rows]

        found = []
        for thread, run in (yield from read(left)):
            taken = yield from write(partial(self._taken_up, thread, run))
            if taken is not None:
                found.append(taken)
        return found

    def _taken_up(self, thread: str, run: str) -> Flow[Run | None]:
        """Takes up one run; None where its process, or somebody else, was faster."""
        yield from self.runs.lock(thread)
        rows = yield runs.abandoned_statement(self.runs.dialect, self.runs.schema, seconds=self.runs.seconds, thread=thread)
        if not rows or rows[0][1] != run:
            return None
        _, _, attempts, wanted = rows[0]
        known = runs.read_run((yield self.runs.found(thread, run))[0])
        if wanted is not None:
            yield from self.runs.cancelled(known)
        elif waits := (yield from self.runs.pending.open_ids(thread, run)):
            yield self.runs.put(known, "awaiting_approval")
            event = self.runs.event("done", thread, run, status="awaiting_approval", approvals=waits)
            yield from self.runs.tell(thread, event)
        elif attempts < self.runs.attempts:
            yield self.runs.put(known, "queued", again=True)
        else:
            error = {"code": "gave_up", "message": f"The run was begun {attempts} times and its process died each time."}
            yield from self.runs.pending.withdraw(thread, run)
            yield self.runs.put(known, "failed", error=error)
            yield from self.runs.tell(
                thread,
                self.runs.event("error", thread, run, **error),
                self.runs.event("done", thread, run, status="failed"),
            )
        return runs.read_run((yield self.runs.found(thread, run))[0])

    def tools(self, thread: str, run: str) -> Operation[list[Event]]:
        """The events of a run that are about its tools."""

        def flow() -> Flow[list[Event]]:
            return runs.read_events(
                (yield runs.tool_events_statement(self.runs.dialect, self.runs.schema, thread=thread, run=run))
            )

        return (yield from read(flow))

    def before(self, thread: str, message: str, limit: int) -> Operation[Sequence[Message]]:
        """The newest messages of the branch that ends with this one, oldest first."""

        def flow() -> Flow[Sequence[Message]]:
            found: list[Message] = []
            above: str | None = message
            while above is not None and len(found) < limit:
                one, _ = yield from self.runs.conversations.must_have(thread, above)
                found.append(one)
                above = one.parent
            return found[::-1]

        return (yield from snapshot(flow))

    def _must_have(self, claimed: Claimed, lease: Lease | None) -> Flow[None]:
        yield from self.runs.lock(claimed.thread.id)
        if lease is not None:
            yield from must_hold(self.runs.dialect, self.runs.schema, lease)
        if not (yield self._held(claimed)):
            raise LeaseLostError(thread=claimed.thread.id)

    def _stand(self, claimed: Claimed, checkpoint: str | None) -> Flow[None]:
        """Where the engine stands now: the thread, and the question, whose answer may never come."""
        if checkpoint is None:
            return
        thread = claimed.thread.id
        yield conversations.move_thread_statement(self.runs.dialect, self.runs.schema, thread=thread, checkpoint=checkpoint)
        yield conversations.keep_checkpoint_statement(
            self.runs.dialect, self.runs.schema, thread=thread, message=claimed.question.id, checkpoint=checkpoint
        )

    def _held(self, claimed: Claimed) -> Statement:
        run, holder = claimed.run, claimed.holder
        return runs.held_statement(self.runs.dialect, self.runs.schema, thread=run.thread, run=run.id, holder=holder)


def as_json(message: Message) -> dict[str, Any]:
    """A message as JSON, for the event that announces it."""
    basis = message.basis
    return {
        "id": message.id,
        "role": message.role,
        "content": message.content,
        "parent": message.parent,
        "status": message.status,
        "citations": [dict(one) for one in message.citations],
        "tools": [
            {
                "id": t.id,
                "name": t.name,
                "status": t.status,
                "arguments": t.arguments,
                "result": t.result,
                "edited": t.edited,
                "approval": t.approval,
            }
            for t in message.tools
        ],
        "basis": None if basis is None else {"revisions": dict(basis.revisions), "entities": basis.entities},
        "memory": message.memory,
        "created_at": message.created_at,
    }
