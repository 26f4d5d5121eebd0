"""Governed writes on their way to PostgreSQL: those of one workspace that come while another is under way go together.

A workspace's head is locked until its transaction is on disk, so one workspace commits once a disk flush however many
writers it has. Only several writes in one transaction get past that.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

from abreast.store.mutations import Outcome
from abreast.store.statement import Flow

GROUP = 64
"""Writes in one transaction."""

FEW = 8
"""So many and fewer always go together."""

PATIENCE = 0.05
"""Seconds that the writes behind wait for one that is under way: it may be waiting for a row that somebody has locked."""


@dataclass(eq=False)
class Job:
    """One governed write. `flow` does it statement by statement and returns the outcome's text; `call` is the same as JSON
    for the database's own function, and `find_locks` gives the rows that it will lock there, by entity type and id.
    `single` is the entity type of its only change, if it has no more."""

    workspace: str
    mutation: str | None
    flow: Callable[[], Flow[str]]
    schema: str = ""
    call: str = ""
    find_locks: Callable[[], Mapping[tuple[str, str], Any]] = dict
    single: str | None = None

    @cached_property
    def locks(self) -> Mapping[tuple[str, str], Any]:
        """The rows that it will lock."""
        return self.find_locks()


Settled = Outcome | BaseException | None
"""What came of a job that went with others. None: it is to be done alone, by whoever waits for it. One that waits for a
locked row then holds up nobody else."""

TicketT = TypeVar("TicketT", bound="asyncio.Future[Any] | _Ticket")


@dataclass(eq=False)
class Line(Generic[TicketT]):
    """The jobs of one workspace that wait, and whose turn it is."""

    waiting: deque[tuple[Job, TicketT]] = field(default_factory=deque)
    turn: object | None = None

    before: int = 0
    """How many went together last time."""

    timer: asyncio.TimerHandle | None = None
    """Ends the patience of those that wait. There is none while nobody does: it costs as much as a tenth of a call."""

    def take(self) -> list[tuple[Job, TicketT]]:
        """The next jobs that may go together, without those that nobody waits for any more. Two of one mutation never
        go together: the second must find what the first has stored.

        Of many writers about half go, so that these are written while the others read their answers and ask anew.
        """
        group: list[tuple[Job, TicketT]] = []
        seen = set()
        most = min(GROUP, max(FEW, (len(self.waiting) + self.before + 1) // 2))
        while self.waiting and len(group) < most:
            job, ticket = self.waiting[0]
            if job.mutation is not None and job.mutation in seen:
                break
            self.waiting.popleft()
            if not ticket.cancelled():
                seen.add(job.mutation)
                group.append((job, ticket))
        self.before = len(group)
        return group


def settle(group: Sequence[tuple[Job, Any]], outcomes: Sequence[Settled]) -> None:
    """Answers each job alone."""
    for (_, ticket), outcome in zip(group, outcomes, strict=True):
        if ticket.done():
            continue
        if isinstance(outcome, BaseException):
            ticket.set_exception(outcome)
        else:
            ticket.set_result(outcome)


def _known(outcomes: list[Settled]) -> Callable[[], list[Settled]]:
    return lambda: outcomes


class AsyncLines:
    """The asynchronous door, for one event loop. `alone` does one job, `together` several of one workspace; what came of
    these is read when it is asked for: the next are sent before that."""

    def __init__(
        self, alone: Callable[[Job], Awaitable[Outcome]], together: Callable[[list[Job]], Awaitable[Callable[[], list[Settled]]]]
    ) -> None:
        self._alone, self._run = alone, together
        self._lines: dict[str, Line[asyncio.Future[Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, job: Job) -> Outcome:
        """Does the job, alone or with others, and returns or raises what came of it."""
        line = self._lines.setdefault(job.workspace, Line())
        loop = asyncio.get_running_loop()
        if line.turn is not None:
            ticket: asyncio.Future[Any] = loop.create_future()
            line.waiting.append((job, ticket))
            self._watch(job.workspace, line)
            _ = job.locks  # found now, while others are under way, not when it is this one's turn
            outcome: Outcome | None = await ticket
            return outcome if outcome is not None else await self._alone(job)
        turn = line.turn = object()
        try:
            return await self._alone(job)
        finally:
            self._pass_on(job.workspace, line, turn)

    def _watch(self, workspace: str, line: Line[asyncio.Future[Any]]) -> None:
        """Lets the jobs that wait have their turn after a while, whatever becomes of those under way."""
        if line.timer is None and line.waiting:
            line.timer = asyncio.get_running_loop().call_later(PATIENCE, self._pass_on, workspace, line, line.turn)

    def _pass_on(self, workspace: str, line: Line[asyncio.Future[Any]], turn: object) -> None:
        """The turn of the next group, if `turn` is still the one that counts."""
        if line.turn is not turn:
            return
        line.turn = None
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        if not line.waiting:
            if self._lines.get(workspace) is line:
                del self._lines[workspace]
            return
        line.turn = object()
        task = asyncio.get_running_loop().create_task(self._together(workspace, line, line.turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _together(self, workspace: str, line: Line[asyncio.Future[Any]], turn: object) -> None:
        group = line.take()
        self._watch(workspace, line)
        try:
            jobs = [job for job, _ in group]
            read = await self._run(jobs) if len(jobs) > 1 else _known([await self._alone(job) for job in jobs])
            if len(line.waiting) >= FEW:  # the database does these while those read their answers
                self._pass_on(workspace, line, turn)
            settle(group, read())
        except Exception as error:
            settle(group, [error] * len(group))
        except BaseException as error:
            settle(group, [error] * len(group))
            raise
        finally:
            if len(line.waiting) < FEW:  # whoever was answered may have its next write ready
                await asyncio.sleep(0)
            self._pass_on(workspace, line, turn)


class ThreadLines:
    """The synchronous door: the thread whose turn it is does the jobs of those that wait, then passes the turn on."""

    def __init__(self, alone: Callable[[Job], Outcome], together: Callable[[list[Job]], list[Settled]]) -> None:
        self._alone, self._run = alone, together
        self._lock = threading.Lock()
        self._lines: dict[str, Line[_Ticket]] = {}

    def submit(self, job: Job) -> Outcome:
        """Does the job, alone or with others, and returns or raises what came of it."""
        ticket = _Ticket()
        with self._lock:
            line = self._lines.setdefault(job.workspace, Line())
            line.waiting.append((job, ticket))
            if line.turn is None:
                self._give_turn(line, ticket)
        while not ticket.settled:
            if ticket.group is not None:
                self._lead(job.workspace, line, ticket)
            elif not ticket.event.wait(PATIENCE):
                with self._lock:  # who is ahead seems to be stuck
                    if any(waiting is ticket for _, waiting in line.waiting):
                        self._give_turn(line, ticket)
        (outcome,) = ticket.settled
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome if outcome is not None else self._alone(job)

    def _give_turn(self, line: Line[_Ticket], ticket: _Ticket) -> None:
        ticket.group = line.take()
        line.turn = ticket.group
        ticket.event.set()

    def _lead(self, workspace: str, line: Line[_Ticket], ticket: _Ticket) -> None:
        group, ticket.group = ticket.group or [], None
        ticket.event.clear()
        try:
            jobs = [job for job, _ in group]
            outcomes: Sequence[Settled] = self._run(jobs) if len(jobs) > 1 else [self._alone(job) for job in jobs]
            settle(group, outcomes)
        except Exception as error:
            settle(group, [error] * len(group))
        except BaseException as error:
            settle(group, [error] * len(group))
            raise
        finally:
            with self._lock:
                if line.turn is group:
                    line.turn = None
                    if line.waiting:
                        self._give_turn(line, line.waiting[0][1])
                    elif self._lines.get(workspace) is line:
                        del self._lines[workspace]


class _Ticket:
    """What a thread waits with: its answer, or the group that it is to lead."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.settled: tuple[Settled] | None = None
        self.group: list[tuple[Job, Any]] | None = None

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return self.settled is not None

    def set_result(self, outcome: Outcome | None) -> None:
        self.settled = (outcome,)
        self.event.set()

    def set_exception(self, error: BaseException) -> None:
        self.settled = (error,)
        self.event.set()
