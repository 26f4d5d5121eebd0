"""What the stream of a graph shows, and what the loop over it waits for in vain."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from abreast.doctor.rule import Found, Rule
from abreast.doctor.runs import Run
from abreast.doctor.subject import Subject
from abreast.doctor.updates import is_name

SILENT = frozenset(("messages", "custom"))
"""Stream modes without questions."""

STREAMS = frozenset(("stream", "astream"))


def questions_not_in_the_stream(subject: Subject) -> Iterator[Found]:
    """A loop over the graph's stream looks for `__interrupt__`, in a mode that never carries it.

    The run waits for an answer, and nobody has seen the question. `messages` shows tokens and `custom` what nodes write;
    questions are in `updates` and `values`. The rule sees loops over this very graph with a literal stream_mode.
    """
    for run, loop in _loops(subject):
        modes = _modes(run.call)
        if not modes or not modes <= SILENT:
            continue
        if any(isinstance(part, ast.Constant) and part.value == "__interrupt__" for line in loop.body for part in ast.walk(line)):
            text = f"the mode {' and '.join(sorted(modes))} never carries a question."
            yield Found("graph", run.scope.source.spot(run.call), text)


def tokens_not_in_the_stream(subject: Subject) -> Iterator[Found]:
    """A loop over the graph's stream waits for a part that its mode never has: tokens or tools are shown to nobody.

    `messages` gives pairs of a message, or a token, and its metadata; `updates` and `values` give dicts; several modes give pairs
    of the mode and the part. Two forms are certain: the loop compares the mode with one that the call does not ask for, and it
    tests whether a whole part is a message. The rule sees loops over this very graph with a literal stream_mode, or with none;
    a stream of `custom` alone may hold anything.
    """
    for run, loop in _loops(subject):
        modes = _modes(run.call)
        listed = isinstance(run.keyword("stream_mode"), ast.List | ast.Tuple)
        if run.keyword("stream_mode") is None and all(word.arg for word in run.call.keywords):
            modes = {mode} if isinstance(mode := getattr(subject.graph, "stream_mode", None), str) else set()
        if not modes or run.keyword("version") is not None:
            continue
        if isinstance(loop.target, ast.Tuple) and listed:
            for waited in _waited(loop, modes):
                text = f"it waits for the mode {waited}, and asks for {' and '.join(sorted(modes))} only."
                yield Found("graph", run.scope.source.spot(run.call), text)
            continue
        anything = (not listed and modes == {"custom"}) or "__root__" in subject.channels
        if isinstance(loop.target, ast.Name) and not anything and _tests_for_message(run, loop, loop.target.id):
            given = f"the mode {' and '.join(sorted(modes))}" if run.keyword("stream_mode") else "a stream without a mode"
            yield Found("graph", run.scope.source.spot(run.call), f"no part of {given} is a message by itself.")


def _loops(subject: Subject) -> Iterator[tuple[Run, ast.For | ast.AsyncFor]]:
    """The loops over streams of this very graph."""
    for run in subject.runs:
        streams = isinstance(run.call.func, ast.Attribute) and run.call.func.attr in STREAMS
        for loop in run.scope.nodes if streams else ():
            if isinstance(loop, ast.For | ast.AsyncFor) and loop.iter is run.call:
                yield run, loop


def _modes(call: ast.Call) -> set[str]:
    """The literal modes of a stream; empty where they cannot be read."""
    given = next((one.value for one in call.keywords if one.arg == "stream_mode"), None)
    parts = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    found = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return found if len(found) == len(parts) and all(one.arg for one in call.keywords) else set()


def _waited(loop: ast.For | ast.AsyncFor, modes: set[str]) -> Iterator[str]:
    """The modes that the loop asks its parts for and that none of them has."""
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
    mode = names[-2] if len(names) in (2, 3) else None
    if not isinstance(mode, ast.Name) or _set_again(loop, mode.id):
        return
    there = modes | ({"tasks", "checkpoints"} if "debug" in modes else set())
    for part in (part for line in loop.body for part in ast.walk(line)):
        if not isinstance(part, ast.Compare) or not is_name(part.left, mode.id) or len(part.ops) != 1:
            continue
        other = part.comparators[0]
        given = other.elts if isinstance(other, ast.Tuple | ast.List | ast.Set) else [other]
        texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        fits = isinstance(part.ops[0], ast.Eq) if isinstance(other, ast.Constant) else isinstance(part.ops[0], ast.In)
        if fits and texts and len(texts) == len(given) and not there & set(texts):
            yield " or ".join(texts)


def _tests_for_message(run: Run, loop: ast.For | ast.AsyncFor, name: str) -> bool:
    from langchain_core.messages import BaseMessage

    if _set_again(loop, name):
        return False
    for part in (part for line in loop.body for part in ast.walk(line)):
        if not isinstance(part, ast.Call) or not is_name(part.func, "isinstance") or len(part.args) != 2:
            continue
        kinds = part.args[1].elts if isinstance(part.args[1], ast.Tuple) else [part.args[1]]
        meant = [run.scope.resolve(kind) for kind in kinds]
        if is_name(part.args[0], name) and all(isinstance(kind, type) and issubclass(kind, BaseMessage) for kind in meant):
            return True
    return False


def _set_again(loop: ast.For | ast.AsyncFor, name: str) -> bool:
    return any(
        is_name(part, name) and not isinstance(getattr(part, "ctx", None), ast.Load)
        for line in loop.body
        for part in ast.walk(line)
    )


RULES: tuple[Rule, ...] = (
    Rule(
        "AB503",
        "A stream that cannot show questions",
        questions_not_in_the_stream,
        'Stream with stream_mode=["messages", "updates"], and look for the question in the updates.',
    ),
    Rule(
        "AB505",
        "A stream that cannot show tokens or tools",
        tokens_not_in_the_stream,
        'Ask for what the loop waits for: stream_mode=["messages", "updates"] gives (mode, part), and a part of messages is '
        "(message, metadata).",
    ),
)
