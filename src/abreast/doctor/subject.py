"""What is examined: a graph taken apart into channels, nodes, tools, middleware and subgraphs, each with its own source.

Everything here is read from the built graph and from files; no node, tool or model is run.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from typing_extensions import ReadOnly

from abreast.doctor.closures import Closures, middleware_of
from abreast.doctor.fanout import always, payloads, sent
from abreast.doctor.findings import Note, Spot
from abreast.doctor.runs import Run, runs_of
from abreast.doctor.sources import Function, Source, Sources, own
from abreast.doctor.threads import Thread


@dataclass(frozen=True)
class Channel:
    """One key of the state. `reducer` is None where the last write wins; `spot` is its line in the state class."""

    name: str
    channel: Any
    annotation: Any
    owner: Any
    spot: Spot | None

    @property
    def reducer(self) -> Any:
        return getattr(self.channel, "operator", None)

    @property
    def overwrites(self) -> bool:
        """True if a second write in one step is an error: a plain key without a reducer."""
        return type(self.channel).__name__ == "LastValue"

    @property
    def kept(self) -> bool:
        """True if the value is part of the checkpoints for good: not for one run or one step only."""
        return type(self.channel).__name__ in ("LastValue", "BinaryOperatorAggregate", "DeltaChannel")

    @property
    def may_be_absent(self) -> bool:
        """True if the state class says so of this very key, and not with a `total=False` of all keys."""
        return get_origin(self.annotation) is NotRequired

    @property
    def optional(self) -> bool:
        """True if the state class says that the key may be absent: NotRequired, or `total=False` without Required."""
        if get_origin(self.annotation) in (Required, NotRequired):
            return get_origin(self.annotation) is NotRequired
        return not getattr(self.owner, "__total__", True)

    @functools.cached_property
    def type(self) -> Any:
        """The declared type without Annotated, Required, Optional and arguments: `list` for `Annotated[list[str], add]`."""
        return _bare(self.annotation)

    @functools.cached_property
    def items(self) -> tuple[Any, ...]:
        """The arguments of the declared type: `(str,)` for `list[str]`."""
        return get_args(_inner(self.annotation))


@dataclass(frozen=True)
class Node:
    """A node with the application's functions behind it: none for a library's node, two if sync and async differ."""

    name: str
    runnable: Any
    functions: tuple[Function, ...]
    input_schema: Any
    defer: bool = False


@dataclass(frozen=True)
class Tool:
    """A tool that a tool node runs, or that an agent hands to its model."""

    name: str
    tool: Any
    node: str
    function: Function | None

    @property
    def spot(self) -> Spot | None:
        return self.function.spot if self.function else None


@dataclass
class Subject:
    """A graph under examination. Only the outermost one has a `thread`, and no `parent`."""

    place: str
    graph: Any
    builder: Any
    sources: Sources
    channels: Mapping[str, Channel] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    middleware: tuple[Any, ...] = ()
    wrapping: tuple[tuple[Any, ...], ...] = ()
    """The chains of `wrap_model_call` that can be seen, sync and async, each outermost first."""
    prompts: tuple[str, ...] = ()
    """The fixed system prompts of `create_agent` that can be seen."""
    subgraphs: Mapping[str, Subject] = field(default_factory=dict)
    parent: Subject | None = None
    shares: bool = False
    """True for a subgraph that is a node and gets the state of its parent; a call or `Send` brings one something else."""
    context_schema: Any = None
    module: Source | None = None
    thread: Thread | None = None
    notes: list[Note] = field(default_factory=list)

    def all(self) -> Iterator[Subject]:
        """This graph and every one below it."""
        yield self
        for below in self.subgraphs.values():
            yield from below.all()

    @property
    def checkpointer(self) -> Any:
        """The compiled graph's saver: None without one, True where it is the parent's."""
        return getattr(self.graph, "checkpointer", None)

    @functools.cached_property
    def edges(self) -> Mapping[str, tuple[str, ...]]:
        """Node to the nodes that always follow it (`__start__` and `__end__` among them)."""
        found: dict[str, list[str]] = {}
        for start, end in sorted(getattr(self.builder, "edges", ())):
            found.setdefault(start, []).append(end)
        return {start: tuple(ends) for start, ends in found.items()}

    @functools.cached_property
    def branches(self) -> Mapping[str, tuple[Any, ...]]:
        """Node to its conditional edges: LangGraph's specs, with `path` and `ends`."""
        return {start: tuple(specs.values()) for start, specs in getattr(self.builder, "branches", {}).items()}

    @functools.cached_property
    def routers(self) -> tuple[tuple[str, Function], ...]:
        """The application's functions behind conditional edges, with the node that each follows."""
        return tuple(
            (start, function)
            for start, specs in self.branches.items()
            for spec in specs
            for function in _functions(spec.path, self.sources)
        )

    @functools.cached_property
    def together(self) -> frozenset[tuple[str, str]]:
        """Pairs of nodes (in order of name) that surely run in one step: fixed edges, or a router's only answer, lead to both.

        What other conditional edges and `Send` start is not among them; `sent` has the nodes that `Send` may start several times.
        """
        ready = {name for name, node in self.nodes.items() if not node.defer}
        follows = {start: [end for end in ends if end in ready] for start, ends in self.follows.items()}
        waiting = [pair for ends in follows.values() for pair in itertools.combinations(ends, 2)]
        pairs = set(waiting)
        while waiting:
            first, second = waiting.pop()
            for one, other in itertools.product(follows.get(first, ()), follows.get(second, ())):
                pair = (one, other) if one < other else (other, one)
                if one != other and pair not in pairs:
                    pairs.add(pair)
                    waiting.append(pair)
        return frozenset(pairs)

    @functools.cached_property
    def follows(self) -> Mapping[str, tuple[str, ...]]:
        """Node to the nodes that surely run in the step after it: by fixed edges, and by routers that always choose the same."""
        found = {start: set(ends) for start, ends in self.edges.items()}
        for start, specs in self.branches.items():
            for spec in specs:
                functions = _functions(spec.path, self.sources)
                if len(functions) == 1:
                    found.setdefault(start, set()).update(always(functions[0], spec.ends))
        return {start: tuple(sorted(ends)) for start, ends in found.items()}

    @functools.cached_property
    def first(self) -> frozenset[str]:
        """The nodes that surely run in every run that is not resumed, up to the first that may pause it or end it."""
        from langgraph.types import interrupt

        pauses = {*(getattr(self.graph, "interrupt_before_nodes", ())), *(getattr(self.graph, "interrupt_after_nodes", ()))}
        found: set[str] = set()
        waiting = [] if pauses else list(self.follows.get("__start__", ()))
        while waiting:
            name = waiting.pop()
            node = self.nodes.get(name)
            if node is None or name in found:
                continue
            found.add(name)
            ends = [function for function in node.functions if any(isinstance(one, ast.Raise) for one in function.nodes)]
            asks = [function for function in node.functions for _ in function.calls(interrupt)]
            if node.functions and not ends and not asks:
                waiting += self.follows.get(name, ())
        return frozenset(found)

    @functools.cached_property
    def _runs(self) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
        return runs_of(self.graph, self.sources)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The calls in the application's files that run this very graph."""
        return self._runs[0]

    @property
    def unclear_runs(self) -> tuple[Run, ...]:
        """Calls in the application's files that may run this graph: it cannot be said what they run."""
        return self._runs[1]

    def declared_input(self, name: str) -> Any:
        """How the schema of the graph's input declares a key; None if it does not."""
        with contextlib.suppress(Exception):
            return get_type_hints(self.builder.input_schema, include_extras=True).get(name)
        return None

    @property
    def stored(self) -> bool:
        """True if the state is kept after the run: there is a checkpointer, or a server runs the graph and brings one."""
        if self.checkpointer is False:
            return False
        if self.parent is not None and self.checkpointer in (None, True):
            return self.parent.stored
        return self.checkpointer is not None or not (self.runs or self.unclear_runs)

    @functools.cached_property
    def sent(self) -> Mapping[str, Function]:
        """Nodes that a router starts once for each item of a list with `Send`, with that router."""
        return {
            name: function
            for function in (*(router for _, router in self.routers), *self.functions)
            for name in sent(function)
            if name in self.nodes
        }

    @functools.cached_property
    def functions(self) -> tuple[Function, ...]:
        """The application's functions behind the nodes."""
        return tuple(function for node in self.nodes.values() for function in node.functions)


