"""The LangChain middleware: the same few lines twice around `prepare` and `returned`."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langgraph.config import get_config
from langgraph.types import Command

from abreast.access import Access, aperform, perform
from abreast.agents import calls
from abreast.agents.calls import WorkspacesOf
from abreast.agents.messages import place
from abreast.agents.state import KEY, AgentSyncState
from abreast.core.tell import ModelCall, Prepared, Teller
from abreast.types import Placement


class SyncMiddleware(AgentMiddleware[AgentSyncState, Any, Any]):
    """Puts CURRENT and CHANGES into every model call, and the mark into the checkpoint of its answer.

    It adds no node and no checkpoint. Put it last in the agent's list: what stands behind it could overwrite its text.
    It keeps nothing of a run on itself; one instance serves every conversation.
    """

    state_schema = AgentSyncState
    tools = ()

    def __init__(self, access: Access, teller: Teller, workspaces_of: WorkspacesOf, placement: Placement) -> None:
        super().__init__()
        self._access, self._teller = access, teller
        self._workspaces_of, self._placement = workspaces_of, placement
        self._warned = False

    @property
    def name(self) -> str:
        return "abreast"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        prepared = perform(self._access, self._teller.prepare(self._call(request, handler)))
        response = handler(self._request(request, prepared))
        perform(self._access, self._teller.returned(*self._returned(prepared, response)))
        return self._response(prepared, response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        prepared = await aperform(self._access, self._teller.prepare(self._call(request, handler)))
        response = await handler(self._request(request, prepared))
        await aperform(self._access, self._teller.returned(*self._returned(prepared, response)))
        return self._response(prepared, response)

    def _call(self, request: ModelRequest[Any], handler: Any) -> ModelCall:
        if not self._warned and getattr(handler, "__name__", "") == "inner_handler":
            self._warned = True
            warnings.warn(
                "hub.middleware() is not the last middleware of this agent: one behind it may change the request after it. "
                "Put it last.",
                stacklevel=2,
            )
        return calls.model_call(
            request.messages,
            request.state,
            request.runtime.context,
            get_config(),
            self._workspaces_of,
        )

    def _request(self, request: ModelRequest[Any], prepared: Prepared) -> ModelRequest[Any]:
        if prepared.block is None or prepared.shadow:
            return request
        messages, system = place(request.messages, request.system_message, prepared.block.text, self._placement)
        return request.override(messages=messages, system_message=system)

    def _returned(self, prepared: Prepared, response: ModelResponse[Any]) -> tuple[Prepared, str]:
        config = get_config()
        name = calls.returned(prepared, response.result, response.structured_response, config)
        # A sub-agent's history proves nothing about what this conversation has dealt with.
        return (replace(prepared, confirm={}) if calls.is_nested(config) else prepared), name

    @staticmethod
    def _response(prepared: Prepared, response: ModelResponse[Any]) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if not prepared.mark:
            return response
        return ExtendedModelResponse(model_response=response, command=Command(update={KEY: prepared.mark}))
