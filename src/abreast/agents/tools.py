"""Read tools made from tracked tables: list, get with version, history. Who asks comes from the run context, never from
the model: workspace and read rule are applied in the tool's own query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import sqlalchemy as sa
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from abreast.access import Access, Operation, aperform, perform, snapshot
from abreast.agents.answers import answer_of
from abreast.agents.gating import Gated, Gatekeeper, parser_of
from abreast.core.read import Reader
from abreast.core.text import quoted
from abreast.errors import AbreastError, InputError, NotTrackedError, UnavailableError
from abreast.records import Policy
from abreast.store.statement import Flow
from abreast.store.tracked import TrackedTable
from abreast.types import ChangeEvent, Row

HISTORY = "read_history"
_PAGE, _EVENTS = 20, 30


def list_tool_name(tracked: TrackedTable) -> str:
    """The name of a table's list tool."""
    return f"list_{identifier(tracked.entity_type)}"


def get_tool_name(tracked: TrackedTable) -> str:
    """The name of a table's get tool."""
    return f"get_{identifier(tracked.entity_type)}"


class _List(BaseModel):
    match: dict[str, str | int | float | bool | None] = Field(
        default_factory=dict, description="Field names with the exact values that rows must have; empty for all rows."
    )
    after: str | int | None = Field(
        default=None, description="The `id` of the last row of the page before; leave out for the first page."
    )
    limit: int = Field(default=_PAGE, ge=1, le=100, description="Rows on this page, 1 to 100.")


class _Get(BaseModel):
    id: str | int = Field(description="The row's `id`, as CURRENT or the list tool shows it.")


class _History(BaseModel):
    entity_type: str | None = Field(default=None, description="Only changes of this kind of row, for example `plan`.")
    entity_id: str | int | None = Field(
        default=None, description="Only changes of the row with this id; give entity_type with it."
    )
    since: str | None = Field(
        default=None, description="From this day or moment on, ISO 8601: 2026-09-01 or 2026-09-01T09:00:00Z."
    )
    until: str | None = Field(default=None, description="Up to the end of this day, or to this moment, ISO 8601.")
    limit: int = Field(default=_EVENTS, ge=1, le=100, description="The newest so many changes, 1 to 100.")


class Host(Protocol):
    """What these tools need of a hub."""

    @property
    def access(self) -> Access: ...

    @property
    def reader(self) -> Reader: ...

    @property
    def gatekeeper(self) -> Gatekeeper: ...

    def gated(self, gated: Gated) -> Gated: ...

    def workspaces_of(self, context: Any) -> Sequence[str]: ...


