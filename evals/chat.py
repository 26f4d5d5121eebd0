"""Any chat model that LangChain knows by name, asked the same questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from langchain.chat_models import init_chat_model

from evals.answers import Answers

Messages = Sequence[tuple[str, str]]


class Chat:
    """A chat model by name, such as `openai:gpt-5-mini`, at temperature 0 where it has one."""

    def __init__(self, name: str, answers: Answers, model: Any = None) -> None:
        self.name, self.asked = name, 0
        self._answers = answers
        self._model = model if model is not None else init_chat_model(name, temperature=0)

    def answer(self, many: Sequence[Messages]) -> list[str]:
        """The answers to these conversations."""
        return [self._one(messages) for messages in many]

    def _one(self, messages: Messages) -> str:
        key = hashlib.sha256(json.dumps([self.name, list(messages)]).encode()).hexdigest()
        found = self._answers.get(key)
        if found is None:
            self.asked += 1
            found = str(self._model.invoke([{"role": role, "content": text} for role, text in messages]).text)
            self._answers.put(key, found)
        return found
