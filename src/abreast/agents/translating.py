"""What one attempt of a run yields, as events for people: parts of LangGraph's stream and callbacks in, events out.

No database and no I/O. Deltas and the beginnings of tools come from callbacks: they come first-hand, in order, from any
thread, and say which model call and which tool they belong to. What a tool answered and what the model wants come from
the updates of the graph's state, where every middleware has had its say: that is what the model goes on with.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, LLMResult
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Interrupt, Overwrite

from abreast.agents.answers import must_pass
from abreast.agents.gating import GATED
from abreast.core.plain import NotJsonError, as_json
from abreast.records import Event, EventType, ToolUse

Sink = Callable[[Event], None]
"""Takes each event, in order. Called from whatever thread the agent works in, and never by two at a time."""

_ASKING = frozenset({"write", "function", GATED})
"""What tools that ask by themselves whether they may run say of themselves under `abreast`; `passed` says that they do."""

WIDTH = 4000
"""Characters of a tool's result that an event carries."""

_STAGES: Mapping[str, str | None] = {"model": "thinking", "agent": "thinking", "tools": None}
"""What LangChain's own nodes are for a person. That a tool runs is told by the tool's own events."""

_HOOKS = (".before_agent", ".before_model", ".after_model", ".after_agent")
"""Ends of the names of the nodes that are a middleware's."""

_INTERNAL = ("lc_internal_call", "lc_source")
"""What the metadata of a model call has where it speaks to a middleware: a summary, a choice of tools."""

_STRUCTURED = "ls_structured_output_format"
"""What the options of a model call have that a node asked for a structured answer: what it says is for the program."""

_SILENT = frozenset({"nostream", "langsmith:nostream", "langsmith:hidden"})
"""Tags with which an application keeps a model call to itself."""

Task = tuple[str, ...]
"""A task of the graph, as the path of names and ids from the outermost graph to it."""


@dataclass(eq=False)
class _Call:
    """One tool call as it goes on. `held` is what its tool gave back, until the update says what the model reads."""

    use: ToolUse
    started: bool = False
    ended: bool = False
    held: Any = None
    code: str = "tool_failed"


@dataclass(eq=False)
class _Speech:
    """One model call that speaks to the person, and what it has said."""

    id: str
    said: list[str] = field(default_factory=list)
    void: bool = False


