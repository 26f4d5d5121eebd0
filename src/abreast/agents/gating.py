"""The gate inside a tool: it asks the policy, and the stored approval of this very call, before anything runs (G21).

The row decides, and nothing else does. The pause is LangGraph's, but no value that resumes a graph is ever read here: a
call that is made again looks at its row again, and waits again if nobody has decided.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt
from pydantic import BaseModel, ValidationError

from abreast.access import Access, Operation
from abreast.agents.calls import WorkspacesOf, saver_of
from abreast.agents.intent import EDITED, Intent, beside, intent_of, messages_of
from abreast.agents.scope import running
from abreast.core import policy
from abreast.core.approvals import Approvals, Check
from abreast.core.text import quoted
from abreast.core.write import conflict_error
from abreast.errors import AbreastError, ConfigurationError, ContextError, InputError
from abreast.records import Approval, Gating, Policy
from abreast.store.change import SHOWN
from abreast.telemetry import log
from abreast.types import Row

Touches = Callable[[Any, Mapping[str, Any]], Any]
"""Run context and arguments in; the rows that the call has to do with, as pairs of a tracked model (or its name) and an id,
or None for the whole workspace."""

Entities = tuple[tuple[str, str, int | None], ...]

GATED = "gated"
"""What a tool of somebody else's says of itself under `abreast` where `hub.gate` has put the gate into it."""

OURS = frozenset({"read", "write", "function", GATED})
"""Tools that ask by themselves."""


class Entity(Protocol):
    """Names a row as the log does: a model or an entity type, and an id. None for what cannot be one."""

    def __call__(self, model: Any, entity_id: Any) -> tuple[str, str] | None: ...


@dataclass(frozen=True)
class Gated:
    """One tool as its gate knows it.

    `policy` is what the application said; without it the hub's own choice counts, by whether the tool `writes`. `touches`
    is None where nobody said what a call has to do with. `schema` is that of its arguments, for whoever decides; `parse`
    makes the tool's arguments of those that a person gave, and raises InputError. `plain`: nothing makes a repeat of it
    harmless, so each call is asked for by itself. `versioned`: its argument `version` says which state of the row is meant.
    `possible` raises where the call could not be made anyway.
    """

    name: str
    writes: bool
    schema: Mapping[str, Any] | None
    parse: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    policy: Policy | None = None
    touches: Touches | None = None
    plain: bool = False
    versioned: bool = False
    possible: Callable[[], Operation[None]] | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """How one call goes on: with these arguments, or with an answer in its place.

    The `intent` holds them as JSON: what a person put in the model's place where `edited`. `failed`: the answer says that
    the call was not made.
    """

    arguments: Mapping[str, Any]
    intent: Intent
    edited: bool = False
    answer: str | None = None
    failed: bool = False

    def told(self, text: str) -> str:
        """The tool's answer, which says so where a person changed the arguments."""
        return with_change(text, self.intent.asked) if self.edited else text


def with_change(text: str, arguments: Mapping[str, Any]) -> str:
    """An answer that says that a person changed the arguments, and to what."""
    note = {"arguments": dict(arguments), "note": "A person changed the arguments of this call. It was made with these."}
    try:
        told = json.loads(text)
    except ValueError:
        told = text
    return quoted({**(told if isinstance(told, dict) else {"answer": told}), EDITED: note})


