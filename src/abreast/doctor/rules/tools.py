"""Between a model's tool call and its answer: who runs it, what comes back, where the loop ends."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from abreast.doctor.bindings import bindings, says
from abreast.doctor.flow import in_loop
from abreast.doctor.rule import Found, Rule
from abreast.doctor.sources import MISSING, Function, tame
from abreast.doctor.subject import Subject
from abreast.doctor.updates import is_name

RUNNERS = ("ToolNode", "tools_condition", "ToolsParser", "content_blocks")
"""What runs or reads tool calls for an application that does not do so itself."""


def calls_nobody_runs(subject: Subject) -> Iterator[Found]:
    """A model is handed tools, and nothing in the graph runs what it calls.

    A tool call in a message is a request: nothing has happened yet, whatever the model says next. The rule speaks where the graph
    has neither a tool node nor a subgraph, the reply only goes into the state, the tools are functions of the same file that
    do something, and no file reads `tool_calls` or names one of LangChain's ways to run or parse them. A caller elsewhere
    that runs the calls is not seen.
    """
    whole = all(node.functions for node in subject.nodes.values())
    if subject.place or subject.tools or subject.subgraphs or subject.middleware or not whole:
        return
    found = [one for one in bindings(subject) if one.names and not one.forced]
    functions = (*subject.functions, *(router for _, router in subject.routers))
    if not found or says(subject, functions, RUNNERS) or _reads_calls(subject):
        return
    for one in found:
        if _only_kept(one.function, one.call) and one.names <= set(_working(subject, one.function)):
            message = "the model may call tools, and nothing in the graph runs what it calls."
            yield Found(f"node {one.node.name}", one.function.at(one.call), message)


def command_without_answer(subject: Subject) -> Iterator[Found]:
    """A tool returns `Command(update=...)` without a ToolMessage.

    The tool node makes the answering message of a plain result; with a Command that is up to the tool. LangGraph ends the run
    with an error, and the tool call stays open in the history, which providers refuse from then on. The rule sees updates that
    are written as a dict, at once or key by key, without messages or with a literal list of other messages.
    """
    for tool in subject.tools:
        runnable = subject.nodes[tool.node].runnable if tool.node in subject.nodes else None
        if not _plain_tool_node(runnable) or tool.function is None:
            continue
        for command in _commands(tool.function):
            update = _keyword(command, "update")
            if update is not None and _keyword(command, "graph") is None and _surely_no_answer(tool.function, update):
                message = "it returns a Command without the ToolMessage that answers the call."
                yield Found(f"tool {tool.name}", tool.function.at(command), message)


def command_made_text(subject: Subject) -> Iterator[Found]:
    """A node runs tools by hand and makes a ToolMessage of whatever they return, and one of them returns a Command.

    The Command becomes text: its update of the state and its `goto` are lost without an error. The rule sees tools that are
    called by name or out of a dict, in a node that names neither Command nor the tool's name as a text.
    """
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool
    from langgraph.types import Command

    for node in subject.nodes.values():
        for function in node.functions:
            names = [part for part in function.nodes if isinstance(part, ast.Name | ast.Attribute)]
            if any(function.resolve(part) is Command for part in names):
                continue
            named = {part.value for part in function.nodes if isinstance(part, ast.Constant)}
            for message in function.calls(ToolMessage):
                for tool in _ran(function, message):
                    if isinstance(tool, BaseTool) and tool.name not in named and _returns_command(subject, tool):
                        yield Found(
                            f"node {node.name}",
                            function.at(message),
                            f"{tool.name} returns a Command, and this makes text of it.",
                        )


def changed_state(subject: Subject) -> Iterator[Found]:
    """A tool assigns to a key of `runtime.state` and returns no Command.

    What a tool is given is a copy of the keys; the assignment is seen by nobody, not even by the next step. The rule sees
    assignments and `update` on the state of a ToolRuntime parameter, in tools none of whose returns is a Command. A tool that
    goes on to read the state, or hands it on, may use the copy as its scratch paper, and is no finding.
    """
    for tool in subject.tools:
        function = tool.function
        if function is None or _mentions_command(function):
            continue
        runtimes = set(_runtimes(function))
        for part in function.nodes:
            if _assigns_state(function, part, runtimes) and not _used_after(function, part, runtimes):
                yield Found(f"tool {tool.name}", function.at(part), "it changes runtime.state, which reaches nobody.")


def _reads_calls(subject: Subject) -> bool:
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "tool_calls")
        or (isinstance(node, ast.Constant) and node.value == "tool_calls")
        for source in subject.sources
        for node in ast.walk(source.tree)
    )


def _working(subject: Subject, function: Function) -> Iterator[str]:
    """The names of the tools in a function's file whose own code does something: calls, or changes, anything."""
    from langchain_core.tools import BaseTool

    for thing in list(function.source.namespace.values()):
        call = (getattr(thing, "func", None) or getattr(thing, "coroutine", None)) if isinstance(tame(thing), BaseTool) else None
        body = subject.sources.function(call) if call else None
        if body is not None and any(isinstance(part, ast.Call | ast.Assign | ast.AugAssign) for part in body.nodes):
            yield thing.name


