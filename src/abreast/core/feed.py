"""The feed of a workspace: its changes in order, as one person may read them. What keeps a screen up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from abreast.access import Operation, read, snapshot
from abreast.core.mark import Start
from abreast.core.read import Reader
from abreast.core.rules import visible_event
from abreast.core.sync import Wanted
from abreast.errors import InputError
from abreast.store import log
from abreast.store.statement import Flow
from abreast.store.tracked import Readable
from abreast.types import ChangeEvent

_FURTHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Fed:
    """A stretch of the feed. `to` is the last revision that was looked at: changes that this person may not read are left
    out, and the place moves on. `more`: the next stretch can be had at once.

    `gap`: the log has nothing at the place that was asked for, because it was pruned or comes out of a backup. What the
    reader has shown so far is to be read anew.
    """

    events: tuple[ChangeEvent, ...]
    to: int
    more: bool = False
    gap: bool = False


@dataclass(frozen=True)
class Feed:
    """Reads the feeds of one hub's workspaces."""

    reader: Reader

    def after(self, workspace: str, revision: int | None, context: Any, limit: int) -> Operation[Fed]:
        """The changes behind a revision, oldest first, at most `limit` of them looked at; None: none yet, from HEAD on.

        One statement, as long as nothing happened or no condition of a read rule has to be asked. Raises
        UnknownWorkspaceError, and InputError for what is no revision.
        """
        if revision is not None and not 0 <= revision <= _FURTHEST:
            raise InputError(f"{revision} is not a revision. They count up from 0.", revision=revision)
        rules = self.reader.sync.rules(context)
        asked = {kind for kind, rule in rules.items() if rule.where is not None}
        found = yield from read(lambda: self._read(workspace, revision, limit))
        if any(event.entity_type in asked for event in found.events):
            found = yield from snapshot(lambda: self._readable(workspace, revision, rules, context, limit))
            return found
        return self._seen(found, rules, found.events)

    def _read(self, workspace: str, revision: int | None, limit: int) -> Flow[Fed]:
        sync = self.reader.sync
        sync.check_workspace(workspace)
        answer = yield log.batch_statement(
            sync.dialect,
            sync.schema,
            (),
            workspace=workspace,
            thread="",
            mode="head" if revision is None else "at",
            revision=revision,
            furthest=None,
            limit=limit,
            width=1,
        )
        place, logged, _ = log.read_batch(sync.dialect, (), sync.fields_of, answer[0], workspace, 1)
        if not place.known:
            yield from sync.must_exist(workspace)
        events = tuple(item.event for item in logged)
        more = len(events) == limit and events[-1].revision < place.head
        gap = place.start < place.horizon or place.start > place.head
        return Fed(events, events[-1].revision if more else place.head, more, gap)

    def _readable(
        self, workspace: str, revision: int | None, rules: Mapping[str, Readable], context: Any, limit: int
    ) -> Flow[Fed]:
        found = yield from self._read(workspace, revision, limit)
        wanted = Wanted(workspace, "", Start("head"), context, limit, 1)
        may = yield from self.reader.sync.readable(wanted, rules, found.events, {})
        return self._seen(found, rules, [event for event in found.events if may((event.entity_type, event.entity_id))])

    def _seen(self, found: Fed, rules: Mapping[str, Readable], events: Sequence[ChangeEvent]) -> Fed:
        """The stretch with these of its events, as the rules let them be seen."""
        sync = self.reader.sync
        closed = any(tracked.readable for tracked in sync.tables)
        seen = [
            sync.spoken(shown, rules)
            for event in events
            # Of a type that is not tracked any more nothing says who may hear of it, where others have rules.
            if (event.entity_type in rules or not closed)
            and (shown := visible_event(event, rules.get(event.entity_type))) is not None
        ]
        return Fed(tuple(seen), found.to, found.more, found.gap)
