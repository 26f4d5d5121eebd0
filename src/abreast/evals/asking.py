"""Asking: the cases of a run through a model, by several workers, each answer kept as it comes."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel

from abreast.errors import AbreastError, ConfigurationError, InputError, MissingExtraError
from abreast.evals.answers import Answers
from abreast.evals.cases import KINDS, Case, make
from abreast.evals.chat import Chat
from abreast.evals.forms import arm

INSTALL = 'pip install "abreast[eval]"'
Found = tuple[str, dict[str, str]]
"""A case's id, and its answers by arm."""


@dataclass(frozen=True)
class Run:
    """What is asked. `model` is empty for the packaged one."""

    model: str = ""
    arms: tuple[str, ...] = ("no_sync", "ceiling", "system_snapshot", "system_changes", "default")
    kinds: tuple[str, ...] = tuple(KINDS)
    number: int = 28
    first: int = 10**6
    half: str = "both"
    language: str = "en"
    seed: int = 7
    cache: Path = Path.home() / ".cache" / "abreast" / "answers.db"
    processes: int = 1

    def cases(self) -> list[Case]:
        """The cases. Raises InputError for a kind or an arm that does not exist."""
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise InputError(f"There is no kind of case {', '.join(unknown)}. Kinds: {', '.join(KINDS)}.")
        for name in self.arms:
            arm(name)
        every = make(self.seed, self.number, self.language, self.kinds)
        return [one for one in every if self.half in ("both", one.half) and int(one.id.rsplit("-", 1)[1]) < self.first]


def model_name(run: Run) -> str:
    """What the report calls the model."""
    if run.model and not _is_file(run.model):
        return run.model
    return Path(run.model).stem if run.model else _llama().packaged().stem


def ask(run: Run) -> Iterator[Found]:
    """Every case with its answers, in the order in which they are ready. Each answer is on disk before the next is asked.

    A file's model runs in `processes` processes with one thread each: small models gain more from that than from threads.
    A chat model is asked by as many threads.
    """
    cases = run.cases()
    if run.model and not _is_file(run.model):
        chat = chat_model(run.model)
        with closing(Answers(run.cache)) as answers:
            yield from _by_threads(Chat(run.model, answers, chat), cases, run)
        return
    file = Path(run.model) if run.model else _llama().stored_for_speed(_llama().packaged(), run.cache.parent)
    if not file.is_file():
        raise InputError(f"There is no model file {file}.")
    if run.processes == 1:
        worker = _worker(run, file)
        for index in range(len(cases)):
            yield worker(index)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(run.processes, _begin, (run, file)) as pool:
        yield from pool.imap_unordered(_work, range(len(cases)))


def chat_model(name: str) -> BaseChatModel:
    """The application's own chat model object (MODULE:OBJECT), or one by the name that LangChain knows.

    A name with a known provider before its colon is LangChain's; raises ConfigurationError where no model is found.
    """
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = getattr(import_module(module), attribute) if attribute else None
    except (ImportError, AttributeError):
        found = None
    finally:
        sys.path.pop(0)
    if isinstance(found, BaseChatModel):
        return found
    try:
        from langchain.chat_models import init_chat_model

        return init_chat_model(name, temperature=0)
    except Exception as error:  # each provider's package has errors of its own, for a missing key as well
        raise ConfigurationError(
            f"{name} is no model file, no chat model object as MODULE:OBJECT, and no chat model by LangChain's name: {error}"
        ) from error


def _is_file(model: str) -> bool:
    return model.endswith(".gguf")


def _by_threads(chat: Chat, cases: Sequence[Case], run: Run) -> Iterator[Found]:
    def one(case: Case) -> Found:
        requests = [arm(name)(case, chat.inside) for name in run.arms]
        try:
            return case.id, dict(zip(run.arms, chat.answer(requests), strict=True))
        except AbreastError:
            raise
        except Exception as error:  # whatever the provider's package raises
            raise ConfigurationError(
                f"{chat.name} did not answer: {error}. The answers so far are kept; the same command goes on where it stopped."
            ) from error

    with ThreadPoolExecutor(run.processes) as pool:
        try:
            yield from pool.map(one, cases)
        finally:
            pool.shutdown(cancel_futures=True)


def _llama() -> Any:
    try:
        return import_module("abreast.evals.model")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"A model file needs an extra: {INSTALL} ({error.name} is missing).") from None


# -- one process -------------------------------------------------------------------------------------------------------

_mine: list[Callable[[int], Found]] = []
"""The worker of this process: what a pool's process can hold only in its module."""


def _begin(run: Run, file: Path) -> None:
    _mine.append(_worker(run, file))


def _work(index: int) -> Found:
    return _mine[0](index)


def _worker(run: Run, file: Path) -> Callable[[int], Found]:
    cases, model = run.cases(), _llama().Model(file, Answers(run.cache), threads=1)

    def work(index: int) -> Found:
        case = cases[index]
        answers = model.answer([arm(name)(case, model.inside) for name in run.arms])
        return case.id, dict(zip(run.arms, answers, strict=True))

    return work
