"""What a node does with the state, read from its tree: the updates it returns and the keys it reads."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from abreast.doctor.sources import Function


@dataclass(frozen=True, slots=True)
class Update:
    """One value that a function returns, as an update of the state.

    `keys` are the keys that it surely writes, with their expressions. `whole` is true if the state itself is returned, or
    spread into the update. `known` is false if there may be keys that cannot be seen.
    """

    node: ast.expr
    keys: Mapping[str, ast.expr]
    whole: bool = False
    known: bool = True


def updates(function: Function) -> tuple[Update, ...]:
    """Every update that a function returns, `Command(update=...)` too; `None` and a Command without one are updates of no key."""
    return tuple(found for expression in function.returns for found in _updates(function, expression))


def surely(function: Function) -> Mapping[str, ast.expr]:
    """The keys that every return writes, and with no end of the body that returns nothing. A generator writes none for sure."""
    if not isinstance(function.tree, ast.Lambda):
        bare = any(isinstance(node, ast.Return) and node.value is None for node in function.nodes)
        yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in function.nodes)
        if bare or yields or not _ends(function.tree.body):
            return {}
    found = updates(function)
    names = set.intersection(*(set(one.keys) for one in found)) if found else set()
    return {name: value for name, value in (found[0].keys.items() if found else ()) if name in names}


def reads(function: Function) -> Iterator[tuple[str, ast.AST, bool]]:
    """Key, node, and whether the key must be there (`state["x"]`) or may be absent (`state.get("x")`)."""
    state = function.state
    if state is None or state in function.locals:
        return
    for node in function.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = key_of(node, state)
            if key is not None:
                yield key, node, True
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and is_name(node.func.value, state)
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield str(node.args[0].value), node, False


def key_of(node: ast.AST, state: str | None) -> str | None:
    """The key of `state["key"]` or of `state.get("key", ...)`, or the name of `state.key`; None for anything else."""
    if state is None:
        return None
    if isinstance(node, ast.Subscript) and is_name(node.value, state):
        part = node.slice
        return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_name(node.func.value, state):
        first = node.args[0] if node.args else None
        if node.func.attr == "get" and isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value
        return None
    if isinstance(node, ast.Attribute) and is_name(node.value, state):
        return node.attr
    return None


def is_name(node: ast.AST, name: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _updates(function: Function, expression: ast.expr) -> Iterator[Update]:
    from langgraph.types import Command

    node = function.meant(expression)
    state = function.state
    if isinstance(node, ast.Constant):
        yield Update(node, {})
    elif isinstance(node, ast.IfExp):
        yield from _updates(function, node.body)
        yield from _updates(function, node.orelse)
    elif isinstance(node, ast.Dict):
        yield _dict(node, state, changed=_changed_later(function, expression))
    elif isinstance(node, ast.Name) and node.id == state:
        yield Update(node, {}, whole=True)
    elif isinstance(node, ast.Call) and function.resolve(node.func) is Command:
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "update"), ast.Constant(None))
        yield from _updates(function, given)
    elif isinstance(node, ast.Call) and _copies(function, node, state):
        keys = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        yield Update(node, keys, whole=True)
    elif isinstance(node, ast.Call) and function.resolve(node.func) is dict and not node.args:
        keys = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        yield Update(node, keys, known=all(keyword.arg for keyword in node.keywords))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and isinstance(node.right, ast.Dict):
        right = _dict(node.right, state, changed=False)
        yield Update(node, right.keys, whole=is_name(node.left, state) or right.whole, known=is_name(node.left, state))
    else:
        yield Update(node, {}, known=False)


def _dict(node: ast.Dict, state: str | None, *, changed: bool) -> Update:
    keys: dict[str, ast.expr] = {}
    whole, known = False, not changed
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            if is_name(value, state):
                whole = True
            else:
                known = False
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            keys[key.value] = value
        else:
            known = False
    return Update(node, keys, whole, known)


def _changed_later(function: Function, expression: ast.expr) -> bool:
    """True if the dict behind a name is handed on or written to before it is returned, so that it may hold more keys."""
    if not isinstance(expression, ast.Name):
        return False
    uses = [node for node in function.nodes if is_name(node, expression.id)]
    return len(uses) > 2


def _copies(function: Function, node: ast.Call, state: str | None) -> bool:
    """`dict(state, ...)`, `copy.copy(state)`, `copy.deepcopy(state)`, `state.copy()`, `state.model_copy()`."""
    called = function.resolve(node.func)
    if called in (dict, copy.copy, copy.deepcopy):
        return len(node.args) == 1 and is_name(node.args[0], state)
    attribute = node.func
    return isinstance(attribute, ast.Attribute) and attribute.attr == "copy" and is_name(attribute.value, state)


def _ends(body: list[ast.stmt]) -> bool:
    """True if the body cannot be left at its end."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Return | ast.Raise):
        return True
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    if isinstance(last, ast.With | ast.AsyncWith):
        return _ends(last.body)
    if isinstance(last, ast.Try):
        return all(_ends(part) for part in [last.orelse or last.body, *(handler.body for handler in last.handlers)])
    if isinstance(last, ast.Match):
        return False
    return False
