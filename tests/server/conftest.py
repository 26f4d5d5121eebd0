"""Fixtures of the HTTP face: real servers, real clients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from served import served


@pytest.fixture
def serve() -> Iterator[Callable[..., httpx.Client]]:
    """Serves applications and gives clients of them; stops all at the end."""
    with contextlib.ExitStack() as stack:

        def begin(app: Any, **options: Any) -> httpx.Client:
            url = stack.enter_context(served(app, **options))
            return stack.enter_context(httpx.Client(base_url=url, timeout=30))

        yield begin
