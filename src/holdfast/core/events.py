"""Facts. One class per kind of fact, in the past tense; the union `Event` is closed.

The class is the stored form (a compact msgpack array that begins with the tag) and, through
`codec.event_json`, the API form. Evolution: fields are only ever added at the end, with a default; a
rename is a new class with a new tag; tags are never used twice.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from .inventory import EntityChange
from .lanes import Mark
from .model import (
    FORMAT,
    Actor,
    Effect,
    Failure,
    Gate,
    JobKind,
    JobSpec,
    LogLine,
    Mode,
    Policy,
    Status,
    Undo,
)


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class ExecutionStarted(_Event, frozen=True, array_like=True, tag=1):
    """Accepted: the definition, its version and the input are pinned."""

    tenant: str
    #: published name, or the name inside an inline definition
    workflow: str
    #: 0 for an inline definition
    version: int
    #: digest of the definition, the key it is stored under
    definition: bytes
    input: Any
    actor: Actor
    labels: dict[str, str] = {}
    format: int = FORMAT
    #: what it works upon; empty for the tenant's default entity
    entity: str = ""
    #: entities it was started on, by id and by selector
    entities: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    #: execution it does again for what failed there
    retry_of: str = ""
    #: exactly these entities, whatever the workflow and its blocks name by themselves
    is_exact: bool = False


class PhasesPassed(_Event, frozen=True, array_like=True, tag=2):
    """The execution went through these statuses in this commit; the last one is where it is now."""

    statuses: tuple[Status, ...]


class BlocksPinned(_Event, frozen=True, array_like=True, tag=3):
    """The exact blocks this execution will use; `JobScheduled.spec` is an index into them."""

    specs: tuple[JobSpec, ...]


class LaneAdvanced(_Event, frozen=True, array_like=True, tag=4):
    """One lane moved. `ops` are small arrays, see `core.lanes`."""

    lane: int
    ops: tuple[tuple[Any, ...], ...]
    logs: tuple[LogLine, ...] = ()


class JobScheduled(_Event, frozen=True, array_like=True, tag=5):
    job: int
    lane: int
    #: index of the step in the definition
    step: int
    spec: int
    input: Any = None
    visit: int = 1
    #: entity it is about; empty for none
    entity: str = ""
    kind: JobKind = JobKind.EXECUTE
    #: of VERIFY and ROLLBACK: the job it is about
    about: int = 0


class JobStarted(_Event, frozen=True, array_like=True, tag=6):
    """Claimed: from here on the attempt may have had an effect."""

    job: int
    attempt: int
    #: name of the worker
    worker: str


class JobSucceeded(_Event, frozen=True, array_like=True, tag=7):
    job: int
    attempt: int
    result: Any = None
    effect: Effect = Effect.NONE
    #: wishes for the inventory, granted with the end of the execution if it completes
    changes: tuple[EntityChange, ...] = ()


class JobFailed(_Event, frozen=True, array_like=True, tag=8):
    """For good: no attempt will follow in this visit."""

    job: int
    attempt: int
    failure: Failure
    effect: Effect = Effect.NONE


class JobRescheduled(_Event, frozen=True, array_like=True, tag=9):
    """The attempt did not succeed; another one follows, not before `due`."""

    job: int
    attempt: int
    due: int
    failure: Failure | None = None
    effect: Effect = Effect.NONE
    #: last heartbeat's, for the next attempt
    details: Any = None


class JobReleased(_Event, frozen=True, array_like=True, tag=10):
    """The job waits in its queue again: its back-off is over, or a claim never reached the worker."""

    job: int
    #: the claim was withdrawn before a worker saw it, so that attempt had no effect
    undelivered: bool = False


class JobCancelled(_Event, frozen=True, array_like=True, tag=11):
    """Ended without a result because the execution was stopped."""

    job: int
    attempt: int
    effect: Effect = Effect.NONE


class ResultRefused(_Event, frozen=True, array_like=True, tag=12):
    """A result came for an attempt that no longer counts. Kept as evidence, changes nothing."""

    job: int
    attempt: int
    is_success: bool
    value: Any = None
    failure: Failure | None = None


class TimerSet(_Event, frozen=True, array_like=True, tag=13):
    timer: int
    lane: int
    due: int
    #: what it is for, see `Lane.timers`
    depth: int = -1


class TimerFired(_Event, frozen=True, array_like=True, tag=14):
    timer: int


class TimerCancelled(_Event, frozen=True, array_like=True, tag=15):
    timer: int


class SignalReceived(_Event, frozen=True, array_like=True, tag=16):
    name: str
    value: Any
    actor: Actor
    #: the sender's own id, so that sending twice counts once
    key: str = ""


class CancelRequested(_Event, frozen=True, array_like=True, tag=17):
    actor: Actor
    reason: str = ""
    #: the workflow has steps for that (`finally`): it moves until it says that it has stopped
    cleans_up: bool = False


class ErrorRaised(_Event, frozen=True, array_like=True, tag=18):
    """The workflow failed for good; what is in flight is drained before the verdict."""

    failure: Failure
    #: label of the step it came from
    step: str = ""


class ExecutionCompleted(_Event, frozen=True, array_like=True, tag=19):
    output: Any = None


class ExecutionFailed(_Event, frozen=True, array_like=True, tag=20):
    """The verdict; `residue` names the jobs whose effect remains, in order of their start."""

    status: Status
    residue: tuple[int, ...] = ()
    failure: Failure | None = None
    #: who ended it as it was, where somebody had to decide; with which words
    actor: Actor | None = None
    reason: str = ""


class ExecutionCancelled(_Event, frozen=True, array_like=True, tag=21):
    residue: tuple[int, ...] = ()


class TurnTaken(_Event, frozen=True, array_like=True, tag=22):
    """Out of fuel or back from it: `due` is set while the rest waits on the agenda."""

    turn: int
    is_open: bool


class JobStopAsked(_Event, frozen=True, array_like=True, tag=31):
    """Its worker is told to stop; whatever it then answers, the workflow no longer waits for the result."""

    job: int
    reason: str = ""


class ExecutionResumed(_Event, frozen=True, array_like=True, tag=32):
    """Carries on where it failed or was stopped."""

    actor: Actor
    reason: str = ""
    is_forced: bool = False
    #: executions that waited for entities it had quarantined
    woken: tuple[str, ...] = ()
    #: it does not carry on where others had its entities before it has them again
    is_wary: bool = False


class ExecutionReplayed(_Event, frozen=True, array_like=True, tag=33):
    """Does again what follows a waypoint, or any step if forced."""

    actor: Actor
    reason: str = ""
    is_forced: bool = False
    #: index of the step; -1 is the start
    step: int = -1
    #: the lane on entry to that step; nothing where it is one of its waypoints
    mark: Mark | None = None
    #: executions that waited for entities it had quarantined
    woken: tuple[str, ...] = ()


class RetentionSet(_Event, frozen=True, array_like=True, tag=34):
    """How long to keep this execution once it has ended, and with which others it is counted."""

    rule: str
    hash: str = ""


class SignalSent(_Event, frozen=True, array_like=True, tag=35):
    """To another execution; it arrives by that execution's agenda."""

    lane: int
    target: str
    name: str
    value: Any = None
    #: unique for the sender, so that it counts once
    key: str = ""


