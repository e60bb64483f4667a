"""The interpreter: told what happened, it walks lanes as far as they go and says what it wants next.

Its state is data in `core.lanes`, never a Python stack. It reads the state and never changes it; what it
changes on the way lives in walks, thin overlays over the lanes it touches, so a call costs the same however
many variables, lanes or past steps there are. Same arguments, same commands: nothing here iterates over a set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import ROOT_LANE, Op
from holdfast.core.model import BlobRef, BlockOffer, Failure, JobSpec, Problem, Wait
from holdfast.core.program import (
    Advance,
    Begun,
    Cause,
    Command,
    Complete,
    Fail,
    JobEnded,
    Reads,
    ScheduleJob,
    SetTimer,
    SignalArrived,
    TakeAnotherTurn,
    TimerEnded,
    TooLong,
    TurnGranted,
)

from . import pinning
from .compiled import Parameter, Step, Workflow
from .evaluate import FUEL as EXPRESSION_FUEL
from .operations import ExpressionError
from .walk import SMALL, Walk

if TYPE_CHECKING:
    from holdfast.core.state import State

#: internal steps per call, all lanes together
FUEL = 1_000
#: steps of one lane before others get their turn
QUANTUM = 100
#: so much expression fuel costs as much as one step
_FUEL_PER_STEP = 4
_MAX_LOG = 8_192


class YamlProgram:
    """A workflow of the step language as the core sees it."""

    __slots__ = ("_pinned", "blocks", "name", "workflow")

    def __init__(self, workflow: Workflow) -> None:
        #: the offers that were last asked for, and the answer: executions of one program come in crowds
        self._pinned: tuple[Mapping[str, BlockOffer], tuple[tuple[JobSpec, ...], list[Problem]]] | None = None
        self.workflow = workflow
        self.name: str = workflow.name
        self.blocks: Sequence[str] = tuple(dict.fromkeys(spec.block for spec in workflow.specs))

    @property
    def parameters(self) -> tuple[Parameter, ...] | None:
        return self.workflow.parameters

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.workflow.steps

    def check_input(self, input: Any) -> tuple[Any, list[Problem]]:
        return pinning.check_input(self.workflow, input)

    def pin(self, blocks: Mapping[str, BlockOffer]) -> tuple[tuple[JobSpec, ...], list[Problem]]:
        if self._pinned is None or self._pinned[0] != blocks:
            self._pinned = (dict(blocks), pinning.pin(self.workflow, blocks))
        specs, problems = self._pinned[1]
        return specs, list(problems)

    def label(self, step: int) -> str:
        steps = self.workflow.steps
        return steps[step].label if 0 <= step < len(steps) else self.name

    def advance(self, state: State, cause: Cause, now: int, reads: Reads) -> list[Command]:
        if isinstance(cause, JobEnded):
            if cause.failure is not None:
                return [Fail(cause.failure, self.label(cause.step))]
            commands = self.straight_on(state, cause, reads)
            if commands is not None:
                return commands
        run = _Run(self.workflow, state, cause, now, reads)
        match cause:
            case JobEnded():
                run.job_ended(cause.lane, cause)
            case TimerEnded(lane=lane):
                walk = run.walk(lane)
                run.pass_on(walk, walk.here())
            case Begun():
                run.queue.append(run.walk(ROOT_LANE))
            case SignalArrived(name=name):
                run.signal(name)
            case TurnGranted():
                run.resume_turns()
        return run.drive()

    def straight_on(self, state: State, cause: JobEnded, reads: Reads) -> list[Command] | None:
        """From one block to the next with nothing to evaluate: most of what ever happens, so it is worth a way
        of its own. It says what the general way would say, or nothing."""
        frame = state.lanes[cause.lane].frames[-1]
        body = self.workflow.bodies[frame.scope, frame.body]
        after = frame.position + 1
        if after >= len(body):
            return None
        step, following = body[frame.position], body[after]
        if not following.is_plain or step.output is not None:
            return None
        input: Any = following.fixed
        if input is not None:
            input = reads.keep(state.id, input)
        ops = ((Op.RESULT, cause.job, step.keep), (Op.MOVE, after))
        return [
            Advance(cause.lane, ops),
            ScheduleJob(cause.lane, following.index, following.spec, input),
        ]


class _Run:
    """One call of `advance`."""

    __slots__ = ("cause", "commands", "consumed", "fuel", "is_over", "loaded", "next_lane", "now", "queue",
                 "reads", "state", "turns_left", "walks", "workflow")  # fmt: skip

    def __init__(self, workflow: Workflow, state: State, cause: Cause, now: int, reads: Reads) -> None:
        self.workflow = workflow
        self.state = state
        self.cause = cause
        self.now = now
        self.reads = reads
        self.commands: list[Command] = []
        self.walks: dict[int, Walk] = {}
        #: lanes that can move, in the order in which they go on
        self.queue: deque[Walk] = deque()
        self.fuel = FUEL
        self.next_lane = state.next_lane
        self.consumed: dict[str, int] = {}
        #: long values that were read during this call
        self.loaded: dict[bytes, Any] = {}
        self.is_over = False
        #: lanes that wait for a turn and were not reached in this one
        self.turns_left = False

    def walk(self, lane: int) -> Walk:
        walk = self.walks.get(lane)
        if walk is None:
            walk = self.walks[lane] = Walk(self, self.state.lanes[lane])
        return walk

    def keep(self, value: Any) -> Any:
        """A value on its way into the history; long ones become references."""
        kind = type(value)
        if kind in SMALL or (kind is str and len(value) <= 256) or kind is BlobRef:
            return value
        return self.reads.keep(self.state.id, value)

    # --- what happened -----------------------------------------------------------------------------
    def job_ended(self, lane: int, cause: JobEnded) -> None:
        walk = self.walk(lane)
        step = walk.here()
        walk.output = cause.result
        if step.output is None:
            walk.ops.append((Op.RESULT, cause.job, step.keep))
            if step.keep:
                walk.remember(step.keep, cause.result)
            walk.position += 1
            self.queue.append(walk)
            return
        walk.ops.append((Op.FORGET, cause.job))
        job = self.state.jobs.get(cause.job)
        walk.local = self.reads.load(self.state.id, job.input) if job is not None and job.input else None
        self.pass_on(walk, step)

    def signal(self, name: str) -> None:
        """One signal wakes one lane: the one that has listened longest."""
        for lane in self.state.lanes.values():
            if lane.wait is Wait.SIGNAL and lane.signal == name:
                walk = self.walk(lane.id)
                step = walk.here()
                self.consume(walk, name)
                self.pass_on(walk, step)
                return

    def resume_turns(self) -> None:
        """Lanes take turns at going first, or an endless one would starve those behind it."""
        waiting = [id for id, lane in self.state.lanes.items() if lane.wait is Wait.TURN]
        if waiting:
            start = (self.state.turn * (FUEL // QUANTUM)) % len(waiting)
            most = FUEL  # each lane takes at least one step
            order = (waiting[start:] + waiting[:start])[:most]
            self.queue.extend(self.walk(id) for id in order)
            self.turns_left = len(waiting) > most

    # --- going on ----------------------------------------------------------------------------------
    def drive(self) -> list[Command]:
        queue = self.queue
        while queue:
            if self.fuel <= 0:
                self.out_of_fuel()
                break
            self.go(queue.popleft())
            if self.is_over:
                return self.commands
        if self.turns_left and (not self.state.is_turn_open or isinstance(self.cause, TurnGranted)):
            self.commands.append(TakeAnotherTurn())
        return self.commands

    def out_of_fuel(self) -> None:
        self.turns_left = True
        for walk in self.queue:
            self.stop(walk, Wait.TURN)

    def go(self, walk: Walk) -> None:
        """Steps of one lane until it waits, ends or has had its share."""
        share = QUANTUM
        step: Step | None = None
        try:
            while True:
                body = walk.body
                if walk.position >= len(body):
                    step = None
                    self.end(walk)
                    return
                if self.fuel <= 0 or share <= 0:
                    self.queue.append(walk)
                    return
                step = body[walk.position]
                walk.fuel = EXPRESSION_FUEL
                walk.local = None
                if step.condition is not None and not self.holds(walk, step):
                    walk.position += 1
                elif not _ENTER[step.kind](self, walk, step):
                    return
                cost = 1 + (EXPRESSION_FUEL - walk.fuel) // _FUEL_PER_STEP
                self.fuel -= cost
                share -= cost
        except ExpressionError as error:
            failure = Failure("expression-error", str(error), code=error.code)
            self.fail(walk, failure, step.label if step else "")
        except TooLong as error:
            failure = Failure("value-too-large", str(error), code="HF0701")
            self.fail(walk, failure, step.label if step else "")

    def holds(self, walk: Walk, step: Step) -> bool:
        assert step.condition is not None
        walk.asking = step.by_name
        held = step.condition(walk)
        walk.asking = None
        return held

    def pass_on(self, walk: Walk, step: Step) -> None:
        """The step that was waited for is done; the lane goes on."""
        try:
            self.done(walk, step)
        except ExpressionError as error:
            self.fail(walk, Failure("expression-error", str(error), code=error.code), step.label)
            return
        except TooLong as error:
            self.fail(walk, Failure("value-too-large", str(error), code="HF0701"), step.label)
            return
        self.queue.append(walk)

    def done(self, walk: Walk, step: Step) -> None:
        """What follows the work of every step: its `output`, and remembering it."""
        if step.output is not None:
            walk.asking = step.by_name
            value = self.keep(step.output.get(walk))
            walk.asking = None
            walk.output = value
            walk.ops.append((Op.OUTPUT, value))
        if step.keep:
            walk.ops.append((Op.STEP, step.keep, walk.output))
            walk.remember(step.keep, walk.output)
        walk.position += 1

    def stop(self, walk: Walk, wait: Wait) -> None:
        """The lane waits; what it did so far becomes one command."""
        walk.settle_position()
        if walk.wait is not wait:
            walk.put(Op.WAIT, int(wait))
            walk.wait = wait
        self.flush(walk)

    def flush(self, walk: Walk) -> None:
        walk.settle_position()
        if walk.ops or walk.logs:
            self.commands.append(Advance(walk.id, tuple(walk.ops), tuple(walk.logs)))
            walk.ops, walk.logs = [], []

    def end(self, walk: Walk) -> None:
        if walk.parent:
            walk.ops.append((Op.END, walk.output))
            self.commands.append(Advance(walk.id, tuple(walk.ops), tuple(walk.logs)))
            parent = self.walk(walk.parent)
            parent.results[walk.branch] = walk.output
            parent.open -= 1
            del self.walks[walk.id]
            if not parent.open:
                self.gather(parent)
            return
        output = walk.output
        if self.workflow.output is not None:
            walk.fuel, walk.local = EXPRESSION_FUEL, None
            output = self.keep(self.workflow.output.get(walk))
        # The end forgets lanes and jobs; only what people may want to read is worth the bytes.
        ops = tuple(op for op in walk.ops if op[0] in _WORTH)
        if ops or walk.logs:
            self.commands.append(Advance(walk.id, ops, tuple(walk.logs)))
        self.commands.append(Complete(output))
        self.is_over = True

    def gather(self, walk: Walk) -> None:
        """All branches have ended: their outputs become the output of the step."""
        step = walk.here()
        results = walk.gathered()
        if step.output is None:
            walk.ops.append((Op.GATHER, step.keep, step.keys))
        else:
            walk.ops.append((Op.GATHER, "", step.keys))
        walk.output = results if step.keys is None else dict(zip(step.keys, results, strict=True))
        if step.output is None:
            if step.keep:
                walk.remember(step.keep, walk.output)
            walk.position += 1
            self.queue.append(walk)
        else:
            self.pass_on(walk, step)

    def fail(self, walk: Walk, failure: Failure, label: str) -> None:
        """The lane stands at the step that failed; what it did before is recorded."""
        if walk.wait is not Wait.NOTHING:
            walk.put(Op.WAIT, int(Wait.NOTHING))
        self.flush(walk)
        self.commands.append(Fail(failure, label))
        self.queue.clear()
        self.is_over = True

    # --- signals -----------------------------------------------------------------------------------
    def pending(self, name: str) -> tuple[bool, Any]:
        """The next signal of that name that nothing has taken, the one that just arrived included."""
        skip = self.consumed.get(name, 0)
        kept = [value for other, value in self.state.signals if other == name]
        if isinstance(self.cause, SignalArrived) and self.cause.name == name and not kept:
            kept = [self.cause.value]
        return (True, kept[skip]) if skip < len(kept) else (False, None)

    def consume(self, walk: Walk, name: str) -> bool:
        found, value = self.pending(name)
        if found:
            self.consumed[name] = self.consumed.get(name, 0) + 1
            walk.put(Op.CONSUME, name)
            walk.output = value
        return found


# --- what steps do ---------------------------------------------------------------------------------
# Each function enters one step. It answers whether the lane goes on at once.
def _let(run: _Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    value = step.args["value"].get(walk)
    if step.type:
        value = walk.coerced(step.type, value)
    value = run.keep(value)
    if step.variable == "output":
        walk.output = value
        walk.ops.append((Op.OUTPUT, value))
    else:
        walk.set(step.variable, value)
    run.done(walk, step)
    return True


def _log(run: _Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    walk.log(walk.text(step.args["message"])[:_MAX_LOG], step)
    run.done(walk, step)
    return True


def _sleep(run: _Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    duration = step.duration if step.duration >= 0 else walk.duration(step.args["duration"])
    if duration <= 0:
        run.done(walk, step)
        return True
    run.stop(walk, Wait.TIMER)
    run.commands.append(SetTimer(walk.id, run.now + duration))
    return False


def _fail(run: _Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    message = walk.text(step.args["message"]) if "message" in step.args else f"step {step.label} failed"
    details = run.keep(step.args["value"].get(walk)) if "value" in step.args else None
    run.fail(walk, Failure("fail", message[:_MAX_LOG], details=details), step.label)
    return False


def _return(run: _Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    walk.output = run.keep(step.args["value"].get(walk))
    if step.output is not None:
        walk.output = run.keep(step.output.get(walk))
    run.end(walk)
    return False


def _no_op(run: _Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    run.done(walk, step)
    return True


def _block(run: _Run, walk: Walk, step: Step) -> bool:
    input: Any = step.fixed
    if input is None and step.inputs:
        walk.bind(step)
        input = walk.local
    run.stop(walk, Wait.JOB)
    run.commands.append(ScheduleJob(walk.id, step.index, step.spec, run.keep(input)))
    return False


def _parallel(run: _Run, walk: Walk, step: Step) -> bool:
    walk.settle_position()
    children = []
    for number in range(step.bodies):
        lane = run.next_lane
        run.next_lane += 1
        walk.put(Op.SPAWN, lane, number, step.index, number, {})
        child = run.walks[lane] = Walk.spawned(run, lane, walk, number, step.index, number)
        children.append(child)
    walk.open = step.bodies
    run.stop(walk, Wait.LANES)
    run.queue.extend(children)
    return False


def _wait_signal(run: _Run, walk: Walk, step: Step) -> bool:
    walk.bind(step)
    name = walk.text(step.args["signal"])
    if run.consume(walk, name):
        run.done(walk, step)
        return True
    walk.settle_position()
    walk.put(Op.LISTEN, name)
    walk.wait = Wait.SIGNAL
    run.flush(walk)
    return False


_ENTER = {
    "let": _let,
    "log": _log,
    "sleep": _sleep,
    "fail": _fail,
    "return": _return,
    "no-op": _no_op,
    "block": _block,
    "parallel": _parallel,
    "wait-signal": _wait_signal,
}
_WORTH = frozenset((Op.SET, Op.UNSET, Op.STEP))
