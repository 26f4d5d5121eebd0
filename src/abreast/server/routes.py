"""The routes: each parses, calls the service and formats. No rule lives here."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from abreast.records import KEEP, ApprovalStatus, Caller, Decision, Event
from abreast.server import answers, documented, idempotency, models, paging, sse
from abreast.server.bodies import LIMIT
from abreast.server.encoding import encoded
from abreast.server.idempotency import Keeper
from abreast.server.identity import Authenticate, refuse
from abreast.server.problems import HEADERS
from abreast.server.route import Around, route_class
from abreast.server.sse import EventStream, Streams

if TYPE_CHECKING:
    from abreast.core.feed import Fed
    from abreast.hub.service import Service

T = TypeVar("T")


def _caller(request: Request) -> Caller:
    """Who asks: the route found it before anything else."""
    found: Caller = request.state.abreast_caller
    return found


Asking = Annotated[Caller, Depends(_caller)]
Key = Annotated[
    str | None,
    Header(
        alias=idempotency.HEADER,
        pattern=idempotency.PATTERN,
        description="A text of the client's own for this request. Sent again with the same key, it gets the first answer and "
        "does nothing twice. A new request needs a new key.",
        examples=["5f0c1b6e-3f6a-4f0e-9d57-0d3f4a8e7b21"],
    ),
]
ThreadId = Annotated[str, Path(description="A conversation's id.", examples=["t_0190f3c1a2b47c3d8e4f5a6b7c8d9e0f"])]
MessageId = Annotated[str, Path(description="A message's id.", examples=["m_0190f3c1a2b47c3d8e4f5a6b7c8d9e12"])]
RunId = Annotated[str, Path(description="A run's id.", examples=["r_0190f3c1a2b47c3d8e4f5a6b7c8d9e11"])]
ApprovalId = Annotated[str, Path(description="An approval's id.", examples=["a_4fb1c8a0e2d34f6f9a7b5c3d1e0f2a4b"])]
WorkspaceId = Annotated[str, Path(description="A workspace's id.", examples=["w1"])]
After = Annotated[str | None, Query(max_length=1000, description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=paging.LARGEST, description="Items of a page at most.")]
AfterEvent = Annotated[int | None, Query(ge=0, le=sse.LARGEST_ID, description="The id of the last event that was received.")]
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", description="The same, as a browser sends it when it comes again. It wins.")
]


def router(
    service: Service,
    authenticate: Authenticate | None = None,
    *,
    body_limit: int = LIMIT,
    streams: Streams | None = None,
) -> APIRouter:
    """The routes of a service, to include in an application of one's own, under a prefix of one's own.

    `authenticate` says who asks; without it the service's own is used, and without that every request is refused. With the
    application the service is started and stopped. `body_limit` is in bytes. `streams` says how streams are kept.
    """
    kept = streams or Streams()
    keeper = Keeper(service.access, service.replies)
    around = Around(lambda: authenticate or service.authenticate or refuse, keeper, body_limit)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            kept.closing.set()
            await service.stop()

    made = APIRouter(route_class=route_class(around), lifespan=lifespan)
    _threads(made, service)
    _messages(made, service)
    _runs(made, service)
    _approvals(made, service)
    _streams(made, service, kept)
    return made


def _json(value: Any, status: int = 200) -> Response:
    return Response(encoded(value), status, HEADERS, "application/json")


def _threads(made: APIRouter, service: Service) -> None:
    tags: Any = ["threads"]

    @made.post(
        "/threads",
        status_code=201,
        operation_id="createThread",
        tags=tags,
        summary="Begin a conversation",
        response_model=models.Thread,
        responses=documented.WRITTEN,
    )
    async def create(asking: Asking, body: models.NewThread, key: Key = None) -> Response:
        """Makes a conversation of this person about a workspace."""
        found = await service.create_thread(asking, workspace=body.workspace, agent=body.agent, title=body.title, idempotency=key)
        return _json(answers.thread(found), 201)

    @made.get(
        "/threads",
        operation_id="listThreads",
        tags=tags,
        summary="List conversations",
        response_model=models.ThreadPage,
        responses=documented.READ,
    )
    async def threads(asking: Asking, after: After = None, limit: Limit = 50) -> Response:
        """This person's conversations, the newest first."""
        listing = await service.threads(asking, after=paging.place("threads", after), limit=limit)
        return _json(answers.page(listing, answers.thread, "threads"))

    @made.get(
        "/threads/{thread}",
        operation_id="getThread",
        tags=tags,
        summary="Read a conversation",
        response_model=models.Thread,
        responses=documented.READ,
    )
    async def thread(asking: Asking, thread: ThreadId) -> Response:
        """One conversation, without its messages."""
        return _json(answers.thread(await service.thread(asking, thread)))

    @made.put(
        "/threads/{thread}/leaf",
        operation_id="selectBranch",
        tags=tags,
        summary="Go back to a turn",
        response_model=models.Thread,
        responses=documented.PUT,
    )
    async def select(asking: Asking, thread: ThreadId, body: models.Leaf) -> Response:
        """The shown branch ends at this message from now on, and the next message follows it. Nothing is deleted."""
        return _json(answers.thread(await service.select(asking, thread, body.message)))


