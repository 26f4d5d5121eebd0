"""`abreast eval` with an application's own chat model object: errors that say what to do, and nothing asked twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from typer.testing import CliRunner, Result

from abreast import AbreastError
from abreast.cli import app


class Reader(BaseChatModel):
    """Says the first fact that it is told, and counts; breaks down when its answers run out."""

    asked: int = 0
    left: int = 10**6

    @property
    def _llm_type(self) -> str:
        return "reader"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if self.left == 0:
            raise ConnectionError("the line is dead")
        self.left -= 1
        self.asked += 1
        lines = [line for line in str(messages[-1].content).splitlines() if line.startswith("The ")]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(lines[-1] if lines else "I do not know."))])


steady, broken = Reader(), Reader()


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
        (("--model", "nowhere:model"), "nowhere:model is no model file"),
        (("--model", "missing.gguf"), "There is no model file missing.gguf"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, options: tuple[str, str], said: str) -> None:
    given = options if options[0] == "--model" else (*options, "--model", f"{__name__}:steady")
    result = run(tmp_path, *given)
    assert isinstance(result.exception, AbreastError)
    assert said in result.exception.message
    assert not (tmp_path / "r.json").exists()
