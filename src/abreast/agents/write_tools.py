"""Write tools made from tracked tables: create, update and delete one row, under the version that was read.

Who writes, in which workspace and with which rights comes from the run context, and is asked in the tool's own
transaction. What goes wrong is an answer that says what to do next; what ends the run is none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import sqlalchemy as sa
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from abreast.access import Access, aperform, perform, snapshot
from abreast.agents.answers import ATTEMPTS, answer_of, noted, passing, pause
from abreast.agents.calls import ActorOf, actor_of
from abreast.agents.gating import Entities, Gated, Gatekeeper, Passage
from abreast.agents.intent import Intent, intent_of
from abreast.agents.parameters import Own, Parameters, is_required
from abreast.agents.tools import get_tool_name, identifier, list_tool_name
from abreast.core.blocks import AsyncTransaction, Writes
from abreast.core.permits import Permit, Permits, Written, settable, spelled
from abreast.core.text import quoted
from abreast.core.transaction import Transaction
from abreast.errors import ConfigurationError, ContextError, InputError, RefusedError, UnknownEntityError, VersionConflictError
from abreast.records import Policy
from abreast.store.change import SHOWN, entity_id
from abreast.store.tracked import TrackedTable, Writable
from abreast.types import Attribution, Lease, Operation, Version

_VERBS: dict[Operation, str] = {"insert": "create", "update": "update", "delete": "delete"}

_VERSION = (
    "The version that you decided on: r… as CURRENT names it, or the row's own number, as {read} or the list tool shows it."
)
_OWN_VERSION = "The `version` of the row that you decided on, as {read} or the list tool shows it."

_MOVED = (
    "If the row has changed since, nothing is written and the answer holds it as it is now: decide again on that, then "
    "call again with its version."
)


class _Write(Protocol):
    """What a tool does in its transaction, with the workspaces of the run. Returns the outcome, as JSON."""

    def __call__(self, tx: Transaction, workspaces: Sequence[str]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class _Meant:
    """What one call of a tool means: where it may happen, and what happens there."""

    workspaces: Sequence[str]
    write: _Write
    touches: Entities | None
    """The rows that the call names, or that a new row refers to; None where nobody can say which they are."""
    possible: Callable[[], Any] | None = None
    """Raises where the row that the call names is not there, or is not this person's to write."""


Prepare = Callable[[Permit, Mapping[str, Any], Sequence[str]], _Meant]
"""Permit, arguments and the workspaces in which the table can have rows in. Raises what is wrong with them."""


class Host(Protocol):
    """What these tools need of a hub."""

    @property
    def access(self) -> Access: ...

    @property
    def gatekeeper(self) -> Gatekeeper: ...

    def gated(self, gated: Gated) -> Gated: ...

    def workspaces_of(self, context: Any) -> Sequence[str]: ...

    def write(self, workspace: str, attribution: Attribution, lease: Lease | None, payload: Any) -> Writes: ...