def examine(graph: Any, *, module: str | None = None, context: Any = None, thread: Thread | None = None) -> Subject:
    """Takes a graph apart. What is no graph of LangGraph's becomes a subject without nodes and with a note."""
    sources = Sources()
    named = sources.module(module) if module else None
    subject = _subject(graph, "", sources, set())
    subject.module = named
    subject.context_schema = context or subject.context_schema
    subject.thread = thread
    return subject


def _subject(graph: Any, place: str, sources: Sources, seen: set[int]) -> Subject:
    seen.add(id(graph))
    where = place or "graph"
    builder: Any = graph if _is_builder(graph) else getattr(graph, "builder", None)
    if not _is_builder(builder):
        subject = Subject(place, graph, None, sources)
        _without_builder(subject, where)
        return subject
    subject = Subject(place, graph, builder, sources, context_schema=builder.context_schema)
    subject.channels = _channels(builder, sources)
    closures = Closures(builder)
    subject.middleware, subject.wrapping = middleware_of(closures)
    subject.prompts = tuple(closures.prompts())
    nodes = {}
    for name, spec in builder.nodes.items():
        nodes[name] = Node(name, spec.runnable, _functions(spec.runnable, sources), spec.input_schema, spec.defer)
    subject.nodes = nodes
    subject.tools = _tools(nodes, closures, sources)
    subject.subgraphs = _subgraphs(subject, seen)
    carried = _carried(subject)
    subject.nodes = {
        name: dataclasses.replace(node, functions=tuple(dataclasses.replace(one, payload=True) for one in node.functions))
        if name in carried
        else node
        for name, node in nodes.items()
    }
    for name, below in subject.subgraphs.items():
        below.parent, below.shares = subject, name in nodes and name not in carried
    for name, node in nodes.items():
        if not node.functions and name not in subject.subgraphs and not _library(node.runnable, sources):
            subject.notes.append(Note(_place(place, f"node {name}"), "not looked into: there is no source for it"))
        elif not node.functions and _composed(node.runnable):
            kind = type(node.runnable).__name__
            subject.notes.append(Note(_place(place, f"node {name}"), f"not looked into: a {kind} is made of other parts"))
    return subject


