"""The application's source: files read once, and the functions in them that the graph really calls.

A function is found by its code object, so its tree is the one that runs, with the line numbers of its file. Where there is
no text (a function made by `exec`, an extension module) there is no tree, and the subject says "not looked into".
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from abreast.doctor.findings import Spot

FunctionTree = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
MISSING = object()
"""A name that could not be resolved; it is not None, which a name may well mean."""

_OURS = Path(__file__).resolve().parents[1]
_LIBRARIES = tuple(
    Path(path).resolve() for name, path in sysconfig.get_paths().items() if name in {"stdlib", "platstdlib", "purelib", "platlib"}
)


def own(file: str) -> bool:
    """True for a file of the application: not of the interpreter, not of an installed package, not of abreast."""
    if "site-packages" in file or "dist-packages" in file or file.startswith("<frozen"):
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(root) for root in (*_LIBRARIES, _OURS))


@dataclass(frozen=True)
class Source:
    """One file of the application."""

    file: str
    lines: tuple[str, ...]
    tree: ast.Module
    functions: Mapping[int, tuple[FunctionTree, ...]]
    classes: Mapping[str, ast.ClassDef]
    namespace: Mapping[str, Any]
    nodes: tuple[ast.AST, ...]
    """Everything in the file."""

    @functools.cached_property
    def text(self) -> str:
        return "".join(self.lines)

    def spot(self, node: ast.AST) -> Spot:
        return Spot(self.file, getattr(node, "lineno", 1))

    def hands_on(self, tree: FunctionTree) -> bool:
        """True for a function that others may call: a decorator made a tool of it, or the file uses its name without a call."""
        if isinstance(tree, ast.Lambda):
            return True
        made = tame(self.namespace.get(tree.name)) if isinstance(parent_of(tree), ast.Module) else None
        if made is not None and made is not MISSING and not isinstance(made, FunctionType):
            return True
        for node in self.nodes:
            if isinstance(node, ast.Name) and node.id == tree.name and isinstance(node.ctx, ast.Load):
                above = parent_of(node)
                if not isinstance(above, ast.Call) or above.func is not node:
                    return True
        return False

    def resolve(self, node: ast.expr) -> Any:
        """What a name or a dotted name means in this file; MISSING if that cannot be said without running code."""
        return _resolve(node, lambda name: self.namespace.get(name, MISSING))


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the application with its tree. `parameters` are those that a caller gives: a method's `self` is not one.

    `payload` is true for a node that `Send` starts: its first parameter is what `Send` carries, and not the graph's state.
    `wrapped` is true if a decorator of the application may change what the function is given, or what it returns.
    """

    name: str
    call: FunctionType
    tree: FunctionTree
    source: Source
    parameters: tuple[str, ...]
    payload: bool = False
    wrapped: bool = False

    @property
    def spot(self) -> Spot:
        return Spot(self.source.file, self.tree.lineno)

    def at(self, node: ast.AST) -> Spot:
        return Spot(self.source.file, getattr(node, "lineno", self.tree.lineno))

    @functools.cached_property
    def state(self) -> str | None:
        """The name that means the graph's state in the whole body: the first parameter, if nothing else is bound to it."""
        first = self.parameters[0] if self.parameters and not self.payload and not self.wrapped else None
        return first if first not in self.locals else None

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Everything in the body, without what stands in functions and classes defined inside."""
        return tuple(walk(self.tree))

    def parent(self, node: ast.AST | None) -> ast.AST | None:
        """What a tree node stands in."""
        return parent_of(node)

    def around(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """What a tree node stands in, from the inside outwards up to the function, each with the part that holds the node."""
        while node is not self.tree and (outer := self.parent(node)) is not None:
            yield outer, node
            node = outer

    @functools.cached_property
    def loads(self) -> Mapping[str, tuple[ast.Name, ...]]:
        """Each name with the places that read it, in functions defined inside too."""
        found: dict[str, list[ast.Name]] = {}
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            tree = waiting.pop()
            for node in (tree, *walk(tree)):
                if isinstance(node, ast.Name):
                    if isinstance(node.ctx, ast.Load):
                        found.setdefault(node.id, []).append(node)
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and node is not tree:
                    waiting += [node, node.args]
                elif isinstance(node, ast.ClassDef) and node is not tree:
                    waiting += [*node.bases, *node.body]
        return {name: tuple(nodes) for name, nodes in found.items()}

    @functools.cached_property
    def returns(self) -> tuple[ast.expr, ...]:
        """The expressions that the function returns; a bare `return` and the end of the body are not among them."""
        if isinstance(self.tree, ast.Lambda):
            return (self.tree.body,)
        return tuple(node.value for node in self.nodes if isinstance(node, ast.Return) and node.value is not None)

    @functools.cached_property
    def rebound(self) -> frozenset[str]:
        """The names that the body binds otherwise than by `+=` and its like, which may change the object itself."""
        changed = [node.target.id for node in self.nodes if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)]
        return frozenset(name for name, values in self.locals.items() if len(values) > changed.count(name))

    @functools.cached_property
    def locals(self) -> Mapping[str, tuple[ast.expr | None, ...]]:
        """Each name that the body binds, with what it is bound to (None where that is no plain assignment)."""
        found: dict[str, list[ast.expr | None]] = {}
        for node in self.nodes:
            if type(node) not in _BINDING:
                continue
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    plain = isinstance(target, ast.Name)
                    for name in _bound(target):
                        found.setdefault(name, []).append(node.value if plain else None)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(None)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                for name in _bound(node.target):
                    found.setdefault(name, []).append(None)
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                for name in _bound(node.optional_vars):
                    found.setdefault(name, []).append(None)
            else:
                for name in _named(node):
                    found.setdefault(name, []).append(None)
        return {name: tuple(values) for name, values in found.items()}

    def meant(self, node: ast.expr) -> ast.expr:
        """The expression behind a local name that is assigned exactly once; otherwise the expression itself."""
        seen = 0
        while isinstance(node, ast.Name) and seen < 5:
            values = self.locals.get(node.id, ())
            if len(values) != 1 or values[0] is None or node.id in self.parameters:
                break
            node, seen = values[0], seen + 1
        return node

    def resolve(self, node: ast.expr) -> Any:
        """What a global or an enclosing name, or a dotted name, means to this function; MISSING for locals and the unknown."""
        return _resolve(node, self._lookup)

    def calls(self, *meant: Any) -> Iterator[ast.Call]:
        """The calls in the body whose function is one of these objects (classes, functions), by whatever name."""
        for call, called in self.called:
            if any(called is one for one in meant):
                yield call

    @functools.cached_property
    def called(self) -> tuple[tuple[ast.Call, Any], ...]:
        """The calls in the body, each with what its function means."""
        return tuple((node, self.resolve(node.func)) for node in self.nodes if isinstance(node, ast.Call))

    def _lookup(self, name: str) -> Any:
        code = self.call.__code__
        if name in self.parameters or name in self.locals or name in code.co_varnames:
            return MISSING
        if name in code.co_freevars and self.call.__closure__:
            cell = self.call.__closure__[code.co_freevars.index(name)]
            try:
                return cell.cell_contents
            except ValueError:
                return MISSING
        builtins = self.call.__globals__.get("__builtins__", {})
        known = vars(builtins) if isinstance(builtins, ModuleType) else builtins
        return self.call.__globals__.get(name, known.get(name, MISSING))


class Sources:
    """The files of one examination, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, Source | None] = {}
        self._functions: dict[tuple[int, int, bool], Function | None] = {}

    def __iter__(self) -> Iterator[Source]:
        return (source for source in list(self._files.values()) if source is not None)

    def lines(self, file: str) -> tuple[str, ...]:
        source = self._files.get(file)
        return source.lines if source else ()

    def file(self, file: str, namespace: Mapping[str, Any]) -> Source | None:
        """A file of the application by name; None if it is not the application's, or has no text that parses."""
        if file not in self._files:
            self._files[file] = _read(file, namespace) if own(file) else None
        return self._files[file]

    def module(self, name: str) -> Source | None:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        return self.file(file, vars(module)) if module is not None and file else None

    def function(self, thing: Any) -> Function | None:
        """The function behind a callable (a method, a partial, an object with `__call__`, a wrapped function)."""
        call, skip = plain(thing)
        if call is None:
            return None
        wrapped = any(not self._hands_on(one) for one in _wrappers(thing))
        key = (id(call.__code__), skip, wrapped)
        if key not in self._functions or call.__closure__:
            self._functions[key] = self._function(call, skip, wrapped)
        return self._functions[key]

    def _hands_on(self, wrapper: FunctionType) -> bool:
        """True for a wrapper of a library, and for one that returns what the wrapped function returns to its own arguments."""
        if not own(wrapper.__code__.co_filename):
            return True
        function = self._function(wrapper, 0, False)
        if function is None or not function.returns:
            return False
        return all(_passed_on(function, one) for one in function.returns)

    def _function(self, call: FunctionType, skip: int, wrapped: bool) -> Function | None:
        code = call.__code__
        source = self.file(code.co_filename, call.__globals__)
        if source is None:
            return None
        trees = [tree for tree in source.functions.get(code.co_firstlineno, ()) if _same(tree, code)]
        if len(trees) != 1:
            return None  # two lambdas alike on one line: which of them runs cannot be said
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return Function(call.__name__, call, trees[0], source, tuple(names[skip:]), wrapped=wrapped)

    def library(self, thing: Any) -> bool:
        """True if a callable is code of an installed package, which is not the application's to mend."""
        call, _ = plain(thing)
        return call is None or not own(call.__code__.co_filename)

    def klass(self, cls: Any) -> tuple[Source, ast.ClassDef] | None:
        """The class statement of a class of the application."""
        source = self.module(getattr(cls, "__module__", ""))
        tree = source.classes.get(getattr(cls, "__qualname__", "")) if source else None
        return (source, tree) if source and tree else None


