"""Other programs, started by a test: they say where they are in lines, and go on when they are told to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Process:
    """A Python program in a process of its own."""

    def __init__(self, script: str, *arguments: Any, isolated: bool = False) -> None:
        # An isolated program sees neither this folder nor abreast's source: only what is installed.
        flags = ["-I"] if isolated else []
        self.popen = subprocess.Popen(
            [sys.executable, *flags, str(HERE / script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self) -> str:
        """The next line; empty when the program has ended."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def expect(self, line: str) -> None:
        """The next line is this one."""
        assert self.read() == line

    def tell(self, line: str) -> None:
        """Sends a line."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()

    def kill(self) -> None:
        """Kills it as the operating system does, with nothing cleaned up."""
        self.popen.kill()
        self.popen.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@contextmanager
def started(script: str, *runs: tuple[Any, ...], isolated: bool = False) -> Iterator[list[Process]]:
    """One process for each tuple of arguments, all `ready`; ended with the block, whatever happens."""
    with ExitStack() as stack:
        made = []
        for arguments in runs:
            made.append(Process(script, *arguments, isolated=isolated))
            stack.callback(made[-1].close)
        for process in made:
            process.expect("ready")
        yield made


def confirmed(writer: Process, each: Callable[[], None] = lambda: None) -> tuple[Counter[str], list[str]]:
    """Reads a writer to its end: how many revisions of each workspace it has made, and its errors.

    `each` is called whenever it says that a transaction was committed.
    """
    made: Counter[str] = Counter()
    while line := writer.read():
        if line.startswith("end"):
            return made, json.loads(line.removeprefix("end"))
        made.update(json.loads(line)[1])
        each()
    raise AssertionError("the writer ended without saying so")
