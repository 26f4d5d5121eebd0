"""What the nodes of a graph do to one key of its state: who writes it, who reads it afterwards, what a run brings."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_type_hints

from abreast.doctor.flow import in_loop, mutated, still, uses
from abreast.doctor.runs import Run
from abreast.doctor.sources import MISSING, Function, parent_of
from abreast.doctor.subject import Channel, Node, Subject
from abreast.doctor.updates import given_key, key_of, old_key, surely, updates, values

_ANSWERS = frozenset(("invoke", "ainvoke"))
_SHORTER = re.compile(r"summar|condens|compress|compact|shorten", re.IGNORECASE)
_OF_A_MESSAGE = frozenset(("content", "type", "id", "name", "tool_calls", "text", "content_blocks", "usage_metadata"))
_ASKS = frozenset(("isinstance", "hasattr", "getattr", "convert_to_messages"))


@dataclass(frozen=True, slots=True)
class Written:
    """One expression in a function."""

    function: Function
    value: ast.expr

    def same_as(self, other: Written) -> bool:
        """True if both are the same constant, the same name of the file, or the same key of the state, which both read alike."""
        if isinstance(self.value, ast.Constant):
            return ast.dump(self.value) == ast.dump(other.value)
        ours, theirs = (given_key(one.function, one.value) for one in (self, other))
        if ours is not None:
            return ours == theirs
        first, second = (one.function.resolve(one.value) for one in (self, other))
        return first is second and first is not MISSING


def writes(subject: Subject) -> Iterator[tuple[Node, Function, str, ast.expr]]:
    """Every key that a node returns, at least sometimes, with its expression."""
    for node in subject.nodes.values():
        for function in node.functions:
            for update in updates(function):
                for key, value in update.written.items():
                    yield node, function, key, value


def written(subject: Subject, name: str) -> set[str]:
    """The keys that a node writes for sure, whichever of its functions runs."""
    found = [set(surely(function)) for function in subject.nodes[name].functions]
    return set.intersection(*found) if found else set()


def may_write(node: Node, key: str) -> bool:
    """True if a node returns the key, at least sometimes, or if that cannot be seen."""
    found = [update for function in node.functions for update in updates(function)]
    return not node.functions or any(key in one.written or one.whole or not one.known for one in found)


def entries(subject: Subject, name: str, key: str) -> dict[str, Written]:
    """The literal keys of the dict that a node surely writes under a key of the state."""
    found: dict[str, Written] | None = None
    for function in subject.nodes[name].functions:
        for value in values(function).get(key, (None,)):
            literal = still(function, value) if value is not None else None
            pairs = zip(literal.keys, literal.values, strict=True) if isinstance(literal, ast.Dict) else ()
            here = {
                part.value: Written(function, item)
                for part, item in pairs
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            }
            found = here if found is None else {name: one for name, one in found.items() if name in here}
    return found or {}


def adds(subject: Subject, channel: Channel) -> bool:
    """True if the reducer is `operator.add`, or a function that returns `old + new` and does nothing else."""
    if channel.reducer in (operator.add, operator.concat):
        return True
    function = subject.sources.function(channel.reducer) if channel.reducer else None
    if function is None or len(function.parameters) != 2:
        return False
    tree = function.tree
    if isinstance(tree, ast.Lambda):
        body: ast.expr | None = tree.body
    else:
        only = tree.body[0] if len(tree.body) == 1 and not tree.decorator_list else None
        body = only.value if isinstance(only, ast.Return) else None
    if not isinstance(body, ast.BinOp) or not isinstance(body.op, ast.Add):
        return False
    return [part.id if isinstance(part, ast.Name) else None for part in (body.left, body.right)] == list(function.parameters)


def summands(node: ast.expr) -> list[ast.expr]:
    """The parts of a sum; nothing for what is no sum."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return []
    return [part for side in (node.left, node.right) for part in summands(side) or [side]]


def of_messages(channel: Channel, *, bare: bool = False) -> bool:
    """True for a list of messages; with `bare` for a list of anything too."""
    from langchain_core.messages import AnyMessage, BaseMessage

    if channel.type is not list or not channel.items:
        return bare and channel.type is list
    item = channel.items[0]
    return item is AnyMessage or (isinstance(item, type) and issubclass(item, BaseMessage))


def comes_in(subject: Subject, key: str) -> bool:
    """False if all the runs that can be seen bring nothing under the key."""
    return not subject.runs or not all(empty(run, key) for run in subject.runs)


def empty(run: Run, key: str) -> bool:
    """True if a run surely brings nothing under a key."""
    if run.goes_on:
        return True
    given = run.given
    if key not in given.keys:
        return given.known
    value = run.scope.meant(given.keys[key])
    if isinstance(value, ast.Constant):
        return not value.value
    return (isinstance(value, ast.List | ast.Tuple) and not value.elts) or (isinstance(value, ast.Dict) and not value.keys)