class Translator:
    """Turns one attempt into events. Every event goes to `sink`, also those of `part`.

    `known` are the tool calls that earlier attempts of this run have told of: they are not proposed again.

    The text of a model call that is made again begins anew under another `message`; the first is then void, and a last
    delta of it says so. No preview is the truth: the stored message is.
    """

    modes: ClassVar[list[str]] = ["updates", "custom", "tasks"]
    """The stream modes that it reads, with `subgraphs=True`. Each of them costs about a hundredth of a run; `messages`
    would cost a fifth and say less."""

    def __init__(self, thread: str, run: str, sink: Sink, known: Iterable[ToolUse] = ()) -> None:
        self._sink, self._names = sink, {"thread": thread, "run": run}
        self._lock = threading.RLock()
        self._stage: tuple[str, str | None] | None = None
        self._all = [_Call(use, ended=use.status != "stopped") for use in known]
        self._calls = {call.use.id: call for call in self._all}
        self._known = frozenset(self._calls)
        self._speeches: dict[UUID, _Speech] = {}
        self._latest: _Speech | None = None
        self._running: dict[UUID, tuple[Task, _Call | None]] = {}
        self._tool_tasks: set[Task] = set()
        self._inner: set[tuple[Task, str]] = set()
        self._made: set[str] = set()
        self._handled: set[str] = set()
        self._old: set[str] | None = None
        self._interrupts: list[Interrupt] = []
        self.callbacks: list[BaseCallbackHandler] = [_Callbacks(self)]
        """To be merged into the config of the call, with `merge_configs`."""

    @property
    def tools(self) -> tuple[ToolUse, ...]:
        """The tool calls so far, in order, with `known` ones first. One without an answer is `stopped`."""
        with self._lock:
            return tuple(call.use for call in self._all)

    @property
    def partial(self) -> str:
        """What the person has seen of the last thing that the model said."""
        with self._lock:
            return "".join(self._latest.said) if self._latest is not None and not self._latest.void else ""

    @property
    def preview(self) -> str | None:
        """Under which id that was shown."""
        with self._lock:
            return self._latest.id if self._latest is not None and not self._latest.void else None

    @property
    def interrupts(self) -> tuple[Interrupt, ...]:
        """What this attempt paused for, as the stream told it."""
        with self._lock:
            return tuple(self._interrupts)

    def part(self, namespace: Sequence[str], mode: str, chunk: Any) -> None:
        """One part of the stream."""
        with self._lock:
            if mode == "updates" and isinstance(chunk, Mapping):
                self._updated(_without_numbers(namespace), chunk)
            elif mode == "custom" and isinstance(chunk, Mapping) and isinstance(chunk.get("stage"), str):
                self._at(chunk["stage"], chunk["text"] if isinstance(chunk.get("text"), str) else None)
            elif mode == "tasks" and not namespace and "triggers" in chunk:
                name = chunk["name"]
                stage = None if name.startswith("__") or name.endswith(_HOOKS) else _STAGES.get(name, name)
                if stage is not None:
                    self._at(stage, None)

    def passed(self, call: str, *, approval: str | None = None, edited: Mapping[str, Any] | None = None) -> None:
        """A gated tool may run, and does: with these arguments instead, if a person has edited them."""
        with self._lock:
            self.noted(call, approval=approval, edited=edited)
            if (found := self._calls.get(call)) is not None:
                self._start(found)

    def noted(self, call: str, *, approval: str | None = None, edited: Any = None, code: str | None = None) -> None:
        """The approval that a call waits for or was decided with. `code`: why it fails without having run."""
        with self._lock:
            if (found := self._calls.get(call)) is not None:
                found.code = code or found.code
                given: dict[str, Any] = {} if approval is None else {"approval": approval}
                if edited is not None:
                    given["edited"] = _plain(edited)
                found.use = replace(found.use, **given)

    def finish(self, *, paused: bool = False) -> None:
        """The attempt is over. What its tools gave back and the graph's state never showed is told now, unless it paused:
        then they will run again."""
        with self._lock:
            if not paused:
                self._release()

    # -- parts ---------------------------------------------------------------------------------------------------

    def _updated(self, graph: Task, chunk: Mapping[str, Any]) -> None:
        for interrupt in chunk.get("__interrupt__") or ():
            if not graph:
                self._interrupts.append(interrupt)
        if (chunk.get("__metadata__") or {}).get("cached") or self._inside_tool(graph):
            return
        if graph:
            self._inner.add((graph[:-1], graph[-1].partition(":")[0]))
        for node, update in chunk.items():
            # What a graph inside a node did was told as it happened; its node then hands in its whole history.
            if node.startswith("__") or (graph, node) in self._inner:
                continue
            messages = list(_messages(update))
            if any(isinstance(m, RemoveMessage) and m.id == REMOVE_ALL_MESSAGES for m in messages):
                continue  # the history is put in order: nothing of it is new
            answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
            for message in messages:
                if message.id is not None and message.id in (self._old or ()):
                    continue
                if isinstance(message, AIMessage):
                    self._propose(message, answered)
                elif isinstance(message, ToolMessage):
                    self._answer(message)

    def _propose(self, message: AIMessage, answered: set[str]) -> None:
        new = message.id is None or message.id not in self._handled
        if message.id is not None:
            self._handled.add(message.id)
        for wanted in message.tool_calls:
            name, arguments, call_id = wanted["name"], wanted["args"], wanted.get("id")
            if not call_id:
                continue
            known = self._calls.get(call_id)
            if new and (message.id in self._made or call_id not in self._known):
                if known is not None and not known.ended and known.started and known.use.name == name:
                    known.use = replace(known.use, arguments=_plain(arguments))  # its tool was faster than the update
                elif call_id not in answered:  # otherwise it is the form of a structured answer, not a tool's
                    self._open(call_id, name, arguments)

    def _answer(self, message: ToolMessage) -> None:
        call = self._calls.get(message.tool_call_id)
        if call is not None and not call.ended:
            self._end(call, "failed" if message.status == "error" else "completed", _result(message.content))

    def _at(self, stage: str, text: str | None) -> None:
        if (stage, text) != self._stage:
            self._stage = (stage, text)
            self._tell("stage.changed", stage=stage, **({} if text is None else {"text": text}))

    # -- tools ---------------------------------------------------------------------------------------------------

    def _open(self, call_id: str, name: str, arguments: Any) -> _Call:
        call = _Call(ToolUse(call_id, name, "stopped", _plain(arguments)))
        self._all.append(call)
        self._calls[call_id] = call
        self._tell_of(call, "tool.proposed")
        return call

    def _start(self, call: _Call) -> None:
        if not call.started and not call.ended:
            call.started = True
            self._tell_of(call, "tool.started")

    def _end(self, call: _Call, status: Literal["completed", "failed"], result: Any) -> None:
        if call.held is not None and status == "completed" and call.use.approval is None:
            self._start(call)  # it was allowed without asking
        call.ended, call.held = True, None
        call.use = replace(call.use, status=status, result=result)
        if status == "completed":
            self._tell_of(call, "tool.completed", **_cut(result))
        else:
            self._tell_of(call, "tool.failed", error={"code": call.code, "message": _reason(result)})

    def _release(self) -> None:
        """Ends the calls whose tools gave something back that no update showed: a node used it up by itself."""
        for call in self._all:
            if call.held is not None and not call.ended:
                self._settle(call)

    def _settle(self, call: _Call) -> None:
        held = call.held
        if isinstance(held, BaseException):
            self._end(call, "failed", "The tool failed.")  # what an exception says may hold a secret
            return
        message = next((m for m in _messages(getattr(held, "update", held)) if isinstance(m, ToolMessage)), None)
        if message is not None:
            self._end(call, "failed" if message.status == "error" else "completed", _result(message.content))
        else:
            self._end(call, "completed", _result(held) if isinstance(held, str | list) else _plain(held))

    def tool_began(self, run: UUID, parent: UUID | None, name: str, call_id: str | None, inputs: Any, about: Any) -> None:
        """A tool runs. One inside another belongs to it, and nothing is told of it."""
        task = _task(about)
        with self._lock:
            around = [other for other, _ in self._running.values()]
            nested = parent in self._running or any(task[: len(o)] == o and (len(o) < len(task) or not call_id) for o in around)
            self._tool_tasks.add(task)
            if nested:
                self._running[run] = (task, None)
                return
            call = self._calls.get(call_id) if call_id else None
            if call is None:
                call = self._open(call_id or str(run), name, inputs)
            elif (given := _plain(inputs)) != call.use.arguments and call.use.edited is None:
                # While the run was paused a person has edited them; otherwise a middleware has.
                known = call.use.id in self._known
                call.use = replace(call.use, edited=given) if known else replace(call.use, arguments=given)
            self._running[run] = (task, call)
            if about.get("abreast") not in _ASKING:
                self._start(call)

    def tool_ended(self, run: UUID, outcome: Any) -> None:
        """A tool gave this back, or raised it."""
        with self._lock:
            _, call = self._running.pop(run, ((), None))
            if call is None or call.ended or (isinstance(outcome, BaseException) and must_pass(outcome)):
                return
            call.held = outcome if outcome is not None else ""
            if call.use.id == str(run):  # a node's own call, to which no message will answer
                self._settle(call)

    def _inside_tool(self, task: Task) -> bool:
        return any(task[:length] in self._tool_tasks for length in range(1, len(task) + 1))

    # -- models --------------------------------------------------------------------------------------------------

    def model_began(self, run: UUID, messages: Sequence[BaseMessage], tags: Sequence[str] | None, about: Any) -> None:
        """A model call. It speaks to the person unless it is a tool's, a middleware's, or the application's own business."""
        task = _task(about)
        if not task or any(about.get(name) for name in _INTERNAL) or not _SILENT.isdisjoint(tags or ()):
            return
        if str(about.get("langgraph_node")).endswith(_HOOKS):
            return
        with self._lock:
            if any(task[: len(other)] == other for other, _ in self._running.values()):
                return
            self._release()
            if self._old is None:  # the conversation as this attempt found it
                self._old = {message.id for message in messages if message.id} - self._handled
            if self._latest is not None and self._latest.void:
                self._latest = None
            self._speeches[run] = _Speech(str(run))

    def token(self, run: UUID, text: str) -> None:
        """A piece of text."""
        if text and (speech := self._speeches.get(run)) is not None:
            with self._lock:
                speech.said.append(text)
                self._latest = speech
                self._tell("assistant.delta", message=speech.id, delta=text)

    def model_ended(self, run: UUID, message: BaseMessage | None) -> None:
        """A model call returned this. A model that does not stream says it all at once."""
        with self._lock:
            speech = self._speeches.get(run)
            if speech is None or message is None:
                return
            if message.id is not None:
                self._made.add(message.id)
            if not speech.said:
                self.token(run, str(message.text))
            del self._speeches[run]

    def model_failed(self, run: UUID, error: BaseException) -> None:
        """A model call failed, or was stopped: then what it said stays."""
        with self._lock:
            speech = self._speeches.pop(run, None)
            if speech is not None and speech.said and isinstance(error, Exception):
                speech.void = True
                self._tell("assistant.delta", message=speech.id, delta="", void=True)

    # -- events --------------------------------------------------------------------------------------------------

    def _tell_of(self, call: _Call, type: EventType, **more: Any) -> None:
        use = call.use
        data: dict[str, Any] = {"call": use.id, "name": use.name, "status": type.partition(".")[2]}
        data["input"] = use.arguments if use.edited is None else use.edited
        if use.edited is not None:
            data["edited"] = True
        if use.approval is not None:
            data["approval"] = use.approval
        self._tell(type, **data, **more)

    def _tell(self, type: EventType, **data: Any) -> None:
        self._sink(Event(type, {**self._names, **data}))


