"""What a node does with the state, read from its tree: the updates it returns and the keys it reads."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from abreast.doctor.flow import before, grows, once, reads_only, still, swallows, uses
from abreast.doctor.sources import Function


@dataclass(frozen=True, slots=True)
class Update:
    """One value that a function returns, as an update of the state.

    `keys` are the keys that it surely writes, with their expressions; `sometimes` those that it writes under a condition.
    `whole` is true if the state itself is returned, or spread into the update, without the keys in `without`. `known` is false
    if there may be keys that cannot be seen.
    """

    node: ast.expr
    keys: Mapping[str, ast.expr]
    whole: bool = False
    known: bool = True
    sometimes: Mapping[str, ast.expr] = field(default_factory=dict)
    without: frozenset[str] = frozenset()

    @property
    def written(self) -> Mapping[str, ast.expr]:
        """Every key that is written, at least sometimes."""
        return {**self.keys, **self.sometimes}


def _all_updates(function: Function) -> tuple[Update, ...]:
    if function.wrapped:
        return tuple(Update(expression, {}, known=False) for expression in function.returns)
    return tuple(found for expression in function.returns for found in _updates(function, expression))


updates = once("updates", _all_updates)
"""Every update that a function returns, `Command(update=...)` too; `None` and a Command without one are updates of no key."""


def _values(function: Function) -> Mapping[str, tuple[ast.expr, ...]]:
    if not isinstance(function.tree, ast.Lambda):
        bare = any(isinstance(node, ast.Return) and node.value is None for node in function.nodes)
        yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in function.nodes)
        if bare or yields or function.wrapped or not _ends(function.tree.body):
            return {}
    found = updates(function)
    names = set.intersection(*(set(one.keys) for one in found)) if found else set()
    return {name: tuple(one.keys[name] for one in found) for name in (found[0].keys if found else ()) if name in names}


values = once("values", _values)
"""The keys that every return writes, with what each return writes there. No end of the body may return nothing."""


def surely(function: Function) -> Mapping[str, ast.expr]:
    """The keys that every return writes, with the expression of the first."""
    return {name: found[0] for name, found in values(function).items()}


def reads(function: Function) -> Iterator[tuple[str, ast.AST, bool]]:
    """Key, node, and whether the key must be there (`state["x"]`) or may be absent (`state.get("x")`)."""
    state = function.state
    if state is None:
        return
    for node in function.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = key_of(node, state)
            if key is not None:
                yield key, node, True
        elif isinstance(node, ast.Call):
            key = key_of(node, state)
            if key is not None:
                yield key, node, False


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


def given_key(function: Function, node: ast.AST) -> str | None:
    """The key whose very object, as the node was given it, an expression means; None if that is not certain."""
    for _ in range(5):
        if not isinstance(node, ast.Name):
            break
        meant = function.meant(node)
        if meant is node:
            return None
        node = meant
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
        node = node.values[0]
    outer = function.parent(node)
    if isinstance(node, ast.Attribute) and isinstance(outer, ast.Call) and outer.func is node:
        return None  # a method of a dict, and no key
    replaced = _replaced(function)
    key = key_of(node, function.state)
    return key if replaced is not None and key not in replaced else None


def old_key(function: Function, node: ast.expr) -> str | None:
    """The key whose old value an expression repeats whole: itself, a copy of it, or either with something appended."""
    for _ in range(5):
        if isinstance(node, ast.Name):
            found = _origin(function, node.id)
            if found is None:
                return None
            node = found
        elif (copied := _copied(function, node)) is not None:
            node = copied
        else:
            break
    return given_key(function, node)


def raised(function: Function, node: ast.expr) -> bool:
    """True for a local name, or an item of the state, that `+=` has changed."""
    changed = [part for part in function.nodes if isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Add)]
    return any(ast.unparse(part.target) == ast.unparse(node) and before(function, part, node) for part in changed)


def _origin(function: Function, name: str) -> ast.expr | None:
    """What a local name was bound to, if it was bound once and at most grew since."""
    bound = function.locals.get(name, ())
    plain = [value for value in bound if value is not None]
    added = [
        node
        for node in function.nodes
        if isinstance(node, ast.AugAssign) and is_name(node.target, name) and isinstance(node.op, ast.Add)
    ]
    if len(plain) != 1 or len(bound) != 1 + len(added) or name in function.parameters:
        return None
    kept = all(reads_only(function, use) or grows(function, use) for use in uses(function, name))
    return plain[0] if kept else None


def _copied(function: Function, node: ast.expr) -> ast.expr | None:
    """What `list(x)`, `copy.copy(x)`, `x.copy()` and `x[:]` copy."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        part = node.slice
        return node.value if part.lower is None and part.upper is None and part.step is None else None
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "copy" and not node.args:
        return node.func.value
    called = function.resolve(node.func)
    if len(node.args) == 1 and not node.keywords and any(called is one for one in (list, copy.copy, copy.deepcopy)):
        return node.args[0]
    return None


def _replaced_keys(function: Function) -> frozenset[str] | None:
    state = function.state
    found: set[str] = set()
    for use in uses(function, state) if state else ():
        outer = function.parent(use)
        above = function.parent(outer)
        if isinstance(outer, ast.Subscript | ast.Attribute) and not isinstance(outer.ctx, ast.Load):
            key = key_of(outer, state)
            if isinstance(above, ast.AugAssign):
                continue
            if key is None:
                return None
            found.add(key)
        elif isinstance(outer, ast.Attribute) and isinstance(above, ast.Call) and above.func is outer:
            first = above.args[0] if above.args else None
            if outer.attr in ("update", "clear", "popitem", "setdefault", "__setitem__"):
                return None
            if outer.attr == "pop":
                if not isinstance(first, ast.Constant):
                    return None
                found.add(str(first.value))
    return frozenset(found)