class LockTaken(_Event, frozen=True, array_like=True, tag=23):
    """The lock was free: the lane holds it from now on."""

    lane: int
    entity: str
    name: str
    #: its place among all claims to that lock there ever were
    seq: int
    fence: int
    #: the lane and all lanes it lies within, itself first
    path: tuple[int, ...] = ()
    #: by setting the sensor `lock-NAME`
    is_by_sensor: bool = False


class LockQueued(_Event, frozen=True, array_like=True, tag=24):
    """Somebody has the lock, or was there before: the lane waits for it."""

    lane: int
    entity: str
    name: str
    seq: int
    path: tuple[int, ...] = ()


class LockGranted(_Event, frozen=True, array_like=True, tag=25):
    """The lane that waited has the lock; whoever gave it back named it as the heir."""

    lane: int
    entity: str
    name: str
    seq: int
    fence: int


class LockReleased(_Event, frozen=True, array_like=True, tag=26):
    """Given back, or its queue left. `heir` (execution, lane, seq) has it now, under the new fence."""

    lane: int
    entity: str
    name: str
    seq: int
    heir: tuple[str, int, int] | None = None
    fence: int = 0


class LockForced(_Event, frozen=True, array_like=True, tag=27):
    """Taken from `owner`, who was not asked. In the history of whoever did it, and in the owner's."""

    entity: str
    name: str
    owner: str
    owner_seq: int
    heir: tuple[str, int, int] | None = None
    fence: int = 0
    #: who did it
    by: str = ""


class SensorChanged(_Event, frozen=True, array_like=True, tag=28):
    lane: int
    entity: str
    #: `sensor` or `config`
    kind: str
    name: str
    value: Any
    version: int
    is_gone: bool = False
    #: lanes that waited for it: (execution, lane)
    woken: tuple[tuple[str, int], ...] = ()


class SensorAwaited(_Event, frozen=True, array_like=True, tag=29):
    """From now on every change of it wakes the lane."""

    lane: int
    entity: str
    kind: str
    name: str


class SensorLeft(_Event, frozen=True, array_like=True, tag=30):
    """The lane waits for no sensor any more."""

    lane: int


