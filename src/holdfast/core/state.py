"""State: the fold of an execution's events, and `apply`, the only thing that changes it.

`apply` is the same for the live path and for a rebuild. It takes decisions for granted: what is not
allowed never became an event. It marks which snapshot parts it touched, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_args

import msgspec

from . import events as e
from . import ledger as ledgers
from . import locks as locking
from . import sensors as sensing
from . import undoing
from .changes import GROUP_BITS, JOBS, LANES, LEDGER, SUBJECTS, change, part, restore_mark
from .lanes import ROOT_LANE, Frame, Lane, Mark
from .ledger import Entry
from .lifecycle import ACKED, QUIET_START, step_to
from .model import (
    DEFAULT_ENTITY,
    Actor,
    Effect,
    Failure,
    Gate,
    JobKind,
    JobSpec,
    JobStatus,
    Mode,
    Policy,
    Retry,
    Status,
    Undo,
    Wait,
)
from .subjects import OUT, Progress, Subject
from .undoing import Standing

#: Kinds of jobs that are about other jobs. Their ends never reach the program.
HOOKS = frozenset({JobKind.VERIFY, JobKind.ROLLBACK})
#: How often a hook is tried.
HOOK_RETRY = Retry(3)
#: When a job is due that waits for somebody to look what came of its last attempt: the end of the year 9999.
FAR = 253_402_300_799_000_000


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
    #: its worker was told to stop, and nobody waits for the result
    is_stopping: bool = False
    entity: str = ""
    kind: JobKind = JobKind.EXECUTE
    #: of VERIFY and ROLLBACK: the job it is about
    about: int = 0


class Timer(msgspec.Struct, array_like=True, gc=False):
    id: int
    lane: int
    due: int
    depth: int = -1


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
    policy: Policy = Policy()
    gates: tuple[Gate, ...] = ()
    #: entities it was started on, by id and by selector
    entities: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    retry_of: str = ""
    #: exactly these entities, whatever the workflow and its blocks name by themselves
    is_exact: bool = False
    #: the entities it works upon, by their place in the sorted set
    subjects: dict[int, Subject] = {}
    #: entities locked with them that are not worked upon: what they are parts of, and their groups
    around: dict[str, Mode] = {}
    #: its place in the queues of its entities; 0 where it has none
    ticket: int = 0
    #: under which it holds its entities; 0 where it does not
    fence: int = 0
    #: where it waits
    watch: str = ""
    #: since when it waits for its entities, or has them
    locked_at: int = 0
    #: what its program is told once it has its entities again: `carry-on`, `forced` or `again`; empty: it begins
    go_on: str = ""
    #: and it does not carry on where others had them before it
    is_wary: bool = False
    #: jobs have asked for changes of the inventory
    has_changes: bool = False
    #: who waits for its end
    awaited_by: tuple[str, ...] = ()
    #: who acknowledged its end, and with which words
    acked_by: str = ""
    ack_note: str = ""
    next_lane: int = ROOT_LANE + 1
    next_job: int = 1
    next_timer: int = 1
    turn: int = 0
    is_turn_open: bool = False
    cancel_reason: str = ""
    #: it is being cancelled, and its own steps for that still run
    is_cleaning: bool = False
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
    #: VERIFY and ROLLBACK jobs that are not over
    hooks: int = 0
    #: how far rollback has come
    undoing: Standing = msgspec.field(default_factory=Standing)
    #: something was undone since it last began
    has_undone: bool = False
    #: it was asked to stop, whatever its status is now
    is_cancelled: bool = False
    #: entities taken away from it by force
    lost: tuple[str, ...] = ()
    #: subjects that nothing more is done for; counted, not kept in snapshots: asked at every failure of one of many
    out: int = 0
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
    job = Job(id, event.lane, event.step, event.spec, event.input, event.visit, scheduled_at=state.at)
    if event.entity or event.kind is not _EXECUTE:
        job.entity, job.kind, job.about = event.entity, event.kind, event.about
        state.hooks += event.kind in HOOKS
    state.jobs[id] = job
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
    if event.changes:
        state.has_changes = True
    if job.kind is _EXECUTE:
        _account(state, job, event.attempt, event.effect)
    else:
        _forget_hook(state, job)


def _job_failed(state: State, event: e.JobFailed) -> None:
    job = _leave(state, event.job)
    job.status, job.failure = JobStatus.FAILED, event.failure
    state.jobs_done += 1
    if job.kind is _EXECUTE:
        _account(state, job, event.attempt, event.effect)
    else:
        _forget_hook(state, job)


def _job_rescheduled(state: State, event: e.JobRescheduled) -> None:
    job = _leave(state, event.job)
    job.status, job.due, job.worker = JobStatus.RESCHEDULED, event.due, ""
    job.details = event.details
    if event.failure is not None:
        is_loss = event.failure.kind == "worker-lost"
        job.losses += is_loss
        job.failures += not is_loss
        if event.due == FAR:
            job.failure = event.failure  # until somebody has looked what came of it
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
    state.hooks -= job.kind in HOOKS
    del state.jobs[event.job]


def _timer_set(state: State, event: e.TimerSet) -> None:
    state.timers[event.timer] = Timer(event.timer, event.lane, event.due, event.depth)
    state.lanes[event.lane].timers[event.depth] = event.timer
    state.dirty.add(part(LANES, event.lane))
    state.next_timer = event.timer + 1


def _timer_gone(state: State, event: e.TimerFired | e.TimerCancelled) -> None:
    timer = state.timers.pop(event.timer)
    lane = state.lanes.get(timer.lane)
    if lane is not None and lane.timers.get(timer.depth) == timer.id:
        del lane.timers[timer.depth]
        state.dirty.add(part(LANES, timer.lane))


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
    state.entities, state.select = event.entities, event.select
    state.retry_of, state.is_exact = event.retry_of, event.is_exact
    state.created_at = state.at


def _phases_passed(state: State, event: e.PhasesPassed) -> None:
    if state.status is Status.NEW and event.statuses == QUIET_START:
        state.status = QUIET_START[-1]  # the way of most; each of its edges is looked at in a test
    else:
        for status in event.statuses:
            _to(state, status)
    if state.status is Status.RUNNING:
        state.go_on, state.is_wary = "", False
    if state.status is Status.RUNNING and ROOT_LANE not in state.lanes:
        state.started_at = state.at
        state.lanes[ROOT_LANE] = Lane(ROOT_LANE, frames=[Frame(-1)])
        state.dirty.add(part(LANES, ROOT_LANE))


def _blocks_pinned(state: State, event: e.BlocksPinned) -> None:
    state.specs = event.specs


def _cancel_requested(state: State, event: e.CancelRequested) -> None:
    _to(state, Status.CANCELLING)
    state.is_cancelled = True
    state.cancel_reason = event.reason
    state.is_cleaning = event.cleans_up


def _cleanup_ended(state: State, event: e.CleanupEnded) -> None:
    state.is_cleaning = False


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


def _evidence(state: State, event: e.ResultRefused | e.SignalSent | e.InventoryChanged) -> None:
    """Nothing changes here."""


def _job_stop_asked(state: State, event: e.JobStopAsked) -> None:
    state.dirty.add(part(JOBS, event.job))
    state.jobs[event.job].is_stopping = True


def _execution_resumed(state: State, event: e.ExecutionResumed) -> None:
    # One that was replayed, and never got its entities, is still to go again.
    if state.go_on != "again":
        state.go_on = "forced" if event.is_forced else "carry-on"
    _reopen(state)
    state.is_wary = event.is_wary and state.go_on != ""


def _execution_replayed(state: State, event: e.ExecutionReplayed) -> None:
    state.go_on, state.is_wary = "again", False
    _reopen(state)
    root = state.lanes.get(ROOT_LANE)
    if root is None:  # it never began, or ended before lanes were kept
        root = state.lanes[ROOT_LANE] = Lane(ROOT_LANE, frames=[Frame(-1)])
    mark = event.mark or root.waypoints.get(event.step) or Mark([Frame(-1)])
    restore_mark(state, root, mark)
    root.waypoints.pop(event.step, None)  # from where it was replayed it may be replayed
    root.waypoints[event.step] = mark
    state.dirty.add(part(LANES, ROOT_LANE))


def _retention_set(state: State, event: e.RetentionSet) -> None:
    state.retention, state.retention_hash = event.rule, event.hash


def _policy_set(state: State, event: e.PolicySet) -> None:
    state.policy = event.policy


def _gates_set(state: State, event: e.GatesSet) -> None:
    state.gates = event.gates


def _entities_found(state: State, event: e.EntitiesFound) -> None:
    before = state.subjects
    found = map(Subject, range(len(event.ids)), event.ids, event.types, event.modes)
    subjects = state.subjects = {subject.index: subject for subject in found}
    if before:  # found again: how far each has come stays
        known = {old.id: old for old in before.values()}
        for subject in subjects.values():
            old = known[subject.id]
            subject.progress, subject.reason, subject.step = old.progress, old.reason, old.step
    for id in [id for id, job in state.jobs.items() if job.kind is JobKind.ACQUIRE]:
        del state.jobs[id]  # what it said is in the set
        state.dirty.add(part(JOBS, id))
    for index, whole in enumerate(event.within):
        state.subjects[index].within = whole
    for index, between in enumerate(event.above):
        state.subjects[index].above = between
    state.around = dict(zip(event.around, event.around_modes, strict=True))
    state.dirty.update(part(SUBJECTS, index) for index in range(0, len(subjects), 1 << GROUP_BITS))


def _entities_queued(state: State, event: e.EntitiesQueued) -> None:
    state.ticket, state.watch, state.locked_at = event.ticket, event.watch, state.at


def _entities_watched(state: State, event: e.EntitiesWatched) -> None:
    state.watch = event.watch


def _entities_locked(state: State, event: e.EntitiesLocked) -> None:
    state.fence, state.ticket, state.watch, state.locked_at = event.fence, event.ticket, "", state.at
    state.lost = ()


def _entities_released(state: State, event: e.EntitiesReleased) -> None:
    state.fence, state.ticket, state.watch, state.locked_at = 0, 0, "", 0


def _entity_lost(state: State, event: e.EntityLost) -> None:
    for subject in state.subjects.values():
        if subject.id == event.entity:
            state.out += subject.progress not in OUT
            subject.progress, subject.reason = Progress.LOST, f"taken away by {event.by}" if event.by else ""
            state.dirty.add(part(SUBJECTS, subject.index))
    state.around.pop(event.entity, None)
    state.lost = (*state.lost, event.entity)


def _effect_verified(state: State, event: e.EffectVerified) -> None:
    entry = state.ledger.get(event.job)
    if entry is not None:
        entry.is_verified = True
        ledgers.verify(state.ledger, entry, event.effect)
        state.dirty.add(part(LEDGER, event.job))


def _rollback_planned(state: State, event: e.RollbackPlanned) -> None:
    _to(state, Status.ROLLBACK)
    state.is_cleaning = False
    state.undoing = undoing.section(state.ledger, undoing.link(state.ledger, state.subjects))[1]
    state.dirty.update(part(LEDGER, job) for job in event.jobs)


def _entry_settled(state: State, event: e.EntrySettled) -> None:
    entry = state.ledger[event.job]
    entry.undo = event.outcome
    entry.reason = event.failure.message if event.failure is not None else ""
    state.undoing = undoing.settle(state.undoing, state.ledger, event.job, event.outcome)
    if event.outcome is Undo.UNDONE:
        entry.effect, entry.unknown = Effect.UNDONE, 0
        state.has_undone = True
    state.dirty.add(part(LEDGER, event.job))


def _execution_acked(state: State, event: e.ExecutionAcked) -> None:
    _to(state, ACKED[state.status])
    state.acked_by, state.ack_note = event.actor.name, event.note


def _end_awaited(state: State, event: e.EndAwaited) -> None:
    if event.execution not in state.awaited_by:
        state.awaited_by = (*state.awaited_by, event.execution)


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
    e.ResultRefused: _evidence,
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
    e.JobStopAsked: _job_stop_asked,
    e.ExecutionResumed: _execution_resumed,
    e.ExecutionReplayed: _execution_replayed,
    e.RetentionSet: _retention_set,
    e.SignalSent: _evidence,
    e.LockTaken: _lock_moved,
    e.LockQueued: _lock_moved,
    e.LockGranted: _lock_moved,
    e.LockReleased: _lock_moved,
    e.LockForced: _lock_moved,
    e.SensorChanged: _sensor_changed,
    e.SensorAwaited: _sensor_waited_for,
    e.SensorLeft: _sensor_waited_for,
    e.PolicySet: _policy_set,
    e.GatesSet: _gates_set,
    e.EntitiesFound: _entities_found,
    e.EntitiesQueued: _entities_queued,
    e.EntitiesWatched: _entities_watched,
    e.EntitiesLocked: _entities_locked,
    e.EntitiesReleased: _entities_released,
    e.EntityLost: _entity_lost,
    e.EffectVerified: _effect_verified,
    e.RollbackPlanned: _rollback_planned,
    e.EntrySettled: _entry_settled,
    e.InventoryChanged: _evidence,
    e.ExecutionAcked: _execution_acked,
    e.EndAwaited: _end_awaited,
    e.CleanupEnded: _cleanup_ended,
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
    assert not state.ticket, "no entity lock outlives its execution; see sharing.closing"
    # Lanes stay as they stood: resume and replay go on from there. Nothing of them moves by itself.
    state.dirty.update(part(JOBS, job) for job in state.jobs)
    state.jobs, state.timers = {}, {}
    for lane in state.lanes.values():
        if lane.timers:
            lane.timers = {}
    state.running = state.hooks = 0
    state.is_cleaning = False
    state.undoing = Standing()


def _reopen(state: State) -> None:
    if state.policy.works_on_entities:
        _to(state, Status.SCHEDULED)
        for subject in state.subjects.values():
            if subject.progress is Progress.LOST:
                state.out -= 1
                subject.progress, subject.reason = Progress.REACHED, ""
                state.dirty.add(part(SUBJECTS, subject.index))
    else:
        _to(state, Status.RUNNING)
        state.go_on = ""
    state.lost = ()
    state.awaited_by = ()  # they have been told of the end
    state.run += 1
    state.ended_at = 0
    state.is_turn_open = False
    state.failure, state.failed_step, state.cancel_reason = None, "", ""
    state.output, state.residue = None, ()
    state.is_cancelled = state.has_undone = False
    state.acked_by = state.ack_note = ""
    for entry in state.ledger.values():
        if entry.undo is not Undo.NOT_TRIED and entry.effect is not Effect.UNDONE:
            entry.undo, entry.reason = Undo.NOT_TRIED, ""  # the next rollback tries again
            state.dirty.add(part(LEDGER, entry.job))


def _leave(state: State, id: int) -> Job:
    """The job is no longer in a worker's hands, if it was."""
    state.dirty.add(id >> GROUP_BITS << 2 | JOBS)
    job = state.jobs[id]
    if job.status is _STARTED:
        state.running -= 1
    return job


