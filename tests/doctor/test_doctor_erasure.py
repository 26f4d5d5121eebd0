"""What only removes messages, and what is said to be erasure."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from abreast.doctor import examine

BEGIN = """from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph


def reply(state: MessagesState) -> dict:
    return {"messages": [AIMessage("I see.")]}


saver = InMemorySaver()
builder = StateGraph(MessagesState).add_node("reply", reply).add_edge(START, "reply")
graph = builder.compile(checkpointer=saver)
other = builder.compile(checkpointer=saver)


"""
ERASING = {
    "def delete_user(config):\n    graph.update_state(config, {'messages': [RemoveMessage(id='1')]})\n": 1,
    "def clean(config):\n    'Deletes all, as GDPR wants.'\n"
    "    graph.update_state(config, {'messages': [RemoveMessage(id='1')]})\n": 1,
    "def delete_user_message(config):\n    graph.update_state(config, {'messages': [RemoveMessage(id='1')]})\n": 0,
    "def forget_last_answer(config):\n    graph.update_state(config, {'messages': [RemoveMessage(id='1')]})\n": 0,
    "def delete_user(config):\n    graph.update_state(config, {'messages': [RemoveMessage(id='1')]})\n"
    "    saver.delete_thread('1')\n": 0,
    "def delete_user(config):\n    other.update_state(config, {'messages': [RemoveMessage(id='1')]})\n": 0,
    "def delete_user(state: MessagesState):\n    return {'messages': [RemoveMessage(id='1')]}\n"
    "graph = builder.add_node('erase', delete_user).add_edge('reply', 'erase').compile(checkpointer=saver)\n": 1,
    "def erase_personal_data(config):\n    graph.update_state(config, {'messages': []})\n": 0,
    "graph = builder.compile()\ndef delete_user(config):\n"
    "    graph.update_state(config, {'messages': [RemoveMessage(id='1')]})\n": 0,
}


@pytest.mark.parametrize(("text", "number"), ERASING.items())
def test_what_is_taken_for_erasure(text: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "erasure_under_test.py").write_text(BEGIN + text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        module = importlib.import_module("erasure_under_test")
        findings = examine(module.graph, module="erasure_under_test", select=["AB506"]).findings
        assert len(findings) == number
        assert all("RemoveMessage(" in (BEGIN + text).splitlines()[(one.line or 0) - 1] for one in findings)
    finally:
        sys.modules.pop("erasure_under_test", None)
