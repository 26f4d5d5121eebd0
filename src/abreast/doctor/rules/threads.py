"""Whose conversation it is, what leaves it, and when the graph is made."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from abreast.doctor.flow import LOOPS, MUTATING
from abreast.doctor.rule import Found, Rule
from abreast.doctor.runs import RUNS, Run
from abreast.doctor.sources import MISSING, Function, Source, parent_of, walk
from abreast.doctor.subject import Subject
from abreast.doctor.updates import is_name, key_of, updates

PEOPLE = frozenset(
    (
        *("user_id", "username", "customer_id", "account_id", "tenant_id", "current_user"),
        *("uid", "user_email", "person_id", "member_id", "patient_id", "employee_id"),
    )
)
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


def one_thread_for_all(subject: Subject) -> Iterator[Found]:
    """A function that answers a user runs the graph under a `thread_id` that is the same for everybody.

    The checkpointer knows a conversation by this name alone: each user reads on where the last one stopped. The rule sees
    functions with a parameter user_id, username, customer_id, account_id, tenant_id, current_user and the like that run this very
    graph, which has a checkpointer and state that outlives a run, with a literal config. It is silent where the file deletes
    threads, or a `checkpoint_ns` is given too. Conversations that several people share on purpose need names of their own too.
    """
    if subject.checkpointer in (None, True, False):
        return
    for run in subject.runs:
        configured = run.scope.below(run.config, "configurable")
        value = configured.get("thread_id")
        if not PEOPLE & run.scope.parameters or value is None or "checkpoint_ns" in configured.keys:
            continue
        if _changed_elsewhere(run.scope.source, run.config) or not _outlives(subject, run):
            continue
        if any("delete_thread" in line for line in run.scope.source.lines):
            continue
        meant = run.scope.meant(value)
        if isinstance(meant, ast.Constant) or isinstance(run.scope.resolve(value), str):
            yield Found("graph", run.scope.source.spot(value), "every user of this function has the same conversation.")


def trimming_that_removes_nothing(subject: Subject) -> Iterator[Found]:
    """A node returns some of the messages that are there, and `add_messages` keeps the others.

    The reducer replaces what has a known id and adds the rest: what the update leaves out stays in the state, in every request
    and in every checkpoint. The rule sees literal slices of the state's messages, choices of some of them in a list, and calls of
    `trim_messages`, alone or with messages behind them, in a node that makes no RemoveMessage and does nothing else with them.
    The last message alone is no finding: a node may hand it on. Even RemoveMessage removes from the state only: older checkpoints
    keep the text until the thread is deleted.
    """
    from langchain_core.messages import RemoveMessage
    from langgraph.graph.message import add_messages

    for node in subject.nodes.values():
        for function in node.functions:
            if any(True for _ in function.calls(RemoveMessage)):
                continue
            for update in updates(function):
                for key, value in update.keys.items():
                    channel = subject.channels.get(key)
                    if channel is not None and channel.reducer is add_messages and _part_of(function, key, value):
                        yield Found(f"node {node.name}", function.at(value), f"{key} keeps the messages that are left out here.")


def compiled_per_request(subject: Subject) -> Iterator[Found]:
    """A graph that is always the same is compiled again in each step or for each request.

    It costs time, and a checkpointer that is made beside it forgets each conversation at once. The rule sees the compilation of
    a graph of the module, or of an agent, from nothing that the call brings, and that nothing changes: in nodes and tools, and
    in functions that run it under a `thread_id` from their parameters. What is kept for the next time (in a global, an attribute,
    a dict) is no finding, and neither is what the function hands on, or what it runs several times in a loop.
    """
    for node in subject.nodes.values():
        for function in node.functions:
            yield from _compiled_in(function, f"node {node.name}")
    for tool in subject.tools:
        if tool.function:
            yield from _compiled_in(tool.function, f"tool {tool.name}")
    for body in _bodies(subject):
        made = dict(body.made())
        for run in body.nodes:
            if not isinstance(run, ast.Call) or not isinstance(run.func, ast.Attribute) or run.func.attr not in RUNS:
                continue
            owner = run.func.value
            call = made.get(owner.id) if isinstance(owner, ast.Name) else owner
            if not isinstance(call, ast.Call) or not body.makes(call) or _in_loop_without(body.tree, run, call):
                continue
            if any(body.from_caller(value) for value in body.thread_ids(run)):
                yield Found("graph", body.source.spot(call), "each call of this function compiles the same graph.")


@dataclass(frozen=True)
class _Body:
    """A function of a file, or the file itself, with what its names mean as far as that is certain."""

    source: Source
    tree: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
    nodes: tuple[ast.AST, ...]
    parameters: frozenset[str]
    taken: frozenset[str]
    """Names that mean something else here than in the file."""

    def resolve(self, node: ast.expr) -> object:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return MISSING if names & self.taken else self.source.resolve(node)

    def thread_ids(self, call: ast.Call) -> Iterator[ast.expr]:
        """The expressions of `thread_id` in the config of a call, literal or in a local name that is assigned once."""
        given = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "config")]
        for config in given:
            found = self._once(config)
            for part in ast.walk(found) if isinstance(found, ast.Dict) else ():
                for key, value in zip(part.keys, part.values, strict=True) if isinstance(part, ast.Dict) else ():
                    if isinstance(key, ast.Constant) and key.value == "thread_id":
                        yield value

    def from_caller(self, value: ast.expr) -> bool:
        return any(isinstance(part, ast.Name) and part.id in self.parameters for part in ast.walk(value))

    def makes(self, call: ast.Call) -> bool:
        """True for `builder.compile(...)` of a builder of the file and for `create_agent(...)`, of nothing local."""
        if isinstance(self.tree, ast.Module) or not _always_the_same(call, self.source, self.resolve):
            return False
        return not _kept(self.tree, call)

    def made(self) -> Iterator[tuple[str, ast.Call]]:
        """Names that this body assigns once, to a graph that it compiles."""
        for node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and self.makes(node.value):
                yield from (
                    (one.id, node.value) for one in node.targets if isinstance(one, ast.Name) and self._once(one) is node.value
                )

    def _once(self, node: ast.expr) -> ast.expr:
        if not isinstance(node, ast.Name):
            return node
        bound = [
            one.value
            for one in self.nodes
            if isinstance(one, ast.Assign) and any(is_name(target, node.id) for target in one.targets)
        ]
        stores = [one for one in self.nodes if is_name(one, node.id) and isinstance(getattr(one, "ctx", None), ast.Store)]
        return bound[0] if len(bound) == len(stores) == 1 else node


def _bodies(subject: Subject) -> Iterator[_Body]:
    for source in subject.sources:
        known: dict[str, tuple[_Body, ...]] = vars(source)
        if "_bodies" not in known:
            known["_bodies"] = tuple(_bodies_of(source))
        yield from known["_bodies"]


def _bodies_of(source: Source) -> Iterator[_Body]:
    yield _Body(source, source.tree, tuple(walk(source.tree)), frozenset(), frozenset())
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(source.tree, frozenset())]
    while waiting:
        outer, taken = waiting.pop()
        for node in ast.iter_child_nodes(outer):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                waiting.append((node, taken))
                continue
            given = node.args
            named = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
            parameters = frozenset(one.arg for one in named)
            nodes = tuple(walk(node))
            inside = taken | parameters | _bound(nodes)
            yield _Body(source, node, nodes, parameters, inside)
            waiting.append((node, inside))


def _bound(nodes: tuple[ast.AST, ...]) -> frozenset[str]:
    """The names that a body gives a meaning of its own."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, NAMED) and node.name:
            found.add(node.name)
    return frozenset(found)


