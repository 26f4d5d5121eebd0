"""Where a value lives: in the context, in the state, in the config, or outside of all three."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from abreast.doctor.rule import Found, Rule
from abreast.doctor.sources import Function, Source
from abreast.doctor.subject import Subject
from abreast.doctor.updates import key_of, reads, updates

LARGE, COSTLY = 10_000, 100_000
"""Bytes: of one value that is called large, and of what it took in all checkpoints together."""

IDENTITY = frozenset(("user_id", "tenant_id", "account_id", "org_id", "is_admin", "permissions", "scopes", "user_role"))
FRAMEWORK = frozenset(("thread_id", "run_id", "checkpoint_id", "checkpoint_ns"))
SECRET = re.compile(r"(?:^|_)(?:api_?key|password|passwd|secret|access_token|auth_token|private_key)(?:$|_)", re.IGNORECASE)
RUNS = frozenset(("invoke", "ainvoke", "stream", "astream", "astream_events"))


def never_changes(subject: Subject) -> Iterator[Found]:
    """A value came in with the input and is the same in every checkpoint of a thread, over two turns or more.

    It is stored again with every step for nothing, and a caller who forgets it, or sends another, changes who the run is for.
    Measured on the thread, with the bytes that it took; keys that a node's source writes are left out. Needs --thread.
    """
    thread = subject.thread
    if thread is None or sum(step.metadata.get("source") == "input" for step in thread.steps) < 2:
        return
    written = {key for function in _all(subject) for update in updates(function) for key in update.keys}
    for name, times in thread.constant.items():
        value = thread.steps[-1].values[name]
        channel = subject.channels.get(name)
        first = next(step.step for step in thread.steps if name in step.values)
        if channel is None or channel.spot is None or name in written or first > 0 or times < 4:
            continue
        if value in (None, "", False) or _conversation(value):
            continue
        message = f"it was the same in {times} checkpoints, which took {thread.stored(name)} bytes."
        yield Found(f"channel {name}", channel.spot, message)


def large_value(subject: Subject) -> Iterator[Found]:
    """A value of 10,000 bytes or more is kept in the checkpoints of a thread, where it took 100,000 bytes or more.

    SQLite stores it with every step, PostgreSQL strings too and other values with every change; a resume reads it back whole.
    Measured on the thread; the messages of the conversation are left out. Needs --thread.
    """
    thread = subject.thread
    for name, size in (thread.largest if thread else {}).items():
        stored = thread.stored(name) if thread else 0
        if size < LARGE or stored < COSTLY or thread is None or name not in subject.channels:
            continue
        if any(_conversation(step.values[name]) for step in thread.steps if name in step.values):
            continue
        message = f"up to {size} bytes in a checkpoint, {stored} bytes in {len(thread.steps)} checkpoints."
        yield Found(f"channel {name}", subject.channels[name].spot, message)


def framework_ids(subject: Subject) -> Iterator[Found]:
    """The state or the run context declares `thread_id`, `run_id` or another name of LangGraph's own.

    They belong to the config. A copy goes stale: a forked or copied thread carries the id of the one that it came from. The
    rule goes by the name alone.
    """
    for name, channel in subject.channels.items():
        if name in FRAMEWORK and channel.spot:
            yield Found(f"channel {name}", channel.spot, "this id is the framework's, and its copy goes stale.")
    found = subject.sources.klass(subject.context_schema)
    for line in found[1].body if found else ():
        if found and isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id in FRAMEWORK:
            yield Found("context", found[0].spot(line), f"{line.target.id} is the framework's.")


def identity_from_state(subject: Subject) -> Iterator[Found]:
    """A node or a tool takes who the person is, or what they may do, from the state or from `configurable`.

    State outlives the request in which it was true: the next caller of the thread acts as the last one, and a withdrawn right
    still counts. `configurable` is what the client may send. The rule sees the names user_id, tenant_id, account_id, org_id,
    is_admin, permissions, scopes and user_role, in the source of nodes and tools; other names are not seen.
    """
    for function, place in _placed(subject):
        for node in function.nodes:
            key = _from_state(function, node) or _from_configurable(node)
            if key in IDENTITY:
                yield Found(place, function.at(node), f"{key} is read from where a caller, or an earlier turn, has put it.")


def secrets_in_config(subject: Subject) -> Iterator[Found]:
    """A secret is put into `configurable` or `metadata` of a run's config.

    LangGraph copies plain values of both into the metadata of every checkpoint, in clear text. The rule sees literal configs
    in the application's files by the names of their keys (api_key, password, secret, access_token and the like), and the
    stored metadata of a thread. A name that begins with two underscores is not stored, and not a finding.
    """
    for source in subject.sources:
        for node in ast.walk(source.tree):
            for name, key in _config_keys(node):
                if SECRET.search(name) and not name.startswith("__"):
                    yield Found("config", source.spot(key), f"{name} ends up in the metadata of every checkpoint.")
    stored = {str(key) for step in (subject.thread.steps if subject.thread else ()) for key in step.metadata}
    for name in sorted(stored):
        if SECRET.search(name):
            yield Found("config", None, f"{name} stands in the stored metadata of the thread.")


def context_missing(subject: Subject) -> Iterator[Found]:
    """The graph is run without `context`, and a node or a tool reads a field of it.

    `runtime.context` is None then, without a warning, and the first read fails in the middle of the run. The rule sees calls of
    this very graph in the files that it reads; a call through another name is not seen.
    """
    for source, call in _runs(subject):
        if not _resumes(source, call):
            yield Found("graph", source.spot(call), "it is run without a context, and its nodes or tools read one.")


def context_missing_at_resume(subject: Subject) -> Iterator[Found]:
    """The graph is resumed without `context`, and a node or a tool reads a field of it.

    The context of the first call is not stored: after the pause it is None. It is built anew for each call, also because a
    right may have been withdrawn meanwhile. The rule sees `Command(resume=...)` in calls of this very graph.
    """
    for source, call in _runs(subject):
        if _resumes(source, call):
            yield Found("graph", source.spot(call), "it is resumed without a context, and its nodes or tools read one.")


def may_be_absent(subject: Subject) -> Iterator[Found]:
    """A first node reads `state["x"]` of a key that the state declares optional.

    Where the caller leaves it out, which the declaration allows, the node fails with KeyError. The rule sees nodes that follow
    the start directly and functions that never ask whether the key is there.
    """
    for name in subject.edges.get("__start__", ()):
        node = subject.nodes.get(name)
        for function in node.functions if node else ():
            asked = {key for key, _, surely in reads(function) if not surely} | _guarded(function)
            for key, at, needed in reads(function):
                channel = subject.channels.get(key)
                if needed and channel is not None and channel.optional and channel.overwrites and key not in asked:
                    yield Found(f"node {name}", function.at(at), f"{key} may be absent, and this reads it as if it were there.")


def prompt_names_state(subject: Subject) -> Iterator[Found]:
    """An agent's system prompt has a key of the state in braces.

    `create_agent` fills nothing in: the model reads the braces, not the value. What stands in state is not in the request until
    a middleware or a node puts it there. The rule sees the fixed prompt of `create_agent`.
    """
    for prompt in subject.prompts:
        for name in subject.channels:
            if name != "messages" and f"{{{name}}}" in prompt:
                yield Found(
                    f"channel {name}", subject.channels[name].spot, "the system prompt names it, and the model never sees it."
                )


def rows_in_state(subject: Subject) -> Iterator[Found]:
    """A key of the state is declared as a mapped class of SQLAlchemy, or a list of them.

    A row is the product's truth; a copy of it in a checkpoint is old from the next edit on, and most savers cannot store it.
    The rule goes by the declared type; rows that were made into dicts before are not seen.
    """
    for name, channel in subject.channels.items():
        if any(hasattr(kind, "__mapper__") for kind in (channel.type, *channel.items)):
            yield Found(f"channel {name}", channel.spot, "it holds rows of the product's database.")


def _placed(subject: Subject) -> Iterator[tuple[Function, str]]:
    for node in subject.nodes.values():
        for function in node.functions:
            yield function, f"node {node.name}"
    for tool in subject.tools:
        if tool.function:
            yield tool.function, f"tool {tool.name}"


def _all(subject: Subject) -> Iterator[Function]:
    return (function for function, _ in _placed(subject))


def _conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(hasattr(one, "content") and hasattr(one, "type") for one in value)


def _from_state(function: Function, node: ast.AST) -> str | None:
    """The key of `state["key"]` in a node, of `runtime.state["key"]` in a tool."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return None
    if isinstance(node, ast.Subscript | ast.Call):
        owner = node.value if isinstance(node, ast.Subscript) else getattr(node.func, "value", None)
        if isinstance(owner, ast.Attribute) and owner.attr == "state" and isinstance(owner.value, ast.Name):
            return _constant(node)
        if isinstance(owner, ast.Name) and owner.id == "state" and owner.id in function.parameters:
            return key_of(node, owner.id)
    return None


