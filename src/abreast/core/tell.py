"""Telling: from a model call that is about to be made to the block it gets, and to the notes that are kept of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from abreast.access import Operation, read, snapshot, write
from abreast.core import mark as marks
from abreast.core.lease import under
from abreast.core.mark import Mark, Turn
from abreast.core.render import UNKNOWN_STATE, render
from abreast.core.sync import Found, NeedsSnapshot, Sync, Wanted
from abreast.core.text import Wording, count_bytes
from abreast.errors import UnavailableError
from abreast.store import cursors
from abreast.store.statement import Flow, Statement
from abreast.store.tracked import Readable
from abreast.telemetry import log
from abreast.types import Asked, Batch, Block, Budget, CountTokens, Lease, OnUnavailable, Phrasing, Position, Refresh, Told

T = TypeVar("T")


def _as_it_is(context: Any) -> Any:
    """A context as it is now, to compare it with later: an application's own may be changed in place, as by a tool that
    takes a right away."""
    values = context if isinstance(context, dict) else getattr(context, "__dict__", None)
    if not isinstance(values, dict):
        return context
    return type(context), {name: copy(one) if isinstance(one, list | set | dict) else one for name, one in values.items()}


@dataclass(frozen=True)
class Options:
    """How a hub tells. `limit` is events a workspace and batch."""

    limit: int = 50
    budget: Budget = field(default_factory=Budget)
    count_tokens: CountTokens = count_bytes
    refresh: Refresh = "call"
    on_unavailable: OnUnavailable = "stop"
    phrasing: Phrasing = "sentences"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call that is about to be made. `workspaces` are those that the conversation follows; `lease` is its run's."""

    thread: str
    workspaces: tuple[str, ...]
    context: Any
    mark: Mark | None
    turn: Turn
    lease: Lease | None = None
    asked: Asked | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a model call gets: the block to put into its request, or None where nothing is to be told.

    `mark` is what the conversation's state keeps when the call has returned.
    """

    call: ModelCall
    block: Block | None
    batches: tuple[Batch, ...] = ()
    confirm: Mapping[str, Position] = field(default_factory=dict)
    shadow: bool = False

    @property
    def told(self) -> Mapping[str, Told]:
        return {} if self.block is None or self.shadow else self.block.told

    def mark(self, *, by_tool: bool = False) -> dict[str, list[Any]]:
        """`by_tool`: what the call asked a tool for is the answer, if the history ends in it."""
        settled = self.call.turn.settled_by_runner
        entries = {w: marks.entry(told, settled_by_runner=settled, by_tool=by_tool) for w, told in self.told.items()}
        return {**marks.closed(self.call.mark, self.call.turn, entries), **entries} if entries else {}


class Recent(Generic[T]):
    """A small memory by key; the least recently used goes. Safe between threads."""

    def __init__(self, size: int = 256) -> None:
        self._items: OrderedDict[Any, T] = OrderedDict()
        self._size, self._lock = size, threading.Lock()

    def get(self, key: Any) -> T | None:
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
                return self._items[key]
            return None

    def put(self, key: Any, item: T) -> None:
        with self._lock:
            self._items[key] = item
            self._items.move_to_end(key)
            while len(self._items) > self._size:
                self._items.popitem(last=False)


class Teller:
    """Reads, renders and notes for the model calls of one hub. Its operations are run through either door of `access`."""

    def __init__(self, sync: Sync, options: Options, wording: Wording, verify: Callable[[], Operation[None]]) -> None:
        self._sync, self._options, self._wording, self._verify = sync, options, wording, verify
        self._found: Recent[Found] = Recent()
        self._pinned: Recent[tuple[Any, tuple[Batch, ...]]] = Recent()

    # -- before the call -----------------------------------------------------------------------------------------

    def prepare(self, call: ModelCall) -> Operation[Prepared]:
        """The block for a model call. Raises UnavailableError unless the hub was told to go on with a warning."""
        try:
            batches, confirm = yield from self._batches(call)
        except UnavailableError:
            if self._options.on_unavailable == "stop":
                raise
            log.warning("the state could not be read; the model is told that it is unknown")
            text = UNKNOWN_STATE
            return Prepared(call, Block(text, {}, self._options.count_tokens(text), ""))
        switch = {batch.telling for batch in batches}
        if not batches or "off" in switch:
            return Prepared(call, None)
        block = render(
            batches,
            run=call.turn.run,
            thread=call.thread,
            budget=self._options.budget,
            wording=self._wording,
            count=self._options.count_tokens,
            asked=call.asked,
            phrasing=self._options.phrasing,
        )
        if not self._sync.tables:
            block = replace(block, told={})  # snapshot only: there is no log to stand in
        return Prepared(call, block, batches, confirm, shadow="shadow" in switch)

    def _batches(self, call: ModelCall) -> Operation[tuple[tuple[Batch, ...], dict[str, Position]]]:
        pinned = (call.thread, call.turn.run, call.workspaces)
        # Without a runner a run has no name of its own: a new one from an older checkpoint could be taken for it.
        pins = self._options.refresh == "run" and call.turn.settled_by_runner
        found = self._pinned.get(pinned) if pins else None
        context = _as_it_is(call.context)
        if found is not None and found[0] == context:  # rights may differ otherwise
            return found[1], {}
        yield from self._verify()
        rules = self._sync.rules(call.context)
        batches: list[Batch] = []
        confirm: dict[str, Position] = {}
        for workspace in call.workspaces:
            start = marks.start(call.mark, workspace, call.turn)
            wanted = Wanted(workspace, call.thread, start, call.context, self._options.limit, max(self._options.budget.value, 1))
            batch = yield from self.batch(wanted, rules, run=call.turn.run)
            batches.append(batch)
            if start.confirm is not None and not batch.gap:
                confirm[workspace] = start.confirm
        if pins:
            self._pinned.put(pinned, (context, tuple(batches)))
        return tuple(batches), confirm

    def batch(self, wanted: Wanted, rules: Mapping[str, Readable], *, run: str = "") -> Operation[Batch]:
        """One batch: in one statement where that is exact, in a snapshot of several otherwise."""
        if not self._sync.tables:
            return (yield from snapshot(lambda: self._sync.load_only(wanted)))
        found_already: Found | None = None
        if not self._sync.needs_snapshot(rules):
            key = (wanted.thread, run, wanted.workspace)
            earlier = self._found.get(key) if run else None
            try:
                batch, found = yield from read(lambda: self._sync.read_at_once(wanted, rules, earlier))
            except NeedsSnapshot as more:
                found_already = more.found
            else:
                if run:
                    self._found.put(key, found)
                return batch
        return (yield from snapshot(lambda: self._sync.read_in_snapshot(wanted, rules, found_already)))

    # -- after it ------------------------------------------------------------------------------------------------

    def returned(self, prepared: Prepared, call_id: str) -> Operation[None]:
        """Notes what stood in a request that returned, and confirms what the history proved. A note that cannot be
        written is reported and does not cost the answer: what it would have confirmed is told again. Raises LeaseLostError
        where the run does not hold its thread any more."""
        if prepared.block is None or not prepared.batches or not self._sync.tables or not prepared.call.thread:
            return
        rows = [
            {
                "thread": prepared.call.thread,
                "run": prepared.call.turn.run,
                "call": call_id,
                "workspace": batch.workspace,
                "from_revision": prepared.block.told[batch.workspace].from_revision,
                "to_revision": prepared.block.told[batch.workspace].to_revision,
                "head": batch.head.revision,
                "tokens": prepared.block.tokens,
                "digest": prepared.block.digest,
                "told": not prepared.shadow if self._sync.dialect == "postgresql" else int(not prepared.shadow),
            }
            for batch in prepared.batches
        ]
        statements = [cursors.deliver_statement(self._sync.dialect, self._sync.schema, rows)]
        if not prepared.shadow:
            statements += [
                self._move(workspace, prepared.call.thread, to, prepared.call.turn.run)
                for workspace, to in prepared.confirm.items()
            ]
        try:
            yield from write(lambda: self._under(prepared.call.lease, statements))
        except UnavailableError:
            log.warning("a delivery could not be noted; what it would have confirmed will be told again")

    # -- around a run --------------------------------------------------------------------------------------------

    def begin(self, thread: str, workspaces: Sequence[str]) -> Operation[None]:
        """Gives a new conversation its place at HEAD, before its first run."""
        if not self._sync.tables:
            return
        try:
            missing = yield from read(lambda: self._sync.without_place(thread, workspaces))
            if missing:
                yield from write(lambda: self._sync.give_place(thread, missing))
        except UnavailableError:
            if self._options.on_unavailable == "stop":
                raise
            log.warning("a new conversation could not be given its place; it gets one with its next run")

    def settle(self, thread: str, run: str, told: Mapping[str, Told], lease: Lease | None) -> Operation[None]:
        """Moves the conversation's places to what a successful run was told, in one transaction, under its lease. Raises
        LeaseLostError, and then moves nothing."""
        if statements := self.moves(thread, run, told):
            yield from write(lambda: self._under(lease, statements))

    def moves(self, thread: str, run: str, told: Mapping[str, Told]) -> list[Statement]:
        """What `settle` writes, for whoever writes more in the same transaction."""
        return [
            self._move(workspace, thread, Position(one.to_revision, one.to_check), run) for workspace, one in sorted(told.items())
        ]

    def _under(self, lease: Lease | None, statements: Sequence[Statement]) -> Flow[None]:
        return under(self._sync.dialect, self._sync.schema, lease, statements)

    def _move(self, workspace: str, thread: str, to: Position, run: str) -> Statement:
        return cursors.move_statement(self._sync.dialect, self._sync.schema, workspace=workspace, thread=thread, to=to, run=run)
