"""The way of a lane from step to step: conditions, what surrounds a step's own work, jumps, ends.

Every function says whether the lane goes on at once. Errors are exceptions only inside of one call; see `failing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import (
    AGAIN,
    BODY,
    DELAY,
    FINALLY,
    HANDLER,
    PAUSE,
    REENTERING,
    ROOT_LANE,
    START,
    WAITING,
    WHOLE,
    Frame,
    Op,
)  # fmt: skip
from holdfast.core.model import Failure, Wait
from holdfast.core.program import Advance, Complete

from . import again, entering, entities, failing, fanout, reaching, sharing
from .compiled import Step
from .evaluate import FUEL as EXPRESSION_FUEL
from .scope import error_value
from .walk import Walk

if TYPE_CHECKING:
    from .interpret import Run


# --- into a step -----------------------------------------------------------------------------------
def enter(run: Run, walk: Walk) -> bool:
    """What holds for the lane as a whole, before its first step: its lock, then its timeout."""
    owner = run.workflow.owner_of(walk.scope_owner)
    assert owner is not None
    if walk.phase == REENTERING:
        walk.is_resuming = True
    elif owner.condition is not None and not walk.rounds and not owner.condition(walk):
        walk.logs.append(again.noted(run, "its condition does not hold: nothing is done"))
        return over(run, walk, None)
    if owner.lock is not None and not sharing.take(run, walk, owner):
        return False
    walk.set_phase(BODY)
    if owner.timeout is not None:
        walk.set_timer(run.now + walk.duration(owner.timeout), WHOLE)
    if owner.from_start and START not in walk.waypoints and not walk.rounds and walk.depth == 1 and not walk.position:
        walk.waypoint(START, 1)
    return True


def visit(run: Run, walk: Walk, step: Step) -> bool:
    """From standing before a step to its own work."""
    walk.settle_position()
    if walk.site and walk.position and walk.depth == 1 and walk.is_upon and entities.goes_no_further(run, walk):
        return failing.fail(run, walk, entities.STOPPED)
    if walk.phase == AGAIN or (walk.phase == PAUSE and step.again is None):
        walk.set_phase(BODY)
        walk.is_resuming = True
    if walk.phase == PAUSE:
        walk.set_phase(BODY)
        return again.perform(run, walk, step)
    if walk.phase == DELAY:
        walk.set_phase(BODY)
        after_delay(run, walk, step)
    elif walk.fan is None or walk.failed or walk.is_resuming:  # otherwise in the middle of it, with fresh fuel
        if step.condition is not None and not walk.is_resuming and not holds(walk, step):
            walk.position += 1
            return True
        walk.was_resuming, walk.is_resuming = walk.is_resuming, False
        if walk.frames[-1].body == HANDLER:
            walk.match()
        if step.has_before and not before(run, walk, step):
            return False
    return run.does[step.kind](run, walk, step)


def holds(walk: Walk, step: Step) -> bool:
    assert step.condition is not None
    walk.asking = step.by_name
    held = step.condition(walk)
    walk.asking = None
    return held


def before(run: Run, walk: Walk, step: Step) -> bool:
    if step.is_counted:
        walk.visit(step.index)
    if step.waypoint >= 0:
        walk.waypoint(step.index, step.waypoint)
    if step.delay is not None:
        pause = walk.duration(step.delay)
        if pause > 0:
            walk.set_phase(DELAY)
            walk.set_timer(run.now + pause)
            return run.stop(walk, Wait.TIMER)
    after_delay(run, walk, step)
    return True


def after_delay(run: Run, walk: Walk, step: Step) -> None:
    for check, text in step.asserts:
        walk.asking = step.by_name
        if not check(walk):
            walk.asking = None
            raise failing.Raised(Failure("assertion-failed", f"does not hold: {text}", is_repeatable=True))
        walk.asking = None
    if step.timeout is not None:
        walk.set_timer(run.now + walk.duration(step.timeout), walk.depth - 1)


# --- out of a step ---------------------------------------------------------------------------------
def job_done(run: Run, walk: Walk, step: Step) -> bool:
    """A block has answered, and something follows its result."""
    if step.place is not None:  # `load`
        entering.assign(run, walk, step.place, walk.output)
    return done(run, walk, step)


def done(run: Run, walk: Walk, step: Step) -> bool:
    """What follows the work of every step: its `output`, and remembering it."""
    if step.output is not None:
        walk.asking = step.by_name
        value = run.keep(step.output.get(walk))
        walk.asking = None
        walk.set_output(value)
    walk.keep_output(step.keep)
    if step.has_after:
        return finish(run, walk, step)
    walk.position += 1
    return True


def finish(run: Run, walk: Walk, step: Step) -> bool:
    """The visit is over, well or handled."""
    walk.cancel_timer(walk.depth - 1)
    if step.repeat is not None and again.repeats(run, walk, step):
        return not step.repeat.delay
    if step.cleanup:
        walk.handle(step.index, FINALLY, walk.depth, None, ("on", walk.output))
        return True
    return onward(run, walk, step)


def onward(run: Run, walk: Walk, step: Step) -> bool:
    walk.drop()
    if step.next is not None:
        return jump(run, walk, walk.text(step.next))
    walk.position += 1
    return True


def tolerated(run: Run, walk: Walk, step: Step, failure: Failure) -> bool:
    """`continue-on-error`: the step failed, and the lane goes on."""
    walk.log(f"step {step.label} failed, and that is tolerated: {failure.message}", step)
    walk.set_output(run.keep({"success": False, "error": error_value(failure)}))
    walk.keep_output(step.keep)
    return finish(run, walk, step)


def leave(run: Run, walk: Walk) -> bool:
    """The innermost body is at its end."""
    frame = walk.frames[-1]
    if frame.body == HANDLER:
        if not walk.frames[-1].is_matched:
            assert frame.error is not None
            return failing.outward(run, walk, frame.error)
        if frame.base == 0:
            return end(run, walk, is_handled=True)
        walk.cut(frame.base)
        step = walk.here()
        walk.drop()
        walk.keep_output(step.keep)
        return finish(run, walk, step)
    if frame.body == FINALLY:
        return after_cleanup(run, walk)
    if walk.depth == 1:
        return end(run, walk)
    walk.cut(walk.depth - 1)
    return done(run, walk, walk.here())


def after_cleanup(run: Run, walk: Walk) -> bool:
    """`finally` is done: on with what it was put in front of."""
    frame = walk.frames[-1]
    then = frame.then or ("on", None)
    if frame.error is not None:
        return failing.outward(run, walk, frame.error, then[1] if then[0] == "until" else failing.NEVER)
    if frame.base == 0:
        return over(run, walk, then[1])
    walk.cut(frame.base)
    step = walk.here()
    if then[0] == "goto":
        return jump(run, walk, then[1])
    if then[0] == "return":
        return give_back(run, walk, then[1])
    walk.set_output(then[1])
    return onward(run, walk, step)


# --- elsewhere -------------------------------------------------------------------------------------
def jump(run: Run, walk: Walk, target: str) -> bool:
    """To a step of a body around, or to one of the places with a name."""
    word = target.strip()
    low = word.lower()
    if low == "default":
        walk.position += 1
        return True
    if low == "exit":
        return exit_handler(run, walk)
    depth = walk.depth - 1
    if low == "end":
        while depth > 0 and _is_passed_through(run, walk, depth):
            depth = outside(walk, depth)
        if depth < 0:
            depth = 0
        return go_to(run, walk, depth, -1, target)
    # From the cleanup of the lane as a whole nothing leads back into it: it would clean up for ever.
    is_last = any(frame.body == FINALLY and not frame.base for frame in walk.frames)
    if low == "start" and not is_last:
        return go_to(run, walk, *reaching.start_of(run, walk), target)
    while depth >= 0:
        frame = walk.frames[depth]
        position = run.workflow.positions.get((frame.scope, frame.body), {}).get(word)
        if position is not None:
            return go_to(run, walk, depth, position, target)
        depth = outside(walk, depth)
    position = run.workflow.positions.get((walk.scope_owner, walk.frames[0].body), {}).get(word)
    if position is not None and not is_last:  # from a handler of the lane as a whole
        return go_to(run, walk, 0, position, target)
    raise failing.Raised(Failure("no-such-step", f"there is no step `{word}` to go to from here", code="HF0123"))


def outside(walk: Walk, depth: int) -> int:
    """The frame in which the step stands that frame `depth` is a body of."""
    frame = walk.frames[depth]
    return frame.base - 1 if frame.body in (HANDLER, FINALLY) else depth - 1


def _is_passed_through(run: Run, walk: Walk, depth: int) -> bool:
    """`end` does not stop here: handlers, and what is written in one line with its step."""
    frame = walk.frames[depth]
    return frame.body == HANDLER or (frame.body >= 0 and frame.scope in run.workflow.inline)


def go_to(run: Run, walk: Walk, depth: int, position: int, target: str) -> bool:
    """Leave the frames above frame `depth`; the `finally` of what is left comes first."""
    if _is_stopping(walk, depth):
        return _let_go(run, walk, ("goto", target))
    if leaving(run, walk, depth, ("goto", target)):
        return True
    walk.cut(depth + 1)
    walk.drop()
    walk.set_phase(BODY)
    walk.position = len(walk.body) if position < 0 else position
    return True


def _is_stopping(walk: Walk, depth: int) -> bool:
    """Above that frame lies the `finally` of something that is being stopped: there is no way past it."""
    return any(_is_last_word(frame) for frame in walk.frames[depth + 1 :])


def _is_last_word(frame: Frame) -> bool:
    return frame.body == FINALLY and frame.error is not None and frame.error.kind in failing.STOPPING


def _let_go(run: Run, walk: Walk, then: tuple[Any, ...]) -> bool:
    """To the end of that `finally`; the lane goes on being stopped."""
    at = max(at for at, frame in enumerate(walk.frames) if _is_last_word(frame))
    if leaving(run, walk, at, then):
        return True
    walk.cut(at + 1)
    walk.drop()
    walk.set_phase(BODY)
    walk.position = len(walk.body)
    return True


def leaving(run: Run, walk: Walk, depth: int, then: tuple[Any, ...]) -> bool:
    """Whether something has to be cleaned up before the frames above `depth` can be left."""
    at = walk.depth - 1
    while at > depth:
        frame = walk.frames[at]
        around = outside(walk, at)
        if around < 0:
            break
        step = walk.step_at(around)
        walk.cancel_timer(around)
        if step.cleanup and frame.body != FINALLY:
            walk.cut(around + 1)
            walk.handle(step.index, FINALLY, around + 1, None, then)
            return True
        at = around
    return False


def exit_handler(run: Run, walk: Walk) -> bool:
    """Out of the innermost handler, as if it were done."""
    depth = walk.depth - 1
    while depth >= 0 and walk.frames[depth].body != HANDLER:
        depth = outside(walk, depth)
    if depth < 0:
        raise failing.Raised(Failure("no-handler", "`exit` leaves an error handler, and there is none here"))
    base = walk.frames[depth].base
    if base == 0:
        return end(run, walk, is_handled=True)
    walk.cut(base)
    step = walk.here()
    walk.keep_output(step.keep)
    return finish(run, walk, step)


# --- the end of a lane -----------------------------------------------------------------------------
def give_back(run: Run, walk: Walk, value: Any) -> bool:
    """`return`: the lane ends with a value, from however deep."""
    walk.set_output(value)
    if _is_stopping(walk, -1):
        return _let_go(run, walk, ("return", value))
    if leaving(run, walk, -1, ("return", value)):
        return True
    # A handler's value is the output as it is; `output` of the workflow belongs to what went well.
    return end(run, walk, is_handled=any(f.body == HANDLER and not f.base for f in walk.frames))


def end(run: Run, walk: Walk, is_handled: bool = False) -> bool:
    """The lane has nothing more to do."""
    owner = run.workflow.owner_of(walk.scope_owner)
    output = walk.output
    if owner is not None and owner.output is not None and not is_handled:
        walk.fuel, walk.local = EXPRESSION_FUEL, None
        output = run.keep(owner.output.get(walk))
    if owner is not None and owner.cleanup and not any(f.body == FINALLY and not f.base for f in walk.frames):
        walk.handle(walk.scope_owner, FINALLY, 0, None, ("end", output))
        return True
    return over(run, walk, output)


def over(run: Run, walk: Walk, output: Any) -> bool:
    walk.output = output
    if walk.floor:
        walk.cut(1)  # what is set aside goes too
    walk.drop()
    for depth in (*walk.own.timers, *walk.timers) if walk.own.timers or walk._timers else ():
        walk.cancel_timer(depth)
    if walk.parent:
        sharing.release_all(run, walk)
        if walk.site and walk.is_upon:
            output = entities.leaving(run, walk, output)
        walk.ops.append((Op.END, output))
        run.commands.append(Advance(walk.id, tuple(walk.ops), tuple(walk.logs)))
        parent = run.walk(walk.parent)
        fanout.ended(run, parent, walk, output)
        return False
    if run.state.subjects:
        reaching.completed(run, walk)
    # The end needs no result of the last block: it is the output. Everything else people may want to see.
    if walk.logs or any(op[0] != Op.RESULT for op in walk.ops):
        run.commands.append(Advance(ROOT_LANE, tuple(walk.ops), tuple(walk.logs)))
    run.commands.append(Complete(output))
    run.is_over = True
    return False


# --- woken -----------------------------------------------------------------------------------------
def woken(run: Run, walk: Walk) -> bool:
    """The time a lane waited for has come."""
    if walk.stop is not None:
        return False
    if walk.wait is Wait.LOCK:
        return sharing.waited_too_long(run, walk)
    if walk.phase in (DELAY, PAUSE):
        return True
    walk.local = None
    return done(run, walk, walk.here())


def heard(run: Run, walk: Walk) -> bool:
    """The signal a lane listened for is its output now."""
    walk.cancel_timer(WAITING)
    step = walk.here()
    return entering.answered(run, walk, step)
