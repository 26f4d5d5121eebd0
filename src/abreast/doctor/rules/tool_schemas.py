"""What a model reads of a tool: its name, its description, its parameters; and what the schemas and results cost."""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from abreast.doctor.bindings import bindings
from abreast.doctor.rule import Found, Rule
from abreast.doctor.sources import Function
from abreast.doctor.subject import Subject, Tool
from abreast.doctor.updates import is_name, key_of

TOKENS = 5_000
"""Of all schemas of one model together, estimated at four characters a token."""

LARGE, COSTLY = 10_000, 100_000
"""Characters: of one result that is called large, and of what was sent again of a tool's results together."""

TRUSTED = frozenset(("tenant_id", "org_id", "is_admin", "user_role"))
EMPTY = frozenset(("a", "an", "the", "this", "is", "to", "of", "tool", "function"))
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
LEAVE_TOOLS = frozenset(
    (
        *("SyncMiddleware", "SummarizationMiddleware", "ContextEditingMiddleware", "TodoListMiddleware", "PIIMiddleware"),
        *("ModelFallbackMiddleware", "ModelRetryMiddleware", "ModelCallLimitMiddleware", "HumanInTheLoopMiddleware"),
    )
)
"""Middleware around the call of a model that changes nothing about its tools."""

TYPED = frozenset(("type", "$ref", "anyOf", "allOf", "oneOf", "enum", "const"))


def useless_description(subject: Subject) -> Iterator[Found]:
    """A tool with parameters has a description that says no more than its name.

    The model chooses a tool by its name, its description and its parameters; what the docstring leaves out, it guesses. The rule
    compares words: each word of the description stands in the name already, articles and the word "tool" aside. It is silent
    where the schema says more: a parameter with a description, an example, or a choice of values. A name of four words or more
    is a sentence by itself.
    """
    for tool in subject.tools:
        words = set(_words(getattr(tool.tool, "description", ""))) - EMPTY
        name = _words(CAMEL.sub(" ", tool.name))
        properties = _properties(tool)
        if len(set(name) - EMPTY) > 3 or _told(properties):
            continue
        if tool.function and properties and words <= {*name, *_words(tool.name)}:
            yield Found(f"tool {tool.name}", tool.spot, "its description says no more than its name.")


def untyped_parameter(subject: Subject) -> Iterator[Found]:
    """A tool's parameter has no annotation, so the schema that the model reads gives it no type.

    The model picks a form, and nothing checks it: a number arrives as text. The rule sees parameters without an annotation in
    functions whose schema LangChain derives from the signature; `Any` is taken for a choice.
    """
    for tool in subject.tools:
        properties = _properties(tool) if _derived(tool) else {}
        for name, argument in _arguments(tool).items():
            if argument.annotation is None and name in properties and not TYPED & set(properties[name]):
                at = tool.function.at(argument) if tool.function else None
                yield Found(f"tool {tool.name}", at, f"the parameter {name} has no type in the schema.")


def leaking_parameter(subject: Subject) -> Iterator[Found]:
    """The model is asked to fill in a parameter that is not its to know.

    Three are certain: the id of the call that a ToolMessage answers, without InjectedToolCallId; the graph's own state without
    InjectedState; and tenant_id, org_id, is_admin or user_role as a parameter although the run context has a field of that
    name. Who talks the model into another value acts under it. The last is silent where the tool reads the context, which may
    check the value, and where the description speaks of it: then it is a thing to look up or to change. So may be a `user_id`,
    and permissions that are granted.
    """
    context = getattr(subject.context_schema, "__annotations__", {})
    state = getattr(subject.builder, "state_schema", None)
    for tool in subject.tools:
        properties = _properties(tool)
        for name, argument in _arguments(tool).items():
            if name not in properties or tool.function is None:
                continue
            of_state = argument.annotation is not None and tool.function.resolve(argument.annotation) is state is not None
            trusted = name in TRUSTED and name in context and not _meant_to_be_asked(tool, name, properties[name])
            if of_state or trusted or _answers_with(tool.function, name):
                yield Found(f"tool {tool.name}", tool.function.at(argument), f"the model is asked to fill in {name}.")


