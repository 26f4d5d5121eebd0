"""The terminal: opens a fresh planner, plays the scene, and then leaves the prompt to whoever sits there."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from abreast import AbreastError

from . import scene
from .agent import open_assistant, open_model
from .models import database_file
from .prompt import Prompt, busy_text
from .show import Stage, plain
from .words import Words, of_locale

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """The demo cannot go on; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and returns the exit status."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    words = Words(of_locale())
    given = _parser(words).parse_args(arguments)
    words = Words(given.lang or words.language)
    console = Console(highlight=False, soft_wrap=False)
    directory = given.open.resolve() if given.open else Path(tempfile.mkdtemp(prefix="abreast-demo-"))
    try:
        _run(given, words, console, directory)
    except KeyboardInterrupt:
        console.print()
    except Exception as error:  # a provider of models may raise anything
        said = (
            str(error) if isinstance(error, AbreastError | Failed) else words("failed", error=f"{type(error).__name__}: {error}")
        )
        console.print(Text(plain(said), style="red"))
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is impatient still gets a clean end
        if not given.keep and not given.open:
            shutil.rmtree(directory, ignore_errors=True)
    console.print(Text(words("goodbye"), style="dim"))
    return 0


def _run(given: argparse.Namespace, words: Words, console: Console, directory: Path) -> None:
    console.print(Rule(Text(words("title"), style="bold green")))
    kept = words("kept", path=directory) if given.keep or given.open else words("removed")
    console.print(Text(f"{words('directory', path=directory)} ({kept})", style="dim"))
    named = os.environ.get("ABREAST_MODEL", "").strip()
    console.print(Text(words("model_named", name=named) if named else words("model_offline"), style="dim"))
    model = open_model()
    if given.open and not database_file(directory).exists():
        raise Failed(words("no_directory", path=directory))
    if not given.open:
        with console.status(words("seeding")):
            _seed(directory, words)
    with open_assistant(directory, words.language, model) as assistant:
        stage = Stage(console, words, assistant)
        for thread, seconds in (assistant.held() if given.open else {}).items():
            console.print(Text(busy_text(words, thread, seconds), style="yellow"))
        last = None if given.open else scene.play(stage)
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if terminal if given.input is None else given.input:
            _line_editing()
            Prompt(stage, last=last).run()


def _seed(directory: Path, words: Words) -> None:
    """The rows and the first conversations, by a process that ends before the scene begins."""
    command = [sys.executable, "-X", "utf8", "-m", "examples.movein.seed", str(directory), "--lang", words.language]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode:
        raise Failed(words("seed_failed", error=(done.stderr.strip().splitlines() or ["?"])[-1]))


def _parser(words: Words) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.movein", description=words("description"))
    parser.add_argument("--lang", choices=("en", "ko"), help=words("help_lang"))
    parser.add_argument("--input", action=argparse.BooleanOptionalAction, help=words("help_input"))
    parser.add_argument("--keep", action="store_true", help=words("help_keep"))
    parser.add_argument("--open", type=Path, metavar="DIRECTORY", help=words("help_open"))
    return parser


def _line_editing() -> None:
    """Arrow keys and earlier lines at the prompt, where Python has them."""
    with suppress(ImportError):
        import_module("readline")
