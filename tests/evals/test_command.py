"""`abreast eval` with an application's own chat model object: errors that say what to do, and nothing asked twice."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from rich.console import Console
from typer.testing import CliRunner, Result

from abreast import AbreastError
from abreast.cli import app
from abreast.evals.asking import Run
from abreast.evals.cases import KINDS
from abreast.evals.command import evaluate
from abreast.evals.forms import NAMED

DOCS = Path(__file__).parents[2] / "docs"


class Reader(BaseChatModel):
    """Says the first fact that it is told, and counts; breaks down when its answers run out."""

    asked: int = 0
    left: int = 10**6
    words: tuple[str, ...] = ("the line is dead",)

    @property
    def _llm_type(self) -> str:
        return "reader"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if self.left == 0:
            raise ConnectionError(*self.words)
        self.left -= 1
        self.asked += 1
        lines = [line for line in str(messages[-1].content).splitlines() if line.startswith("The ")]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(lines[-1] if lines else "I do not know."))])


steady, broken = Reader(), Reader()
silent = Reader(left=0, words=())
no_model = "a model's name"


def run(folder: Path, *options: str) -> Result:
    given = ["eval", "--number", "2", "--processes", "1", "--cache", str(folder / "answers"), "--output", str(folder / "r.json")]
    return CliRunner().invoke(app, [*given, *options])


def test_it_asks_counts_and_writes(tmp_path: Path) -> None:
    steady.asked = 0
    more = ("--chart", str(tmp_path / "c.svg"), "--table", str(tmp_path / "t.md"), "--kinds", "plain,several")
    result = run(tmp_path, "--model", f"{__name__}:steady", "--arms", "no_sync,default", *more)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["model"], found["cases"]) == (f"{__name__}:steady", 4)
    assert found["arms"]["default"]["fresh"] == 4
    assert found["arms"]["no_sync"]["other"] == 4
    assert set(found["held_out"]["default"]) == {"fresh", "stale", "both", "other", "obeyed"}
    assert (tmp_path / "c.svg").read_text().startswith("<svg")
    assert "`default`" in (tmp_path / "t.md").read_text()
    assert steady.asked == 8


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    broken.asked, broken.left = 0, 5
    options = ("--model", f"{__name__}:broken", "--arms", "no_sync,default", "--kinds", "plain,several,busy")
    result = run(tmp_path, *options)
    assert isinstance(result.exception, AbreastError)
    assert "the line is dead" in result.exception.message
    assert not (tmp_path / "r.json").exists()
    broken.left = 10**6
    assert run(tmp_path, *options).exit_code == 0
    assert broken.asked == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arms", "nonsense"), 'There is no arm "nonsense". Named arms: no_sync'),
        (("--arms", "as_is:D X"), "There is no arm"),
        (("--kinds", "plain,odd"), "There is no kind of case odd"),
        (("--model", f"{__name__}:silent"), "silent did not answer: ConnectionError. The answers so far are kept in"),
        (("--model", "nowhere:model"), "There is no module nowhere here or installed, and LangChain knows no provider"),
        (("--model", f"{__name__}.more:model"), f"There is no module {__name__}.more here or installed"),
        (("--model", f"{__name__}:missing"), f"{__name__} has no missing, and LangChain knows no provider"),
        (("--model", f"{__name__}:steady.missing"), f"{__name__} has no steady.missing"),
        (("--model", f"{__name__}:no_model"), f"{__name__}:no_model is str, not a chat model"),
        (("--model", "no-such-model"), "no-such-model is neither a .gguf file nor MODULE:OBJECT"),
        (("--model", "json:"), "json: is neither a .gguf file nor MODULE:OBJECT"),
        (("--model", "missing.gguf"), "There is no model file missing.gguf"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, options: tuple[str, str], said: str) -> None:
    given = options if options[0] == "--model" else (*options, "--model", f"{__name__}:steady")
    result = run(tmp_path, *given)
    assert isinstance(result.exception, AbreastError)
    assert said in result.exception.message
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("import absent_package", "ModuleNotFoundError: No module named 'absent_package'"),
        ("import os; os.environ['NO_SUCH_KEY']", "KeyError: 'NO_SUCH_KEY'"),
        ("raise SystemExit", "SystemExit"),
        ("model = (", "SyntaxError: '(' was never closed"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, said: str
) -> None:
    (tmp_path / "their_models.py").write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run(tmp_path, "--model", "their_models:model")
    assert isinstance(result.exception, AbreastError)
    assert result.exception.message.startswith(f"their_models cannot be imported: {said}")


def test_a_providers_name_is_langchains_although_its_package_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fireworks.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run(tmp_path, "--model", "fireworks:some")
    assert isinstance(result.exception, AbreastError)
    assert "LangChain could not make a chat model fireworks:some: ImportError: " in result.exception.message


MODELS = """
from settings import Model, reply

assistant = Model(responses=[reply])
"""
SETTINGS = """
from langchain_core.language_models import FakeListChatModel as Model

reply = "A"
"""
OTHER_SETTINGS = SETTINGS.replace('"A"', '"B"')
OTHER_CLASS = (
    SETTINGS
    + """