def _messages(made: APIRouter, service: Service) -> None:
    tags: Any = ["messages"]

    @made.get(
        "/threads/{thread}/messages",
        operation_id="listMessages",
        tags=tags,
        summary="List messages",
        response_model=models.MessagePage,
        responses=documented.READ,
    )
    async def messages(
        asking: Asking,
        thread: ThreadId,
        after: After = None,
        limit: Limit = 100,
        leaf: Annotated[
            str | None, Query(max_length=200, description="A message: lists the branch that ends there, not the shown one.")
        ] = None,
    ) -> Response:
        """The messages of one branch, the oldest first. An answer whose basis has changed since says so, with the changes."""
        listing = await service.messages(asking, thread, after=paging.place("messages", after), limit=limit, leaf=leaf)
        return _json(answers.page(listing, answers.message, "messages"))

    @made.get(
        "/threads/{thread}/messages/{message}",
        operation_id="getMessage",
        tags=tags,
        summary="Read a message",
        response_model=models.Message,
        responses=documented.READ,
    )
    async def message(asking: Asking, thread: ThreadId, message: MessageId) -> Response:
        """One message."""
        return _json(answers.message(await service.message(asking, thread, message)))

    @made.post(
        "/threads/{thread}/messages",
        status_code=202,
        operation_id="sendMessage",
        tags=tags,
        summary="Send a message",
        response_model=models.Sent,
        responses=documented.WRITTEN,
    )
    async def send(asking: Asking, thread: ThreadId, body: models.NewMessage, key: Key = None) -> Response:
        """Stores a person's message and the run that will answer it. The answer comes in the stream, and then in the list."""
        parent = body.parent if "parent" in body.model_fields_set else KEEP
        found = await service.send(asking, thread, body.text, parent=parent, on_busy=body.on_busy, idempotency=key)
        said = await service.message(asking, thread, found.message or "")
        return _json({"run": answers.run(found), "message": answers.message(said)}, 202)

    @made.post(
        "/threads/{thread}/messages/{message}/receipt",
        status_code=204,
        operation_id="confirmMessage",
        tags=tags,
        summary="Confirm that an answer was read",
        response_class=Response,
        responses=documented.POSTED,
    )
    async def receipt(asking: Asking, thread: ThreadId, message: MessageId, key: Key = None) -> Response:
        """Where the service waits for it, only this moves on what the conversation counts as told."""
        await service.receipt(asking, thread, message)
        return Response(status_code=204, headers=HEADERS)


def _runs(made: APIRouter, service: Service) -> None:
    tags: Any = ["runs"]

    @made.get(
        "/threads/{thread}/runs",
        operation_id="listRuns",
        tags=tags,
        summary="List runs",
        response_model=models.RunPage,
        responses=documented.READ,
    )
    async def runs(asking: Asking, thread: ThreadId, after: After = None, limit: Limit = 50) -> Response:
        """The runs of a conversation, the newest first."""
        listing = await service.runs(asking, thread, after=paging.place("runs", after), limit=limit)
        return _json(answers.page(listing, answers.run, "runs"))

    @made.get(
        "/threads/{thread}/runs/{run}",
        operation_id="getRun",
        tags=tags,
        summary="Read a run",
        response_model=models.Run,
        responses=documented.READ,
    )
    async def run(asking: Asking, thread: ThreadId, run: RunId) -> Response:
        """One run: how it stands, and how it ended."""
        return _json(answers.run(await service.run(asking, thread, run)))

    @made.post(
        "/threads/{thread}/runs/{run}/cancel",
        status_code=202,
        operation_id="cancelRun",
        tags=tags,
        summary="Stop a run",
        response_model=models.Run,
        responses=documented.POSTED,
    )
    async def cancel(asking: Asking, thread: ThreadId, run: RunId, key: Key = None) -> Response:
        """Stops a run soon; what it has answered so far is kept, marked as stopped. One that has ended stays as it is."""
        return _json(answers.run(await service.cancel(asking, thread, run)), 202)


