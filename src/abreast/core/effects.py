"""Effects outside the database (a mail, a payment), which no transaction takes back (G18).

The mutation is claimed first, then the effect is tried under its id, then its outcome is stored. A claim without an
outcome is an effect that is running, or whose outcome nobody knows: it is never tried again until a person has settled it.

A call is a repeat of another one as far as the history shows it. Histories are trimmed, summarised and rewound; so what
is open stands in the database a second time, under a name made of the conversation, the tool and the arguments, as long as
it is open. Another call that means the same is then not made either, whatever its mutation id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from abreast.access import Operation, read, write
from abreast.core.lease import must_hold
from abreast.core.write import Writing, refusal_body
from abreast.errors import InputError, RefusedError
from abreast.store import mutations
from abreast.store.mutations import Outcome
from abreast.store.statement import Flow
from abreast.types import Attribution, Lease, OpenEffect

_STARTED: Literal["started"] = "started"


@dataclass(frozen=True, slots=True)
class Claim:
    """One effect that is about to be tried; `token` tells it from another attempt of the same mutation.

    `message` names what made the call: two calls of one message that means them both do not stop each other.
    """

    workspace: str
    mutation: str
    token: str
    tool: str
    arguments: Mapping[str, Any]
    thread: str | None
    message: str

    @property
    def digest(self) -> str:
        """What tells this effect from another write under the same mutation id."""
        return mutations.digest(self.workspace, ["effect", [self.tool, self.arguments]])

    @property
    def text(self) -> str:
        """What stands in the place of the outcome until there is one."""
        return _started(token=self.token, tool=self.tool, arguments=self.arguments, thread=self.thread)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of an effect before. `mutation` is the one that it stands under: of a call whose history does not show the
    first one, that is another than its own."""

    outcome: Outcome
    mutation: str


