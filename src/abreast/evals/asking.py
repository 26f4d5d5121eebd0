"""Asking: the cases of a run through a model, by several workers, each answer kept as it comes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from abreast.errors import AbreastError, ConfigurationError, InputError, MissingExtraError
from abreast.evals.answers import Answers
from abreast.evals.cases import KINDS, Case, make
from abreast.evals.chat import Chat, chat_model, told
from abreast.evals.forms import arm

INSTALL = 'pip install "abreast[eval]"'


class Found(NamedTuple):
    """A case's id, its answers by arm, and how many of them were not on file and had to be asked."""

    id: str
    answers: dict[str, str]
    asked: int


@dataclass(frozen=True)
class Run:
    """What is asked. `model` is empty for the packaged one; `first` takes so many cases of each kind in each half."""

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
        return [one for one in every if self.half in ("both", one.half) and one.pair < self.first]


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
        named = chat_model(run.model)
        with closing(Answers(run.cache)) as answers:
            yield from _by_threads(Chat(named, answers), cases, run)
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


def _is_file(model: str) -> bool:
    return model.endswith(".gguf")


def _by_threads(chat: Chat, cases: Sequence[Case], run: Run) -> Iterator[Found]:
    def one(case: Case) -> Found:
        requests = [arm(name)(case, chat.inside) for name in run.arms]
        try:
            answers, asked = chat.answer(requests)
        except AbreastError:
            raise
        except Exception as error:  # whatever the provider's package raises
            raise ConfigurationError(
                f"{run.model} did not answer: {told(error)}. The answers so far are kept in {run.cache}; the same command goes "
                "on where it stopped."
            ) from error
        return Found(case.id, dict(zip(run.arms, answers, strict=True)), asked)

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
        case, before = cases[index], model.asked
        answers = model.answer([arm(name)(case, model.inside) for name in run.arms])
        return Found(case.id, dict(zip(run.arms, answers, strict=True)), model.asked - before)

    return work
