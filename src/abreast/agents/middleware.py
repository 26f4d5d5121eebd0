"""The LangChain middleware: the same few lines twice around `prepare` and `returned`."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.types import Command

from abreast.access import Access, aperform, perform
from abreast.agents import calls
from abreast.agents.call_ids import given_ids
from abreast.agents.calls import Returned, WorkspacesOf
from abreast.agents.gating import Gated, Gatekeeper
from abreast.agents.placing import inside_answers, place
from abreast.agents.repair import repaired
from abreast.agents.state import KEY, AgentSyncState
from abreast.agents.tool_calls import Guard, answered
from abreast.core.tell import ModelCall, Prepared, Teller
from abreast.types import AfterTools, Placement


class SyncMiddleware(AgentMiddleware[AgentSyncState, Any, Any]):
    """Puts CURRENT and CHANGES into every model call, and the mark into the checkpoint of its answer.

    It mends the history of a request where a call was cut off, and gives the calls of an answer ids that tell them
    apart. Before a tool it asks whether the run still holds its conversation; what the tool raises becomes an answer.

    It adds no checkpoint. Put it last in the agent's list: what stands behind it could overwrite its text. Only a
    middleware that is there for what tools raise (one that tries again) stands behind it; in front it sees answers. It
    keeps nothing of a run on itself; one instance serves every conversation. A hand-made graph takes the half for tools:
    `ToolNode(tools, wrap_tool_call=middleware.wrap_tool_call, awrap_tool_call=middleware.awrap_tool_call)`, with
    `handle_tool_errors` left as it is.
    """

    state_schema = AgentSyncState
    tools = ()

    def __init__(
        self,
        access: Access,
        teller: Teller,
        workspaces_of: WorkspacesOf,
        placement: Placement,
        after_tools: AfterTools,
        schema: str,
        gatekeeper: Gatekeeper | None = None,
        gated: Callable[[Gated], Gated] | None = None,
    ) -> None:
        super().__init__()
        self._access, self._teller = access, teller
        self._workspaces_of, self._placement, self._after_tools = workspaces_of, placement, after_tools
        self._guard = Guard(access, schema, gatekeeper, gated)
        self._warned = False

    @property
    def name(self) -> str:
        return "abreast"

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        prepared = perform(self._access, self._teller.prepare(self._call(request, handler)))
        response = self._named(handler(self._request(request, prepared)))
        returned = self._returned(prepared, request, response)
        perform(self._access, self._teller.returned(returned.prepared, returned.name))
        return self._response(returned, response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        prepared = await aperform(self._access, self._teller.prepare(self._call(request, handler)))
        response = self._named(await handler(self._request(request, prepared)))
        returned = self._returned(prepared, request, response)
        await aperform(self._access, self._teller.returned(returned.prepared, returned.name))
        return self._response(returned, response)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        try:
            refused = perform(self._access, self._guard.fence(request))
            if refused is not None:
                return refused
            passed = perform(self._access, self._guard.passed(request))
            if passed.answer is not None:
                return passed.answer
            return passed.annotated(handler(self._guard.guarded(passed.request)))  # type: ignore[no-any-return]
        except Exception as error:
            return answered(error, request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        try:
            refused = await aperform(self._access, self._guard.fence(request))
            if refused is not None:
                return refused
            passed = await aperform(self._access, self._guard.passed(request))
            if passed.answer is not None:
                return passed.answer
            return passed.annotated(await handler(self._guard.guarded(passed.request)))  # type: ignore[no-any-return]
        except Exception as error:
            return answered(error, request)

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
        history = repaired(request.messages)
        if prepared.block is None or prepared.shadow:
            return request if history is request.messages else request.override(messages=list(history))
        inside = inside_answers(request.model, self._after_tools)
        messages, system = place(history, request.system_message, prepared.block, self._placement, inside_answers=inside)
        return request.override(messages=messages, system_message=system)

    def _returned(self, prepared: Prepared, request: ModelRequest[Any], response: ModelResponse[Any]) -> Returned:
        direct = {tool.name for tool in request.tools if isinstance(tool, BaseTool) and tool.return_direct}
        return calls.returned(prepared, response.result, get_config(), structured=response.structured_response, direct=direct)

    @staticmethod
    def _named(response: ModelResponse[Any]) -> ModelResponse[Any]:
        return replace(response, result=given_ids(response.result))

    @staticmethod
    def _response(returned: Returned, response: ModelResponse[Any]) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if not returned.mark:
            return response
        return ExtendedModelResponse(model_response=response, command=Command(update={KEY: returned.mark}))
