"""Attribution of the writes in a session of the application: who and why travel in its own transaction."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from abreast.errors import ConfigurationError
from abreast.store.attribution import clear_statement, set_statement
from abreast.store.schema import DialectName
from abreast.store.statement import Statement
from abreast.types import Attribution

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

_KEY = "abreast_attribution"


class Attribute:
    """`with` and `async with`: what the session or connection writes inside the block carries this attribution.

    It holds for every transaction that begins inside the block, and ends with the block. Blocks may be nested; the
    inner one counts. Nothing is committed or rolled back here.
    """

    def __init__(
        self, target: Session | AsyncSession | sa.Connection | AsyncConnection, attribution: Attribution, dialect: DialectName
    ) -> None:
        # Asynchronous sessions and connections are recognised by what they wrap: importing their module needs greenlet.
        outer: Any = target
        self._asynchronous = hasattr(outer, "sync_session") or hasattr(outer, "sync_connection")
        inner = getattr(outer, "sync_session", None) or (outer.sync_connection if hasattr(outer, "sync_connection") else outer)
        if inner is None:
            raise ConfigurationError("This connection is not open yet: enter it before attribute().")
        if not isinstance(inner, Session | sa.Connection):
            raise ConfigurationError(f"attribute() takes a session or connection of SQLAlchemy, not {type(target).__name__}.")
        self._outer, self._target = outer, inner
        self._attribution, self._dialect = attribution, dialect

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(failed=error is not None)

    async def __aenter__(self) -> None:
        if self._asynchronous:
            await self._outer.run_sync(lambda _: self._begin())
        else:
            self._begin()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._asynchronous:
            await self._outer.run_sync(lambda _: self._end(failed=error is not None))
        else:
            self._end(failed=error is not None)

    # -- what both doors do --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        stack: list[Attribution] = self._target.info.setdefault(_KEY, [])
        if isinstance(self._target, Session):
            self._target.flush()  # what was pending belongs to the attribution before
            event.listen(self._target, "after_begin", self._after_begin)
            event.listen(self._target, "before_commit", self._before_commit)
        stack.append(self._attribution)
        if self._target.in_transaction():
            self._apply(self._attribution)
        elif not isinstance(self._target, Session):
            stack.pop()
            raise ConfigurationError("attribute() on a connection needs its transaction: begin() it first.")

    def _end(self, *, failed: bool) -> None:
        stack: list[Attribution] = self._target.info[_KEY]
        usable = self._target.in_transaction() and not (isinstance(self._target, Session) and not self._target.is_active)
        try:
            if usable and isinstance(self._target, Session) and not failed:
                self._target.flush()
        finally:
            stack.pop()
            if isinstance(self._target, Session):
                event.remove(self._target, "after_begin", self._after_begin)
                event.remove(self._target, "before_commit", self._before_commit)
        if usable:
            try:
                self._apply(stack[-1] if stack else None)
            except sa.exc.DBAPIError:
                if not failed:  # a transaction that an error has already ended forgets who wrote by itself
                    raise

    def _after_begin(self, session: Session, transaction: Any, connection: sa.Connection) -> None:
        if session.info[_KEY][-1] is self._attribution:
            _run(connection, set_statement(self._dialect, self._attribution))

    def _before_commit(self, session: Session) -> None:
        # SQLite keeps the attribution in a row: committed, it would speak for whoever writes next.
        if self._dialect == "sqlite" and not session.in_nested_transaction() and session.info[_KEY][-1] is self._attribution:
            session.flush()
            _run(session.connection(), clear_statement(self._dialect))

    def _apply(self, attribution: Attribution | None) -> None:
        connection = self._target.connection() if isinstance(self._target, Session) else self._target
        _run(connection, set_statement(self._dialect, attribution) if attribution else clear_statement(self._dialect))


def _run(connection: sa.Connection, statement: Statement) -> None:
    text = sa.text(statement.text)
    typed = [sa.bindparam(name, type_=sa.Text) for name in statement.parameters]  # asyncpg cannot guess the type of NULL
    connection.execute(text.bindparams(*typed) if typed else text, dict(statement.parameters))
