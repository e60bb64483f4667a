"""Rows that follow from events: the queue, the agenda and the log, written in the same commit.

What follows from an event depends on it and on the state after it, on nothing else. Nothing else creates
work, so what the tables hold can always be derived from the histories; `verify` does exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from . import events as e
from . import requests as r
from . import rows_entities
from .folding import apply
from .inventory import EntityChange, EntityRow, Flag
from .locks import Claim
from .model import Effect, JobKind, JobStatus, Level, LogLine, Mode
from .state import FAR, State, in_doubt, spec_of
from .versions import place

#: the agenda's item for the end of the time that jobs of a cancelled execution have to stop
GRACE = "grace"


class JobRow(msgspec.Struct, array_like=True, gc=False):
    """A job that waits in its queue, or is claimed (`incarnation` set)."""

    execution: str
    job: int
    queue: str
    #: `name:version`; the name alone, of a job that is older than versions: any will do
    block: str
    #: µs; when it came into the queue, or was claimed
    since: int
    attempt: int = 0
    incarnation: str = ""
    #: µs after `since` at which a claimed job is stuck; 0 = the engine's default
    timeout: int = 0


class AgendaRow(msgspec.Struct, array_like=True, gc=False):
    execution: str
    #: unique within the execution, derived from what it is about
    item: str
    due: int
    request: r.Due


class LogRow(msgspec.Struct, array_like=True, gc=False):
    execution: str
    #: 1, 2, 3 … within the execution; given when it is written, because workers' lines are not events
    number: int
    at: int
    line: LogLine


class LockHead(msgspec.Struct, array_like=True, gc=False):
    """Both numbers only grow, so what is stored is the greater of what was and what is."""

    fence: int = 0
    next_seq: int = 1


class ClaimRow(msgspec.Struct, array_like=True, gc=False):
    """A place at a lock: held (`fence` set), or waited for."""

    tenant: str
    entity: str
    name: str
    claim: Claim
    fence: int = 0


class SensorChange(msgspec.Struct, array_like=True, gc=False):
    """A sensor's new value."""

    tenant: str
    entity: str
    kind: str
    name: str
    value: Any
    version: int
    at: int
    #: execution or person
    by: str


class EntityClaims(msgspec.Struct, array_like=True, gc=False):
    """The places one execution has at all its entities."""

    tenant: str
    execution: str
    ticket: int
    priority: int
    #: 0: it waits
    fence: int
    since: int
    #: where it waits
    watch: str
    #: sorted
    entities: tuple[str, ...]
    modes: tuple[Mode, ...]