def _approvals(made: APIRouter, service: Service) -> None:
    tags: Any = ["approvals"]

    @made.get(
        "/approvals",
        operation_id="listApprovals",
        tags=tags,
        summary="List approvals",
        response_model=models.ApprovalPage,
        responses=documented.READ,
    )
    async def approvals(
        asking: Asking,
        status: Annotated[ApprovalStatus | Literal["all"], Query(description="Only those in this state.")] = "open",
        thread: Annotated[str | None, Query(max_length=200, description="Only those of this conversation.")] = None,
        after: After = None,
        limit: Limit = 50,
    ) -> Response:
        """The approvals of the conversations that this person may see."""
        listing = await service.approvals(
            asking,
            thread=thread,
            status=None if status == "all" else status,
            after=paging.place("approvals", after),
            limit=limit,
        )
        return _json(answers.page(listing, answers.approval, "approvals"))

    @made.get(
        "/threads/{thread}/approvals/{approval}",
        operation_id="getApproval",
        tags=tags,
        summary="Read an approval",
        response_model=models.Approval,
        responses=documented.READ,
    )
    async def approval(asking: Asking, thread: ThreadId, approval: ApprovalId) -> Response:
        """One approval, with what has changed since the call was proposed."""
        return _json(answers.approval(await service.approval(asking, thread, approval)))

    @made.post(
        "/threads/{thread}/approvals/{approval}/decision",
        operation_id="decide",
        tags=tags,
        summary="Decide an approval",
        response_model=models.Approval,
        responses=documented.DECIDING,
    )
    async def decide(
        asking: Asking, thread: ThreadId, approval: ApprovalId, body: models.NewDecision, key: Key = None
    ) -> Response:
        """Decides about one tool call, and lets the run go on. The first decision stands; the same one again gets the same
        answer. Where something has changed since, the problem `outdated` tells what, and which revisions to confirm."""
        decision = Decision(body.type, body.arguments, body.message, body.confirmed or {})
        return _json(answers.approval(await service.decide(asking, thread, approval, decision)))


def _streams(made: APIRouter, service: Service, kept: Streams) -> None:
    tags: Any = ["streams"]

    @made.get(
        "/threads/{thread}/stream",
        operation_id="streamThread",
        tags=tags,
        summary="Follow a conversation",
        status_code=200,
        response_class=Response,
        responses=documented.THREAD_STREAM,
    )
    async def stream(
        request: Request,
        asking: Asking,
        thread: ThreadId,
        after: AfterEvent = None,
        until: Annotated[
            Literal["done"] | None, Query(description="`done`: ends with the run that is going on. Left out, it goes on.")
        ] = None,
        last_event_id: LastEventId = None,
    ) -> Response:
        """The events of a conversation as server-sent events: what there is after a place, and then what comes.

        Events with an `id` are stored: cut anywhere and resumed there, each comes exactly once. Text as it is written
        (`assistant.delta`) has none and is a preview; the stored message comes in `assistant.completed`. Each run's events
        end with `done`.
        """
        place = sse.last_event(request, after) or 0
        await service.thread(asking, thread)
        events = service.stream(asking, thread, after=place, until_done=until == "done")
        return EventStream(_events(events), kept)

    @made.get(
        "/workspaces/{workspace:path}/changes",
        operation_id="streamChanges",
        tags=tags,
        summary="Follow a workspace",
        status_code=200,
        response_class=Response,
        responses=documented.CHANGE_STREAM,
    )
    async def changes(
        request: Request, asking: Asking, workspace: WorkspaceId, after: AfterEvent = None, last_event_id: LastEventId = None
    ) -> Response:
        """The changes of a workspace's rows that this person may read, as server-sent events of type `change`. The id is
        the revision. Without a place it begins with what changes from now on. An event of type `gap` says that the log
        does not reach back to the place that was asked for: read anew what you show."""
        found = service.changes(asking, workspace, after=sse.last_event(request, after))
        first = await anext(found)  # who may not follow it is told so before the stream begins
        return EventStream(_changes(first, found), kept)


def _closing(found: AsyncIterator[T]) -> aclosing[AsyncGenerator[T, None]]:
    """The service's streams are generators: they let go of what they hold when they are closed."""
    return aclosing(cast("AsyncGenerator[T, None]", found))


async def _events(found: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async with _closing(found):
        async for one in found:
            yield sse.formatted(one.type, one.data, one.id)


async def _changes(first: Fed, rest: AsyncIterator[Fed]) -> AsyncIterator[bytes]:
    """The changes as events. A place that moves without a change that this person may read, or before the first one, is an
    id alone: a browser remembers it and tells nobody, so that what happens while it is away is not lost."""
    async with _closing(rest):
        at, fed = None, first
        while True:
            if fed.gap:
                yield sse.formatted("gap", {"revision": fed.to})
            for one in fed.events:
                at = one.revision
                yield sse.formatted("change", answers.change(one), at)
            if fed.to != at:
                at = fed.to
                yield sse.place(at)
            fed = await anext(rest)
