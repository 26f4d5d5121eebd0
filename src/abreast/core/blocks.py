"""Blocks: `with` and `async with` around a governed transaction."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import sqlalchemy as sa

from abreast.core import nesting
from abreast.core.transaction import Transaction
from abreast.errors import ConfigurationError
from abreast.store.change import Change
from abreast.types import Row, Version

T = TypeVar("T")
ModelT = TypeVar("ModelT")


class AsyncTransaction:
    """The same transaction behind `async with`. What asks the database is awaited, and runs in a thread of its own.

    Attributes of the objects are set as usual. One that is not loaded cannot be loaded by touching it: read it inside
    `run`, which takes a plain function of the `Transaction`: `await tx.run(lambda tx: tx.session.scalars(...).all())`.
    """

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        # One thread each: of a shared pool, those that wait for a lock could take what its holder needs to go on.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="abreast-hold")
        self._ident: int | None = None

    @property
    def workspace(self) -> str:
        """See `Transaction`."""
        return self._inner.workspace

    @property
    def repeated(self) -> bool:
        """See `Transaction`."""
        return self._inner.repeated

    @property
    def outcome(self) -> Any:
        """See `Transaction`."""
        return self._inner.outcome

    @property
    def revision(self) -> int | None:
        """See `Transaction`."""
        return self._inner.revision

    @property
    def mutation(self) -> str | None:
        """See `Transaction`."""
        return self._inner.mutation

    async def get(self, model: type[ModelT], id: Any, /, *, version: Version | None = None) -> ModelT:
        """See `Transaction.get`."""
        return await self._do(partial(self._inner.get, model, id, version=version))

    def add(self, *objects: Any) -> None:
        """See `Transaction.add`."""
        self._inner.add(*objects)

    async def delete(self, object: Any) -> None:
        """See `Transaction.delete`."""
        await self._do(partial(self._inner.delete, object))

    async def apply(self, *changes: Change) -> tuple[Row | None, ...]:
        """See `Transaction.apply`."""
        return await self._do(partial(self._inner.apply, *changes))

    async def lock(self, model: Any, id: Any, /) -> int:
        """See `Transaction.lock`."""
        return await self._do(partial(self._inner.lock, model, id))

    async def version(self, model: Any, id: Any, /) -> int:
        """See `Transaction.version`."""
        return await self._do(partial(self._inner.version, model, id))

    async def is_current(self, model: Any, id: Any, version: Version, /) -> bool:
        """See `Transaction.is_current`."""
        return await self._do(partial(self._inner.is_current, model, id, version))

    async def run(self, function: Callable[[Transaction], T], /) -> T:
        """What a plain function of the transaction returns; it may use the session and load what it likes."""
        return await self._do(partial(function, self._inner))

    def returns(self, value: T) -> T:
        """See `Transaction.returns`."""
        return self._inner.returns(value)

    async def begin(self) -> None:
        """Opens the transaction."""
        try:
            await self._do(self._begin)
        except BaseException as error:
            # Who is cancelled while it begins may leave it begun, and holding what others wait for.
            self._thread.submit(self._inner.end, error)
            self._thread.shutdown(wait=False)
            raise

    async def end(self, error: BaseException | None) -> None:
        """Commits or rolls back, to its end even where the task is cancelled meanwhile."""
        try:
            await self._do(partial(self._inner.end, error))
        finally:
            self._thread.shutdown(wait=False)

    def _begin(self) -> None:
        self._ident = threading.get_ident()
        self._inner.begin()
        held = self._inner._held
        if held is not None:
            sa.event.listen(held.connection, "before_cursor_execute", self._only_here)

    def _only_here(self, *_: Any) -> None:
        if threading.get_ident() != self._ident:
            raise ConfigurationError(
                "This would block the event loop: an attribute that is not loaded, or a statement. Do it in `await tx.run(...)`."
            )

    async def _do(self, call: Callable[[], T]) -> T:
        context = contextvars.copy_context()
        future = asyncio.get_running_loop().run_in_executor(self._thread, context.run, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not future.done():
                await asyncio.wait([future])  # the connection is not ours to close while a thread uses it
            raise


class Writes:
    """`with` and `async with`: one governed transaction."""

    def __init__(self, make: Callable[[], Transaction]) -> None:
        self._make = make
        self._open: list[tuple[Transaction | AsyncTransaction, nesting.Block]] = []

    def __enter__(self) -> Transaction:
        made = self._make()
        nesting.check(made._writing)
        made.begin()
        self._open.append((made, nesting.begin(made._writing)))
        return made

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        opened, block = self._open.pop()
        assert isinstance(opened, Transaction)
        try:
            opened.end(error)
        finally:
            block.end()

    async def __aenter__(self) -> AsyncTransaction:
        inner = self._make()
        nesting.check(inner._writing)
        made = AsyncTransaction(inner)
        await made.begin()
        self._open.append((made, nesting.begin(inner._writing, made._ident)))
        return made

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        opened, block = self._open.pop()
        assert isinstance(opened, AsyncTransaction)
        try:
            await opened.end(error)
        finally:
            block.end()