def plain(thing: Any) -> tuple[FunctionType | None, int]:
    """The Python function behind a callable, and how many of its first parameters are already given."""
    skip = 0
    for _ in range(20):
        if isinstance(thing, functools.partial):
            skip, thing = skip + len(thing.args), thing.func
        elif inspect.ismethod(thing):
            skip, thing = skip + 1, thing.__func__
        elif isinstance(thing, FunctionType):
            if not hasattr(thing, "__wrapped__"):
                return thing, skip
            thing = thing.__wrapped__
        elif isinstance(thing, type) or not callable(thing):
            return None, 0
        else:
            called = inspect.getattr_static(type(thing), "__call__", None)
            if not isinstance(called, FunctionType):
                return None, 0
            skip, thing = skip + 1, called
    return None, 0


def _wrappers(thing: Any) -> Iterator[FunctionType]:
    """The functions around the one that `plain` finds."""
    for _ in range(20):
        if isinstance(thing, functools.partial):
            thing = thing.func
        elif inspect.ismethod(thing):
            thing = thing.__func__
        elif isinstance(thing, FunctionType) and hasattr(thing, "__wrapped__"):
            yield thing
            thing = thing.__wrapped__
        else:
            return


def _passed_on(wrapper: Function, returned: ast.expr) -> bool:
    node = wrapper.meant(returned)
    node = node.value if isinstance(node, ast.Await) else node
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Name)
        or node.func.id not in wrapper.call.__code__.co_freevars
    ):
        return False
    given = [*node.args, *(word.value for word in node.keywords)]
    names = [one.value if isinstance(one, ast.Starred) else one for one in given]
    arguments = set(wrapper.call.__code__.co_varnames[: wrapper.call.__code__.co_nlocals]) - set(wrapper.locals)
    only = all(isinstance(one, ast.Name) and one.id in arguments for one in names)
    return only and (node is returned or not isinstance(returned, ast.Name) or len(wrapper.loads.get(returned.id, ())) == 1)


