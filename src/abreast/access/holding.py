"""A held transaction: a connection and a session that a caller writes with until the hub commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

Named = Callable[[sa.exc.DBAPIError], BaseException | None]
"""What a caller should see for a database error; None for the error itself."""


class Held:
    """One open transaction and the session in it. The session's own commit and rollback do not end it."""

    def __init__(self, connection: sa.Connection, named: Named, release: Callable[[], None] = lambda: None) -> None:
        self.connection, self._named, self._release = connection, named, release
        try:
            with self.errors():
                self._transaction = connection.begin()
        except BaseException:
            self.close()
            raise
        self._savepoint: sa.NestedTransaction | None = None
        self.session = Session(bind=connection, join_transaction_mode="rollback_only", expire_on_commit=False)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the database under the names that a caller should see."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            named = self._named(error)
            if named is None:
                raise
            raise named from error

    def execute(self, text: str) -> Any:
        """One statement of plain SQL."""
        return self.connection.exec_driver_sql(text)

    def savepoint(self) -> None:
        """What is written from here on can be taken back without ending the transaction."""
        self._savepoint = self.connection.begin_nested()

    def take_back(self) -> None:
        """Back to the savepoint."""
        self.session.close()
        if self._savepoint is not None and self._savepoint.is_active:
            self._savepoint.rollback()
        self._savepoint = None

    @property
    def usable(self) -> bool:
        """Whether the transaction is still the one that was begun."""
        return self._transaction.is_active and self.connection.in_transaction()

    def keep(self) -> None:
        """Flushes, and gives the savepoint up."""
        self.session.flush()
        if self._savepoint is not None:
            self._savepoint.commit()
            self._savepoint = None

    def commit(self) -> None:
        """Ends the transaction; the session's objects stay usable, detached."""
        self.session.expunge_all()
        self.session.close()
        self._transaction.commit()

    def close(self) -> None:
        """Ends everything; what was not committed is rolled back."""
        session = getattr(self, "session", None)
        try:
            if session is not None:
                session.close()
        finally:
            try:
                self.connection.close()
            finally:
                release, self._release = self._release, lambda: None
                release()