class Model(Model):
    pass
"""
)


def said_in_a_process(folder: Path, content: str, settings: str, cache: Path) -> tuple[set[str], str]:
    """What the answers were, and what the command printed, in a process of its own with a working folder of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "models.py").write_text(content)
    (folder / "settings.py").write_text(settings)
    command = [sys.executable, "-B", "-c", "from abreast.cli import main; main()", "eval", "--model", "models:assistant"]
    options = ["--kinds", "plain", "--number", "2", "--arms", "no_sync", "--cache", str(cache), "--answers", "a.json"]
    made = subprocess.run([*command, *options], cwd=folder, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    answers = json.loads((folder / "a.json").read_text())
    return {text for arms in answers.values() for _, text in arms.values()}, made.stderr


def test_answers_of_one_object_do_not_go_to_another_of_the_same_name(tmp_path: Path) -> None:
    cache = tmp_path / "answers.db"
    one, other = tmp_path / "one", tmp_path / "other"
    first, printed = said_in_a_process(one, MODELS, SETTINGS, cache)
    assert first == {"A"}
    assert f"0 answers from {cache}, 2 asked." in printed
    again, printed = said_in_a_process(one, MODELS, SETTINGS, cache)
    assert again == {"A"}
    assert f"2 answers from {cache}, 0 asked." in printed
    for folder, content, settings, right in [
        (other, MODELS, SETTINGS, "A"),  # another path
        (one, MODELS + "# changed", SETTINGS, "A"),  # another content
        (one, MODELS, OTHER_SETTINGS, "B"),  # other settings, from a module that the key does not hold
        (one, MODELS, OTHER_CLASS, "A"),  # another class
    ]:
        said, printed = said_in_a_process(folder, content, settings, cache)
        assert said == {right}
        assert f"0 answers from {cache}, 2 asked." in printed


def test_first_takes_as_many_of_each_half(tmp_path: Path) -> None:
    def halves(*options: str) -> tuple[int, int, str]:
        result = run(tmp_path, "--model", f"{__name__}:steady", "--number", "6", "--arms", "no_sync", *options)
        assert result.exit_code == 0, result.output
        found = json.loads((tmp_path / "r.json").read_text())
        return (
            found["cases"],
            sum(found["held_out"]["no_sync"][one] for one in ("fresh", "stale", "both", "other")),
            result.output,
        )

    assert halves("--first", "1")[:2] == (2 * len(KINDS), len(KINDS))
    assert halves("--first", "2", "--kinds", "plain")[:2] == (4, 2)
    assert halves("--first", "1", "--kinds", "plain", "--half", "held_out")[:2] == (1, 1)
    assert halves("--first", "1", "--kinds", "plain", "--half", "choose")[:2] == (1, 0)
    assert run(tmp_path, "--number", "1").exit_code == 2  # one case alone would leave the held-out half empty


def test_the_default_arms_and_how_much_is_asked_stand_in_the_help_and_on_the_pages() -> None:
    usual = Run()
    shown = CliRunner().invoke(app, ["eval", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    shown = " ".join(re.sub("[│╭╮╰╯─]", " ", shown).split())
    assert f"Empty: {', '.join(usual.arms)}." in shown
    assert "docs/guides/eval.md, In which form" in shown
    assert f"default: `{','.join(usual.arms)}`" in (DOCS / "reference/cli.md").read_text()
    guide = " ".join((DOCS / "guides/eval.md").read_text().split())
    names = [f"`{name}`" for name in usual.arms]
    assert f"Without `--arms`, five are asked: {', '.join(names[:-1])} and {names[-1]}." in guide
    assert "## In which form" in (DOCS / "guides/eval.md").read_text()
    answers = len(Run(first=1).cases()) * len(usual.arms)
    assert f"That is 32 cases, and in the five arms that are asked by default {answers} answers;" in guide
    assert f"everything is {len(usual.cases()) * len(usual.arms)}." in guide
    assert (
        f"`--half held_out --first 1 --arms no_sync,default` asks for {2 * len(Run(first=1, half='held_out').cases())}." in guide
    )


def test_names_of_arms_are_whole_in_80_columns(tmp_path: Path) -> None:
    spelled = "fixall:D C V Q V R D C V Q V R D C V Q V R"
    asked = Run(model=f"{__name__}:steady", arms=(*NAMED, spelled), kinds=("plain",), number=10, cache=tmp_path / "answers")
    printed = io.StringIO()
    evaluate(asked, Console(file=printed, width=80), output=tmp_path / "r.json", picture=None, table=None, answers=None)
    text = printed.getvalue()
    assert f"10 cases in {len(asked.arms)} arms: {10 * len(asked.arms)} answers." in text
    table = text[text.index("fresh, 95 %") :].split("answers from")[0]
    assert {name for name in NAMED if re.search(rf"^ +{name} ", table, re.M)} == set(NAMED)
    assert "100% (72%-100%)" in table
    assert "…" not in table
    assert spelled.replace(" ", "") in "".join(re.sub(r"\d+% \(.*?\)|\b\d+\b", "", table).split())