def begins_empty(subject: Subject, name: str, key: str) -> bool:
    """True if a node surely runs once in a run, as the first one, and each run begins without anything under the key.

    That takes runs that can be seen, and a state that no checkpoint keeps for the next one.
    """
    if subject.parent is not None or subject.checkpointer not in (None, False) or not subject.runs or subject.unclear_runs:
        return False
    first = name in subject.edges.get("__start__", ()) and name not in _entered(subject)
    return first and all(empty(run, key) for run in subject.runs)


def only_last(subject: Subject, key: str) -> bool:
    """True if nobody keeps the list under a key, and all runs that can be seen, and the nodes, take its last item alone."""
    if subject.checkpointer not in (None, False) or not subject.runs:
        return False
    later = [subject.nodes[name] for name in _entered(subject)]
    readers = [
        *(one for node in later for one in node.functions),
        *(router for start, router in subject.routers if start in subject.nodes),
    ]
    if not all(node.functions for node in later) or any(_reads_more(function, key) for function in readers):
        return False
    return all(_takes_last(run, key) for run in subject.runs)


def goes_over(function: Function, key: str) -> bool:
    """True if a function loops over the list under a key."""
    return any(
        isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and given_key(function, node.iter) == key
        for outer in function.nodes
        for node in (outer, *(ast.walk(outer) if isinstance(outer, ast.GeneratorExp | ast.ListComp) else ()))
    )


def answers(function: Function, key: str, node: ast.expr) -> bool:
    """True for an AIMessage, and for what a model answers to the whole conversation under the key."""
    from langchain_core.language_models import BaseLanguageModel
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import RunnableBinding

    node = still(function, node)
    node = node.value if isinstance(node, ast.Await) else node
    if not isinstance(node, ast.Call) or _SHORTER.search(function.name + ast.unparse(function.tree)):
        return False
    read = {key_of(part, function.state) for part in ast.walk(node)}
    if function.resolve(node.func) is AIMessage:
        names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        return key not in read and not any(part.id == function.state or part.id in function.locals for part in names)
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _ANSWERS or not node.args:
        return False
    model = function.resolve(node.func.value)
    return isinstance(model, BaseLanguageModel | RunnableBinding) and old_key(function, node.args[0]) == key


def asked_first(function: Function, key: str) -> bool:
    """True if a condition asks for the value of a key, and not what it holds: it may be empty, or zero, where it is returned."""
    for node in function.nodes:
        for part in ast.walk(node.test) if isinstance(node, ast.If | ast.IfExp | ast.While) else ():
            outer = function.parent(part)
            holds = isinstance(outer, ast.Compare) and all(isinstance(one, ast.In | ast.NotIn) for one in outer.ops)
            if not holds and isinstance(part, ast.expr) and given_key(function, part) == key:
                return True
    return False


def read_keys(function: Function) -> set[str]:
    """The keys of the state that a function reads, as far as that can be seen."""
    return {key for node in function.nodes if (key := key_of(node, function.state)) is not None}


def changed(function: Function, node: ast.AST) -> Iterator[str]:
    """The keys whose objects, as the node was given them, a tree node changes in place; and keys that it binds anew."""
    used = isinstance(node, ast.Call) and not isinstance(function.parent(node), ast.Expr)
    for target in mutated(node) if not used else ():
        key = given_key(function, target)
        if key is not None:
            yield key
    for target in node.targets if isinstance(node, ast.Assign) else ():
        key = key_of(target, function.state)
        if key is not None:
            yield key


def read_later(function: Function, changing: ast.AST, key: str) -> bool:
    """True if the function reads the key, or hands on the whole state, after a change or in the same loop."""
    state = function.state
    targets = {id(target) for part in function.nodes for target in mutated(part)}
    aliases = [name for name in function.locals if given_key(function, ast.Name(name, ast.Load())) == key]
    for name in (state, *aliases):
        for use in uses(function, name) if name else ():
            if not _after(function, use, changing):
                continue
            outer = function.parent(use)
            seen: ast.AST = use
            if name == state and outer is not None and (found := key_of(outer, state)) is not None:
                if found != key:
                    continue
                seen = outer
            elif name == state and isinstance(outer, ast.Attribute):
                above = function.parent(outer)
                found = key_of(above, state) if above is not None else None
                if found is not None and found != key:
                    continue  # state.get("another key")
            if id(seen) not in targets:
                return True
    return False


def taken_as_objects(subject: Subject, node: Node, key: str) -> bool:
    """True if what runs after a node reads an attribute of a message from the items of a key that the node has written."""
    direct = set(subject.follows.get(node.name, ()))
    later, waiting = set(direct), list(direct)
    while waiting:
        more = set(subject.follows.get(waiting.pop(), ())) - later
        later |= more
        waiting += more
    routers = [(start, function) for start, function in subject.routers if start == node.name or start in later]
    readers = [(name, function) for name in later if name in subject.nodes for function in subject.nodes[name].functions]
    for name, function in readers:
        if _reads_attribute(function, key, last=name in direct):
            return True
    if any(_reads_attribute(function, key, last=start == node.name) for start, function in routers):
        return True
    alone = all(one is node or not may_write(one, key) for one in subject.nodes.values())
    return alone and any(_shown(run, key) for run in subject.runs)