class WriteTools:
    """Makes the write tools of one hub. `policies` says by a tool's name what must be done before it runs."""

    def __init__(self, host: Host, permits: Permits, actor: ActorOf, policies: Mapping[str, Policy]) -> None:
        self._host, self._permits, self._actor, self._policies = host, permits, actor, policies
        self._dialect: sa.Dialect = host.access.sql_dialect

    def of(self, tables: Sequence[TrackedTable], wanted: bool | Collection[str]) -> list[BaseTool]:
        """A create, an update and a delete tool for each table, or those of the `wanted` names.

        Raises ConfigurationError for a name that no tool would have.
        """
        if isinstance(wanted, str):
            raise ConfigurationError(f"write takes True, False or a set of names: {{{wanted!r}}}.")
        made = {tool.name: tool for tracked in tables for tool in self._of(tracked)}
        if isinstance(wanted, bool):
            return list(made.values()) if wanted else []
        if unknown := sorted(set(wanted) - made.keys()):
            raise ConfigurationError(f"There is no write tool {unknown[0]!r}. There are: {', '.join(made) or 'none'}.")
        return [tool for name, tool in made.items() if name in wanted]

    def _of(self, tracked: TrackedTable) -> Iterator[BaseTool]:
        known = tracked.writable if isinstance(tracked.writable, Writable) else Writable()
        redacted, keys = {f.name for f in tracked.fields if f.redacted}, {f.name for f in tracked.key}
        accepted = settable(tracked)
        # What is known before anybody asks. A rule that is a function may allow more than a schema can show.
        shown = accepted - redacted if known.fields is None else accepted & (known.fields | keys)
        unseen = {name for name in accepted - shown if is_required(tracked, name)}
        if "insert" in known.operations and not unseen:
            yield self._create(tracked, shown, accepted)
        if "update" in known.operations and shown - keys:
            yield self._update(tracked, shown - keys, accepted - keys)
        if "delete" in known.operations:
            yield self._delete(tracked)

    def _create(self, tracked: TrackedTable, shown: Collection[str], accepted: Collection[str]) -> BaseTool:
        place = Own(str, "Which of the run's workspaces the row is for; leave out if there is one.", needed=False)
        own = {"workspace": place} if tracked.workspace_column else {}  # otherwise the row says so by what it belongs to
        parameters = Parameters(tracked, shown=shown, accepted=accepted, own=own, creating=True, dialect=self._dialect)
        example = parameters.example()

        def prepare(permit: Permit, arguments: Mapping[str, Any], workspaces: Sequence[str]) -> _Meant:
            own, values = parameters.read(arguments)
            permit.check("insert", list(values))
            chosen = _chosen(own.get("workspace"), workspaces, told=tracked.workspace_column is None)
            return _Meant(chosen, lambda tx, workspaces: _outcome(permit.create(tx, values, workspaces)), permit.referred(values))

        description = (
            f"Create one row of {tracked.entity_type}. What is left out gets its default. "
            f'Example: {{{example}}} -> {{"id": "a1", "version": 7, "revision": 7, {example}}}.'
        )
        return self._tool("insert", tracked, description, parameters, prepare)

    def _update(self, tracked: TrackedTable, shown: Collection[str], accepted: Collection[str]) -> BaseTool:
        parameters = Parameters(
            tracked, shown=shown, accepted=accepted, own=_row_arguments(tracked), creating=False, dialect=self._dialect
        )
        example = parameters.example()

        def prepare(permit: Permit, arguments: Mapping[str, Any], workspaces: Sequence[str]) -> _Meant:
            own, values = parameters.read(arguments)
            permit.check("update", list(values))
            if not values:
                raise InputError("Say which fields are to change, and to what. Nothing was written.")
            wanted, version = _row(tracked, own)
            if not workspaces:
                raise permit.absent(tracked, wanted)
            return _Meant(
                workspaces,
                lambda tx, workspaces: _outcome(permit.update(tx, wanted, version, values, workspaces)),
                _touched(tracked, wanted, version),
                lambda: snapshot(lambda: permit.reach(wanted, workspaces)),
            )

        description = (
            f"Change fields of one row of {tracked.entity_type}; those that are left out stay as they are, null empties one. "
            f'Example: {{"id": "a1", "version": 7, {example}}} -> '
            f'{{"id": "a1", "version": 8, "revision": 8, {example}}}. {_MOVED}'
        )
        return self._tool("update", tracked, description, parameters, prepare)

    def _delete(self, tracked: TrackedTable) -> BaseTool:
        parameters = Parameters(
            tracked, shown=(), accepted=(), own=_row_arguments(tracked), creating=False, dialect=self._dialect
        )

        def prepare(permit: Permit, arguments: Mapping[str, Any], workspaces: Sequence[str]) -> _Meant:
            own, _ = parameters.read(arguments)
            permit.check("delete", [])
            wanted, version = _row(tracked, own)
            if not workspaces:
                raise permit.absent(tracked, wanted)
            return _Meant(
                workspaces,
                lambda tx, workspaces: {"deleted": permit.delete(tx, wanted, version)},
                _touched(tracked, wanted, version),
                lambda: snapshot(lambda: permit.reach(wanted, workspaces)),
            )

        description = (
            f"Delete one row of {tracked.entity_type}, for good. "
            f'Example: {{"id": "a1", "version": 7}} -> {{"deleted": "a1", "revision": 8}}. {_MOVED}'
        )
        return self._tool("delete", tracked, description, parameters, prepare)

    # -- one call ------------------------------------------------------------------------------------------------

    def _tool(self, op: Operation, tracked: TrackedTable, description: str, parameters: Parameters, prepare: Prepare) -> BaseTool:
        name = f"{_VERBS[op]}_{identifier(tracked.entity_type)}"

        def check(given: Mapping[str, Any]) -> Mapping[str, Any]:
            own, values = parameters.read(given)
            if op != "insert":
                _row(tracked, own)
            if op == "update" and not values:
                raise InputError("Say which fields are to change, and to what. Nothing was written.")
            return given

        gate = self._host.gated(Gated(name, True, parameters.schema, check, self._policies.get(name), versioned=op != "insert"))
        host = self._host

        def begin(runtime: ToolRuntime[Any, Any] | None, arguments: Mapping[str, Any], through: Passage | None = None) -> _Run:
            context = runtime.context if isinstance(runtime, ToolRuntime) else None
            try:
                workspaces = tuple(dict.fromkeys(host.workspaces_of(context)))
                if runtime is None or not workspaces:
                    raise ContextError("The run context names no workspace.")
            except ContextError as error:
                noted(error)
                raise RefusedError("This run does not say for whom it writes. Nothing was written.") from error
            permit = self._permits.of(tracked, context)
            meant = prepare(permit, arguments, [one for one in workspaces if permit.can_hold(one)])
            thread = (runtime.config or {}).get("configurable", {}).get("thread_id")
            intent = intent_of(runtime, name, arguments) if through is None else through.intent
            attribution = Attribution(actor_of(self._actor, context), None if thread is None else str(thread), intent.mutation)
            payload = [name, intent.asked]
            return _Run(
                permit,
                parameters,
                workspaces,
                meant,
                intent,
                lambda workspace: host.write(workspace, attribution, None, payload),  # None: the run's,
            )

        def gate_of(meant: _Meant) -> Gated:
            return replace(gate, touches=lambda context, arguments: meant.touches, possible=meant.possible)

        def call(runtime: ToolRuntime[Any, Any] = None, **arguments: Any) -> str:  # type: ignore[assignment]
            with _answers() as said:
                run = begin(runtime, arguments)
                passage = perform(host.access, host.gatekeeper.passage(gate_of(run.meant), runtime, arguments, run.intent))
                if (answer := _answered(passage)) is not None:
                    return answer
                said.through = passage
                run = run if not passage.edited else begin(runtime, passage.arguments, passage)
                return passage.told(run.made())

        async def acall(runtime: ToolRuntime[Any, Any] = None, **arguments: Any) -> str:  # type: ignore[assignment]
            with _answers() as said:
                # Rules are plain functions that may take their time: not on the event loop.
                run = await asyncio.to_thread(begin, runtime, arguments)
                wanted = host.gatekeeper.passage(gate_of(run.meant), runtime, arguments, run.intent)
                passage = await aperform(host.access, wanted)
                if (answer := _answered(passage)) is not None:
                    return answer
                said.through = passage
                run = run if not passage.edited else await asyncio.to_thread(begin, runtime, passage.arguments, passage)
                return passage.told(await run.amade())

        return StructuredTool(
            name=name,
            description=description,
            args_schema=parameters.schema,
            func=call,
            coroutine=acall,
            handle_tool_error=True,
            metadata={"abreast": "write"},
        )


