"""Comments that silence a rule: every form does what it seems to do, or a note says why it does not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from abreast.doctor import Report, examine

BEGIN = "from typing import TypedDict\nfrom langgraph.graph import START, StateGraph\n\n\n"
END = """

def hit(state: State) -> dict:
    return {"hits": 1}


graph = StateGraph(State).add_node("a", hit).add_node("b", hit).add_edge(START, "a").add_edge(START, "b").compile()
"""


def report(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """What is said about a graph whose AB102 stands at `hits` in this text."""
    (tmp_path / "comments_under_test.py").write_text(BEGIN + text + END, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    try:
        return examine(importlib.import_module("comments_under_test").graph, module="comments_under_test", select=["AB102"])
    finally:
        sys.modules.pop("comments_under_test", None)


SILENCING = [
    "    hits: int  # abreast: ignore[AB102]\n",
    "    hits: int  # abreast: ignore[AB102] two writers of one value\n",
    "    hits: int  # noqa: E501  # abreast: ignore[AB103, AB102]\n",
    "    hits: int  #abreast:ignore [ab102]\n",
    "    hits: int  # Abreast: Ignore[AB103 AB102]\n",
    "    hits: int  # abreast: ignore[AB1]\n",
    "    hits: (  # abreast: ignore[AB102]\n        int\n    )\n",
    "    hits: (\n        int\n    )  # abreast: ignore[AB102]\n",
    "    # abreast: ignore[AB102]\n    hits: int\n",
    "    # abreast: ignore[AB102]\n    # Both write the same.\n    hits: int\n",
    "    # abreast: ignore[AB102]\n    # abreast: ignore[AB203]\n    hits: int\n",
    "    # abreast: ignore[AB102]\n\n    hits: int\n",
]


@pytest.mark.parametrize("text", SILENCING)
def test_a_comment_that_silences(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = report(f"class State(TypedDict):\n{text}", tmp_path, monkeypatch)
    assert said.findings == ()
    assert said.notes == ()


WITHOUT_EFFECT = {
    "    hits: int  # abreast: ignore\n": "codes in brackets",
    "    hits: int  # abreast: ignore[]\n": "codes in brackets",
    "    hits: int  # abreast: ignore AB102\n": "codes in brackets",
    "    hits: int  # abreast: ignore(AB102)\n": "codes in brackets",
    "    hits: int  # abreast: noqa[AB102]\n": "codes in brackets",
    "    hits: int  # abreast: ignore[AB999]\n": "no rule is called AB999",
    "    hits: int\n    more: int  # abreast: ignore[AB102]\n": "AB102 was found in line 6",
    "    hits: int\n    # abreast: ignore[AB102]\n": "AB102 was found in line 6",
}


@pytest.mark.parametrize(("text", "why"), WITHOUT_EFFECT.items())
def test_a_comment_that_does_not_silence_is_noted(text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = report(f"class State(TypedDict):\n{text}", tmp_path, monkeypatch)
    assert [one.code for one in said.findings] == ["AB102"]
    (note,) = said.notes
    assert note.place.startswith("comments_under_test.py:")
    assert why in note.message


def test_one_unknown_code_does_not_undo_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = report("class State(TypedDict):\n    hits: int  # abreast: ignore[AB999, AB102]\n", tmp_path, monkeypatch)
    assert said.findings == ()
    assert "AB999" in said.notes[0].message


@pytest.mark.parametrize(
    "text", ["    hits: int  # see abreast: it tells changes\n", "    hits: int  # abreast: the number of hits\n"]
)
def test_what_is_no_such_comment_is_neither_heard_nor_noted(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said = report(f"class State(TypedDict):\n{text}", tmp_path, monkeypatch)
    assert len(said.findings) == 1
    assert said.notes == ()


def test_a_comment_inside_a_text_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = 'class State(TypedDict):\n    """Keys.\n    # abreast: ignore[AB102]"""; hits: int\n'
    assert len(report(text, tmp_path, monkeypatch).findings) == 1


def test_a_comment_above_a_decorator_is_about_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = (
        "from langchain.tools import tool\nfrom langgraph.graph import MessagesState\nfrom langgraph.prebuilt import ToolNode\n"
        "{}@tool\ndef find_notes(text: str) -> str:\n    '''Find notes.'''\n    return text\n\n\n"
        "graph = StateGraph(MessagesState).add_node('tools', ToolNode([find_notes])).add_edge(START, 'tools').compile()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for number, comment in enumerate(("", "# abreast: ignore[AB309]\n")):
        name = f"decorated_under_test_{number}"
        (tmp_path / f"{name}.py").write_text(BEGIN + text.format(comment), encoding="utf-8")
        found.append([one.code for one in examine(importlib.import_module(name).graph, module=name).findings])
        del sys.modules[name]
    assert found == [["AB309"], []]
