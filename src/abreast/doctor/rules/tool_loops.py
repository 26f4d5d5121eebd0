"""The wiring of a model and its tools: both know the same tools, the results come back, and the loop can end."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from abreast.doctor.bindings import bindings, says
from abreast.doctor.findings import Spot
from abreast.doctor.rule import Found, Rule
from abreast.doctor.runs import Run
from abreast.doctor.sources import Function, parent_of
from abreast.doctor.subject import Node, Subject


def lacking_in_node(subject: Subject) -> Iterator[Found]:
    """A model is handed a tool that the tool node of its graph does not have.

    The call fails with an error message to the model, each time. The rule reads `bind_tools` in the nodes' own code and the
    tools of LangGraph's ToolNode. It is silent where a subgraph, a wrapper or the application's own code handles tool calls.
    """
    runnable = _runnable(subject)
    if not runnable or subject.subgraphs or _handles_calls(subject):
        return
    for one in bindings(subject):
        for name in sorted(one.names - runnable) if not one.forced else ():
            if not _mentioned(subject, name):
                message = f"the model may call {name}, which the tool node does not have."
                yield Found(f"node {one.node.name}", one.function.at(one.call), message)


def lacking_in_model(subject: Subject) -> Iterator[Found]:
    """A tool node has a tool that no model of its graph is handed.

    It is never called, and no error says so. The rule speaks where every other node of the graph hands its model a list of
    tools that can be read; lists that are chosen at run time are not seen.
    """
    runnable = _runnable(subject)
    found = list(bindings(subject))
    asking = {one.node.name for one in found}
    others = {node.name for node in subject.nodes.values() if not _is_tool_node(node)}
    if not runnable or not found or others != asking or subject.subgraphs or _handles_calls(subject):
        return
    functions = [function for name in asking for function in subject.nodes[name].functions]
    if len(functions) != len(asking) or len(found) != len(asking) or not all(one.known for one in found):
        return
    offered = frozenset[str]().union(*(one.names for one in found))
    for tool in subject.tools:
        if tool.name not in offered and not _mentioned(subject, tool.name):
            yield Found(f"tool {tool.name}", tool.spot, "the tool node has it, and the model is not told of it.")


def no_way_back(subject: Subject) -> Iterator[Found]:
    """Nothing follows the tool node: the run ends with the raw result, and the model never reads it.

    The rule speaks where a node of the graph hands tools to its model and the tool node has no edge at all. An edge to END that
    somebody has written is a choice, as are tools with `return_direct`, and tools that return a Command lead on by themselves.
    """
    models = [one for one in bindings(subject) if not one.forced]
    for node in subject.nodes.values():
        tools = [tool for tool in subject.tools if tool.node == node.name]
        if not models or not tools or not _is_tool_node(node) or _leaves(subject, node.name):
            continue
        if all(
            tool.function and not _leads_on(tool.function) and not getattr(tool.tool, "return_direct", False) for tool in tools
        ):
            yield Found(f"node {node.name}", _added(subject, node.name), "no edge leads from the tools back to the model.")


def no_way_to_stop(subject: Subject) -> Iterator[Found]:
    """Fixed edges lead in a circle, so the run ends at the recursion limit and with an error.

    An edge to END beside them stops nothing: the fixed edges are followed all the same, also after `Command(goto=END)`. The rule
    looks at circles with a tool node, or with a model that has tools, which fixed edges lead into. It is silent where a node
    raises, a file says `interrupt` or `PARENT`, or a caller may leave the stream or expects its GraphRecursionError.
    """
    pausing = any(getattr(subject.graph, name, None) for name in ("interrupt_before_nodes", "interrupt_after_nodes"))
    of_tools = {one.node.name for one in bindings(subject)} | {
        node.name for node in subject.nodes.values() if _is_tool_node(node)
    }
    seen: set[str] = set()
    pausing = pausing or any(_may_leave(run) for run in (*subject.runs, *subject.unclear_runs))
    for name in sorted(of_tools & _reached(subject, "__start__")):
        if name in seen:
            continue  # its circle is known
        ahead = _reached(subject, name)
        circle = {other for other in ahead if name in _reached(subject, other)} if name in ahead else set()
        if not circle or circle & seen or pausing:
            continue
        seen |= circle
        nodes = [subject.nodes[one] for one in sorted(circle)]
        functions = [function for node in nodes for function in node.functions]
        if not functions or not all(node.functions or _is_tool_node(node) for node in nodes):
            continue
        if any(tool.function is None for tool in subject.tools if tool.node in circle):
            continue  # a tool of a library may pause or end the run
        if any(node.defer for node in nodes) or circle & set(subject.subgraphs) or any(map(_raises, functions)):
            continue
        if not says(subject, functions, ("interrupt", "PARENT")):
            path = " and ".join(sorted(circle))
            yield Found("graph", functions[0].spot, f"fixed edges lead in a circle through {path}, and nothing ends it.")


def _may_leave(run: Run) -> bool:
    """True for a stream that its caller may stop to read, or hands on to somebody who may."""
    if not isinstance(run.call.func, ast.Attribute) or "stream" not in run.call.func.attr:
        return False
    loop = parent_of(run.call)
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return True
    leaving = (ast.Break, ast.Return, ast.Yield, ast.Raise)
    outer: ast.AST | None = loop
    while (outer := parent_of(outer)) is not None:
        if isinstance(outer, ast.Try) and any("GraphRecursionError" in ast.unparse(one.type or one) for one in outer.handlers):
            return True
    return any(isinstance(part, leaving) for line in loop.body for part in ast.walk(line))


def _is_tool_node(node: Node) -> bool:
    from langgraph.prebuilt import ToolNode

    return isinstance(node.runnable, ToolNode)


def _runnable(subject: Subject) -> frozenset[str]:
    """The names of the tools that plain tool nodes run; nothing if one has a wrapper, which may run others."""
    nodes = [node.runnable for node in subject.nodes.values() if _is_tool_node(node)]
    if any(getattr(node, name, None) for node in nodes for name in ("_wrap_tool_call", "_awrap_tool_call")):
        return frozenset()
    return frozenset(name for node in nodes for name in node.tools_by_name)


def _handles_calls(subject: Subject) -> bool:
    """True if a node reads or makes tool calls itself, or a router does more than ask whether there are any."""
    for function in subject.functions:
        if any(_about_calls(part) for part in function.nodes):
            return True
    for _, function in subject.routers:
        parents = {id(child): parent for parent in ast.walk(function.tree) for child in ast.iter_child_nodes(parent)}
        for part in function.nodes:
            if _about_calls(part) and not isinstance(parents.get(id(part)), ast.If | ast.IfExp | ast.BoolOp | ast.UnaryOp):
                return True
    return False


def _about_calls(node: ast.AST) -> bool:
    return (
        (isinstance(node, ast.Attribute) and node.attr == "tool_calls")
        or (isinstance(node, ast.Constant) and node.value == "tool_calls")
        or (isinstance(node, ast.keyword) and node.arg == "tool_calls")
    )


def _mentioned(subject: Subject, name: str) -> bool:
    """True if a node or a router knows a tool by its name."""
    functions = [*subject.functions, *(router for _, router in subject.routers)]
    return any(isinstance(part, ast.Constant) and part.value == name for function in functions for part in function.nodes)


def _leaves(subject: Subject, name: str) -> bool:
    joined = any(name in starts for starts, _ in getattr(subject.builder, "waiting_edges", ()))
    ends = getattr(subject.builder.nodes[name], "ends", ()) if subject.builder else ()
    return bool(name in subject.edges or name in subject.branches or joined or ends)


def _leads_on(function: Function) -> bool:
    """True if the function may return a Command or a Send, or its result comes from where that cannot be seen."""
    from langgraph.types import Command, Send

    names = [part for part in function.nodes if isinstance(part, ast.Name | ast.Attribute)]
    meant = [function.resolve(part) for part in names if isinstance(part.ctx, ast.Load)]
    return any(one is Command or one is Send for one in meant)


def _added(subject: Subject, name: str) -> Spot | None:
    """The line that adds a node of this name, if there is only one in the files seen."""
    found = [
        source.spot(node)
        for source in subject.sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_node"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == name
    ]
    return found[0] if len(found) == 1 else None


def _reached(subject: Subject, start: str) -> set[str]:
    """The nodes that fixed edges lead to from here."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for end in subject.edges.get(waiting.pop(), ()):
            if end in subject.nodes and end not in found:
                found.add(end)
                waiting.append(end)
    return found


def _raises(function: Function) -> bool:
    return any(isinstance(part, ast.Raise | ast.Assert) for part in function.nodes)


RULES = (
    Rule(
        "AB305",
        "The model has a tool that the tool node lacks",
        lacking_in_node,
        "Give the same list to bind_tools and to ToolNode.",
    ),
    Rule(
        "AB306",
        "The tool node has a tool that the model lacks",
        lacking_in_model,
        "Give the same list to bind_tools and to ToolNode.",
    ),
    Rule(
        "AB307",
        "No edge leads back from the tools",
        no_way_back,
        "Add the edge from the tools to the model; if the raw result is the answer, write the edge to END.",
    ),
    Rule(
        "AB308",
        "A loop that nothing can stop",
        no_way_to_stop,
        "Make one edge of the circle conditional, with tools_condition or a router that can return END.",
    ),
)
