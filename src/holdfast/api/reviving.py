"""Routes of executions that wait for people or have ended: where they stand, resume, replay, approve."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.core.errors import (
    AmbiguousApproval,
    AmbiguousId,
    CannotReplay,
    CannotResume,
    ChangedHands,
    ExecutionEnded,
    InvalidRequest,
    NothingToApprove,
    StoreFull,
    StoreReadOnly,
    UnknownExecution,
    UnknownStep,
    WrongStatus,
)
from holdfast.core.requests import CancelExecution, ReplayExecution, ResumeExecution
from holdfast.core.views import ExecutionView, StandingView
from holdfast.engine.reviving import replaying, resuming
from holdfast.store.records import Header

from .auth import Role
from .bodies import ActionBody, ApprovalBody, ApprovalList, ReplayBody, ResumeBody, WaitQuery
from .executions import until_ended
from .routes import API, Call, Nothing, Reply, Table

routes = Table("reviving")
_ONE = f"{API}/executions/{{id}}"
_UNKNOWN = (UnknownExecution, AmbiguousId)
_WRITING = (StoreFull, StoreReadOnly)
_GOING_ON = (*_UNKNOWN, WrongStatus, CannotResume, CannotReplay, ChangedHands, UnknownStep, *_WRITING)


@routes.add("GET", f"{_ONE}/standing", role=Role.VIEWER, answer=StandingView, refusals=_UNKNOWN)
def standing(call: Call[Nothing, None]) -> StandingView:
    """Where the lanes of an execution are, its waypoints, and whether it could be resumed."""
    return call.service.standing(call.actor, call.path["id"])


# --- resume and replay -----------------------------------------------------------------------------
@routes.add(
    "POST", f"{_ONE}/resume", role=Role.OPERATOR, query=WaitQuery, body=ResumeBody, answer=ExecutionView,
    refusals=_GOING_ON,
)  # fmt: skip
async def resume(call: Call[WaitQuery, ResumeBody]) -> Reply:
    """Let an execution that failed or was cancelled carry on where it stands; `force` needs the role admin.

    With `dry_run` nothing happens, and `plan` of the answer says what would. `wait` holds the answer back until the
    new run has ended."""
    body = call.body
    return await _go_on(call, resuming(call.actor, body.force, body.reason, body.accept_changes), body.dry_run)


@routes.add(
    "POST", f"{_ONE}/replay", role=Role.OPERATOR, query=WaitQuery, body=ReplayBody, answer=ExecutionView,
    refusals=_GOING_ON,
)  # fmt: skip
async def replay(call: Call[WaitQuery, ReplayBody]) -> Reply:
    """Do again what follows a waypoint, or any step with `force`, which needs the role admin.

    With `dry_run` nothing happens, and `plan` of the answer says what would. `wait` holds the answer back until the
    new run has ended."""
    body = call.body
    return await _go_on(call, replaying(call.actor, body.start, body.force, body.reason), body.dry_run)


@routes.add(
    "POST", _ONE, role=Role.OPERATOR, query=WaitQuery, body=ActionBody, answer=ExecutionView,
    refusals=(*_GOING_ON, ExecutionEnded),
)  # fmt: skip
async def act(call: Call[WaitQuery, ActionBody]) -> Reply:
    """Cancel, resume or replay an execution: the verb is in the body."""
    body = call.body
    if body.start and body.action != "replay":
        raise InvalidRequest(f"from: goes with the action 'replay', not with {body.action!r}")
    if body.action == "replay":
        return await _go_on(call, replaying(call.actor, body.start, body.force, body.reason), body.dry_run)
    if body.action == "resume":
        return await _go_on(call, resuming(call.actor, body.force, body.reason), body.dry_run)
    if body.force or body.dry_run:
        raise InvalidRequest("force and dry_run go with the actions 'resume' and 'replay'")
    return await _go_on(call, CancelExecution(body.reason, call.actor), False)


async def _go_on(
    call: Call[WaitQuery, Any], request: ResumeExecution | ReplayExecution | CancelExecution, is_dry: bool
) -> Reply:
    engine = call.service.engine
    if not isinstance(request, CancelExecution):
        if is_dry:
            return Reply(await call.app.threaded(call.service.plan, call.actor, call.path["id"], request))
        if request.is_forced:
            assert call.caller is not None
            call.caller.need(Role.ADMIN, "force")
    id = await call.app.threaded(_id, call)
    answer: Header | None
    # Listened to before it begins: no end can be missed.
    with call.app.waiting.listen(engine, id, for_end=True) as listener:
        answer = await call.app.waiting.commit(partial(engine.ask, id, request))
        if call.query.wait and answer is not None and not answer.status.is_ended:
            # An end of an earlier run is none of this one.
            await until_ended(call, listener, id, answer.run)
    return Reply(await call.app.threaded(call.service.show, call.actor, id))


def _id(call: Call[Any, Any]) -> str:
    return call.id


# --- approvals -------------------------------------------------------------------------------------
@routes.add("GET", f"{API}/approvals", role=Role.VIEWER, answer=ApprovalList)
def approvals(call: Call[Nothing, None]) -> ApprovalList:
    """Steps and gates that wait for somebody's approval."""
    return ApprovalList(call.service.approvals(call.actor))


@routes.add(
    "POST", f"{_ONE}/approvals/{{step}}", role=Role.OPERATOR, body=ApprovalBody, answer=ExecutionView,
    refusals=(*_UNKNOWN, NothingToApprove, AmbiguousApproval, ExecutionEnded, *_WRITING),
)  # fmt: skip
async def approve(call: Call[Nothing, ApprovalBody]) -> Reply:
    """Approve or reject a step that waits for it; `-` stands for the one that waits. Your name goes with it."""
    id = await call.app.threaded(_id, call)
    step = "" if call.path["step"] == "-" else call.path["step"]
    approved, note = call.body.approved, call.body.note
    await call.app.commit_from_thread(
        lambda reply: call.service.submit_approval(call.actor, id, step, approved, note, reply)
    )
    return Reply(await call.app.threaded(call.service.show, call.actor, id))
