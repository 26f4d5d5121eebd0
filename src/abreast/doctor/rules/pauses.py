"""Where a run waits for a person: what keeps the pause, what gets around it, what runs twice because of it."""

from __future__ import annotations

import ast
import contextlib
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from abreast.doctor.entries import outermost, runs_by_any_name
from abreast.doctor.findings import Spot
from abreast.doctor.flow import surely_runs
from abreast.doctor.rule import Found, Rule
from abreast.doctor.runs import Run
from abreast.doctor.sources import MISSING, Function, Source, Sources, tame, walk
from abreast.doctor.subject import Subject
from abreast.doctor.updates import is_name

SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
SENDS = frozenset(("send_message", "sendmail"))
INSERT = re.compile(r"\s*insert\s+into\b", re.IGNORECASE)
REPEATABLE = re.compile(r"\bon\s+conflict\b|\bon\s+duplicate\b|\bnot\s+exists\b", re.IGNORECASE)
SERVERS = frozenset((("starlette.applications", "Starlette"), ("flask.app", "Flask"), ("http.server", "BaseHTTPRequestHandler")))


def no_checkpointer(subject: Subject) -> Iterator[Found]:
    """A graph that can pause is compiled without a checkpointer, and the application runs it.

    There is nowhere to keep the pause, so the question can be asked and never answered. The rule sees calls of this very graph
    with a literal `configurable`, which takes no checkpointer from elsewhere; and calls at the top of a file, in `main()`, and in
    functions that one of these calls. Elsewhere it may run inside another graph, whose checkpointer it takes. A graph that only a
    server of LangGraph's runs gets its checkpointer there and is no finding, nor is one whose checkpointer is set after it was
    compiled, or one that asks on a condition and is run with constants only, which may well not meet it.
    """
    if not _compiled(subject) or subject.checkpointer not in (None, False) or not _pauses(subject):
        return
    if any(_sets_checkpointer(source) for source in subject.sources):
        return
    sure = _gate(subject) is not None or any(surely_runs(function, call) for function, call in _questions(subject))
    started = {id(tree) for source in subject.sources for tree in outermost(source)}
    for run in runs_by_any_name(subject):
        if not sure and _constants(run):
            continue
        inside = run.scope.functions[-1] if run.scope.functions else run.scope.source.tree
        if id(inside) in started or "thread_id" in run.scope.below(run.config, "configurable").keys:
            yield Found("graph", run.scope.source.spot(run.call), "it can pause, and nothing keeps the pause.")


def memory_that_serves(subject: Subject) -> Iterator[Found]:
    """A file that holds a web server has a graph whose checkpointer keeps everything in the memory of the process.

    Conversations and open questions are gone with every restart, and a second process does not know them. The rule sees
    applications of Starlette, FastAPI and Flask and handlers of http.server in the files that it reads, with an InMemorySaver or
    a SqliteSaver on a database without a file. It stays silent where the application may choose another saver: one is named or
    set, or this one is made on a condition.
    """
    made = _in_memory(subject.checkpointer)
    if made is None or not any(map(_serves, subject.sources)) or any(map(_sets_checkpointer, subject.sources)):
        return
    spots = []
    for source in subject.sources:
        for node in ast.walk(source.tree):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name.endswith("Saver") and name not in ("InMemorySaver", "MemorySaver", made.__name__):
                return
        found = _makings(source, made)
        if found is None:
            return
        spots += found
    if spots and not any(_another_saver(source, made, subject.checkpointer) for source in subject.sources):
        yield Found("graph", spots[0] if len(spots) == 1 else None, "a restart of this server forgets every conversation.")


def jump_past_the_gate(subject: Subject) -> Iterator[Found]:
    """A middleware jumps to the tools in an agent whose HumanInTheLoopMiddleware asks before a tool runs.

    The jump leads past the question: the tools run every call of the last answer, a call that the person has just rejected
    among them. The rule sees a literal `"jump_to": "tools"` in the application's hooks, where the built graph has that way. One
    that reads `tool_calls` may have seen that they are all harmless, and is no finding.
    """
    if _gate(subject) is None:
        return
    for node in subject.nodes.values():
        ways = {end for spec in subject.branches.get(node.name, ()) for end in (spec.ends or {}).values()}
        if "tools" not in ways or "." not in node.name:
            continue
        for function in node.functions:
            for part in function.nodes if not _reads_calls(function) else ():
                for key, value in zip(part.keys, part.values, strict=True) if isinstance(part, ast.Dict) else ():
                    if _is(key, "jump_to") and _is(value, "tools"):
                        yield Found(f"node {node.name}", function.at(part), "the tools run here without the question.")


