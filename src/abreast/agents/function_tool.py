"""`hub.tool`: an application's own function as a tool, under the guarantees of the hub's own write tools (G18 to G20)."""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.errors import GraphBubbleUp

from abreast.access import Access, Operation, aperform, perform
from abreast.agents.answers import ATTEMPTS, answer_of, as_read, must_pass, noted, own_of, passing, pause, unknown
from abreast.agents.calls import ActorOf, actor_of
from abreast.agents.function_schema import Function, read_function
from abreast.agents.gating import Gated, Gatekeeper, Passage, Touches, parser_of
from abreast.agents.intent import Intent, intent_of
from abreast.agents.scope import running
from abreast.core.blocks import Writes
from abreast.core.effects import Claim, Effects, Found, refused
from abreast.core.plain import NotJsonError, as_json
from abreast.core.read import Reader
from abreast.core.text import quoted
from abreast.core.write import stored_refusal
from abreast.errors import ConfigurationError, InputError, RefusedError, VersionConflictError
from abreast.records import Policy
from abreast.store.mutations import Outcome
from abreast.telemetry import log
from abreast.types import Attribution, Lease, MutationId

Permission = str | Callable[[Any], bool]
"""A name that must be among the run context's `permissions`, or a function from the context to yes or no."""

WorkspaceOf = Callable[[Any, Mapping[str, Any]], str]
"""Run context and arguments in; the one of the context's workspaces that this call writes in out."""


class Host(Protocol):
    """What these tools need of a hub. It is asked at the first call: a tool may be declared before the last table is."""

    @property
    def access(self) -> Access: ...

    @property
    def reader(self) -> Reader: ...

    @property
    def effects(self) -> Effects: ...

    @property
    def gatekeeper(self) -> Gatekeeper: ...

    def gated(self, gated: Gated) -> Gated: ...

    def workspaces_of(self, context: Any) -> Sequence[str]: ...

    def canonical(self, workspace: Any) -> str: ...

    def write(self, workspace: str, attribution: Attribution, lease: Lease | None, payload: Any) -> Writes: ...