def _from_configurable(node: ast.AST) -> str | None:
    owner = node.value if isinstance(node, ast.Subscript) else getattr(getattr(node, "func", None), "value", None)
    named = isinstance(owner, ast.Subscript) and isinstance(owner.slice, ast.Constant) and owner.slice.value == "configurable"
    return _constant(node) if named else None


def _constant(node: ast.AST) -> str | None:
    part: Any = None
    if isinstance(node, ast.Subscript):
        part = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        part = node.args[0]
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None


def _config_keys(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value in ("configurable", "metadata") and isinstance(value, ast.Dict):
            beside = {one.value for one in node.keys if isinstance(one, ast.Constant)}
            if key.value == "metadata" and "configurable" not in beside:
                continue  # any dict may have metadata; only beside `configurable` it is a run's config
            yield from ((one.value, one) for one in value.keys if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _runs(subject: Subject) -> Iterator[tuple[Source, ast.Call]]:
    """The calls that run this graph without a context, if something in the graph reads a field of the context."""
    if not any(_reads_context(function) for function in _all(subject)):
        return
    for source in subject.sources:
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in RUNS:
                continue
            given = {keyword.arg for keyword in node.keywords}
            if source.resolve(node.func.value) is subject.graph and not given & {"context", None}:
                yield source, node


def _reads_context(function: Function) -> bool:
    """True for `runtime.context.field` where `runtime` is a parameter, without a check for None anywhere in the body."""
    tests = [node for node in function.nodes if isinstance(node, ast.If | ast.IfExp | ast.BoolOp | ast.Try)]
    if any(isinstance(part, ast.Attribute) and part.attr == "context" for test in tests for part in ast.walk(test)):
        return False
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "context"
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id in function.parameters
        for node in function.nodes
    )


def _resumes(source: Source, call: ast.Call) -> bool:
    from langgraph.types import Command

    first = call.args[0] if call.args else None
    return (
        isinstance(first, ast.Call)
        and source.resolve(first.func) is Command
        and any(one.arg == "resume" for one in first.keywords)
    )


def _guarded(function: Function) -> set[str]:
    """Keys of `"x" in state`; and all keys, if the whole body may expect the error."""
    found = {
        str(node.left.value) for node in function.nodes if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant)
    }
    if any(isinstance(node, ast.Try) for node in function.nodes):
        found |= {key for key, _, _ in reads(function)}
    return found


