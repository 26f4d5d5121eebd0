"""Where a value lives: in the context, in the state, in the config, or outside of all three."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NotRequired, get_origin

from abreast.doctor.flow import surely_runs
from abreast.doctor.rule import Found, Rule
from abreast.doctor.runs import Run, configured
from abreast.doctor.sources import MISSING, Function, Source
from abreast.doctor.subject import Channel, Subject
from abreast.doctor.updates import given_key, key_of, reads, updates
from abreast.doctor.writes import writes

LARGE, COSTLY = 10_000, 100_000
"""Bytes: of one value that is called large, and of what it took in all checkpoints together."""

IDENTITY = frozenset(("user_id", "userid", "tenant_id", "is_admin", "permissions", "scopes", "user_role"))
SUBJECTS = frozenset(("permissions", "scopes"))
"""Names of rights that mean something else in other trades."""

FRAMEWORK = frozenset(("thread_id", "run_id", "checkpoint_id", "checkpoint_ns"))
SECRET = re.compile(r"(?:^|_)(?:api_?key|passw(?:or)?d|secret(?:_key)?|(?:access|auth|bearer)_token|private_key)$", re.IGNORECASE)
TEMPLATES = re.compile(r"placeholder|template|brace|literal|jinja|as it is|verbatim", re.IGNORECASE)
"""A prompt with such a word may speak of the braces themselves."""


def never_changes(subject: Subject) -> Iterator[Found]:
    """A value came in with the input and is the same in every checkpoint of a thread, over two turns or more.

    It is stored again with every step for nothing, and a caller who forgets it, or sends another, changes who the run is for.
    Measured on the thread, with the bytes that it took; keys that a node or a tool may write, in a subgraph too, are left out.
    Needs --thread.
    """
    thread = subject.thread
    if thread is None or sum(step.metadata.get("source") == "input" for step in thread.steps) < 2:
        return
    if any(map(_writes_unseen, subject.all())):
        return
    everything = [function for part in subject.all() for function in _all(part)]
    written = {key for function in everything for update in updates(function) for key in update.written}
    for name, times in thread.constant.items():
        value = thread.newest[name]
        channel = subject.channels.get(name)
        first = next(step.step for step in thread.steps if name in step.digests)
        if channel is None or channel.spot is None or name in written or first > 0 or times < 4:
            continue
        if value in (None, "", False) or name in thread.conversations:
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
        if name in thread.conversations:
            continue
        message = f"up to {size} bytes in a checkpoint, {stored} bytes in {len(thread.steps)} checkpoints."
        yield Found(f"channel {name}", subject.channels[name].spot, message)


def framework_ids(subject: Subject) -> Iterator[Found]:
    """The state or the run context has a copy of `thread_id`, `run_id` or another name of LangGraph's own.

    They belong to the config. A copy goes stale: a forked or copied thread carries the id of the one that it came from. The
    rule sees runs that give one value under such a name to the config and to the input or the context, nodes that copy it out
    of the config, and configs that are made of the copy. The name alone is no finding: other systems have threads too.
    """
    context = subject.sources.klass(subject.context_schema)
    fields = {
        line.target.id: line
        for line in (context[1].body if context else ())
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
    for name in sorted(FRAMEWORK):
        channel = subject.channels.get(name)
        if channel is not None and channel.spot and (_given_twice(subject, name, "input") or _copied_in_nodes(subject, name)):
            yield Found(f"channel {name}", channel.spot, "this id is the framework's, and its copy goes stale.")
        if context and name in fields and (_given_twice(subject, name, "context") or _back_into_config(subject, name)):
            yield Found("context", context[0].spot(fields[name]), f"{name} is the framework's.")


def identity_from_state(subject: Subject) -> Iterator[Found]:
    """A node or a tool takes who the person is, or what they may do, from the state or from `configurable`.

    State outlives the request in which it was true: the next caller of the thread acts as the last one, and a withdrawn right
    still counts. `configurable` is what the client may send. The rule sees the names user_id, userid, tenant_id, is_admin,
    permissions, scopes and user_role, in the source of nodes and tools. A value that a node writes, that `Send` carries, or that
    the application itself gives to every run that can be seen, is no finding; nor are permissions and scopes from the state that
    nothing tests for what is in them: they may be those of a house.
    """
    own = _from_outside(subject)
    ours = {name for source in subject.sources for name in _configured_names(source)}
    nodes = {id(function) for function in subject.functions}
    for function, place in _placed(subject):
        for node in function.nodes:
            if not isinstance(node, ast.Subscript | ast.Call | ast.Attribute):
                continue
            key = _from_state(subject, function, node) if id(function) in nodes else _from_tool_state(function, node)
            if key is None or key not in own or (key in SUBJECTS and not _tested(function, node)):
                key = _from_configurable(function, node)
                key = None if key in ours else key
            if key in IDENTITY:
                yield Found(place, function.at(node), f"{key} is read from where a caller, or an earlier turn, has put it.")


def secrets_in_config(subject: Subject) -> Iterator[Found]:
    """A secret is put into `configurable` or `metadata` of the config of a run whose checkpoints are kept.

    LangGraph copies plain values of both into the metadata of every checkpoint, in clear text. The rule sees runs of this very
    graph with a checkpointer, by the names of the keys in literal configs (api_key, password, secret, access_token and the
    like), and the stored metadata of a thread. A name that begins with two underscores is not stored, an object such as
    SecretStr neither: they are no finding.
    """
    kept = subject.checkpointer not in (None, False)
    seen: set[tuple[str, int]] = set()
    for run in subject.runs if kept else ():
        for name, value in _stored_with(run):
            spot = run.scope.source.spot(value)
            if SECRET.search(name) and not name.startswith("__") and _plain(run, value) and (name, spot.line) not in seen:
                seen.add((name, spot.line))
                yield Found("config", spot, f"{name} ends up in the metadata of every checkpoint.")
    steps = subject.thread.steps if subject.thread else ()
    stored = {str(key) for step in steps for key, value in step.metadata.items() if value is True}
    for name in sorted(stored):
        if SECRET.search(name):
            yield Found("config", None, f"{name} stands in the stored metadata of the thread.")


def context_missing(subject: Subject) -> Iterator[Found]:
    """The graph is run without `context`, and a node that surely runs reads a field of it.

    `runtime.context` is None then, without a warning, and the first read fails in the middle of the run. The rule sees calls of
    this very graph in the files that it reads, and nodes that fixed edges start; a call through another name is not seen, nor
    one inside a node or a tool, or a function that may become one because it is handed on: it has the context of the run around.
    """
    reading = [name for name in subject.first for function in subject.nodes[name].functions if _reads_context(function)]
    for run in _without_context(subject) if reading else ():
        if not run.goes_on:
            yield Found("graph", run.scope.source.spot(run.call), "it is run without a context, and its nodes read one.")


def context_missing_at_resume(subject: Subject) -> Iterator[Found]:
    """The graph is resumed without `context`, and the node that has paused reads a field of it.

    The context of the first call is not stored: after the pause it is None. It is built anew for each call, also because a
    right may have been withdrawn meanwhile. The rule sees `Command(resume=...)` in calls of this very graph, where every node
    that calls `interrupt` reads the context.
    """
    from langgraph.types import interrupt

    pausing = [function for function in subject.functions if any(True for _ in function.calls(interrupt))]
    elsewhere = any(tool.function and any(True for _ in tool.function.calls(interrupt)) for tool in subject.tools)
    certain = pausing and not elsewhere and not subject.subgraphs and all(_reads_context(function) for function in pausing)
    for run in _without_context(subject) if certain else ():
        if run.resumes:
            yield Found("graph", run.scope.source.spot(run.call), "it is resumed without a context, and its nodes read one.")


def may_be_absent(subject: Subject) -> Iterator[Found]:
    """A first node reads `state["x"]` of a key that the state declares NotRequired.

    Where the caller leaves it out, which the declaration allows, the node fails with KeyError. The rule sees nodes that follow
    the start directly, reads that every call reaches, and functions that never ask whether the key is there. A `total=False` for
    all keys says little: there a run that can be seen must leave the key out.
    """
    for name in subject.follows.get("__start__", ()):
        node = subject.nodes.get(name)
        for function in node.functions if node else ():
            asked = {key for key, _, surely in reads(function) if not surely} | _guarded(function)
            for key, at, needed in reads(function):
                channel = subject.channels.get(key)
                if not needed or channel is None or not channel.overwrites or key in asked or not surely_runs(function, at):
                    continue
                if given_key(function, at) == key and _left_out(subject, channel):
                    yield Found(f"node {name}", function.at(at), f"{key} may be absent, and this reads it as if it were there.")


def prompt_names_state(subject: Subject) -> Iterator[Found]:
    """An agent's system prompt has a key of the state in braces.

    `create_agent` fills nothing in: the model reads the braces, not the value. What stands in state is not in the request until
    a middleware or a node puts it there. The rule sees the fixed prompt of `create_agent` without a middleware that wraps the
    model's call; a prompt that speaks of templates, quotes the braces or doubles them is no finding.
    """
    if any(_changes_requests(one) for one in subject.middleware) or any(subject.wrapping):
        return
    for prompt in subject.prompts:
        if "{{" in prompt or TEMPLATES.search(prompt):
            continue
        for name, channel in subject.channels.items():
            if name != "messages" and channel.spot and re.search(rf"(?<![\"'`$]){{{re.escape(name)}}}(?![\"'`])", prompt):
                yield Found(f"channel {name}", channel.spot, "the system prompt names it, and the model never sees it.")


def rows_in_state(subject: Subject) -> Iterator[Found]:
    """A key of the state is declared as a mapped class of SQLAlchemy, or a list of them, and the state is kept.

    A row is the product's truth; a copy of it in a checkpoint is old from the next edit on, and most savers cannot store it.
    The rule goes by the declared type; rows that were made into dicts before are not seen. An UntrackedValue, which no
    checkpoint holds, is no finding, nor a graph that the application runs without a checkpointer.
    """
    for name, channel in subject.channels.items() if subject.stored else ():
        if channel.kept and any(hasattr(kind, "__mapper__") for kind in (channel.type, *channel.items)):
            yield Found(f"channel {name}", channel.spot, "it holds rows of the product's database.")


def _writes_unseen(subject: Subject) -> bool:
    """True if some part of a graph may write keys that cannot be read from its source."""
    from langgraph.types import Command

    if subject.builder is None:
        return True
    composed = any("not looked into" in note.message for note in subject.notes)
    commands = [tool.function for tool in subject.tools if tool.function and any(True for _ in tool.function.calls(Command))]
    found = [update for function in (*subject.functions, *commands) for update in updates(function)]
    return composed or not all(update.known or update.whole for update in found)


def _placed(subject: Subject) -> Iterator[tuple[Function, str]]:
    for node in subject.nodes.values():
        for function in node.functions:
            yield function, f"node {node.name}"
    for tool in subject.tools:
        if tool.function:
            yield tool.function, f"tool {tool.name}"


def _all(subject: Subject) -> Iterator[Function]:
    return (function for function, _ in _placed(subject))


def _given_twice(subject: Subject, name: str, door: str) -> bool:
    """True if a run gives one expression under a name to `configurable`, and to its input or its context as well."""
    for run in subject.runs:
        ours = run.scope.below(run.config, "configurable").get(name)
        other = run.given.get(name) if door == "input" else _argument(run, name)
        if ours is not None and other is not None and ast.dump(ours) == ast.dump(other):
            return True
    return False


def _argument(run: Run, name: str) -> ast.expr | None:
    """What a run's context is made with under a name: `context=Context(name=...)`."""
    made = run.scope.meant(run.keyword("context"))
    keywords = made.keywords if isinstance(made, ast.Call) else ()
    return next((word.value for word in keywords if word.arg == name), None)


