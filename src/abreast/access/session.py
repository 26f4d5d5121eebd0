"""Attribution of the writes in a session of the application: who and why travel in its own transaction."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session

from abreast.errors import ConfigurationError, NotInstalledError
from abreast.store.attribution import clear_statement, set_statement
from abreast.store.schema import DialectName
from abreast.store.statement import Statement
from abreast.types import Attribution

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

_KEY = "abreast_attribution"
_FAILED = "25P02"  # PostgreSQL: the transaction is aborted, and nothing but its end is heard


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
        self._said = False
        self._connection: sa.Connection | None = None
        """Whether a connection's transaction has been told already."""
        self._listeners: list[tuple[str, Any]] = (
            [
                ("after_begin", self._after_begin),
                ("after_soft_rollback", self._after_soft_rollback),
                ("before_commit", self._before_commit),
            ]
            if isinstance(inner, Session)
            else [
                ("begin", self._unsaid),
                ("rollback_savepoint", self._unsaid),
                ("before_cursor_execute", self._before_cursor_execute),
                ("commit", self._connection_commits),
            ]
        )

    def __enter__(self) -> None:
        if self._asynchronous:
            raise ConfigurationError("This session is asynchronous: write `async with`.")
        self._begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(failed=error is not None)

    async def __aenter__(self) -> None:
        if self._asynchronous:
            await self._outer.run_sync(lambda _: self._begin())
        else:
            self._begin()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._asynchronous and not getattr(self._target, "closed", False):
            await self._outer.run_sync(lambda _: self._end(failed=error is not None))
        else:
            self._end(failed=error is not None)

    # -- what both doors do --------------------------------------------------------------------------------------

    @property
    def _stack(self) -> list[Attribution]:
        # A connection's `info` lives on in the pool, and with it would a stack that nobody came back to.
        kept = self._target.info if isinstance(self._target, Session) else vars(self._target)
        stack: list[Attribution] = kept.setdefault(_KEY, [])
        return stack

    @property
    def _counts(self) -> bool:
        """Whether this is the innermost block."""
        return bool(self._stack) and self._stack[-1] is self._attribution

    def _begin(self) -> None:
        if isinstance(self._target, Session):
            self._target.flush()  # what was pending belongs to the attribution before
        elif not self._target.in_transaction():
            raise ConfigurationError("attribute() on a connection needs its transaction: begin() it first.")
        self._stack.append(self._attribution)
        for name, listener in self._listeners:
            event.listen(self._target, name, listener)
        try:
            if self._target.in_transaction():
                self._apply(self._attribution)
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        self._stack.pop()
        for name, listener in self._listeners:
            event.remove(self._target, name, listener)

    def _end(self, *, failed: bool) -> None:
        usable = not getattr(self._target, "closed", False) and self._target.in_transaction()
        usable = usable and not (isinstance(self._target, Session) and not self._target.is_active)
        try:
            if usable and isinstance(self._target, Session) and not failed:
                self._target.flush()
        finally:
            self._leave()
        if usable:
            stack = self._stack
            try:
                self._apply(stack[-1] if stack else None)
            except sa.exc.DBAPIError as error:
                # A transaction that an error has already ended forgets who wrote by itself.
                if not failed and getattr(error.orig, "sqlstate", None) != _FAILED:
                    raise

    # -- a session's transactions --------------------------------------------------------------------------------

    def _after_begin(self, session: Session, transaction: Any, connection: sa.Connection) -> None:
        self._connection = connection
        if self._counts:
            _run(connection, set_statement(self._dialect, self._attribution))

    def _after_soft_rollback(self, session: Session, transaction: Any) -> None:
        # A savepoint that is rolled back takes back what was said behind it.
        # Said to the connection itself: the session is still closing the savepoint and would refuse.
        connection = self._connection
        if self._counts and transaction.nested and connection is not None and connection.in_transaction():
            _run(connection, set_statement(self._dialect, self._attribution))

    def _before_commit(self, session: Session) -> None:
        # SQLite keeps the attribution in a row: committed, it would speak for whoever writes next.
        if self._dialect == "sqlite" and self._counts and not session.in_nested_transaction():
            session.flush()
            _run(session.connection(), clear_statement(self._dialect))

    # -- a connection's transactions -----------------------------------------------------------------------------

    def _unsaid(self, *_: Any) -> None:
        self._said = False

    def _before_cursor_execute(self, connection: sa.Connection, cursor: Any, statement: str, *_: Any) -> None:
        # Behind a rollback to a savepoint, not before it: it would take this back as well.
        if self._counts and not self._said and connection.in_transaction() and not statement.startswith("ROLLBACK TO"):
            self._apply(self._attribution)

    def _connection_commits(self, connection: sa.Connection) -> None:
        if self._dialect == "sqlite" and self._counts and self._said:
            _run(connection, clear_statement(self._dialect))

    def _apply(self, attribution: Attribution | None) -> None:
        connection = self._target.connection() if isinstance(self._target, Session) else self._target
        self._connection = connection
        self._said = True  # first: what is executed now is executed for this
        _run(connection, set_statement(self._dialect, attribution) if attribution else clear_statement(self._dialect))


def _run(connection: sa.Connection, statement: Statement) -> None:
    level = connection.get_execution_options().get("isolation_level")
    if (level or getattr(connection.dialect, "_on_connect_isolation_level", None)) == "AUTOCOMMIT":
        raise ConfigurationError(
            "This connection is in AUTOCOMMIT: it has no transaction that could carry who and why. Change its isolation level."
        )
    text = sa.text(statement.text)
    typed = [sa.bindparam(name, type_=sa.Text) for name in statement.parameters]  # asyncpg cannot guess the type of NULL
    try:
        connection.execute(text.bindparams(*typed) if typed else text, dict(statement.parameters))
    except sa.exc.OperationalError as error:
        if "no such table" in str(error.orig):
            raise NotInstalledError() from error
        raise