def _forget_hook(state: State, job: Job) -> None:
    """Nobody else takes notice of the end of a VERIFY or ROLLBACK job."""
    if job.kind in HOOKS:
        state.hooks -= 1
        del state.jobs[job.id]


def _account(state: State, job: Job, attempt: int, effect: Effect) -> None:
    if job.kind is not _EXECUTE or (effect is Effect.NONE and job.id not in state.ledger):
        return
    state.dirty.add(job.id >> GROUP_BITS << 2 | LEDGER)
    ledgers.record(state.ledger, entry_of(job, attempt, effect, state.specs[job.spec]), state.specs[job.spec])


def spec_of(state: State, job: Job) -> JobSpec:
    """Whatever its block says of itself, a rollback may be tried again, and looking changes nothing."""
    spec = state.specs[job.spec]
    return spec if job.kind is _EXECUTE else _as_kind(spec, job.kind)


@lru_cache(maxsize=1024)
def _as_kind(spec: JobSpec, kind: JobKind) -> JobSpec:
    is_rollback = kind is JobKind.ROLLBACK
    retry = HOOK_RETRY if kind in HOOKS else spec.retry
    return msgspec.structs.replace(spec, kind=kind, pure=not is_rollback, idempotent=is_rollback, retry=retry)


def in_doubt(state: State) -> tuple[int, ...]:
    """What somebody has to answer for after the end, by job: what was left behind; of one that completed, what failed
    and was tolerated."""
    if state.status not in (Status.COMPLETED, Status.COMPLETED_ACK):
        return state.residue
    left = [job for job, entry in state.ledger.items() if entry.is_failed and entry.is_residue]
    return tuple(sorted(left)) if left else ()


def entry_of(job: Job, attempt: int, effect: Effect, spec: JobSpec) -> Entry:
    """What the ledger says of an attempt that has ended."""
    entry = Entry(job.id, job.step, job.spec, attempt, effect, entity=job.entity, lane=job.lane)
    if spec.has_verify or spec.has_rollback:
        entry.input, entry.result = job.input, job.result
    entry.is_failed = job.status is not JobStatus.SUCCEEDED
    return entry


_STARTED = JobStatus.STARTED
_EXECUTE = JobKind.EXECUTE