def _copied_in_nodes(subject: Subject, name: str) -> bool:
    """True if a node writes the config's value under a name to the state, or puts the state's back into a config."""
    for _, function, key, value in writes(subject):
        if key == name and _item_of_configurable(function, function.meant(value)) == name:
            return True
    return _back_into_config(subject, name)


def _back_into_config(subject: Subject, name: str) -> bool:
    for function in _all(subject):
        for node in function.nodes:
            for key, value in _config_keys(node):
                meant = function.meant(value)
                from_context = isinstance(meant, ast.Attribute) and ast.unparse(meant).endswith(f".context.{name}")
                if key == name and (given_key(function, meant) == name or from_context):
                    return True
    return False


def _from_outside(subject: Subject) -> frozenset[str]:
    """The names of people and rights that come into the state from outside of the run, or from an earlier one, and only so."""
    if subject.parent is not None:
        above = _from_outside(subject.parent) if subject.shares else frozenset()
    else:
        above = frozenset(name for name in IDENTITY if _left_to_the_caller(subject, name))
    nodes = [update for part in subject.all() for function in part.functions for update in updates(function)]
    if not all(update.known or update.whole for update in nodes):
        return frozenset()  # whatever cannot be seen may have loaded it
    tools = [update for part in subject.all() for function in _all(part) for update in updates(function)]
    return above - {key for update in (*nodes, *tools) for key in update.written}