class Gatekeeper:
    """The gates of one hub's tools."""

    def __init__(
        self,
        access: Access,
        approvals: Approvals,
        workspaces_of: WorkspacesOf,
        entity: Entity,
        gating: Gating,
        *,
        stored: bool,
    ) -> None:
        self._access, self._approvals, self._workspaces_of = access, approvals, workspaces_of
        self._entity, self._gating, self._stored = entity, gating, stored

    @property
    def strict(self) -> bool:
        """Whether every tool asks until a policy frees it, other people's too."""
        return self._gating == "strict"

    def policy_of(self, gated: Gated) -> Policy:
        """The policy in force for a tool."""
        return gated.policy or policy.by_default(self._gating, writes=gated.writes)

    def passage(
        self, gated: Gated, runtime: ToolRuntime[Any, Any] | None, arguments: Mapping[str, Any], intent: Intent | None = None
    ) -> Operation[Passage]:
        """Lets a call through, or gives it an answer. Raises GraphInterrupt where a person must decide first, and
        ConfigurationError where the application's rule fails: nothing runs then."""
        rule = self.policy_of(gated)
        if gated.plain and rule.gate == "allow" and isinstance(runtime, ToolRuntime) and self._is_new(runtime):
            return self._let(Passage(arguments, Intent(dict(arguments))), runtime, None)
        if intent is None and isinstance(runtime, ToolRuntime):
            intent = intent_of(runtime, gated.name, arguments, repeatable=True)
        if intent is None or runtime is None:
            return self._outside(gated, rule, arguments, None)
        # Whoever decides sees what will run, also what no model has asked for.
        intent = replace(intent, asked={**intent.asked, **beside(gated.schema, intent.asked, arguments)})
        passage = Passage(arguments, intent)
        thread, call = _thread(runtime), intent.place if gated.plain else intent.mutation
        waits = self._stored and bool(thread and call) and saver_of(runtime.config or {}) is not None
        known: Approval | None = None
        if waits and (intent.repeats or self._may_have_row(intent.made_by)):
            known = yield from self._approvals.find(thread, policy.approval_id(thread, call or ""))
        if known is not None and known.status == "open" and not self._may_have_row(intent.made_by):
            # This run makes the call that an earlier one has left without an answer, and waits for it now.
            known = yield from self._ask(gated, rule, runtime, intent, thread, call or "")
        if known is None:
            gate = policy.gate_of(rule, gated.name, json.loads(json.dumps(intent.asked)), runtime.context)
            if gate == "allow":
                return self._let(passage, runtime, None)
            if gate == "deny":
                return self._let(replace(passage, answer=_denied(gated.name), failed=True), runtime, None)
            if not waits:
                return self._outside(gated, rule, arguments, runtime)
            known = yield from self._ask(gated, rule, runtime, intent, thread, call or "")
        if known.status in ("rejected", "expired", "withdrawn") and call != intent.place:
            # It stands for an earlier call, whose request came to nothing. That one is not made; this one is asked for.
            known = yield from self._ask(gated, rule, runtime, intent, thread, intent.place or "")
        return self._let(self._decided(gated, rule, known, runtime, passage), runtime, known)

    def _let(self, passage: Passage, runtime: ToolRuntime[Any, Any], known: Approval | None) -> Passage:
        """Notes in the run how a call goes on: for who streams it, and for the versions that the write names."""
        scope = running(self._access)
        if scope is None:
            return passage
        if known is not None and passage.answer is None and passage.intent.mutation is not None:
            scope.approved[passage.intent.mutation] = _seen_by(known)
        if scope.watcher is not None and runtime.tool_call_id:
            given: dict[str, Any] = {"approval": known.id if known is not None else None}
            if passage.edited:
                given["edited"] = dict(passage.intent.asked)
            if passage.answer is None:
                scope.watcher.passed(runtime.tool_call_id, **given)
            else:
                refused = ("denied" if known is None else known.status) if passage.failed else None
                scope.watcher.noted(runtime.tool_call_id, code=refused, **given)
        return passage

    def _may_have_row(self, made_by: str | None) -> bool:
        """Whether a call of this message may have been asked for before. Not where the model made it in this very run: what
        was asked for ends a run, and whoever resumes it is another."""
        scope = running(self._access)
        return scope is None or made_by is None or not any(made_by in call.message_ids for call in scope.calls)

    def begins(self, runtime: ToolRuntime[Any, Any] | None) -> bool:
        """Whether somebody runs the graph by himself, with an input: what waits is not gone on with, and no database is
        asked. (The key is LangGraph's own, and stands there only where a graph goes on: tried on 1.2.24.)"""
        resuming = ((runtime.config if runtime is not None else None) or {}).get("configurable", {}).get("__pregel_resuming")
        return running(self._access) is None and not resuming

    def _is_new(self, runtime: ToolRuntime[Any, Any]) -> bool:
        """Whether the newest call with this id was made in this very run."""
        for message in reversed(messages_of(runtime.state)):
            if isinstance(message, AIMessage) and any(call["id"] == runtime.tool_call_id for call in message.tool_calls):
                return not self._may_have_row(message.id)
        return False

    def _outside(
        self, gated: Gated, rule: Policy, arguments: Mapping[str, Any], runtime: ToolRuntime[Any, Any] | None
    ) -> Passage:
        """A call in a place where nobody can be asked."""
        passage = Passage(arguments, Intent(dict(arguments)))
        gate = policy.gate_of(rule, gated.name, dict(arguments), runtime.context if runtime is not None else None)
        if gate == "allow":
            return passage
        if gate == "deny":
            return replace(passage, answer=_denied(gated.name), failed=True)
        log.error(
            "the tool %s needs an approval, and was called where none can be waited for: approvals need a graph with a "
            "checkpointer, a thread, and a hub that tracks tables",
            gated.name,
        )
        error = f"{gated.name} needs a person's approval, and nobody can be asked for it here. Nothing was done."
        return replace(passage, answer=quoted({"error": error, "do": "Say so. Do not try another way."}), failed=True)

    def _ask(
        self, gated: Gated, rule: Policy, runtime: ToolRuntime[Any, Any], intent: Intent, thread: str, call: str
    ) -> Operation[Approval]:
        scope = running(self._access)
        try:
            workspaces: Sequence[str] = tuple(dict.fromkeys(self._workspaces_of(runtime.context)))
        except ContextError:
            workspaces = ()
        touches = self._touched(gated, runtime.context, intent.asked)
        if gated.possible is not None:
            yield from gated.possible()
        if gated.versioned and touches:
            yield from self._must_be_current(workspaces, touches, intent.asked.get("version"))
        person = scope.person if scope is not None and scope.thread == thread else None
        wanted = Approval(
            id=policy.approval_id(thread, call),
            thread=thread,
            run=scope.run if scope is not None and scope.thread == thread else "",
            tool=gated.name,
            arguments=intent.asked,
            digest=policy.digest(gated.name, intent.asked),
            status="open",
            tenant=person[0] if person is not None else _text(runtime.context, "tenant"),
            user=person[1] if person is not None else _text(runtime.context, "user"),
            call=runtime.tool_call_id or None,
            revisions=dict.fromkeys(workspaces, 0),
            touches=touches,
            policy=policy.pinned(rule),
            schema=gated.schema,
        )
        lease = scope.lease if scope is not None else None
        return (yield from self._approvals.request(wanted, mutation=intent.mutation or intent.place, lease=lease))

    def _must_be_current(self, workspaces: Sequence[str], touches: Entities, version: Any) -> Operation[None]:
        """Raises VersionConflictError where the call names a version that the row does not have: nobody is asked about a
        write that could not be made. A table with a version column counts by itself, and is asked by the tool."""
        scope = running(self._access)
        sync = self._approvals.sync
        for kind, wanted, _ in touches:
            if any(t.entity_type == kind and t.version_column is not None for t in sync.tables):
                continue
            for workspace in workspaces:
                last = yield from self._approvals.last(workspace, kind, wanted)
                if last is None:
                    continue
                text = str(version).strip()
                if SHOWN.fullmatch(text):
                    seen = scope.shown.get((workspace, int(text[1:])), ()) if scope is not None else ()
                    current = last <= int(text[1:]) and (kind, wanted) in seen
                else:
                    current = text == str(last)
                if not current:
                    raise conflict_error(kind, wanted, version, Row(kind, wanted, {}, last))

    def _touched(self, gated: Gated, context: Any, arguments: Mapping[str, Any]) -> Entities | None:
        if gated.touches is None:
            return None
        try:
            found = gated.touches(context, json.loads(json.dumps(arguments)))
        except AbreastError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"touches of {gated.name} failed with {type(error).__name__}. The tool did not run."
            ) from error
        if found is None:
            return None
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise ConfigurationError(
                f"touches of {gated.name} returned {type(found).__name__}; it returns a list of (model, id)."
            )
        rows: list[tuple[str, str, int | None]] = []
        for one in found:
            if isinstance(one, str) or not isinstance(one, Sequence) or len(one) not in (2, 3):
                raise ConfigurationError(f"touches of {gated.name} returned {one!r}; it returns a list of (model, id).")
            named = self._entity(one[0], one[1])
            if named is None:
                return None  # who cannot be told which row it is looks at all of them
            version = one[2] if len(one) == 3 else None
            rows.append((*named, version if isinstance(version, int) else None))
        return tuple(dict.fromkeys(rows))

    def _decided(self, gated: Gated, rule: Policy, known: Approval, runtime: ToolRuntime[Any, Any], passage: Passage) -> Passage:
        """What the row says. Its own policy was pinned to it; whatever is deployed today does not count."""
        if known.tool != gated.name or known.digest != policy.digest(gated.name, passage.intent.asked):
            return replace(passage, answer=_not_run("This call is not the one that was asked for."), failed=True)
        decision = known.decision
        if known.status == "open":
            raise _pause(known, runtime)
        if known.status == "approved":
            return passage
        if known.status == "edited":
            assert decision is not None
            assert decision.arguments is not None
            asked = dict(decision.arguments)
            changed = replace(passage.intent, asked=asked)
            edited = replace(passage, arguments=gated.parse(asked), intent=changed, edited=True)
            if callable(rule.gate) and policy.gate_of(rule, gated.name, dict(asked), runtime.context) == "deny":
                return replace(edited, answer=edited.told(_denied(gated.name)), failed=True)
            return edited
        if known.status == "rejected":
            reason = decision.message if decision is not None else None
            return replace(passage, answer=_not_run("A person rejected this call.", reason), failed=True)
        if known.status == "answered":
            message = decision.message if decision is not None else ""
            return replace(passage, answer=message if isinstance(message, str) else quoted(message))
        said = {"expired": "Nobody decided about this call in time.", "withdrawn": "The request for this call was withdrawn."}
        return replace(passage, answer=_not_run(said.get(known.status, "This call was not approved.")), failed=True)


