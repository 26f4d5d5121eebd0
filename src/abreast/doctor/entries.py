"""Where an application begins: the bodies that surely run outside of any graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from abreast.doctor.runs import Run, scopes
from abreast.doctor.sources import Source
from abreast.doctor.subject import Subject
from abreast.doctor.updates import is_name

_MAIN = frozenset(("main", "amain", "_main"))


def outermost(source: Source) -> Iterator[ast.AST]:
    """The top of the file, `main()` without arguments, and the file's functions that one of these surely reaches by a call.

    A function that nobody in the file calls may be a node's, and then runs inside a graph.
    """
    known = {scope.functions[-1] if scope.functions else source.tree: scope for scope in scopes(source)}
    named = {tree.name: tree for tree in source.tree.body if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)}
    waiting: list[ast.AST] = [source.tree, *(tree for name, tree in named.items() if name in _MAIN and _takes_nothing(tree))]
    seen: set[int] = set()
    while waiting:
        tree = waiting.pop()
        if id(tree) in seen or tree not in known:
            continue
        seen.add(id(tree))
        scope = known[tree]
        yield tree
        for node in scope.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in scope.bound:
                called = named.get(node.func.id)
                if called is not None and not called.decorator_list:
                    waiting.append(called)


def runs_by_any_name(subject: Subject) -> Iterator[Run]:
    """The calls that run this very graph, also where it has a local name."""
    yield from subject.runs
    for run in subject.unclear_runs:
        owner = run.call.func.value if isinstance(run.call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name):
            stores = [
                node
                for node in run.scope.nodes
                if is_name(node, owner.id) and not isinstance(getattr(node, "ctx", None), ast.Load)
            ]
            made = [node for node in run.scope.nodes if isinstance(node, ast.Assign) and node.targets == stores]
            if made and run.scope.resolve(made[0].value) is subject.graph:
                yield run


def _takes_nothing(tree: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = tree.args
    return not (tree.decorator_list or given.posonlyargs or given.args or given.vararg or given.kwonlyargs or given.kwarg)
