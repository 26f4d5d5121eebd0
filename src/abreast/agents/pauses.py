"""Pauses: what a graph that stopped waits for, and with what it goes on. The stored decisions are the only authority."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from abreast.access import Access, Operation, aperform, read
from abreast.core import policy
from abreast.core.approvals import Approvals
from abreast.core.execution import Claimed
from abreast.core.plain import as_json
from abreast.core.text import quoted
from abreast.errors import DecisionError, LeaseLostError
from abreast.records import Approval, Policy
from abreast.store import approvals as store
from abreast.store.statement import Flow

_ALL = 1000


@dataclass(frozen=True)
class Resumed:
    """How a run goes on that the engine knows already. `waits`: a question of it is still open, so it does not. `answered`
    are the requests whose answers are in `input`."""

    waits: bool
    input: Any = None
    node: bool = False
    decided: Sequence[Approval] = ()
    answered: Sequence[Approval] = ()


class Pauses:
    """Finds what the runs of one hub wait for."""

    def __init__(self, access: Access, approvals: Approvals) -> None:
        self._access, self._approvals = access, approvals

    async def resumed(self, agent: Any, state: Any, claimed: Claimed) -> Resumed | None:
        """How to go on from this state; None where the engine has not got the run's question."""
        messages: Sequence[BaseMessage] = state.values.get("messages") or ()
        if not any(message.id == claimed.question.id for message in messages):
            return None
        rows = await self._rows(claimed)
        if any(row.status == "open" for row in rows):
            return Resumed(waits=True)
        answers: dict[str, Any] = {}
        answered: list[Approval] = []
        for one in state.interrupts:
            if _is_gate(one.value, rows):
                continue
            row = next((r for r in reversed(rows) if r.kind == "interrupt" and r.question["interrupt"] == one.id), None)
            if row is None or row.decision is None or await self._used(row):
                return Resumed(waits=True)  # nobody was asked yet, or the answer was for the question before this one
            answers[one.id] = row.decision.message
            answered.append(row)
        if answers:
            return Resumed(waits=False, input=Command(resume=answers), answered=answered)
        stands = bool(state.next) and not state.interrupts
        node = [row for row in rows if row.kind == "node"] if stands else []
        if stands and await _is_stopped(agent, state) and not _all_asked(state, claimed, node):
            return Resumed(waits=True)  # its process died before anybody was asked
        return Resumed(waits=False, node=bool(node), decided=node)

    async def _rows(self, claimed: Claimed) -> list[Approval]:
        """The run's requests, oldest first."""
        listing = await aperform(self._access, self._approvals.listed(thread=claimed.thread.id, run=claimed.run.id, limit=_ALL))
        return list(listing.items)[::-1]

    async def _used(self, row: Approval) -> bool:
        def flow() -> Flow[bool]:
            dialect, schema = self._approvals.sync.dialect, self._approvals.sync.schema
            ((used,),) = yield store.used_statement(dialect, schema, thread=row.thread, approval=row.id)
            return bool(used)

        return await aperform(self._access, read(flow))

    def use(self, answered: Sequence[Approval]) -> Flow[None]:
        """Takes answers for the questions that they were given to, right before the graph gets them. A process that dies right
        behind this has the person asked once more, which is better than an answer to another question."""
        for row in answered:
            dialect, schema = self._approvals.sync.dialect, self._approvals.sync.schema
            if not (yield store.use_statement(dialect, schema, thread=row.thread, approval=row.id)):
                raise LeaseLostError(thread=row.thread)

    def asked(self, state: Any, claimed: Claimed, workspaces: Sequence[str], known: Sequence[Approval]) -> list[Approval]:
        """What people must be asked, apart from what the gates in tools have asked already."""
        made: list[Approval] = []
        checkpoint = (state.config.get("configurable") or {}).get("checkpoint_id")
        for one in state.interrupts:
            if _is_gate(one.value, known):
                continue
            before = [r for r in known if r.kind == "interrupt" and r.question["interrupt"] == one.id]
            call = json.dumps(["interrupt", one.id, checkpoint, len([r for r in before if r.status != "open"])])
            question = {"interrupt": one.id, "value": as_json(one.value, "the question")}
            policy_ = Policy(decisions=frozenset({"respond"}))
            made.append(self._approval(claimed, call, "interrupt", "question", {}, None, policy_, workspaces, (), question))
        if state.interrupts or not state.next:
            return made
        calls = _waiting(state.values.get("messages") or ())
        for call in calls:
            arguments = as_json(call["args"], "the arguments")
            name = json.dumps(["node", call["id"], call["name"], arguments, checkpoint])
            made.append(
                self._approval(claimed, name, "node", call["name"], arguments, call["id"], Policy(), workspaces, None, None)
            )
        if not calls:
            name = _node(state)
            policy_ = Policy(decisions=frozenset({"approve", "reject"}))
            made.append(self._approval(claimed, name, "node", state.next[0], {}, None, policy_, workspaces, (), None))
        return made

    @staticmethod
    def _approval(
        claimed: Claimed,
        call: str,
        kind: Any,
        tool: str,
        arguments: Mapping[str, Any],
        call_id: str | None,
        given: Policy,
        workspaces: Sequence[str],
        touches: Any,
        question: Any,
    ) -> Approval:
        return Approval(
            policy.approval_id(claimed.thread.id, call),
            claimed.thread.id,
            claimed.run.id,
            tool,
            arguments,
            policy.digest(tool, arguments),
            "open",
            kind,
            claimed.thread.tenant,
            claimed.thread.user,
            call_id,
            question,
            dict.fromkeys(workspaces, 0),
            touches,
            policy.pinned(given),
        )

    async def known(self, claimed: Claimed) -> list[Approval]:
        """The requests of a run, oldest first."""
        return await self._rows(claimed)

    def store(self, asked: Sequence[Approval]) -> Flow[None]:
        """Stores what people are asked, in the transaction that parks the run."""
        for one in asked:
            yield from self._approvals.requesting(one)

    def expire(self, more: Any) -> Operation[list[Approval]]:
        """Ends the requests whose time is over."""
        return (yield from self._approvals.expire_due(more=more))

    async def apply(self, agent: Any, config: RunnableConfig, decided: Sequence[Approval]) -> bool:
        """Puts decisions about a graph that stopped before its tools into its state: what was edited, and answers in place of
        what was refused. False where it must end: the node itself was refused."""
        place: RunnableConfig = {"configurable": {k: v for k, v in config["configurable"].items() if k != "checkpoint_id"}}
        state = await agent.aget_state(place)
        messages = state.values.get("messages") or ()
        waiting = {call["id"]: call for call in _waiting(messages)}
        if not waiting:
            return not any(row.status not in ("approved", "edited") for row in decided)
        newest = next(m for m in reversed(messages) if isinstance(m, AIMessage))
        calls: list[Any] = []
        allowed, refused = [], []
        for call in newest.tool_calls:
            row = _row_of(call, decided) if call["id"] in waiting else None
            if row is None or row.status == "approved":
                allowed.append(call)
            elif row.status == "edited" and row.decision is not None:
                allowed.append({**call, "args": dict(row.decision.arguments or {})})
            else:
                refused.append(_refusal(call, row))
                calls.append(call)
                continue
            calls.append(allowed[-1])
        pushed = any(task.path and task.path[0] == "__pregel_push" for task in state.tasks)
        if refused and len(refused) == len(newest.tool_calls):
            await agent.aupdate_state(place, {"messages": refused}, as_node=state.next[0])
        elif pushed:
            await agent.aupdate_state(place, {"messages": [newest.model_copy(update={"tool_calls": calls}), *refused]})
        else:
            told = "\n".join([newest.text, *(f"({r.name} did not run: {r.text})" for r in refused)]).strip()
            update: dict[str, Any] = {"tool_calls": allowed, **({"content": told} if refused else {})}
            await agent.aupdate_state(place, {"messages": [newest.model_copy(update=update)]})
        return True