class Rows:
    """What the tables have to hold after some events. The last word about a row counts; `None`: it is gone."""

    __slots__ = (
        "agenda",
        "changes",
        "changes_gone",
        "claims",
        "entities",
        "entities_granted",
        "entities_lost",
        "entities_queued",
        "entities_released",
        "entities_watching",
        "flags",
        "flags_gone",
        "grants",
        "jobs",
        "locks",
        "logs",
        "sensor_waits",
        "sensor_waits_gone",
        "sensors",
        "stopping",
    )  # fmt: skip

    def __init__(self) -> None:
        #: A job's row goes in the same commit as its result: a crash between the two would run the job twice.
        self.jobs: dict[tuple[str, int], JobRow | None] = {}
        self.agenda: dict[tuple[str, str], AgendaRow | None] = {}
        self.logs: list[LogRow] = []
        #: claimed jobs whose workers have to be told to stop
        self.stopping: list[tuple[str, int]] = []
        #: (tenant, entity, name)
        self.locks: dict[tuple[str, str, str], LockHead] = {}
        #: (tenant, entity, name, seq)
        self.claims: dict[tuple[str, str, str, int], ClaimRow | None] = {}
        #: claims that are stored already and hold now: their fence, and since when
        self.grants: dict[tuple[str, str, str, int], tuple[int, int]] = {}
        #: (tenant, entity, kind, name)
        self.sensors: dict[tuple[str, str, str, str], SensorChange | None] = {}
        #: (tenant, entity, kind, name, execution, lane); the lanes that are gone go first
        self.sensor_waits: dict[tuple[str, str, str, str, str, int], None] = {}
        self.sensor_waits_gone: dict[tuple[str, int], None] = {}
        # Entity locks, by execution. Written in this order: what is over, then new places, grants, watches, and what
        # was lost. (An execution may end and be resumed within one commit: its old places go, its new ones stay.) A
        # place that is over stays as a trace of who worked upon what. A grant or a release ends its watch.
        self.entities_queued: dict[str, EntityClaims] = {}
        #: execution → (fence, since) of a place that is stored already
        self.entities_granted: dict[str, tuple[int, int]] = {}
        #: execution → the one entity it watches from now on
        self.entities_watching: dict[str, str] = {}
        #: (tenant, entity, execution)
        self.entities_lost: dict[tuple[str, str, str], None] = {}
        self.entities_released: dict[str, None] = {}
        #: (tenant, flag)
        self.flags: list[tuple[str, Flag]] = []
        #: executions that were acknowledged
        self.flags_gone: dict[str, None] = {}
        #: (tenant, id); `None`: deleted
        self.entities: dict[tuple[str, str], EntityRow | None] = {}
        #: (execution, job, change): asked for, kept aside
        self.changes: list[tuple[str, int, EntityChange]] = []
        self.changes_gone: dict[str, None] = {}

    def at(self, execution: str, item: str, due: int, request: r.Due) -> AgendaRow:
        return AgendaRow(execution, item, due, request)

    def log(self, state: State, line: LogLine) -> None:
        self.logs.append(LogRow(state.id, 0, state.at, line))

    def place(self, state: State, ticket: int, fence: int, watch: str, asked: dict[str, Mode]) -> None:
        """Its place at every entity it asks for, or has under a fence."""
        names, modes = tuple(asked), tuple(asked.values())
        self.entities_queued[state.id] = EntityClaims(
            state.tenant, state.id, ticket, state.policy.priority, fence, state.at, watch, names, modes
        )

    @property
    def is_sharing(self) -> bool:
        """Whether it has anything of what executions share."""
        return bool(self.claims or self.sensors or self.sensor_waits or self.sensor_waits_gone)

    @property
    def is_about_entities(self) -> bool:
        return bool(
            self.entities_queued
            or self.entities_granted
            or self.entities_watching
            or self.entities_lost
            or self.entities_released
            or self.flags
            or self.flags_gone
            or self.entities
            or self.changes
            or self.changes_gone
        )


def transit(state: State, at: int, events: Sequence[e.Event], rows: Rows) -> None:
    """Apply a transition and note what follows from it: `fold` for the live path."""
    if state.at < at:
        state.at = at
    for event in events:
        apply(state, event)
        follow = _FOLLOW.get(type(event))
        if follow is not None:
            follow(state, event, rows)


def queued(state: State, id: int) -> JobRow:
    job = state.jobs[id]
    spec = spec_of(state, job)
    return JobRow(state.id, id, spec.queue, place(spec.block, spec.version), state.at, job.attempt, "", spec.timeout)


# --- one function per kind of fact that has consequences -----------------------------------------------
def _lane_advanced(state: State, event: e.LaneAdvanced, rows: Rows) -> None:
    if event.logs:
        rows.logs += [LogRow(state.id, 0, state.at, line) for line in event.logs]


