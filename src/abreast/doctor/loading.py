"""From MODULE:GRAPH to the object: a graph, an uncompiled builder, or a function that makes one."""

from __future__ import annotations

import asyncio
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from abreast.errors import InputError


def named(where: str, default: str = "graph") -> Any:
    """The object that MODULE:OBJECT names, imported from the working folder. Raises InputError if there is none."""
    name, _, attribute = where.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(name)
        for part in (attribute or default).split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise InputError(f"{error}. Run this in your project's folder, with its packages installed.") from None
    except AttributeError:
        raise InputError(f"{name} has no {attribute or default}.") from None
    except (Exception, SystemExit) as error:
        raise InputError(f"{name} cannot be imported: {_where(error)}.") from None
    return found


def _where(error: BaseException) -> str:
    """What was raised and where, without its text: that may hold an address with a password in it."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else type(error).__name__


@contextmanager
def graph_at(where: str) -> Iterator[Any]:
    """The graph at MODULE:GRAPH. A factory is called: without arguments, or with an empty config if it asks for one."""
    found = named(where)
    with ExitStack() as stack:
        if _makes(found):
            found = _made(found, where, stack)
        yield found


def _makes(found: Any) -> bool:
    """True for a function, a partial and an object that is called like one: not for a class, and not for what runs itself."""
    return callable(found) and not isinstance(found, type) and not any(hasattr(found, name) for name in ("nodes", "invoke"))


def _made(factory: Any, where: str, stack: ExitStack) -> Any:
    asked = [
        one
        for one in inspect.signature(factory).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(asked) > 1:
        raise InputError(f"{where} asks for {len(asked)} arguments. Name a graph, or a function that makes one from a config.")
    try:
        made = factory(*({"configurable": {}} for _ in asked))
        if inspect.isawaitable(made):
            runner = stack.enter_context(asyncio.Runner())
            made = runner.run(_awaited(made))
        elif hasattr(made, "__aenter__"):
            runner = stack.enter_context(asyncio.Runner())
            entered = made
            made = runner.run(entered.__aenter__())
            stack.callback(lambda: runner.run(entered.__aexit__(None, None, None)))
        elif hasattr(made, "__enter__"):
            made = stack.enter_context(made)
    except (Exception, SystemExit) as error:
        raise InputError(f"{where} failed when it was called: {_where(error)}.") from None
    return made


async def _awaited(made: Any) -> Any:
    return await made
