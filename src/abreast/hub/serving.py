"""The hub's part of serving: which services it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from abreast.core.runs import ATTEMPTS
from abreast.errors import ConfigurationError
from abreast.hub.operations import Operations
from abreast.records import Acknowledge, Caller, Event, OnBusy, Thread

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from abreast.agents.runner import Validator
    from abreast.hub.service import Service


class Serving:
    """What a hub hands out for services."""

    _core: Operations

    def service(
        self,
        agent: Any,
        *,
        context: Callable[[Thread, str], Any],
        on_busy: OnBusy = "reject",
        validate: Sequence[Validator] = (),
        memory: Callable[[Mapping[str, Any]], Any] | None = None,
        acknowledge: Acknowledge = "run",
        authenticate: Callable[[Any], Any] | None = None,
        config: RunnableConfig | None = None,
        concurrency: int = 16,
        attempts: int = ATTEMPTS,
    ) -> Service:
        """Conversations, runs, approvals and streams around an agent, or several by name (`{"planner": agent}`).

        `context` builds the run context: thread and person in, the context out, or None where this person has no access.
        It is asked anew for every attempt and every resume, may be a coroutine, and must look rights up itself.
        `on_busy` is what a second message does to a run that has not ended. `validate` as in `run`. `memory` gets the final
        state and returns the working memory that the turn leaves, as JSON. With `acknowledge="client"` a conversation's
        place moves when its reader has confirmed the answer. `authenticate` is for the HTTP face: a request in, a `Caller`
        or None out. `config` goes to every run, `concurrency` runs are executed at once, and a run is begun `attempts`
        times where its process dies.
        """
        from abreast.hub.service import Service

        agents = dict(agent) if isinstance(agent, Mapping) else {"assistant": agent}
        made = Service(
            self._core,
            agents,
            context=context,
            on_busy=on_busy,
            validate=validate,
            memory=memory,
            acknowledge=acknowledge,
            authenticate=authenticate,
            config=config,
            concurrency=concurrency,
            attempts=attempts,
        )
        self._core.services.append(made)
        return made

    @property
    def services(self) -> Sequence[Service]:
        """The services that were made of this hub, in order."""
        return tuple(self._core.services)

    def stream(self, caller: Caller, thread: str, *, after: int = 0, until_done: bool = False) -> AsyncIterator[Event]:
        """The events of a conversation of this hub's service: see `Service.stream`."""
        if len(self._core.services) != 1:
            raise ConfigurationError(
                "hub.stream is the stream of the hub's one service. Use service.stream where there are several."
            )
        found: AsyncIterator[Event] = self._core.services[0].stream(caller, thread, after=after, until_done=until_done)
        return found
