"""Runs: what waits, who executes it, how it pauses and ends, and what is left of it when its process dies (G24, G25, G27)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from abreast.access import Operation, read, snapshot, write
from abreast.core.conversations import Conversations, access_of, check_text, known_id, listing, new_id, page
from abreast.errors import AbsentError, InputError, NotAllowedError, ThreadBusyError
from abreast.records import KEEP, OPERATOR, Caller, Event, Listing, OnBusy, Run
from abreast.store import conversations, cursors, runs
from abreast.store.schema import DialectName
from abreast.store.statement import Flow, Statement
from abreast.types import Position

ATTEMPTS = 3
"""Beginnings of one run, in all, before it is given up."""

BRANCH = "branch"
"""What a run's checkpoint says where its question stands where it was put, and follows nothing else."""

ROOT = "root"
"""Where a branch begins that has no message before it."""

_TITLE = 80


class Pending(Protocol):
    """What runs ask of approvals."""

    def open_ids(self, thread: str, run: str | None = None) -> Flow[list[str]]: ...

    def withdraw(self, thread: str, run: str | None = None) -> Flow[Any]: ...


@dataclass(frozen=True)
class Runs:
    """The runs of one hub's database. `seconds` is how long a lease lasts without a heartbeat."""

    dialect: DialectName
    schema: str
    seconds: float
    verify: Callable[[], Operation[None]]
    conversations: Conversations
    pending: Pending
    attempts: int = ATTEMPTS

    # -- what people do ------------------------------------------------------------------------------------------

    def send(
        self,
        caller: Caller,
        thread: str,
        text: str,
        parent: Any,
        on_busy: OnBusy,
        key: str | None = None,
        then: Callable[[Run], Flow[Any]] | None = None,
    ) -> Operation[tuple[Run, list[Event], Any]]:
        """Stores a person's message and the run that will answer it, in one transaction. With a `key` that came before, the
        run that it made. Behind it stand the events as they are stored, and what came of `then`: what happens in the same
        transaction to a run whose turn it is. Raises AbsentError, NotAllowedError, InputError, and ThreadBusyError
        (`reject`)."""
        check_text(text)
        yield from self.verify()
        named = None if key is None else "\0".join((caller.tenant, caller.user, thread, key))
        message, run = (new_id(prefix, None if named is None else f"{prefix}\0{named}") for prefix in ("m", "r"))

        def flow() -> Flow[tuple[Run, list[Event], Any]]:
            found = yield from self.conversations.own(thread, caller)
            # Where the branch ends is known once nobody else can move it.
            found = conversations.read_thread((yield from self.lock(found.id)))
            if named is not None and (known := (yield self.found(found.id, run))):
                yield from self._must_say(found.id, message, text)
                return runs.read_run(known[0]), [], None
            going = [runs.read_run(row) for row in (yield self.open_of(found.id))]
            if going and on_busy == "reject":
                raise busy(found.id, going[0])
            place, branch = (yield from self._place(found.id, parent)) if parent is not KEEP else (found.leaf, None)
            if going and on_busy == "rollback" and parent is KEEP:
                place, branch = (yield from self._before(found.id, going[0])), BRANCH
            if going and on_busy in ("interrupt", "rollback"):
                for one in going:
                    yield from self._stop(one, on_busy)
            yield conversations.insert_message_statement(
                self.dialect,
                self.schema,
                thread=found.id,
                message=message,
                parent=place,
                role="user",
                status="complete",
                run=run,
                checkpoint=None,
                body={"content": text, "user": caller.user},
            )
            yield runs.insert_statement(
                self.dialect, self.schema, thread=found.id, run=run, user=caller.user, message=message, checkpoint=branch
            )
            memory = (yield from self.conversations.remembered(found.id, place)) if branch is not None else None
            yield conversations.move_thread_statement(
                self.dialect, self.schema, thread=found.id, leaf=message, memory=memory, spoken=True
            )
            title = " ".join(text.replace("\0", " ").encode(errors="replace").decode().split())[:_TITLE]
            yield conversations.title_statement(self.dialect, self.schema, thread=found.id, title=title)
            told = yield from self.tell(found.id, self.event("run.queued", found.id, run, message=message))
            made = runs.read_run((yield self.found(found.id, run))[0])
            return made, told, ((yield from then(made)) if then is not None and not going else None)

        return (yield from write(flow))

    def run(self, caller: Caller, thread: str, run: str) -> Operation[Run]:
        """One run of a thread. Raises AbsentError."""
        yield from self.verify()

        def flow() -> Flow[Run]:
            found = yield from self.conversations.find(thread, access_of(caller))
            rows = yield self.found(found.id, known_id(run))
            if not rows:
                raise AbsentError()
            return runs.read_run(rows[0])

        return (yield from snapshot(flow))

    def runs(self, caller: Caller, thread: str, after: str | None, limit: int) -> Operation[Listing]:
        """The runs of a thread, newest first."""
        yield from self.verify()
        number = page(limit)

        def flow() -> Flow[Listing]:
            found = yield from self.conversations.find(thread, access_of(caller))
            if after is not None and not (yield self.found(found.id, known_id(after))):
                raise AbsentError()
            rows = yield runs.runs_statement(self.dialect, self.schema, thread=found.id, after=after, limit=number + 1)
            return listing([runs.read_run(row) for row in rows], number, lambda one: one.id)

        return (yield from snapshot(flow))

    def cancel(self, caller: Caller, thread: str, run: str) -> Operation[Run]:
        """Ends a run: at once where it waits, as soon as its process hears of it where it is going on. One that has ended
        stays as it ended. Raises AbsentError and NotAllowedError."""
        yield from self.verify()

        def flow() -> Flow[Run]:
            found = yield from self.conversations.find(thread, access_of(caller))
            yield from self.lock(found.id)
            rows = yield self.found(found.id, known_id(run))
            if not rows:
                raise AbsentError()
            if found.user != caller.user and OPERATOR not in caller.roles:
                raise NotAllowedError("This is somebody else's conversation: only its own person and operators end its runs.")
            known = runs.read_run(rows[0])
            if not known.ended:
                yield from self._stop(known, "cancel")
            return runs.read_run((yield self.found(found.id, known.id))[0])

        return (yield from write(flow))

    def receipt(self, caller: Caller, thread: str, message: str) -> Operation[None]:
        """The reader has this answer: the conversation's places move to what it was told. Once is enough."""
        yield from self.verify()

        def flow() -> Flow[None]:
            found = yield from self.conversations.own(thread, caller)
            one, _ = yield from self.conversations.must_have(found.id, message)
            rows = (yield self.found(found.id, one.run)) if one.run is not None and one.role == "assistant" else []
            told = rows[0][14] if rows else None
            if told is None:
                return
            for workspace, (revision, check) in sorted(runs.read_told(told).items()):
                yield cursors.move_statement(
                    self.dialect,
                    self.schema,
                    workspace=workspace,
                    thread=found.id,
                    to=Position(revision, check),
                    run=one.run or "",
                )

        yield from write(flow)

    def goes_on(self, thread: str, run: str) -> Flow[bool]:
        """Behind a decision, in its transaction: a parked run that waits for nothing more goes back to the queue."""
        rows = yield self.found(thread, run)
        if not rows or rows[0][3] != "awaiting_approval" or (yield from self.pending.open_ids(thread, run)):
            return False
        yield self.put(runs.read_run(rows[0]), "queued")
        return True

    # -- the stream ----------------------------------------------------------------------------------------------

    def events(self, caller: Caller, thread: str, after: int, limit: int) -> Operation[list[Event]]:
        """The durable events behind one of them. Raises AbsentError."""
        yield from self.verify()

        def flow() -> Flow[list[Event]]:
            rows = yield runs.events_statement(
                self.dialect,
                self.schema,
                thread=known_id(thread),
                may_read=conversations.MAY_READ,
                access=access_of(caller),
                after=after,
                limit=limit,
            )
            if not rows:
                raise AbsentError()
            return runs.read_events([row for row in rows if row[0] is not None])

        return (yield from read(flow))

    def going(self, caller: Caller, thread: str) -> Operation[bool]:
        """Whether a run of the thread has not ended and does not wait for people."""

        def flow() -> Flow[bool]:
            found = yield from self.conversations.find(thread, access_of(caller))
            return any(row[3] != "awaiting_approval" for row in (yield self.open_of(found.id)))

        return (yield from read(flow))

    # -- pieces --------------------------------------------------------------------------------------------------

    def lock(self, thread: str) -> Flow[Sequence[Any]]:
        """The thread's row, locked: before any of its runs, messages and approvals, so that nobody waits in a circle."""
        rows = yield conversations.lock_thread_statement(self.dialect, self.schema, thread=thread)
        if not rows:
            raise AbsentError()
        row: Sequence[Any] = rows[0]
        return row

    def tell(self, thread: str, *events: Event, holder: str | None = None) -> Flow[list[Event]]:
        """Durable events, inside a transaction. Returns them with their ids and times; with a `holder` they are told only while
        that attempt has a run of the thread."""
        found: Sequence[Any] = ()
        for statement in runs.append_statements(self.dialect, self.schema, thread, events, holder):
            found = yield statement
        return [replace(event, id=id, at=at) for event, (id, at) in zip(events, sorted(found), strict=False)]

    @staticmethod
    def event(type: Any, thread: str, run: str, **data: Any) -> Event:
        return Event(type, {"thread": thread, "run": run, **data})

    def _stop(self, one: Run, wanted: str) -> Flow[None]:
        if one.status == "running":
            yield runs.want_statement(self.dialect, self.schema, thread=one.thread, run=one.id, wanted=wanted)
        else:
            yield from self.cancelled(one)

    def cancelled(self, one: Run) -> Flow[list[Event]]:
        yield from self.pending.withdraw(one.thread, one.id)
        yield self.put(one, "cancelled")
        return (yield from self.tell(one.thread, self.event("done", one.thread, one.id, status="cancelled")))

    def _must_say(self, thread: str, message: str, text: str) -> Flow[None]:
        """Raises InputError where a request's name comes again with something else to say, which would be lost silently."""
        rows = yield conversations.message_statement(self.dialect, self.schema, thread=thread, message=message)
        if rows and conversations.read_message(rows[0], thread).content != text:
            raise InputError("This name of a request stands for another message. A new message needs a new one.")

    def _place(self, thread: str, parent: str | None) -> Flow[tuple[str | None, str]]:
        """Where a branch begins: behind this message, or before all."""
        if parent is not None:
            yield from self.conversations.must_have(thread, parent)
        return parent, BRANCH

    def _before(self, thread: str, run: Run) -> Flow[str | None]:
        if run.message is None:
            return None
        message, _ = yield from self.conversations.must_have(thread, run.message)
        return message.parent

    def found(self, thread: str, run: str) -> Statement:
        return runs.run_statement(self.dialect, self.schema, thread=thread, run=run)

    def open_of(self, thread: str) -> Statement:
        return runs.open_statement(self.dialect, self.schema, thread=thread)

    def put(self, run: Run, status: str, **more: Any) -> Statement:
        return runs.put_statement(self.dialect, self.schema, thread=run.thread, run=run.id, status=status, **more)


def busy(thread: str, run: Run) -> ThreadBusyError:
    """The error for a conversation with a run that has not ended."""
    waits = "waits for a decision" if run.status == "awaiting_approval" else "is not finished"
    return ThreadBusyError(
        f"The run {run.id} of this conversation {waits}. Wait, cancel it, or send with on_busy enqueue, interrupt or rollback.",
        thread=thread,
        run=run.id,
        seconds=0.0,
    )
