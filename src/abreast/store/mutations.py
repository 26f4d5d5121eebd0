"""Mutations: one intended write, its digest and its stored outcome. A repeat of it gets that outcome.

An outcome is a JSON list: what came of it, a base, a revision and a body. The functions in the database (`write.sql`)
write the same list for `hub.apply`. Where a version was not known yet when the outcome was written, the body holds the
place of the event in its transaction, and the base plus that place is the version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from abreast.errors import InputError
from abreast.store.schema import DialectName, literal, own
from abreast.store.statement import Statement
from abreast.store.values import load

LONGEST = 200
"""Characters of a mutation id."""

_digested = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode

OTHER_WORKSPACE = "abreast: a row of another workspace was written."

Kind = Literal["rows", "conflict", "returned", "stale", "refused", "started", "absent", "lost", "reused", "repeated", "failed"]
"""What came of a write. The first six are stored: `rows` and `conflict` of `apply`, the others of `write`; `started` stands
for an effect outside the database until its outcome is known."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a write, as it is stored and as the database answers."""

    kind: Kind
    base: int | None = None
    revision: int = 0
    body: Any = None

    @property
    def text(self) -> str:
        return json.dumps([self.kind, self.base, self.revision, self.body], ensure_ascii=False)


def read_outcome(raw: Any) -> Outcome:
    """An outcome that was parsed."""
    kind, base, revision, body = raw
    return Outcome(kind, base, revision or 0, body)


def check_mutation(mutation: str | None) -> None:
    """Raises InputError where this cannot be a mutation id."""
    if mutation is None:
        return
    if not isinstance(mutation, str) or not 0 < len(mutation) <= LONGEST or not mutation.strip() or "\0" in mutation:
        raise InputError(f"A mutation id is a text of 1 to {LONGEST} characters that says which write is meant.")


def digest(workspace: str, payload: Any) -> str:
    """What tells one write from another under the same mutation id."""
    return hashlib.sha256(_digested([workspace, payload]).encode()).hexdigest()


def lock_statement(*, workspace: str, mutation: str) -> Statement:
    """PostgreSQL: two calls with one mutation id come one after the other."""
    return Statement(
        "select 1 from (select pg_advisory_xact_lock(hashtextextended(cast(:mutation as text), "
        "hashtextextended(cast(:workspace as text), 0)))) as abreast_lock",
        {"workspace": workspace, "mutation": mutation},
    )


def find_statement(dialect: DialectName, schema: str, *, workspace: str, mutation: str) -> Statement:
    """The digest and the outcome of a mutation; no row if it is new."""
    return Statement(
        f"select digest, outcome from {own(dialect, 'mutation', schema)} where workspace = :workspace and mutation = :mutation",
        {"workspace": workspace, "mutation": mutation},
    )


def read_found(rows: Sequence[Sequence[Any]], wanted: str) -> Outcome | None:
    """What a `find_statement` answered: the outcome to repeat, `reused` for another payload, None where it is new."""
    if not rows:
        return None
    known, text = rows[0]
    if known != wanted:
        return Outcome("reused")
    # Rows keep the digits of their numbers until their kind is known; all else is what somebody returned.
    outcome = json.loads(text)
    return Outcome("repeated", body=load(text) if outcome[0] in ("rows", "conflict") else outcome)


def store_statement(dialect: DialectName, schema: str, *, workspace: str, mutation: str, digest: str, outcome: str) -> Statement:
    """Keeps the outcome of a mutation, as its text."""
    return Statement(
        f"insert into {own(dialect, 'mutation', schema)} (workspace, mutation, digest, outcome) "
        f"values (:workspace, :mutation, :digest, :outcome)",
        {"workspace": workspace, "mutation": mutation, "digest": digest, "outcome": outcome},
    )


def replace_statement(
    dialect: DialectName, schema: str, *, workspace: str, mutation: str, known: str, outcome: str | None
) -> Statement:
    """Puts an outcome in the place of the one that is known to stand there, or forgets it where there is none. One row if
    that stood there."""
    place = own(dialect, "mutation", schema)
    action = f"delete from {place}" if outcome is None else f"update {place} set outcome = :outcome"
    return Statement(
        f"{action} where workspace = :workspace and mutation = :mutation and outcome = :known returning mutation",
        {
            "workspace": workspace,
            "mutation": mutation,
            "known": known,
            **({"outcome": outcome} if outcome is not None else {}),
        },
    )


def started_statement(dialect: DialectName, schema: str, *, workspace: str) -> Statement:
    """What stands for effects that were started, oldest first: mutation, outcome and time, as JSON. Reads all mutations of
    the workspace."""
    at = "at at time zone 'UTC'" if dialect == "postgresql" else "at"
    array = f"cast(json_build_array(mutation, outcome, {at}) as text)"
    if dialect == "sqlite":
        array = f"json_array(mutation, outcome, {at})"
    return Statement(
        f"select {array} from {own(dialect, 'mutation', schema)} where workspace = :workspace "
        f"and outcome like '[\"started\",%' order by {own(dialect, 'mutation', schema)}.at, mutation",
        {"workspace": workspace},
    )


def read_started(rows: Sequence[Sequence[Any]]) -> list[tuple[str, Any, str]]:
    """What a `started_statement` answered: mutation, body of the outcome, and time in UTC, ISO 8601."""
    found = []
    for (raw,) in rows:
        mutation, text, at = load(raw)
        found.append((mutation, read_outcome(json.loads(text)).body, at if str(at).endswith("Z") else f"{at}Z"))
    return found


def guard_statement(workspace: str) -> Statement:
    """SQLite: no event of another workspace may be written on this connection. PostgreSQL asks at the end (`settle`)."""
    return Statement(
        f"create temp trigger abreast_guard before insert on main.abreast_event when new.workspace <> {literal(workspace)} "
        f"begin select raise(abort, {literal(OTHER_WORKSPACE)}); end"
    )


def head_statement(dialect: DialectName, schema: str, workspace: str) -> Statement:
    """HEAD of a workspace; no row where nothing was ever written in it."""
    return Statement(
        f"select head from {own(dialect, 'workspace', schema)} where workspace = :workspace", {"workspace": workspace}
    )
