"""The way of an error: handlers, `finally`, the lane, its parent; and stopping a lane that is in the middle of it.

What fails stays where it stands: handlers lie on top of it, so that a retry or a resume can go on there. Nothing
is taken away before the error is handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.core.lanes import BODY, ENTERING, FINALLY, HANDLER, REENTERING, ROOT_LANE, WAITING, Frame, Op
from holdfast.core.model import Failure, JobStatus, Wait
from holdfast.core.program import Advance, Fail, StopAsked, StopJob, Stopped

from . import again, entities, fanout, flow, sharing
from .walk import Walk

if TYPE_CHECKING:
    from .interpret import Run

#: nobody handles these: the lane is being stopped from outside
STOPPING = frozenset(("cancelled", "stopped"))
#: not a body of the step: its lanes failed, and what it says of handlers was said to each of them
NESTED = -3
#: an error that everybody may handle
NEVER = 1 << 30
#: causes of causes that are kept
MAX_CAUSES = 5


class Raised(Exception):
    """A step fails with this."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


# --- errors ----------------------------------------------------------------------------------------
def job_failed(run: Run, walk: Walk, failure: Failure, is_repeatable: bool) -> bool:
    step = walk.here()
    found = msgspec.structs.replace(failure, step=step.label, is_repeatable=is_repeatable)
    return propagate(run, walk, found, walk.depth - 1)


def raised(run: Run, walk: Walk, failure: Failure) -> bool:
    """An error of the step the lane stands at."""
    walk.local = walk.asking = None
    if walk.phase in (ENTERING, REENTERING):
        # Not inside yet: what holds for the lane as a whole failed, its lock for instance.
        walk.set_phase(BODY)
        return propagate(run, walk, _placed(failure, run.label(walk.scope_owner)), -1)
    if walk.position >= len(walk.body):
        # The body's end: what fails here belongs to nobody inside.
        return propagate(run, walk, _placed(failure, run.label(walk.scope_owner)), -1, HANDLER)
    step = walk.here()
    if step.kind == "fail" or not step.is_idempotent:
        failure = msgspec.structs.replace(failure, is_repeatable=False)
    return propagate(run, walk, _placed(failure, step.label), walk.depth - 1)


def _placed(failure: Failure, label: str) -> Failure:
    return failure if failure.step else msgspec.structs.replace(failure, step=label)


def propagate(run: Run, walk: Walk, failure: Failure, at: int, came: int = 0, until: int = NEVER) -> bool:
    """From the step that stands in frame `at` outwards, until somebody handles it. `came` says from which body of
    that step the error comes: its own work, its handler or its `finally`. Nobody in a frame from `until` on may
    handle it: there it only cleans up."""
    handled = walk.failure()
    if handled is not None and came == 0 and failure.cause is None and not _is_thrown_again(failure, handled):
        failure = msgspec.structs.replace(failure, cause=_shortened(handled))
    while True:
        if came == FINALLY and (left := _left(walk, at)) is not None:
            # An error of its own does not change where the lane was going: out of what is being stopped.
            until = min(until, left.then[1]) if left.then is not None and left.then[0] == "until" else until
            if left.error is not None and left.error.kind in STOPPING and failure.kind not in STOPPING:
                failure = msgspec.structs.replace(left.error, cause=_shortened(failure))
        is_stopping = failure.kind in STOPPING
        if at < 0:
            break
        step = walk.step_at(at)
        is_handled = not is_stopping and at < until
        walk.cancel_timer(at)
        if came == 0 and step.on_error and is_handled:
            return _lay(walk, step.index, HANDLER, at + 1, failure)
        if step.continues and came != FINALLY and is_handled:
            # Before `finally`, which follows a tolerated error as it follows success.
            walk.cut(at + 1)
            walk.drop()
            return flow.tolerated(run, walk, step, failure)
        if came in (0, HANDLER) and step.cleanup:
            return _lay(walk, step.index, FINALLY, at + 1, failure, until)
        frame = walk.frames[at]
        came, at = (frame.body, frame.base - 1) if frame.body in (HANDLER, FINALLY) else (0, at - 1)
    owner = run.workflow.owner_of(walk.scope_owner)
    if owner is not None:
        if came == 0 and owner.on_error and not is_stopping:
            return _lay(walk, walk.scope_owner, HANDLER, 0, failure)
        if came != FINALLY and owner.cleanup:
            return _lay(walk, walk.scope_owner, FINALLY, 0, failure)
        if owner.automatically and failure.kind == "outcome-unknown" and walk.waypoints:
            walk.logs.append(again.noted(run, f"the outcome is unknown ({failure.message}); replays from its waypoint"))
            walk.replay(next(reversed(walk.waypoints)))
            return True
    return fail(run, walk, failure)


def _left(walk: Walk, at: int) -> Frame | None:
    """The `finally` of the step in frame `at`, or of the lane, that an error comes out of."""
    return next((frame for frame in reversed(walk.frames) if frame.body == FINALLY and frame.base == at + 1), None)


def _is_thrown_again(failure: Failure, handled: Failure) -> bool:
    """It is not its own cause; that it is meant is all that is new about it."""
    return msgspec.structs.replace(handled, is_repeatable=failure.is_repeatable) == failure


