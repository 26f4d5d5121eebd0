"""Fan-out with `Send`: which nodes a function starts once for each item of something."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from abreast.doctor.sources import Function


def sent(function: Function) -> Iterator[str]:
    """The nodes of every `Send("node", ...)` that stands in a comprehension or a loop; a name that is computed is not seen."""
    from langgraph.types import Send

    loops = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.For, ast.AsyncFor, ast.While)
    for loop in (node for node in function.nodes if isinstance(node, loops)):
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and function.resolve(node.func) is Send:
                first = node.args[0] if node.args else next((word.value for word in node.keywords if word.arg == "node"), None)
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value
