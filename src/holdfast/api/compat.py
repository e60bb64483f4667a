"""Routes as tools of the function-block notation know them: executions, the blackboard, workers and definitions.

Each is another face of a native verb and decides nothing itself. Like every route they need a token with a role, and
see what belongs to its tenant only.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.core.errors import (
    AmbiguousId,
    ExecutionEnded,
    InvalidDefinition,
    InvalidRequest,
    NoteMissing,
    StoreFull,
    StoreReadOnly,
    UnknownExecution,
    UnknownWorkflow,
    WrongStatus,
)
from holdfast.core.model import JobStatus, Status
from holdfast.core.views import ExecutionView, JobView, Progress, WorkerView
from holdfast.language.foreign import is_version, version_of

from .auth import Role
from .bodies import ReasonQuery
from .routes import Call, Nothing, Table

routes = Table("compat")
_UNKNOWN = (UnknownExecution, AmbiguousId)
_WRITING = (StoreFull, StoreReadOnly)
_ACTIVE = tuple(status for status in Status if not status.is_ended)
#: what the blackboard calls a job; one that has a result was pushed
_STATES = {JobStatus.PENDING: "PENDING", JobStatus.SENDING: "PENDING", JobStatus.SENT: "PENDING",
           JobStatus.STARTED: "POLLED", JobStatus.RESCHEDULED: "PENDING"}  # fmt: skip
Limit = Annotated[int, Meta(ge=1, le=500)]


class Listing(msgspec.Struct, forbid_unknown_fields=True):
    """The newest come first."""

    limit: Limit = 100


class Board(msgspec.Struct, forbid_unknown_fields=True):
    #: of that execution only
    execution: Annotated[str, Meta(max_length=32)] = ""
    #: of so many executions, the newest first
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class BoardJob(msgspec.Struct, frozen=True, rename="camel"):
    """A job on the blackboard."""

    uuid: str
    execution_id: str
    job_type: str
    #: PENDING, POLLED (a worker has it) or PUSHED (it has ended)
    state: str
    status: str
    label: str
    function_block: str
    attempt: int
    worker: str
    effect: str
    result: Any
    message: str


class WorkflowExecution(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    uuid: str
    workflow: str
    status: str
    #: why it failed or was cancelled
    reason: str
    progress: Progress
    #: nothing is left to be cleaned up
    settled: bool
    #: why it is not moving
    retry_note: str
    #: only in answers about one execution
    jobs: list[BoardJob] = []


class ExecuteOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    #: ids of entities
    ids: Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=10_000)] = []


class ExecuteBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    #: `package/name`, or `package/name:version`; the version may be given in part
    workflow: Annotated[str, Meta(min_length=1, max_length=200)]
    execute_on_parameters: ExecuteOn = ExecuteOn()
    parameters: dict[str, Any] = {}


class Started(msgspec.Struct, frozen=True):
    uuid: str


class SignedAck(msgspec.Struct, forbid_unknown_fields=True):
    #: a person, where a program asks for them; the token's name is written down in any case
    by: Annotated[str, Meta(max_length=200)] = ""
    note: Annotated[str, Meta(max_length=4096)] = ""


class DefinitionBody(msgspec.Struct, forbid_unknown_fields=True):
    workflow: dict[str, Any]


class PublishedDefinition(msgspec.Struct, frozen=True):
    #: `package/name`
    name: str
    #: `x.y.z` where the definition says so
    version: str


# --- executions --------------------------------------------------------------------------------------
@routes.add("GET", "/workflow-execution/active", role=Role.VIEWER, query=Listing, answer=list[WorkflowExecution])
def active(call: Call[Listing, None]) -> list[WorkflowExecution]:
    """Executions that have not ended, the newest first."""
    return [_shown(view) for view in call.service.executions(call.actor, statuses=_ACTIVE, limit=call.query.limit)]


@routes.add("GET", "/workflow-execution/id/{id}", role=Role.VIEWER, answer=WorkflowExecution, refusals=_UNKNOWN)
def one(call: Call[Nothing, None]) -> WorkflowExecution:
    """One execution with its jobs."""
    view = call.service.show(call.actor, call.path["id"])
    jobs = [_job(view.id, job) for job in call.service.jobs(call.actor, view.id)]
    return msgspec.structs.replace(_shown(view), jobs=jobs)


@routes.add("GET", "/workflow-execution/state/{state}", role=Role.VIEWER, query=Listing,
            answer=list[WorkflowExecution])  # fmt: skip
def in_state(call: Call[Listing, None]) -> list[WorkflowExecution]:
    """Executions with that status, in upper or lower case."""
    name = call.path["state"]
    try:
        status = Status[name.upper()]
    except KeyError:
        known = ", ".join(status.name for status in Status)
        raise InvalidRequest(f"state: there is no {name[:40]!r}; known are {known}") from None
    return [_shown(view) for view in call.service.executions(call.actor, statuses=(status,), limit=call.query.limit)]


@routes.add("POST", "/workflow-execution", role=Role.OPERATOR, body=ExecuteBody, answer=Started, status=201,
            refusals=(UnknownWorkflow, InvalidDefinition, *_WRITING))  # fmt: skip
def execute(call: Call[Nothing, ExecuteBody]) -> Started:
    """Start a published workflow, on the entities with those ids."""
    body = call.body
    workflow = _version(call, body.workflow)
    view = call.service.start(
        call.actor, workflow=workflow, input=body.parameters, entities=tuple(body.execute_on_parameters.ids)
    )
    return Started(view.id)


@routes.add("DELETE", "/workflow-execution/{id}", role=Role.OPERATOR, query=ReasonQuery, answer=WorkflowExecution,
            refusals=(*_UNKNOWN, ExecutionEnded, WrongStatus, *_WRITING))  # fmt: skip
def abort(call: Call[ReasonQuery, None]) -> WorkflowExecution:
    """Cancel an execution: no new jobs, running ones are told and waited for, then rollback if that is configured."""
    return _shown(call.service.cancel(call.actor, call.path["id"], call.query.reason))


@routes.add("POST", "/workflow-execution/{id}/ack", role=Role.OPERATOR, body=SignedAck, answer=WorkflowExecution,
            refusals=(*_UNKNOWN, WrongStatus, NoteMissing, *_WRITING))  # fmt: skip
def ack(call: Call[Nothing, SignedAck]) -> WorkflowExecution:
    """Acknowledge how an execution ended; a note is needed where something is left behind."""
    body = call.body
    note = f"{body.note} (by {body.by})" if body.by and body.note else body.note
    return _shown(call.service.ack(call.actor, call.path["id"], note))


def _version(call: Call[Any, Any], reference: str) -> str:
    """`name:version` as published here, for a version that the definition itself says."""
    name, _, wanted = reference.partition(":")
    if not wanted:
        return name
    for view in call.service.workflows(call.actor, name):
        version = version_of(call.service.workflow(call.actor, name, view.version).definition)
        if version and is_version(wanted, version):
            return f"{name}:{view.version}"
    raise UnknownWorkflow(f"workflow {name!r} has no version {wanted[:40]!r}")


def _shown(view: ExecutionView) -> WorkflowExecution:
    reason = view.error.message if view.error is not None else ""
    if not reason and view.status.startswith("CANCELLED"):
        reason = "cancelled"
    return WorkflowExecution(
        view.id, view.id, view.workflow, view.status, reason, view.progress, view.is_ended, "; ".join(view.waiting)
    )


# --- the blackboard ------------------------------------------------------------------------------------
@routes.add("GET", "/blackboard/jobs", role=Role.VIEWER, query=Board, answer=list[BoardJob], refusals=_UNKNOWN)
def jobs(call: Call[Board, None]) -> list[BoardJob]:
    """The jobs of the newest executions, also those that have ended."""
    return _board(call, ())


@routes.add("GET", "/blackboard/jobs/active", role=Role.VIEWER, query=Board, answer=list[BoardJob], refusals=_UNKNOWN)
def active_jobs(call: Call[Board, None]) -> list[BoardJob]:
    """Jobs that wait for a worker or are with one."""
    return [job for job in _board(call, _ACTIVE) if job.state != "PUSHED"]


def _board(call: Call[Board, None], statuses: tuple[Status, ...]) -> list[BoardJob]:
    query = call.query
    if query.execution:
        ids = [call.service.resolve(call.actor, query.execution)]
    else:
        ids = [view.id for view in call.service.executions(call.actor, statuses=statuses, limit=query.limit)]
    return [_job(id, job) for id in ids for job in call.service.jobs(call.actor, id)]


def _job(id: str, job: JobView) -> BoardJob:
    return BoardJob(
        f"{id}:{job.job}", id, job.kind, _STATES.get(JobStatus[job.status.upper()], "PUSHED"), job.status, job.step,
        job.block, job.attempt, job.worker, job.effect, job.result, job.error.message if job.error is not None else "",
    )  # fmt: skip


# --- workers and blocks --------------------------------------------------------------------------------
@routes.add("GET", "/workers/online", role=Role.VIEWER, answer=list[WorkerView])
def online(call: Call[Nothing, None]) -> list[WorkerView]:
    """Workers that are online."""
    return [worker for worker in call.service.workers() if worker.state == "online"]


@routes.add("GET", "/function-blocks/{package}/{block}/{version}/workers", role=Role.VIEWER, answer=list[WorkerView])
def offering(call: Call[Nothing, None]) -> list[WorkerView]:
    """Workers online that offer that version of a block; the version may be given in part."""
    name, wanted = f"{call.path['package']}/{call.path['block']}", call.path["version"]
    found = [block for block in call.service.blocks() if block.name == name and is_version(wanted, block.version)]
    names = {worker for block in found for worker in block.workers}
    return [worker for worker in online(call) if worker.name in names]


# --- definitions ---------------------------------------------------------------------------------------
@routes.add("POST", "/workflow-definition/publish", role=Role.AUTHOR, body=DefinitionBody, answer=PublishedDefinition,
            status=201, refusals=(InvalidDefinition, *_WRITING))  # fmt: skip
def publish(call: Call[Nothing, DefinitionBody]) -> PublishedDefinition:
    """Publish a definition; the same one again changes nothing."""
    view = call.service.publish(call.actor, call.body.workflow)
    return PublishedDefinition(view.name, version_of(view.definition))
