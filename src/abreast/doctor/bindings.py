"""Which tools a node's own code hands to its model with `bind_tools`, where that can be said for sure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from abreast.doctor.sources import Function
from abreast.doctor.subject import Node, Subject

_RUNS = frozenset(("invoke", "ainvoke", "stream", "astream"))


@dataclass(frozen=True, slots=True)
class Binding:
    """One call of a model with tools. `known` is false if it may have tools whose names cannot be seen."""

    node: Node
    function: Function
    call: ast.Call
    names: frozenset[str]
    known: bool
    forced: bool
    """True with `tool_choice`: the call is then a way to get structured output, not a tool loop."""


def bindings(subject: Subject) -> Iterator[Binding]:
    """The calls of models with tools in the nodes' own code."""
    for node in subject.nodes.values():
        for function in node.functions:
            for call in function.nodes:
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _RUNS:
                    yield from _binding(node, function, call, call.func.value)


def says(subject: Subject, functions: Iterable[Function], words: tuple[str, ...]) -> bool:
    """True if a file seen so far, or that of a function which one of these calls by name, has one of the words."""
    for function in functions:
        for part in function.nodes:
            if isinstance(part, ast.Call):
                subject.sources.function(function.resolve(part.func))
    return any(word in line for source in subject.sources for line in source.lines for word in words)


def _binding(node: Node, function: Function, call: ast.Call, model: ast.expr) -> Iterator[Binding]:
    from langchain_core.runnables import RunnableBinding

    meant = function.meant(model)
    if isinstance(meant, ast.Call) and isinstance(meant.func, ast.Attribute) and meant.func.attr == "bind_tools" and meant.args:
        tools = _objects(function, meant.args[0])
        forced = any(keyword.arg in ("tool_choice", None) for keyword in meant.keywords)
    else:
        bound = function.resolve(meant)
        if not isinstance(bound, RunnableBinding) or "tools" not in bound.kwargs:
            return
        tools = bound.kwargs["tools"]
        forced = bool(bound.kwargs.get("tool_choice"))
    if not isinstance(tools, Sequence):
        yield Binding(node, function, call, frozenset(), known=False, forced=forced)
        return
    names = [_name(tool) for tool in tools]
    yield Binding(node, function, call, frozenset(name for name in names if name), known=all(names), forced=forced)


def _objects(function: Function, expression: ast.expr) -> Any:
    meant = function.meant(expression)
    if isinstance(meant, ast.List | ast.Tuple):
        return [function.resolve(element) for element in meant.elts]
    return function.resolve(meant) if isinstance(meant, ast.Name | ast.Attribute) else None


def _name(tool: Any) -> str | None:
    """The name of a tool object, or of a function tool in the OpenAI or the Anthropic format; None for anything else."""
    from langchain_core.tools import BaseTool

    if isinstance(tool, BaseTool):
        return tool.name
    if isinstance(tool, dict):
        function = tool.get("function")
        named = function if tool.get("type") == "function" and isinstance(function, dict) else tool
        if named is function or "input_schema" in tool:
            name = named.get("name")
            return name if isinstance(name, str) else None
    return None