@dataclass(frozen=True)
class _Run:
    """One call on its way: tried in the workspaces where it may happen, and again where an error may pass."""

    permit: Permit
    parameters: Parameters
    workspaces: Sequence[str]
    meant: _Meant
    intent: Intent
    make: Callable[[str], Writes]

    def made(self) -> str:
        """The answer, in this thread."""
        for attempt in range(1, ATTEMPTS):
            try:
                return self._search()
            except Exception as error:
                self._raise_unless_passing(error)
            time.sleep(pause(attempt))
        return self._search()

    async def amade(self) -> str:
        """The answer, on an event loop."""
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._asearch()
            except Exception as error:
                self._raise_unless_passing(error)
            await asyncio.sleep(pause(attempt))
        return await self._asearch()

    def _search(self) -> str:
        absent: list[UnknownEntityError] = []
        for workspace in self.meant.workspaces:
            with self._elsewhere(absent):
                with self.make(workspace) as tx:
                    if not tx.repeated:
                        self._write(tx)
                return self._answer(tx)
        raise self._most_telling(absent)

    async def _asearch(self) -> str:
        absent: list[UnknownEntityError] = []
        for workspace in self.meant.workspaces:
            with self._elsewhere(absent):
                async with self.make(workspace) as tx:
                    if not tx.repeated:
                        await tx.run(self._write)
                return self._answer(tx)
        raise self._most_telling(absent)

    def _write(self, tx: Transaction) -> None:
        tx.returns(self.meant.write(tx, self.workspaces))

    def _answer(self, tx: Transaction | AsyncTransaction) -> str:
        outcome = dict(tx.outcome)
        fields = outcome.pop("fields", {})
        told = {**outcome, "revision": tx.revision}
        for name, value in fields.items():
            if name not in self.permit.hidden:  # asked anew: a first answer may be of another day
                told.setdefault(self.parameters.arguments.get(name, name), value)
        return quoted({**told, "repeated": True} if tx.repeated else told)

    @contextmanager
    def _elsewhere(self, absent: list[UnknownEntityError]) -> Iterator[None]:
        """With several workspaces a row is found in one of them; that the others have none is no news."""
        try:
            yield
        except UnknownEntityError as error:
            absent.append(error)
        except VersionConflictError as error:
            raise self.permit.seen(error) from error

    def _most_telling(self, absent: Sequence[UnknownEntityError]) -> UnknownEntityError:
        kind = self.permit.tracked.entity_type
        return next((one for one in absent if one.fields.get("entity_type") != kind), absent[0])

    def _raise_unless_passing(self, error: Exception) -> None:
        # Without a mutation nobody could say whether a write that lost its reply was made.
        if self.intent.mutation is None or not passing(error):
            raise error


