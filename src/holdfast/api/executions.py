"""Routes of executions: start, list, look, follow, signal, cancel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from holdfast.core.errors import (
    AmbiguousId,
    BadArchive,
    DuplicateExecution,
    ExecutionEnded,
    InvalidDefinition,
    InvalidRequest,
    KeyReused,
    StoreFull,
    StoreReadOnly,
    UnknownBlob,
    UnknownEntity,
    UnknownExecution,
    UnknownWorkflow,
    UnsafeUnseen,
    WrongStatus,
)
from holdfast.core.ids import is_id
from holdfast.core.model import Status
from holdfast.core.views import ExecutionView, WhyView
from holdfast.engine import forgetting
from holdfast.engine.engine import new_execution_id
from holdfast.engine.items import Reply as Callback
from holdfast.engine.wishes import Existing
from holdfast.language import load_workflow
from holdfast.store.records import Header

from . import streams
from .auth import Role
from .bodies import (
    CancelBody,
    EventPage,
    EventsQuery,
    ExecutionPage,
    JobList,
    ListQuery,
    LogPage,
    LogsQuery,
    ReasonQuery,
    SignalBody,
    StartBody,
    StreamQuery,
    WaitQuery,
)
from .routes import API, SSE, Call, Nothing, Reply, Stream, Table
from .waiting import Listener

routes = Table("executions")
_ONE = f"{API}/executions/{{id}}"
_UNKNOWN = (UnknownExecution, AmbiguousId)
_WRITING = (StoreFull, StoreReadOnly)


# --- starting and listing --------------------------------------------------------------------------
@routes.add(
    "POST", f"{API}/executions", role=Role.OPERATOR, query=WaitQuery, body=StartBody, answer=ExecutionView, status=201,
    also={200: "The execution that the same key started before"},
    refusals=(UnknownWorkflow, UnknownEntity, InvalidDefinition, KeyReused, DuplicateExecution, *_WRITING),
)  # fmt: skip
async def start(call: Call[WaitQuery, StartBody]) -> Reply:
    """Start an execution of a published workflow, or with an inline definition (role author).

    `wait` holds the answer back until it has ended."""
    body = call.body
    key = key_of(call, body.key)
    is_inline = body.definition is not None or bool(body.source)
    if (body.definition is not None) + bool(body.source) + bool(body.workflow) != 1:
        raise InvalidRequest("give exactly one of workflow, definition and source")
    if is_inline:
        assert call.caller is not None
        call.caller.need(Role.AUTHOR, "an inline definition")
    id = body.id or new_execution_id()
    entities, select = upon(body)

    def ask(reply: Callback) -> None:
        definition = load_workflow(body.source, "source")[0] if body.source else body.definition
        call.service.submit_start(
            call.actor, workflow=body.workflow, definition=definition, input=body.input, key=key,
            labels=body.labels, id=id, entity=body.entity, entities=entities, select=select, gates=body.gates,
            priority=body.priority, reply=reply,
        )  # fmt: skip

    async def submit() -> Header | Existing:
        if is_inline or len(call.raw) > 16 * 1024:
            # Compiling takes long enough to be noticed by others.
            answer: Header | Existing = await call.app.commit_from_thread(ask)
        else:
            answer = await call.app.waiting.commit(ask)
        return answer

    return await begun(call, id, submit)


async def begun(call: Call[WaitQuery, Any], id: str, submit: Callable[[], Awaitable[Header | Existing]]) -> Reply:
    """The answer to whatever starts the execution of that id, or finds the one that the same key started before."""
    answer: Header | Existing | None
    if not call.query.wait:
        answer = await submit()
    else:
        # Listened to before it begins: no end can be missed.
        with call.app.waiting.listen(call.service.engine, id, for_end=True) as listener:
            answer = await submit()
            if isinstance(answer, Header) and not answer.status.is_ended:
                answer = await until_ended(call, listener, id)
    status = 201
    if isinstance(answer, Existing):
        status, id = 200, answer.execution
        view = await (_ended(call, id) if call.query.wait else call.app.threaded(_show, call, id))
    elif answer is None:
        view = await call.app.threaded(_show, call, id)  # as it is now that the time is over
    else:
        view = call.service.known(answer) or await call.app.threaded(call.service.started, call.actor, answer)
    return Reply(view, status=status, headers={"location": f"{API}/executions/{id}"})


def key_of(call: Call[Any, Any], said: str) -> str:
    """The idempotency key, which may be in the body or in a header."""
    given = call.header(b"idempotency-key")
    if given and said and given != said:
        raise InvalidRequest("the header Idempotency-Key and the field key differ")
    key = said or given
    if len(key) > 255 or not key.isprintable():
        raise InvalidRequest("an idempotency key has at most 255 printable characters")
    return key


def upon(body: StartBody) -> tuple[list[str], list[str]]:
    """Ids and selectors of what it works upon."""
    entities = [*body.entities, *(body.execute_on.ids if body.execute_on is not None else ())]
    return entities, [body.select] if isinstance(body.select, str) else body.select


async def _ended(call: Call[WaitQuery, Any], id: str) -> ExecutionView:
    """The execution once it has ended, or as it is when the time is over."""
    with call.app.waiting.listen(call.service.engine, id, for_end=True) as listener:
        header = await call.app.looks.header(id)
        if header is None or header.tenant != call.actor.tenant:
            raise UnknownExecution(call.service.unknown(id))
        if not header.status.is_ended:
            header = await until_ended(call, listener, id)
    view = call.service.known(header) if header is not None else None
    return view or await call.app.threaded(_show, call, id)


async def until_ended(call: Call[WaitQuery, Any], listener: Listener, id: str, run: int = 1) -> Header | None:
    """Its header once that run, or a later one, has ended; nothing if that does not happen in time."""
    loop = call.app.waiting.loop
    until = loop.time() + call.query.wait
    pause = streams.LOOK_AGAIN if call.service.store.is_shared else call.query.wait
    while (left := until - loop.time()) > 0 and not listener.is_closing:
        await listener.wait(min(left, pause))
        header = listener.header or await call.app.looks.header(id)
        if header is not None and header.status.is_ended and header.run >= run:
            return header
    return None


@routes.add("GET", f"{API}/executions", role=Role.VIEWER, query=ListQuery, answer=ExecutionPage)
def listing(call: Call[ListQuery, None]) -> ExecutionPage:
    """Executions, newest first."""
    query = call.query
    if query.before and not is_id(query.before):
        raise InvalidRequest("before: is the `next` of the page before, a whole execution id")
    statuses = tuple(_status(name) for name in query.status)
    found = call.service.executions(
        call.actor, statuses=statuses, workflow=query.workflow, before=query.before, limit=query.limit + 1
    )
    page = found[: query.limit]
    return ExecutionPage(page, page[-1].id if len(found) > len(page) else None)


def _status(name: str) -> Status:
    try:
        return Status[name.upper()]
    except KeyError:
        known = ", ".join(status.name for status in Status)
        raise InvalidRequest(f"status: there is no {name!r}; known are {known}") from None


# --- looking ---------------------------------------------------------------------------------------
@routes.add("GET", _ONE, role=Role.VIEWER, query=WaitQuery, answer=ExecutionView, refusals=_UNKNOWN)
async def show(call: Call[WaitQuery, None]) -> Reply:
    """One execution; `wait` holds the answer back until it has ended."""
    id = call.path["id"].lower()
    if not call.query.wait:
        return Reply(await call.app.threaded(_show, call, id))
    return Reply(await _ended(call, id if is_id(id) else await call.app.threaded(_id, call)))


def _show(call: Call[Any, Any], id: str) -> ExecutionView:
    return call.service.show(call.actor, id or call.path["id"])


@routes.add(
    "GET", f"{_ONE}/events", role=Role.VIEWER, query=EventsQuery, answer=EventPage, streams=True, refusals=_UNKNOWN
)
async def events(call: Call[EventsQuery, None]) -> Reply | Stream:
    """Events numbered above `after`; a page, or a stream for `Accept: text/event-stream`."""
    if streams.wants_stream(call):
        return streams.events(call, await call.app.threaded(_id, call), call.query.after)
    return Reply(data=await call.app.threaded(_events, call))


def _id(call: Call[Any, Any]) -> str:
    return call.id


def _events(call: Call[EventsQuery, None]) -> bytes:
    query = call.query
    found = call.service.events(call.actor, call.id, query.after, query.limit)
    page = EventPage(found, found[-1]["seq"] if len(found) == query.limit else None)
    return call.app.encode(page)


@routes.add("GET", f"{_ONE}/events/stream", role=Role.VIEWER, query=StreamQuery, media=SSE, refusals=_UNKNOWN)
async def event_stream(call: Call[StreamQuery, None]) -> Stream:
    """Events as they happen; ends with `event: end`. Goes on after `Last-Event-ID`."""
    return streams.events(call, await call.app.threaded(_id, call), call.query.after)


@routes.add("GET", f"{_ONE}/logs", role=Role.VIEWER, query=LogsQuery, answer=LogPage, streams=True, refusals=_UNKNOWN)
async def logs(call: Call[LogsQuery, None]) -> Reply | Stream:
    """Log lines numbered above `after`; a page, or a stream with `follow` or `Accept: text/event-stream`."""
    if call.query.follow or streams.wants_stream(call):
        return streams.logs(call, await call.app.threaded(_id, call), call.query.after)
    return Reply(data=await call.app.threaded(_logs, call))


def _logs(call: Call[LogsQuery, None]) -> bytes:
    query = call.query
    found = call.service.logs(call.actor, call.id, query.after, query.limit)
    return call.app.encode(LogPage(found, found[-1].number if len(found) == query.limit else None))


@routes.add("GET", f"{_ONE}/logs/stream", role=Role.VIEWER, query=StreamQuery, media=SSE, refusals=_UNKNOWN)
async def log_stream(call: Call[StreamQuery, None]) -> Stream:
    """Log lines as they are written; ends with `event: end`. Goes on after `Last-Event-ID`."""
    return streams.logs(call, await call.app.threaded(_id, call), call.query.after)


@routes.add("GET", f"{_ONE}/jobs", role=Role.VIEWER, answer=JobList, refusals=_UNKNOWN)
def jobs(call: Call[Nothing, None]) -> JobList:
    """The jobs of an execution as its history tells them."""
    return JobList(call.service.jobs(call.actor, call.path["id"]))


@routes.add("GET", f"{_ONE}/why", role=Role.VIEWER, answer=WhyView, refusals=_UNKNOWN)
def why(call: Call[Nothing, None]) -> WhyView:
    """Why an execution is where it is, and what would move it."""
    return call.service.why(call.actor, call.path["id"])


@routes.add("GET", f"{_ONE}/definition", role=Role.VIEWER, answer=Any, refusals=(*_UNKNOWN, UnknownWorkflow))
def definition(call: Call[Nothing, None]) -> Any:
    """The definition that this execution runs."""
    found = call.service.definition(call.actor, call.id)
    if found is None:
        raise UnknownWorkflow("the definition of this execution is not stored any more")
    return found


@routes.add("GET", f"{_ONE}/blobs/{{digest}}", role=Role.VIEWER, answer=Any, refusals=(*_UNKNOWN, UnknownBlob))
def blob(call: Call[Nothing, None]) -> Any:
    """A long value that events refer to as `$blob`."""
    return call.service.blob(call.actor, call.id, call.path["digest"].lower())


# --- acting ----------------------------------------------------------------------------------------
@routes.add(
    "POST", f"{_ONE}/signal", role=Role.OPERATOR, body=SignalBody, answer=ExecutionView,
    refusals=(*_UNKNOWN, ExecutionEnded, WrongStatus, *_WRITING),
)  # fmt: skip
async def signal(call: Call[Nothing, SignalBody]) -> Reply:
    """Send a message to an execution; kept until a step waits for it."""
    id = await call.app.threaded(_id, call)
    body, engine = call.body, call.service.engine
    await call.app.waiting.commit(lambda reply: engine.signal(id, body.name, body.value, call.actor, reply, body.key))
    return Reply(await call.app.threaded(_show, call, id))


@routes.add(
    "POST", f"{_ONE}/cancel", role=Role.OPERATOR, body=CancelBody, answer=ExecutionView,
    refusals=(*_UNKNOWN, ExecutionEnded, WrongStatus, *_WRITING),
)  # fmt: skip
async def cancel(call: Call[Nothing, CancelBody]) -> Reply:
    """Stop an execution: no new steps, running jobs are told and waited for."""
    mode = call.body.mode
    if mode != "cancel":
        raise InvalidRequest(f"mode: {mode!r} is not offered; the only mode so far is 'cancel'")
    return await _cancel(call, call.body.reason)


@routes.add(
    "DELETE", _ONE, role=Role.OPERATOR, query=ReasonQuery, answer=ExecutionView,
    refusals=(*_UNKNOWN, ExecutionEnded, WrongStatus, *_WRITING),
)  # fmt: skip
async def remove(call: Call[ReasonQuery, None]) -> Reply:
    """The same as cancel. The history stays; `purge` forgets it."""
    return await _cancel(call, call.query.reason)


async def _cancel(call: Call[Any, Any], reason: str) -> Reply:
    id = await call.app.threaded(_id, call)
    await call.app.waiting.commit(partial(call.service.engine.cancel, id, reason, call.actor))
    return Reply(await call.app.threaded(_show, call, id))


@routes.add(
    "POST", f"{_ONE}/purge", role=Role.OPERATOR, answer=ExecutionView,
    refusals=(*_UNKNOWN, WrongStatus, UnsafeUnseen, BadArchive, *_WRITING),
)  # fmt: skip
def purge(call: Call[Nothing, None]) -> ExecutionView:
    """Purge an execution that has ended: its history is forgotten, and archived before where that is set up.

    The answer is the last that is seen of it."""
    return forgetting.purge(call.service, call.actor, call.path["id"])