def told_apart(subject: Subject) -> Iterator[Found]:
    """Two tools of one model have the same description and the same parameters.

    Only the names are left to choose by, so the choice is a guess. The rule compares texts, without regard to case and
    spaces; descriptions that differ in words and mean the same are not seen. Nor are tools that are chosen at run time.
    """
    for tools in _models(subject):
        for first, second in itertools.combinations(tools, 2):
            alike = first.tool.description.lower().split() == second.tool.description.lower().split()
            if alike and first.name != second.name and _shape(first) == _shape(second):
                yield Found(f"tool {second.name}", second.spot, f"its description and parameters are those of {first.name}.")


def tokens_of_schemas(subject: Subject) -> Iterator[Found]:
    """The schemas of a model's tools take more than 5,000 tokens together, estimated at four characters each.

    They are sent with every call of the model, and the more there are, the less surely it picks the right one. Measured on
    the schemas as the OpenAI format has them; other formats differ a little. The rule looks at agents of `create_agent` and at
    models that a node hands a list of tools; a middleware that may choose among the tools is not judged.
    """
    for tools in _models(subject):
        tokens = sum(map(_size, tools)) // 4
        if tokens > TOKENS:
            message = f"the schemas of {len(tools)} tools take about {tokens} tokens in every call of the model."
            yield Found(f"node {tools[0].node}", None, message)


def results_sent_again(subject: Subject) -> Iterator[Found]:
    """A tool's result of 10,000 characters or more was sent again with later calls of the model, 100,000 characters in all.

    What a tool returns stays in the history and is paid for with each call that follows. Measured on the thread, the first
    reading aside, in graphs that surely send the whole history: `create_agent` without middleware, or nodes that call their
    model with the state's messages as they are. Needs --thread.
    """
    for name, messages in (subject.thread.newest if subject.thread else {}).items():
        if not isinstance(messages, list) or not _sends_all(subject, name):
            continue
        kinds = [getattr(message, "type", "") for message in messages]
        again: dict[str, list[int]] = {}
        for at, (kind, message) in enumerate(zip(kinds, messages, strict=True)):
            size = len(str(message.content)) if kind == "tool" else 0
            if size >= LARGE:
                again.setdefault(str(message.name), []).append(size * (kinds[at:].count("ai") - 1))
        for title, sizes in again.items():
            if sum(sizes) >= COSTLY:
                spot = next((tool.spot for tool in subject.tools if tool.name == title), None)
                yield Found(f"tool {title}", spot, f"what it returned was sent again with {sum(sizes)} characters in all.")


def _sends_all(subject: Subject, channel: str) -> bool:
    """True if every model of the graph surely reads the whole history."""
    asking = {one.node.name for one in bindings(subject)}
    own = {name for name, node in subject.nodes.items() if node.functions}
    if not asking:
        made = getattr(getattr(subject.nodes.get("model"), "runnable", None), "func", None)
        by_agent = str(getattr(made, "__module__", "")).startswith("langchain.agents")
        return by_agent and not own and not subject.middleware and not subject.wrapping
    given = [one.call.args[0] if one.call.args else None for one in bindings(subject)]
    whole = [
        isinstance(first, ast.Subscript) and key_of(first, one.function.state) == channel
        for first, one in zip(given, bindings(subject), strict=True)
    ]
    return own == asking and all(whole)


def _models(subject: Subject) -> Iterator[list[Tool]]:
    """The tools that one model is surely given, each time that it is called."""
    from langchain_core.tools import BaseTool

    tools = [tool for tool in subject.tools if isinstance(tool.tool, BaseTool)]
    made = getattr(getattr(subject.nodes.get("model"), "runnable", None), "func", None)
    if str(getattr(made, "__module__", "")).startswith("langchain.agents"):
        if tools and not any(map(_chooses_tools, itertools.chain(*subject.wrapping))):
            yield tools
        return
    for one in bindings(subject):
        given = [tool for tool in tools if tool.name in one.names]
        if given:
            yield given


