"""Whose conversation it is, what leaves it, what its stream shows, and when the graph is made."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from abreast.doctor.rule import Found, Rule
from abreast.doctor.sources import MISSING, Function, Source, walk
from abreast.doctor.subject import Subject
from abreast.doctor.updates import is_name, key_of, updates

PEOPLE = frozenset(("user_id", "username", "customer_id", "account_id", "tenant_id", "current_user"))
RUNS = frozenset(("invoke", "ainvoke", "stream", "astream", "astream_events"))
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
SILENT = frozenset(("messages", "custom"))
"""Stream modes without questions."""


def one_thread_for_all(subject: Subject) -> Iterator[Found]:
    """A function that answers a user runs the graph under a `thread_id` that is the same for everybody.

    The checkpointer knows a conversation by this name alone: each user reads on where the last one stopped. The rule sees
    functions with a parameter user_id, username, customer_id, account_id, tenant_id or current_user that run this very graph
    with a literal config. Conversations that several people share on purpose need names of their own too.
    """
    for body in _bodies(subject):
        if not PEOPLE & body.parameters:
            continue
        for call in body.runs(subject.graph):
            for value in body.thread_ids(call):
                named = body.source.resolve(value) if isinstance(value, ast.Name) and value.id not in body.taken else MISSING
                if isinstance(value, ast.Constant) or isinstance(named, str):
                    yield Found("graph", body.source.spot(value), "every user of this function has the same conversation.")


def trimming_that_removes_nothing(subject: Subject) -> Iterator[Found]:
    """A node returns some of the messages that are there, and `add_messages` keeps the others.

    The reducer replaces what has a known id and adds the rest: what the update leaves out stays in the state, in every request
    and in every checkpoint. The rule sees a slice of the state's messages and a call of `trim_messages`, alone or with messages
    behind them, in a node that makes no RemoveMessage. Even that removes from the state only: older checkpoints keep the text
    until the thread is deleted.
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


def questions_not_in_the_stream(subject: Subject) -> Iterator[Found]:
    """A loop over the graph's stream looks for `__interrupt__`, in a mode that never carries it.

    The run waits for an answer, and nobody has seen the question. `messages` shows tokens and `custom` what nodes write;
    questions are in `updates` and `values`. The rule sees loops over this very graph with a literal stream_mode.
    """
    for body in _bodies(subject):
        for loop in body.nodes:
            if not isinstance(loop, ast.For | ast.AsyncFor) or not isinstance(loop.iter, ast.Call):
                continue
            call = loop.iter
            modes = _modes(call)
            if not modes or not modes <= SILENT or not any(call is one for one in body.runs(subject.graph)):
                continue
            if any(
                isinstance(part, ast.Constant) and part.value == "__interrupt__" for line in loop.body for part in ast.walk(line)
            ):
                text = f"the mode {' and '.join(sorted(modes))} never carries a question."
                yield Found("graph", body.source.spot(call), text)


def compiled_per_request(subject: Subject) -> Iterator[Found]:
    """A graph that is always the same is compiled again in each step or for each request.

    It costs time, and a checkpointer that is made beside it forgets each conversation at once. The rule sees the compilation of
    a graph of the module, or of an agent, from nothing that the call brings: in nodes and tools, and in functions that run it
    under a `thread_id` from their parameters.
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
            if not isinstance(call, ast.Call) or not body.makes(call):
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

    def runs(self, graph: object) -> Iterator[ast.Call]:
        """The calls that run this very graph."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RUNS:
                yield from (node,) if self.resolve(node.func.value) is graph else ()

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
        return self.tree is not self.source.tree and _always_the_same(call, self.resolve)

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


def _modes(call: ast.Call) -> set[str]:
    """The literal modes of a stream; empty where they cannot be read."""
    given = next((one.value for one in call.keywords if one.arg == "stream_mode"), None)
    parts = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    found = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return found if len(found) == len(parts) and all(one.arg for one in call.keywords) else set()


def _part_of(function: Function, key: str, value: ast.expr) -> bool:
    """True for an update that repeats some of the messages in the state, alone or followed by others."""
    from langchain_core.messages import trim_messages

    value = function.meant(value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _part_of(function, key, value.left)
    if isinstance(value, ast.List) and value.elts and isinstance(value.elts[0], ast.Starred):
        return _part_of(function, key, value.elts[0].value)
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
        return _is_key(function, key, value.value)
    if isinstance(value, ast.Call) and function.resolve(value.func) is trim_messages and value.args:
        partial = any(one.arg in ("allow_partial", None) for one in value.keywords)
        return not partial and _is_key(function, key, value.args[0])
    return False


def _is_key(function: Function, key: str, value: ast.expr) -> bool:
    return function.state not in function.locals and key_of(function.meant(value), function.state) == key


def _compiled_in(function: Function, place: str) -> Iterator[Found]:
    for node in function.nodes:
        if isinstance(node, ast.Call) and _always_the_same(node, function.resolve):
            yield Found(place, function.at(node), "it compiles the same graph in each step.")


def _always_the_same(call: ast.Call, resolve: object) -> bool:
    from langgraph.graph import StateGraph

    assert callable(resolve)
    loaded = sys.modules.get("langchain.agents")
    agent = loaded is not None and resolve(call.func) is loaded.create_agent
    compiles = (
        isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and isinstance(resolve(call.func.value), StateGraph)
    )
    if not agent and not compiles:
        return False
    parts = [part for given in (*call.args, *(one.value for one in call.keywords)) for part in ast.walk(given)]
    return all(resolve(part) is not MISSING for part in parts if isinstance(part, ast.Name))


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
    Rule(
        "AB503",
        "A stream that cannot show questions",
        questions_not_in_the_stream,
        'Stream with stream_mode=["messages", "updates"], and look for the question in the updates.',
    ),
    Rule("AB504", "A graph compiled for each request", compiled_per_request, "Compile it once, at the top of the module."),
)
