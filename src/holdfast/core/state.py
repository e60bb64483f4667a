"""State: the fold of an execution's events, and `apply`, the only thing that changes it.

`apply` is the same for the live path and for a rebuild. It takes decisions for granted: what is not
allowed never became an event. It marks which snapshot parts it touched, nothing else.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec

from . import events as e
from . import ledger as ledgers
from .lanes import ROOT_LANE, Frame, Lane, Op, find_frame
from .ledger import Entry
from .lifecycle import step_to
from .model import Actor, Effect, Failure, JobSpec, JobStatus, Status, Wait

#: Lanes, jobs and ledger entries are snapshotted in groups of this many.
GROUP = 64


class Job(msgspec.Struct, array_like=True):
    """A job that is not over, or whose end its lane has not yet taken notice of."""

    id: int
    lane: int
    step: int
    spec: int
    input: Any = None
    visit: int = 1
    status: JobStatus = JobStatus.SENT
    #: number of the last attempt; 0 before the first
    attempt: int = 0
    #: name of the worker that has it
    worker: str = ""
    scheduled_at: int = 0
    started_at: int = 0
    #: when a rescheduled job may be released
    due: int = 0
    #: attempts lost with their worker; bounded, or a block that kills its worker would go on for ever
    losses: int = 0
    #: failed attempts, what the retry policy counts
    failures: int = 0
    result: Any = None
    failure: Failure | None = None
    #: what the previous attempt last said in a heartbeat
    details: Any = None


class Timer(msgspec.Struct, array_like=True):
    id: int
    lane: int
    due: int


class State(msgspec.Struct):
    id: str
    tenant: str = "default"
    version: int = 0
    status: Status = Status.NEW
    format: int = 1
    #: raised by resume and replay
    run: int = 1
    #: raised by kill; attempts of an older epoch are fenced
    epoch: int = 0
    workflow: str = ""
    workflow_version: int = 0
    definition: bytes = b""
    input: Any = None
    actor: Actor = Actor()
    labels: dict[str, str] = {}
    specs: tuple[JobSpec, ...] = ()
    lanes: dict[int, Lane] = {}
    jobs: dict[int, Job] = {}
    timers: dict[int, Timer] = {}
    ledger: dict[int, Entry] = {}
    #: signals no step has taken yet, oldest first
    signals: list[tuple[str, Any]] = []
    #: keys of signals already counted
    signal_keys: dict[str, None] = {}
    next_lane: int = ROOT_LANE + 1
    next_job: int = 1
    next_timer: int = 1
    turn: int = 0
    is_turn_open: bool = False
    cancel_reason: str = ""
    failure: Failure | None = None
    failed_step: str = ""
    output: Any = None
    residue: tuple[int, ...] = ()
    created_at: int = 0
    started_at: int = 0
    ended_at: int = 0
    #: time of the last transition; it never runs backwards
    at: int = 0
    jobs_done: int = 0
    jobs_total: int = 0
    #: jobs in a worker's hands
    running: int = 0
    #: snapshot parts changed since the last snapshot; bookkeeping of the store's, not part of the fold
    dirty: set[str] = set()

    def touch_lane(self, lane: int) -> None:
        self.dirty.add(f"lanes/{lane // GROUP}")

    def touch_job(self, job: int) -> None:
        self.dirty.add(f"jobs/{job // GROUP}")

    def touch_ledger(self, job: int) -> None:
        self.dirty.add(f"ledger/{job // GROUP}")


def open_state(execution: str) -> State:
    """Before its first event."""
    return State(execution)


def fold(state: State, at: int, events: tuple[e.Event, ...] | list[e.Event]) -> State:
    """Apply one transition."""
    state.at = max(state.at, at)
    for event in events:
        apply(state, event)
    return state


def apply(state: State, event: e.Event) -> None:
    state.version += 1
    match event:
        case e.LaneAdvanced(lane=lane, ops=ops):
            state.touch_lane(lane)
            change(state, lane, ops)
        case e.JobSucceeded():
            job = _leave(state, event.job)
            job.status = JobStatus.SUCCEEDED
            job.result = event.result
            state.jobs_done += 1
            _account(state, job, event.attempt, event.effect)
        case e.JobScheduled(job=id, lane=lane):
            state.jobs[id] = Job(id, lane, event.step, event.spec, event.input, event.visit, scheduled_at=state.at)
            state.touch_job(id)
            state.next_job = id + 1
            state.jobs_total += 1
        case e.JobStarted(job=id, attempt=attempt, worker=worker):
            job = _job(state, id)
            job.status, job.attempt, job.worker, job.started_at = JobStatus.STARTED, attempt, worker, state.at
            state.running += 1
        case e.JobFailed():
            job = _leave(state, event.job)
            job.status, job.failure = JobStatus.FAILED, event.failure
            state.jobs_done += 1
            _account(state, job, event.attempt, event.effect)
        case e.JobRescheduled():
            job = _leave(state, event.job)
            job.status, job.due, job.worker = JobStatus.RESCHEDULED, event.due, ""
            job.details = event.details
            if event.failure is not None:
                is_loss = event.failure.kind == "worker-lost"
                job.losses += is_loss
                job.failures += not is_loss
            _account(state, job, event.attempt, event.effect)
        case e.JobReleased(job=id, undelivered=undelivered):
            job = _leave(state, id)
            job.status, job.worker = JobStatus.SENT, ""
            # An attempt number is never used again, even if its worker never saw it: a token is for ever.
            job.losses += undelivered
        case e.JobCancelled():
            job = _leave(state, event.job)
            job.status = JobStatus.CANCELLED
            state.jobs_done += 1
            _account(state, job, event.attempt, event.effect)
            del state.jobs[event.job]
        case e.TimerSet(timer=id, lane=lane, due=due):
            state.timers[id] = Timer(id, lane, due)
            state.next_timer = id + 1
        case e.TimerFired(timer=id) | e.TimerCancelled(timer=id):
            del state.timers[id]
        case e.SignalReceived():
            state.signals.append((event.name, event.value))
            if event.key:
                state.signal_keys[event.key] = None
        case e.TurnTaken():
            state.turn, state.is_turn_open = event.turn, event.is_open
        case e.ExecutionStarted():
            state.tenant, state.workflow, state.workflow_version = event.tenant, event.workflow, event.version
            state.definition, state.input, state.actor = event.definition, event.input, event.actor
            state.labels, state.format = event.labels, event.format
            state.created_at = state.at
        case e.PhasesPassed(statuses=statuses):
            for status in statuses:
                step_to(state.status, status)
                state.status = status
            if state.status is Status.RUNNING and ROOT_LANE not in state.lanes:
                state.started_at = state.at
                state.lanes[ROOT_LANE] = Lane(ROOT_LANE, frames=[Frame(-1)])
                state.touch_lane(ROOT_LANE)
        case e.BlocksPinned(specs=specs):
            state.specs = specs
        case e.CancelRequested():
            _to(state, Status.CANCELLING)
            state.cancel_reason = event.reason
        case e.ErrorRaised():
            _to(state, Status.ERROR)
            state.failure, state.failed_step = event.failure, event.step
        case e.ExecutionCompleted(output=output):
            state.output = output
            _end(state, Status.COMPLETED, ())
        case e.ExecutionFailed():
            if event.failure is not None:
                state.failure = event.failure
            _end(state, event.status, event.residue)
        case e.ExecutionCancelled(residue=residue):
            _end(state, Status.CANCELLED, residue)
        case e.ResultRefused():
            pass
        case _:
            assert_never(event)


def _to(state: State, status: Status) -> None:
    step_to(state.status, status)
    state.status = status


def _end(state: State, status: Status, residue: tuple[int, ...]) -> None:
    _to(state, status)
    state.ended_at = state.at
    state.residue = residue
    # Nothing of an ended execution moves again by itself; resume and replay rebuild from the history.
    for lane in state.lanes:
        state.touch_lane(lane)
    for job in state.jobs:
        state.touch_job(job)
    state.lanes, state.jobs, state.timers = {}, {}, {}
    state.running = 0


def _job(state: State, id: int) -> Job:
    state.touch_job(id)
    return state.jobs[id]


def _leave(state: State, id: int) -> Job:
    """The job is no longer in a worker's hands, if it was."""
    job = _job(state, id)
    if job.status is JobStatus.STARTED:
        state.running -= 1
    return job