class _Callbacks(BaseCallbackHandler):
    """Hears of model calls and tools, wherever they run. Nothing that it does waits for anything."""

    run_inline = True
    """Called where the tool and the model run, not in a thread beside: in order, and at once."""

    ignore_chain = ignore_retriever = ignore_retry = ignore_custom_event = True

    def __init__(self, translator: Translator) -> None:
        self._to = translator

    def tap_output_iter(self, run_id: UUID, output: Iterator[Any]) -> Iterator[Any]:
        """That it has this and the next makes models stream that are only invoked."""
        return output

    def tap_output_aiter(self, run_id: UUID, output: Any) -> Any:
        return output

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **more: Any) -> None:
        if not (more.get("options") or {}).get(_STRUCTURED):
            self._to.model_began(run_id, messages[0] if messages else (), more.get("tags"), more.get("metadata") or {})

    def on_llm_new_token(
        self, token: Any, *, chunk: Any = None, run_id: UUID, parent_run_id: UUID | None = None, **more: Any
    ) -> None:
        if isinstance(chunk, ChatGenerationChunk):
            self._to.token(run_id, str(chunk.message.text))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any) -> None:
        first = response.generations[0][0] if response.generations and response.generations[0] else None
        self._to.model_ended(run_id, getattr(first, "message", None))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any) -> None:
        self._to.model_failed(run_id, error)

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any
    ) -> None:
        name, inputs = (serialized or {}).get("name") or more.get("name") or "", more.get("inputs")
        given = inputs if inputs is not None else {"input": input_str}
        self._to.tool_began(run_id, parent_run_id, name, more.get("tool_call_id"), given, more.get("metadata") or {})

    def on_tool_end(self, output: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any) -> None:
        self._to.tool_ended(run_id, output)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, parent_run_id: UUID | None = None, **more: Any) -> None:
        self._to.tool_ended(run_id, error)