def _carried(subject: Subject) -> frozenset[str]:
    """The nodes that may be given what a `Send` carries, instead of the state: no fixed edge leads to them."""
    fixed = {end for _, end in subject.builder.edges} | {end for _, end in getattr(subject.builder, "waiting_edges", ())}
    loose = frozenset(subject.nodes) - fixed
    if not loose:
        return loose
    nodes = [function for node in subject.nodes.values() for function in node.functions]
    started = payloads([*(one for _, one in subject.routers), *nodes], subject.sources)
    return loose if started is None else loose & started


def _without_builder(subject: Subject, where: str) -> None:
    kind = type(subject.graph).__name__
    if hasattr(subject.graph, "assistant_id"):
        subject.notes.append(Note(where, "not looked into: a remote graph runs elsewhere; examine it where it is built"))
        return
    nodes = getattr(subject.graph, "nodes", None)
    if not isinstance(nodes, Mapping):
        subject.notes.append(Note(where, f"not looked into: {kind} is no graph of LangGraph"))
        return
    subject.notes.append(Note(where, "the functional API declares no state and no edges: only its functions are looked into"))
    found = {}
    for name, node in nodes.items():
        bound = getattr(node, "bound", node)
        parts = getattr(bound, "steps", [bound])
        functions = tuple(one for part in parts for one in _functions(part, subject.sources))
        found[str(name)] = Node(str(name), bound, functions, None)
    subject.nodes = found


def _is_builder(thing: Any) -> bool:
    from langgraph.graph import StateGraph

    return isinstance(thing, StateGraph)


def _functions(runnable: Any, sources: Sources) -> tuple[Function, ...]:
    found: list[Function] = []
    for part in (getattr(runnable, "func", None), getattr(runnable, "afunc", None)):
        function = sources.function(part) if part is not None else None
        if function and all(function.tree is not known.tree for known in found):
            found.append(function)
    return tuple(found)


def _library(runnable: Any, sources: Sources) -> bool:
    parts = [part for part in (getattr(runnable, "func", None), getattr(runnable, "afunc", None)) if part is not None]
    if not parts:
        return not _own_class(runnable)
    return all(sources.library(part) for part in parts[:1])