@dataclass
class _Said:
    """How a call went through its gate, once it has."""

    through: Passage | None = None


@contextmanager
def _answers() -> Iterator[_Said]:
    """Errors as answers, but for those that pause, cancel or end the run."""
    said = _Said()
    try:
        yield said
    except ToolException:
        raise
    except BaseException as error:
        text = answer_of(error)
        if text is None:
            raise
        raise ToolException(text if said.through is None else said.through.told(text)) from error


def _answered(passage: Passage) -> str | None:
    """The answer in the call's place, if there is one. Raises ToolException where it was not made."""
    if passage.failed:
        raise ToolException(passage.answer)
    return passage.answer


def _touched(tracked: TrackedTable, entity_id: str, version: Version) -> Entities | None:
    """The row that a call names, as the log does; None where it cannot be told which one that is."""
    known = spelled(tracked, entity_id)
    return None if known is None else ((tracked.entity_type, known, version if isinstance(version, int) else None),)


def _row_arguments(tracked: TrackedTable) -> dict[str, Own]:
    read = get_tool_name(tracked)
    one: Any = str | int
    if tracked.version_column is None:
        own = Own(one, _VERSION.format(read=read))
    else:
        own = Own(int, _OWN_VERSION.format(read=read))
    return {
        "id": Own(one if len(tracked.key) == 1 else one | list[one], f"The row's `id`, as CURRENT or {read} shows it."),
        "version": own,
    }


def _row(tracked: TrackedTable, own: Mapping[str, Any]) -> tuple[str, Version]:
    """Id and version. Raises InputError that says where they are found."""
    wanted, version = own.get("id"), own.get("version")
    if wanted is None:
        raise InputError(f"Give the `id` of the row; CURRENT and {list_tool_name(tracked)} show it. Nothing was written.")
    if version is None:
        raise InputError(
            f"Give the `version` of the row that you decided on; {get_tool_name(tracked)} shows it. Nothing was written."
        )
    text = str(version).strip()
    return entity_id(wanted), text if SHOWN.fullmatch(text) else _whole(text)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"A version is a whole number, or what CURRENT names (r41), not {text[:20]!r}. Nothing was written.")
    return int(text)


def _chosen(workspace: str | None, workspaces: Sequence[str], *, told: bool) -> Sequence[str]:
    """Where a new row may go. `told`: it says so itself."""
    known = ", ".join(workspaces)
    if not workspaces:
        raise InputError("Rows of this kind belong to none of the workspaces of this run. Nothing was written.")
    if workspace is not None:
        if workspace not in workspaces:
            raise InputError(f"{workspace!r} is none of the workspaces of this run: {known}. Nothing was written.")
        return [workspace]
    if len(workspaces) > 1 and not told:
        raise InputError(f"Say in `workspace` which one the row is for: {known}. Nothing was written.")
    return workspaces


def _outcome(written: Written) -> dict[str, Any]:
    return {"id": written.entity_id, "version": written.version, "fields": written.values}
