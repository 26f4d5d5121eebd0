"""Replies: the answer to a request that named a key, kept so that a repeat of it gets the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from abreast.store.schema import DialectName, own
from abreast.store.statement import Statement
from abreast.store.terms import now


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose key it is: the same key of another person is another one."""

    tenant: str
    user: str
    key: str

    @property
    def parameters(self) -> dict[str, str]:
        return {"tenant": self.tenant, "user_id": self.user, "key": self.key}


def expire_statement(dialect: DialectName, schema: str, owner: Owner, *, seconds: float) -> Statement:
    """Forgets this person's replies that are older than that."""
    return Statement(
        f"delete from {own(dialect, 'reply', schema)} where tenant = :tenant and user_id = :user_id and at < {_ago(dialect)}",
        {"tenant": owner.tenant, "user_id": owner.user, **_seconds(dialect, seconds)},
    )


def begin_statement(dialect: DialectName, schema: str, owner: Owner, *, digest: str, seconds: float) -> Statement:
    """One row if the request is this caller's to answer: its key is new, or whoever began to answer the same request so many
    seconds ago has not come to an end. None where there is a reply, or where one is being made."""
    return Statement(
        f"insert into {own(dialect, 'reply', schema)} as known (tenant, user_id, key, digest) "
        f"values (:tenant, :user_id, :key, :digest) on conflict (tenant, user_id, key) do update set at = {now(dialect)} "
        f"where known.status is null and known.digest = excluded.digest and known.at < {_ago(dialect)} returning 1",
        {**owner.parameters, "digest": digest, **_seconds(dialect, seconds)},
    )


def find_statement(dialect: DialectName, schema: str, owner: Owner) -> Statement:
    """The digest, the status and the body that are kept under a key."""
    return Statement(
        f"select digest, status, body from {own(dialect, 'reply', schema)} "
        f"where tenant = :tenant and user_id = :user_id and key = :key",
        owner.parameters,
    )


def store_statement(dialect: DialectName, schema: str, owner: Owner, *, digest: str, status: int, body: str) -> Statement:
    """Keeps a reply. One that is there already stays, also after it was taken for lost and made again."""
    return Statement(
        f"insert into {own(dialect, 'reply', schema)} as known (tenant, user_id, key, digest, status, body) "
        f"values (:tenant, :user_id, :key, :digest, :status, :body) on conflict (tenant, user_id, key) do update "
        f"set status = excluded.status, body = excluded.body where known.status is null and known.digest = excluded.digest",
        {**owner.parameters, "digest": digest, "status": status, "body": body},
    )


def forget_statement(dialect: DialectName, schema: str, owner: Owner, *, digest: str) -> Statement:
    """Lets a key go whose request did nothing."""
    return Statement(
        f"delete from {own(dialect, 'reply', schema)} "
        f"where tenant = :tenant and user_id = :user_id and key = :key and digest = :digest and status is null",
        {**owner.parameters, "digest": digest},
    )


def read_found(rows: Sequence[Sequence[Any]]) -> tuple[str, int | None, str] | None:
    """What a `find_statement` answered: digest, status and body; None where nothing is kept."""
    if not rows:
        return None
    digest, status, body = rows[0]
    return digest, status, body or ""


def _ago(dialect: DialectName) -> str:
    if dialect == "postgresql":
        return "clock_timestamp() - cast(:seconds as float8) * interval '1 second'"
    return "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', :seconds)"


def _seconds(dialect: DialectName, seconds: float) -> dict[str, Any]:
    return {"seconds": seconds if dialect == "postgresql" else f"-{seconds:.3f} seconds"}