def _job_scheduled(state: State, event: e.JobScheduled, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = queued(state, event.job)


def _job_released(state: State, event: e.JobReleased, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = queued(state, event.job)
    rows.agenda[state.id, f"job/{event.job}"] = None


def _job_succeeded(state: State, event: e.JobSucceeded, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = None
    if event.changes:
        rows.changes += [(state.id, event.job, change) for change in event.changes]


def _job_failed(state: State, event: e.JobFailed, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = None
    if state.is_cleaning and event.failure.kind == "abandoned":
        # The workflow is told of one at a time.
        rows.agenda[state.id, GRACE] = rows.at(state.id, GRACE, state.at, r.EndGrace())


def _job_cancelled(state: State, event: e.JobCancelled, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = None
    rows.agenda[state.id, f"job/{event.job}"] = None


def _job_rescheduled(state: State, event: e.JobRescheduled, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = None
    if event.due == FAR:
        return  # it waits for what somebody finds out, not for a time
    item = f"job/{event.job}"
    rows.agenda[state.id, item] = AgendaRow(state.id, item, event.due, r.ReleaseJob(event.job, event.attempt))


def _timer_set(state: State, event: e.TimerSet, rows: Rows) -> None:
    item = f"timer/{event.timer}"
    rows.agenda[state.id, item] = AgendaRow(state.id, item, event.due, r.FireTimer(event.timer))


def _timer_gone(state: State, event: e.TimerFired | e.TimerCancelled, rows: Rows) -> None:
    rows.agenda[state.id, f"timer/{event.timer}"] = None


def _turn_taken(state: State, event: e.TurnTaken, rows: Rows) -> None:
    item = f"turn/{event.turn}"
    due = AgendaRow(state.id, item, state.at, r.TakeTurn(event.turn)) if event.is_open else None
    rows.agenda[state.id, item] = due


def _job_stop_asked(state: State, event: e.JobStopAsked, rows: Rows) -> None:
    rows.stopping.append((state.id, event.job))


def _cancel_requested(state: State, event: e.CancelRequested, rows: Rows) -> None:
    if not event.cleans_up:
        _stop_all(state, rows)
    if state.running:
        rows.agenda[state.id, GRACE] = rows.at(state.id, GRACE, state.at + state.policy.grace, r.EndGrace())


def _cleanup_ended(state: State, event: e.CleanupEnded, rows: Rows) -> None:
    if _stop_all(state, rows):
        rows.agenda[state.id, GRACE] = rows.at(state.id, GRACE, state.at + state.policy.grace, r.EndGrace())


def _stop_all(state: State, rows: Rows) -> list[int]:
    """Whoever looks what came of a job is let alone: the verdict needs the answer."""
    started = [
        id for id, job in state.jobs.items() if job.status is JobStatus.STARTED and job.kind is not JobKind.VERIFY
    ]
    rows.stopping += [(state.id, id) for id in started]
    return started


def _signal_sent(state: State, event: e.SignalSent, rows: Rows) -> None:
    request = r.DeliverSignal(event.name, event.value, event.key, state.id, state.tenant)
    item = item_of(request)
    rows.agenda[event.target, item] = AgendaRow(event.target, item, state.at, request)


def _lock_taken(state: State, event: e.LockTaken | e.LockQueued, rows: Rows) -> None:
    fence = event.fence if isinstance(event, e.LockTaken) else 0
    _raise_head(state, event.entity, event.name, fence, event.seq + 1, rows)
    claim = Claim(event.seq, state.id, event.lane, event.path, state.at)
    key = (state.tenant, event.entity, event.name, event.seq)
    rows.claims[key] = ClaimRow(state.tenant, event.entity, event.name, claim, fence)


def _lock_granted(state: State, event: e.LockGranted, rows: Rows) -> None:
    rows.agenda[state.id, item_of(r.WakeLock(event.entity, event.name, event.lane, event.seq))] = None


def _lock_released(state: State, event: e.LockReleased, rows: Rows) -> None:
    rows.agenda[state.id, item_of(r.WakeLock(event.entity, event.name, event.lane, event.seq))] = None
    _pass_on(state, event.entity, event.name, event.seq, event.heir, event.fence, rows)


def _lock_forced(state: State, event: e.LockForced, rows: Rows) -> None:
    entity, name, owner, seq = event.entity, event.name, event.owner, event.owner_seq
    if owner != state.id:
        lose = r.LoseLock(entity, name, seq, event.fence, event.by)
        rows.agenda[owner, item_of(lose)] = AgendaRow(owner, item_of(lose), state.at, lose)
        said = f"took lock {name} of {entity} away from execution {owner}"
    else:
        rows.agenda[owner, item_of(r.LoseLock(entity, name, seq, 0))] = None
        said = f"lock {name} of {entity} was taken away by {event.by or 'the workflow'}"
    rows.logs.append(LogRow(state.id, 0, state.at, LogLine(said, Level.WARNING)))
    _pass_on(state, entity, name, seq, event.heir, event.fence, rows)


def _pass_on(
    state: State, entity: str, name: str, seq: int, heir: tuple[str, int, int] | None, fence: int, rows: Rows
) -> None:
    key = (state.tenant, entity, name, seq)
    rows.claims[key] = None
    rows.grants.pop(key, None)
    if fence:
        _raise_head(state, entity, name, fence, 1, rows)
    if heir is None:
        return
    execution, lane, next_seq = heir
    key = (state.tenant, entity, name, next_seq)
    row = rows.claims.get(key)
    if row is not None:
        row.claim, row.fence = msgspec.structs.replace(row.claim, since=state.at), fence
    else:
        rows.grants[key] = (fence, state.at)
    # The wake-up is in the commit that passes the lock on: it cannot be lost.
    wake = r.WakeLock(entity, name, lane, next_seq)
    rows.agenda[execution, item_of(wake)] = AgendaRow(execution, item_of(wake), state.at, wake)


def _raise_head(state: State, entity: str, name: str, fence: int, next_seq: int, rows: Rows) -> None:
    head = rows.locks.setdefault((state.tenant, entity, name), LockHead())
    head.fence, head.next_seq = max(head.fence, fence), max(head.next_seq, next_seq)


def _sensor_changed(state: State, event: e.SensorChanged, rows: Rows) -> None:
    key = (state.tenant, event.entity, event.kind, event.name)
    change = SensorChange(*key, event.value, event.version, state.at, state.id)
    rows.sensors[key] = None if event.is_gone else change
    wake_sensor(event.woken, state.at, rows)


def wake_sensor(woken: Sequence[tuple[str, int]], at: int, rows: Rows) -> None:
    for execution, lane in woken:
        wake = r.WakeSensor(lane)
        rows.agenda[execution, item_of(wake)] = AgendaRow(execution, item_of(wake), at, wake)


def _sensor_awaited(state: State, event: e.SensorAwaited, rows: Rows) -> None:
    rows.sensor_waits[state.tenant, event.entity, event.kind, event.name, state.id, event.lane] = None


def _sensor_left(state: State, event: e.SensorLeft, rows: Rows) -> None:
    rows.sensor_waits_gone[state.id, event.lane] = None
    for key in [key for key in rows.sensor_waits if key[4:] == (state.id, event.lane)]:
        del rows.sensor_waits[key]
    rows.agenda[state.id, item_of(r.WakeSensor(event.lane))] = None


#: Requests that leave the agenda when they arrive, whatever comes of them. Never one that waits for a time: it may
#: arrive too early where clocks differ, and nobody would ask again.
Arriving: TypeAlias = (
    r.WakeLock
    | r.WakeSensor
    | r.BreakLock
    | r.LoseLock
    | r.DeliverSignal
    | r.TryLocks
    | r.AwaitEnd
    | r.HearEnd
    | r.EndGrace
)


def item_of(request: Arriving) -> str:
    """Where on the agenda of its execution a wake-up stands."""
    match request:
        case r.TryLocks():
            return rows_entities.LOCKS
        case r.EndGrace():
            return GRACE
        case r.AwaitEnd(execution=execution):
            return f"await/{execution}"
        case r.HearEnd(execution=execution):
            return f"heard/{execution}"
        case r.WakeLock(entity, name, lane):
            return f"lock/{entity}/{name}/{lane}"
        case r.WakeSensor(lane=lane):
            return f"sensor/{lane}"
        case r.BreakLock(entity, name, lane):
            return f"break/{entity}/{name}/{lane}"
        case r.DeliverSignal(key=key):
            return f"signal/{key}"
        case r.LoseLock(entity, name, seq):
            return f"lost/{entity}/{name}/{seq}"


def _rollback_planned(state: State, event: e.RollbackPlanned, rows: Rows) -> None:
    if state.is_cancelled:
        rows.agenda[state.id, GRACE] = None  # everything has stopped


def _ended(state: State, event: e.Event, rows: Rows) -> None:
    if isinstance(event, e.ExecutionCancelled):
        rows.agenda[state.id, GRACE] = None
    if state.awaited_by or state.gates:
        rows_entities.end(state, rows)
    if state.is_turn_open:
        rows.agenda[state.id, f"turn/{state.turn}"] = None
    if state.has_changes:
        # Made in this very commit, or never.
        rows.changes = [asked for asked in rows.changes if asked[0] != state.id]
        rows.changes_gone[state.id] = None
    if state.ledger:
        rows.flags += [(state.tenant, flag) for flag in flags_of(state)]


def flags_of(state: State) -> list[Flag]:
    """One for each entity that an ended execution left in doubt."""
    doubts = in_doubt(state)
    if not doubts:
        return []
    kind = "quarantine" if state.policy.on_unsafe == "quarantine" else "suspect"
    why: dict[str, list[str]] = {}
    for job in doubts:
        entry = state.ledger[job]
        if entry.entity:
            done = "took effect" if entry.effect is Effect.DONE and not entry.unknown else "may have taken effect"
            why.setdefault(entry.entity, []).append(f"job {job} {done}")
    return [Flag(entity, state.id, kind, ", ".join(why[entity][-3:]), state.ended_at) for entity in sorted(why)]


def _effect_verified(state: State, event: e.EffectVerified, rows: Rows) -> None:
    # The job waits no longer for somebody to look; what follows may have it wait for something else.
    job = state.jobs.get(event.job)
    if job is not None and job.status is JobStatus.RESCHEDULED:
        rows.agenda[state.id, f"job/{event.job}"] = None


def _acked(state: State, event: e.ExecutionAcked, rows: Rows) -> None:
    _unflag(state, rows)
    rows_entities.wake(event.woken, state.at, rows)


def _revived(state: State, event: e.ExecutionResumed | e.ExecutionReplayed, rows: Rows) -> None:
    # Its quarantine ends, and it may have to queue behind who waited for that.
    _unflag(state, rows)
    rows_entities.wake(event.woken, state.at, rows)


def _unflag(state: State, rows: Rows) -> None:
    """Also what was flagged in the same turn; whatever is flagged after it stays, for what is gone is written first."""
    rows.flags = [(tenant, flag) for tenant, flag in rows.flags if flag.execution != state.id]
    rows.flags_gone[state.id] = None


_FOLLOW: dict[type, Callable[[State, Any, Rows], None]] = {
    e.LaneAdvanced: _lane_advanced,
    e.JobScheduled: _job_scheduled,
    e.JobReleased: _job_released,
    e.JobSucceeded: _job_succeeded,
    e.JobFailed: _job_failed,
    e.JobCancelled: _job_cancelled,
    e.JobRescheduled: _job_rescheduled,
    e.TimerSet: _timer_set,
    e.TimerFired: _timer_gone,
    e.TimerCancelled: _timer_gone,
    e.TurnTaken: _turn_taken,
    e.JobStopAsked: _job_stop_asked,
    e.CancelRequested: _cancel_requested,
    e.RollbackPlanned: _rollback_planned,
    e.CleanupEnded: _cleanup_ended,
    e.SignalSent: _signal_sent,
    e.LockTaken: _lock_taken,
    e.LockQueued: _lock_taken,
    e.LockGranted: _lock_granted,
    e.LockReleased: _lock_released,
    e.LockForced: _lock_forced,
    e.SensorChanged: _sensor_changed,
    e.SensorAwaited: _sensor_awaited,
    e.SensorLeft: _sensor_left,
    e.EffectVerified: _effect_verified,
    e.ExecutionAcked: _acked,
    e.ExecutionResumed: _revived,
    e.ExecutionReplayed: _revived,
    e.ExecutionCompleted: _ended,
    e.ExecutionFailed: _ended,
    e.ExecutionCancelled: _ended,
    **rows_entities.FOLLOW,
}