class PolicySet(_Event, frozen=True, array_like=True, tag=36):
    """What the workflow says about entities, locks and rollback."""

    policy: Policy


class GatesSet(_Event, frozen=True, array_like=True, tag=37):
    """What has to be met before it begins; said again, whole, whenever one of them changes."""

    gates: tuple[Gate, ...]


class EntitiesFound(_Event, frozen=True, array_like=True, tag=38):
    """Discovered, in the order in which they are worked upon: by type, then id. All lists run in parallel."""

    ids: tuple[str, ...]
    types: tuple[str, ...]
    modes: tuple[Mode, ...]
    #: what is locked with them and not worked upon: what they are parts of, and their groups
    around: tuple[str, ...] = ()
    around_modes: tuple[Mode, ...] = ()
    #: the outermost entity each is a part of, empty for none; an empty list says that nobody is a part of anything
    within: tuple[str, ...] = ()
    #: the next entity above each that is worked upon too, where that is not the outermost; an empty list says nowhere
    above: tuple[str, ...] = ()


class EntitiesQueued(_Event, frozen=True, array_like=True, tag=39):
    """In the queue of every one of them, until it can have them all."""

    ticket: int
    #: the first entity at which it is blocked
    watch: str = ""


class EntitiesWatched(_Event, frozen=True, array_like=True, tag=40):
    """It looked again, and waits at another entity now."""

    watch: str


class EntitiesLocked(_Event, frozen=True, array_like=True, tag=41):
    """All of them are its own, under this fence."""

    fence: int
    #: of the queue; that of its fence where it did not wait
    ticket: int = 0


class EntitiesReleased(_Event, frozen=True, array_like=True, tag=42):
    """Given back, or their queues left."""

    #: executions that waited for one of them
    woken: tuple[str, ...] = ()


class EntityLost(_Event, frozen=True, array_like=True, tag=43):
    """Taken away by force."""

    entity: str
    by: str = ""
    woken: tuple[str, ...] = ()


class EffectVerified(_Event, frozen=True, array_like=True, tag=44):
    """Somebody looked: what was UNKNOWN is DONE or NONE, or still UNKNOWN."""

    job: int
    attempt: int
    effect: Effect


class RollbackPlanned(_Event, frozen=True, array_like=True, tag=45):
    """These jobs will be undone, as far as that goes; in the order of the plan. The status is ROLLBACK from here."""

    jobs: tuple[int, ...]
    actor: Actor = Actor()
    reason: str = ""


class EntrySettled(_Event, frozen=True, array_like=True, tag=46):
    """Rollback is over for that entry of the ledger."""

    job: int
    outcome: Undo
    failure: Failure | None = None


class InventoryChanged(_Event, frozen=True, array_like=True, tag=47):
    """What the blocks asked for was done, in the commit that completes the execution: (entity, version it has now; 0
    if it is gone)."""

    entities: tuple[tuple[str, int], ...]
    #: one for each of them, whatever number of jobs asked for it
    changes: tuple[EntityChange, ...] = ()


class ExecutionAcked(_Event, frozen=True, array_like=True, tag=48):
    """Somebody has seen how it ended, and answers for what it left."""

    actor: Actor
    note: str = ""
    #: executions that waited for entities it had quarantined
    woken: tuple[str, ...] = ()


class EndAwaited(_Event, frozen=True, array_like=True, tag=49):
    """Another execution wants to know when this one has ended."""

    execution: str


class CleanupEnded(_Event, frozen=True, array_like=True, tag=50):
    """It is being cancelled, and its own steps for that are over, or were given up; what is still in flight is waited
    for, but the workflow is told no more."""


Event: TypeAlias = (
    ExecutionStarted
    | PhasesPassed
    | BlocksPinned
    | LaneAdvanced
    | JobScheduled
    | JobStarted
    | JobSucceeded
    | JobFailed
    | JobRescheduled
    | JobReleased
    | JobCancelled
    | ResultRefused
    | TimerSet
    | TimerFired
    | TimerCancelled
    | SignalReceived
    | CancelRequested
    | ErrorRaised
    | ExecutionCompleted
    | ExecutionFailed
    | ExecutionCancelled
    | TurnTaken
    | JobStopAsked
    | ExecutionResumed
    | ExecutionReplayed
    | RetentionSet
    | SignalSent
    | LockTaken
    | LockQueued
    | LockGranted
    | LockReleased
    | LockForced
    | SensorChanged
    | SensorAwaited
    | SensorLeft
    | PolicySet
    | GatesSet
    | EntitiesFound
    | EntitiesQueued
    | EntitiesWatched
    | EntitiesLocked
    | EntitiesReleased
    | EntityLost
    | EffectVerified
    | RollbackPlanned
    | EntrySettled
    | InventoryChanged
    | ExecutionAcked
    | EndAwaited
    | CleanupEnded
)
