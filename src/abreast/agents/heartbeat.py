"""A run's hold on its thread: the lease is taken, kept alive and given back. The same in both doors."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from abreast.access import Access, aperform, perform
from abreast.agents.scope import TOKEN, RunScope, current, is_fenced
from abreast.core.lease import Leases
from abreast.errors import LeaseLostError, UnavailableError
from abreast.telemetry import log
from abreast.types import Lease

_BEATS = 3
"""Heartbeats in the life of a lease: two may be lost before another run can take the thread."""

HOLD = "hold:"
"""What the name of a hold begins with, where a run's would stand."""

_MISSED = "a heartbeat could not be written; it is tried again"


class Heartbeat:
    """Holds threads for the runs of one hub.

    A saver of the hub is told of each lease before the run begins, so that it refuses whoever held the thread before.
    `optional`: a run may go on without a lease where the database does not answer, unless its saver needs one.
    """

    def __init__(self, access: Access, leases: Leases, *, optional: bool = False) -> None:
        self._access, self._leases, self._optional = access, leases, optional

    @contextmanager
    def held(self, thread: str, run: str, savers: Sequence[Any]) -> Iterator[Lease | None]:
        """The thread, for as long as the block runs. Raises ThreadBusyError at the start, and LeaseLostError at the end if
        another run took it meanwhile."""
        lease = None
        try:
            lease = perform(self._access, self._leases.acquire(thread, run))
        except UnavailableError:
            if not self._may_go_on_without(savers):
                raise
        if lease is None:
            yield None
            return
        held: Lease = lease
        done, lost = threading.Event(), threading.Event()

        def beat() -> None:
            while not done.wait(self._leases.seconds / _BEATS):
                try:
                    perform(self._access, self._leases.extend(held))
                except LeaseLostError:
                    lost.set()
                    return
                except Exception:  # a server that is read-only for a moment is no reason to stop the heart
                    log.warning(_MISSED, exc_info=True)

        heart = threading.Thread(target=beat, name="abreast-heart", daemon=True)
        try:
            while (known := max([saver.announce(held) for saver in filter(is_fenced, savers)], default=0)) > held.token:
                held = perform(self._access, self._leases.lift(held, known))
            heart.start()
            yield held
        except Exception as error:
            # What failed in a run that had lost its thread failed because of that, or does not matter any more.
            if lost.is_set() and not isinstance(error, LeaseLostError):
                raise LeaseLostError(thread=thread) from error
            raise
        else:
            if lost.is_set():
                raise LeaseLostError(thread=thread)
        finally:
            done.set()
            if heart.ident is not None:
                heart.join()
            perform(self._access, self._leases.release(held))

    @asynccontextmanager
    async def aheld(
        self, thread: str, run: str, savers: Sequence[Any], taken: Lease | None = None
    ) -> AsyncIterator[Lease | None]:
        """`held`, for a coroutine: a run that loses its thread is cancelled at once. `taken` is a lease that it has already."""
        lease = taken
        try:
            if lease is None:
                lease = await aperform(self._access, self._leases.acquire(thread, run))
        except UnavailableError:
            if not self._may_go_on_without(savers):
                raise
        except asyncio.CancelledError:
            # What was asked for may be granted yet, after nobody wants it any more.
            await asyncio.shield(asyncio.ensure_future(aperform(self._access, self._leases.abandon(thread, run))))
            raise
        if lease is None:
            yield None
            return
        held: Lease = lease
        owner = asyncio.current_task()
        lost = False

        async def beat() -> None:
            nonlocal lost
            while True:
                await asyncio.sleep(self._leases.seconds / _BEATS)
                try:
                    await aperform(self._access, self._leases.extend(held))
                except LeaseLostError:
                    lost = True
                    if owner is not None:
                        owner.cancel()
                    return
                except Exception:
                    log.warning(_MISSED, exc_info=True)

        heart: asyncio.Task[None] | None = None
        try:
            while (known := max([await saver.aannounce(held) for saver in filter(is_fenced, savers)], default=0)) > held.token:
                held = await aperform(self._access, self._leases.lift(held, known))
            heart = asyncio.create_task(beat())
            yield held
        except BaseException as error:
            if lost and not isinstance(error, LeaseLostError):
                _uncancel(owner)
                raise LeaseLostError(thread=thread) from error
            raise
        else:
            if lost:
                _uncancel(owner)
                raise LeaseLostError(thread=thread)
        finally:
            # A task of its own: whoever cancels a run once may do so again and again (anyio does, at every await), and its
            # thread is given back all the same, since who cancelled it may well ask again at once.
            ending = asyncio.ensure_future(self._end(heart, held))
            with suppress(asyncio.CancelledError) if lost else nullcontext():
                await asyncio.shield(ending)

    async def _end(self, heart: asyncio.Task[None] | None, lease: Lease) -> None:
        if heart is not None:
            heart.cancel()
            await asyncio.wait([heart])
        await aperform(self._access, self._leases.release(lease))

    @property
    def owner(self) -> Access:
        """The access of the hub whose threads these are."""
        return self._access

    def confirm(self, lease: Lease) -> None:
        """Raises LeaseLostError if the lease is not held any more."""
        perform(self._access, self._leases.extend(lease))

    async def aconfirm(self, lease: Lease) -> None:
        """See `confirm`."""
        await aperform(self._access, self._leases.extend(lease))

    def _may_go_on_without(self, savers: Sequence[Any]) -> bool:
        if not self._optional or any(map(is_fenced, savers)):
            return False
        log.warning("a conversation's lease could not be taken; its run goes on without one")
        return True


