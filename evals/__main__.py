"""`python -m evals`: asks a model the same questions in several arms, and writes how many answers are fresh and stale."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from evals.answers import Answers
from evals.cases import KINDS, Case, make
from evals.chat import Chat
from evals.forms import NAMED, arm
from evals.model import Model, packaged, stored_for_speed
from evals.report import by_kind, counted, wilson
from evals.score import VERDICTS, Verdict

USUAL = ("no_sync", "ceiling", "system_snapshot", "system_changes", "default", "proposed")


def main(arguments: list[str] | None = None) -> int:
    """Asks, counts, shows and writes."""
    asked = _asked(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = 200
    cases = [
        case
        for case in make(asked.seed, asked.number, asked.language, asked.kinds)
        if asked.half in ("both", case.half) and int(case.id.rsplit("-", 1)[1]) < asked.first
        if asked.words in ("both", "label" if case.field.label.casefold() in case.question.casefold() else "own")
    ]
    began = time.monotonic()
    model = _model(asked)
    verdicts, answers = _ask(cases, asked.arms, model, console)
    halves = {half: [case for case in cases if half == case.half] for half in ("choose", "held_out")}
    report: dict[str, Any] = {
        "model": model.name,
        "cases": len(cases),
        "seed": asked.seed,
    }
    report |= {"arms": {}, "held_out": {}, "kinds": {}}
    for name in asked.arms:
        report["arms"][name] = counted(verdicts[name].values())
        report["held_out"][name] = counted(verdicts[name][case.id] for case in halves["held_out"])
        report["kinds"][name] = by_kind(cases, verdicts[name])
    asked.output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if asked.answers:
        asked.answers.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    console.print(_table(cases, verdicts))
    seconds = time.monotonic() - began
    console.print(f"{model.asked} answers asked of the model in {seconds:.0f} s; written to {asked.output}.")
    return 0


def _model(asked: Any) -> Chat | Model:
    answers = Answers(asked.cache)
    if asked.chat:
        return Chat(asked.chat, answers)
    path = asked.model or stored_for_speed(packaged(), asked.cache.parent)
    return Model(path, answers, threads=asked.threads)


def _asked(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parser.add_argument("--model", type=Path, metavar="GGUF", help="another model file")
    parser.add_argument(
        "--chat",
        metavar="NAME",
        help="a chat model by the name that LangChain knows, instead of a file",
    )
    parser.add_argument(
        "--arms",
        metavar="ARM,ARM",
        default=",".join(USUAL),
        help=f"of {', '.join(NAMED)}, or spelled by parts",
    )
    parser.add_argument("--kinds", metavar="KIND,KIND", default=",".join(KINDS), help="kinds of case")
    parser.add_argument("--half", choices=("both", "choose", "held_out"), default="both")
    parser.add_argument("--words", choices=("both", "label", "own"), default="both", help="questions with the label, or without")
    parser.add_argument("--number", type=int, default=28, metavar="N", help="cases of each kind")
    parser.add_argument(
        "--first",
        type=int,
        default=10**6,
        metavar="N",
        help="only the first N of each kind",
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--language", choices=("en", "ko"), default="en")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "abreast" / "answers.db")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="PATH",
        default=Path(__file__).with_name("results.json"),
    )
    parser.add_argument("--answers", type=Path, metavar="PATH", help="also write each answer here")
    asked = parser.parse_args(arguments)
    asked.arms = [name for name in asked.arms.split(",") if name]
    asked.kinds = [name for name in asked.kinds.split(",") if name]
    return asked


def _ask(
    cases: list[Case], arms: list[str], model: Chat | Model, console: Console
) -> tuple[dict[str, dict[str, Verdict]], dict[str, dict[str, list[str]]]]:
    verdicts: dict[str, dict[str, Verdict]] = {name: {} for name in arms}
    answers: dict[str, dict[str, list[str]]] = {}
    builders = {name: arm(name) for name in arms}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("asking", total=len(cases))
        for case in cases:
            found = model.answer([build(case) for build in builders.values()])
            answers[case.id] = {}
            for name, text in zip(builders, found, strict=True):
                verdicts[name][case.id] = case.judge(text)
                answers[case.id][name] = [verdicts[name][case.id], text]
            progress.advance(task)
    return verdicts, answers


def _table(cases: list[Case], verdicts: dict[str, dict[str, Verdict]]) -> Table:
    table = Table(title="Answers after a change")
    table.add_column("arm", no_wrap=True)
    for heading in (*VERDICTS, "fresh, 95 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    kinds = list(dict.fromkeys(case.kind for case in cases))
    for kind in kinds:
        table.add_column(kind[:8], justify="right")
    for name, found in verdicts.items():
        counts = counted(found.values())
        low, high = wilson(counts["fresh"], len(found))
        apart = by_kind(cases, found)
        cells = [f"{apart[kind]['fresh']}/{apart[kind]['stale']}/{sum(apart[kind].values())}" for kind in kinds]
        table.add_row(
            name,
            *(str(counts[one]) for one in VERDICTS),
            f"{low:.0%} to {high:.0%}",
            *cells,
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
