"""`Idempotency-Key`: a request that is sent again, because its answer was lost, gets that answer and does nothing twice.

Only answers of requests that did something (2xx) are kept. A request that was refused, or failed, has done nothing, so a
repeat of it is judged anew, and its key is free for a corrected one. Where the process dies between doing and keeping,
the repeat is answered anew too; the service then finds what was done by the ids that it makes of the key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from abreast.access import Access, aperform
from abreast.core.replies import Replies, Reply
from abreast.errors import AbreastError
from abreast.records import Caller
from abreast.server.encoding import encoded
from abreast.server.problems import HEADERS, REQUEST, REUSED, RUNNING, ProblemError
from abreast.store.replies import Owner
from abreast.telemetry import log

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
PATTERN = r"^[!-~]{1,200}$"


@dataclass(frozen=True, slots=True)
class Keeper:
    """Where replies are kept."""

    access: Access
    replies: Replies

    async def begin(self, owner: Owner, digest: str) -> Reply:
        return await aperform(self.access, self.replies.begin(owner, digest))

    async def store(self, owner: Owner, digest: str, status: int, body: str) -> None:
        await aperform(self.access, self.replies.store(owner, digest, status, body))

    async def forget(self, owner: Owner, digest: str) -> None:
        await aperform(self.access, self.replies.forget(owner, digest))


def key_of(request: Request) -> str | None:
    """The request's key. Raises ProblemError where it is none, or where there are several."""
    keys = request.headers.getlist(HEADER)
    if not keys:
        return None
    if len(keys) > 1 or not re.fullmatch(PATTERN, keys[0]):
        raise ProblemError(REQUEST, f"{HEADER} is one value of 1 to 200 visible ASCII characters.")
    return keys[0]


def digest_of(request: Request, body: Any) -> str:
    """What tells one request from another: method, path and what the body says, however it is written."""
    said = [request.method, request.scope["path"], request.url.query, body]
    return hashlib.sha256(encoded(said)).hexdigest()


async def once(keeper: Keeper, caller: Caller, key: str, digest: str, respond: Callable[[], Awaitable[Response]]) -> Response:
    """The answer to a request with a key: kept, or made and kept. Raises ProblemError for a key that stands for another
    request, and while the first one is being answered."""
    owner = Owner(caller.tenant, caller.user, key)
    found = await keeper.begin(owner, digest)
    if found.state == "stored":
        body = found.body.encode()
        return Response(body, found.status, {**HEADERS, REPLAYED: "true"}, "application/json" if body else None)
    if found.state == "reused":
        raise ProblemError(REUSED, "A new request needs a new key.")
    if found.state == "running":
        raise ProblemError(RUNNING, "Send it again in a moment.")
    try:
        response = await respond()
    except Exception:
        await _quietly(keeper.forget(owner, digest))
        raise
    if response.status_code < 300:
        await _quietly(keeper.store(owner, digest, response.status_code, bytes(response.body).decode()))
    else:
        await _quietly(keeper.forget(owner, digest))
    return response


async def _quietly(ending: Awaitable[None]) -> None:
    """What the request did stands and its answer is known, so it is given. A repeat finds no reply, waits until this one
    counts as lost, and is answered anew."""
    try:
        await ending
    except AbreastError as error:
        log.warning("The reply of a request could not be kept: %s", error.message)