def tame(thing: Any) -> Any:
    """An object that can be asked for its class; MISSING for a proxy that answers only inside of a request."""
    try:
        isinstance(thing, FunctionType)
    except Exception:  # the application's own class may raise anything
        return MISSING
    return thing


def parent_of(node: ast.AST | None) -> ast.AST | None:
    """What a node of a file's tree stands in."""
    found: ast.AST | None = getattr(node, _PARENT, None)
    return found


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a tree in the order of the text, without what stands in functions and classes defined inside it.

    For the functions of a file, and the file itself, they are known since it was read.
    """
    known: tuple[ast.AST, ...] | None = getattr(tree, _BODY, None)
    if known is not None:
        yield from known
        return
    if isinstance(tree, FunctionTree):
        body: list[ast.AST] = [tree.body] if isinstance(tree, ast.Lambda) else list(tree.body)
    else:
        body = list(ast.iter_child_nodes(tree))
    waiting = body[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def _read(file: str, namespace: Mapping[str, Any]) -> Source | None:
    lines = tuple(linecache.getlines(file, dict(namespace)))
    if not lines:
        return None
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return None
    functions: dict[int, list[FunctionTree]] = {}
    classes: dict[str, ast.ClassDef] = {}
    nodes: list[ast.AST] = []
    bodies: list[tuple[ast.AST, list[ast.AST]]] = [(tree, [])]
    # In one pass over the file: each node with the function that it belongs to, and the name of what it stands in.
    waiting: list[tuple[ast.AST, list[ast.AST] | None, str]] = [(one, bodies[0][1], "") for one in _below(tree)]
    while waiting:
        node, owner, prefix = waiting.pop()
        nodes.append(node)
        if owner is not None:
            owner.append(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            first = node.lineno
            if not isinstance(node, ast.Lambda):
                first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
                prefix = f"{prefix}{node.name}.<locals>."
            functions.setdefault(first, []).append(node)
            inside: list[ast.AST] = []
            bodies.append((node, inside))
            body = {id(one) for one in (node.body if isinstance(node.body, list) else [node.body])}
            waiting.extend((one, inside if id(one) in body else None, prefix) for one in _below(node))
        elif isinstance(node, ast.ClassDef):
            classes[prefix + node.name] = node
            waiting.extend((one, None, f"{prefix}{node.name}.") for one in _below(node))
        else:
            waiting.extend((one, owner, prefix) for one in _below(node))
    for node, found in bodies:
        setattr(node, _BODY, tuple(found))
    return Source(file, lines, tree, {at: tuple(found) for at, found in functions.items()}, classes, namespace, tuple(nodes))


_BODY, _PARENT = "_abreast_body", "_abreast_parent"
_SIGNS = (ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)


def _below(node: ast.AST) -> list[ast.AST]:
    """What stands directly below a node, last first; each of them remembers the node."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        for one in value if type(value) is list else (value,):
            if isinstance(one, ast.AST) and not isinstance(one, _SIGNS):
                setattr(one, _PARENT, node)
                found.append(one)
    return found[::-1]


