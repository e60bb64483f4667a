"""The fold: what each fact makes of the state. `apply` is the only thing that changes one.

The same for the live path and for a rebuild. It takes decisions for granted: what is not allowed never became an event.
It marks which snapshot parts it touched, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from . import events as e
from . import ledger as ledgers
from . import locks as locking
from . import sensors as sensing
from . import undoing
from .changes import GROUP_BITS, JOBS, LANES, LEDGER, SUBJECTS, change, part, restore_mark
from .lanes import ROOT_LANE, Frame, Lane, Mark
from .lifecycle import ACKED, QUIET_START, step_to
from .model import (
    DEFAULT_ENTITY,
    Effect,
    JobKind,
    JobStatus,
    Status,
    Undo,
    Wait,
)
from .state import FAR, HOOKS, Job, State, Timer, entry_of
from .subjects import OUT, Progress, Subject
from .undoing import Standing


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


_STARTED = JobStatus.STARTED
_EXECUTE = JobKind.EXECUTE