def _left_to_the_caller(subject: Subject, name: str) -> bool:
    """True if no run can be seen; or if one, on a thread that is kept, leaves the value to an earlier one."""
    if any(name in run.given.keys for run in subject.unclear_runs):
        return False
    if not subject.runs:
        return True
    kept = subject.checkpointer not in (None, False)
    return kept and any(run.given.known and name not in run.given.keys for run in subject.runs)


def _configured_names(source: Source) -> Iterator[str]:
    """The names that the application itself puts into `configurable`."""
    if "configurable" in source.text:
        yield from (name for node in source.nodes for name, _ in _config_keys(node))


def _tested(function: Function, node: ast.AST) -> bool:
    """True if something asks what is in an expression, or in the local name that it is given."""
    outer = function.parent(node)
    named = [one.id for one in outer.targets if isinstance(one, ast.Name)] if isinstance(outer, ast.Assign) else []
    for one in (node, *(use for name in named for use in function.loads.get(name, ()))):
        above = function.parent(one)
        if isinstance(above, ast.Compare) and any(isinstance(how, ast.In | ast.NotIn) for how in above.ops):
            return one is not above.left
    return False


def _from_state(subject: Subject, function: Function, node: ast.AST) -> str | None:
    """The key of `state["key"]` in a node."""
    key = key_of(node, function.state)
    if key not in IDENTITY or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or given_key(function, node) != key:
        return None
    return key if not isinstance(node, ast.Attribute) or key in subject.channels else None


