"""The doctor has nothing to say about this project's own examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langgraph.checkpoint.sqlite import SqliteSaver

from abreast import Abreast
from abreast.doctor import examine
from doctor_programs import ROOT, program


@pytest.fixture
def model() -> Any:
    return FakeListChatModel(responses=["Yes."])


def test_the_hand_made_graph(tmp_path: Path, model: Any):
    with program(ROOT / "examples" / "03_langgraph.py") as module:
        report = examine(module.build(Abreast(f"sqlite:///{tmp_path / 'app.db'}"), model), module=module.__name__)
    assert report.looked
    assert report.findings == ()


def test_the_move_in_assistant(tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from examples.movein import agent

    with SqliteSaver.from_conn_string(str(tmp_path / "without.db")) as saver:
        assistant = agent.Assistant(tmp_path, "en", model, saver)
        for graph in assistant._agents.values():
            report = examine(graph, module=agent.__name__)
            assert report.looked
            assert report.findings == ()
        assistant.engine.dispose()
        assistant.hub.blocking.close()
    for name in [name for name in sys.modules if name.startswith("examples")]:
        del sys.modules[name]