RULES: tuple[Rule, ...] = (
    Rule(
        "AB201", "A value that never changes", never_changes, "Pass it as context: context_schema=..., invoke(..., context=...)."
    ),
    Rule(
        "AB202",
        "A large value in every checkpoint",
        large_value,
        "Keep it in a store of its own, and its id in the state; or declare it with UntrackedValue if one run needs it only.",
    ),
    Rule("AB203", "The framework's ids as own values", framework_ids, "Read runtime.execution_info or config where you need it."),
    Rule(
        "AB204",
        "Identity or permission from state",
        identity_from_state,
        "Read it from runtime.context, which the server builds from the authenticated caller in every request.",
    ),
    Rule(
        "AB205",
        "A secret in the config",
        secrets_in_config,
        "Pass it in the context, which is never stored, or keep it in the server.",
    ),
    Rule("AB206", "A run without context", context_missing, "Pass context=... in every call."),
    Rule("AB207", "A resume without context", context_missing_at_resume, "Build the context anew and pass it with the resume."),
    Rule("AB208", "A key that may be absent", may_be_absent, 'Read it with state.get("key", default), or declare it required.'),
    Rule(
        "AB209",
        "A prompt that names a key of the state",
        prompt_names_state,
        "Write the value into the request with a dynamic prompt (@dynamic_prompt) or in the model's node.",
    ),
    Rule("AB210", "Rows copied into the state", rows_in_state, "Keep the id in the state, and read the row where it is needed."),
)
