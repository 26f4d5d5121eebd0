"""`python -m benchmarks`: measures, shows a table, and writes the figures to a file. Ends with 1 if a figure misses."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import checkpoints, governed, reads, requests, savers, service, writes
from benchmarks.databases import Databases
from benchmarks.harness import Bench, Benchmark, Key, Outcomes

BENCHMARKS: tuple[Benchmark, ...] = (
    *writes.BENCHMARKS,
    *governed.BENCHMARKS,
    *reads.BENCHMARKS,
    *checkpoints.BENCHMARKS,
    *savers.BENCHMARKS,
    *requests.BENCHMARKS,
    *service.BENCHMARKS,
)
KEYS: tuple[Key, ...] = tuple(key for benchmark in BENCHMARKS for key in benchmark.keys)
PACKAGES = ("abreast", "sqlalchemy", "psycopg", "langchain", "langgraph", "langgraph-checkpoint-sqlite")


def main(arguments: list[str] | None = None) -> int:
    """Measures what was asked for. 1 with --strict if a figure falls short of what is wanted; the table says it anyway."""
    names = [key.name for key in KEYS]
    asked = _asked(arguments, names)
    console = Console()
    if not console.is_terminal:
        console.width = 160  # a file has no width of its own
    with Databases() as databases:
        outcomes = _measure(asked, databases, console)
        report = {
            "ratios": {name: outcomes[name].as_json() for name in names if name in outcomes},
            "machine": _machine(),
            "versions": _versions(databases),
            "quick": asked.quick,
        }
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    asked.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print(_table(outcomes, judged=not asked.quick))
    console.print(f"Written to {asked.output}.")
    missed = [key.name for key in KEYS if key.name in outcomes and not outcomes[key.name].reaches(key)]
    return 1 if missed and asked.strict else 0


def _asked(arguments: list[str] | None, names: list[str]) -> Any:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that everything runs; the figures mean nothing")
    parser.add_argument("--strict", action="store_true", help="fail if a figure falls short")
    parser.add_argument("--only", metavar="KEY,KEY", default="", help=f"only these of {', '.join(names)}")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each measurement")
    parser.add_argument("--output", type=Path, metavar="PATH", default=Path(__file__).with_name("results.json"))
    asked = parser.parse_args(arguments)
    asked.keys = [name for name in asked.only.split(",") if name] or names
    unknown = [name for name in asked.keys if name not in names]
    if unknown:
        parser.error(f"no such key: {', '.join(unknown)}")
    if asked.rounds is not None and asked.rounds < 1:
        parser.error("--rounds is at least 1")
    return asked


def _measure(asked: Any, databases: Databases, console: Console) -> Outcomes:
    wanted = set(asked.keys)
    chosen = [benchmark for benchmark in BENCHMARKS if wanted & {key.name for key in benchmark.keys}]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    outcomes: Outcomes = {}
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("measuring", total=len(chosen), now="")
        for benchmark in chosen:
            say = partial(_say, progress, task, benchmark.keys[-1].name)
            began = time.monotonic()
            found = benchmark.run(Bench(databases, wanted, asked.quick, asked.rounds, say))
            for name, outcome in found.items():
                if name in wanted:
                    outcomes[name] = outcome
                    progress.console.print(f"{name} {outcome.median:.2f} after {time.monotonic() - began:.0f} s", highlight=False)
            progress.advance(task)
        progress.update(task, now="")
    return outcomes


def _say(progress: Progress, task: TaskID, name: str, text: str) -> None:
    progress.update(task, now=f"{name}: {text}")


def _table(outcomes: Outcomes, *, judged: bool) -> Table:
    table = Table(title="What abreast costs")
    table.add_column("key", no_wrap=True)
    table.add_column("what is divided by what", overflow="fold")
    for heading in ("median", "min", "max", "wanted", "verdict"):
        table.add_column(heading, justify="right", no_wrap=True)
    for key in KEYS:
        if key.name not in outcomes:
            continue
        outcome = outcomes[key.name]
        figures = [f"{one:.3g}{key.unit}" for one in (outcome.median, min(outcome.figures), max(outcome.figures))]
        good = outcome.reaches(key)
        verdict = "-" if not judged or (key.bound is None and good) else "[green]reached[/]" if good else "[red]missed[/]"
        beside = "".join(f"; {name} {value:,}" for name, value in outcome.extra.items())
        table.add_row(key.name, key.what + beside, *figures, key.wanted, verdict)
    return table


def _machine() -> dict[str, Any]:
    return {"system": platform.system(), "architecture": platform.machine(), "processors": os.cpu_count()}


def _versions(databases: Databases) -> dict[str, str]:
    found = {name: version(name) for name in PACKAGES} | {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    server = databases.server_version
    return found | ({"postgresql": server} if server else {})


if __name__ == "__main__":
    sys.exit(main())