def _from_tool_state(function: Function, node: ast.AST) -> str | None:
    """The key of `runtime.state["key"]` in a tool, and of a parameter that carries the state."""
    owner = node.value if isinstance(node, ast.Subscript) else getattr(getattr(node, "func", None), "value", None)
    if isinstance(owner, ast.Attribute) and owner.attr == "state" and isinstance(owner.value, ast.Name):
        return _constant(node) if _given_to_tool(function, owner.value.id, "ToolRuntime") else None
    if isinstance(owner, ast.Name) and _given_to_tool(function, owner.id, "InjectedState"):
        return key_of(node, owner.id)
    return None


def _given_to_tool(function: Function, name: str, kind: str) -> bool:
    """True for a parameter of a tool that LangGraph fills in, and not the model."""
    arguments = [one for one in ast.walk(function.tree.args) if isinstance(one, ast.arg) and one.arg == name]
    noted = [ast.unparse(one.annotation) for one in arguments if one.annotation is not None]
    return name not in function.locals and any(kind in text for text in noted)


def _from_configurable(function: Function, node: ast.AST) -> str | None:
    name = _item_of_configurable(function, node)
    return name if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else None


def _item_of_configurable(function: Function, node: ast.AST) -> str | None:
    """The key of `config["configurable"]["key"]`, of its forms with `get`, and of a local name for the inner dict."""
    owner = node.value if isinstance(node, ast.Subscript) else getattr(getattr(node, "func", None), "value", None)
    owner = function.meant(owner) if isinstance(owner, ast.expr) else None
    if isinstance(owner, ast.BoolOp) and isinstance(owner.op, ast.Or):
        owner = owner.values[0]
    return _constant(node) if owner is not None and _constant(owner) == "configurable" else None


def _constant(node: ast.AST) -> str | None:
    part: Any = None
    if isinstance(node, ast.Subscript):
        part = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        part = node.args[0]
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None