def keys_of(schema: Any, default: set[str]) -> set[str]:
    """The keys that a schema declares, with those of its bases."""
    try:
        return set(get_type_hints(schema)) or default
    except Exception:
        return default


def meeting(subject: Subject, writers: set[str]) -> set[str]:
    """The nodes that run after the parallel ones have all written, by fixed edges."""
    found = {end for starts, end in getattr(subject.builder, "waiting_edges", ()) if writers <= set(starts)}
    found |= set.intersection(*(set(subject.follows.get(name, ())) for name in writers))
    waiting = list(found)
    while waiting:
        more = set(subject.follows.get(waiting.pop(), ())) - found
        found |= more
        waiting += more
    return {name for name in found if name in subject.nodes}


def place_in(node: ast.AST) -> int | None:
    """The number in `x[0]` and `x[-1]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
        return None
    part, sign = node.slice, 1
    if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub):
        part, sign = part.operand, -1
    number = part.value if isinstance(part, ast.Constant) else None
    return sign * number if isinstance(number, int) and not isinstance(number, bool) else None


def _reads_attribute(function: Function, key: str, *, last: bool) -> bool:
    calls = [node.func for node in function.nodes if isinstance(node, ast.Call)]
    if any(isinstance(called, ast.Name) and called.id in _ASKS for called in calls):
        return False
    loops = [node for node in function.nodes if isinstance(node, ast.For | ast.AsyncFor)]
    parts = [node for node in function.nodes if isinstance(node, ast.comprehension)]
    each = {
        loop.target.id
        for loop in (*loops, *parts)
        if isinstance(loop.target, ast.Name)
        and given_key(function, loop.iter) == key
        and not (isinstance(loop, ast.comprehension) and loop.ifs)
    }
    for node in function.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _OF_A_MESSAGE:
            owner = function.meant(node.value)
            if isinstance(owner, ast.Name) and owner.id in each:
                return True
            if last and place_in(owner) == -1 and isinstance(owner, ast.Subscript) and given_key(function, owner.value) == key:
                return True
    return False


def _entered(subject: Subject) -> set[str]:
    """The nodes that may run after another one: all of them where it cannot be said where a node or a router leads."""
    from langgraph.types import Command

    found = {end for start, ends in subject.edges.items() if start != "__start__" for end in ends}
    found |= {end for _, end in getattr(subject.builder, "waiting_edges", ())}
    for specs in subject.branches.values():
        for spec in specs:
            found |= set(subject.nodes if spec.ends is None else spec.ends.values())
    if any(function.wrapped or any(True for _ in function.calls(Command)) for function in subject.functions):
        found |= set(subject.nodes)
    return found & set(subject.nodes)


def _reads_more(function: Function, key: str) -> bool:
    """True if a function reads more of the list under a key than its last item, or hands on the whole state."""
    state = function.state
    if state is None:
        return True
    for use in uses(function, state):
        outer = function.parent(use)
        if isinstance(outer, ast.Attribute) and isinstance(above := function.parent(outer), ast.Call) and above.func is outer:
            outer = above
        found = key_of(outer, state) if outer is not None else None
        if found is None or (found == key and place_in(function.parent(outer) or use) != -1):
            return True
    return False


def _takes_last(run: Run, key: str) -> bool:
    """True if all that is done with the result of a run is to take other keys, and the last item of this one."""
    call: ast.AST = run.call
    if isinstance(around := parent_of(call), ast.Await):
        call, around = around, parent_of(around)
    if isinstance(around, ast.Assign) and len(around.targets) == 1 and isinstance(around.targets[0], ast.Name):
        name = around.targets[0].id
        results: list[ast.AST] = [
            one
            for one in ast.walk(_body_of(run))
            if isinstance(one, ast.Name) and one.id == name and one is not around.targets[0]
        ]
    else:
        results = [call]
    for result in results:
        item = parent_of(result)
        if not isinstance(item, ast.Subscript) or item.value is not result or not isinstance(item.slice, ast.Constant):
            return False
        last = parent_of(item)
        if item.slice.value == key and (last is None or place_in(last) != -1):
            return False
    return bool(results)


def _body_of(run: Run) -> ast.AST:
    return run.scope.functions[-1] if run.scope.functions else run.scope.source.tree


def _shown(run: Run, key: str) -> bool:
    """True for `graph.invoke(...)["messages"][-1].content`."""
    for node in run.scope.nodes:
        if isinstance(node, ast.Attribute) and node.attr in _OF_A_MESSAGE and place_in(node.value) == -1:
            item = node.value.value if isinstance(node.value, ast.Subscript) else None
            named = isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant) and item.slice.value == key
            if named and isinstance(item, ast.Subscript) and run.scope.meant(item.value) is run.call:
                return True
    return False


def _after(function: Function, use: ast.AST, changing: ast.AST) -> bool:
    if any(part is use for part in ast.walk(changing)):
        return False
    at, end = _position(use), (getattr(changing, "end_lineno", 0), getattr(changing, "end_col_offset", 0))
    if at >= end:
        return True
    loop = in_loop(function, changing)
    return loop is not None and any(part is use for part in ast.walk(loop))


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
