"""The executor: takes runs that wait, executes them beside each other, and leaves what it cannot end to whoever comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from abreast.agents.attempt import RunAttempt
from abreast.agents.served import POLL, Means, Served
from abreast.core.execution import Claimed
from abreast.errors import LeaseLostError, ThreadBusyError, UnavailableError
from abreast.telemetry import log

RUNS = "runs"
"""The topic under which processes hear that a run waits, or is wanted to end."""


class Executor:
    """Executes the runs of one hub in one event loop."""

    def __init__(
        self,
        means: Means,
        agents: Mapping[str, Served],
        *,
        concurrency: int,
        seconds: float,
        others: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._means, self._agents, self._others = means, agents, others
        self._concurrency, self._seconds = concurrency, seconds
        self._going: dict[str, tuple[Claimed, asyncio.Task[None]]] = {}
        self._ends: dict[str, str] = {}
        self._later: dict[str, float] = {}
        self._main: asyncio.Task[None] | None = None
        self._stopping = False
        self._looked = 0.0
        self._kept = 0

    async def start(self) -> None:
        """Takes up what was left, and whatever comes, until `stop`."""
        self._stopping = False
        self._main = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Ends the work of this process: runs that are going on go back to the queue, for whoever comes next."""
        self._stopping = True
        self.wake()
        if self._main is not None:
            # A run that it is just taking must be given back like the others.
            await asyncio.wait([self._main], timeout=self._seconds)
        tasks = [task for _, task in self._going.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._main is not None:
            self._main.cancel()
            with suppress(asyncio.CancelledError):
                await self._main
            self._main = None

    def wake(self) -> None:
        """Something waits: a run, or somebody who wants one to end."""
        self._means.signals.wake(RUNS)

    async def _work(self) -> None:
        with self._means.signals.watch(RUNS) as watch:
            while not self._stopping:
                await self._look()
                await watch.wait(POLL)

    async def _look(self) -> None:
        try:
            now = asyncio.get_running_loop().time()
            if now >= self._looked:
                self._looked = now + self._seconds / 3
                await self._upkeep()
            await self._end_wanted()
            while len(self._going) + self._kept < self._concurrency and not self._stopping and await self._take():
                pass
        except UnavailableError:
            log.warning("the runs that wait could not be read; they are looked for again")
        except Exception:
            log.exception("looking for runs failed; it is tried again")

    async def _upkeep(self) -> None:
        await self._means.do(self._means.execution.lives(list(self._going)))
        for run in await self._means.do(self._means.execution.recover()):
            self._means.previews.signal(run.thread)
            for claimed, task in list(self._going.values()):
                if claimed.run.id == run.id:  # it stands still, in the application's own code, and has lost its thread
                    task.cancel()
        for approval in await self._means.do(
            self._means.pauses.expire(lambda one: self._means.execution.runs.goes_on(one.thread, one.run))
        ):
            self._means.previews.signal(approval.thread)

    async def _end_wanted(self) -> None:
        if not self._going:
            return
        for holder, wanted in (await self._means.do(self._means.execution.wanted(list(self._going)))).items():
            known = self._going.get(holder)
            if known is not None and holder not in self._ends:
                self._ends[holder] = wanted
                known[1].cancel()

    async def _take(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._later = {thread: until for thread, until in self._later.items() if until > now}
        claimed = await self._means.do(self._means.execution.claim(set(self._later), self._others()))
        if claimed is None:
            return False
        self._begin(claimed)
        return True

    @contextmanager
    def room(self) -> Iterator[bool]:
        """Whether this process executes one more run; its place is kept for as long as the block runs."""
        here = self._main is not None and self._main.get_loop() is asyncio.get_running_loop()
        free = here and not self._stopping and len(self._going) + self._kept < self._concurrency
        self._kept += free
        try:
            yield free
        finally:
            self._kept -= free

    async def adopt(self, claimed: Claimed) -> None:
        """Executes a run that was claimed elsewhere, in the transaction that stored it: nobody needs to look for it."""
        if self._stopping:
            await self._means.do(self._means.execution.put_back(claimed))
        else:
            self._begin(claimed)

    def _begin(self, claimed: Claimed) -> None:
        self._means.previews.publish(claimed.thread.id, *claimed.events)
        task = asyncio.create_task(self._execute(claimed))
        self._going[claimed.holder] = (claimed, task)
        task.add_done_callback(lambda _: self._ended(claimed))

    def _ended(self, claimed: Claimed) -> None:
        self._going.pop(claimed.holder, None)
        self._ends.pop(claimed.holder, None)
        self.wake()

    # -- one attempt ---------------------------------------------------------------------------------------------

    async def _execute(self, claimed: Claimed) -> None:
        served = self._agents.get(claimed.thread.agent)
        attempt = RunAttempt(self._means, served, claimed, lambda: self._ends.get(claimed.holder))
        try:
            await attempt.made()
        except LeaseLostError:
            log.warning("the run %s was taken over by another process", claimed.run.id)
        except ThreadBusyError:
            self._later[claimed.thread.id] = asyncio.get_running_loop().time() + POLL
            await attempt.put_back()
        except asyncio.CancelledError:
            if self._stopping:
                await _to_its_end(attempt.put_back())
            else:
                await _to_its_end(self._give_up(claimed, self._ends.get(claimed.holder), attempt))
        except Exception as error:
            await _to_its_end(self._give_up(claimed, error, attempt))
        finally:
            if attempt.rests:
                self._later[claimed.thread.id] = asyncio.get_running_loop().time() + attempt.rests

    async def _give_up(self, claimed: Claimed, why: Any, attempt: RunAttempt) -> None:
        """What could not be ended under the lease is ended by the run's own row, unless somebody has taken it meanwhile."""
        with suppress(LeaseLostError):
            try:
                await attempt.over(why, None)
            except UnavailableError:
                log.warning("the end of the run %s could not be stored; it is taken up again", claimed.run.id)


async def _to_its_end(storing: Coroutine[Any, Any, None]) -> None:
    """Stores how an attempt ended, to its end even where the task is cancelled meanwhile: a write that is under way is made in
    any case, and must not be made behind the back of whoever has stopped the service."""
    task = asyncio.ensure_future(storing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("the end of a run could not be stored; it is taken up again", exc_info=error)
        raise
