"""The interpreter: told what happened, it walks lanes as far as they go and says what it wants next.

Its state is data in `core.lanes`, never a Python stack. It reads the state and never changes it; what it
changes on the way lives in walks, thin overlays over the lanes it touches, so a call costs the same however
many variables, lanes or past steps there are. Same arguments, same commands: nothing here iterates over a set.

Here is what wakes it and how lanes share their turn; `flow` is the way from step to step, `failing` the way of
errors, `fanout` lanes below a step, `again` retry and replay, `sharing` locks and sensors, `entering` the steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import AGAIN, ENTERING, HANDLER, REENTERING, ROOT_LANE, WAITING, WHOLE, Lane, Op
from holdfast.core.model import DEFAULT_ENTITY, BlobRef, BlockOffer, Failure, Gate, JobSpec, Policy, Problem, Wait
from holdfast.core.program import (
    Acquire,
    Advance,
    Begun,
    CarryOn,
    Cause,
    Command,
    Complete,
    GoAgain,
    JobEnded,
    LockBroken,
    LockGranted,
    Outline,
    ScheduleJob,
    SensorMoved,
    SignalArrived,
    StopAsked,
    TakeAnotherTurn,
    TimerEnded,
    TurnGranted,
    Wanted,
)
from holdfast.core.reads import Reads, TooLong

from . import again, entities, failing, flow, outlining, pinning, reaching, sharing, wanting
from .arranging import arrange, fitted, inner_at
from .compiled import Parameter, Plan, Step, Workflow
from .doing import ENTER
from .evaluate import FUEL as EXPRESSION_FUEL
from .operations import ExpressionError
from .selectors import compile_selector
from .walk import SMALL, Walk

if TYPE_CHECKING:
    from holdfast.core.state import Job, State
    from holdfast.core.subjects import Progress, Subject

    from .scope import LaneScope

#: internal steps per call, all lanes together
FUEL = 1_000
#: steps of one lane before others get their turn
QUANTUM = 100
#: so much expression fuel costs as much as one step
_FUEL_PER_STEP = 4
_NO_PLAN = Plan()


class YamlProgram:
    """A workflow of the step language as the core sees it."""

    __slots__ = ("_arranged", "_pinned", "blocks", "name", "workflow")

    def __init__(self, workflow: Workflow) -> None:
        #: the offers that were last asked for, and the answer: executions of one program come in crowds
        self._pinned: tuple[Mapping[str, BlockOffer], tuple[tuple[JobSpec, ...], list[Problem]]] | None = None
        #: types of entities that the blocks of an execution are for → the workflow as that execution walks it
        self._arranged: dict[tuple[str, ...], Workflow] = {}
        self.workflow = workflow
        self.name: str = workflow.name
        self.blocks: Sequence[str] = tuple(dict.fromkeys(spec.block for spec in workflow.specs))

    @property
    def parameters(self) -> tuple[Parameter, ...] | None:
        return self.workflow.parameters

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.workflow.steps

    @property
    def cleans_up(self) -> bool:
        return self.workflow.cleans_up

    @property
    def retention(self) -> tuple[str, str]:
        return self.workflow.retention

    @property
    def is_replayable(self) -> bool:
        return self.workflow.owner.is_replayable

    def check_input(self, input: Any) -> tuple[Any, list[Problem]]:
        return pinning.check_input(self.workflow, input)

    def pin(self, blocks: Mapping[str, BlockOffer]) -> tuple[tuple[JobSpec, ...], list[Problem]]:
        if self._pinned is None or self._pinned[0] != blocks:
            specs, problems = pinning.pin(self.workflow, blocks)
            self._pinned = (dict(blocks), fitted(self.workflow, blocks, specs, problems))
        specs, problems = self._pinned[1]
        return specs, list(problems)

    @property
    def policy(self) -> Policy:
        return _NO_PLAN.policy if self.workflow.plan is None else self.workflow.plan.policy

    def gates(self, input: Any, now: int) -> tuple[Gate, ...]:
        return () if self.workflow.plan is None else wanting.gates(self.workflow.plan, input, now)

    def wanted(self, input: Any) -> tuple[Wanted, ...]:
        return () if self.workflow.plan is None else wanting.wanted(self.workflow.plan, input)

    def selector(self, text: str) -> Wanted:
        return compile_selector(text)

    def acquires(self, input: Any, specs: Sequence[JobSpec]) -> tuple[Acquire, ...]:
        return wanting.acquires(self.workflow, input, specs)

    def outline(self, specs: Sequence[JobSpec]) -> Outline:
        return outlining.outline(self.arranged(specs))

    def batches(self, total: int) -> list[int]:
        return outlining.batches(self.workflow, total)

    def label(self, step: int) -> str:
        steps = self.workflow.steps
        return steps[step].label if 0 <= step < len(steps) else self.name

    def used_at(self, block: str) -> str:
        specs = self.workflow.specs
        return next((s.path for s in self.workflow.steps if s.spec >= 0 and specs[s.spec].block == block), "")

    def find_step(self, name: str) -> int | None:
        found = self.workflow.find(name)
        if found is not None:
            return found
        body = self.workflow.bodies.get((-1, 0), ())
        return body[int(name)].index if name.isdigit() and int(name) < len(body) else None

    def place(self, step: int) -> tuple[int, int, int] | None:
        return self.workflow.places.get(step)

    def step_at(self, scope: int, body: int, position: int) -> int | None:
        steps = self.workflow.bodies.get((scope, body), ())
        if not steps and scope >= 0 and self.workflow.steps[scope].wraps >= 0:
            return inner_at(self.workflow, scope, position)
        return steps[position].index if position < len(steps) else None

    def limit_of(self, step: int) -> str | None:
        plan = self.workflow.steps[step].again if step >= 0 else None
        return None if plan is None else ", ".join(map(str, plan.limits))

    def may_resume(self, state: State) -> str:
        return again.why_not(self.arranged(state.specs), state)

    def advance(self, state: State, cause: Cause, now: int, reads: Reads) -> list[Command]:
        if isinstance(cause, JobEnded) and cause.failure is None:
            commands = self.straight_on(state, cause, reads)
            if commands is not None:
                return commands
        run = Run(self.arranged(state.specs), state, cause, now, reads)
        match cause:
            case JobEnded():
                run.job_ended(cause)
            case TimerEnded():
                run.timer_ended(cause)
            case Begun() | GoAgain():
                run.begin()
            case SignalArrived(name=name):
                run.signal(name)
            case TurnGranted():
                run.resume_turns()
            case StopAsked(reason=reason):
                message = f"the execution was cancelled{f': {reason}' if reason else ''}"
                run.then(run.walk(ROOT_LANE), failing.halt, Failure("cancelled", message), 0)
            case CarryOn(is_forced=is_forced):
                again.carry_on(run, is_forced)
            case LockGranted(lane=lane):
                run.then(run.walk(lane), sharing.granted)
            case LockBroken(lane=lane, name=name, why=why):
                run.then(run.walk(lane), sharing.broken, name, why)
            case SensorMoved(lane=lane):
                run.then(run.walk(lane), sharing.moved)
        return run.drive()

    def arranged(self, specs: Sequence[JobSpec]) -> Workflow:
        """As an execution with these blocks walks it."""
        plan = self.workflow.plan
        if plan is None or not plan.policy.works_on_entities:
            return self.workflow
        key = tuple(spec.run_on for spec in specs)
        found = self._arranged.get(key)
        if found is None:
            found = self._arranged[key] = arrange(self.workflow, specs)
        return found

    def straight_on(self, state: State, cause: JobEnded, reads: Reads) -> list[Command] | None:
        """From one block to the next with nothing to evaluate: most of what ever happens, so it is worth a way
        of its own. It says what the general way would say, or nothing."""
        workflow = self.arranged(state.specs)
        lane = state.lanes[cause.lane]
        frame = lane.frames[-1]
        body = workflow.bodies[frame.scope, frame.body]
        after = frame.position + 1
        if lane.rounds or lane.stop is not None or frame.body == HANDLER:
            return None
        entity = lane.entity if workflow.scopes else ""
        if workflow.scopes and (frame.scope not in workflow.scopes or entities.is_stopping(workflow, state, lane)):
            return None
        step = body[frame.position]
        if step.has_after or step.output is not None:
            return None
        if after >= len(body):
            return [Complete(cause.result)] if self.ends_with(lane) else None
        following = body[after]
        if not following.is_plain:
            return None
        input: Any = following.fixed
        if input is not None:
            input = reads.keep(state.id, input)
        ops = ((Op.RESULT, cause.job, step.keep), (Op.MOVE, after))
        return [
            Advance(cause.lane, ops),
            ScheduleJob(cause.lane, following.index, following.spec, input, entity=entity),
        ]

    def ends_with(self, lane: Lane) -> bool:
        """Whether the result of a last block is all that the workflow has to say."""
        owner = self.workflow.owner
        if lane.id != ROOT_LANE or len(lane.frames) > 1 or owner.output is not None or owner.cleanup:
            return False
        return not (lane.timers or lane.results or lane.open or lane.failed or lane.fan is not None)


class Run:
    """One call of `advance`."""

    does = ENTER
    state: State
    now: int

    __slots__ = (
        "_jobs",
        "_shared",
        "cause",
        "commands",
        "consumed",
        "dropped",
        "failed_subjects",
        "failures",
        "fuel",
        "is_forced",
        "is_over",
        "loaded",
        "next_lane",
        "next_timer",
        "now",
        "progress",
        "queue",
        "reads",
        "retention",
        "state",
        "told",
        "turns_left",
        "walks",
        "wholes",
        "workflow",
    )  # fmt: skip

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
        self.next_timer = state.next_timer
        self.consumed: dict[str, int] = {}
        #: lanes that failed during this call, or no longer do
        self.failures: dict[int, Failure | None] = {}
        #: lanes of the state that are gone by now
        self.dropped: set[int] = set()
        #: long values that were read during this call
        self.loaded: dict[bytes, Any] = {}
        self._shared: sharing.Shared | None = None
        self._jobs: dict[int, list[Job]] | None = None
        #: how far entities have come during this call
        self.progress: dict[int, Progress] = {}
        #: entities that others are parts of, by id; nothing while nobody has asked
        self.wholes: dict[str, Subject] | None = None
        #: entities that have failed in all, or were lost
        self.failed_subjects = state.out
        #: rule and hash
        self.retention = (state.retention, state.retention_hash)
        #: signals sent during this call
        self.told = 0
        self.is_over = False
        #: somebody takes the responsibility for entering again what may not run twice
        self.is_forced = False
        #: lanes that wait for a turn and were not reached in this one
        self.turns_left = False

    @property
    def shared(self) -> sharing.Shared:
        """Made when somebody asks: most calls do not."""
        if self._shared is None:
            self._shared = sharing.Shared(self)
        return self._shared

    # --- lanes -------------------------------------------------------------------------------------
    def walk(self, lane: int) -> Walk:
        walk = self.walks.get(lane)
        if walk is None:
            walk = self.walks[lane] = Walk(self, self.state.lanes[lane])
        return walk

    def below(self, id: int, floor: int = 0) -> Iterator[Walk]:
        """The lanes directly below a lane from that number on, oldest first."""
        old = [lane.id for lane in self.state.lanes.values() if lane.parent == id and lane.id not in self.dropped]
        new = [walk.id for walk in self.walks.values() if walk.parent == id and walk.lane is None]
        for lane in sorted({*old, *new}):
            if lane >= floor:
                yield self.walk(lane)

    def drop_below(self, id: int, floor: int = 0) -> None:
        """The lanes below from that number on are gone, however deep."""
        if len(self.state.lanes) == 1 and len(self.walks) == 1:
            return
        for walk in list(self.below(id, floor)):
            self.drop_below(walk.id)
            self.forget(walk)

    def forget(self, walk: Walk) -> None:
        self.walks.pop(walk.id, None)
        self.dropped.add(walk.id)

    def failure_of(self, walk: Walk) -> Failure | None:
        """What a lane has failed with."""
        return self.failures.get(walk.id, walk.own.failure)

    def jobs_of(self, lane: int) -> Sequence[Job]:
        """Sorted out once: many lanes may be stopped in one call."""
        if self._jobs is None:
            self._jobs = {}
            for job in self.state.jobs.values():
                self._jobs.setdefault(job.lane, []).append(job)
        return self._jobs.get(lane, ())

    def ids_in_scope(self, scope: LaneScope) -> list[str]:
        return reaching.ids_in_scope(self, scope)

    @property
    def entity(self) -> str:
        return self.state.entity or DEFAULT_ENTITY

    def keep(self, value: Any) -> Any:
        """A value on its way into the history; long ones become references."""
        kind = type(value)
        if kind in SMALL or (kind is str and len(value) <= 256) or kind is BlobRef:
            return value
        return self.reads.keep(self.state.id, value)

    # --- what happened -----------------------------------------------------------------------------
    def begin(self) -> None:
        walk = self.walk(ROOT_LANE)
        if self.state.subjects and isinstance(self.cause, GoAgain):
            reaching.rewound(self, walk)
        if self.workflow.owner.is_entered:
            walk.set_phase(ENTERING)
        self.queue.append(walk)

    def job_ended(self, cause: JobEnded) -> None:
        walk = self.walk(cause.lane)
        step = walk.here()
        if walk.stop is not None:
            walk.ops.append((Op.FORGET, cause.job))
            job = self.state.jobs[cause.job]
            may_repeat = self.state.specs[job.spec].may_repeat
            self.then(walk, failing.stopped, may_repeat if cause.failure is None else cause.is_repeatable)
            return
        if cause.failure is not None:
            walk.ops.append((Op.FORGET, cause.job))
            self.then(walk, failing.job_failed, cause.failure, cause.is_repeatable)
            return
        walk.output = cause.result
        if step.output is None and not step.has_after:
            walk.ops.append((Op.RESULT, cause.job, step.keep))
            if step.keep:
                walk.remember(step.keep, cause.result)
            walk.position += 1
            self.queue.append(walk)
            return
        walk.ops.append((Op.RESULT, cause.job, ""))
        ended = self.state.jobs.get(cause.job)
        walk.local = self.reads.load(self.state.id, ended.input) if ended is not None and ended.input else None
        self.then(walk, flow.job_done, step)

    def timer_ended(self, cause: TimerEnded) -> None:
        walk = self.walk(cause.lane)
        walk.timer_gone(cause.depth)
        if cause.depth == WAITING:
            self.then(walk, flow.woken)
        elif cause.depth == WHOLE:
            name = self.workflow.name if walk.id == ROOT_LANE else self.label(walk.scope_owner)
            self.then(walk, failing.halt, Failure("timeout", f"`{name}` took longer than it may"), 0)
        else:
            step = walk.step_at(cause.depth)
            failure = Failure("timeout", f"step {step.label} took longer than it may", step=step.label)
            self.then(walk, failing.halt, failure, cause.depth + 1)

    def label(self, step: int) -> str:
        return self.workflow.steps[step].label if step >= 0 else self.workflow.name

    def signal(self, name: str) -> None:
        """One signal wakes one lane: the one that has listened longest."""
        for lane in self.state.lanes.values():
            if lane.wait is Wait.SIGNAL and lane.signal == name:
                walk = self.walk(lane.id)
                self.consume(walk, name)
                self.then(walk, flow.heard)
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
            if walk.id in self.walks:
                if walk.is_resuming and walk.phase != REENTERING:
                    walk.set_phase(AGAIN)
                self.stop(walk, Wait.TURN)

    def then(self, walk: Walk, do: Any, *args: Any) -> None:
        """One thing for a lane that was waiting; it goes on if that says so."""
        if self.attempt(walk, do, *args) and not self.is_over:
            self.queue.append(walk)

    def attempt(self, walk: Walk, do: Any, *args: Any) -> bool:
        """Whether the lane goes on. An error of the step is the lane's business, never the caller's."""
        try:
            return bool(do(self, walk, *args))
        except ExpressionError as error:
            failure = Failure("expression-error", str(error), code=error.code, is_repeatable=True)
        except TooLong as error:
            failure = Failure("value-too-large", str(error), code="HF0701")
        except failing.Raised as raised:
            failure = raised.failure
        return failing.raised(self, walk, failure)

    def go(self, walk: Walk) -> None:
        """Steps of one lane until it waits, ends or has had its share."""
        if walk.id not in self.walks:
            return  # dropped by another lane meanwhile
        share = QUANTUM
        while not self.is_over:
            if walk.phase in (ENTERING, REENTERING):
                if not self.attempt(walk, flow.enter):
                    return
                continue
            if walk.position >= len(walk.body):
                if not self.attempt(walk, flow.leave):
                    return
                continue
            if self.fuel <= 0 or share <= 0:
                self.queue.append(walk)
                return
            walk.fuel = EXPRESSION_FUEL
            walk.local = walk.asking = None
            if not self.attempt(walk, flow.visit, walk.body[walk.position]):
                return
            cost = 1 + (EXPRESSION_FUEL - walk.fuel) // _FUEL_PER_STEP
            self.fuel -= cost
            share -= cost

    def stop(self, walk: Walk, wait: Wait) -> bool:
        """The lane waits; what it did so far becomes one command."""
        walk.settle_position()
        walk.set_wait(wait)
        self.flush(walk)
        return False

    def flush(self, walk: Walk) -> None:
        walk.settle_position()
        if walk.ops or walk.logs:
            self.commands.append(Advance(walk.id, tuple(walk.ops), tuple(walk.logs)))
            walk.ops, walk.logs = [], []

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