def uses(events: Iterable[Event]) -> tuple[ToolUse, ...]:
    """The tool calls that these events of a run told of, for a translator of its next attempt."""
    told: list[ToolUse] = []
    places: dict[str, int] = {}
    for event in events:
        if not event.type.startswith("tool."):
            continue
        data = event.data
        if event.type == "tool.proposed" or data["call"] not in places:
            places[data["call"]] = len(told)
            told.append(ToolUse(data["call"], data["name"], "stopped", data["input"]))
        use = told[places[data["call"]]]
        given: dict[str, Any] = {"approval": data["approval"]} if "approval" in data else {}
        given["edited" if data.get("edited") else "arguments"] = data["input"]
        if event.type == "tool.completed":
            given.update(status="completed", result=data.get("result"))
        elif event.type == "tool.failed":
            given.update(status="failed", result=data["error"]["message"])
        told[places[data["call"]]] = replace(use, **given)
    return tuple(told)


def _messages(update: Any, depth: int = 0) -> Iterator[BaseMessage]:
    """The messages in a node's update, wherever the graph's state keeps them."""
    if isinstance(update, BaseMessage):
        yield update
    elif isinstance(update, Overwrite):
        yield RemoveMessage(REMOVE_ALL_MESSAGES)
    elif depth < 3 and isinstance(update, Mapping):
        for value in update.values():
            yield from _messages(value, depth + 1)
    elif depth < 3 and isinstance(update, list | tuple):
        for value in update:
            yield from _messages(value, depth + 1)


