"""What each step does. Every function enters one step and says whether the lane goes on at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core import retention
from holdfast.core.codec import pack
from holdfast.core.lanes import APPROVAL, ASKS, Op
from holdfast.core.model import PAYLOAD_LIMIT, Failure, Wait
from holdfast.core.program import KeepFor, ScheduleJob, Tell

from . import failing, flow, sharing
from .compiled import Step
from .evaluate import ABSENT, settle
from .names import Value
from .operations import ExpressionError, truthy
from .places import Place, remove
from .places import assign as assigned
from .walk import Walk

if TYPE_CHECKING:
    from .interpret import Run

_MAX_LOG = 8_192
#: parameters of a block that come from the entity's configuration where the step does not give them
ENTITY_PARAMETERS = {"ssh": ("host", "user", "port", "key", "known_hosts")}


def done(run: Run, walk: Walk, step: Step) -> bool:
    return flow.done(run, walk, step)


def lenient(walk: Walk, value: Value) -> Any:
    """The value, or ABSENT where a part of it is not there."""
    try:
        return value.get(walk)
    except ExpressionError as error:
        if error.absent:
            return ABSENT
        raise


# --- variables ---------------------------------------------------------------------------------------
def assign(run: Run, walk: Walk, place: Place, value: Any) -> None:
    """To a variable or to a place inside of one; `output` is the step's output."""
    if not place.path:
        if place.name == "output":
            walk.set_output(value)
        else:
            walk.set(place.name, value)
        return
    path = place.settled(walk.lookup)
    root = walk.variable(place.name)
    root = None if root is ABSENT else settle(walk, root, None)
    walk.set(place.name, run.keep(assigned(root, path, settle(walk, value, None))))


def store(run: Run, walk: Walk, step: Step, value: Any) -> bool:
    """A value that goes into a variable if the step names one, else into the output."""
    if step.place is not None:
        assign(run, walk, step.place, value)
    else:
        walk.set_output(value)
    return done(run, walk, step)


