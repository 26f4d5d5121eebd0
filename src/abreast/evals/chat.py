"""A chat model of LangChain, asked the same questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, messages_to_dict

from abreast.agents.placing import inside_answers, text_of
from abreast.evals.answers import Answers


class Chat:
    """A chat model object; its answers are kept under `name`."""

    def __init__(self, name: str, answers: Answers, model: BaseChatModel) -> None:
        self.name, self.asked, self.inside = name, 0, inside_answers(model)
        self._answers, self._model = answers, model

    def answer(self, many: Sequence[Sequence[AnyMessage]]) -> list[str]:
        """The answers to these conversations."""
        return [self._one(messages) for messages in many]

    def _one(self, messages: Sequence[AnyMessage]) -> str:
        key = hashlib.sha256(json.dumps([self.name, messages_to_dict(messages)], sort_keys=True).encode()).hexdigest()
        found = self._answers.get(key)
        if found is None:
            self.asked += 1
            found = text_of(self._model.invoke(list(messages)))
            self._answers.put(key, found)
        return found
