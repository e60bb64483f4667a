"""Doing something again: `retry`, `repeat`, going on after an end.

Three ways: enter the step that failed once more (resume), go back to a waypoint with everything as it was there
(replay), or go to a step with everything as it is now. The first needs a step that may run twice.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from holdfast.core.lanes import (
    BODY,
    ENTERING,
    FINALLY,
    HANDLER,
    PAUSE,
    REENTERING,
    ROOT_LANE,
    START,
    Lane,
    Op,
    floor_of,
)
from holdfast.core.model import Effect, Failure, LogLine, Wait

from . import entities, failing, flow
from .compiled import Again, Step, Workflow
from .limits import exceeded
from .values import duration_text
from .walk import Walk

if TYPE_CHECKING:
    from holdfast.core.state import State

    from .interpret import Run


def noted(run: Run, text: str) -> LogLine:
    return LogLine(text[:8_192])


# --- the `retry` step --------------------------------------------------------------------------------
def retry(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    plan = step.again
    assert plan is not None
    key = walk.text(plan.hash) if plan.hash is not None else f"step {step.index}"
    times = walk.retried(key)
    why = exceeded(plan.limits, times, run.now)
    if why is not None:
        raise failing.Raised(_exhausted("retries-exceeded", why, walk))
    if plan.timeout and times and run.now - times[0] > plan.timeout:
        why = f"the first retry was {duration_text(run.now - times[0])} ago (timeout {duration_text(plan.timeout)})"
        raise failing.Raised(_exhausted("timeout", why, walk))
    _check(run, walk, plan)
    walk.note_retry(key, run.now)
    if plan.backoff is not None:
        pause = plan.backoff.delay(len(times), _share(run, walk, step, len(times)))
        if pause > 0:
            walk.set_phase(PAUSE)
            walk.set_timer(run.now + pause)
            return run.stop(walk, Wait.TIMER)
    return perform(run, walk, step)


def _exhausted(kind: str, why: str, walk: Walk) -> Failure:
    handled = walk.failure()
    code = handled.code if handled is not None else ""
    return Failure(kind, f"no further retry: {why}{_about(handled)}", code=code, cause=handled)


def _about(handled: Failure | None) -> str:
    return f"; the error was: {handled.message}" if handled is not None else ""


def _share(run: Run, walk: Walk, step: Step, count: int) -> float:
    """A number in [0, 1) that differs between retries but not between calls."""
    digest = blake2b(f"{run.state.id}/{walk.id}/{step.index}/{count}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _handler(walk: Walk) -> int:
    """Index of the frame of the innermost handler, or -1."""
    depth = walk.depth - 1
    while depth >= 0 and walk.frames[depth].body != HANDLER:
        depth = flow.outside(walk, depth)
    return depth


def _target(walk: Walk, plan: Again) -> str:
    return walk.text(plan.target).strip() if plan.target is not None else ""


def _point(run: Run, walk: Walk, plan: Again, target: str) -> int | None:
    """The waypoint to go back to; nothing if there is none."""
    points = walk.waypoints
    if target.lower() in ("", "last", "end"):
        return next(reversed(points), None)
    if target.lower() == "start":
        return START if START in points else None
    found = run.workflow.find(target)
    step = None if found is None else run.workflow.steps[found]
    if step is None:
        return None
    if step.index in points:
        return step.index
    # The nearest one on the way to it.
    before = [point for point in points if run.workflow.rank(point) <= run.workflow.rank(step.index)]
    return before[-1] if before else None


def _is_resuming(walk: Walk, plan: Again, target: str) -> bool:
    return _handler(walk) >= 0 and (target.lower() == "end" or (not target and not plan.replay))


def _check(run: Run, walk: Walk, plan: Again) -> None:
    """Whether there is anything to go back to, before anything is changed or waited for."""
    target = _target(walk, plan)
    if target and not plan.replay and target.lower() not in ("last", "end"):
        return
    if _is_resuming(walk, plan, target):
        failure = walk.frames[_handler(walk)].error
        if plan.is_forced or (failure is not None and failure.is_repeatable):
            return
    if _point(run, walk, plan, target) is None and not (plan.is_forced and target):
        handled = walk.failure()
        why = "what failed may not run twice, and there is no waypoint" if handled else "there is no waypoint"
        message = f"cannot retry: {why} (`replayable: from here` makes one){_about(handled)}"
        code = handled.code if handled is not None else ""
        raise failing.Raised(Failure("no-waypoint", message, code=code, cause=handled))


def perform(run: Run, walk: Walk, step: Step) -> bool:
    """The pause is over."""
    plan = step.again
    assert plan is not None
    target = _target(walk, plan)
    if target and not plan.replay and target.lower() not in ("last", "end"):
        return flow.jump(run, walk, target)
    if _is_resuming(walk, plan, target):
        at = _handler(walk)
        failure = walk.frames[at].error
        if plan.is_forced or (failure is not None and failure.is_repeatable):
            walk.cut(at)
            return reenter(run, walk, plan.is_forced)
    point = _point(run, walk, plan, target)
    if point is None:
        return flow.jump(run, walk, target)  # forced
    walk.replay(point)
    return True


def reenter(run: Run, walk: Walk, is_forced: bool) -> bool:
    """The lane stands at what failed; its condition is not asked again, and lanes below that ended well stay."""
    walk.set_phase(BODY)
    walk.is_resuming = True
    run.is_forced = is_forced
    return _timed(run, walk)


def _timed(run: Run, walk: Walk) -> bool:
    """What the lane is inside of has its time anew; the step it stands at gets it when it is entered."""
    depth = walk.depth - 1
    while (around := flow.outside(walk, depth)) >= 0:
        step = walk.step_at(around)
        if step.timeout is not None and walk.frames[depth].body >= 0 and around not in walk.timers:
            walk.set_timer(run.now + walk.duration(step.timeout), around)
        depth = around
    return True


def children(run: Run, walk: Walk) -> bool:
    """The step is entered again: those of its lanes that failed go on, the others are done."""
    run.stop(walk, Wait.LANES)
    for child in [each for each in run.below(walk.id, walk.floor) if run.failure_of(each) is not None]:
        carry(run, child)
    return False


def repeats(run: Run, walk: Walk, step: Step) -> bool:
    """`repeat`: whether the step is done once more."""
    plan = step.repeat
    assert plan is not None
    count = walk.repeated(step.index) + 1
    is_enough = bool(plan.times) and count >= plan.times
    if is_enough or (plan.condition is not None and not plan.condition(walk)):
        walk.set_repeats(step.index, 0)
        return False
    walk.set_repeats(step.index, count)
    walk.drop()
    if plan.delay:
        walk.set_phase(PAUSE)
        walk.set_timer(run.now + plan.delay)
        run.stop(walk, Wait.TIMER)
    else:
        walk.is_resuming = True
    return True


# --- after an end ------------------------------------------------------------------------------------
def carry_on(run: Run, is_forced: bool) -> None:
    """The execution ended in the middle; every lane goes on where it stands."""
    run.is_forced = is_forced
    for id in sorted(run.state.lanes, reverse=True):
        if id != ROOT_LANE and run.state.lanes[id].failure is None:
            _interrupted(run, run.walk(id))
    root = run.walk(ROOT_LANE)
    if run.failure_of(root) is not None:
        root.put(Op.REOPEN)
        run.failures[ROOT_LANE] = None
    _go_on(run, root)


def _interrupted(run: Run, walk: Walk) -> None:
    """A lane that was in the middle of something counts as failed there, like the others."""
    failure = Failure("stopped", "the execution ended", is_repeatable=_may_reenter(run.workflow, run.state, walk.own))
    walk.put(Op.FAIL, failure)
    run.flush(walk)
    walk.wait = Wait.STOPPED
    run.failures[walk.id] = failure
    parent = run.walk(walk.parent)
    parent.open -= 1
    parent.failed += 1


def carry(run: Run, walk: Walk) -> None:
    """A lane that failed goes on."""
    if walk.site and walk.is_upon:
        entities.carried(run, walk)
    walk.put(Op.REOPEN)
    run.failures[walk.id] = None
    parent = run.walk(walk.parent)
    parent.open += 1
    parent.failed -= 1
    _go_on(run, walk)


def _go_on(run: Run, walk: Walk) -> None:
    owner = run.workflow.owner_of(walk.scope_owner)
    walk.wait = Wait.NOTHING
    is_here = walk.failed or run.is_forced or _may_reenter(run.workflow, run.state, walk.own)
    if not is_here and walk.waypoints:
        walk.replay(next(reversed(walk.waypoints)))
    else:
        if (handler := _given_up(run.workflow, walk.own)) >= 0:
            walk.cut(handler)
        walk.is_resuming = True
    if owner is not None and owner.is_entered:
        walk.set_phase(REENTERING if walk.is_resuming else ENTERING)
    else:
        walk.set_phase(BODY)
    if not walk.is_resuming or run.attempt(walk, _timed):
        run.queue.append(walk)


def why_not(workflow: Workflow, state: State) -> str:
    """Why an execution cannot carry on where it stands; empty if it can."""
    if not workflow.owner.is_replayable:
        return "the workflow says `replayable: disabled`"
    aside = _aside(state)
    for lane in state.lanes.values():
        if lane.open or lane.failed or lane.id in aside or lane.waypoints or _may_reenter(workflow, state, lane):
            continue
        step = _failed(workflow, lane)
        label = step.label if step is not None else workflow.name
        if step is not None and step.kind == "fail":
            return f"step `{label}` is meant to fail; replay from a waypoint instead"
        return f"step `{label}` may have happened, may not run twice, and there is no waypoint before it"
    return ""


def _aside(state: State) -> set[int]:
    """Lanes that a handler lies on: where it stands counts, not they."""
    found: set[int] = set()
    for id in sorted(state.lanes):
        parent = state.lanes.get(state.lanes[id].parent)
        if parent is not None and (parent.id in found or id < floor_of(parent.frames)):
            found.add(id)
    return found


def _failed(workflow: Workflow, lane: Lane) -> Step | None:
    """The step that handlers lie on, if it was one of them that gave up."""
    above = next((at for at, frame in enumerate(lane.frames) if frame.body in (HANDLER, FINALLY)), len(lane.frames))
    return _standing(workflow, lane, above - 1)


def _standing(workflow: Workflow, lane: Lane, at: int = -1) -> Step | None:
    frame = lane.frames[at]
    body = workflow.bodies[frame.scope, frame.body]
    return body[frame.position] if frame.position < len(body) else None


def _given_up(workflow: Workflow, lane: Lane) -> int:
    """The frame of the handler whose `retry` did no more, or of the `finally` of what was stopped; or -1. Who carries
    on does what that would have done, or undoes the stopping: it is the step below that is entered again."""
    for at, frame in enumerate(lane.frames):
        if frame.body == FINALLY and frame.error is not None and frame.error.kind in failing.STOPPING:
            return at
    step = _standing(workflow, lane)
    if lane.failure is None or step is None or step.kind != "retry":
        return -1
    return max((at for at, frame in enumerate(lane.frames) if frame.body == HANDLER), default=-1)


def _may_reenter(workflow: Workflow, state: State, lane: Lane) -> bool:
    step = _standing(workflow, lane)
    if (handler := _given_up(workflow, lane)) >= 0:
        failure = lane.frames[handler].error
        return failure is not None and failure.is_repeatable
    if lane.failure is not None and lane.failure.kind not in failing.STOPPING:
        return lane.failure.is_repeatable
    if step is None or step.kind == "fail" or not step.is_idempotent:
        return step is None
    if step.spec < 0 or state.specs[step.spec].may_repeat:
        return True
    # Stopped at a block: only what never took effect may be entered again.
    return not any(x.step == step.index and x.effect in (Effect.DONE, Effect.UNKNOWN) for x in state.ledger.values())
