"""What must hold in every simulated world, whatever went wrong in it. Numbers as in docs/reference/invariants.md.

One decorated function per check. `on_event` looks at one event before it is applied to the shadow, `on_commit`
at one execution after each commit that touched it, `on_end` at the world when everything has healed; what is
seen outside of the engines (`begun`, `acknowledged`, `started` …) is checked in `world`, where it is seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core import events as e
from holdfast.core import requests as r
from holdfast.core.codec import pack, unpack
from holdfast.core.model import BlobRef, JobKind, JobStatus, Status
from holdfast.core.rows import GRACE
from holdfast.core.snapshot import canonical, restore
from holdfast.core.state import FAR, Job, State
from holdfast.core.views import summary_of
from holdfast.store.records import Batch, Header

from .base import SECOND, Violation
from .checks import on_commit, on_end, on_event
from .models import MODELS
from .models_entities import TOLERANT
from .shadow import Shadow

if TYPE_CHECKING:
    from .world import World

_REFERENCE = pack(BlobRef(bytes(16), 0))[:3]
_SENT, _STARTED = JobStatus.SENT, JobStatus.STARTED
_NONE: dict[Any, Any] = {}
_WAKING = (r.WakeLock, r.WakeSensor, r.BreakLock, r.LoseLock, r.TryLocks)


# --- events: what may follow what ----------------------------------------------------------------------
@on_event(e.JobStarted)
def attempts_are_numbered_and_single(world: World, shadow: Shadow, event: e.JobStarted) -> None:
    job = shadow.state.jobs.get(event.job)
    if event.job in shadow.succeeded:
        shadow.broken("I-15", f"job {event.job} has succeeded and is started again")
    if job is None or job.status is not JobStatus.SENT:
        shadow.broken("I-13", f"job {event.job} is started, but does not wait")
    elif event.attempt != job.attempt + 1:
        shadow.broken("I-17", f"attempt {event.attempt} of job {event.job} follows {job.attempt}")
    if shadow.doubt.get(event.job) and not shadow.may_repeat(event.job):
        shadow.broken("I-16", f"job {event.job} may not repeat, may have run, and is started again")


@on_event(e.JobStarted, e.JobScheduled, e.TimerSet, e.LaneAdvanced, e.TimerFired)
def nothing_new_after_a_stop(world: World, shadow: Shadow, event: e.Event) -> None:
    status = shadow.state.status
    kind = JobKind.EXECUTE
    if isinstance(event, e.JobScheduled):
        kind = event.kind
    elif isinstance(event, e.JobStarted):
        kind = shadow.kinds[event.job]
    if kind is JobKind.ACQUIRE:
        may = (Status.RESOURCE_DISCOVERY,)
    elif kind is JobKind.ROLLBACK:
        may = (Status.ROLLBACK,)
    elif kind is JobKind.VERIFY:
        may = (Status.RUNNING, Status.ERROR, Status.CANCELLING)
    else:
        may = (Status.RUNNING, Status.NEW)
    if status not in may:
        shadow.broken("I-29", f"{type(event).__name__} although it is {shadow.state.status.name}")


@on_event(e.CancelRequested)
def cancelled_once(world: World, shadow: Shadow, event: e.CancelRequested) -> None:
    if shadow.state.status is Status.CANCELLING:
        shadow.broken("I-7", "cancel was counted twice")


@on_event(e.JobSucceeded, e.JobFailed, e.JobRescheduled)
def only_the_current_attempt_counts(world: World, shadow: Shadow, event: Any) -> None:
    job = shadow.state.jobs.get(event.job)
    is_out = job is not None and (job.status is JobStatus.STARTED or shadow.is_looked_at(event.job))
    if job is None or not is_out or job.attempt != event.attempt:
        shadow.broken("I-19", f"attempt {event.attempt} of job {event.job} does not count any more: {event}")


@on_event(e.JobSucceeded)
def only_whoever_ran_it_says_so(world: World, shadow: Shadow, event: e.JobSucceeded) -> None:
    if shadow.is_looked_at(event.job):
        world.reach("success found out")
        if not world.witness.is_applied(shadow.id, event.job):
            shadow.broken("I-15", f"job {event.job} is said to have succeeded, and its device shows nothing")
    elif (shadow.id, event.job, event.attempt) not in world.produced:
        shadow.broken("I-13", f"attempt {event.attempt} of job {event.job} succeeded, which no worker ever said")


#: µs for which an engine must have been missed; said again here, not taken from the engine
PATIENCE = 2_000_000
#: faults that keep engines from writing down, or noticing in time, that they hear a worker
DEAFENING = ("clock", "commit", "conflict", "crash", "engine", "race", "reading", "slow", "store", "transaction")


@on_event(e.JobFailed, e.JobRescheduled)
def nobody_is_given_up_without_a_reason(world: World, shadow: Shadow, event: Any) -> None:
    """No lease is over while its worker is heard; no engine is dead that was not missed for a while."""
    failure = event.failure
    if failure is None or failure.kind not in ("worker-lost", "outcome-unknown") or shadow.is_looked_at(event.job):
        return  # of one that is being looked at it was said when that began
    if "went down with its engine" in failure.message:
        name = shadow.state.jobs[event.job].worker
        host = next(worker.home for worker in world.workers if worker.name == name)
        assert host is not None
        is_gone = host.engine is None or host.booted_at >= shadow.started[event.job, event.attempt]
        is_missed = host.unseen_until and world.now - host.unseen_since >= PATIENCE
        if not is_gone and not is_missed:
            shadow.broken("PATIENCE", f"job {event.job} was given up, but its engine lives: {failure.message}")
    elif "has been silent" in failure.message and not any(name.startswith(DEAFENING) for name in world.hit):
        worker, life = world.holders.get((shadow.id, event.job, event.attempt), (None, 0))
        is_same = worker is not None and worker.is_alive and worker.lives == life
        # Whoever comes back after its lease was over may find that it is being given up in this very moment.
        is_back = worker is not None and world.now - worker.returned_at < SECOND
        if is_same and not is_back and world.now - worker.heard_at < world.plan.lease // 2:
            shadow.broken("PATIENCE", f"job {event.job} was given up, but its worker is heard: {failure.message}")


@on_event(e.JobReleased)
def released_in_time_and_accounted_for(world: World, shadow: Shadow, event: e.JobReleased) -> None:
    job = shadow.state.jobs[event.job]
    if job.status is JobStatus.STARTED and not event.undelivered:
        shadow.broken("I-16", f"job {event.job} is released while an attempt is out")
    if job.status is JobStatus.RESCHEDULED and job.due > shadow.state.at:
        shadow.broken("I-17", f"job {event.job} is released {job.due - shadow.state.at} µs before it is due")


@on_event(e.JobRescheduled)
def retried_only_as_allowed(world: World, shadow: Shadow, event: e.JobRescheduled) -> None:
    job, spec = shadow.state.jobs[event.job], shadow.spec(event.job)
    if event.due == FAR and spec.has_verify:
        world.reach("looked at while running")
        return
    if event.effect and not shadow.may_repeat(event.job):
        shadow.broken("I-16", f"job {event.job} may not repeat and may have run, but is to be tried again")
    if event.failure is None or event.failure.kind == "worker-lost":
        return
    if job.failures + 1 >= spec.retry.attempts:
        shadow.broken("I-17", f"job {event.job} is tried more than {spec.retry.attempts} times")
    if event.due < shadow.state.at + min(spec.retry.delay, spec.retry.max_delay):
        shadow.broken("I-17", f"job {event.job} is tried again {event.due - shadow.state.at} µs later")


@on_event(e.TimerFired)
def never_early(world: World, shadow: Shadow, event: e.TimerFired) -> None:
    timer = shadow.state.timers.get(event.timer)
    if timer is None:
        shadow.broken("I-18", f"timer {event.timer} fires twice")
    elif timer.due > shadow.state.at:
        shadow.broken("I-18", f"timer {event.timer} fires {timer.due - shadow.state.at} µs before it is due")


@on_event(e.SignalReceived)
def a_signal_counts_once(world: World, shadow: Shadow, event: e.SignalReceived) -> None:
    if event.key and event.key in shadow.state.signal_keys:
        shadow.broken("I-7", f"signal {event.name} with key {event.key} was counted twice")


@on_event(e.ExecutionCompleted)
def completed_means_all_of_it(world: World, shadow: Shadow, event: e.ExecutionCompleted) -> None:
    expected = MODELS[shadow.state.workflow].output
    if event.output != expected:
        shadow.broken("I-15", f"completed with {event.output!r} instead of {expected!r}")
    forward = [job for job, kind in shadow.kinds.items() if kind is JobKind.EXECUTE]
    missing = [job for job in forward if job not in shadow.succeeded]
    if missing and shadow.state.workflow not in TOLERANT:
        shadow.broken("I-15", f"completed although jobs {missing} have not succeeded")
    unseen = [job for job in sorted(shadow.succeeded) if not world.attempted(shadow.id, job)]
    if unseen:
        shadow.broken("I-15", f"completed although no worker ever began jobs {unseen}")


@on_event(e.ExecutionFailed, e.ExecutionCancelled)
def the_verdict_names_what_ran(world: World, shadow: Shadow, event: Any) -> None:
    hidden = [job for job in world.witness.left_by(shadow.id) if job not in event.residue]
    if hidden:
        shadow.broken("I-33", f"what jobs {hidden} did is there, but the verdict names only {list(event.residue)}")
    if type(event) is e.ExecutionFailed and (event.status is Status.FAILED_UNSAFE) != bool(event.residue):
        shadow.broken("I-34", f"{event.status.name} with residue {list(event.residue)}")


# --- commits: rows follow from histories ---------------------------------------------------------------
@on_commit
def the_header_is_the_fold(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    state = shadow.state
    if header.version != state.version or header.digest != shadow.digest:
        shadow.broken("I-5", f"the header says version {header.version}, the history {state.version}")
    if header.status is not state.status or header.jobs_done != state.jobs_done:
        shadow.broken("I-4", f"the header says {header.status.name} and {header.jobs_done} jobs")
    if header.logs != world.tables.logs.get(header.id, 0):
        shadow.broken("I-2", f"the header counts {header.logs} lines, there are {world.tables.logs.get(header.id, 0)}")
    if header.definition not in world.tables.definitions:
        shadow.broken("I-36", "its definition is not stored")


def _was_told(state: State, job: Job) -> bool:
    return job.kind is not JobKind.VERIFY and (job.is_stopping or not state.is_cleaning)


@on_commit
def work_is_where_the_history_says(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    """Jobs that wait or run are rows of the queue; jobs in back-off, timers and turns are on the agenda."""
    state = shadow.state
    rows = world.tables.jobs.get(header.id, _NONE)
    agenda = world.tables.agenda.get(header.id, _NONE)
    if state.locks or state.awaits or state.ticket:
        agenda = {item: row for item, row in agenda.items() if not isinstance(row.request, _WAKING)}
    places = dues = 0
    for job in state.jobs.values():
        status = job.status
        if status is _SENT or status is _STARTED:
            places += 1
            row = rows.get(job.id)
            if row is None:
                shadow.broken("I-12", f"job {job.id} is {status.name}, but has no row")
            elif (status is _STARTED) != bool(row.incarnation) or row.attempt != job.attempt:
                shadow.broken("I-13", f"job {job.id} is {status.name} at {job.attempt}, its row says {row}")
        elif status is JobStatus.RESCHEDULED and job.due != FAR:
            dues += 1
            if f"job/{job.id}" not in agenda or agenda[f"job/{job.id}"].due != job.due:
                shadow.broken("I-18", f"job {job.id} is in back-off, but is not on the agenda")
    if places != len(rows):
        shadow.broken("I-11", f"jobs {sorted(rows)} are in the queue, but only {places} wait or run")
    for timer in state.timers.values():
        dues += 1
        if f"timer/{timer.id}" not in agenda or agenda[f"timer/{timer.id}"].due != timer.due:
            shadow.broken("I-18", f"timer {timer.id} is not on the agenda")
    if state.ticket and not state.fence and state.policy.lock_timeout and not shadow.is_ended:
        dues += 1
        if "locks-timeout" not in agenda:
            shadow.broken("I-18", "nothing ends its waiting for entities")
    if state.status is Status.CANCELLING:
        dues += GRACE in agenda
        if GRACE not in agenda and any(job.status is _STARTED and _was_told(state, job) for job in state.jobs.values()):
            shadow.broken("I-18", "nothing ends the time that its jobs have to stop")
    if state.is_turn_open and not shadow.is_ended:
        dues += 1
        if f"turn/{state.turn}" not in agenda:
            shadow.broken("I-18", f"turn {state.turn} is not on the agenda")
    if dues != len(agenda):
        shadow.broken("I-18", f"the agenda has {sorted(agenda)}, the history waits for {dues} of that")


@on_commit
def locks_are_held_as_the_history_says(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    """Both ways, and at most one holder, and nobody overtaken."""
    state, tables = shadow.state, world.tables
    if batch.grants:
        world.reach("lock passed on")
    if not tables.claims and not state.locks:
        return
    rows = {place[1:]: row for place, row in tables.claims.items() if row.claim.execution == header.id}
    if shadow.is_ended and rows:
        shadow.broken("I-22", f"it has ended with claims to {sorted(rows)}")
    for hold in state.locks.values():
        row = rows.pop((hold.entity, hold.name, hold.seq), None)
        if row is None:
            shadow.broken("I-23", f"it has no place at lock {hold.name}, where it has claim {hold.seq}")
        elif hold.fence and row.fence != hold.fence:
            shadow.broken("I-21", f"it holds lock {hold.name} under fence {hold.fence}, the row says {row.fence}")
        elif row.fence and not hold.fence:
            item = f"lock/{hold.entity}/{hold.name}/{hold.lane}"
            if item not in tables.agenda.get(header.id, _NONE):
                shadow.broken("I-18", f"lock {hold.name} is its own, but nothing tells it")
        elif not hold.fence:
            world.reach("lock waited for")
    if rows:
        shadow.broken("I-23", f"it has claims to {sorted(rows)} that its history does not know")
    for lock in {place[:3] for place in tables.claims}:
        claims = sorted((place[3], row.fence) for place, row in tables.claims.items() if place[:3] == lock)
        if sum(fence > 0 for _, fence in claims) != 1:
            shadow.broken("I-20", f"lock {lock[2]} has not one holder, but {claims}")
        if not claims[0][1]:
            shadow.broken("I-25", f"somebody was overtaken at lock {lock[2]}: {claims}")


@on_event(e.LockTaken, e.LockReleased)
def a_fence_is_given_once(world: World, shadow: Shadow, event: Any) -> None:
    if isinstance(event, e.LockReleased) and event.heir is None:
        return
    if (event.name, event.fence) in world.fences:
        shadow.broken("I-21", f"lock {event.name} is given under fence {event.fence} a second time")
    world.fences.add((event.name, event.fence))


@on_event(e.ErrorRaised)
def circles_are_untied(world: World, shadow: Shadow, event: e.ErrorRaised) -> None:
    if event.failure.kind == "deadlock":
        world.reach("locks tied in a circle")


@on_commit
def snapshots_are_folds(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    id = header.id
    if shadow.is_ended:
        if world.tables.parts.get(id):
            shadow.broken("I-36", "it has ended and has snapshot parts")
        return
    if not batch.parts or not any(part[0] == id for part in batch.parts):
        return
    world.reach("snapshot")
    try:
        saved = restore(world.tables.parts[id])
    except Exception as error:
        shadow.broken("I-4", f"the snapshot cannot be read: {error}")
    if canonical(saved) != canonical(shadow.state):
        shadow.broken("I-4", f"the snapshot at {saved.version} is not the fold of the history")


@on_commit
def references_lead_somewhere(world: World, shadow: Shadow, header: Header, batch: Batch) -> None:
    for row in batch.history:
        if _REFERENCE in row.body and row.execution == header.id:
            for digest in _digests(unpack(row.body)):
                if (row.execution, digest) not in world.tables.blobs:
                    shadow.broken("I-36", f"row {row.seq} refers to a value that is not stored")
            world.reach("long value")


def _digests(value: Any) -> list[bytes]:
    if isinstance(value, BlobRef):
        return [value.digest]
    if isinstance(value, dict):
        value = list(value.values())
    return [digest for item in value for digest in _digests(item)] if isinstance(value, list) else []


# --- the end: promises to people -----------------------------------------------------------------------
@on_end
def what_was_acknowledged_is_there(world: World) -> None:
    for id in world.acknowledged_starts:
        if id not in world.shadows:
            raise Violation("I-1", f"{id} was acknowledged and is gone")
    for start, ids in world.asked.values():
        made = [id for id in ids if id in world.shadows]
        if start.key and len(made) > 1:
            raise Violation("I-1", f"key {start.key} made {len(made)} executions")


@on_end
def everything_has_ended(world: World) -> None:
    for id, shadow in world.shadows.items():
        if not shadow.state.status.is_ended:
            shadow.broken("I-45", "never ended")
        if world.tables.jobs.get(id):
            shadow.broken("I-11", "it has ended, and has jobs in the queue")
        if world.tables.agenda.get(id):
            shadow.broken("I-18", "it has ended, and has something on the agenda")
        header = world.tables.headers[id]
        if header.summary != pack(summary_of(shadow.state)):
            shadow.broken("I-4", "the header's summary is not that of the state")


@on_end
def verdicts_hold_afterwards(world: World) -> None:
    """What ran is counted again when nothing runs any more: an attempt may have begun after the verdict."""
    for id, shadow in world.shadows.items():
        state = shadow.state
        ran = world.witness.ever_done_by(id)
        if state.status not in (Status.COMPLETED, Status.COMPLETED_ACK):
            hidden = [job for job in world.witness.left_by(id) if job not in state.residue]
            if hidden:
                shadow.broken("I-33", f"jobs {hidden} ran, but the verdict names only {list(state.residue)}")
        claimed = {job for job, _ in shadow.started}
        unclaimed = [job for job in ran if job not in claimed]
        if unclaimed:
            shadow.broken("I-13", f"jobs {unclaimed} ran without ever having been claimed")


@on_end
def slots_are_given_back(world: World) -> None:
    for host in world.hosts:
        engine = host.engine
        if engine is None or engine.pending or world.now < host.paused_until:
            continue
        for session in engine.dispatch.sessions.values():
            open_ones = [place for place in engine.exchanges._open if place[0] == session.incarnation]
            if session.planned and not open_ones:
                raise Violation(
                    "I-47", f"worker {session.name} has {session.planned} planned claims left at {engine.id}"
                )


def states_in_memory(world: World, engine: Any) -> None:
    """I-4 for what an engine remembers between turns: nothing uncommitted, nothing changed afterwards."""
    for id, cached in engine.committer.cache.items():
        shadow = world.shadows.get(id)
        if shadow is None:
            raise Violation("I-4", f"{engine.id} remembers {id}, which was never committed")
        if cached.state.version > shadow.state.version:
            shadow.broken("I-4", f"{engine.id} remembers version {cached.state.version}")
        if cached.state.version == shadow.state.version and canonical(cached.state) != canonical(shadow.state):
            shadow.broken("I-4", f"what {engine.id} remembers of it is not the fold of the history")