_replaced = once("replaced", _replaced_keys)
"""The keys that a function binds anew, or deletes, in the state that it was given; None if that cannot be said."""


def _updates(function: Function, expression: ast.expr) -> Iterator[Update]:
    from langgraph.types import Command

    node = function.meant(expression)
    other = isinstance(expression, ast.Name) and not isinstance(node, ast.Name | ast.Call | ast.Constant | ast.Dict)
    if other and node is not still(function, expression):
        yield Update(node, {}, known=False)
    elif isinstance(node, ast.Constant):
        yield Update(node, {})
    elif isinstance(node, ast.IfExp):
        yield from _updates(function, node.body)
        yield from _updates(function, node.orelse)
    elif isinstance(node, ast.Call) and function.resolve(node.func) is Command:
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if None in given or node.args or "graph" in given:
            yield Update(node, {}, known=False)  # an update of the graph above, or one that cannot be seen
        else:
            yield from _updates(function, given.get("update", ast.Constant(None)))
    else:
        yield _built(function, expression, _literal(function, node))


def _literal(function: Function, node: ast.expr) -> Update:
    """An expression that makes a dict, as an update."""
    state = function.state
    replaced = _replaced(function)
    without = replaced or frozenset()
    if isinstance(node, ast.Dict):
        return _dict(node, function)
    if isinstance(node, ast.Name) and node.id == state and state is not None:
        return Update(node, {}, whole=replaced is not None, known=replaced is not None, without=without)
    if isinstance(node, ast.Call) and _copies(function, node, state):
        keys = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        known = replaced is not None and all(keyword.arg for keyword in node.keywords)
        return Update(node, keys, whole=known, known=known, without=without)
    if isinstance(node, ast.Call) and function.resolve(node.func) is dict and not node.args:
        keys = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        return Update(node, keys, known=all(keyword.arg for keyword in node.keywords))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and isinstance(node.right, ast.Dict):
        right = _dict(node.right, function)
        left = is_name(node.left, state) and state is not None and replaced is not None
        return Update(node, right.keys, whole=right.known and (left or right.whole), known=left, without=without)
    return Update(node, {}, known=False)


def _dict(node: ast.Dict, function: Function) -> Update:
    keys: dict[str, ast.expr] = {}
    whole, known = False, True
    replaced = _replaced(function)
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            if is_name(value, function.state) and function.state is not None and replaced is not None:
                keys, whole = {}, True
            elif isinstance(value, ast.Dict):
                inner = _dict(value, function)
                keys.update(inner.keys)
                whole, known = whole or inner.whole, known and inner.known
            else:
                keys, whole, known = {}, False, False  # it may hold any key, and replace those before it
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            keys[key.value] = value
        else:
            whole, known = False, False
    return Update(node, keys, whole, known, without=replaced or frozenset())


def _built(function: Function, expression: ast.expr, base: Update) -> Update:
    """The update behind a local name, with what is written to it until it is returned."""
    if not isinstance(expression, ast.Name) or function.meant(expression) is expression:
        return base
    keys: dict[str, ast.expr] = dict(base.keys)
    sometimes: dict[str, ast.expr] = {}
    for use in uses(function, expression.id):
        written = _written_to(function, use)
        if written is None:
            return Update(base.node, {}, known=False)
        statement, parts = written
        for name, value in parts.items():
            if before(function, statement, expression):
                keys[name] = value
                sometimes.pop(name, None)
            else:
                sometimes[name] = value
    for name in sometimes.keys() & keys.keys():
        keys[name] = expression  # which of the two is returned cannot be said
    return Update(base.node, keys, base.whole, base.known, sometimes, base.without)


def _written_to(function: Function, use: ast.Name) -> tuple[ast.AST, Mapping[str, ast.expr]] | None:
    """The statement and the keys that one use of a dict writes; None if it may change more than can be seen."""
    outer = function.parent(use)
    above = function.parent(outer)
    key = key_of(outer, use.id) if isinstance(outer, ast.Subscript) and outer.value is use else None
    if key is not None and isinstance(outer, ast.Subscript):
        if isinstance(outer.ctx, ast.Store) and isinstance(above, ast.Assign | ast.AugAssign):
            alone = isinstance(above, ast.Assign) and len(above.targets) == 1
            return above, {key: above.value if isinstance(above, ast.Assign) and alone else outer}
        if isinstance(outer.ctx, ast.Load) and not reads_only(function, use):
            return outer, {key: outer}  # the key stays, and its value is changed
    if isinstance(outer, ast.Attribute) and outer.attr == "update" and isinstance(above, ast.Call):
        given = above.args[0] if len(above.args) == 1 else ast.Dict([], [])
        literal = _dict(given, function) if isinstance(given, ast.Dict) else None
        if literal is None or not literal.known or literal.whole or any(word.arg is None for word in above.keywords):
            return None
        statement = function.parent(above) or above
        return statement, {**literal.keys, **{word.arg: word.value for word in above.keywords if word.arg}}
    return (outer or use, {}) if reads_only(function, use) else None


def _copies(function: Function, node: ast.Call, state: str | None) -> bool:
    """`dict(state, ...)`, `copy.copy(state)`, `copy.deepcopy(state)`, `state.copy()`, `state.model_copy()`."""
    if state is None:
        return False
    called = function.resolve(node.func)
    if any(called is one for one in (dict, copy.copy, copy.deepcopy)):
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
        return not swallows(last) and _ends(last.body)
    if isinstance(last, ast.Try):
        return all(_ends(part) for part in [last.orelse or last.body, *(handler.body for handler in last.handlers)])
    return False