class Effects:
    """The claims of one hub's effects."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._dialect, self._schema = writing.access.dialect, writing.schema

    def holds(self, lease: Lease | None) -> Operation[None]:
        """Raises LeaseLostError where this run does not hold its thread any more."""
        if lease is not None:
            yield from read(lambda: must_hold(self._dialect, self._schema, lease))

    def claim(self, claim: Claim, attribution: Attribution, lease: Lease | None) -> Operation[Found | None]:
        """Claims the mutation under the lease. Returns None, or what came of it before: `started` where that is running or
        nobody knows. Raises LeaseLostError and MutationReusedError."""
        self._writing.check(claim.workspace, attribution)

        def flow() -> Flow[Outcome | str | None]:
            outcome = yield from self._writing.begin(claim.workspace, attribution, lease, claim.digest)
            if outcome is not None:
                return outcome
            other = yield from self._stand(claim)
            if other is None:
                yield from self._writing.store(claim.workspace, claim.mutation, claim.digest, claim.text)
            return other

        outcome = yield from write(flow)
        if outcome is None:
            return None
        if isinstance(outcome, str):
            return Found(Outcome(_STARTED), outcome)
        self._writing.raise_unless_new(outcome, claim.mutation, lease)
        first = mutations.read_outcome(outcome.body)
        # By an attempt of this very call whose reply was lost.
        mine = first.kind == _STARTED and first.body["token"] == claim.token
        return None if mine else Found(first, claim.mutation)

    def settle(self, claim: Claim, outcome: Outcome) -> Operation[bool]:
        """Stores the outcome. False where the claim is not there any more: a person has settled it."""
        return (yield from write(lambda: self._end(claim.workspace, claim.mutation, claim.text, outcome.text)))

    def release(self, claim: Claim) -> Operation[bool]:
        """Gives the claim back: nothing was done."""
        return (yield from write(lambda: self._end(claim.workspace, claim.mutation, claim.text, None)))

    def settle_by_hand(self, workspace: str, mutation: str, *, done: bool, outcome: Any) -> Operation[None]:
        """What a person found out about an effect. Raises InputError where none is open under this id."""
        mutations.check_mutation(mutation)
        text = Outcome("returned", body=outcome).text if done else None

        def flow() -> Flow[bool]:
            found = yield mutations.find_statement(self._dialect, self._schema, workspace=workspace, mutation=mutation)
            known = found[0][1] if found else ""
            return bool(known and _body(known).get("token") and (yield from self._end(workspace, mutation, known, text)))

        if not (yield from write(flow)):
            raise InputError(
                f"No effect of {workspace} with an unknown outcome has the mutation id {mutation}. hub.unsettled lists those "
                f"that have one."
            )

    def unsettled(self, workspace: str) -> Operation[list[OpenEffect]]:
        """The effects that have no outcome yet, oldest first."""

        def flow() -> Flow[list[OpenEffect]]:
            rows = yield mutations.started_statement(self._dialect, self._schema, workspace=workspace)
            return [
                OpenEffect(workspace, mutation, body["tool"], body["arguments"], body["thread"], at)
                for mutation, body, at in mutations.read_started(rows)
                if "token" in body
            ]

        return (yield from read(flow))

    def _end(self, workspace: str, mutation: str, known: str, outcome: str | None) -> Flow[bool]:
        """Puts the outcome in the claim's place, or forgets the claim; False where that does not stand there."""
        claim = _body(known)
        name = _name(claim["thread"], claim["tool"], claim["arguments"])
        opened = yield from self._opened(workspace, name)
        replaced = yield mutations.replace_statement(
            self._dialect, self._schema, workspace=workspace, mutation=mutation, known=known, outcome=outcome
        )
        if replaced and opened is not None:
            others = {one: by for one, by in _body(opened)["open"].items() if one != mutation}
            yield self._reopened(workspace, name, opened, others)
        return bool(replaced)

    # -- what is open in a conversation, by what it means -------------------------------------------------------------

    def _stand(self, claim: Claim) -> Flow[str | None]:
        """Notes that this effect is open; or the mutation of another that means the same and is open."""
        name = _name(claim.thread, claim.tool, claim.arguments)
        known = yield from self._opened(claim.workspace, name)
        opened: dict[str, str] = _body(known)["open"] if known is not None else {}
        other = next((mutation for mutation, by in opened.items() if by != claim.message), None)
        if other is not None or name is None:
            return other
        opened = {**opened, claim.mutation: claim.message}
        if known is not None:
            yield self._reopened(claim.workspace, name, known, opened)
        else:
            yield from self._writing.store(claim.workspace, name, "", _started(open=opened))
        return None

    def _opened(self, workspace: str, name: str | None) -> Flow[str | None]:
        """What is open under a name, as it is stored; locked until the end of the transaction."""
        if name is None:
            return None
        if self._dialect == "postgresql":
            yield mutations.lock_statement(workspace=workspace, mutation=name)
        found = yield mutations.find_statement(self._dialect, self._schema, workspace=workspace, mutation=name)
        return str(found[0][1]) if found else None

    def _reopened(self, workspace: str, name: str | None, known: str, opened: Mapping[str, str]) -> Any:
        text = _started(open=opened) if opened else None
        return mutations.replace_statement(
            self._dialect, self._schema, workspace=workspace, mutation=name or "", known=known, outcome=text
        )


def _name(thread: str | None, tool: str, arguments: Mapping[str, Any]) -> str | None:
    """What an effect is called by its meaning. None outside a conversation, where the same call may be anybody's."""
    return f"open:{mutations.digest(thread, [tool, arguments])}" if thread else None


def _started(**body: Any) -> str:
    # In ASCII: a model may write half a character, which a database does not take.
    return json.dumps([_STARTED, None, 0, body], sort_keys=True)


def _body(text: str) -> Mapping[str, Any]:
    """The body of what stands for an effect that was started; empty for an outcome."""
    kind, _, _, body = json.loads(text)
    return body if kind == _STARTED else {}


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
