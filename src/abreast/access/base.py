"""What every database access can do. A flow goes in, its result comes out; async is a door beside the same door."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session

from abreast.access.batching import Job
from abreast.access.holding import Held
from abreast.store.mutations import Outcome
from abreast.store.schema import DialectName
from abreast.store.statement import Flow, InSession, Query, Rows, Statement, escaped

T = TypeVar("T")
Work = Callable[[], Flow[T]]
"""Makes the flow anew: a transient failure runs it again from the start."""


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of work of an operation, and how much of a transaction it needs."""

    kind: Literal["read", "snapshot", "write", "govern", "lead"]
    work: Any
    """What makes the flow; of a governed write the job."""


Operation = Generator[Step, Any, T]
"""Several steps and what is decided between them, written once; `perform` and `aperform` are its two doors."""


def read(work: Work[T]) -> Operation[T]:
    """One statement, its own snapshot."""
    answer: T = yield Step("read", work)
    return answer


def snapshot(work: Work[T]) -> Operation[T]:
    """Several statements, one snapshot, read only."""
    answer: T = yield Step("snapshot", work)
    return answer


def write(work: Work[T]) -> Operation[T]:
    """One transaction."""
    answer: T = yield Step("write", work)
    return answer


def lead(work: Work[None]) -> Operation[None]:
    """Statements that go before those of the next step, on the same way to the database. What they raise, that step raises."""
    yield Step("lead", work)


def govern(job: Job) -> Operation[Outcome]:
    """One governed write."""
    answer: Outcome = yield Step("govern", job)
    return answer


class Access(ABC):
    """One database. `read` and `write` come in pairs; the `a` form is the same work behind an async door.

    read: one statement, its own snapshot. snapshot: several statements, one snapshot, read only; the only place where
    a flow may ask for a Query or a session. write: one transaction, committed when the flow returns, rolled back when
    it raises. govern: one governed write, maybe in one transaction with others. All raise UnavailableError where the
    database is gone, locked or out of time.
    """

    dialect: DialectName
    url: URL
    """Where the database is, with its password; for what opens connections of its own beside this access."""

    @property
    @abstractmethod
    def sql_dialect(self) -> sa.Dialect:
        """SQLAlchemy's dialect, for the types of columns."""

    @abstractmethod
    def carried(self, value: Any) -> Any:
        """A bound value as a governed write carries it to the database."""

    @abstractmethod
    def hold(self) -> Held:
        """A connection with a transaction of its own, which the caller ends."""

    @abstractmethod
    def govern(self, job: Job) -> Outcome: ...

    @abstractmethod
    async def agovern(self, job: Job) -> Outcome: ...

    def lead(self, work: Work[None]) -> None:
        """What goes before a step, by itself: a read. `perform` puts the two together."""
        self.read(work)

    @abstractmethod
    def read(self, work: Work[T]) -> T: ...

    @abstractmethod
    def snapshot(self, work: Work[T]) -> T: ...

    @abstractmethod
    def write(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def aread(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def asnapshot(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def awrite(self, work: Work[T]) -> T: ...

    @abstractmethod
    def script(self, groups: list[list[str]]) -> None:
        """Runs statements without parameters, each group in a short transaction that waits little for locks."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    async def aclose(self) -> None: ...


def perform(access: Access, operation: Operation[T]) -> T:
    """Runs an operation in this thread."""
    doors: dict[str, Any] = {"read": access.read, "snapshot": access.snapshot, "write": access.write, "govern": access.govern}
    first: Work[None] | None = None
    try:
        step = next(operation)
        while True:
            answer = None
            try:
                if step.kind == "lead":
                    first = step.work
                else:
                    if first is not None and step.kind == "govern":
                        access.read(first)
                    work, first = _led(first, step), None
                    answer = doors[step.kind](work)
            except Exception as error:
                first = None
                step = operation.throw(error)
            else:
                step = operation.send(answer)
    except StopIteration as done:
        if first is not None:
            access.read(first)
        result: T = done.value
        return result


async def aperform(access: Access, operation: Operation[T]) -> T:
    """Runs an operation without blocking the event loop."""
    doors: dict[str, Any] = {"read": access.aread, "snapshot": access.asnapshot, "write": access.awrite, "govern": access.agovern}
    first: Work[None] | None = None
    try:
        step = next(operation)
        while True:
            answer = None
            try:
                if step.kind == "lead":
                    first = step.work
                else:
                    if first is not None and step.kind == "govern":
                        await access.aread(first)
                    work, first = _led(first, step), None
                    answer = await doors[step.kind](work)
            except Exception as error:
                first = None
                step = operation.throw(error)
            else:
                step = operation.send(answer)
    except StopIteration as done:
        if first is not None:
            await access.aread(first)
        result: T = done.value
        return result


def _led(first: Work[None] | None, step: Step) -> Any:
    """What a step does, behind what goes before it."""
    if first is None or step.kind == "govern":
        return step.work

    def both() -> Flow[Any]:
        yield from first()
        return (yield from step.work())

    return both


def drive(flow: Flow[T], execute: Callable[[Statement], Rows]) -> T:
    """Runs a flow that asks for statements only."""
    try:
        wanted = next(flow)
        while True:
            if not isinstance(wanted, Statement):
                raise TypeError("this flow needs a snapshot")
            try:
                answer = execute(wanted)
            except Exception as error:
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


def drive_on_connection(flow: Flow[T], connection: sa.Connection) -> T:
    """Runs any flow on an SQLAlchemy connection whose transaction has begun; leaves that transaction to the caller."""
    session: Session | None = None
    try:
        wanted = next(flow)
        while True:
            try:
                if isinstance(wanted, InSession):
                    if session is None:
                        session = Session(bind=connection, join_transaction_mode="rollback_only", autoflush=False)
                    answer = wanted.call(session)
                else:
                    result = connection.execute(
                        wanted.query if isinstance(wanted, Query) else sa.text(escaped(wanted.text)),
                        None if isinstance(wanted, Query) else dict(wanted.parameters),
                    )
                    answer = [tuple(row) for row in result] if result.returns_rows else []
            except Exception as error:
                wanted = flow.throw(error)
            else:
                wanted = flow.send(answer)
    except StopIteration as done:
        outcome: T = done.value
        return outcome
    finally:
        if session is not None:
            session.close()
