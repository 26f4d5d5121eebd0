"""Finds values that live in the wrong place of a LangGraph or LangChain application, before they cost data, money or a leak.

`examine(graph)` looks at the source, at the built graph and, if a thread is given, at its real checkpoints. It runs none of
the application's nodes, tools or models. It needs `abreast[langchain]`; nothing else of abreast has to be in use.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from abreast.doctor.findings import Finding, Note, Report, Selection, unsuppressed
from abreast.doctor.rule import Found, Rule
from abreast.doctor.rules import RULES
from abreast.doctor.subject import Subject
from abreast.doctor.subject import examine as _taken_apart
from abreast.doctor.threads import Thread, thread_of
from abreast.errors import InputError

__all__ = ["RULES", "Finding", "Note", "Report", "Rule", "Thread", "examine", "thread_of"]


def examine(
    graph: Any,
    *,
    module: str | None = None,
    context: Any = None,
    thread: Thread | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
) -> Report:
    """The findings in a graph and its subgraphs.

    `graph` is a compiled graph or an uncompiled builder; `module` is the name of the imported module that uses it, so that
    its calls are looked at too; `context` is the context class, where the graph does not declare it; `thread` comes from
    `thread_of(saver, thread_id)`; `select` and `ignore` are codes or their beginnings. Raises InputError for a code that
    names no rule, and where no rule is left.
    """
    selection = Selection(select, ignore)
    codes = [rule.code for rule in RULES]
    if unknown := selection.unknown(codes):
        raise InputError(f"No rule is called {', '.join(unknown)}.")
    if not any(code in selection for code in codes):
        raise InputError("No rule is left: everything that is selected is ignored too.")
    try:
        subject = _taken_apart(graph, module=module, context=context, thread=thread)
    except Exception as error:
        failed = Note(type(graph).__name__, f"it could not be taken apart ({type(error).__name__}); please report it")
        return Report((), (failed,), looked=False)
    findings: list[Finding] = []
    notes = [note for part in subject.all() for note in part.notes]
    for rule in RULES:
        if rule.code not in selection:
            continue
        for part in subject.all():
            found, note = _asked(rule, part)
            findings += found
            notes += [note] if note else []
    if thread is not None and thread.partial:
        notes.append(
            Note(f"thread {thread.id}", f"not looked into: what is older than its newest {len(thread.steps)} checkpoints")
        )
    lines = {_relative(source.file): source.lines for source in subject.sources}
    kept, comments = unsuppressed(map(_short, dict.fromkeys(findings)), lines, codes)
    return Report(
        tuple(sorted(kept, key=lambda one: (one.file or "", one.line or 0, one.code, one.place))),
        tuple(dict.fromkeys((*notes, *comments))),
        looked=any(part.nodes for part in subject.all()),
        file=_relative(subject.module.file) if subject.module else None,
    )


def _asked(rule: Rule, subject: Subject) -> tuple[list[Finding], Note | None]:
    """What a rule found; a rule that fails on a graph that nobody foresaw is a note, so that the others still speak."""
    findings: list[Finding] = []
    try:
        for found in rule.look(subject):
            findings.append(_finding(rule, subject, found))
    except Exception as error:
        return findings, Note(rule.code, f"the rule itself failed ({type(error).__name__}: {error}); please report it")
    return findings, None


def _finding(rule: Rule, subject: Subject, found: Found) -> Finding:
    place = f"{subject.place}, {found.place}" if subject.place else found.place
    spot = found.spot
    return Finding(rule.code, place, spot.file if spot else None, spot.line if spot else None, found.message, rule.mend, rule.url)


def _short(finding: Finding) -> Finding:
    return finding if finding.file is None else dataclasses.replace(finding, file=_relative(finding.file))


def _relative(file: str) -> str:
    """The file relative to the working folder, where it lies below it."""
    here = Path.cwd()
    return Path(file).relative_to(here).as_posix() if os.path.isabs(file) and Path(file).is_relative_to(here) else file