def outward(run: Run, walk: Walk, failure: Failure, until: int = NEVER) -> bool:
    """The innermost handler did not want the error, or its `finally` is done: on to what is around it."""
    frame = walk.frames[-1]
    base, kind = frame.base, frame.body
    # Nobody stands in an unmatched handler or in a `finally` that is done; what failed lies below it.
    walk.cut(walk.depth - 1)
    return propagate(run, walk, failure, base - 1, kind, until)


def _lay(walk: Walk, scope: int, kind: int, base: int, failure: Failure, until: int = NEVER) -> bool:
    walk.handle(scope, kind, base, failure, None if until == NEVER else ("until", until))
    return True


def _shortened(failure: Failure) -> Failure:
    """Without its causes beyond a few: a loop of handlers must not make a chain without end."""
    count, cause = 1, failure.cause
    while cause is not None:
        count, cause = count + 1, cause.cause
    return msgspec.structs.replace(failure, cause=None) if count >= MAX_CAUSES else failure


def fail(run: Run, walk: Walk, failure: Failure) -> bool:
    """Nobody in the lane handles it. The lane stays where it failed."""
    owner = run.workflow.owner_of(walk.scope_owner)
    if owner is not None and owner.is_final:
        failure = msgspec.structs.replace(failure, is_repeatable=False)
    for depth in tuple(walk.timers):
        walk.cancel_timer(depth)
    walk.settle_position()
    if walk.id == ROOT_LANE:
        walk.put(Op.FAIL, failure)
        run.flush(walk)
        stopped = failure.kind == "cancelled" and (run.state.is_cleaning or isinstance(run.cause, StopAsked))
        run.commands.append(Stopped() if stopped else Fail(failure, failure.step))
        run.queue.clear()
        run.is_over = True
        return False
    if walk.site and walk.is_upon and entities.failed(run, walk, failure):
        return False
    sharing.release_all(run, walk)
    walk.put(Op.FAIL, failure)
    run.commands.append(Advance(walk.id, tuple(walk.ops), tuple(walk.logs)))
    walk.ops, walk.logs = [], []
    walk.wait = Wait.STOPPED
    walk.stop = None
    run.failures[walk.id] = failure
    fanout.failed(run, run.walk(walk.parent))
    return False


# --- stopping --------------------------------------------------------------------------------------
def halt(run: Run, walk: Walk, failure: Failure, depth: int) -> bool:
    """Stop what the lane is doing; then it fails with that at the step in frame `depth - 1`. What is in flight is
    told and waited for: only its answer says what it did."""
    if walk.wait is Wait.STOPPED and walk.stop is None:
        return False  # it has failed already
    if walk.stop is not None:
        if depth < walk.stop_base or failure.kind in STOPPING:
            _note(walk, failure, min(depth, walk.stop_base))
            run.flush(walk)
        return False
    is_waiting = False
    walk.cancel_timer(WAITING)
    match walk.wait:
        case Wait.JOB:
            for job in run.jobs_of(walk.id):
                if not job.status.is_final:
                    run.commands.append(StopJob(job.id, failure.message))
                    is_waiting = is_waiting or job.status is JobStatus.STARTED
        case Wait.LOCK:
            sharing.leave(run, walk)
            walk.set_wait(Wait.NOTHING)
            walk.set_phase(BODY)
            never = msgspec.structs.replace(failure, is_repeatable=True)  # it never came in
            return fail(run, walk, _placed(never, run.label(walk.scope_owner)))
        case Wait.SENSOR:
            sharing.leave_sensors(run, walk)
        case _:
            pass
    if walk.open:
        _note(walk, failure, depth)
        run.flush(walk)
        for child in list(run.below(walk.id, walk.floor)):
            run.then(child, halt, Failure("stopped", f"stopped: {failure.message}"), 0)
        # The last of them has called `stopped` for this lane, if none is left.
        return False
    if is_waiting:
        _note(walk, failure, depth)
        walk.set_wait(Wait.STOPPED)
        run.flush(walk)
        return False
    step = walk.here() if walk.position < len(walk.body) else None
    return _ended(run, walk, failure, depth, step is None or (step.is_idempotent and step.kind != "fail"))


def _ended(run: Run, walk: Walk, failure: Failure, depth: int, is_repeatable: bool) -> bool:
    """The lane fails where it stands; whether that may be entered again depends on what it was doing there."""
    at, came = walk.depth - 1, 0
    if walk.position >= len(walk.body):
        # Between the end of a body and what follows it: only the fuel had run out.
        frame = walk.frames[at]
        came, at = (frame.body, frame.base - 1) if frame.body in (HANDLER, FINALLY) else (0, at - 1)
    return propagate(run, walk, msgspec.structs.replace(failure, is_repeatable=is_repeatable), at, came, depth)


def _note(walk: Walk, failure: Failure, depth: int) -> None:
    walk.put(Op.STOP, failure, depth)
    walk.stop, walk.stop_base = failure, depth


def stopped(run: Run, walk: Walk, is_repeatable: bool) -> bool:
    """Nothing of the lane is in flight any more."""
    failure = walk.stop
    assert failure is not None
    walk.put(Op.STOP, None, 0)
    walk.stop = None
    walk.set_wait(Wait.NOTHING)
    return _ended(run, walk, failure, walk.stop_base, is_repeatable)
