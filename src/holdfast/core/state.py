"""State: the fold of an execution's events, and `apply`, the only thing that changes it.

`apply` is the same for the live path and for a rebuild. It takes decisions for granted: what is not
allowed never became an event. It marks which snapshot parts it touched, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from . import events as e
from . import ledger as ledgers
from . import locks as locking
from . import sensors as sensing
from .lanes import ROOT_LANE, Frame, Lane, Op, find_frame
from .ledger import Entry
from .lifecycle import QUIET_START, step_to
from .model import DEFAULT_ENTITY, Actor, Effect, Failure, JobSpec, JobStatus, Status, Wait

#: Lanes, jobs and ledger entries are snapshotted in groups of this many: 1 << GROUP_BITS.
GROUP_BITS = 6
LANES, JOBS, LEDGER = 0, 1, 2


def part(kind: int, id: int) -> int:
    """The number of the snapshot part in which lane, job or ledger entry `id` is kept."""
    return id >> GROUP_BITS << 2 | kind


class Job(msgspec.Struct, array_like=True, gc=False):
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


class Timer(msgspec.Struct, array_like=True, gc=False):
    id: int
    lane: int
    due: int


class State(msgspec.Struct, gc=False):
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
    #: what it works upon
    entity: str = DEFAULT_ENTITY
    #: its claims to locks, held or waited for: (entity, name, lane) → claim
    locks: dict[tuple[str, str, int], locking.Hold] = {}
    #: sensors its lanes wait for
    awaits: dict[int, tuple[tuple[str, str, str], ...]] = {}
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
    #: how long it is kept after its end; empty: the system's default
    retention: str = ""
    #: counted with others of the same hash; empty: with others of its workflow
    retention_hash: str = ""
    created_at: int = 0
    started_at: int = 0
    ended_at: int = 0
    #: time of the last transition; it never runs backwards
    at: int = 0
    jobs_done: int = 0
    jobs_total: int = 0
    #: jobs in a worker's hands
    running: int = 0
    #: snapshot parts changed since the last snapshot, as `part` numbers them; bookkeeping of the store's,
    #: not part of the fold
    dirty: set[int] = set()


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
    _APPLY[type(event)](state, event)


# --- one function per kind of fact -------------------------------------------------------------------
def _lane_advanced(state: State, event: e.LaneAdvanced) -> None:
    state.dirty.add(event.lane >> GROUP_BITS << 2)
    change(state, event.lane, event.ops)


def _job_scheduled(state: State, event: e.JobScheduled) -> None:
    id = event.job
    state.jobs[id] = Job(id, event.lane, event.step, event.spec, event.input, event.visit, scheduled_at=state.at)
    state.dirty.add(id >> GROUP_BITS << 2 | JOBS)
    state.next_job = id + 1
    state.jobs_total += 1


def _job_started(state: State, event: e.JobStarted) -> None:
    id = event.job
    state.dirty.add(id >> GROUP_BITS << 2 | JOBS)
    job = state.jobs[id]
    job.status = _STARTED
    job.attempt = event.attempt
    job.worker = event.worker
    job.started_at = state.at
    state.running += 1


def _job_succeeded(state: State, event: e.JobSucceeded) -> None:
    job = _leave(state, event.job)
    job.status = JobStatus.SUCCEEDED
    job.result = event.result
    state.jobs_done += 1
    _account(state, job, event.attempt, event.effect)


def _job_failed(state: State, event: e.JobFailed) -> None:
    job = _leave(state, event.job)
    job.status, job.failure = JobStatus.FAILED, event.failure
    state.jobs_done += 1
    _account(state, job, event.attempt, event.effect)


def _job_rescheduled(state: State, event: e.JobRescheduled) -> None:
    job = _leave(state, event.job)
    job.status, job.due, job.worker = JobStatus.RESCHEDULED, event.due, ""
    job.details = event.details
    if event.failure is not None:
        is_loss = event.failure.kind == "worker-lost"
        job.losses += is_loss
        job.failures += not is_loss
    _account(state, job, event.attempt, event.effect)


def _job_released(state: State, event: e.JobReleased) -> None:
    job = _leave(state, event.job)
    job.status, job.worker = JobStatus.SENT, ""
    # An attempt number is never used again, even if its worker never saw it: a token is for ever.
    job.losses += event.undelivered


def _job_cancelled(state: State, event: e.JobCancelled) -> None:
    job = _leave(state, event.job)
    job.status = JobStatus.CANCELLED
    state.jobs_done += 1
    _account(state, job, event.attempt, event.effect)
    del state.jobs[event.job]


def _timer_set(state: State, event: e.TimerSet) -> None:
    state.timers[event.timer] = Timer(event.timer, event.lane, event.due)
    state.next_timer = event.timer + 1


def _timer_gone(state: State, event: e.TimerFired | e.TimerCancelled) -> None:
    del state.timers[event.timer]


def _signal_received(state: State, event: e.SignalReceived) -> None:
    state.signals.append((event.name, event.value))
    if event.key:
        state.signal_keys[event.key] = None


def _turn_taken(state: State, event: e.TurnTaken) -> None:
    state.turn, state.is_turn_open = event.turn, event.is_open


def _lock_moved(state: State, event: locking.LockEvent) -> None:
    locking.change(state.locks, state.id, event, state.at)
    if isinstance(event, e.LockQueued):
        _wait(state, event.lane, Wait.LOCK)
    elif isinstance(event, e.LockGranted):
        _wait(state, event.lane, Wait.NOTHING)


def _sensor_changed(state: State, event: e.SensorChanged) -> None:
    """It lives outside the execution; nothing changes here."""


def _sensor_waited_for(state: State, event: e.SensorAwaited | e.SensorLeft) -> None:
    sensing.change(state.awaits, event)
    _wait(state, event.lane, Wait.SENSOR if isinstance(event, e.SensorAwaited) else Wait.NOTHING)


def _wait(state: State, id: int, wait: Wait) -> None:
    lane = state.lanes.get(id)
    if lane is not None:
        lane.wait = wait
        state.dirty.add(id >> GROUP_BITS << 2)


def _execution_started(state: State, event: e.ExecutionStarted) -> None:
    state.tenant, state.workflow, state.workflow_version = event.tenant, event.workflow, event.version
    state.definition, state.input, state.actor = event.definition, event.input, event.actor
    state.labels, state.format = event.labels, event.format
    state.entity = event.entity or DEFAULT_ENTITY
    state.created_at = state.at


def _phases_passed(state: State, event: e.PhasesPassed) -> None:
    if state.status is Status.NEW and event.statuses == QUIET_START:
        state.status = QUIET_START[-1]  # the way of most; each of its edges is looked at in a test
    else:
        for status in event.statuses:
            _to(state, status)
    if state.status is Status.RUNNING and ROOT_LANE not in state.lanes:
        state.started_at = state.at
        state.lanes[ROOT_LANE] = Lane(ROOT_LANE, frames=[Frame(-1)])
        state.dirty.add(part(LANES, ROOT_LANE))


def _blocks_pinned(state: State, event: e.BlocksPinned) -> None:
    state.specs = event.specs


def _cancel_requested(state: State, event: e.CancelRequested) -> None:
    _to(state, Status.CANCELLING)
    state.cancel_reason = event.reason


def _error_raised(state: State, event: e.ErrorRaised) -> None:
    _to(state, Status.ERROR)
    state.failure, state.failed_step = event.failure, event.step


def _execution_completed(state: State, event: e.ExecutionCompleted) -> None:
    state.output = event.output
    _end(state, Status.COMPLETED, ())


def _execution_failed(state: State, event: e.ExecutionFailed) -> None:
    if event.failure is not None:
        state.failure = event.failure
    _end(state, event.status, event.residue)


def _execution_cancelled(state: State, event: e.ExecutionCancelled) -> None:
    _end(state, Status.CANCELLED, event.residue)


def _result_refused(state: State, event: e.ResultRefused) -> None:
    """Evidence; nothing changes."""


def _retention_set(state: State, event: e.RetentionSet) -> None:
    state.retention, state.retention_hash = event.rule, event.hash


_APPLY: dict[type, Callable[[State, Any], None]] = {
    e.ExecutionStarted: _execution_started,
    e.PhasesPassed: _phases_passed,
    e.BlocksPinned: _blocks_pinned,
    e.LaneAdvanced: _lane_advanced,
    e.JobScheduled: _job_scheduled,
    e.JobStarted: _job_started,
    e.JobSucceeded: _job_succeeded,
    e.JobFailed: _job_failed,
    e.JobRescheduled: _job_rescheduled,
    e.JobReleased: _job_released,
    e.JobCancelled: _job_cancelled,
    e.ResultRefused: _result_refused,
    e.TimerSet: _timer_set,
    e.TimerFired: _timer_gone,
    e.TimerCancelled: _timer_gone,
    e.SignalReceived: _signal_received,
    e.CancelRequested: _cancel_requested,
    e.ErrorRaised: _error_raised,
    e.ExecutionCompleted: _execution_completed,
    e.ExecutionFailed: _execution_failed,
    e.ExecutionCancelled: _execution_cancelled,
    e.TurnTaken: _turn_taken,
    e.LockTaken: _lock_moved,
    e.LockQueued: _lock_moved,
    e.LockGranted: _lock_moved,
    e.LockReleased: _lock_moved,
    e.LockForced: _lock_moved,
    e.SensorChanged: _sensor_changed,
    e.SensorAwaited: _sensor_waited_for,
    e.SensorLeft: _sensor_waited_for,
    e.RetentionSet: _retention_set,
}
assert set(_APPLY) == set(get_args(e.Event)), "every kind of fact has its function"


def _to(state: State, status: Status) -> None:
    step_to(state.status, status)
    state.status = status


def _end(state: State, status: Status, residue: tuple[int, ...]) -> None:
    _to(state, status)
    state.ended_at = state.at
    state.residue = residue
    assert not state.locks, "no lock outlives its execution; see sharing.closing"
    assert not state.awaits, "no subscription outlives its execution; see sharing.closing"
    # Nothing of an ended execution moves again by itself; resume and replay rebuild from the history.
    state.dirty.update(part(LANES, lane) for lane in state.lanes)
    state.dirty.update(part(JOBS, job) for job in state.jobs)
    state.lanes, state.jobs, state.timers = {}, {}, {}
    state.running = 0


def _leave(state: State, id: int) -> Job:
    """The job is no longer in a worker's hands, if it was."""
    state.dirty.add(id >> GROUP_BITS << 2 | JOBS)
    job = state.jobs[id]
    if job.status is _STARTED:
        state.running -= 1
    return job