def _seen_by(approval: Approval) -> Callable[[str, str, str], int | None]:
    """On which revision the person who approved has seen a row; None for one that the call did not name."""
    confirmed = approval.decision.confirmed if approval.decision is not None else {}
    rows = None if approval.touches is None else {(kind, wanted) for kind, wanted, _ in approval.touches}

    def seen(workspace: str, kind: str, wanted: str) -> int | None:
        if workspace not in approval.revisions or (rows is not None and (kind, wanted) not in rows):
            return None
        return max(approval.revisions[workspace], confirmed.get(workspace, 0))

    return seen


def _pause(approval: Approval, runtime: ToolRuntime[Any, Any]) -> GraphInterrupt:
    """What LangGraph's `interrupt` raises. That would first look for a value to resume with, which anybody who may run the
    graph can give, and take it from a question that the tool itself asks."""
    value = {"approval": approval.id, "tool": approval.tool, "arguments": dict(approval.arguments)}
    namespace = str((runtime.config or {}).get("configurable", {}).get("checkpoint_ns") or "")
    return GraphInterrupt((Interrupt.from_ns(value, namespace),))


def _thread(runtime: ToolRuntime[Any, Any]) -> str:
    return str((runtime.config or {}).get("configurable", {}).get("thread_id") or "")


