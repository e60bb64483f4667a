"""Lanes below a step: branches, graphs, nested workflows and loops. How they are opened, and what their ends mean.

A step waits for all of its lanes. Once one has failed no further one is opened; when the last has ended, the step
fails with what failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.lanes import BODY, ENTERING, Op
from holdfast.core.model import Failure, Wait

from . import again, entities, failing, flow, pinning
from .compiled import Step
from .evaluate import ABSENT, settle
from .operations import ExpressionError
from .walk import Walk

if TYPE_CHECKING:
    from .interpret import Run

#: targets of one step
MAX_TARGETS = 100_000


# --- opening ---------------------------------------------------------------------------------------
def _spawn(
    run: Run, walk: Walk, branch: int, scope: int, body: int, variables: dict[str, Any], entity: str = ""
) -> Walk:
    owner = run.workflow.steps[scope].owner
    phase = ENTERING if owner is not None and owner.is_entered else BODY
    lane = run.next_lane
    run.next_lane += 1
    if phase or entity:
        walk.put(Op.SPAWN, lane, branch, scope, body, variables, phase, entity)
    else:
        walk.put(Op.SPAWN, lane, branch, scope, body, variables)
    child = run.walks[lane] = Walk.spawned(run, lane, walk, branch, scope, body, variables, phase, entity)
    walk.open += 1
    if walk.fan is not None:
        walk.fan.next += 1
    return child


def branches(run: Run, walk: Walk, step: Step) -> bool:
    """`parallel` and `graph`: one lane per body, as soon as what it needs has ended."""
    if walk.failed:
        return again.children(run, walk)
    walk.settle_position()
    opened = [
        _spawn(run, walk, number, step.index, number, {})
        for number in range(step.bodies)
        if step.needs is None or not step.needs[number]
    ]
    run.stop(walk, Wait.LANES)
    run.queue.extend(opened)
    return False


def _open_ready(run: Run, walk: Walk, step: Step, ended: int) -> None:
    """Nodes of a graph that only waited for this one. What they need are variables of theirs."""
    assert step.needs is not None
    keys = step.keys or ()
    opened = [
        _spawn(run, walk, number, step.index, number, {keys[need]: walk.result(need) for need in needs})
        for number, needs in enumerate(step.needs)
        if ended in needs and all(walk.has_result(need) for need in needs)
    ]
    if opened:
        run.flush(walk)
        run.queue.extend(opened)


def once(run: Run, walk: Walk, step: Step) -> bool:
    """A nested workflow without targets, or a registered type."""
    if walk.failed:
        return again.children(run, walk)
    walk.bind(step)
    given = {name: run.keep(value) for name, value in (walk.local or {}).items()}
    scope, entity = step.index, ""
    if step.uses >= 0:
        scope = step.uses
        given = _parameters(run, walk, step, given)
    if "entity" in step.args:
        entity = walk.text(step.args["entity"])
    child = _spawn(run, walk, 0, scope, 0, given, entity)
    run.stop(walk, Wait.LANES)
    run.queue.append(child)
    return False


def _parameters(run: Run, walk: Walk, step: Step, given: dict[str, Any]) -> dict[str, Any]:
    """What a registered type sees: only its parameters, checked."""
    made = run.workflow.types[step.uses]
    values = {name: settle(walk, value, None) for name, value in given.items()}
    checked, problems = pinning.check_parameters(made.parameters, made.defaults, values)
    if problems:
        raise failing.Raised(Failure("invalid", problems[0].message, code=problems[0].code))
    return {name: run.keep(value) for name, value in checked.items()}


def each(run: Run, walk: Walk, step: Step) -> bool:
    """A nested workflow for every target."""
    if walk.failed:
        return again.children(run, walk)
    if walk.fan is not None:
        return fill(run, walk, step)  # out of fuel in the middle of it
    walk.bind(step)
    targets, count = _targets(run, walk, step)
    limit = _limit(walk, step, count)
    reducing = None
    if step.reducing is not None:
        reducing = {name: run.keep(value.get(walk)) for name, value in step.reducing}
    walk.settle_position()
    walk.set_fan(targets, count, limit, reducing)
    if not count:
        return gather(run, walk, step)
    return fill(run, walk, step)


def _targets(run: Run, walk: Walk, step: Step) -> tuple[Any, int]:
    found = walk.load(step.args["target"].get(walk))
    if isinstance(found, str):
        found = _range(found)
    if isinstance(found, int) and not isinstance(found, bool):
        found = list(range(found)) if step.kind == "foreach" else [found]
    if isinstance(found, dict):
        found = [{"key": key, "value": value} for key, value in found.items()]
    if isinstance(found, tuple):
        first, last = found
        if step.each is None:
            return ["range", first, last], last - first + 1
        found = list(range(first, last + 1))
    if not isinstance(found, list):
        raise ExpressionError(f"the target is a list or `1..10`, not {type(found).__name__}")
    if len(found) > MAX_TARGETS:
        raise ExpressionError(f"{len(found):,} targets; {MAX_TARGETS:,} are allowed", code="HF0161")
    if step.each is not None:
        found = [target for index, target in enumerate(found) if _passes(walk, step, target, index)]
    return run.keep(["list", *found]), len(found)


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    try:
        low, high = int(first), int(last)
    except ValueError:
        raise ExpressionError(f"the target `{text[:40]}` is neither a list nor a range like `1..10`") from None
    if not dots or low > high:
        raise ExpressionError(f"the range `{text[:40]}` is empty; it goes from the smaller to the larger")
    if high - low >= MAX_TARGETS:
        raise ExpressionError(f"{high - low + 1:,} targets; {MAX_TARGETS:,} are allowed", code="HF0161")
    return low, high


def _passes(walk: Walk, step: Step, target: Any, index: int) -> bool:
    assert step.each is not None
    walk.local = {**(walk.local or {}), **_loop_variables(step, target, index), TARGET: target}
    return step.each(walk)


#: under this name the test of a target finds it
TARGET = "target"


def _loop_variables(step: Step, target: Any, index: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if len(step.loop) == 1:
        made[step.loop[0]] = target
    else:
        for name in step.loop:
            made[name] = target.get(name) if isinstance(target, dict) else None
        made[TARGET] = target
    made[step.loop_index] = index
    return made


def _limit(walk: Walk, step: Step, count: int) -> int:
    if step.concurrency is None or not count:
        return 1
    try:
        return step.concurrency(walk, count)
    except ValueError as error:
        raise ExpressionError(str(error)) from None


def fill(run: Run, walk: Walk, step: Step) -> bool:
    """Open lanes for the next targets, as many as may run at the same time."""
    fan = walk.fan
    assert fan is not None
    opened = []
    targets = None
    while fan.next < fan.count and walk.open < fan.limit and not walk.failed and run.fuel > 0:
        if targets is None:
            targets = walk.load(fan.targets)
        index = fan.next
        target = targets[1] + index if targets[0] == "range" else targets[1 + index]
        variables = {**(walk.local or {}), **_loop_variables(step, target, index), **(fan.reducing or {})}
        opened.append(_spawn(run, walk, index, step.index, 0, {k: run.keep(v) for k, v in variables.items()}))
        run.fuel -= 1
    more = fan.next < fan.count and walk.open < fan.limit and not walk.failed
    run.stop(walk, Wait.TURN if more else Wait.LANES)
    run.turns_left = run.turns_left or more
    run.queue.extend(opened)
    return False


# --- ends ------------------------------------------------------------------------------------------
def ended(run: Run, parent: Walk, child: Walk, output: Any) -> None:
    """A lane has ended well."""
    run.forget(child)
    parent.results[child.branch] = output
    parent.open -= 1
    fan = parent.fan
    if fan is not None and fan.reducing is not None:
        parent.reduce({name: _reduced(run, child, name, output) for name in fan.reducing})
    _look(run, parent, child.branch)


def _reduced(run: Run, child: Walk, name: str, output: Any) -> Any:
    """The value of that key in the output, if it has one; else of the variable."""
    given = child.load(output)
    if isinstance(given, dict) and name in given:
        return run.keep(given[name])
    value = child.variable(name)
    return None if value is ABSENT else value


def failed(run: Run, parent: Walk) -> None:
    parent.failed += 1
    if parent.fan is not None and parent.here().kind == "entities":
        entities.halt_waiting(run, parent)  # this lane still counts as open: the parent has its turn only once
    parent.open -= 1
    _look(run, parent, -1)


def _look(run: Run, parent: Walk, branch: int) -> None:
    """What the end of one of its lanes means for a lane."""
    if parent.stop is not None:
        if not parent.open:
            failures = [run.failure_of(child) for child in run.below(parent.id, parent.floor)]
            run.then(parent, failing.stopped, all(each is None or each.is_repeatable for each in failures))
        return
    step = parent.here()
    if step.kind == "entities":
        entities.look(run, parent, step)
        return
    if not parent.failed:
        if step.needs is not None and branch >= 0:
            _open_ready(run, parent, step, branch)
        fan = parent.fan
        if fan is not None and fan.next < fan.count:
            if parent.open < fan.limit:
                parent.local = None
                if step.inputs:
                    parent.bind(step)
                run.attempt(parent, fill, step)
            return
    if parent.open:
        run.flush(parent)
    elif parent.failed:
        run.then(parent, _fail, step)
    else:
        run.then(parent, gather, step)


def _fail(run: Run, walk: Walk, step: Step) -> bool:
    """The step failed with its lanes. What a nested workflow handles, it has handled by itself."""
    failures = [failure for child in run.below(walk.id, walk.floor) if (failure := run.failure_of(child)) is not None]
    first = failures[0]
    if len(failures) > 1:
        listed = [{"kind": each.kind, "message": each.message, "step": each.step} for each in failures[:20]]
        first = Failure(
            first.kind, f"{len(failures)} errors including: {first.message}", code=first.code, details=listed,
            step=first.step, is_repeatable=all(each.is_repeatable for each in failures),
        )  # fmt: skip
    walk.set_wait(Wait.NOTHING)
    first = msgspec.structs.replace(first, step=first.step or step.label)
    return failing.propagate(run, walk, first, walk.depth - 1, failing.NESTED if step.owner is not None else 0)


def gather(run: Run, walk: Walk, step: Step) -> bool:
    """All lanes have ended well: their outputs become the output of the step."""
    walk.local = None
    keep = "" if step.output is not None or step.has_after else step.keep
    fan = walk.fan
    if fan is not None and fan.reducing is not None:
        reduced = fan.reducing
        walk.drop()
        for name, value in reduced.items():
            walk.set(name, value)
        walk.set_output(run.keep(reduced))
        return flow.done(run, walk, step)
    is_single = (fan is None and step.owner is not None) or step.uses >= 0
    results = walk.gathered()
    if is_single:
        (walk.output,) = results
        walk.ops.append((Op.TAKE, keep))
    else:
        walk.output = results if step.keys is None else dict(zip(step.keys, results, strict=True))
        kept = run.keep(walk.output)
        if kept is walk.output:
            walk.ops.append((Op.GATHER, keep, step.keys))
        else:
            # Long like any other value: branches that pass on what they were given would double it at every turn.
            walk.ops.append((Op.DROP,))
            walk.set_output(kept)
            walk.keep_output(keep)
    if step.output is not None or step.has_after:
        return flow.done(run, walk, step)
    if keep:
        walk.remember(keep, walk.output)
    walk.position += 1
    return True
