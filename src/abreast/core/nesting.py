"""Which blocks of `hub.write` are open here: what would wait for the end of a block, in its own code, would wait for ever."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from abreast.errors import ConfigurationError


@dataclass(eq=False, slots=True)
class Block:
    """One block of a hub's writing. `places` are the tasks and threads in which its code runs."""

    writing: object
    places: tuple[Any, ...]
    is_open: bool = True

    def end(self) -> None:
        """The block has ended; it may be left in another context than it was entered in."""
        self.is_open = False
        _blocks.set(tuple(block for block in _blocks.get() if block.is_open))


_blocks: ContextVar[tuple[Block, ...]] = ContextVar("abreast_blocks", default=())


def begin(writing: object, *places: Any) -> Block:
    """A block that has begun in the task or thread that asks, and in these."""
    made = Block(writing, (_here(), *places))
    _blocks.set((*(block for block in _blocks.get() if block.is_open), made))
    return made


def check(writing: object) -> None:
    """Raises ConfigurationError in the code of an open block of this writing.

    A task that was started in a block has its context and is not its code: it may wait until the block has ended.
    """
    for block in _blocks.get():
        if block.is_open and block.writing is writing and _here() in block.places:
            raise ConfigurationError(
                "A block of hub.write is open here, and this write would wait for it for ever. Write with tx.apply(...) in "
                "the open block, or after it. Nothing was written."
            )


def _here() -> Any:
    """The task that runs, or the thread where none does."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else task