def let(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    value = step.args["value"].get(walk)
    if step.type:
        value = walk.coerced(step.type, value)
    assert step.place is not None
    assign(run, walk, step.place, run.keep(value))
    return done(run, walk, step)


def clear_variable(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    place = step.place
    assert place is not None
    root = walk.variable(place.name)
    if root is not ABSENT:
        if place.path:
            changed = remove(settle(walk, root, None), place.settled(walk.lookup))
            walk.set(place.name, run.keep(changed))
        else:
            walk.unset(place.name)
    return done(run, walk, step)


def transform(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    if "value" in step.args:
        if any(each.is_wait for each in step.filters):
            value = sharing.awaited(run, walk, step.args["value"])
            if value is ABSENT:
                return False
        else:
            value = step.args["value"].get(walk)
    else:
        assert step.place is not None
        value = walk.variable(step.place.name)
        if value is ABSENT:
            raise ExpressionError(f"there is no variable `{step.place.name}` yet", absent=True)
    value = settle(walk, value, None)
    if step.type and "value" in step.args:
        value = walk.coerced(step.type, value)
    for apply in step.filters:
        value = apply(walk, value)
        if apply.place is not None:
            assign(run, walk, apply.place, run.keep(value))
    if step.type and step.place is not None:
        value = walk.coerced(step.type, value)
    if step.filters and step.filters[-1].is_return:
        return give_back(run, walk, step, run.keep(value))
    return store(run, walk, step, run.keep(value))


# --- words -------------------------------------------------------------------------------------------
def log(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    walk.log(walk.text(step.args["message"])[:_MAX_LOG], step)
    return done(run, walk, step)


def sleep(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    duration = step.duration if step.duration >= 0 else walk.duration(step.args["duration"])
    if duration <= 0:
        return done(run, walk, step)
    run.stop(walk, Wait.TIMER)
    walk.set_timer(run.now + duration)
    return False


def fail(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    handled = walk.failure()
    is_rethrow = "rethrow" in step.args and truthy(step.args["rethrow"].get(walk))
    if is_rethrow and handled is None:
        raise failing.Raised(Failure("fail", "there is no error to throw again here"))
    if handled is not None and "message" not in step.args and "value" not in step.args:
        raise failing.Raised(msgspec.structs.replace(handled, is_repeatable=False))
    message = walk.text(step.args["message"]) if "message" in step.args else f"step {step.label} failed"
    details = run.keep(step.args["value"].get(walk)) if "value" in step.args else None
    cause = handled
    if "rethrow" in step.args and not is_rethrow:
        cause = None
    if details is None and cause is not None:
        details = cause.details
    raise failing.Raised(Failure("fail", message[:_MAX_LOG], details=details, step=step.label, cause=cause))


def return_(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    return give_back(run, walk, step, run.keep(step.args["value"].get(walk)))


def give_back(run: Run, walk: Walk, step: Step, value: Any) -> bool:
    if step.output is not None:
        walk.output = value
        value = run.keep(step.output.get(walk))
    if step.next is not None:
        walk.set_output(value)
        walk.keep_output(step.keep)
        return flow.finish(run, walk, step)
    walk.output = value
    walk.keep_output(step.keep)
    return flow.give_back(run, walk, value)


def nothing(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    return done(run, walk, step)


def settings(run: Run, walk: Walk, step: Step) -> bool:
    """`workflow` without steps: a waypoint (made on entry), or how long to keep the execution."""
    walk.bind(step)
    if step.retention is not None:
        text = walk.text(step.retention)
        try:
            given = retention.parse_retention(text)
            rule = retention.settle(given, run.retention[0])
        except retention.BadRetention as bad:
            raise ExpressionError(f"`{text[:80]}` is not a retention: {bad.message}", code="HF0116") from None
        run.retention = (rule, given.hash or run.retention[1])
        run.commands.append(KeepFor(*run.retention))
    return done(run, walk, step)


# --- elsewhere ---------------------------------------------------------------------------------------
def goto(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    return flow.jump(run, walk, walk.text(step.args["next"]))


def if_(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    assert step.each is not None
    held = step.each(walk)
    body = 0 if held else 1
    if (step.index, body) not in run.workflow.bodies:
        return done(run, walk, step)
    walk.push(step.index, body)
    return True


def subworkflow(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    for name, value in (walk.local or {}).items():
        walk.set(name, run.keep(value))
    walk.push(step.index, 0)
    return True


def switch(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    for number in range(step.bodies):
        (case,) = run.workflow.bodies[step.index, number]
        if case.condition is None or flow.holds(walk, case):
            walk.push(step.index, number)
            walk.is_resuming = True  # its condition has been asked
            return True
    value = walk.text(step.args["value"]) if "value" in step.args else ""
    raise failing.Raised(Failure("no-case", f"no case of the switch fits {value[:80]}", is_repeatable=True))


# --- outside work ------------------------------------------------------------------------------------
def block(run: Run, walk: Walk, step: Step) -> bool:
    input: Any = step.fixed
    if input is None and step.inputs:
        walk.bind(step)
        input = walk.local
    block = run.workflow.specs[step.spec].block
    if block in ENTITY_PARAMETERS and "endpoint" not in (input or {}):
        input = {**_from_entity(walk, ENTITY_PARAMETERS[block]), **(input or {})}
    kept = run.keep(input)
    run.stop(walk, Wait.JOB)
    visit = walk.visited(step.index)
    run.commands.append(ScheduleJob(walk.id, step.index, step.spec, kept, visit, walk.upon()))
    return False


def _from_entity(walk: Walk, names: tuple[str, ...]) -> dict[str, Any]:
    found = {name: walk.entity("config", name) for name in names}
    return {name: value for name, value in found.items() if value is not ABSENT}


# --- messages ----------------------------------------------------------------------------------------
def wait_signal(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    return _listen(run, walk, step, walk.text(step.args["signal"]))


def approve(run: Run, walk: Walk, step: Step) -> bool:
    """A person decides. The answer comes as a signal of its own name."""
    walk.bind(step)
    if "message" in step.args:
        walk.log(f"{ASKS}{walk.text(step.args['message'])}"[:_MAX_LOG], step)
    return _listen(run, walk, step, f"{APPROVAL}{step.id or step.index}")


def _listen(run: Run, walk: Walk, step: Step, name: str) -> bool:
    if run.consume(walk, name):
        return answered(run, walk, step)
    walk.settle_position()
    walk.put(Op.LISTEN, name)
    walk.wait = Wait.SIGNAL
    run.flush(walk)
    return False


def answered(run: Run, walk: Walk, step: Step) -> bool:
    """The signal is the output now."""
    if step.kind == "approve":
        answer = walk.load(walk.output)
        given = answer if isinstance(answer, dict) else {"approved": answer}
        if not truthy(given.get("approved", True)):
            who, note = given.get("by") or "somebody", given.get("note") or ""
            message = f"rejected by {who}{f': {note}' if note else ''}"
            raise failing.Raised(Failure("rejected", message, details=given, is_repeatable=True))
    walk.local = None
    return done(run, walk, step)


def signal(run: Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    name = walk.text(step.args["signal"])
    target = walk.text(step.args["to"]) if "to" in step.args else run.state.id
    value = settle(walk, step.args["value"].get(walk), None) if "value" in step.args else None
    size = len(pack(value))
    if size > PAYLOAD_LIMIT:
        message = f"signal {name}: {size:,} bytes are over the limit of {PAYLOAD_LIMIT:,}"
        raise failing.Raised(Failure("value-too-large", message, code="HF0701"))
    key = f"{run.state.id}/{run.state.version}/{run.told}"
    run.told += 1
    run.commands.append(Tell(walk.id, target.strip().lower(), name, value, key))
    return done(run, walk, step)
