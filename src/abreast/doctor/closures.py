"""What `create_agent` keeps in closures: the model's tools and the middleware, in the order of their wrapping.

LangChain hands none of this out. What is found is certain; what is not found is unknown, never "there is none".
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

_HOOKS = (
    "before_agent", "before_model", "wrap_model_call", "wrap_tool_call", "after_model", "after_agent",
)  # fmt: skip
_DEPTH = 60


class Closures:
    """The functions behind a graph's nodes, opened."""

    def __init__(self, builder: Any) -> None:
        self.parts: list[tuple[str, Any]] = []
        for name, spec in builder.nodes.items():
            for attribute in ("func", "afunc", "_wrap_tool_call", "_awrap_tool_call"):
                part = getattr(spec.runnable, attribute, None)
                if part is not None:
                    self.parts.append((name, part))

    def chain(self, variable: str) -> tuple[Any, ...]:
        """The objects that wrap a call, outermost first, from the closure variable that holds the composed handler."""
        for _, part in self.parts:
            cell = _cells(part).get(variable)
            if cell is not None:
                return tuple(_unchained(cell))
        return ()

    def tools(self) -> Iterator[tuple[str, Any]]:
        """The tools that an agent's model node hands to its model."""
        for name, part in self.parts:
            tools = _cells(part).get("default_tools")
            for tool in tools if isinstance(tools, list | tuple) else ():
                yield name, tool

    def prompts(self) -> Iterator[str]:
        """The text of the fixed system messages, each once."""
        messages = (_cells(part).get("system_message") for _, part in self.parts)
        texts = (getattr(message, "content", None) for message in messages)
        yield from dict.fromkeys(text for text in texts if isinstance(text, str))

    def bound(self) -> Iterator[Any]:
        """The objects whose methods are reached from any node, each once."""
        seen: set[int] = set()
        for _, part in self.parts:
            for owner in _owners(part, seen, _DEPTH):
                yield owner


def middleware_of(closures: Closures) -> tuple[tuple[Any, ...], tuple[tuple[Any, ...], ...]]:
    """All middleware that can be seen, and the wrapping chains (sync, async), each outermost first."""
    chains = tuple(chain for name in ("wrap_model_call_handler", "awrap_model_call_handler") if (chain := closures.chain(name)))
    found: dict[int, Any] = {}
    for one in (*(one for chain in chains for one in chain), *closures.bound()):
        if any(inspect.getattr_static(type(one), hook, None) is not None for hook in (*_HOOKS, *(f"a{hook}" for hook in _HOOKS))):
            found[id(one)] = one
    return tuple(found.values()), chains


def _cells(part: Any) -> dict[str, Any]:
    function = part
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.ismethod(function):
        function = function.__func__
    if not isinstance(function, FunctionType) or not function.__closure__:
        return {}
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue  # a cell that is not filled yet holds nothing to see
    return found


def _unchained(handler: Any, depth: int = _DEPTH) -> Iterator[Any]:
    if depth == 0:
        return
    traced = _cells(handler).get("func")
    if inspect.ismethod(handler):
        yield handler.__self__
    elif inspect.ismethod(traced):
        yield traced.__self__
    else:
        cells = _cells(handler)
        for name in ("outer", "inner", "single_handler", "func", "handler"):
            if callable(cells.get(name)):
                yield from _unchained(cells[name], depth - 1)


def _owners(part: Any, seen: set[int], depth: int) -> Iterator[Any]:
    if depth == 0 or id(part) in seen:
        return
    seen.add(id(part))
    if inspect.ismethod(part):
        yield part.__self__
    wrapped = getattr(part, "__wrapped__", None) if isinstance(part, FunctionType) else None
    for inner in (*_cells(part).values(), *([wrapped] if wrapped is not None else [])):
        if inspect.ismethod(inner) or isinstance(inner, FunctionType | functools.partial):
            yield from _owners(inner, seen, depth - 1)
