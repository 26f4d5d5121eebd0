"""Holding a thread: one run at a time, by a lease that the database's clock ends (G19)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from abreast.access import Operation, read, write
from abreast.core.sync import check_id
from abreast.errors import LeaseLostError, ThreadBusyError, UnavailableError
from abreast.store import leases
from abreast.store.schema import DialectName
from abreast.store.statement import Flow, Statement
from abreast.types import Holder, Lease


@dataclass(frozen=True)
class Leases:
    """The leases of one hub's database. `seconds` is how long one lasts without a heartbeat."""

    dialect: DialectName
    schema: str
    seconds: float
    verify: Callable[[], Operation[None]]
    _left: dict[str, str] = field(default_factory=dict)
    """Runs that have ended and could not give their lease back, by thread: the database was away."""

    def acquire(self, thread: str, run: str) -> Operation[Lease]:
        """Takes the thread for a run. Raises ThreadBusyError while another run holds it."""
        check_id(thread)
        yield from self.verify()

        def flow() -> Flow[Lease]:
            while True:
                try:
                    rows = yield leases.acquire_statement(
                        self.dialect, self.schema, thread=thread, run=run, seconds=self.seconds, left=self._left.get(thread)
                    )
                except Exception as error:
                    if leases.is_timeout(error):  # an expired run's write is still open: it may yet be committed
                        raise open_write_error(thread) from error
                    raise
                if rows:
                    return Lease(thread, rows[0][0], run)
                ((holder, left),) = yield leases.holder_statement(self.dialect, self.schema, thread=thread)
                if holder is not None and left > 0:  # it was not given back, and has not expired, since the first statement
                    raise busy_error(thread, holder, left)

        lease = yield from write(flow)
        self._left.pop(thread, None)
        return lease

    def holder(self, thread: str) -> Operation[Holder | None]:
        """The run that holds the thread, if one does."""
        check_id(thread)
        yield from self.verify()

        def flow() -> Flow[Holder | None]:
            found = yield leases.holder_statement(self.dialect, self.schema, thread=thread)
            return Holder(thread, *found[0]) if found and found[0][0] is not None and found[0][1] > 0 else None

        return (yield from read(flow))

    def extend(self, lease: Lease) -> Operation[None]:
        """The heartbeat. Raises LeaseLostError if another run has taken the thread."""

        def flow() -> Flow[None]:
            if not (yield leases.extend_statement(self.dialect, self.schema, lease, seconds=self.seconds)):
                raise LeaseLostError(thread=lease.thread)

        yield from write(flow)

    def lift(self, lease: Lease, above: int) -> Operation[Lease]:
        """This lease with a token above one that was found elsewhere: tokens that were given out before this database was
        restored from a copy would otherwise stand above all new ones. Raises LeaseLostError if another run has it."""

        def flow() -> Flow[Lease]:
            rows = yield leases.lift_statement(self.dialect, self.schema, lease, above=above)
            if not rows:
                raise LeaseLostError(thread=lease.thread)
            return replace(lease, token=rows[0][0])

        return (yield from write(flow))

    def take_back(self, thread: str, above: int = 0) -> Operation[int | None]:
        """Takes the thread from the run that holds it, dead or alive, whose token counts for nothing from then on. Returns
        the token that does, which no run has; None where no run ever had the thread. With `above`, a token that was found
        elsewhere (see `lift`), it only raises that token, unless a run has the thread again."""
        check_id(thread)
        yield from self.verify()

        def flow() -> Flow[int | None]:
            found = yield leases.take_back_statement(self.dialect, self.schema, thread=thread, above=above)
            return found[0][0] if found else None

        return (yield from write(flow))

    def release(self, lease: Lease) -> Operation[None]:
        """Gives the thread back. A lease that was lost meanwhile stays with whoever has it. Where the database does not
        answer, the next run of this process takes it over, and those of others wait until it has expired."""
        yield from self.abandon(lease.thread, lease.run)

    def abandon(self, thread: str, run: str) -> Operation[None]:
        """`release`, for a run that does not know whether it was given the thread."""

        def flow() -> Flow[None]:
            yield leases.release_statement(self.dialect, self.schema, thread=thread, run=run)

        try:
            yield from write(flow)
        except UnavailableError:
            self._left[thread] = run


def must_hold(dialect: DialectName, schema: str, lease: Lease) -> Flow[None]:
    """Raises LeaseLostError unless this lease is held; then it is until the transaction ends."""
    if not (yield leases.hold_statement(dialect, schema, lease)):
        raise LeaseLostError(thread=lease.thread)


def under(dialect: DialectName, schema: str, lease: Lease | None, statements: Sequence[Statement]) -> Flow[None]:
    """Statements that run only while the lease is held, in one transaction. Raises LeaseLostError, and then none did."""
    if lease is not None:
        yield from must_hold(dialect, schema, lease)
    for statement in statements:
        yield statement


def open_write_error(thread: str) -> ThreadBusyError:
    """The error for a thread whose last run has died or stands still with a write that is neither made nor taken back."""
    return ThreadBusyError(
        f"A write of the last run of the conversation {thread!r} has not ended, and may yet be made. The database ends it when "
        f"it learns that the run's process is gone; ask again.",
        thread=thread,
        run=None,
        seconds=0.0,
    )


def busy_error(thread: str, run: str, seconds: float) -> ThreadBusyError:
    """The error for a thread that another run holds; it says how long at most, should that run have died."""
    return ThreadBusyError(
        f"Another run holds the conversation {thread!r}. It has the thread until it ends or, should it have died, for "
        f"{seconds:.0f} more seconds. Wait, or tell the person so.",
        thread=thread,
        run=run,
        seconds=seconds,
    )