def _text(context: Any, name: str) -> str | None:
    found = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
    return found if isinstance(found, str) else None


def _denied(name: str) -> str:
    return quoted({"error": f"{name} is not allowed here. Nothing was done.", "do": "Say so. Do not try another way."})


def _not_run(error: str, reason: Any = None) -> str:
    told = {"error": f"{error} Nothing was done.", **({"reason": reason} if reason else {})}
    return quoted({**told, "do": "Do not make the same call again unless the person asks for it."})


# -- what is known of a tool's arguments -------------------------------------------------------------------------------


def parser_of(tool: BaseTool) -> tuple[Mapping[str, Any] | None, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
    """A tool's schema of what a model may give, and what makes its arguments of that."""
    shown: Any = tool.tool_call_schema
    if isinstance(shown, type) and issubclass(shown, BaseModel):
        return shown.model_json_schema(), lambda given: _validated(tool.name, shown, given)
    schema = shown if isinstance(shown, dict) else None
    return schema, lambda given: _fitting(tool.name, schema, given)


def _validated(name: str, schema: type[BaseModel], given: Mapping[str, Any]) -> Mapping[str, Any]:
    names = {field.alias or key for key, field in schema.model_fields.items()}
    _must_know(name, names, given)
    try:
        model = schema.model_validate(dict(given))
    except ValidationError as error:
        raise InputError(_wrong(name, error)) from None
    return {field.alias or key: getattr(model, key) for key, field in schema.model_fields.items()}


def _must_know(name: str, known: Iterable[str], given: Mapping[str, Any]) -> None:
    if unknown := sorted(set(map(str, given)) - set(known)):
        raise InputError(f"{name} has no argument {unknown[0]!r}; it has {', '.join(sorted(known)) or 'none'}.")


def _wrong(name: str, error: ValidationError) -> str:
    said = [
        f"{'.'.join(map(str, one['loc'])) or name}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(said) + "."


_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": Mapping,
    "null": type(None),
}


def _fitting(name: str, schema: Mapping[str, Any] | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Looks at arguments as far as a bare JSON schema says what they are: names, what must be there, and plain types."""
    if schema is None:
        raise InputError(f"{name} does not say which arguments it takes, so they cannot be changed.")
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not schema.get("additionalProperties"):
        _must_know(name, properties, given)
    if missing := [one for one in schema.get("required", ()) if one not in given]:
        raise InputError(f"{missing[0]}: {name} needs it.")
    for key, value in given.items():
        kind = properties.get(key, {}).get("type")
        wanted = [kind] if isinstance(kind, str) else list(kind or ())
        if wanted and not any(_is(value, one) for one in wanted):
            raise InputError(f"{key}: this is not of type {' or '.join(wanted)}.")
    return dict(given)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, object))


def check_of(gated: Gated) -> Check:
    """What looks at the arguments of an edit."""

    def check(arguments: Mapping[str, Any]) -> None:
        gated.parse(arguments)

    return check


def check_arguments(tool: BaseTool) -> Check:
    """What looks at the arguments that a person gives in place of those of a call of this tool."""
    _, parse = parser_of(tool)

    def check(arguments: Mapping[str, Any]) -> None:
        parse(arguments)

    return check


def tools_of(graph: Any) -> Iterable[BaseTool]:
    """The tools of a graph's tool nodes."""
    for node in (getattr(graph, "nodes", None) or {}).values():
        found = getattr(getattr(node, "bound", None), "tools_by_name", None)
        if isinstance(found, Mapping):
            yield from found.values()


# -- tools of other people ---------------------------------------------------------------------------------------------


def answer_message(passage: Passage, name: str, call_id: str | None) -> ToolMessage:
    """The answer in a call's place as a message."""
    return ToolMessage(
        passage.answer or "", tool_call_id=call_id or "", name=name, status="error" if passage.failed else "success"
    )


def annotated(answer: Any, passage: Passage) -> Any:
    """A tool's answer, of whatever form, which says so where a person changed the arguments."""
    if not passage.edited:
        return answer
    if isinstance(answer, ToolMessage):
        return answer.model_copy(update={"content": passage.told(answer.text)})
    if isinstance(answer, tuple) and len(answer) == 2:
        return annotated(answer[0], passage), answer[1]
    update = getattr(answer, "update", None)
    if isinstance(update, Mapping) and isinstance(update.get("messages"), list):
        messages = [annotated(one, passage) if isinstance(one, ToolMessage) else one for one in update["messages"]]
        return replace(answer, update={**update, "messages": messages})
    if isinstance(answer, str):
        return passage.told(answer)
    try:
        return passage.told(json.dumps(answer))
    except (TypeError, ValueError):
        return passage.told(str(answer))
