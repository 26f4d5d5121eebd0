"""A statement: SQL text with `:name` parameters, and what a flow may ask of whoever executes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import Session

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]

_PARAMETER = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*')|(?<![:\w]):([a-z_]\w*)""")
"""A quoted name or text, which may have a colon in it, or a parameter."""


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL text with `:name` parameters. Answered with its rows as tuples; none if it returns no rows."""

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """An SQLAlchemy Core query, for what holds conditions of the application. Answered with its rows."""

    query: sa.Select[Any]


@dataclass(frozen=True, slots=True)
class InSession:
    """A call that wants an SQLAlchemy session of the same snapshot. Answered with what it returns."""

    call: Callable[[Session], Any]


Flow = Generator[Statement | Query | InSession, Any, T]
"""A piece of work against the database, written once: it yields what it wants executed and is sent the answer.
`access` drives it, synchronously or asynchronously, on a connection of the hub or of the application."""


@lru_cache(maxsize=512)
def pyformat(text: str) -> str:
    """The text with `%(name)s` parameters, as psycopg wants them."""
    return _PARAMETER.sub(lambda found: found[1] or f"%({found[2]})s", text.replace("%", "%%"))


@lru_cache(maxsize=512)
def escaped(text: str) -> str:
    """The text as SQLAlchemy's `text()` wants it, which looks for parameters in quoted names too."""
    return _PARAMETER.sub(lambda found: found[1].replace(":", "\\:") if found[1] else found[0], text)


def written_out(text: str, **values: str) -> str:
    """The text with its parameters replaced by SQL, for what becomes part of a function in the database."""
    return _PARAMETER.sub(lambda found: found[1] or values.get(found[2], found[0]), text)
