"""What a function of `hub.tool` says of itself: its name and description, the arguments that the model gives, and the
parameters that it never sees."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from langchain.tools import ToolRuntime
from langchain_core.tools import InjectedToolArg
from pydantic import BaseModel, Field, TypeAdapter, create_model
from pydantic.errors import PydanticUserError

from abreast.core.blocks import AsyncTransaction
from abreast.core.transaction import Transaction
from abreast.errors import ConfigurationError
from abreast.types import MutationId, RunContext

Kind = Literal["transaction", "effect", "plain"]
"""A write in the hub's transaction, an effect outside the database, or neither."""

_TAKEN = ("runtime", "config", "run_manager", "callbacks", "self", "cls")
"""Names that LangChain keeps for itself in the call of a tool."""

_OF_THE_RUN = ("context", "state", "store", "runtime", "config")
"""Names of what a run has and no model may give."""

Role = Literal["transaction", "effect", "runtime", "context"]
"""What a parameter is that the model never sees."""

_ARGUMENT = re.compile(r"^\s+(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Function:
    """An application's function, as its tool needs it. `hidden` says what each parameter is that the model never sees."""

    call: Callable[..., Any]
    name: str
    description: str
    schema: type[BaseModel]
    hidden: Mapping[str, Role]
    kind: Kind
    is_async: bool
    contexts: Mapping[str, type[RunContext]] = field(default_factory=dict)
    """The classes of the parameters that get the run context."""


def read_function(call: Callable[..., Any], called: str | None) -> Function:
    """Raises ConfigurationError where the function cannot be a tool, and says what to do."""
    name = str(called or getattr(call, "__name__", type(call).__name__))
    is_async = inspect.iscoroutinefunction(call)
    documented = inspect.getdoc(call)
    if not documented:
        raise ConfigurationError(f"The tool {name} has no docstring. Say in it what the tool does: the model reads nothing else.")
    try:
        hints = get_type_hints(call, include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"The tool {name} has a parameter of a type that is not known where it stands: {error}"
        ) from error
    description, explained = _documented(documented)
    hidden: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    contexts: dict[str, type[RunContext]] = {}
    for parameter in inspect.signature(call).parameters.values():
        hint = hints.get(parameter.name)
        role = _role(hint)
        if role is not None:
            hidden[parameter.name] = role
            _fits(name, hint, is_async)
            if role == "context":
                contexts[parameter.name] = _bare(hint)
            continue
        _visible(name, parameter, hint)
        described = Annotated[hint, Field(description=explained[parameter.name])] if parameter.name in explained else hint
        fields[parameter.name] = (described, ... if parameter.default is parameter.empty else parameter.default)
    roles = list(hidden.values())
    if roles.count("transaction") + roles.count("effect") > 1:
        raise ConfigurationError(
            f"The tool {name} takes a transaction and a mutation id, or several. It is either a write (tx.mutation is its id) "
            f"or an effect outside; make two tools of it."
        )
    kind: Kind = "transaction" if "transaction" in roles else "effect" if "effect" in roles else "plain"
    if not fields:
        # LangChain hands nothing at all, also no runtime, to a tool whose schema is empty.
        fields["runtime"] = (Annotated[Any, InjectedToolArg, Field(exclude=True)], None)
    schema = create_model(name, __doc__=description, **fields)
    return Function(call, name, description, schema, hidden, kind, is_async, contexts)


def _role(hint: Any) -> Role | None:
    hint = _bare(hint)
    if hint in (Transaction, AsyncTransaction):
        return "transaction"
    if hint is MutationId:
        return "effect"
    if isinstance(hint, type) and issubclass(hint, RunContext):
        return "context"
    return "runtime" if hint is ToolRuntime or get_origin(hint) is ToolRuntime else None


def _bare(hint: Any) -> Any:
    """A type without what is said of it."""
    return hint.__origin__ if get_origin(hint) is Annotated else hint


def _is_injected(hint: Any) -> bool:
    """Whether LangGraph fills a parameter: `Annotated[…, InjectedState]` and its like."""
    said = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(one, InjectedToolArg) or (isinstance(one, type) and issubclass(one, InjectedToolArg)) for one in said)


def _written(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _fits(name: str, hint: Any, is_async: bool) -> None:
    wanted, other = (AsyncTransaction, Transaction) if is_async else (Transaction, AsyncTransaction)
    if hint is other:
        kind = "an asynchronous" if is_async else "a plain"
        raise ConfigurationError(f"The tool {name} is {kind} function: its transaction is {wanted.__name__}.")


def _visible(name: str, parameter: inspect.Parameter, hint: Any) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise ConfigurationError(f"The tool {name} takes its arguments by name: {parameter} cannot be one of them.")
    if hint is None:
        raise ConfigurationError(f"The parameter {parameter.name} of the tool {name} has no type. The model needs one.")
    if _is_injected(hint):
        return
    if parameter.name in _OF_THE_RUN:
        raise ConfigurationError(
            f"A parameter of the tool {name} cannot be called {parameter.name}: the model would give it. What a run has comes "
            f"by its type: `context: RunContext`, or `runtime: ToolRuntime` and then runtime.context, runtime.state."
        )
    if parameter.name in _TAKEN or parameter.name.startswith("_"):
        raise ConfigurationError(f"A parameter of the tool {name} cannot be called {parameter.name}.")
    if any(_role(one) is not None for one in _parts(hint)):
        raise ConfigurationError(
            f"The parameter {parameter.name} of the tool {name} is {_written(hint)}. A transaction, a mutation id, a runtime or "
            f"a run context stands alone, as in `tx: Transaction`: it is always given."
        )
    try:
        TypeAdapter(hint).json_schema()
    except (PydanticUserError, NameError) as error:
        raise ConfigurationError(
            f"The parameter {parameter.name} of the tool {name} is {_written(hint)}, which a model cannot give: it writes JSON. "
            f"Take the id of a row and get the row with tx.get; take dates, numbers, texts, lists or a pydantic model."
        ) from error


def _parts(hint: Any) -> Iterator[Any]:
    """The types that a type is made of."""
    for part in get_args(hint):
        yield part
        yield from _parts(part)


def _documented(text: str) -> tuple[str, dict[str, str]]:
    """A docstring without its section `Args:`, and what that says of each parameter."""
    kept: list[str] = []
    explained: dict[str, str] = {}
    inside, latest = False, ""
    for line in text.splitlines():
        if line.strip() in ("Args:", "Arguments:", "Parameters:") and not line.startswith(" "):
            inside = True
            continue
        if inside and line.strip() and not line.startswith(" "):
            inside = False
        if not inside:
            kept.append(line)
            continue
        found = _ARGUMENT.match(line)
        deeper = bool(latest) and len(line) - len(line.lstrip()) > 4
        if found and not deeper:
            latest = found[1]
            explained[latest] = found[2].strip()
        elif latest and line.strip():
            explained[latest] = f"{explained[latest]} {line.strip()}".strip()
    return "\n".join(kept).strip(), explained
