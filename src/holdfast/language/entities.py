"""Steps that are done for each of many entities: one lane per entity, opened, ended, failed.

A step of kind `entities` fans out over the subjects that are in scope: of the type it is for, in the batch at hand, and
not failed before. Unlike other fans it goes on when lanes fail: the others run to their end, and only then the step
fails, unless so many failures are tolerated. What each entity has come to is recorded with `Op.SUBJECT`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import BODY, Lane, Op
from holdfast.core.model import Failure, JobStatus, Wait
from holdfast.core.reads import EntityKey, Key, Missing, SensorKey, TooLong
from holdfast.core.subjects import OUT, Progress

from . import again, failing, flow
from .arranging import EACH, INLINE, Bodies
from .compiled import Step, Workflow
from .evaluate import ABSENT
from .operations import ExpressionError
from .reaching import all_of, count_of, in_scope, note, note_all, note_failed, nth, progress_of, ranges_of
from .scope import OWN
from .walk import Walk

if TYPE_CHECKING:
    from holdfast.core.state import State

    from .interpret import Run

#: failed entities named in the message of a step, and in its details
_NAMED, _LISTED = 3, 100
#: between two steps of a lane, where nothing is in flight
STOPPED = Failure("stopped", "stopped: another entity failed, and the workflow says `fail-fast`", is_repeatable=True)


# --- entering --------------------------------------------------------------------------------------
def each(run: Run, walk: Walk, step: Step) -> bool:
    """A lane for every entity in scope; in the lane of one already, or where it is done once, just the step."""
    if walk.fan is not None:
        return again.children(run, walk) if walk.failed and walk.was_resuming else fill(run, walk, step)
    type = run.workflow.scopes[step.index]
    if not type or walk.upon():
        walk.push(step.index, INLINE)
        return True
    walk.settle_position()
    found = in_scope(run, walk, type)
    found = _asserted(run, walk, step, type, found)
    plan = run.workflow.plan
    assert plan is not None
    limit = max(1, len(found))
    if plan.concurrency is not None and found:
        limit = max(1, plan.concurrency(walk, len(found)))
    targets = ["ranges", *(number for pair in ranges_of(found) for number in pair)]
    walk.set_fan(targets, len(found), limit, None)
    return fill(run, walk, step) if found else gather(run, walk, step)


def _asserted(run: Run, walk: Walk, step: Step, type: str, found: list[int]) -> list[int]:
    """What must hold for each is asked before anything is done for any."""
    inner = run.workflow.steps[step.wraps]
    members = run_of(run, step)
    if not inner.asserts or inner.on_error or inner.continues or len(members) > 1:
        return found
    _fetch(run, members, found)
    wrong: dict[int, str] = {}
    for index in found:
        seen = _lane_of(run, walk, step, index, members)
        if text := _misses(run, seen, inner):
            wrong[index] = text
    if not wrong:
        return found
    subjects = run.state.subjects
    if not _tolerates(run, len(wrong)):
        listed = [{"entity": subjects[index].id, "message": text} for index, text in wrong.items()]
        named = _names([each["entity"] for each in listed])
        message = f"{next(iter(wrong.values()))} (for {len(wrong)} of {len(found)} {_many(type)}: {named})"
        raise failing.Raised(
            Failure("assertion-failed", message, details=listed[:_LISTED], step=inner.label, is_repeatable=True)
        )
    for index, text in wrong.items():
        _put_up_with(run, walk, index, text, step)
    return [index for index in found if index not in wrong]


def _misses(run: Run, seen: Walk, step: Step) -> str:
    """What does not hold for an entity, if the step is for it at all."""
    try:
        if step.condition is not None and not flow.holds(seen, step):
            return ""
        seen.asking = step.by_name
        wrong = next((text for check, text in step.asserts if not check(seen)), "")
    except ExpressionError as error:
        return str(error)
    return f"does not hold: {wrong}" if wrong else ""


def _lane_of(run: Run, walk: Walk, step: Step, index: int, members: tuple[Step, ...]) -> Walk:
    """What the lane of that entity would see, without opening it."""
    variables, output = _given(run, walk, step, index, members)
    seen = Walk.spawned(
        run, run.next_lane, walk, 0, step.index, EACH, variables, BODY, run.state.subjects[index].id
    )  # fmt: skip
    seen.output = seen.own.output = output
    return seen


def run_of(run: Run, step: Step) -> tuple[Step, ...]:
    """The steps of kind `entities` that one lane passes."""
    bodies = run.workflow.bodies
    return bodies.run(step) if isinstance(bodies, Bodies) else (step,)


# --- opening ---------------------------------------------------------------------------------------
def fill(run: Run, walk: Walk, step: Step) -> bool:
    """Lanes for the next entities, as many as may be open at the same time and find fuel for their first step."""
    fan = walk.fan
    assert fan is not None
    is_closed = _is_closed(run, walk)
    room = 0 if is_closed else min(fan.count - fan.next, fan.limit - walk.open, max(1, run.fuel // 2))
    numbers = range(fan.next, fan.next + max(0, room))
    indices = [nth(fan.targets, number) for number in numbers]
    members = run_of(run, step)
    _fetch(run, members, indices)
    subjects = run.state.subjects
    opened = []
    for number, index in zip(numbers, indices, strict=True):
        variables, output = _given(run, walk, step, index, members)
        opened.append(_open(run, walk, number, step, subjects[index].id, variables, output))
    run.fuel -= len(opened)
    reached = [index for index in indices if progress_of(run, subjects[index]) is Progress.NEVER_REACHED]
    note_all(run, walk, reached, Progress.REACHED)
    more = fan.next < fan.count and walk.open < fan.limit and not is_closed
    run.stop(walk, Wait.TURN if more else Wait.LANES)
    run.turns_left = run.turns_left or more
    run.queue.extend(opened)
    return False


def _open(
    run: Run, walk: Walk, number: int, step: Step, entity: str, variables: dict[str, Any], output: Any
) -> Walk:  # fmt: skip
    lane = run.next_lane
    run.next_lane += 1
    walk.put(Op.SPAWN, lane, number, step.index, EACH, variables, BODY, entity, output)
    child = Walk.spawned(run, lane, walk, number, step.index, EACH, variables, BODY, entity)
    child.output = child.own.output = output
    run.walks[lane] = child
    walk.open += 1
    assert walk.fan is not None
    walk.fan.next += 1
    return child


def _given(
    run: Run, walk: Walk, step: Step, index: int, members: tuple[Step, ...]
) -> tuple[dict[str, Any], Any]:  # fmt: skip
    """What earlier steps gave for that entity, as far as its steps ask: out of maps that all of them share, so that no
    lane has to look into those later."""
    id, type = run.state.subjects[index].id, run.workflow.scopes[step.index]
    variables: dict[str, Any] = {}
    output = None
    for each in members:
        assert each.asks is not None
        for name in sorted(each.asks.steps):
            if run.workflow.scopes_by_id.get(name) == type:
                found = walk.step(name)
                given = walk.load(found) if found is not ABSENT else None
                if isinstance(given, dict) and id in given:
                    variables[OWN + name] = given[id]
    asks = members[0].asks
    if asks is not None and asks.output:
        before = _before(walk)
        output = walk.output
        if before is not None and run.workflow.scopes.get(before.index) == type:
            given = walk.load(walk.output)
            output = given.get(id) if isinstance(given, dict) else None
    return variables, output


def _before(walk: Walk) -> Step | None:
    """The step whose output the lane has."""
    return walk.body[walk.position - 1] if walk.position else None


def _fetch(run: Run, members: tuple[Step, ...], indices: Iterable[int]) -> None:
    """Read what expressions will ask of all these entities in one go, not one by one."""
    facts: set[tuple[str, str]] = set()
    for each in members:
        facts |= each.asks.entity if each.asks is not None else set()
    if not facts:
        return
    tenant = run.state.tenant
    missing: list[Key] = []
    for index in indices:
        id = run.state.subjects[index].id
        for kind, name in sorted(facts):
            try:
                if kind == "about":
                    run.reads.entity(EntityKey(tenant, id))
                else:
                    run.reads.sensor(SensorKey(tenant, id, kind, name))
            except Missing as found:
                missing += found.keys
    if missing:
        raise Missing(*dict.fromkeys(missing))


# --- ends ------------------------------------------------------------------------------------------
def index_of(parent: Walk, child: Walk) -> int:
    """The subject that a lane is for."""
    fan = parent.fan
    assert fan is not None
    return nth(fan.targets, child.branch)


def leaving(run: Run, walk: Walk, output: Any) -> Any:
    """The lane of an entity ends well: what its parent gets. Of several steps each may be asked for later."""
    parent = run.walk(walk.parent)
    step = parent.here()
    index = index_of(parent, walk)
    if run.progress.get(index) is Progress.FAILED:
        return None  # put up with
    members = run_of(run, step)
    if is_last(run, members[-1]):
        note(run, walk, index, Progress.DONE)
    if len(members) == 1:
        return output
    kept = [each.keep for each in members[:-1] if each.keep]
    found = {id: walk.step(id) for id in kept}
    return [output, {id: value for id, value in found.items() if value is not ABSENT}]


def is_last(run: Run, step: Step) -> bool:
    """Nothing more is done for entities of that type, as the steps stand in the workflow."""
    return run.workflow.last_upon.get(run.workflow.scopes[step.index]) == step.wraps


def look(run: Run, parent: Walk, step: Step) -> None:
    """A lane of an entity has ended, well or not."""
    fan = parent.fan
    assert fan is not None
    if fan.next < fan.count and not _is_closed(run, parent):
        if parent.open < fan.limit:
            run.attempt(parent, fill, step)
        return
    if parent.open:
        run.flush(parent)
    elif parent.failed:
        run.then(parent, fail, step)
    else:
        run.then(parent, gather, step)


def gather(run: Run, walk: Walk, step: Step) -> bool:
    """All have passed, or are put up with: a map of what each entity came to is the output of the step."""
    fan = walk.fan
    assert fan is not None
    members = run_of(run, step)
    merged = {**walk._all_results(), **walk.results}
    subjects = run.state.subjects
    results: list[dict[str, Any]] = [{} for _ in members]
    lost: list[str] = []
    for number, index in enumerate(all_of(fan.targets)):
        subject = subjects[index]
        if number not in merged or progress_of(run, subject) in OUT:
            lost.append(subject.id)
            continue
        value = merged[number]
        if len(members) > 1:
            value, others = value
            for at, each in enumerate(members[:-1]):
                if each.keep in others:
                    results[at][subject.id] = others[each.keep]
        results[-1][subject.id] = value
    walk.drop()
    for each, found in zip(members, results, strict=True):
        _remember(run, walk, each, found, lost, is_output=each is members[-1])
    last = members[-1]
    walk.position += len(members) - 1
    if last.has_after:
        return flow.finish(run, walk, last)
    walk.position += 1
    return True


def _remember(run: Run, walk: Walk, step: Step, found: dict[str, Any], lost: list[str], is_output: bool) -> None:
    plan = run.workflow.plan
    assert plan is not None
    keep = step.keep
    if plan.batches and (is_output or keep):
        keep = keep or f"{OWN}{step.index}"  # the next batch adds to it
        before = walk.step(keep)
        found = {**(walk.load(before) if before is not ABSENT else {}), **found}
    if not is_output and not keep:
        return
    try:
        kept = run.keep(found)
    except TooLong:
        # Nothing that was done for so many may fail for that.
        kept = {}
        walk.log(f"step {step.label}: what {len(found):,} entities came to is too long to be kept together", step)
    if is_output:
        walk.set_output(kept)
    if keep:
        walk.put(Op.STEP, keep, kept)
        walk.remember(keep, kept)
    if step.keep and (lost or walk.step(f"{step.keep}.failed") is not ABSENT):
        earlier = walk.step(f"{step.keep}.failed")
        failed = [*(walk.load(earlier) if plan.batches and earlier is not ABSENT else ()), *lost]
        value = run.keep(failed)
        walk.put(Op.STEP, f"{step.keep}.failed", value)
        walk.remember(f"{step.keep}.failed", value)


# --- failing ---------------------------------------------------------------------------------------
def _tolerates(run: Run, more: int) -> bool:
    """Whether so many more failed entities are put up with."""
    plan = run.workflow.plan
    assert plan is not None
    if plan.tolerance is None:
        return False
    total = count_of(run.state.subjects, run.workflow.types_upon)
    return not plan.tolerance.exceeded(run.failed_subjects + more, total)


def _put_up_with(run: Run, walk: Walk, index: int, reason: str, step: Step) -> None:
    id = run.state.subjects[index].id
    walk.log(f"{id} failed, is left out from here on, and that is tolerated: {reason}", step)
    note_failed(run, walk, index, reason, step)


def failed(run: Run, walk: Walk, failure: Failure) -> bool:
    """Nobody in the lane of an entity handles it. Whether it is put up with; the lane has ended then."""
    if failure.kind in failing.STOPPING:
        return False
    parent = run.walk(walk.parent)
    index = index_of(parent, walk)
    reason = failure.message[:500]
    if parent.stop is None and not _is_closed(run, parent) and _tolerates(run, 1):
        _put_up_with(run, walk, index, reason, parent.here())
        flow.over(run, walk, None)
        return True
    note_failed(run, walk, index, reason, parent.here())
    return False


def _is_closed(run: Run, walk: Walk) -> bool:
    """More has failed than may: no further lane is opened."""
    plan = run.workflow.plan
    assert plan is not None
    return walk.failed > 0 and (plan.is_fail_fast or plan.tolerance is not None)


def halt_waiting(run: Run, parent: Walk) -> None:
    """`fail-fast`: what no worker has begun is not begun; what runs ends, and its lane goes no further."""
    plan = run.workflow.plan
    assert plan is not None
    if not plan.is_fail_fast or parent.failed > 1 or parent.stop is not None:
        return
    for child in list(run.below(parent.id, parent.floor)):
        if child.wait is Wait.STOPPED or child.open:
            continue
        if child.wait is Wait.JOB and any(job.status is JobStatus.STARTED for job in run.jobs_of(child.id)):
            continue
        run.then(child, failing.halt, STOPPED, 0)


def goes_no_further(run: Run, walk: Walk) -> bool:
    """Between two steps of a lane: another entity has failed, and the workflow says `fail-fast`."""
    plan = run.workflow.plan
    return plan is not None and plan.is_fail_fast and run.walk(walk.parent).failed > 0


def is_stopping(workflow: Workflow, state: State, lane: Lane) -> bool:
    """The same, where only the state is at hand."""
    plan = workflow.plan
    return plan is not None and plan.is_fail_fast and state.lanes[lane.parent].failed > 0


def fail(run: Run, walk: Walk, step: Step) -> bool:
    """The step failed for some entities, after the others have ended."""
    found: list[tuple[str, Failure]] = []
    stopped: Failure | None = None
    for child in run.below(walk.id, walk.floor):
        failure = run.failure_of(child)
        if failure is not None and failure.kind not in failing.STOPPING:
            found.append((child.site, failure))
        elif failure is not None:
            stopped = failure
    walk.set_wait(Wait.NOTHING)
    if not found:
        assert stopped is not None
        return failing.propagate(run, walk, stopped, walk.depth - 1)
    fan = walk.fan
    assert fan is not None
    first = found[0][1]
    listed = [
        {"entity": id, "kind": each.kind, "message": each.message, "step": each.step} for id, each in found[:_LISTED]
    ]
    type = run.workflow.scopes[step.index]
    named = _names([id for id, _ in found])
    message = f"failed for {len(found)} of {fan.count} {_many(type)} ({named}): {first.message}"
    failure = Failure(
        first.kind, message, code=first.code, type=first.type, details=listed, step=first.step or step.label,
        is_repeatable=all(each.is_repeatable for _, each in found),
    )  # fmt: skip
    return failing.propagate(run, walk, failure, walk.depth - 1)


def _names(ids: list[str]) -> str:
    more = len(ids) - _NAMED
    return ", ".join(ids[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _many(type: str) -> str:
    return f"{type}s"


# --- going on, and the end -------------------------------------------------------------------------
def carried(run: Run, walk: Walk) -> None:
    """The lane of an entity that failed goes on."""
    parent = run.walk(walk.parent)
    index = index_of(parent, walk)
    if progress_of(run, run.state.subjects[index]) is Progress.FAILED:
        note(run, walk, index, Progress.REACHED)