def _config_keys(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The keys of `configurable` in a literal config, and of `dict(...)` there."""
    pairs: list[tuple[Any, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = [(key.value, value) for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)]
    elif isinstance(node, ast.Call):
        pairs = [(word.arg, word.value) for word in node.keywords]
    for name, inner in pairs:
        if name == "configurable" and isinstance(inner, ast.Dict):
            yield from (
                (key.value, value)
                for key, value in zip(inner.keys, inner.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            )
        elif name == "configurable" and isinstance(inner, ast.Call):
            yield from ((word.arg, word.value) for word in inner.keywords if word.arg)


def _stored_with(run: Run) -> Iterator[tuple[str, ast.expr]]:
    """What a run's config puts into the metadata of its checkpoints."""
    for part in ("configurable", "metadata"):
        yield from run.scope.below(run.config, part).keys.items()
        for call in configured(run.call):
            given = next((word.value for word in call.keywords if word.arg == part), None)
            yield from run.scope.parts(given).keys.items()
            yield from run.scope.below(call.args[0] if call.args else None, part).keys.items()


def _plain(run: Run, value: ast.expr) -> bool:
    """True for a text, and for a name that nothing says to be something else."""
    meant = run.scope.meant(value)
    if isinstance(meant, ast.Constant):
        return isinstance(meant.value, str) and bool(meant.value)
    if isinstance(meant, ast.Call):
        return ast.unparse(meant.func).rpartition(".")[2] in ("str", "getenv", "getpass") or "environ" in ast.unparse(meant.func)
    if isinstance(meant, ast.Name):
        known = run.scope.resolve(meant)
        arguments = [one for tree in run.scope.functions for one in ast.walk(tree.args) if isinstance(one, ast.arg)]
        noted = [one.annotation for one in arguments if one.arg == meant.id]
        texts = all(note is None or "str" in ast.unparse(note).replace("Secret", "") for note in noted)
        return isinstance(known, str) if known is not MISSING else meant.id in run.scope.parameters and texts
    return isinstance(meant, ast.JoinedStr) or (isinstance(meant, ast.Subscript) and ast.unparse(meant.value).endswith("environ"))


def _without_context(subject: Subject) -> Iterator[Run]:
    """The runs of the outermost graph without a context, where no run around them can bring one."""
    for run in subject.runs if subject.parent is None else ():
        given = {word.arg for word in run.call.keywords}
        inside = run.scope.parameters & {"state", "runtime", "config"} or any(map(run.scope.source.hands_on, run.scope.functions))
        if not given & {"context", "interrupt_before", "interrupt_after", None} and not inside:
            yield run


def _reads_context(function: Function) -> bool:
    """True if every call reads `runtime.context.field` of a parameter, and nothing in the body asks for None."""
    tests = [node for node in function.nodes if isinstance(node, ast.If | ast.IfExp | ast.BoolOp | ast.Try)]
    if any(isinstance(part, ast.Attribute) and part.attr == "context" for test in tests for part in ast.walk(test)):
        return False
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "context"
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id in function.parameters
        and node.value.value.id not in function.locals
        and surely_runs(function, node)
        for node in function.nodes
    )


def _left_out(subject: Subject, channel: Channel) -> bool:
    """True if the caller may leave a key out, or does so in a run that can be seen."""
    runs = [run for run in subject.runs if not run.goes_on]
    if subject.shares and channel.name in getattr(subject.parent, "channels", ()):
        return False  # the graph above may have filled it
    if any(channel.name not in run.given.keys and run.given.known for run in runs):
        return channel.optional and (channel.may_be_absent or subject.checkpointer in (None, False))
    declared = subject.declared_input(channel.name)
    return not runs and channel.may_be_absent and declared is not None and get_origin(declared) is NotRequired


def _changes_requests(middleware: Any) -> bool:
    from langchain.agents.middleware import AgentMiddleware

    hooks = ("wrap_model_call", "awrap_model_call", "before_model", "abefore_model", "before_agent", "abefore_agent")
    return any(getattr(type(middleware), hook, None) is not getattr(AgentMiddleware, hook, None) for hook in hooks)


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