def _only_kept(function: Function, call: ast.Call) -> bool:
    """True if a reply, or the name it is given, only stands in a list or a dict, or is asked for its text."""
    parents = {id(child): parent for parent in ast.walk(function.tree) for child in ast.iter_child_nodes(parent)}
    parent = parents.get(id(call))
    if isinstance(parent, ast.Await):
        parent = parents.get(id(parent))
    if not isinstance(parent, ast.Assign):
        return isinstance(parent, ast.List)
    target = parent.targets[0]
    if len(parent.targets) != 1 or not isinstance(target, ast.Name) or len(function.locals[target.id]) != 1:
        return False
    uses = [
        node for node in ast.walk(function.tree) if isinstance(node, ast.Name) and node.id == target.id and node is not target
    ]
    around = [parents.get(id(use)) for use in uses]
    return all(
        isinstance(one, ast.List) or (isinstance(one, ast.Attribute) and one.attr in ("content", "text")) for one in around
    )


def _assigns_state(function: Function, node: ast.AST, runtimes: set[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        return _is_state(function.meant(node.func.value), runtimes)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(isinstance(target, ast.Subscript) and _is_state(function.meant(target.value), runtimes) for target in targets)


def _used_after(function: Function, changing: ast.AST, runtimes: set[str]) -> bool:
    """True if the state, or the runtime around it, is read or handed on behind a change, or in the same loop."""
    loop = in_loop(function, changing)
    inside = {id(part) for part in ast.walk(changing)}
    for name, found in function.loads.items():
        for use in found:
            outer = function.parent(use)
            whole = outer if isinstance(outer, ast.Attribute) and outer.attr == "state" else use
            if not _is_state(function.meant(whole) if isinstance(whole, ast.expr) else whole, runtimes):
                whole = use
                if name not in runtimes or isinstance(outer, ast.Attribute):
                    continue
            written = isinstance(above := function.parent(whole), ast.Subscript) and not isinstance(above.ctx, ast.Load)
            later = use.lineno > (getattr(changing, "end_lineno", None) or 0)
            again = loop is not None and any(part is use for part in ast.walk(loop))
            if not written and id(use) not in inside and (later or again):
                return True
    return False


def _is_state(node: ast.AST, runtimes: set[str]) -> bool:
    named = isinstance(node, ast.Attribute) and node.attr == "state" and isinstance(node.value, ast.Name)
    return named and node.value.id in runtimes  # type: ignore[attr-defined]


def _runtimes(function: Function) -> Iterator[str]:
    """The parameters that are annotated as ToolRuntime, and not bound anew."""
    from langgraph.prebuilt import ToolRuntime

    arguments = function.tree.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        given = argument.annotation is not None and function.resolve(argument.annotation) is ToolRuntime
        if given and argument.arg not in function.locals:
            yield argument.arg


def _plain_tool_node(runnable: Any) -> bool:
    """True for LangGraph's tool node with messages under their usual key, and nothing around its calls."""
    from langgraph.prebuilt import ToolNode

    wrapped = getattr(runnable, "_wrap_tool_call", None) or getattr(runnable, "_awrap_tool_call", None)
    return isinstance(runnable, ToolNode) and not wrapped and getattr(runnable, "_messages_key", "") == "messages"


def _command(function: Function, expression: ast.expr) -> ast.Call | None:
    from langgraph.types import Command

    node = function.meant(expression)
    return node if isinstance(node, ast.Call) and function.resolve(node.func) is Command and _named(node) else None


def _commands(function: Function) -> Iterator[ast.Call]:
    """The Commands of which one is surely the whole result: returned, chosen between, or alone in a list."""
    waiting = list(function.returns)
    while waiting:
        node = function.meant(waiting.pop(0))
        if isinstance(node, ast.IfExp):
            waiting += [node.body, node.orelse]
        elif isinstance(node, ast.List) and len(node.elts) == 1:
            waiting.append(node.elts[0])
        elif (command := _command(function, node)) is not None:
            yield command


def _named(call: ast.Call) -> bool:
    return not call.args and all(keyword.arg for keyword in call.keywords)


def _keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None) if call else None


def _surely_no_answer(function: Function, update: ast.expr) -> bool:
    """True for an update, all of whose keys can be seen, that has no messages, or a literal list of messages of other kinds."""
    from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage

    keys = _all_keys(function, update)
    if keys is None or "messages" not in keys:
        return keys is not None
    value = function.meant(keys["messages"])
    for item in value.elts if isinstance(value, ast.List) else [value]:
        kind = function.resolve(item.func) if isinstance(item, ast.Call) else MISSING
        if not isinstance(kind, type) or not issubclass(kind, BaseMessage) or issubclass(kind, ToolMessage | RemoveMessage):
            return False
    return True


def _all_keys(function: Function, update: ast.expr) -> dict[str, ast.expr] | None:
    """The keys of a dict that is written at once (`{...}`, `dict(...)`) or key by key; None if there may be others."""
    made = function.meant(update)
    if isinstance(made, ast.Call) and function.resolve(made.func) is dict and not made.args:
        pairs: list[tuple[object, ast.expr]] = [(word.arg, word.value) for word in made.keywords]
    elif isinstance(made, ast.Dict):
        pairs = [(getattr(key, "value", None), value) for key, value in zip(made.keys, made.values, strict=True)]
    else:
        return None
    for use in (node for node in function.nodes if isinstance(update, ast.Name) and is_name(node, update.id)):
        outer = function.parent(use)
        statement = function.parent(outer)
        if isinstance(outer, ast.Subscript) and isinstance(statement, ast.Assign) and statement.targets == [outer]:
            pairs.append((getattr(outer.slice, "value", None), statement.value))
        elif use is not update and not (isinstance(outer, ast.Assign | ast.AnnAssign) and outer.value is made):
            return None
    return {key: value for key, value in pairs if isinstance(key, str)} if all(isinstance(key, str) for key, _ in pairs) else None


def _mentions_command(function: Function) -> bool:
    from langgraph.types import Command

    return any(function.resolve(part) is Command for part in function.nodes if isinstance(part, ast.Name | ast.Attribute))


def _returns_command(subject: Subject, tool: Any) -> bool:
    """True if every return of the tool's function is a Command."""
    call = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    function = subject.sources.function(call) if call else None
    if function is None or not function.returns:
        return False
    return all(_command(function, expression) is not None for expression in function.returns)


def _ran(function: Function, message: ast.Call) -> Iterator[Any]:
    """The tools whose result is the content of this message, with or without `str` around it."""
    content = _keyword(message, "content") or (message.args[0] if message.args else None)
    for _ in range(5):
        content = function.meant(content) if content is not None else None
        if isinstance(content, ast.Call) and isinstance(content.func, ast.Name) and content.func.id in ("str", "repr"):
            content = content.args[0] if content.args else None
        elif isinstance(content, ast.Await):
            content = content.value
    if not isinstance(content, ast.Call) or not isinstance(content.func, ast.Attribute):
        return
    if content.func.attr in ("invoke", "ainvoke"):
        owner = function.resolve(function.meant(content.func.value))
        yield from owner.values() if isinstance(owner, dict) else [owner]


RULES = (
    Rule(
        "AB301",
        "A tool call is taken for its execution",
        calls_nobody_runs,
        "Add a ToolNode with the same tools, a conditional edge to it (tools_condition) and the edge back.",
    ),
    Rule(
        "AB302",
        "A Command without the answer to its call",
        command_without_answer,
        'Put the answer into the update: "messages": [ToolMessage("Done.", tool_call_id=runtime.tool_call_id)].',
    ),
    Rule(
        "AB303",
        "A hand-made tool node makes text of a Command",
        command_made_text,
        "Use LangGraph's ToolNode, or return the Command itself among the node's results.",
    ),
    Rule(
        "AB304",
        "A tool changes runtime.state",
        changed_state,
        "Return a Command whose update has the key and the ToolMessage that answers the call.",
    ),
)