def _changed_elsewhere(source: Source, config: ast.expr | None) -> bool:
    """True if a config has a name, and the file sets or hands on something in it: then its literal is not all there is."""
    if not isinstance(config, ast.Name):
        return False
    parents = {id(child): node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
    return any(
        isinstance(parents[id(node)], ast.Subscript | ast.Attribute) for node in ast.walk(source.tree) if is_name(node, config.id)
    )


def _outlives(subject: Subject, run: Run) -> bool:
    """True if something of one run reaches the next: a key with a reducer, or one that the input does not bring anew."""
    if any(channel.reducer is not None for channel in subject.channels.values()):
        return True
    return run.given.known and not run.goes_on and bool(set(subject.channels) - set(run.given.keys))


def _part_of(function: Function, key: str, value: ast.expr) -> bool:
    """True for an update that repeats some of the messages in the state, alone or followed by others."""
    from langchain_core.messages import trim_messages

    if isinstance(value, ast.Name) and not _only_read(function, value):
        return False
    value = function.meant(value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _part_of(function, key, value.left)
    if isinstance(value, ast.List) and value.elts and isinstance(value.elts[0], ast.Starred):
        return _part_of(function, key, value.elts[0].value)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        return _is_key(function, key, value.value) and _several(function, value.slice)
    if isinstance(value, ast.ListComp) and len(value.generators) == 1:
        one = value.generators[0]
        alike = isinstance(value.elt, ast.Name) and is_name(one.target, value.elt.id)
        chosen = bool(one.ifs) and _is_key(function, key, one.iter)
        return alike and (chosen or _part_of(function, key, one.iter))
    if isinstance(value, ast.Call) and _one_of(function.resolve(value.func), list, tuple) and len(value.args) == 1:
        return _part_of(function, key, value.args[0])
    if isinstance(value, ast.Call) and function.resolve(value.func) is trim_messages and value.args:
        partial = any(one.arg in ("allow_partial", None) for one in value.keywords)
        return not partial and _is_key(function, key, value.args[0])
    return False


def _one_of(thing: object, *known: object) -> bool:
    """True for one of these very objects; what is asked for being equal may raise."""
    return any(thing is one for one in known)


def _only_read(function: Function, name: ast.Name) -> bool:
    """True if what has a local name is, beside this use, only given to a model or counted; else it may be changed in place."""
    for use in function.loads.get(name.id, ()):
        outer = function.parent(use)
        called = outer.func if isinstance(outer, ast.Call) and outer.func is not use else None
        asks = isinstance(called, ast.Attribute) and called.attr in RUNS
        if use is not name and not asks and not (called is not None and _one_of(function.resolve(called), len, list, tuple)):
            return False
    return True


def _several(function: Function, part: ast.Slice) -> bool:
    """True for a slice of a fixed number of messages, two or more; one alone may be handed on."""
    bounds = [_number(function, bound) for bound in (part.lower, part.upper)]
    if part.step is not None or any(
        bound is None and given for bound, given in zip(bounds, (part.lower, part.upper), strict=True)
    ):
        return False
    lower, upper = bounds
    if lower is not None and lower < 0 and upper is None:
        return lower < -1
    return (lower or 0) >= 0 and upper is not None and abs(upper) > 1 and (upper < 0 or upper - (lower or 0) > 1)


def _number(function: Function, bound: ast.expr | None) -> int | None:
    if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub):
        found = _number(function, bound.operand)
        return -found if found is not None else None
    value = bound.value if isinstance(bound, ast.Constant) else function.resolve(bound) if isinstance(bound, ast.Name) else None
    return value if isinstance(value, int) else None


def _is_key(function: Function, key: str, value: ast.expr) -> bool:
    return function.state is not None and key_of(function.meant(value), function.state) == key


def _compiled_in(function: Function, place: str) -> Iterator[Found]:
    for node in function.nodes:
        if not isinstance(node, ast.Call) or isinstance(function.tree, ast.Lambda):
            continue
        if _always_the_same(node, function.source, function.resolve) and not _kept(function.tree, node):
            yield Found(place, function.at(node), "it compiles the same graph in each step.")


def _kept(tree: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> bool:
    """False if what a call makes is surely used in this one call of the function and then forgotten."""
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    outer = parents.get(id(call))
    if isinstance(outer, ast.Attribute):
        return outer.attr not in RUNS
    targets = outer.targets if isinstance(outer, ast.Assign) else [outer.target] if isinstance(outer, ast.AnnAssign) else []
    if len(targets) != 1 or not isinstance(targets[0], ast.Name):
        return True
    name = targets[0].id
    for node in ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return True
        if is_name(node, name) and node is not targets[0]:
            used = parents[id(node)]
            if not isinstance(used, ast.Attribute) or used.attr not in RUNS:
                return True
    return False


def _in_loop_without(tree: ast.AST, run: ast.AST, call: ast.Call) -> bool:
    """True if a run stands in a loop of a function, and the compilation before the loop."""
    outer = parent_of(run)
    while outer is not None and outer is not tree:
        loop = isinstance(outer, (*LOOPS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
        if loop and not any(part is call for part in ast.walk(outer)):
            return True
        outer = parent_of(outer)
    return False


def _always_the_same(call: ast.Call, source: Source, resolve: Callable[[ast.expr], object]) -> bool:
    """True for a compilation from names that nothing in the file changes, and from new objects of plain classes."""
    from langgraph.graph import StateGraph

    loaded = sys.modules.get("langchain.agents")
    agent = loaded is not None and resolve(call.func) is loaded.create_agent
    compiles = (
        isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and isinstance(resolve(call.func.value), StateGraph)
    )
    if not agent and not compiles:
        return False
    given = [
        *call.args,
        *(one.value for one in call.keywords),
        *([call.func.value] if isinstance(call.func, ast.Attribute) else []),
    ]
    for part in (part for one in given for part in ast.walk(one)):
        if isinstance(part, ast.Call) and not isinstance(resolve(part.func), type):
            return False
        if isinstance(part, ast.Attribute | ast.Name) and resolve(part) is MISSING:
            return False
        if isinstance(part, ast.Name) and part.id in _changing(source):
            return False
    return True


def _changing(source: Source) -> frozenset[str]:
    """The names of a file that its functions set, or whose objects they change. Found once for each file."""
    known: dict[str, frozenset[str]] = vars(source)
    if "_changing" not in known:
        found: set[str] = set()
        for tree in (tree for trees in source.functions.values() for tree in trees):
            for node in walk(tree):
                if isinstance(node, ast.Global):
                    found |= set(node.names)
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    if node.func.attr in MUTATING or node.func.attr.startswith(("add_", "set_")):
                        found |= {part.id for part in ast.walk(node.func.value) if isinstance(part, ast.Name)}
                elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
                    found |= {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        known["_changing"] = frozenset(found)
    return known["_changing"]


RULES: tuple[Rule, ...] = (
    Rule(
        "AB501", "One conversation for all users", one_thread_for_all, "Give each conversation an id of its own, with its owner."
    ),
    Rule(
        "AB502",
        "Trimming that removes nothing",
        trimming_that_removes_nothing,
        "Return RemoveMessage(id=...) for what goes; or trim only what the model is given, and return nothing.",
    ),
    Rule("AB504", "A graph compiled for each request", compiled_per_request, "Compile it once, at the top of the module."),
)
