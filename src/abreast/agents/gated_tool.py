"""`hub.gate`: somebody else's tool with the gate inside it. It keeps its name, its schema and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Protocol, get_type_hints

from langchain.tools import ToolRuntime
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from pydantic import BaseModel, Field, PrivateAttr, create_model

from abreast.access import Access, aperform, perform
from abreast.agents.gating import GATED, OURS, Gated, Gatekeeper, Passage, Touches, annotated, answer_message, parser_of
from abreast.errors import ConfigurationError
from abreast.records import Policy


class Host(Protocol):
    """What these tools need of a hub."""

    @property
    def access(self) -> Access: ...

    @property
    def gatekeeper(self) -> Gatekeeper: ...

    def gated(self, gated: Gated) -> Gated: ...


class GatedTool(StructuredTool):
    """A tool that asks before it runs the one inside it."""

    _inner: BaseTool = PrivateAttr()
    _host: Any = PrivateAttr()
    _gate: Gated = PrivateAttr()
    _runtime: str = PrivateAttr()

    def _run(self, *args: Any, config: RunnableConfig, run_manager: Any = None, **kwargs: Any) -> Any:
        runtime, kwargs = self._split(kwargs)
        passage = perform(self._host.access, self._host.gatekeeper.passage(self._gate, runtime, self._said(kwargs)))
        if passage.answer is not None:
            return self._answered(passage, runtime)
        given = self._given(kwargs, passage)
        return annotated(self._inner._run(**given, **_taken(self._inner._run, config, run_manager)), passage)

    async def _arun(self, *args: Any, config: RunnableConfig, run_manager: Any = None, **kwargs: Any) -> Any:
        runtime, kwargs = self._split(kwargs)
        passage = await aperform(self._host.access, self._host.gatekeeper.passage(self._gate, runtime, self._said(kwargs)))
        if passage.answer is not None:
            return self._answered(passage, runtime)
        given = self._given(kwargs, passage)
        plain = type(self._inner)._arun is BaseTool._arun
        taken = _taken(self._inner._run if plain else self._inner._arun, config, run_manager)
        if plain and "run_manager" in taken and run_manager is not None:
            taken["run_manager"] = run_manager  # the base class makes a synchronous one of it
        return annotated(await self._inner._arun(**given, **taken), passage)

    def _split(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The runtime, and the arguments that the tool inside takes: it may want the runtime too."""
        runtime = given.get(self._runtime)
        own = self._runtime in _names(self._inner)
        return runtime, given if own else {name: value for name, value in given.items() if name != self._runtime}

    def _said(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments that a model may give, and those only."""
        known = (self._gate.schema or {}).get("properties")
        return given if known is None else {name: value for name, value in given.items() if name in known}

    def _given(self, given: dict[str, Any], passage: Passage) -> dict[str, Any]:
        return {**given, **passage.arguments} if passage.edited else given

    def _answered(self, passage: Passage, runtime: Any) -> Any:
        message = answer_message(passage, self.name, getattr(runtime, "tool_call_id", None))
        return (message, None) if self.response_format == "content_and_artifact" else message


def gated_tool(host: Host, tool: BaseTool, policy: Policy, touches: Touches | None) -> BaseTool:
    """The tool with the gate in it. Raises ConfigurationError for a tool that has one."""
    if (tool.metadata or {}).get("abreast") in OURS:
        raise ConfigurationError(f"{tool.name} asks by itself: give its policy to hub.tools, hub.tool or hub.gate, once.")
    schema: Any = tool.args_schema or tool.get_input_schema()
    asked = next((name for name, hint in _hints(tool).items() if _is_runtime(hint)), None)

    def func(runtime: ToolRuntime, **arguments: Any) -> Any:
        raise NotImplementedError

    def own(**arguments: Any) -> Any:
        raise NotImplementedError

    async def never(**arguments: Any) -> Any:
        raise NotImplementedError  # without it `ainvoke` would go through `_run`

    if asked is None and isinstance(schema, type) and issubclass(schema, BaseModel) and not schema.model_fields:
        # LangChain hands nothing at all, also no runtime, to a tool whose schema is empty.
        hidden: Any = (Annotated[Any, InjectedToolArg, Field(exclude=True)], None)
        schema = create_model(schema.__name__, __doc__=schema.__doc__, runtime=hidden)
    made = GatedTool(
        name=tool.name,
        description=tool.description,
        args_schema=schema,
        func=func if asked is None else own,
        coroutine=never,
        return_direct=tool.return_direct,
        response_format=tool.response_format,
        handle_tool_error=tool.handle_tool_error,
        handle_validation_error=tool.handle_validation_error,
        tags=tool.tags,
        callbacks=tool.callbacks,
        verbose=tool.verbose,
        extras=getattr(tool, "extras", None),
        metadata={**(tool.metadata or {}), "abreast": GATED},
    )
    known, parse = parser_of(tool)
    made._inner, made._host, made._runtime = tool, host, asked or "runtime"
    made._gate = host.gated(Gated(tool.name, True, known, parse, policy, touches, plain=True))
    return made


def _hints(tool: BaseTool) -> dict[str, Any]:
    """The types of a tool's parameters, those of its schema first, as LangGraph looks at them."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    hints = get_type_hints(function, include_extras=True) if function is not None else {}
    schema = tool.args_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        hints |= {name: field.annotation for name, field in schema.model_fields.items()}
    return hints


def _names(tool: BaseTool) -> set[str]:
    return set(_hints(tool))


def _is_runtime(hint: Any) -> bool:
    origin = getattr(hint, "__origin__", hint)
    return isinstance(origin, type) and issubclass(origin, ToolRuntime)


def _taken(run: Callable[..., Any], config: RunnableConfig, run_manager: Any) -> dict[str, Any]:
    """What LangChain hands to a tool's own `_run` beside its arguments, where that takes it."""
    taken = {}
    parameters = inspect.signature(run).parameters
    if "run_manager" in parameters:
        taken["run_manager"] = run_manager
    hints = get_type_hints(run)
    for name in parameters:
        if hints.get(name) in (RunnableConfig, RunnableConfig | None):
            taken[name] = config
    return taken
