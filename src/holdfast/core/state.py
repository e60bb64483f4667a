"""State: what an execution has come to, the fold of its events. `core.folding` makes it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from . import locks as locking
from .lanes import ROOT_LANE, Lane
from .ledger import Entry
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
)
from .subjects import Subject
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