def _chooses_tools(middleware: Any) -> bool:
    """True unless a middleware is one of those that leave the request's tools alone."""
    kind = type(middleware)
    return kind.__name__ not in LEAVE_TOOLS or not kind.__module__.startswith(("langchain.", "abreast."))


def _told(properties: Mapping[str, Any]) -> bool:
    """True if the schema says of a parameter more than its name and its type."""
    more = ("description", "examples", "enum", "const", "pattern", "format")
    text = [part for given in properties.values() if isinstance(given, dict) for part in given]
    # A parameter of a class of its own has its words in the class.
    return any(part in more or part in ("$ref", "allOf") for part in text)


def _meant_to_be_asked(tool: Tool, name: str, given: Any) -> bool:
    """True if the tool's text speaks of the parameter, or the tool looks at the run's context itself."""
    if isinstance(given, dict) and given.get("description"):
        return True
    word = name.partition("_")[0] if name.endswith("_id") else name.rpartition("_")[2]
    spoken = set(_words(getattr(tool.tool, "description", ""))) | set(_words(tool.name))
    if {word, f"{word}s", name} & spoken:
        return True
    function = tool.function
    return function is None or any(
        (isinstance(part, ast.Attribute) and part.attr == "context") or is_name(part, "get_runtime") for part in function.nodes
    )


def _answers_with(function: Function, name: str) -> bool:
    """True if a parameter is the id of the call that the tool's own ToolMessage answers."""
    from langchain_core.messages import ToolMessage

    given = [word.value for call in function.calls(ToolMessage) for word in call.keywords if word.arg == "tool_call_id"]
    return name not in function.locals and any(is_name(value, name) for value in given)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _properties(tool: Tool) -> Mapping[str, Any]:
    """The parameters that the model sees, by name."""
    with contextlib.suppress(Exception):  # a schema that pydantic cannot write down is none to speak about
        schema = tool.tool.tool_call_schema
        found = (schema if isinstance(schema, dict) else schema.model_json_schema()).get("properties", {})
        return found if isinstance(found, dict) else {}
    return {}


def _size(tool: Tool) -> int:
    """The characters of the schema as a request carries it; none if there is no such schema."""
    from langchain_core.utils.function_calling import convert_to_openai_tool

    with contextlib.suppress(Exception):
        return len(json.dumps(convert_to_openai_tool(tool.tool)))
    return 0


def _derived(tool: Tool) -> bool:
    """True if the schema was made from the function's signature, and not handed over as a class or a dict."""
    return str(getattr(getattr(tool.tool, "args_schema", None), "__module__", "")).startswith(("langchain", "pydantic"))


def _shape(tool: Tool) -> dict[str, Any]:
    return {name: {key: value for key, value in given.items() if key != "title"} for name, given in _properties(tool).items()}


def _arguments(tool: Tool) -> dict[str, ast.arg]:
    tree = tool.function.tree if tool.function else None
    if tree is None:
        return {}
    return {argument.arg: argument for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}


RULES = (
    Rule(
        "AB309",
        "A tool's description says nothing",
        useless_description,
        "Write what it does, when to use it, what comes back, and an example of a call.",
    ),
    Rule("AB310", "A tool's parameter has no type", untyped_parameter, "Annotate it: count: int."),
    Rule(
        "AB311",
        "The model fills in what is not its to know",
        leaking_parameter,
        "Take it from a ToolRuntime parameter, which the model does not see: runtime.context, .state, .tool_call_id.",
    ),
    Rule(
        "AB312",
        "Two tools that a model cannot tell apart",
        told_apart,
        "Say in each description when to use this one and not the other, or make one tool of them.",
    ),
    Rule(
        "AB313",
        "The schemas of the tools take many tokens",
        tokens_of_schemas,
        "Shorten the descriptions, or hand the model only the tools of the task at hand.",
    ),
    Rule(
        "AB314",
        "A large result is sent again and again",
        results_sent_again,
        "Return the lines that matter and an id to ask for more, or clear old results (ContextEditingMiddleware).",
    ),
)