def _account(state: State, job: Job, attempt: int, effect: Effect) -> None:
    if effect is Effect.NONE and job.id not in state.ledger:
        return
    state.dirty.add(job.id >> GROUP_BITS << 2 | LEDGER)
    ledgers.record(state.ledger, Entry(job.id, job.step, job.spec, attempt, effect), state.specs[job.spec])


# --- lanes -------------------------------------------------------------------------------------------
def change(state: State, id: int, ops: tuple[tuple[Any, ...], ...]) -> None:
    """Apply a lane's ops; see `Op` for what each carries. The three of every step come first."""
    lane = state.lanes[id]
    for op in ops:
        code = op[0]
        if code == 1:  # Op.MOVE
            lane.frames[-1].position = op[1]
        elif code == 5:  # Op.RESULT
            job = state.jobs.pop(op[1])
            state.dirty.add(op[1] >> GROUP_BITS << 2 | JOBS)
            _output(lane, job.result, op[2])
        elif code == 6:  # Op.WAIT
            lane.wait = _WAITS[op[1]]
        else:
            _CHANGE[code](state, lane, op)


def _set(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    find_frame(lane, op[1]).variables[op[1]] = op[2]


def _unset(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    find_frame(lane, op[1]).variables.pop(op[1], None)


def _set_output(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.output = op[1]


def _step(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.outputs[op[1]] = op[2]


def _push(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.frames.append(Frame(op[1], op[2], 0, dict(op[3])))


def _pop(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.frames.pop()


def _spawn(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    _, child, branch, scope, body, variables = op
    frames = [Frame(scope, body, 0, dict(variables))]
    state.lanes[child] = Lane(child, lane.id, branch, frames, output=lane.output)
    state.dirty.add(part(LANES, child))
    state.next_lane = child + 1
    lane.open += 1


def _end_lane(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    parent = state.lanes[lane.parent]
    state.dirty.add(part(LANES, parent.id))
    parent.open -= 1
    parent.results[lane.branch] = op[1]
    del state.lanes[lane.id]


def _gather(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    ordered = [lane.results[branch] for branch in sorted(lane.results)]
    lane.results = {}
    gathered = ordered if op[2] is None else dict(zip(op[2], ordered, strict=True))
    _output(lane, gathered, op[1])


def _visit(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.visits[op[1]] = op[2]


def _listen(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.signal, lane.wait = op[1], Wait.SIGNAL


def _forget(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    del state.jobs[op[1]]
    state.dirty.add(part(JOBS, op[1]))


def _consume(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    at = next(i for i, (name, _) in enumerate(state.signals) if name == op[1])
    lane.output = state.signals.pop(at)[1]
    lane.signal = ""


def _output(lane: Lane, value: Any, step: str) -> None:
    lane.output = value
    if step:
        lane.outputs[step] = value


_STARTED = JobStatus.STARTED
_WAITS = {int(wait): wait for wait in Wait}
_CHANGE: dict[int, Callable[[State, Lane, tuple[Any, ...]], None]] = {
    Op.SET: _set,
    Op.OUTPUT: _set_output,
    Op.STEP: _step,
    Op.PUSH: _push,
    Op.POP: _pop,
    Op.SPAWN: _spawn,
    Op.END: _end_lane,
    Op.GATHER: _gather,
    Op.VISIT: _visit,
    Op.LISTEN: _listen,
    Op.UNSET: _unset,
    Op.FORGET: _forget,
    Op.CONSUME: _consume,
}
_CODES = {code for name, code in vars(Op).items() if name.isupper()}
assert {1, 5, 6, *_CHANGE} == _CODES == set(range(1, len(_CODES) + 1)), "every op has its function"