def check_answer(question: Any, message: Any) -> None:
    """Raises DecisionError for an answer that LangChain's own middleware for approvals would choke on, and with it the run."""
    value = question.get("value") if isinstance(question, Mapping) else None
    if not isinstance(value, Mapping) or "action_requests" not in value:
        return
    requests, reviews = value["action_requests"], value.get("review_configs") or []
    decisions = message.get("decisions") if isinstance(message, Mapping) else None
    if not isinstance(decisions, list) or len(decisions) != len(requests):
        raise DecisionError(f'The answer is {{"decisions": [...]}} with {len(requests)} of them, one for each action, in order.')
    for at, decision in enumerate(decisions):
        offered = reviews[at].get("allowed_decisions") if at < len(reviews) else ("approve", "edit", "reject", "respond")
        kind = decision.get("type") if isinstance(decision, Mapping) else None
        if kind not in offered:
            raise DecisionError(f"Decision {at + 1} is one of {', '.join(offered)}, not {kind!r}.")
        if kind == "edit":
            action = decision.get("edited_action")
            if (
                not isinstance(action, Mapping)
                or action.get("name") != requests[at]["name"]
                or not isinstance(action.get("args"), Mapping)
            ):
                raise DecisionError(f"Decision {at + 1} edits the arguments of {requests[at]['name']}, and no other tool.")
        if kind == "respond" and not isinstance(decision.get("message"), str):
            raise DecisionError(f"Decision {at + 1} needs a message.")