@dataclass(frozen=True, slots=True)
class Options:
    """What `hub.tool` was told."""

    name: str | None
    permission: Permission | None
    actor: ActorOf
    repeatable: bool
    workspace: WorkspaceOf | None
    policy: Policy | None = None
    touches: Touches | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of the tool: who asks, what for and with which arguments, and what the function is given."""

    context: Any
    workspace: str
    attribution: Attribution
    lease: Lease | None
    intent: Intent
    arguments: Mapping[str, Any]


# What a call asks of the door that it came through. Everything that is decided stands in the flow, once.


@dataclass(frozen=True, slots=True)
class _Do:
    operation: Operation[Any]


@dataclass(frozen=True, slots=True)
class _Run:
    """The function, outside any transaction."""

    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Write:
    """The function inside a governed transaction, which stores what it returns; not at a repeat."""

    call: _Call


@dataclass(frozen=True, slots=True)
class _Wait:
    seconds: float


_Flow = Generator[_Do | _Run | _Write | _Wait, Any, Any]


class FunctionTool:
    """Makes the tool of one function."""

    def __init__(self, host: Host, function: Callable[..., Any], options: Options) -> None:
        self._host, self._options = host, options
        self._function: Function = read_function(function, options.name)
        self._name = self._function.name

    def made(self) -> BaseTool:
        """The tool."""

        def call(runtime: ToolRuntime, **arguments: Any) -> Any:
            return self._through_thread(self._flow(runtime, arguments), threading.Event())

        async def acall(runtime: ToolRuntime, **arguments: Any) -> Any:
            flow = self._flow(runtime, arguments)
            if self._function.is_async:
                return await self._through_loop(flow)
            return await _in_thread(lambda stopped: self._through_thread(flow, stopped))

        made = StructuredTool.from_function(
            func=None if self._function.is_async else call,
            coroutine=acall,
            name=self._name,
            description=self._function.description,
            args_schema=self._function.schema,
            metadata={"abreast": "function"},
        )
        made.handle_tool_error = True
        schema, parse = parser_of(made)
        writes, plain = self._function.kind != "plain", self._function.kind == "plain"
        options = self._options
        self._gate = self._host.gated(Gated(self._name, writes, schema, parse, options.policy, options.touches, plain))
        return made

    # -- what a call is ------------------------------------------------------------------------------------------

    def _flow(self, runtime: ToolRuntime[Any, Any], arguments: Mapping[str, Any]) -> _Flow:
        """One call, to its answer. An error becomes an answer unless the run must end or pause with it."""
        workspace = ""
        through: Passage | None = None  # where a person changed the arguments, every answer says so
        try:
            refusal = self._lacking(runtime.context)
            if refusal is not None:
                return _as_error(quoted(refusal))
            call = self._call(runtime, arguments)
            workspace = call.workspace
            intent = call.intent if self._function.kind != "plain" else None
            passage: Passage = yield _Do(self._host.gatekeeper.passage(self._gate, runtime, arguments, intent))
            if passage.answer is not None:
                return passage.answer if not passage.failed else _as_error(passage.answer)
            if passage.edited:
                through = passage
                call = self._call(runtime, passage.arguments, passage.intent)
                workspace = call.workspace
            kinds = {"transaction": self._write, "effect": self._effect, "plain": self._plain}
            value = yield from kinds[self._function.kind](call)
            value = _again(value) if call.intent.beside else value
            return passage.told(value if isinstance(value, str) else quoted(value))
        except _Answer as error:
            if through is None:
                raise
            return _as_error(through.told(str(error)))
        except Exception as error:
            shown: BaseException = error
            if isinstance(error, VersionConflictError):
                shown = yield _Do(as_read(self._host.reader, workspace, runtime.context, error))
            text = answer_of(shown)
            if text is None:
                own = own_of(shown)
                if own is None or own is shown:
                    raise
                raise own from error  # out of a group, which LangGraph does not look into
            return _as_error(text if through is None else through.told(text))

    def _lacking(self, context: Any) -> dict[str, Any] | None:
        """What the model is told where this person may not use the tool."""
        needed = self._options.permission
        if needed is None:
            return None
        if isinstance(needed, str):
            held = context.get("permissions") if isinstance(context, Mapping) else getattr(context, "permissions", None)
            if isinstance(held, str) or needed not in (held or ()):
                return _forbidden(self._name, needed)
        elif not needed(context):
            return _forbidden(self._name, getattr(needed, "__name__", "permission"))
        return None

    def _call(self, runtime: ToolRuntime[Any, Any], arguments: Mapping[str, Any], intent: Intent | None = None) -> _Call:
        governed = self._function.kind != "plain"
        thread = str((runtime.config or {}).get("configurable", {}).get("thread_id") or "") or None
        scope = running(self._host.access)
        if not governed:
            intent = Intent({})
        elif intent is None:
            intent = intent_of(runtime, self._name, arguments, repeatable=self._options.repeatable)
        given = {**arguments, **{name: runtime for name, kind in self._function.hidden.items() if kind == "runtime"}}
        given.update({name: self._context(runtime.context, kind) for name, kind in self._function.contexts.items()})
        return _Call(
            runtime.context,
            self._workspace(runtime.context, arguments) if governed else "",
            Attribution(actor_of(self._options.actor, runtime.context), thread, intent.mutation),
            scope.lease if scope is not None else None,
            intent,
            given,
        )

    def _context(self, context: Any, wanted: type[Any]) -> Any:
        if not isinstance(context, wanted):
            raise ConfigurationError(
                f"The tool {self._name} takes a {wanted.__name__}, and the context of this run is {type(context).__name__}."
            )
        return context

    def _workspace(self, context: Any, arguments: Mapping[str, Any]) -> str:
        allowed = tuple(dict.fromkeys(self._host.workspaces_of(context)))
        if self._options.workspace is not None:
            chosen = self._host.canonical(self._options.workspace(context, dict(arguments)))
            if chosen not in allowed:
                raise InputError(f"{chosen} is not a workspace of this conversation. Nothing was written.")
            return chosen
        if len(allowed) != 1:
            raise ConfigurationError(
                f"The tool {self._name} writes in one workspace, and the run context names {len(allowed)}. "
                f"Give hub.tool a function that chooses: workspace=lambda context, arguments: ..."
            )
        return str(allowed[0])

    # -- the three kinds -----------------------------------------------------------------------------------------

    def _write(self, call: _Call) -> _Flow:
        # Without a mutation id a reply that was lost cannot be told from a write that never was.
        value, stored = yield from _tried(lambda: _Write(call), ATTEMPTS if call.attribution.mutation else 1)
        return _again(value) if stored and call.intent.repeats and not call.intent.beside else value

    def _plain(self, call: _Call) -> _Flow:
        yield _Do(self._host.effects.holds(call.lease))
        return self._json((yield _Run(call.arguments)))

    def _effect(self, call: _Call) -> _Flow:
        mutation, thread = call.attribution.mutation, call.attribution.thread
        key = MutationId(mutation or f"call:{secrets.token_hex(32)}")
        run = _Run({**call.arguments, **{name: key for name, kind in self._function.hidden.items() if kind == "effect"}})
        if mutation is None:
            return self._json((yield from _tried(lambda: run, ATTEMPTS)))
        effects = self._host.effects
        claim = Claim(call.workspace, mutation, secrets.token_hex(8), self._name, call.intent.asked, thread, call.intent.message)
        try:
            first = yield from _tried(lambda: _Do(effects.claim(claim, call.attribution, call.lease)), ATTEMPTS)
        except asyncio.CancelledError:
            yield _Do(effects.release(claim))
            raise
        if first is not None:
            return self._repeated(first, call.intent)
        try:
            value = yield from _tried(lambda: run, ATTEMPTS)
        except RefusedError as error:
            yield from self._settle(claim, refused(error))
            raise
        except GraphBubbleUp:
            yield _Do(effects.release(claim))  # it waits for a person, who answers before the effect
            raise
        except Exception as error:
            if must_pass(error):
                raise
            log.warning("the effect of mutation %s in %s has an unknown outcome", mutation, call.workspace)
            return _as_error(quoted(self._open(mutation, f" (reference {noted(error)})")))
        try:
            value = self._json(value)
        except ConfigurationError as error:
            noted(error)
            value = {"done": True, "answer": "not readable"}
        yield from self._settle(claim, Outcome("returned", body=value))
        return value

    def _settle(self, claim: Claim, outcome: Outcome) -> _Flow:
        """Stores what came of an effect. Where that fails the outcome is still known here, but to no repeat."""
        try:
            kept = yield from _tried(lambda: _Do(self._host.effects.settle(claim, outcome)), ATTEMPTS)
        except Exception:
            kept = False
        if not kept:
            log.error(
                "the outcome of mutation %s in %s was not stored; see whether it is settled", claim.mutation, claim.workspace
            )

    def _repeated(self, first: Found, intent: Intent) -> Any:
        if first.outcome.kind == "refused":
            raise stored_refusal(first.outcome.body)
        if first.outcome.kind == "started":
            log.warning("mutation %s was called again while its outcome is unknown; settle it by hand", first.mutation)
            return _as_error(quoted(self._open(first.mutation, "")))
        value = first.outcome.body
        return _again(value) if intent.repeats and not intent.beside else value

    def _open(self, mutation: str, why: str) -> dict[str, Any]:
        return unknown(
            f"{self._name} is running, or it is not known whether it was done{why}. It was not repeated.",
            "Do not call it again. Tell the person that somebody must look whether it was done.",
            mutation=mutation,
        )

    def _json(self, value: Any) -> Any:
        try:
            return as_json(value, "the answer")
        except NotJsonError as error:
            raise ConfigurationError(f"The tool {self._name} returned what is not JSON: {error}") from None

    # -- the doors -----------------------------------------------------------------------------------------------

    def _through_thread(self, flow: _Flow, stopped: threading.Event) -> Any:
        """Drives a call of a plain function. `stopped` is set where the task that waits for it was cancelled."""

        def answer(step: Any) -> Any:
            if isinstance(step, _Do):
                return perform(self._host.access, step.operation)
            if isinstance(step, _Wait):
                stopped.wait(step.seconds)
                return None
            if isinstance(step, _Run):
                return self._function.call(**step.arguments)
            _end_if(stopped)
            with self._opened(step.call) as tx:
                if not tx.repeated:
                    value = self._function.call(**step.call.arguments, **self._transaction(tx))
                    _end_if(stopped)
                    self._keep(tx, value)
            return tx.outcome, tx.repeated

        _end_if(stopped)  # cancelled while it waited for a thread
        return _driven(flow, answer)

    async def _through_loop(self, flow: _Flow) -> Any:
        """Drives a call of an asynchronous function."""

        async def answer(step: Any) -> Any:
            if isinstance(step, _Do):
                return await aperform(self._host.access, step.operation)
            if isinstance(step, _Wait):
                return await asyncio.sleep(step.seconds)
            if isinstance(step, _Run):
                return await self._function.call(**step.arguments)
            async with self._opened(step.call) as tx:
                if not tx.repeated:
                    self._keep(tx, await self._function.call(**step.call.arguments, **self._transaction(tx)))
            return tx.outcome, tx.repeated

        try:
            step = next(flow)
            while True:
                try:
                    got = await answer(step)
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(got)
        except StopIteration as done:
            return done.value

    def _opened(self, call: _Call) -> Writes:
        return self._host.write(call.workspace, call.attribution, call.lease, [self._name, call.intent.asked])

    def _transaction(self, tx: Any) -> dict[str, Any]:
        return {name: tx for name, kind in self._function.hidden.items() if kind == "transaction"}

    def _keep(self, tx: Any, value: Any) -> None:
        """What the function returned is the outcome; or what it has given to `tx.returns` before."""
        if value is not None or tx.outcome is None:
            tx.returns(self._json(value))


def _tried(step: Callable[[], Any], attempts: int) -> _Flow:
    """A step that is done again, a bounded number of times, where its error may pass."""
    for attempt in range(1, attempts):
        try:
            return (yield step())
        except Exception as error:
            if not passing(error):
                raise
        yield _Wait(pause(attempt))
    return (yield step())


def _driven(flow: _Flow, answer: Callable[[Any], Any]) -> Any:
    try:
        step = next(flow)
        while True:
            try:
                got = answer(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(got)
    except StopIteration as done:
        return done.value


async def _in_thread(work: Callable[[threading.Event], Any]) -> Any:
    """Runs a plain function's call beside the event loop. Cancelled, it waits for the thread, which then rolls back: a
    call that was given up must not be found written later."""
    stopped, context = threading.Event(), contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(None, context.run, work, stopped)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped.set()
        if not future.done():
            await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise


def _end_if(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise asyncio.CancelledError()


class _Answer(ToolException):
    """An answer with the status of an error, as LangChain takes it from a tool."""


def _as_error(text: str) -> Any:
    raise _Answer(text) from None


def _again(value: Any) -> dict[str, Any]:
    """The answer to a call that was made before: a model that is not told so believes that it did it twice."""
    if isinstance(value, dict) and "repeated" not in value:
        return {**value, "repeated": True}
    return {"answer": value, "repeated": True}


def _forbidden(name: str, needed: str) -> dict[str, Any]:
    return {
        "error": f"This person lacks the permission {needed}, which {name} needs. Nothing was done.",
        "do": "Say so. Do not try another way.",
    }