def flipping_when(subject: Subject) -> Iterator[Found]:
    """The `when` of a gate decides by the clock or by chance.

    It is asked again when the person has answered. If it says no then, the gate is open and the call runs, rejected or not. The
    rule sees calls of time, datetime and random in what the function returns or tests; other things that change in between,
    such as a row or a global, are not seen.
    """
    gate = _gate(subject)
    for name, config in (getattr(gate, "interrupt_on", None) or {}).items():
        when = config.get("when") if isinstance(config, dict) else None
        function = subject.sources.function(when) if when is not None else None
        for call in _changing(function) if function else ():
            yield Found(
                f"tool {name}", function.at(call) if function else None, "it may say something else when the answer comes."
            )


def two_questions(subject: Subject) -> Iterator[Found]:
    """A tool calls `interrupt` twice, one after the other.

    A run that is continued without an answer, as one does after a crash, takes the first answer for the second question. The
    rule sees calls that surely follow each other in the tool's own body, not those in branches, loops or helpers.
    """
    from langgraph.types import interrupt

    for tool in subject.tools:
        asked = False
        for statement in _straight(tool.function):
            calls = _in_order(tool.function, statement, interrupt) if tool.function else []
            if calls and (asked or len(calls) > 1) and tool.function:
                yield Found(f"tool {tool.name}", tool.function.at(calls[-1]), "its answer may be that of the question before.")
            asked = asked or bool(calls)


def effect_before_question(subject: Subject) -> Iterator[Found]:
    """A node or a tool has a lasting effect, and then calls `interrupt`.

    The answer runs the function again from its first line, so the effect happens twice. The rule sees, before the first
    interrupt and outside of branches and loops: an append to a list outside of the function, a global counter, a message that
    is sent (`send_message`, `sendmail`), an INSERT or an added mapped object that is committed, and a call of a function of the
    application that surely does one of these. Other calls may be safe to repeat.
    """
    from langgraph.types import interrupt

    for function, place in _placed(subject):
        if not any(True for _ in function.calls(interrupt)):
            continue
        straight: list[ast.stmt] = []
        for statement in _body(function):
            if any(isinstance(part, ast.Call) and function.resolve(part.func) is interrupt for part in _parts(statement)):
                for effect in _effects(function, straight, subject.sources):
                    yield Found(place, function.at(effect), "it happens again when the question is answered.")
                break
            straight.append(statement)


def waits_at_a_lost_node(subject: Subject) -> Iterator[Found]:
    """A thread waits for an answer in a node that the graph does not have.

    The node was renamed or removed since the question was asked; the node of a middleware carries the name of its class. The
    answer is taken without an error, and nothing happens. Measured on the newest checkpoint of a thread; questions inside
    subgraphs are not seen. Needs --thread.
    """
    for name in subject.thread.waiting if subject.thread and subject.builder is not None else ():
        if name not in subject.nodes:
            yield Found(f"node {name}", None, "a question waits here, and the graph has no such node.")


def _compiled(subject: Subject) -> bool:
    from langgraph.graph.state import CompiledStateGraph

    return not subject.place and isinstance(subject.graph, CompiledStateGraph)


def _pauses(subject: Subject) -> bool:
    if _gate(subject) is not None:
        return True
    return any(True for _ in _questions(subject))


def _questions(subject: Subject) -> Iterator[tuple[Function, ast.Call]]:
    from langgraph.types import interrupt

    for function, _ in _placed(subject):
        yield from ((function, call) for call in function.calls(interrupt))


def _constants(run: Run) -> bool:
    """True for a run whose input is written out: nothing else will ever be asked with it."""
    given = run.given
    parts = [part for value in given.keys.values() for part in ast.walk(value)]
    return given.known and not run.goes_on and not any(isinstance(part, ast.Name | ast.Call | ast.Attribute) for part in parts)


def _gate(subject: Subject) -> Any:
    loaded = sys.modules.get("langchain.agents.middleware.human_in_the_loop")
    if loaded is None:
        return None  # nobody can have made one
    return next((one for one in subject.middleware if isinstance(one, loaded.HumanInTheLoopMiddleware)), None)


def _placed(subject: Subject) -> Iterator[tuple[Function, str]]:
    for node in subject.nodes.values():
        for function in node.functions:
            yield function, f"node {node.name}"
    for tool in subject.tools:
        if tool.function:
            yield tool.function, f"tool {tool.name}"


def _sets_checkpointer(source: Source) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "checkpointer" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(source.tree)
    )