@dataclass(frozen=True)
class HeldThread:
    """A thread that is held outside a run: its lease, for `hub.apply` and `hub.write`, and a config for the graph's own
    methods (`agent.update_state(held.config, …)`), which the hub's saver refuses without it."""

    lease: Lease
    config: dict[str, Any]


class Holds:
    """`with` and `async with`: a thread, held. A run for the same thread inside the block is part of it."""

    def __init__(self, heartbeat: Heartbeat, thread: str, savers: Sequence[Any]) -> None:
        self._heartbeat, self._thread, self._savers = heartbeat, thread, savers
        self._stacks: list[ExitStack | AsyncExitStack] = []

    def __enter__(self) -> HeldThread:
        with ExitStack() as stack:
            run = _name()
            lease = stack.enter_context(self._heartbeat.held(self._thread, run, self._savers))
            if lease is None:
                raise UnavailableError("The lease could not be taken: the database does not answer. Try again.")
            stack.push(self._still(lease))
            stack.enter_context(_scoped(RunScope(run, self._thread, frozenset(), lease, self._heartbeat.owner)))
            self._stacks.append(stack.pop_all())
        return HeldThread(lease, {"configurable": with_token({"thread_id": self._thread}, lease)})

    def __exit__(self, *error: Any) -> None:
        stack = self._stacks.pop()
        assert isinstance(stack, ExitStack)
        stack.__exit__(*error)

    async def __aenter__(self) -> HeldThread:
        async with AsyncExitStack() as stack:
            run = _name()
            lease = await stack.enter_async_context(self._heartbeat.aheld(self._thread, run, self._savers))
            if lease is None:
                raise UnavailableError("The lease could not be taken: the database does not answer. Try again.")
            stack.push_async_exit(self._astill(lease))
            stack.enter_context(_scoped(RunScope(run, self._thread, frozenset(), lease, self._heartbeat.owner)))
            self._stacks.append(stack.pop_all())
        return HeldThread(lease, {"configurable": with_token({"thread_id": self._thread}, lease)})

    async def __aexit__(self, *error: Any) -> None:
        stack = self._stacks.pop()
        assert isinstance(stack, AsyncExitStack)
        await stack.__aexit__(*error)

    def _still(self, lease: Lease) -> Callable[..., None]:
        """At the end of a block that raised nothing: raises LeaseLostError if another run took the thread meanwhile."""

        def exit(kind: Any, *_: Any) -> None:
            if kind is None:
                self._heartbeat.confirm(lease)

        return exit

    def _astill(self, lease: Lease) -> Callable[..., Awaitable[None]]:
        async def exit(kind: Any, *_: Any) -> None:
            if kind is None:
                await self._heartbeat.aconfirm(lease)

        return exit


def with_token(configurable: Mapping[str, Any], lease: Lease | None) -> dict[str, Any]:
    """A graph's `configurable` with the right to write checkpoints of this thread."""
    return {**configurable, TOKEN: (lease.thread, lease.token)} if lease is not None else dict(configurable)


@contextmanager
def _scoped(scope: RunScope) -> Iterator[None]:
    token = current.set(scope)
    try:
        yield
    finally:
        scope.ended = True
        with suppress(ValueError):  # left in another context than it was entered in, as a web framework's dependency may be
            current.reset(token)


def _name() -> str:
    return HOLD + secrets.token_hex(8)


def _uncancel(task: asyncio.Task[Any] | None) -> None:
    """Takes back the cancellation by which the heartbeat ended the run: what is raised instead says why."""
    if task is not None:
        task.uncancel()
