"""One answer to one request, however often it is sent: a person's key stands for the request that it was first sent with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from abreast.access import Operation, write
from abreast.store import replies
from abreast.store.replies import Owner
from abreast.store.schema import DialectName
from abreast.store.statement import Flow

KEPT = 24 * 3600.0
"""Seconds for which a reply is kept."""

LOST = 10.0
"""Seconds after which a request without a reply is taken for one whose process has died, and may be answered anew."""


@dataclass(frozen=True, slots=True)
class Reply:
    """How a request stands: `new` is the caller's to answer, `stored` was answered with `status` and `body`, `running` is
    being answered, `reused` means that its key stands for another request."""

    state: Literal["new", "stored", "running", "reused"]
    status: int = 0
    body: str = ""


@dataclass(frozen=True, slots=True)
class Replies:
    """The replies in one hub's database."""

    dialect: DialectName
    schema: str
    verify: Callable[[], Operation[None]]

    def begin(self, owner: Owner, digest: str) -> Operation[Reply]:
        """Asks whether a request is to be answered. After `new`, `store` or `forget` ends it."""
        yield from self.verify()

        def flow() -> Flow[Reply]:
            yield replies.expire_statement(self.dialect, self.schema, owner, seconds=KEPT)
            if (yield replies.begin_statement(self.dialect, self.schema, owner, digest=digest, seconds=LOST)):
                return Reply("new")
            found = replies.read_found((yield replies.find_statement(self.dialect, self.schema, owner)))
            if found is None:  # let go since the statement before
                return Reply("running")
            known, status, body = found
            if known != digest:
                return Reply("reused")
            return Reply("running") if status is None else Reply("stored", status, body)

        return (yield from write(flow))

    def store(self, owner: Owner, digest: str, status: int, body: str) -> Operation[None]:
        """Keeps the reply, which a repeat gets from now on."""

        def flow() -> Flow[None]:
            yield replies.store_statement(self.dialect, self.schema, owner, digest=digest, status=status, body=body)

        yield from write(flow)

    def forget(self, owner: Owner, digest: str) -> Operation[None]:
        """Lets the key go: the request did nothing, and may be sent again or corrected."""

        def flow() -> Flow[None]:
            yield replies.forget_statement(self.dialect, self.schema, owner, digest=digest)

        yield from write(flow)
