"""Hand-made graphs: the messages of a model node's call, and the update that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from abreast.access import Access, aperform, perform
from abreast.agents import calls
from abreast.agents.call_ids import given_ids
from abreast.agents.calls import Returned, WorkspacesOf
from abreast.agents.placing import inside_answers, place
from abreast.agents.repair import repaired
from abreast.agents.state import KEY
from abreast.core.tell import Prepared, Teller
from abreast.errors import StateSchemaError
from abreast.types import AfterTools, Placement


@dataclass(frozen=True)
class PreparedCall:
    """A model call of a hand-made node: `messages` go to the model, its answer comes back through `answered`."""

    messages: list[AnyMessage]
    prepared: Prepared
    _access: Access
    _teller: Teller
    _config: RunnableConfig

    def answered(self, answer: BaseMessage) -> dict[str, Any]:
        """The node's update: the answer, and the mark beside it. Notes what the request told (blocking).

        Tool calls of the answer that have no id, or share one, get one; so read them from the update.
        """
        (answer,) = given_ids([answer])
        returned = self._returned(answer)
        perform(self._access, self._teller.returned(returned.prepared, returned.name))
        return self._update(answer, returned)

    async def aanswered(self, answer: BaseMessage) -> dict[str, Any]:
        """`answered`, for an asynchronous node."""
        (answer,) = given_ids([answer])
        returned = self._returned(answer)
        await aperform(self._access, self._teller.returned(returned.prepared, returned.name))
        return self._update(answer, returned)

    def _returned(self, answer: BaseMessage) -> Returned:
        return calls.returned(self.prepared, [answer], self._config)

    @staticmethod
    def _update(answer: BaseMessage, returned: Returned) -> dict[str, Any]:
        return {"messages": [answer], KEY: returned.mark}


class Preparer:
    """Prepares the model calls of hand-made graphs for one hub."""

    def __init__(
        self, access: Access, teller: Teller, workspaces_of: WorkspacesOf, placement: Placement, after_tools: AfterTools
    ) -> None:
        self._access, self._teller = access, teller
        self._workspaces_of, self._placement, self._after_tools = workspaces_of, placement, after_tools

    def prepare(self, state: Mapping[str, Any], config: RunnableConfig, context: Any, model: Any) -> PreparedCall:
        call = self._call(state, config, context)
        return self._prepared(state, config, perform(self._access, self._teller.prepare(call)), model)

    async def aprepare(self, state: Mapping[str, Any], config: RunnableConfig, context: Any, model: Any) -> PreparedCall:
        call = self._call(state, config, context)
        return self._prepared(state, config, await aperform(self._access, self._teller.prepare(call)), model)

    def _call(self, state: Mapping[str, Any], config: RunnableConfig, context: Any) -> Any:
        if KEY not in state:
            # The channel has a reducer and so a value from the start: absent means that the graph has no such channel,
            # and LangGraph would drop the mark without a word.
            raise StateSchemaError()
        return calls.model_call(
            state.get("messages") or [],
            state,
            context,
            config,
            self._workspaces_of,
        )

    def _prepared(self, state: Mapping[str, Any], config: RunnableConfig, prepared: Prepared, model: Any) -> PreparedCall:
        messages: list[AnyMessage] = list(repaired(state.get("messages") or []))
        if prepared.block is not None and not prepared.shadow:
            inside = inside_answers(model, self._after_tools)
            messages, system = place(messages, None, prepared.block, self._placement, inside_answers=inside)
            messages = [system, *messages] if system is not None else messages
        return PreparedCall(messages, prepared, self._access, self._teller, config)
