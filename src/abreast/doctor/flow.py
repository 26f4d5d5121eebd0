"""What surely happens in a function's body: which statement runs before which, and what becomes of a local name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from abreast.doctor.sources import Function

MUTATING = frozenset(
    (
        *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "appendleft", "extendleft", "popleft"),
        *("update", "setdefault", "popitem", "add", "discard"),
        *("difference_update", "intersection_update", "symmetric_difference_update"),
    )
)
"""Methods of list, dict, set and deque that change the object in place."""

GROWING = frozenset(("append", "extend", "insert"))
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_READERS = (print, len, str, repr, bool, any, all, list, tuple, dict, set, frozenset, sorted, enumerate, isinstance, sum)
_LOGGING = frozenset(("debug", "info", "warning", "error", "exception", "log"))

T = TypeVar("T")


def once(name: str, make: Callable[[Function], T]) -> Callable[[Function], T]:
    """The function with its answers kept in the Function itself, so that each is found once in an examination."""

    def kept(function: Function) -> T:
        known: dict[str, Any] = vars(function).setdefault("_known", {})
        if name not in known:
            known[name] = make(function)
        found: T = known[name]
        return found

    return kept


def before(function: Function, statement: ast.AST, node: ast.AST) -> bool:
    """True if the statement has surely run when the node is reached: it stands before it, in a block that holds both."""
    return any(_precedes(outer, statement, inner) for outer, inner in function.around(node))


def surely_runs(function: Function, node: ast.AST) -> bool:
    """True if every call of the function that ends without an error evaluates the node."""
    for outer, inner in function.around(node):
        if isinstance(outer, ast.IfExp | ast.If | ast.While) and inner is not outer.test:
            return False
        if isinstance(outer, ast.BoolOp) and inner is not outer.values[0]:
            return False
        if isinstance(outer, ast.Compare) and inner is not outer.left and inner is not outer.comparators[0]:
            return False
        if isinstance(outer, ast.For | ast.AsyncFor) and inner is not outer.iter:
            return False
        if isinstance(outer, ast.comprehension | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return False
        if isinstance(outer, ast.Try | ast.TryStar | ast.Match | ast.match_case | ast.Assert):
            return False
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef) and outer is not function.tree:
            return False
        if isinstance(outer, ast.With | ast.AsyncWith) and not isinstance(inner, ast.withitem) and swallows(outer):
            return False
    at = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    leaving = (part for part in function.nodes if isinstance(part, ast.Return | ast.Yield | ast.YieldFrom))
    own = {id(outer) for outer, _ in function.around(node)}
    return not any((part.lineno, part.col_offset) < at and id(part) not in own for part in leaving)


def swallows(block: ast.With | ast.AsyncWith) -> bool:
    """True for `with suppress(...)` and its like, whose body an error may leave early without leaving the function."""
    return any("suppress" in ast.unparse(item.context_expr) or "raises" in ast.unparse(item.context_expr) for item in block.items)


def in_loop(function: Function, node: ast.AST) -> ast.AST | None:
    """The innermost loop whose body holds the node."""
    return next((outer for outer, _ in function.around(node) if isinstance(outer, LOOPS)), None)


def uses(function: Function, name: str) -> tuple[ast.Name, ...]:
    """Every place that reads a local name, in functions defined inside too."""
    return function.loads.get(name, ())


def reads_only(function: Function, use: ast.Name) -> bool:
    """True if the object behind a name is only looked at here, so that it is afterwards what it was before."""
    outer = function.parent(use)
    if isinstance(outer, ast.Subscript) and outer.value is use:
        return isinstance(outer.ctx, ast.Load) and not _changed_by(function, outer)
    if isinstance(outer, ast.Attribute):
        above = function.parent(outer)
        return isinstance(outer.ctx, ast.Load) and not (isinstance(above, ast.Call) and outer.attr in MUTATING)
    if isinstance(outer, ast.Call):
        if isinstance(outer.func, ast.Attribute) and outer.func.attr in _LOGGING:
            return True
        called = function.resolve(outer.func)
        return any(called is reader for reader in _READERS)
    if isinstance(outer, ast.keyword):
        return outer.arg == "update"
    if isinstance(outer, LOOPS):
        return True
    return isinstance(
        outer,
        ast.FormattedValue | ast.Compare | ast.Return | ast.BoolOp | ast.UnaryOp | ast.If | ast.IfExp | ast.Starred | ast.Dict
        | ast.List | ast.Tuple | ast.BinOp | ast.comprehension | ast.Subscript,
    )  # fmt: skip


def grows(function: Function, use: ast.Name) -> bool:
    """True for `name.append(...)` and its like."""
    outer = function.parent(use)
    return isinstance(outer, ast.Attribute) and outer.attr in GROWING


def still(function: Function, node: ast.expr) -> ast.expr:
    """The expression behind a local name whose object nobody has changed since; otherwise the name itself."""
    for _ in range(5):
        meant = function.meant(node) if isinstance(node, ast.Name) else node
        if meant is node or not isinstance(node, ast.Name):
            break
        if not all(reads_only(function, use) for use in uses(function, node.id)):
            break
        node = meant
    return node


def mutated(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions whose objects a tree node changes in place."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING:
        yield node.func.value
    elif isinstance(node, ast.Assign | ast.Delete):
        yield from (one.value for one in node.targets if isinstance(one, ast.Subscript))
    elif isinstance(node, ast.AugAssign):
        yield node.target
        if isinstance(node.target, ast.Subscript):
            yield node.target.value


def _changed_by(function: Function, node: ast.AST) -> bool:
    """True if what an item holds is itself changed: `name["key"].append(...)`."""
    outer = function.parent(node)
    if isinstance(outer, ast.Attribute):
        return outer.attr in MUTATING
    return isinstance(outer, ast.Subscript) and outer.value is node and not isinstance(outer.ctx, ast.Load)


def _precedes(outer: ast.AST, statement: ast.AST, inner: ast.AST) -> bool:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(outer, name, None)
        if isinstance(block, list) and any(one is inner for one in block):
            for one in block:
                if one is inner:
                    return False
                if one is statement:
                    return True
    return False
