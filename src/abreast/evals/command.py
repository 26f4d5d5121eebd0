"""`abreast eval`: asks, shows how far it is, counts, and writes the report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from abreast.evals.asking import Run, ask, model_name
from abreast.evals.report import chart, report, tables, total, wilson
from abreast.evals.score import Verdict


def evaluate(
    run: Run, console: Console, *, output: Path, picture: Path | None, table: Path | None, answers: Path | None
) -> dict[str, Any]:
    """Runs it and writes the files; the report is also given back. An interrupted run keeps its answers."""
    cases = {case.id: case for case in run.cases()}
    verdicts: dict[str, dict[str, Verdict]] = {name: {} for name in run.arms}
    said: dict[str, dict[str, list[str]]] = {}
    every, new = len(cases) * len(run.arms), 0
    console.print(f"{len(cases)} cases in {len(run.arms)} arms: {every} answers.", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("asking", total=len(cases))
        for id, texts, asked in ask(run):
            said[id] = {}
            new += asked
            for name, text in texts.items():
                verdicts[name][id] = cases[id].judge(text)
                said[id][name] = [verdicts[name][id], text]
            progress.advance(task)
    found = report(model_name(run), run.seed, list(cases.values()), verdicts)
    _write(output, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    if picture:
        _write(picture, chart(found, run.language))
    if table:
        _write(table, tables(found))
    if answers:
        _write(answers, json.dumps({id: said[id] for id in cases}, indent=1, ensure_ascii=False) + "\n")
    console.print(_shown(found["arms"]))
    kept = f"{every - new} answers from {run.cache}, {new} asked."
    for line in (kept, f"Written to {output}."):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return found


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _shown(arms: Mapping[str, Mapping[str, int]]) -> Table:
    """Narrow enough for 80 columns; a long name goes on in the next line, and no name is cut."""
    table = Table(box=box.SIMPLE)
    table.add_column("arm", overflow="fold")
    for title in ("fresh, 95 %", "stale, 95 %", "both", "other", "obeyed"):
        table.add_column(title, no_wrap=True, justify="right")
    for name, counts in arms.items():
        cells = [_short(counts[one], total(counts)) for one in ("fresh", "stale")]
        table.add_row(Text(name), *cells, *(str(counts[one]) for one in ("both", "other", "obeyed")))
    return table


def _short(count: int, of: int) -> str:
    low, high = wilson(count, of)
    return f"{count / of:.0%} ({low:.0%}-{high:.0%})" if of else "none"
