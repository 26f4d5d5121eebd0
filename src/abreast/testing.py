"""For tests of an application that uses abreast: a chat model that says what it was told to, and keeps what it saw."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import Field, PrivateAttr

Answer = str | AIMessage | Exception | Callable[[Sequence[BaseMessage]], "str | AIMessage"]
"""Text, a message, an exception to raise, or a function from the request's messages to one of the first two."""


class ScriptedModel(BaseChatModel):
    """Answers with `script` in order and then with "ok". `requests` holds the messages of every call it received."""

    script: list[Any] = Field(default_factory=list)
    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    def __init__(self, *script: Answer, **fields: Any) -> None:
        super().__init__(**{"script": list(script), **fields})

    @property
    def requests(self) -> list[list[BaseMessage]]:
        """The messages of each call, in order."""
        return self._requests

    @property
    def last_request(self) -> str:
        """The text of the last message of the last call: the question and, by default, the block."""
        if not self._requests:
            raise AssertionError("the model has received no request yet")
        return self._requests[-1][-1].text

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        """Accepts tools and goes on; the script decides whether one is called."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> ChatResult:
        self._requests.append(messages)
        answer = self.script.pop(0) if self.script else "ok"
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(messages)
        message = answer.model_copy() if isinstance(answer, AIMessage) else AIMessage(answer)
        return ChatResult(generations=[ChatGeneration(message=message)])


class StreamingModel(ScriptedModel):
    """A ScriptedModel that says its texts word by word, as a provider streams them."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **settings: Any,
    ) -> Iterator[ChatGenerationChunk]:
        message = self._generate(messages).generations[0].message
        assert isinstance(message, AIMessage)
        for word in re.findall(r"\S+\s*|\s+", message.text):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=word))
            if run_manager is not None:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk
        if message.tool_calls:
            wanted = [
                tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=at)
                for at, call in enumerate(message.tool_calls)
            ]
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=wanted))


def calls(name: str, *, call_id: str = "call_1", **arguments: Any) -> AIMessage:
    """A message that calls one tool, for a script."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": call_id}])
