"""The doctor's programs: for each rule one that misbehaves on the installed LangGraph, and one that is mended.

A program is a module with `graph` and `misbehaves()`. A bad program marks every line where its rule must speak with
`# finds CODE`. A rule that measures a thread has `thread()` in its programs, which runs the graph and returns the saver and
the thread's id. `context` names the context class, where the rule needs it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from abreast.doctor import RULES, Report, Rule, examine, thread_of

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).parent / "doctor" / "programs"
PAGES = ROOT / "docs" / "reference" / "doctor"


def path_of(rule: Rule, kind: str) -> Path:
    return PROGRAMS / f"{rule.code.lower()}_{kind}.py"


def text_of(rule: Rule, kind: str) -> str:
    return path_of(rule, kind).read_text(encoding="utf-8")


def marked(rule: Rule) -> list[int]:
    """The lines of the bad program that carry the rule's mark."""
    mark = re.compile(rf"# finds {rule.code}\b")
    return [number for number, line in enumerate(text_of(rule, "bad").splitlines(), 1) if mark.search(line)]


@contextmanager
def program(path: Path) -> Iterator[ModuleType]:
    """The program as a module of its own, gone again afterwards."""
    spec = importlib.util.spec_from_file_location(f"program_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


def looked_at(module: ModuleType) -> Report:
    """The report on a program, with its thread if it has one."""
    thread = thread_of(*module.thread()) if hasattr(module, "thread") else None
    return examine(module.graph, module=module.__name__, context=getattr(module, "context", None), thread=thread)


def page_of(rule: Rule) -> str:
    """The text of a rule's page in the documentation. The marks of the tests are not part of it."""
    bad = re.sub(r"  # finds AB\d+", "", text_of(rule, "bad"))
    return (
        f"# {rule.code}: {rule.title}\n\n{rule.text}\n\n**Mend.** {rule.mend}\n\n"
        f"`misbehaves()` says on the installed LangGraph whether the bad thing happens. It returns true here:\n\n"
        f"```python\n{bad}\n\nassert misbehaves()\n```\n\nand false here:\n\n"
        f"```python\n{text_of(rule, 'good')}\n\nassert not misbehaves()\n```\n"
    )


def index() -> str:
    """The list of all rules."""
    rows = "\n".join(f"| [{rule.code}]({rule.code.lower()}.md) | {rule.title} |" for rule in RULES)
    return f"# The rules of `abreast doctor`\n\n| code | what it finds |\n|---|---|\n{rows}\n"


if __name__ == "__main__":
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / "index.md").write_text(index(), encoding="utf-8")
    for each in RULES:
        (PAGES / f"{each.code.lower()}.md").write_text(page_of(each), encoding="utf-8")
