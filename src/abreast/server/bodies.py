"""The body of a request: read up to a limit, as JSON that can be stored and sent on, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message

from abreast.server.problems import MEDIA, REQUEST, TOO_LARGE, ProblemError

LIMIT = 256 * 1024
"""Bytes of a body, unless the application sets another limit."""

PASSED, PASSING = 4 * 1024 * 1024, 0.5
"""Bytes of a body that is too large which are read all the same, and not kept, and the seconds for which they are."""

DEPTH = 64
"""How deep objects and lists may stand in each other."""


async def read_body(request: Request, limit: int, *, wanted: bool) -> tuple[Request, Any]:
    """The request with its body to read again, and what the body says.

    With `wanted` it must be JSON; otherwise there must be none. No more than `limit` bytes are ever kept, whatever
    length the client has announced, or none. Raises ProblemError.
    """
    body = await _bytes(request, limit)
    parsed = None
    if wanted:
        check_type(request.headers)
        parsed = parse(body)
    elif body:
        raise ProblemError(REQUEST, "This request takes no body.")
    return Request(request.scope, _Again(body, request)), parsed


async def _bytes(request: Request, limit: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and (len(announced) > 15 or int(announced) > limit):
        await _pass_over(request)
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            await _pass_over(request)
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


async def _pass_over(request: Request) -> None:
    """Takes what comes of a body that is too large, for a moment: a connection that is closed on what nobody has read takes
    the answer with it."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PASSING):
            while size < PASSED:
                message = await request.receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _too_large(limit: int) -> ProblemError:
    # The rest of the body may not have been read, so the connection cannot be used again.
    return ProblemError(TOO_LARGE, f"A body has at most {limit} bytes.", headers={"Connection": "close"}, limit=limit)


def check_type(headers: Headers) -> None:
    """Raises ProblemError unless a body is plain JSON. A page of another origin cannot send that without being asked for
    permission first, as it could a form."""
    kind, _, rest = headers.get("content-type", "").partition(";")
    charset = rest.replace(" ", "").lower()
    if kind.strip().lower() != "application/json" or (charset and not charset.strip(";").startswith("charset=")):
        raise ProblemError(MEDIA, "Send application/json.")
    if charset and charset.strip(";").removeprefix("charset=").strip('"') not in ("utf-8", "utf8", "us-ascii"):
        raise ProblemError(MEDIA, "Send JSON in UTF-8.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ProblemError(MEDIA, "Send the body as it is, without a content coding.")


def parse(body: bytes) -> Any:
    """What JSON says. Raises ProblemError for what is none, and for what could not be stored and sent on: numbers that are
    not finite, half characters, and what is nested too deep."""
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_float=_number, parse_constant=_no_number)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise ProblemError(REQUEST, "The body is not text in UTF-8.") from None
    except ValueError:
        raise ProblemError(REQUEST, "The body is not JSON.") from None
    except RecursionError:
        raise _too_deep() from None
    check_depth(value)
    return value


def check_depth(value: Any) -> None:
    """Raises ProblemError for a value that is nested deeper than `DEPTH`."""
    level = [value]
    for _ in range(DEPTH + 1):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return
    raise _too_deep()


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _too_deep() -> ProblemError:
    return ProblemError(REQUEST, f"The body is nested deeper than {DEPTH} levels.")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _no_number(text)
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


class _Again:
    """What a request receives whose body was read already."""

    def __init__(self, body: bytes, request: Request) -> None:
        self._body: bytes | None = body
        self._rest = request.receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._rest()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
