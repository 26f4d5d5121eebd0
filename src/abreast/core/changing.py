"""Changes inside a transaction that is open already: each row is locked, written and read again, statement by statement."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from abreast.core.write import Writing
from abreast.errors import InputError, UnknownEntityError
from abreast.store.change import entity_id
from abreast.store.procedures import row_statement
from abreast.store.statement import Flow, Statement
from abreast.store.values import load
from abreast.store.writing import TableWriter, Write
from abreast.types import Row

_ABOUT_VALUES = ("AB002", "P0001", "428C9")


def lock(writing: Writing, workspace: str, write: Write, *, for_key: bool = True) -> Flow[None]:
    """Locks the row until the transaction ends; one that is to be deleted so that nobody can refer to it meanwhile, unless
    `for_key` is False. Raises UnknownEntityError where it is not in this workspace."""
    wanted, tracked = str(write.change.entity_id), write.tracked
    writer = writing.writer(write.change.model)
    if writing.access.dialect == "sqlite":  # whose transaction has locked everything
        found = bool((yield writer.look_statement(writing.schema, workspace, wanted, write.key)))
    else:
        ((kind, *_),) = yield _stage(writing, writer, workspace, write, "lock" if for_key else "hold")
        found = kind != "absent"
    if not found:
        raise UnknownEntityError(
            f"There is no {tracked.entity_type} {wanted} in workspace {workspace}.",
            entity_type=tracked.entity_type,
            entity_id=wanted,
        )


def make(writing: Writing, workspace: str, write: Write) -> Flow[Row | None]:
    """Writes one row that is locked already. Returns it as it is now, None where it was deleted. Its version is known only
    where the application has a column for it: revisions are given when the transaction ends."""
    writer = writing.writer(write.change.model)
    if writing.access.dialect == "sqlite":
        answer = yield writer.statement(write)
        made = answer[0][0] if write.change.op == "insert" and answer else write.change.entity_id
        if write.change.op == "delete":
            return None
        found = yield writer.look_statement(writing.schema, workspace, str(made), write.key)
        if not found:
            raise InputError("The row would belong to another workspace.")
        text = found[0][1]
    else:
        ((kind, _, text),) = yield _stage(writing, writer, workspace, write, "write")
        if kind == "gone":
            return None
    row = writer.row(load(text), 0)
    column = write.tracked.version_column
    return replace(row, version=row.values.get(column) if column else None)


def renew(session: Session, writes: Sequence[Write]) -> None:
    """Objects that the session has of these rows follow what was written."""
    for write in writes:
        for known in list(session.identity_map.values()):
            state = sa.inspect(known)
            if write.tracked.table not in state.mapper.tables or write.change.op == "insert":
                continue
            with contextlib.suppress(InputError):  # a key that is no id is another row's
                key: Any = state.identity
                if entity_id(key if len(key) > 1 else key[0]) != write.change.entity_id:
                    continue
                if write.change.op == "delete":
                    session.expunge(known)
                else:
                    session.refresh(known)


def _stage(writing: Writing, writer: TableWriter, workspace: str, write: Write, stage: str) -> Statement:
    call = writer.call(write)
    if stage == "hold":
        call, stage = {**call, "op": "update"}, "lock"
    return row_statement(writing.schema, workspace, json.dumps(call), stage, write.tracked.entity_type)


def refusal(error: Exception) -> InputError | None:
    """What a caller should see for an error that the database raised about what he wrote; None where it is not about
    that."""
    cause: Any = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None)
    of_driver = state is None and isinstance(error, sa.exc.ProgrammingError | sa.exc.InterfaceError | OverflowError)
    if not of_driver and not isinstance(error, sa.exc.IntegrityError | sa.exc.DataError) and state not in _ABOUT_VALUES:
        return None
    text = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause).partition("\n")[0]
    if isinstance(error, sa.exc.DataError):
        text = text.partition(": ")[0]  # behind it stands the value, which may be a secret of another column
    return InputError(f"The database refused this write: {text.removeprefix('abreast: ')}")
