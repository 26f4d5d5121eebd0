"""A chat model of LangChain: found by its name, asked the same questions."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, messages_to_dict

from abreast.agents.placing import inside_answers, text_of
from abreast.errors import ConfigurationError
from abreast.evals.answers import Answers


@dataclass(frozen=True)
class Named:
    """A chat model, and what its answers are kept under: whatever tells it from another of the same name."""

    model: BaseChatModel
    identity: Any


class Chat:
    """A chat model whose answers are kept."""

    def __init__(self, named: Named, answers: Answers) -> None:
        self.inside = inside_answers(named.model)
        self._named, self._answers = named, answers

    def answer(self, many: Sequence[Sequence[AnyMessage]]) -> tuple[list[str], int]:
        """The answers to these conversations, and how many of them were not on file."""
        given = [self._one(messages) for messages in many]
        return [text for text, _ in given], sum(asked for _, asked in given)

    def _one(self, messages: Sequence[AnyMessage]) -> tuple[str, bool]:
        request = json.dumps([self._named.identity, messages_to_dict(messages)], sort_keys=True)
        key = hashlib.sha256(request.encode()).hexdigest()
        found = self._answers.get(key)
        if found is not None:
            return found, False
        text = text_of(self._named.model.invoke(list(messages)))
        self._answers.put(key, text)
        return text, True


def chat_model(name: str) -> Named:
    """The application's own chat model object (MODULE:OBJECT, from the working folder), or one by the name that LangChain
    knows. Raises ConfigurationError where there is none, with the cause.

    A name goes to LangChain where there is no such module. It also does where the module is there without such an object:
    `openai:o3` is a model's name although the package `openai` is installed.
    """
    module_name, _, path = name.partition(":")
    dotted = path and all(part.isidentifier() for part in module_name.split("."))
    module = _module(module_name) if dotted else None
    if module is None:
        missing = (
            f"There is no module {module_name} here or installed"
            if dotted
            else f"{name} is neither a .gguf file nor MODULE:OBJECT"
        )
        return Named(_by_langchain(name, missing), name)
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            return Named(_by_langchain(name, f"{module_name} has no {path}"), name)
        found = getattr(found, part)
    if not isinstance(found, BaseChatModel):
        raise ConfigurationError(f"{name} is {type(found).__name__}, not a chat model (BaseChatModel of langchain_core).")
    return Named(found, _identity(name, module, found))


def told(error: BaseException) -> str:
    """An error's class, and its text if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _module(name: str) -> ModuleType | None:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # it stays: an application may import more while it answers
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # a module may raise anything, for a missing key as well
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise ConfigurationError(f"{name} cannot be imported: {told(error)}") from error


def _by_langchain(name: str, otherwise: str) -> BaseChatModel:
    """The model of this name, at temperature 0. `otherwise` says why it can be nothing else."""
    try:
        from langchain.chat_models import init_chat_model

        return init_chat_model(name, temperature=0)
    except Exception as error:  # each provider's package has errors of its own, for a missing key as well
        unknown = isinstance(error, ValueError) and "infer model provider" in str(error)
        why = "knows no provider for this name" if unknown else f"could not make a chat model {name}: {told(error)}"
        raise ConfigurationError(f"{otherwise}, and LangChain {why}.") from error


def _identity(name: str, module: ModuleType, model: BaseChatModel) -> list[Any]:
    """Two projects may have an object of the same name, and an object's settings may change under its name."""
    file = Path(module.__file__).resolve() if module.__file__ else None
    content = hashlib.sha256(file.read_bytes()).hexdigest() if file else ""
    kind = type(model)
    return [name, str(file), content, f"{kind.__module__}.{kind.__qualname__}", _steady(model._identifying_params)]


def _steady(value: Any) -> Any:
    """The same value in the same words in every process, so that a key holds from one run to the next."""
    if isinstance(value, Mapping):
        return {str(key): _steady(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_steady(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_steady(one)) for one in value)
    if value is None or isinstance(value, str | int | float):
        return value
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(value))
