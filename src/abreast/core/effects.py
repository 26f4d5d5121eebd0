"""Effects outside the database (a mail, a payment), which no transaction takes back (G18).

The mutation is claimed first, then the effect is tried under its id, then its outcome is stored. A claim without an
outcome is an effect that is running, or whose outcome nobody knows: it is never tried again until a person has settled it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from abreast.access import Operation, read, write
from abreast.core.write import Writing, refusal_body
from abreast.errors import InputError, LeaseLostError, RefusedError
from abreast.store import leases, mutations
from abreast.store.mutations import Outcome
from abreast.store.statement import Flow
from abreast.types import Attribution, Lease


@dataclass(frozen=True, slots=True)
class Claim:
    """One effect that is about to be tried; `token` tells it from another attempt of the same mutation."""

    workspace: str
    mutation: str
    digest: str
    token: str

    @property
    def text(self) -> str:
        return Outcome("started", body=self.token).text


class Effects:
    """The claims of one hub's effects."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._dialect, self._schema = writing.access.dialect, writing.schema

    def holds(self, lease: Lease | None) -> Operation[None]:
        """Raises LeaseLostError where this run does not hold its thread any more."""
        if lease is None:
            return

        def flow() -> Flow[bool]:
            return bool((yield leases.hold_statement(self._dialect, self._schema, lease)))

        if not (yield from read(flow)):
            raise LeaseLostError(thread=lease.thread)

    def claim(self, claim: Claim, attribution: Attribution, lease: Lease | None) -> Operation[Outcome | None]:
        """Claims the mutation under the lease. Returns None, or what came of it before: `started` where that is running or
        nobody knows. Raises LeaseLostError and MutationReusedError."""
        self._writing.check(claim.workspace, attribution)

        def flow() -> Flow[Outcome | None]:
            outcome = yield from self._writing.begin(claim.workspace, attribution, lease, claim.digest)
            if outcome is None:
                yield from self._writing.store(claim.workspace, claim.mutation, claim.digest, claim.text)
            return outcome

        outcome = yield from write(flow)
        if outcome is None:
            return None
        self._writing.raise_unless_new(outcome, claim.mutation, lease)
        first = mutations.read_outcome(outcome.body)
        mine = first.kind == "started" and first.body == claim.token  # by an attempt of this call whose reply was lost
        return None if mine else first

    def settle(self, claim: Claim, outcome: Outcome) -> Operation[bool]:
        """Stores the outcome. False where the claim is not there any more: a person has settled it."""
        return (yield from self._settle(claim.workspace, claim.mutation, claim.text, outcome.text))

    def release(self, claim: Claim) -> Operation[bool]:
        """Gives the claim back: nothing was done."""
        return (yield from self._settle(claim.workspace, claim.mutation, claim.text, None))

    def settle_by_hand(self, workspace: str, mutation: str, *, done: bool, outcome: Any) -> Operation[None]:
        """What a person found out about an effect. Raises InputError where none is open under this id."""
        mutations.check_mutation(mutation)
        text = Outcome("returned", body=outcome).text if done else None
        if not (yield from self._settle(workspace, mutation, None, text)):
            raise InputError(f"No effect of {workspace} with an unknown outcome has the mutation id {mutation}.")

    def _settle(self, workspace: str, mutation: str, claim: str | None, outcome: str | None) -> Operation[bool]:
        def flow() -> Flow[bool]:
            return bool(
                (
                    yield mutations.settle_statement(
                        self._dialect, self._schema, workspace=workspace, mutation=mutation, claim=claim, outcome=outcome
                    )
                )
            )

        return (yield from write(flow))


def refused(error: RefusedError) -> Outcome:
    """The application's refusal as an outcome."""
    return Outcome("refused", body=refusal_body(error))


def is_json(value: Any) -> bool:
    """Whether a value can be stored as an outcome."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