def _is_gate(value: Any, known: Sequence[Approval]) -> bool:
    """Whether the gate in one of the hub's tools asked this: its row is there, and the tool looks at it by itself. What only
    looks like it is a question of the application's own."""
    return isinstance(value, Mapping) and any(value.get("approval") == row.id for row in known)


async def _is_stopped(agent: Any, state: Any) -> bool:
    """Whether the graph stands where it was compiled to stop, and not in a node that has begun."""
    before, after = (_named(getattr(agent, f"interrupt_{when}_nodes", ())) for when in ("before", "after"))
    if before == "*" or any(node in before for node in state.next):
        return True
    if not after or state.parent_config is None:
        return False
    ran = (await agent.aget_state(state.parent_config)).next
    return after == "*" or any(node in after for node in ran)


def _named(nodes: Any) -> Any:
    return nodes if nodes == "*" else tuple(nodes or ())


def _all_asked(state: Any, claimed: Claimed, rows: Sequence[Approval]) -> bool:
    """Whether people were asked about everything that the graph waits with."""
    calls = _waiting(state.values.get("messages") or ())
    if calls:
        return all(_row_of(call, rows) is not None for call in calls)
    name = policy.approval_id(claimed.thread.id, _node(state))
    return any(row.id == name for row in rows)


def _node(state: Any) -> str:
    """What names the request to go on behind a stop where no tool call waits."""
    return json.dumps(["node", list(state.next), (state.config.get("configurable") or {}).get("checkpoint_id")])


def _row_of(call: Mapping[str, Any], rows: Sequence[Approval]) -> Approval | None:
    """The newest request about this very call, as the model made it or as a person has edited it. Ids alone are not enough:
    models give them twice."""
    wanted = policy.digest(call["name"], as_json(call["args"], "the arguments"))
    for row in reversed(rows):
        edited = row.decision.arguments if row.decision is not None else None
        known = {row.digest} if edited is None else {row.digest, policy.digest(row.tool, edited)}
        if row.call == call["id"] and row.tool == call["name"] and wanted in known:
            return row
    return None


def _waiting(messages: Sequence[BaseMessage]) -> list[Any]:
    """The calls of the newest message of the model that have no answer."""
    newest = next((at for at in range(len(messages) - 1, -1, -1) if isinstance(messages[at], AIMessage)), None)
    if newest is None:
        return []
    answered = {m.tool_call_id for m in messages[newest:] if isinstance(m, ToolMessage)}
    message = messages[newest]
    assert isinstance(message, AIMessage)
    return [call for call in message.tool_calls if call["id"] not in answered]


def _refusal(call: Mapping[str, Any], row: Approval) -> ToolMessage:
    decision = row.decision
    if row.status == "answered" and decision is not None:
        return ToolMessage(str(decision.message), tool_call_id=call["id"], name=call["name"], id=row.id)
    said = {"rejected": "A person rejected this call.", "expired": "Nobody decided about this call in time."}
    told: dict[str, Any] = {"error": f"{said.get(row.status, 'This call was taken back.')} It did not run."}
    if decision is not None and decision.message:
        told["reason"] = decision.message
    return ToolMessage(quoted(told), tool_call_id=call["id"], name=call["name"], id=row.id, status="error")
