"""One examination by name, as the command line asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from abreast.doctor import Report, Thread, examine, thread_of
from abreast.doctor.loading import graph_at, named
from abreast.doctor.threads import saver_at
from abreast.errors import InputError, MissingExtraError


def look(
    where: str,
    *,
    thread: str | None = None,
    checkpointer: str | None = None,
    context: str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Report:
    """The report on MODULE:GRAPH. Raises an AbreastError where it cannot be looked."""
    if find_spec("langgraph") is None or find_spec("langchain") is None:
        raise MissingExtraError('The doctor needs its extra: pip install "abreast[langchain]".')
    if (thread is None) != (checkpointer is None):
        raise InputError("--thread and --checkpointer go together: which thread, and where its checkpoints are.")
    with graph_at(where) as graph:
        return examine(
            graph,
            module=where.partition(":")[0],
            context=named(context, "Context") if context else None,
            thread=_thread(checkpointer, thread) if thread is not None and checkpointer is not None else None,
            select=select,
            ignore=ignore,
        )


def _thread(checkpointer: str, thread: str) -> Thread:
    try:
        with saver_at(checkpointer, named) as saver:
            found = thread_of(saver, thread)
    except InputError:
        raise
    except Exception as error:  # a driver's errors share no parent of ours; all of them mean that nothing could be read
        # Not the error's text and not the address: a password may stand in either.
        raise InputError(
            f"The checkpoints cannot be read ({type(error).__name__}). Name a SQLite file that is there, a PostgreSQL URL whose "
            "tables are set up, or MODULE:SAVER."
        ) from None
    if not found.steps:
        raise InputError(f"There is no checkpoint of thread {thread}.")
    return found
