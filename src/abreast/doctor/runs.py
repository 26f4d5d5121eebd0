"""Where the application itself runs a graph: the calls in its files, with their input, their config and their context."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from abreast.doctor.sources import MISSING, FunctionTree, Source, Sources, walk

RUNS = frozenset(("invoke", "ainvoke", "stream", "astream", "astream_events"))
_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Parts:
    """The keys of a dict with their expressions. `known` is false if there may be others."""

    keys: Mapping[str, ast.expr]
    known: bool

    def get(self, name: str) -> ast.expr | None:
        return self.keys.get(name)


UNKNOWN = Parts({}, known=False)


@dataclass(frozen=True, eq=False)
class Scope:
    """A function of a file inside the functions around it, outermost first; or the file itself, without any."""

    source: Source
    functions: tuple[FunctionTree, ...]
    bound: frozenset[str]
    """The names that mean something else here than in the file."""
    nodes: tuple[ast.AST, ...]

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(one.arg for tree in self.functions for one in _arguments(tree))

    def resolve(self, node: ast.expr) -> Any:
        """What a name of the file means; MISSING for a name of a function, and for one that the file binds more than once."""
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if names & self.bound or any(_times(self.source, name) > 1 for name in names):
            return MISSING
        return self.source.resolve(node)

    def meant(self, node: ast.expr | None) -> ast.expr | None:
        """The expression behind a name that is bound once, in this function or in the file."""
        for _ in range(5):
            if not isinstance(node, ast.Name):
                break
            found = self._once(node.id)
            if found is None:
                break
            node = found
        return node

    def parts(self, node: ast.expr | None) -> Parts:
        """The keys of a dict: a literal, `dict(...)`, a TypedDict, or a name for one, with what is written to it later."""
        meant = self.meant(node)
        if isinstance(meant, ast.Dict):
            constants = [(key.value, value) for key, value in _pairs(meant) if isinstance(key, ast.Constant)]
            keys = {key: value for key, value in constants if isinstance(key, str)}
            found = Parts(keys, known=len(keys) == len(meant.keys))
        elif isinstance(meant, ast.Call) and not meant.args and self._makes_dict(meant):
            keys = {word.arg: word.value for word in meant.keywords if word.arg}
            found = Parts(keys, known=len(keys) == len(meant.keywords))
        else:
            return UNKNOWN
        return self._written(node.id, found) if isinstance(node, ast.Name) else found

    def below(self, node: ast.expr | None, name: str) -> Parts:
        """The keys of the dict under a key of a dict: `{"configurable": {...}}`."""
        outer = self.parts(node)
        found = self.parts(outer.get(name)) if name in outer.keys else Parts({}, known=outer.known)
        if isinstance(node, ast.Name):
            keys = dict(found.keys)
            for part in self.nodes:
                for target in part.targets if isinstance(part, ast.Assign) else ():
                    inner = target.value if isinstance(target, ast.Subscript) else None
                    if isinstance(inner, ast.Subscript) and _item_of(inner) == (node.id, name):
                        for item, value in _set_item(target, part):
                            keys[item] = value
            found = Parts(keys, found.known)
        return found

    def _makes_dict(self, call: ast.Call) -> bool:
        called = self.resolve(call.func)
        builtin = called is MISSING and isinstance(call.func, ast.Name) and call.func.id == "dict" and "dict" not in self.bound
        return builtin or hasattr(called, "__required_keys__")

    def _written(self, name: str, found: Parts) -> Parts:
        keys, known = dict(found.keys), found.known
        for part in self.nodes:
            if isinstance(part, ast.Assign):
                for target in part.targets:
                    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name:
                        if isinstance(target.slice, ast.Constant):
                            keys[str(target.slice.value)] = part.value
                        else:
                            known = False
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and isinstance(part.func.value, ast.Name):
                known = known and (part.func.value.id != name or part.func.attr in ("get", "copy", "items", "keys", "values"))
        return Parts(keys, known)

    def _once(self, name: str) -> ast.expr | None:
        inside = name in self.bound
        if inside and (not self.functions or name in {one.arg for one in _arguments(self.functions[-1])}):
            return None
        nodes = self.nodes if inside else tuple(walk(self.source.tree))
        stores = [one for one in nodes if isinstance(one, ast.Name) and one.id == name and not isinstance(one.ctx, ast.Load)]
        values = [
            one.value
            for one in nodes
            if (isinstance(one, ast.Assign) and any(target is store for target in one.targets for store in stores))
            or (isinstance(one, ast.AnnAssign) and any(one.target is store for store in stores))
        ]
        return values[0] if len(stores) == len(values) == 1 else None


@dataclass(frozen=True, eq=False)
class Run:
    """One call that runs the graph."""

    scope: Scope
    call: ast.Call

    @property
    def input(self) -> ast.expr | None:
        return self.call.args[0] if self.call.args else self.keyword("input")

    @property
    def config(self) -> ast.expr | None:
        return self.call.args[1] if len(self.call.args) > 1 else self.keyword("config")

    @property
    def given(self) -> Parts:
        """The keys of the input; none for a run that goes on from a checkpoint."""
        return Parts({}, known=True) if self.goes_on else self.scope.parts(self.input)

    @property
    def goes_on(self) -> bool:
        """True for `None` and for `Command(resume=...)`, which bring no input."""
        given = self.scope.meant(self.input)
        return self.resumes or (isinstance(given, ast.Constant) and given.value is None)

    @property
    def resumes(self) -> bool:
        from langgraph.types import Command

        given = self.scope.meant(self.input)
        return (
            isinstance(given, ast.Call)
            and self.scope.source.resolve(given.func) is Command
            and any(word.arg == "resume" for word in given.keywords)
        )

    def keyword(self, name: str) -> ast.expr | None:
        return next((word.value for word in self.call.keywords if word.arg == name), None)


def runs_of(graph: Any, sources: Sources) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """The calls that run this very graph; and those that run what cannot be said, with a dict: they may run it too."""
    sure: list[Run] = []
    unclear: list[Run] = []
    for source in sources:
        if not any(f".{name}(" in source.text for name in RUNS):
            continue
        for scope in scopes(source):
            for node in scope.nodes:
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in RUNS:
                    continue
                run = Run(scope, node)
                owner = scope.resolve(_configured(node.func.value))
                if owner is graph:
                    sure.append(run)
                elif owner is MISSING and run.scope.parts(run.input).keys:
                    unclear.append(run)
    return tuple(sure), tuple(unclear)


def scopes(source: Source) -> Iterator[Scope]:
    """The file, and every function in it."""
    yield Scope(source, (), frozenset(), tuple(walk(source.tree)))
    waiting: list[tuple[ast.AST, tuple[FunctionTree, ...], frozenset[str]]] = [(source.tree, (), frozenset())]
    while waiting:
        outer, functions, bound = waiting.pop()
        for node in ast.iter_child_nodes(outer):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                waiting.append((node, functions, bound))
                continue
            nodes = tuple(walk(node))
            inside = bound | {one.arg for one in _arguments(node)} | _names(nodes)
            yield Scope(source, (*functions, node), inside, nodes)
            waiting.append((node, (*functions, node), inside))


def _configured(owner: ast.expr) -> ast.expr:
    """The graph behind `graph.with_config(...)`."""
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "with_config":
        owner = owner.func.value
    return owner


def configured(call: ast.Call) -> Iterator[ast.Call]:
    """The calls of `with_config` that a run's graph went through."""
    owner: ast.expr = call.func.value if isinstance(call.func, ast.Attribute) else call
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "with_config":
        yield owner
        owner = owner.func.value


def _arguments(tree: FunctionTree) -> list[ast.arg]:
    given = tree.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]


def _names(nodes: tuple[ast.AST, ...]) -> frozenset[str]:
    """The names that a body, or a file, gives a meaning of its own."""
    found: list[str] = []
    for node in nodes:
        found += _given_by(node)
    return frozenset(found)


def _given_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(one.asname or one.name).partition(".")[0] for one in node.names]
    if isinstance(node, _DEFINED):
        return [node.name]
    if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        return [node.name]
    return []


def _times(source: Source, name: str) -> int:
    """How often a file binds a name at its top. Counted once for each file, and kept with it."""
    known: dict[str, int] | None = vars(source).get("_times")
    if known is None:
        known = vars(source)["_times"] = dict(Counter(one for node in tuple(walk(source.tree)) for one in _given_by(node)))
    return known.get(name, 0)


def _set_item(target: ast.expr, statement: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        yield str(target.slice.value), statement.value


def _pairs(node: ast.Dict) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    return zip(node.keys, node.values, strict=True)


def _item_of(node: ast.Subscript) -> tuple[str | None, Any]:
    name = node.value.id if isinstance(node.value, ast.Name) else None
    return name, node.slice.value if isinstance(node.slice, ast.Constant) else None