class ReadTools:
    """Makes the read tools of one hub. `policies` says by a tool's name what must be done before it runs."""

    def __init__(self, host: Host, policies: Mapping[str, Policy]) -> None:
        self._host, self._policies = host, policies
        self._access, self._reader, self._workspaces_of = host.access, host.reader, host.workspaces_of

    def of(self, tables: Sequence[TrackedTable]) -> list[BaseTool]:
        """A list and a get tool for each table, and one history tool for all of them."""
        made: list[BaseTool] = []
        for tracked in tables:
            made += [self._list(tracked), self._get(tracked)]
        return [*made, self._history(tables)]

    def _list(self, tracked: TrackedTable) -> BaseTool:
        fields = ", ".join(f.name for f in tracked.fields if not f.redacted)

        def flow(workspace: str, context: Any, arguments: dict[str, Any]) -> Flow[str]:
            rule = self._reader.sync.rules(context)[tracked.entity_type]
            page = yield from self._reader.page(
                tracked, rule, workspace=workspace, match=arguments["match"], after=arguments["after"], limit=arguments["limit"]
            )
            answer: dict[str, Any] = {"rows": [_row(row) for row in page.rows]}
            if page.more:
                answer |= {"more": page.more, "after": page.rows[-1].entity_id}
            return quoted(answer)

        description = (
            f"List rows of {tracked.entity_type} as they are now, in key order. Fields: {fields}. "
            f'Example: {{"limit": 2}} -> {{"rows": [{{"id": "…", "version": 7, …}}, …], "more": 40, "after": "…"}}. '
            f"`more` says how many follow; pass `after` to get them."
        )
        return self._tool(list_tool_name(tracked), description, _List, flow)

    def _get(self, tracked: TrackedTable) -> BaseTool:
        def flow(workspace: str, context: Any, arguments: dict[str, Any]) -> Flow[str]:
            rule = self._reader.sync.rules(context)[tracked.entity_type]
            row = yield from self._reader.row(tracked, rule, workspace=workspace, entity_id=str(arguments["id"]))
            return quoted(_row(row))

        description = (
            f"Get one row of {tracked.entity_type} as it is now, with the version that a change of it must name. "
            f'Example: {{"id": "a1"}} -> {{"id": "a1", "version": 7, …}}.'
        )
        return self._tool(get_tool_name(tracked), description, _Get, flow)

    def _history(self, tables: Sequence[TrackedTable]) -> BaseTool:
        def flow(workspace: str, context: Any, arguments: dict[str, Any]) -> Flow[str]:
            rules = self._reader.sync.rules(context)
            events = yield from self._reader.history(rules, workspace=workspace, context=context, **arguments)
            return quoted({"changes": [_change(event) for event in events]})

        kinds = ", ".join(t.entity_type for t in tables)
        description = (
            f"Read who changed what and when, newest first. Kinds of rows: {kinds}. Narrow it by kind, row and period. "
            f'Example: {{"entity_type": "{tables[0].entity_type if tables else "plan"}", "since": "2026-09-01"}} -> '
            f'{{"changes": [{{"revision": 41, "at": "…", "by": "user u_1", "what": "update", "of": "…", '
            f'"fields": {{"…": ["old", "new"]}}}}]}}.'
        )
        return self._tool(HISTORY, description, _History, flow)

    def _tool(
        self, name: str, description: str, schema: type[BaseModel], flow: Callable[[str, Any, dict[str, Any]], Flow[str]]
    ) -> BaseTool:
        def operation(runtime: ToolRuntime, arguments: dict[str, Any]) -> Operation[str]:
            try:
                passage = yield from self._host.gatekeeper.passage(gate, runtime, arguments)
            except AbreastError as error:
                text = answer_of(error)
                if text is None:
                    raise
                raise ToolException(text) from error
            if passage.failed:
                raise ToolException(passage.answer)
            if passage.answer is not None:
                return passage.answer
            return passage.told((yield from answer(runtime, dict(passage.arguments))))

        def answer(runtime: ToolRuntime, arguments: dict[str, Any]) -> Operation[str]:
            # An answer that teaches is worth more to a model than an exception that ends its run.
            answers: dict[str, str] = {}
            errors: dict[str, str] = {}
            # Ids are texts; a model repeats a number as a number.
            arguments = {k: str(v) if k in ("after", "entity_id") and v is not None else v for k, v in arguments.items()}
            for workspace in dict.fromkeys(self._workspaces_of(runtime.context)):
                try:
                    answers[workspace] = yield from snapshot(lambda w=workspace: flow(w, runtime.context, dict(arguments)))  # type: ignore[misc]
                except (InputError, NotTrackedError) as error:
                    errors[workspace] = quoted({"error": error.message})
                except sa.exc.DataError:
                    return quoted({"error": "A value does not fit the type of its field. Look at the field's values first."})
                except UnavailableError:
                    return quoted({"error": "The data cannot be read just now. Say so, or try once more."})
            # With several workspaces a row is found in one of them; that the others have none is no news.
            found = answers or errors
            return next(iter(found.values())) if len(answers) + len(errors) == 1 else _by_workspace(found)

        def call(runtime: ToolRuntime, **arguments: Any) -> str:
            return perform(self._access, operation(runtime, arguments))

        async def acall(runtime: ToolRuntime, **arguments: Any) -> str:
            return await aperform(self._access, operation(runtime, arguments))

        made = StructuredTool.from_function(
            func=call,
            coroutine=acall,
            name=name,
            description=description,
            args_schema=schema,
            metadata={"abreast": "read"},
        )
        made.handle_tool_error = True
        known, parse = parser_of(made)
        rule = self._policies.get(name)
        gate = self._host.gated(Gated(name, False, known, parse, rule, lambda context, arguments: (), plain=True))
        return made


def _by_workspace(answers: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(workspace)}: {answer}" for workspace, answer in answers.items()) + "}"


def _row(row: Row) -> dict[str, Any]:
    return {"id": row.entity_id, **({"version": row.version} if row.version is not None else {}), **row.values}


def _change(event: ChangeEvent) -> dict[str, Any]:
    fields: Any = {name: list(event.values[name]) if name in event.values else "not recorded" for name in event.fields}
    by = f"{event.actor.type} {event.actor.id}" if event.actor.id else event.actor.type
    said = {
        "revision": event.revision,
        "at": event.at,
        "by": by,
        "what": event.op,
        "of": f"{event.entity_type} {event.entity_id}",
    }
    return {**said, "fields": fields} if event.op == "update" else said


def identifier(name: str) -> str:
    """The name as providers allow it in a tool's name."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return text[:48] or "row"
