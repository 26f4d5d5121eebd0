"""The LangChain middleware: the same few lines twice around `prepare` and `returned`."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.types import Command

from abreast.access import Access, aperform, perform
from abreast.agents import calls
from abreast.agents.calls import Returned, WorkspacesOf
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
        returned = self._returned(prepared, request, response)
        perform(self._access, self._teller.returned(returned.prepared, returned.name))
        return self._response(returned, response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        prepared = await aperform(self._access, self._teller.prepare(self._call(request, handler)))
        response = await handler(self._request(request, prepared))
        returned = self._returned(prepared, request, response)
        await aperform(self._access, self._teller.returned(returned.prepared, returned.name))
        return self._response(returned, response)

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

    def _returned(self, prepared: Prepared, request: ModelRequest[Any], response: ModelResponse[Any]) -> Returned:
        direct = {tool.name for tool in request.tools if isinstance(tool, BaseTool) and tool.return_direct}
        return calls.returned(prepared, response.result, get_config(), structured=response.structured_response, direct=direct)

    @staticmethod
    def _response(returned: Returned, response: ModelResponse[Any]) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if not returned.mark:
            return response
        return ExtendedModelResponse(model_response=response, command=Command(update={KEY: returned.mark}))
