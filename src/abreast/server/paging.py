"""Where the next page begins: a text that means nothing to the client, so that what it is made of may change."""

from __future__ import annotations

import base64
import binascii

from abreast.server.problems import REQUEST, ProblemError

LARGEST = 200
"""Items of a page at most."""


def cursor(kind: str, place: str) -> str:
    """The service's own place in a list of this kind, as clients hold it."""
    return base64.urlsafe_b64encode(f"{kind}:{place}".encode()).decode("ascii").rstrip("=")


def place(kind: str, cursor: str | None) -> str | None:
    """What a client held, as the service's own place. Raises ProblemError for what is no cursor of this kind of list."""
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (UnicodeError, binascii.Error):
        text = ""
    known, colon, found = text.partition(":")
    if known != kind or not colon or not found or "\0" in found:
        raise ProblemError(REQUEST, "after is the `next` of a page before, of the same list.")
    return found
