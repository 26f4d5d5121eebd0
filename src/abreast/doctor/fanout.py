"""Fan-out with `Send`: which nodes a function starts once for each item of something, and which nodes get what `Send` carries."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from abreast.doctor.flow import grows, in_loop, once, still, uses
from abreast.doctor.sources import Function, Source, Sources

_PASSING = frozenset(("enumerate", "sorted", "reversed", "list", "tuple", "set", "zip"))
"""Builtins that hand on as many items as they get."""


def _sent_names(function: Function) -> tuple[str, ...]:
    return tuple(name for call in _sends(function) if (name := _target(function, call)) and _for_each(function, call))


sent = once("sent", _sent_names)
"""The nodes that a function starts with `Send("node", ...)` for every item of something that may have several.

A filter, a slice, a `return` or a `break` in the loop, or a question for the number of items may leave one item only: such a
`Send` is not among them, nor is one whose node is computed, or one that is not surely handed on.
"""


def payloads(functions: Iterable[Function], sources: Sources) -> frozenset[str] | None:
    """The nodes that any `Send` in the files seen may start; None if one is computed, so that it may be any node."""
    for function in functions:
        for node in function.nodes:  # a helper in another file may make the Send
            if isinstance(node, ast.Call):
                helper = sources.function(function.resolve(node.func))
                for part in helper.nodes if helper else ():
                    if isinstance(part, ast.Call):
                        sources.function(helper.resolve(part.func) if helper else None)
    found: set[str] = set()
    for source in sources:
        names = _named_in(source)
        if names is None:
            return None
        found |= names
    return frozenset(found)


def always(function: Function, ends: Mapping[str, str] | None) -> frozenset[str]:
    """The nodes that a router surely starts, all in one step, whatever the state is."""
    if not isinstance(function.tree, ast.Lambda) and any(
        isinstance(node, ast.Return) and node.value is None for node in function.nodes
    ):
        return frozenset()
    chosen = [_chosen(function, one) for one in function.returns]
    names = frozenset.intersection(*chosen) if chosen else frozenset()
    return frozenset(ends.get(name, name) for name in names) if ends else names


def _chosen(function: Function, expression: ast.expr) -> frozenset[str]:
    node = still(function, expression)
    if isinstance(node, ast.IfExp):
        return _chosen(function, node.body) & _chosen(function, node.orelse)
    if isinstance(node, ast.List | ast.Tuple):
        flat = [one for one in node.elts if not isinstance(one, ast.List | ast.Tuple)]
        return frozenset(name for one in flat for name in _chosen(function, one))
    if isinstance(node, ast.Constant):
        return frozenset((node.value,)) if isinstance(node.value, str) else frozenset()
    if isinstance(node, ast.Name):
        named = function.resolve(node)
        return frozenset((named,)) if isinstance(named, str) else frozenset()
    return frozenset()


def _named_in(source: Source) -> set[str] | None:
    if "Send" not in source.text:
        return set()
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Call) and _called_send(node.func, source):
            first = _first(node)
            name = first.value if isinstance(first, ast.Constant) else source.resolve(first) if first is not None else None
            if not isinstance(name, str) or (isinstance(first, ast.Name) and _bound_inside(source, first.id)):
                return None
            found.add(name)
    return found


def _called_send(called: ast.expr, source: Source) -> bool:
    from langgraph.types import Send

    return source.resolve(called) is Send or ast.unparse(called).rpartition(".")[2] == "Send"


def _bound_inside(source: Source, name: str) -> bool:
    """True if any function of the file has a parameter or a local of this name."""
    trees = [tree for found in source.functions.values() for tree in found]
    arguments = {one.arg for tree in trees for one in ast.walk(tree) if isinstance(one, ast.arg)}
    stored = {
        node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    return name in arguments | stored


def _sends(function: Function) -> Iterator[ast.Call]:
    from langgraph.types import Send

    if "Send" in function.source.text:
        yield from (
            node for node in ast.walk(function.tree) if isinstance(node, ast.Call) and function.resolve(node.func) is Send
        )


def _first(call: ast.Call) -> ast.expr | None:
    return call.args[0] if call.args else next((word.value for word in call.keywords if word.arg == "node"), None)


def _target(function: Function, call: ast.Call) -> str | None:
    first = _first(call)
    name = first.value if isinstance(first, ast.Constant) else function.resolve(first) if isinstance(first, ast.Name) else None
    return name if isinstance(name, str) else None


def _for_each(function: Function, call: ast.Call) -> bool:
    """True if the `Send` is surely made and handed on once for each item."""
    outer = function.parent(call)
    if isinstance(outer, ast.ListComp | ast.GeneratorExp | ast.SetComp) and outer.elt is call:
        plain = all(not part.ifs for part in outer.generators)
        return plain and any(_several(function, part.iter) for part in outer.generators) and _handed_on(function, outer)
    if isinstance(outer, ast.Lambda):
        mapping = function.parent(outer)
        if isinstance(mapping, ast.Call) and function.resolve(mapping.func) is map and len(mapping.args) == 2:
            return _several(function, mapping.args[1]) and _handed_on(function, mapping)
        return False
    loop = in_loop(function, call)
    if not isinstance(loop, ast.For | ast.AsyncFor) or not _several(function, loop.iter):
        return False
    leaves = (ast.Return, ast.Break, ast.Continue, ast.Raise)
    if any(isinstance(part, leaves) for line in loop.body for part in ast.walk(line)):
        return False
    statement = function.parent(outer)
    if isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute) and outer.func.attr == "append":
        listed = outer.func.value
        return (
            isinstance(statement, ast.Expr)
            and any(line is statement for line in loop.body)
            and isinstance(listed, ast.Name)
            and all(grows(function, use) or _passed(function, use) for use in uses(function, listed.id))
        )
    return isinstance(outer, ast.Yield) and any(line is statement for line in loop.body)


def _several(function: Function, items: ast.expr) -> bool:
    """True if nothing keeps what is looped over from having two items, and nobody asks how many there are."""
    items = function.meant(items)
    if isinstance(items, ast.Call):
        called = function.resolve(items.func)
        if getattr(called, "__name__", None) in _PASSING and getattr(called, "__module__", None) == "builtins":
            return bool(items.args) and all(_several(function, one) for one in items.args)
        if not isinstance(items.func, ast.Attribute) or items.func.attr not in ("get", "items", "values", "keys"):
            return False
    elif isinstance(items, ast.Subscript):
        if isinstance(items.slice, ast.Slice):
            return False
    elif isinstance(items, ast.List | ast.Tuple | ast.Set):
        return len(items.elts) > 1
    elif not isinstance(items, ast.Name | ast.Attribute):
        return False
    text = ast.unparse(items)
    asked: list[ast.expr] = []
    for node in function.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            asked += node.args
        if isinstance(node, ast.Compare):
            asked += [node.left, *node.comparators]
    return all(ast.unparse(function.meant(one)) != text for one in asked)


def _handed_on(function: Function, items: ast.expr) -> bool:
    """True if a list of `Send` is returned as it is, or is where a Command goes to."""
    outer = function.parent(items)
    if outer is function.tree or isinstance(outer, ast.Return | ast.YieldFrom):
        return True
    if isinstance(outer, ast.Assign) and len(outer.targets) == 1 and isinstance(outer.targets[0], ast.Name):
        name = outer.targets[0].id
        alone = len(function.locals.get(name, ())) == 1
        found = list(uses(function, name))
        return alone and bool(found) and all(_passed(function, use) for use in found)
    return _passed(function, items)


def _passed(function: Function, node: ast.expr) -> bool:
    outer = function.parent(node)
    if outer is function.tree or isinstance(outer, ast.Return | ast.YieldFrom):
        return True
    if isinstance(outer, ast.keyword):
        above = function.parent(outer)
        return outer.arg == "goto" and isinstance(above, ast.Call) and _handed_on(function, above)
    if isinstance(outer, ast.Call):
        return function.resolve(outer.func) is list and _passed(function, outer)
    if isinstance(outer, ast.BinOp):
        return isinstance(outer.op, ast.Add) and _passed(function, outer)
    if isinstance(outer, ast.BoolOp | ast.IfExp | ast.Starred | ast.List):
        return _passed(function, outer)
    return False