def _composed(runnable: Any) -> bool:
    """True for a chain of LangChain's (`prompt | model | step`), whose parts may well be the application's."""
    from langchain_core.runnables import RunnableLambda, RunnableSerializable

    module = type(runnable).__module__
    plain = isinstance(runnable, RunnableLambda) or not isinstance(runnable, RunnableSerializable)
    return not plain and module.startswith("langchain_core.runnables")


def _own_class(thing: Any) -> bool:
    with contextlib.suppress(TypeError, OSError):
        return own(inspect.getfile(type(thing)))
    return False


def _channels(builder: Any, sources: Sources) -> dict[str, Channel]:
    hints: dict[str, tuple[Any, Any]] = {}
    for schema in builder.schemas:
        with contextlib.suppress(Exception):
            for name, annotation in get_type_hints(schema, include_extras=True).items():
                hints.setdefault(name, (annotation, schema))
    found = {}
    for name, channel in builder.channels.items():
        annotation, owner = hints.get(name, (getattr(channel, "typ", None), None))
        owner, spot = _declared(owner, name, sources)
        found[name] = Channel(name, channel, annotation, owner, spot)
    return found


def _declared(owner: Any, name: str, sources: Sources) -> tuple[Any, Spot | None]:
    """The class that declares a key, and its line; a TypedDict keeps its bases apart from its ancestors."""
    waiting, seen = [owner], set()
    while waiting:
        cls = waiting.pop(0)
        if not isinstance(cls, type) or cls in seen:
            continue
        seen.add(cls)
        found = sources.klass(cls)
        if found:
            source, tree = found
            for line in tree.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == name:
                    return cls, source.spot(line)
        waiting.extend([*getattr(cls, "__orig_bases__", ()), *cls.__bases__])
    return owner, _alone(name, sources)


def _alone(name: str, sources: Sources) -> Spot | None:
    """The only class of keys in the files seen that declares this key: `create_agent` merges schemas and forgets their names."""
    found = [
        source.spot(line)
        for source in sources
        for title, tree in source.classes.items()
        if hasattr(source.namespace.get(title), "__required_keys__")
        for line in tree.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == name
    ]
    return found[0] if len(found) == 1 else None


def _tools(nodes: Mapping[str, Node], closures: Closures, sources: Sources) -> tuple[Tool, ...]:
    found: dict[tuple[str, int], Tool] = {}

    def add(node: str, tool: Any) -> None:
        name = getattr(tool, "name", None)
        if isinstance(name, str) and (name, id(tool)) not in found:
            call = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
            found[name, id(tool)] = Tool(name, tool, node, sources.function(call) if call else None)

    for name, node in nodes.items():
        for tool in (getattr(node.runnable, "tools_by_name", None) or {}).values():
            add(name, tool)
    for name, tool in closures.tools():
        add(name, tool)
    return tuple(found.values())


def _subgraphs(subject: Subject, seen: set[int]) -> dict[str, Subject]:
    from langgraph.pregel.protocol import PregelProtocol

    found: dict[str, Subject] = {}

    def add(name: str, graph: Any) -> None:
        if isinstance(graph, PregelProtocol) and id(graph) not in seen:
            found[name] = _subject(graph, _place(subject.place, f"subgraph {name}"), subject.sources, seen)

    for name, node in subject.nodes.items():
        add(name, node.runnable)
        for function in node.functions:
            for part in function.nodes:
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                    add(f"{name}.{part.id}", function.resolve(part))
    for tool in subject.tools:
        for part in tool.function.nodes if tool.function else ():
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                add(f"{tool.name}.{part.id}", tool.function.resolve(part) if tool.function else None)
    return found


def _place(place: str, name: str) -> str:
    return f"{place}, {name}" if place else name


def _inner(annotation: Any) -> Any:
    while True:
        origin = get_origin(annotation)
        if origin in (Annotated, Required, NotRequired, ReadOnly):
            annotation = get_args(annotation)[0]
        elif origin in (Union, UnionType):
            kept = [part for part in get_args(annotation) if part is not type(None)]
            if len(kept) != 1:
                return annotation
            annotation = kept[0]
        else:
            return annotation


def _bare(annotation: Any) -> Any:
    inner = _inner(annotation)
    return get_origin(inner) or inner