def _same(tree: FunctionTree, code: CodeType) -> bool:
    name = "<lambda>" if isinstance(tree, ast.Lambda) else tree.name
    arguments = tree.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    # A parameter inside a class may be mangled, so only their number is compared there.
    return name == code.co_name and len(given) == len(taken)


def _bound(target: ast.expr) -> Iterator[str]:
    """The names that a target binds: those of a tuple too, not the object whose item or attribute is set."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _bound(element)
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value)


_BINDING = frozenset(
    (
        *(ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.ExceptHandler),
        *(ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.Delete, ast.Global, ast.Nonlocal),
    )
)
"""The statements that give a name a meaning."""


def _named(node: ast.AST) -> Iterator[str]:
    """The names that other statements bind: definitions, imports, `except ... as`, patterns, `del`, `global`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((one.asname or one.name).partition(".")[0] for one in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        yield from (node.name,) if node.name else ()
    elif isinstance(node, ast.MatchMapping):
        yield from (node.rest,) if node.rest else ()
    elif isinstance(node, ast.Delete):
        yield from (one.id for one in node.targets if isinstance(one, ast.Name))
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def _resolve(node: ast.expr, lookup: Any) -> Any:
    if isinstance(node, ast.Name):
        return tame(lookup(node.id))
    if isinstance(node, ast.Subscript):
        return _resolve(node.value, lookup) if isinstance(node.value, ast.Name | ast.Attribute) else MISSING
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, lookup)
        if isinstance(owner, ModuleType):
            return tame(getattr(owner, node.attr, MISSING))
        if isinstance(owner, type):
            found = inspect.getattr_static(owner, node.attr, MISSING)
            return found.__func__ if isinstance(found, classmethod | staticmethod) else found
    return MISSING