def _task(about: Mapping[str, Any]) -> Task:
    """Where something runs. Empty outside of a graph."""
    place = about.get("langgraph_checkpoint_ns")
    return _without_numbers(str(place).split("|")) if place else ()


def _without_numbers(path: Sequence[str]) -> Task:
    """The path without what LangGraph puts in to count the graphs that one task has called."""
    return tuple(name for name in path if not name.isdigit())


def _plain(value: Any) -> Any:
    """The value as JSON holds it, apart from the object that a tool may still change."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return as_json(value, "the value")
    except NotJsonError:
        return str(value)


def _result(content: str | list[Any]) -> Any:
    """What a tool answered: JSON where its text is an object or a list, otherwise the text. Of blocks that are no text
    only the type stays."""
    if not isinstance(content, str):
        blocks = [block for block in content if not isinstance(block, str)]
        if any(not isinstance(block, dict) or block.get("type") != "text" for block in blocks):
            return [_block(block) for block in content]
        content = "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in content)
    if content.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(content, parse_constant=str)
        except (ValueError, RecursionError):
            pass
    return content


def _block(block: Any) -> Any:
    if not isinstance(block, dict) or block.get("type") == "text":
        return _plain(block)
    return {"type": str(block.get("type"))}


def _cut(result: Any) -> dict[str, Any]:
    """A result as an event carries it."""
    if result is None or isinstance(result, bool | int | float):
        return {"result": result}
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return {"result": result} if len(text) <= WIDTH else {"result": text[:WIDTH], "cut": True}


def _reason(result: Any) -> str:
    """Why a tool failed, for a person."""
    said = result.get("error") if isinstance(result, Mapping) else result
    text = said if isinstance(said, str) else json.dumps(said if said is not None else result, ensure_ascii=False)
    return text[:WIDTH]
