"""Around one tool call: the fence before it, and an answer in place of what would end the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from langchain.agents.middleware import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from pydantic import ValidationError

from abreast.access import Access, Operation, read
from abreast.agents.answers import answer_of, own_of
from abreast.agents.gating import OURS, Gated, Gatekeeper, Passage, annotated, answer_message, parser_of
from abreast.agents.scope import running
from abreast.core.lease import must_hold
from abreast.core.text import quoted
from abreast.errors import UnavailableError
from abreast.records import Policy
from abreast.types import Lease

FENCED = frozenset({"write", "function"})
"""What the hub's own tools say of themselves under `abreast` when they ask for the lease in their own transaction."""

NOT_ASKED = quoted(
    {"error": "The database does not answer just now, so this call did not run.", "do": "Call once more, or say so."}
)


class Guard:
    """Lets a tool run only while its run holds the conversation, and turns its failure into an answer to the model."""

    def __init__(
        self,
        access: Access,
        schema: str,
        gatekeeper: Gatekeeper | None = None,
        gated: Callable[[Gated], Gated] | None = None,
    ) -> None:
        self._access, self._schema = access, schema
        self._gatekeeper, self._gated = gatekeeper, gated

    def fence(self, request: ToolCallRequest) -> Operation[ToolMessage | None]:
        """None where the tool may run, or the answer in its place where nobody could be asked. Without a lease nothing is.

        Raises LeaseLostError where another run has taken the conversation: that ends this one.
        """
        lease = self._lease(request)
        if lease is None:
            return None
        try:
            yield from read(lambda: must_hold(self._access.dialect, self._schema, lease))
        except UnavailableError:
            return _message(NOT_ASKED, request)
        return None

    def passed(self, request: ToolCallRequest) -> Operation[Passed]:
        """How the call of a tool that does not ask by itself goes on: it asks here where the hub is strict, and what was
        decided about this very call counts though its gate is not there any more. Raises GraphInterrupt."""
        tool, keeper = request.tool, self._gatekeeper
        if tool is None or keeper is None or self._gated is None or (tool.metadata or {}).get("abreast") in OURS:
            return Passed(request)
        if not keeper.strict and keeper.begins(request.runtime):
            return Passed(request)
        call = request.tool_call
        schema, parse = parser_of(tool)
        gate = Gated(tool.name, True, schema, parse, None if keeper.strict else Policy("allow"), plain=True)
        if keeper.strict:
            gate = self._gated(gate)
        passage = yield from keeper.passage(gate, request.runtime, call["args"])
        if passage.answer is not None:
            return Passed(request, passage, answer_message(passage, tool.name, call["id"]))
        if passage.edited:
            request = request.override(tool_call={**call, "args": dict(passage.intent.asked)})
        return Passed(request, passage)

    @staticmethod
    def guarded(request: ToolCallRequest) -> ToolCallRequest:
        """The request with a tool whose own errors cannot be taken for errors of its arguments."""
        return request if request.tool is None else request.override(tool=cast("BaseTool", _Guarded(request.tool, request)))

    def _lease(self, request: ToolCallRequest) -> Lease | None:
        if request.runtime is None or ((request.tool and request.tool.metadata) or {}).get("abreast") in FENCED:
            return None
        scope = running(self._access)
        return scope.lease if scope is not None else None


@dataclass(frozen=True, slots=True)
class Passed:
    """A call behind its gate: as it goes on, or with the answer in its place."""

    request: ToolCallRequest
    passage: Passage | None = None
    answer: ToolMessage | None = None

    def annotated(self, answer: Any) -> Any:
        """The tool's answer, which says so where a person changed the arguments."""
        return answer if self.passage is None else annotated(answer, self.passage)


class _Guarded:
    """A tool as ToolNode calls it, with an answer where its body raises a ValidationError.

    ToolNode takes every one for an error of the arguments and shows its text, which quotes the values that failed; the
    body's own may be secrets. Any other error goes on, so that a middleware behind the hub's may try again.
    """

    def __init__(self, tool: BaseTool, request: ToolCallRequest) -> None:
        self._tool, self._request = tool, request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def invoke(self, *arguments: Any, **named: Any) -> Any:
        try:
            return self._tool.invoke(*arguments, **named)
        except ValidationError as error:
            return self._answered(error)

    async def ainvoke(self, *arguments: Any, **named: Any) -> Any:
        try:
            return await self._tool.ainvoke(*arguments, **named)
        except ValidationError as error:
            return self._answered(error)

    def _answered(self, error: ValidationError) -> ToolMessage:
        if not _is_of_body(error):
            raise error
        return answered(error, self._request)


def answered(error: Exception, request: ToolCallRequest) -> ToolMessage:
    """The error as the answer to this call; raises it where it must end or pause the run."""
    text = answer_of(error)
    if text is None:
        raise own_of(error) or error
    return _message(text, request)


def _message(text: str, request: ToolCallRequest) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"], status="error")


def _is_of_body(error: BaseException) -> bool:
    """Whether the error came out of the tool's body; an error of the arguments is raised before it is entered."""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_name in ("_run", "_arun"):
            return True
        step = step.tb_next
    return False