def _account(state: State, job: Job, attempt: int, effect: Effect) -> None:
    if effect is Effect.NONE and job.id not in state.ledger:
        return
    state.touch_ledger(job.id)
    ledgers.record(state.ledger, Entry(job.id, job.step, job.spec, attempt, effect), state.specs[job.spec])


def change(state: State, id: int, ops: tuple[tuple[Any, ...], ...]) -> None:
    """Apply a lane's ops; see `Op` for what each carries."""
    lane = state.lanes[id]
    for op in ops:
        match op[0]:
            case Op.MOVE:
                lane.frames[-1].position = op[1]
            case Op.RESULT:
                job = state.jobs.pop(op[1])
                state.touch_job(op[1])
                _output(lane, job.result, op[2])
            case Op.WAIT:
                lane.wait = Wait(op[1])
            case Op.SET:
                find_frame(lane, op[1]).variables[op[1]] = op[2]
            case Op.OUTPUT:
                lane.output = op[1]
            case Op.STEP:
                lane.outputs[op[1]] = op[2]
            case Op.PUSH:
                lane.frames.append(Frame(op[1], op[2], 0, dict(op[3])))
            case Op.POP:
                lane.frames.pop()
            case Op.SPAWN:
                _, child, branch, scope, body, variables = op
                state.lanes[child] = Lane(
                    child, id, branch, [Frame(scope, body, 0, dict(variables))], output=lane.output
                )
                state.touch_lane(child)
                state.next_lane = child + 1
                lane.open += 1
            case Op.END:
                parent = state.lanes[lane.parent]
                state.touch_lane(parent.id)
                parent.open -= 1
                parent.results[lane.branch] = op[1]
                del state.lanes[id]
            case Op.GATHER:
                ordered = [lane.results[branch] for branch in sorted(lane.results)]
                lane.results = {}
                gathered = ordered if op[2] is None else dict(zip(op[2], ordered, strict=True))
                _output(lane, gathered, op[1])
            case Op.VISIT:
                lane.visits[op[1]] = op[2]
            case Op.LISTEN:
                lane.signal, lane.wait = op[1], Wait.SIGNAL
            case Op.UNSET:
                find_frame(lane, op[1]).variables.pop(op[1], None)
            case Op.FORGET:
                del state.jobs[op[1]]
                state.touch_job(op[1])
            case Op.CONSUME:
                at = next(i for i, (name, _) in enumerate(state.signals) if name == op[1])
                lane.output = state.signals.pop(at)[1]
                lane.signal = ""
            case unknown:
                raise AssertionError(f"unknown lane op {unknown}")


def _output(lane: Lane, value: Any, step: str) -> None:
    lane.output = value
    if step:
        lane.outputs[step] = value