def _in_memory(saver: Any) -> type | None:
    """The class of a saver that keeps nothing on disk."""
    from langgraph.checkpoint.memory import InMemorySaver

    if type(saver) is InMemorySaver:
        return InMemorySaver
    loaded = sys.modules.get("langgraph.checkpoint.sqlite")
    if loaded is None or type(saver) is not loaded.SqliteSaver:
        return None
    with contextlib.suppress(sqlite3.Error):  # closed, or of another thread: nothing can be said about it
        files = [file for _, name, file in saver.conn.execute("pragma database_list") if name == "main"]
        return loaded.SqliteSaver if files == [""] else None
    return None


def _makings(source: Source, made: type) -> list[Spot] | None:
    """Where a file makes savers of this class; None if it may make another instead, or uses the class in another way."""
    found = []
    parents = {id(child): node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Name | ast.Attribute) or source.resolve(node) is not made:
            continue
        call = parents[id(node)]
        if not isinstance(call, ast.Call) or call.func is not node:
            if isinstance(call, ast.Attribute | ast.arg | ast.AnnAssign | ast.FunctionDef):
                continue  # a class method, an annotation
            return None
        if not _surely_used(source, call, parents):
            return None
        found.append(source.spot(call))
    return found


def _surely_used(source: Source, call: ast.AST, parents: Mapping[int, ast.AST]) -> bool:
    """True if what is made goes straight into a graph or into a name that is set once, on no condition."""
    node, outer = call, parents[id(call)]
    while not isinstance(outer, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        plain = (ast.keyword, ast.Await, ast.Attribute, ast.Return, ast.Expr, ast.With, ast.AsyncWith, ast.withitem)
        if isinstance(outer, ast.Assign | ast.AnnAssign):
            targets = outer.targets if isinstance(outer, ast.Assign) else [outer.target]
            if not all(isinstance(target, ast.Name) and _stored(source, target.id) == 1 for target in targets):
                return False
        elif isinstance(outer, ast.Call):
            if node is not outer.func and not (isinstance(node, ast.keyword) and node.arg == "checkpointer"):
                return False
        elif not isinstance(outer, plain):
            return False
        node, outer = outer, parents[id(outer)]
    at = next((number for number, one in enumerate(outer.body) if one is node), None)
    if at is None:
        return False  # a default, which a caller may replace
    earlier = [one for one in outer.body[:at] if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return not any(isinstance(part, ast.Return) for one in earlier for part in _parts(one))


def _stored(source: Source, name: str) -> int:
    return sum(is_name(node, name) and isinstance(getattr(node, "ctx", None), ast.Store) for node in ast.walk(source.tree))


def _another_saver(source: Source, made: type, saver: Any) -> bool:
    """True if a graph of the file may have another saver: one that is neither this one nor surely made of this class."""
    given = [node.value for node in source.nodes if isinstance(node, ast.keyword) and node.arg == "checkpointer"]
    for one in given:
        of_class = isinstance(one, ast.Call) and source.resolve(one.func) is made
        named = isinstance(one, ast.Name) and source.resolve(one) is saver
        if not (of_class or named or isinstance(one, ast.Constant)):
            return True
    return False


def _serves(source: Source) -> bool:
    for value in map(tame, source.namespace.values()):
        kind = value if isinstance(value, type) else type(value)
        if isinstance(value, type) and value.__module__ != source.namespace.get("__name__"):
            continue  # an imported class is no server yet
        if any((base.__module__, base.__name__) in SERVERS for base in kind.__mro__):
            return True
    return False


def _reads_calls(function: Function) -> bool:
    names = [part for part in function.nodes if isinstance(part, ast.Attribute | ast.Constant)]
    return any((part.attr if isinstance(part, ast.Attribute) else part.value) == "tool_calls" for part in names)


def _is(node: ast.AST | None, value: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == value


def _changing(function: Function) -> Iterator[ast.Call]:
    """The calls of clocks and chance in what the function returns or tests."""
    import datetime
    import inspect
    import random
    import time

    clocks: list[Any] = [time.time, time.monotonic, time.perf_counter, time.time_ns, time.monotonic_ns]
    clocks += [random.random, random.randint, random.choice, random.uniform, random.randrange]
    clocks += [inspect.getattr_static(datetime.datetime, name) for name in ("now", "utcnow")]
    clocks += [inspect.getattr_static(datetime.date, "today")]
    tests = [node.test for node in function.nodes if isinstance(node, ast.If | ast.IfExp)]
    deciding: list[ast.AST] = []
    for expression in (*function.returns, *tests):
        for part in ast.walk(expression):
            deciding.append(part)
            if isinstance(part, ast.Name):
                deciding += ast.walk(function.meant(part))
    seen: set[int] = set()
    for part in deciding:
        if isinstance(part, ast.Call) and id(part) not in seen and any(function.resolve(part.func) is one for one in clocks):
            seen.add(id(part))
            yield part


def _body(function: Function) -> list[ast.stmt]:
    return [] if isinstance(function.tree, ast.Lambda) else function.tree.body


def _straight(function: Function | None) -> Iterator[ast.stmt]:
    """The simple statements at the top of a body, which surely follow each other."""
    for statement in _body(function) if function else ():
        if isinstance(statement, SIMPLE):
            yield statement
        if isinstance(statement, ast.Return | ast.Raise):
            return


def _in_order(function: Function, statement: ast.stmt, called: Any) -> list[ast.Call]:
    """The calls in a statement that all happen; none where a condition chooses."""
    parts = list(_parts(statement))
    if any(isinstance(part, ast.IfExp | ast.BoolOp | ast.comprehension) for part in parts):
        return []
    return [part for part in parts if isinstance(part, ast.Call) and function.resolve(part.func) is called]


def _parts(statement: ast.stmt) -> Iterator[ast.AST]:
    yield statement
    yield from walk(statement)


def _effects(function: Function, statements: Sequence[ast.stmt], sources: Sources, depth: int = 2) -> Iterator[ast.AST]:
    counted = {name for node in function.nodes if isinstance(node, ast.Global) for name in node.names}
    rows: list[ast.AST] = []
    cleared = any(_clears(part) for one in statements if isinstance(one, ast.With | ast.AsyncWith) for part in ast.walk(one))
    for statement in statements:
        if isinstance(statement, ast.With | ast.AsyncWith):
            inside = [one for one in statement.body if isinstance(one, SIMPLE)]
            begun = any(_method(item.context_expr) == "begin" for item in statement.items)
            yield from _effects(function, inside, sources, depth)
            if begun and not cleared:
                yield from (one for part in inside for one in _rows(function, part))
            continue
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and statement.target.id in counted:
            yield statement
        call = _called(statement)
        helper = sources.function(function.resolve(call.func)) if call is not None and depth else None
        if helper and not helper.wrapped and any(True for _ in _effects(helper, list(_straight(helper)), sources, depth - 1)):
            yield call or statement
        if call is None or not isinstance(call.func, ast.Attribute):
            continue
        kept = call.func.attr in ("append", "extend", "insert") and isinstance(_object(function, call.func.value), list)
        if kept or call.func.attr in SENDS:
            yield call
        rows += _rows(function, statement) if not cleared else []
        cleared = cleared or _clears(call)
        if call.func.attr == "commit":
            yield from rows
            rows = []


def _object(function: Function, node: ast.expr) -> object:
    """What a name means, or a plain attribute of an object that a name means."""
    found: object = function.resolve(node)
    if found is MISSING and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return getattr(function.resolve(node.value), "__dict__", {}).get(node.attr, MISSING)
    return found


def _rows(function: Function, statement: ast.stmt) -> Iterator[ast.AST]:
    """A row that is inserted by this statement: a second time it is there twice, or an error."""
    call = _called(statement)
    if call is None:
        return
    if _method(call) == "execute":
        texts = [part.value for part in ast.walk(call) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if any(INSERT.match(text) and not REPEATABLE.search(text) for text in texts):
            yield call
    elif _method(call) == "add" and call.args:
        added = function.meant(call.args[0])
        if isinstance(added, ast.Call) and hasattr(function.resolve(added.func), "__mapper__"):
            yield call


def _clears(node: ast.AST) -> bool:
    """True for a statement of SQL that deletes: what is inserted behind it may be in the place of what was deleted."""
    texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return isinstance(node, ast.Call) and any(text.lstrip().lower().startswith("delete ") for text in texts)


def _called(statement: ast.stmt) -> ast.Call | None:
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Await):
        value = value.value
    return value if isinstance(value, ast.Call) else None


def _method(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""


RULES: tuple[Rule, ...] = (
    Rule("AB401", "A pause without a checkpointer", no_checkpointer, "Compile the graph with checkpointer=..."),
    Rule(
        "AB402",
        "A server that keeps conversations in memory",
        memory_that_serves,
        "Use a saver with a database: SQLite for one process, PostgreSQL for several.",
    ),
    Rule(
        "AB403",
        "A jump past the gate",
        jump_past_the_gate,
        "Jump to the model instead, so that each call comes past the gate; or let the tool itself look for the approval.",
    ),
    Rule("AB404", "A gate that may flip", flipping_when, "Decide by the call's own arguments, which do not change."),
    Rule(
        "AB405", "Two questions in one tool", two_questions, "Ask once for all that the tool must know, or make two tools of it."
    ),
    Rule(
        "AB406", "An effect before the question", effect_before_question, "Ask first and act afterwards, or act in a node before."
    ),
    Rule(
        "AB407",
        "A question in a node that is gone",
        waits_at_a_lost_node,
        "Keep the node's old name (a middleware has the property name), or answer all open questions before the deployment.",
    ),
)
