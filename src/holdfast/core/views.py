"""What people and programs are shown of an execution: one class for API, client, CLI and monitor."""

from __future__ import annotations

from typing import Any

import msgspec

from .model import DEFAULT_ENTITY, Actor, BlockOffer, Failure, JobSpec, LogLine
from .retrying import counts
from .state import State, in_doubt
from .verdict import verdict_of


class Summary(msgspec.Struct, array_like=True):
    """The part of an execution's header that lists do not filter on. Packed into one column."""

    actor: Actor = Actor()
    labels: dict[str, str] = {}
    output: Any = None
    failure: Failure | None = None
    failed_step: str = ""
    residue: tuple[int, ...] = ()
    cancel_reason: str = ""
    #: what it left, in a sentence
    verdict: str = ""
    #: how many effects somebody has to answer for
    doubts: int = 0
    acked_by: str = ""
    ack_note: str = ""
    #: of one that has ended: how many entities had come how far, in the order of `subjects.Progress`
    subjects: tuple[int, ...] = ()


def summary_of(state: State) -> Summary:
    is_ended = state.status.is_ended
    doubts = in_doubt(state) if is_ended else ()
    return Summary(
        state.actor,
        state.labels,
        state.output,
        state.failure,
        state.failed_step,
        state.residue,
        state.cancel_reason,
        verdict_of(state, doubts) if is_ended else "",
        len(doubts),
        state.acked_by,
        state.ack_note,
        counts(state) if state.status.is_ended else (),
    )


class Progress(msgspec.Struct, frozen=True):
    done: int
    total: int


class SubjectCounts(msgspec.Struct, frozen=True):
    """How far the entities of an execution have come."""

    total: int
    #: through all steps that are for them
    done: int
    failed: int
    #: begun with, and not through
    reached: int
    never_reached: int
    #: taken away by force
    lost: int = 0


def subject_counts(counted: tuple[int, ...]) -> SubjectCounts | None:
    """Of numbers in the order of `subjects.Progress`."""
    if not counted:
        return None
    never_reached, reached, done, failed, lost = counted
    return SubjectCounts(sum(counted), done, failed, reached, never_reached, lost)


class ErrorView(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    message: str
    code: str = ""
    step: str = ""
    type: str = ""
    traceback: str = ""
    details: Any = None


class StandView(msgspec.Struct, frozen=True):
    """Where a lane is."""

    lane: int
    #: label of the step; empty where it has not begun, or is at its end
    step: str
    #: what it waits for, in lower case; `nothing` where it moves or has ended, `stopped` where it failed
    wait: str
    #: why it failed
    error: str = ""


class WaypointView(msgspec.Struct, frozen=True):
    """A step from which an execution can be replayed, the last one reached last."""

    #: what `replay --from` takes: `start`, or the step's id or number
    start: str
    step: str


class RefusalView(msgspec.Struct, frozen=True):
    code: str
    message: str


class StandingView(msgspec.Struct, frozen=True):
    """Where an execution is, and from where it can go on."""

    id: str
    status: str
    run: int
    #: lanes that are at work, wait or have failed; not those that only wait for others
    lanes: list[StandView]
    waypoints: list[WaypointView]
    #: of one that has ended: why it could not be resumed without force; nothing if it could
    refusal: RefusalView | None = None
    #: there are more lanes or waypoints than these
    is_more: bool = False
    #: what it did was undone: not even force can resume it
    is_rolled_back: bool = False


class PlanStep(msgspec.Struct, frozen=True):
    step: str
    #: how often it was passed
    times: int = 1


class PlanJob(msgspec.Struct, frozen=True):
    """A job that had an effect, and would be done again as another job."""

    job: int
    step: str
    block: str
    #: False: nobody knows whether it took effect
    is_sure: bool
    #: its block may run twice
    may_repeat: bool


class PlanLane(msgspec.Struct, frozen=True):
    lane: int
    step: str
    #: it goes back to a waypoint; otherwise it goes on where it stands
    is_back: bool


class PlanLock(msgspec.Struct, frozen=True):
    """A lock that has to be taken again."""

    entity: str
    name: str
    #: the execution that has it now; empty if nobody has
    holder: str = ""
    since: int = 0
    waiting: int = 0


class PlanView(msgspec.Struct):
    """What `resume` or `replay` would do; nothing has happened."""

    id: str
    #: `resume` or `replay`
    verb: str
    #: from where, as it was asked
    asked: str
    #: that the execution has now
    status: str
    #: number it would have
    run: int
    is_forced: bool
    #: why it would be refused
    refusal: RefusalView | None = None
    #: where it would go on
    step: str = ""
    #: steps that would be entered again
    again: list[PlanStep] = []
    #: steps whose results stay
    kept: list[PlanStep] = []
    #: effects there are, and would be again
    jobs: list[PlanJob] = []
    lanes: list[PlanLane] = []
    locks: list[PlanLock] = []
    #: as they are when it goes on
    variables: dict[str, Any] = {}


class ExecutionView(msgspec.Struct, frozen=True):
    id: str
    workflow: str
    version: int
    status: str
    is_ended: bool
    #: of one that failed or was cancelled: False means effects remain that nobody undid; None otherwise
    is_safe: bool | None
    progress: Progress
    output: Any
    error: ErrorView | None
    #: jobs whose effect remains
    residue: list[int]
    labels: dict[str, str]
    started_by: str
    run: int
    #: number of events so far; the cursor of a live feed
    events: int
    created_at: int
    started_at: int | None
    ended_at: int | None
    updated_at: int
    #: why it is not moving, in sentences; only in answers about one execution
    waiting: list[str] = []
    #: what it works upon
    entity: str = DEFAULT_ENTITY
    #: what would be done; only in answers to a dry run
    plan: PlanView | None = None
    #: of one that has ended: what it left behind, in a sentence; empty for one that completed and left no doubt
    verdict: str = ""
    #: who acknowledged its end, and with which words
    acked_by: str = ""
    ack_note: str = ""
    #: of one that works on entities; of one that has not ended only in answers about that one
    subjects: SubjectCounts | None = None
    #: the execution it does again for what failed there
    retry_of: str = ""
    #: executions that do this one again; only in answers about one execution
    retries: list[str] = []


class JobView(msgspec.Struct, frozen=True):
    """A job as its events tell it."""

    job: int
    step: str
    block: str
    kind: str
    status: str
    attempt: int
    visit: int
    worker: str
    effect: str
    input: Any
    result: Any
    error: ErrorView | None
    scheduled_at: int
    started_at: int | None
    ended_at: int | None
    entity: str = ""
    #: of VERIFY and ROLLBACK: the job it is about; 0 for any other
    about: int = 0


class LateView(msgspec.Struct, frozen=True):
    """An answer that came when nobody waited for it any more: evidence."""

    #: the job itself, or one that looked at it or undid it
    job: int
    attempt: int
    at: int
    is_success: bool
    value: Any
    error: ErrorView | None


class LedgerLine(msgspec.Struct, frozen=True):
    """What a job did outside, or may have done."""

    job: int
    step: str
    block: str
    #: empty for none
    entity: str
    attempt: int
    #: NONE, DONE, UNKNOWN or UNDONE
    effect: str
    #: NOT_TRIED, UNDONE, ROLLBACK_FAILED, NOT_COMPENSABLE or SKIPPED_BELOW_FAILURE
    undo: str
    #: why what it did is still there
    reason: str
    #: what it did is still there, or may be
    is_left: bool
    #: the job failed, whatever it left
    is_failed: bool
    #: somebody looked what came of it
    is_verified: bool
    late: list[LateView] = []


class LedgerView(msgspec.Struct):
    id: str
    status: str
    #: in a sentence; empty where it has not ended, or completed and left no doubt
    verdict: str
    #: jobs that somebody has to answer for
    doubts: list[int]
    #: in order of their start
    lines: list[LedgerLine]
    acked_by: str = ""
    ack_note: str = ""


def error_view(failure: Failure | None, step: str = "") -> ErrorView | None:
    if failure is None:
        return None
    return ErrorView(
        failure.kind, failure.message, failure.code, step, failure.type, failure.traceback, failure.details
    )


class LogView(msgspec.Struct, frozen=True):
    number: int
    at: int
    level: str
    message: str
    step: str = ""
    job: int = 0


class WorkflowView(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    version: int
    #: hex digest of the definition
    digest: str
    published_at: int
    published_by: str
    definition: Any = None
    #: False when the newest version already was this definition
    is_new: bool = True
    description: str = ""
    #: template of the short form, where it is used as a step
    shorthand: str = ""
    #: what it declares to take, by name; only together with the definition
    parameters: dict[str, Any] | None = None


class BlockView(msgspec.Struct, frozen=True):
    name: str
    version: str
    description: str
    pure: bool
    idempotent: bool
    #: seconds; None = no own limit
    timeout: float | None
    isolation: str
    parameters: dict[str, Any]
    result: dict[str, Any]
    #: names of workers online that offer it
    workers: list[str]
    #: type of the entities it runs on by default
    run_on: str = ""
    #: those of `acquire`, `verify` and `rollback` it has
    hooks: list[str] = []
    #: its rollback is right even where nobody knows whether there is anything to undo
    accepts_unknown: bool = False
    #: point of no return: never undone
    is_pivot: bool = False


def hooks_of(offer: BlockOffer | JobSpec) -> list[str]:
    has = {"acquire": offer.has_acquire, "verify": offer.has_verify, "rollback": offer.has_rollback}
    return [name for name, there in has.items() if there]


class WorkerView(msgspec.Struct, frozen=True):
    name: str
    incarnation: str
    #: online, draining, unreachable, offline
    state: str
    host: str
    pid: int
    slots: int
    busy: int
    queues: list[str]
    #: `name:version` of each
    blocks: list[str]
    registered_at: int
    seen_at: int
    is_embedded: bool


class QueueView(msgspec.Struct, frozen=True):
    queue: str
    block: str
    waiting: int
    claimed: int
    #: seconds the oldest has waited
    oldest: float
    workers: list[str]


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason why an execution is where it is, and what would move it."""

    kind: str
    text: str
    step: str = ""
    #: a command that would help
    command: str = ""


class WhyView(msgspec.Struct, frozen=True):
    id: str
    status: str
    summary: str
    reasons: list[Reason]


class ApprovalView(msgspec.Struct, frozen=True):
    """An `approve` step that waits for somebody's word, or a gate that does."""

    execution: str
    workflow: str
    #: its id, or its number; of a gate the number among the gates
    step: str
    #: what it asks
    message: str
    #: when it began to wait
    since: int
    #: nothing of the execution has begun
    is_gate: bool = False


class HealthView(msgspec.Struct, frozen=True):
    status: str
    version: str
    store: str
    engine: str
    pending: int
    workers: int


class GroupView(msgspec.Struct, frozen=True):
    """Ended executions that are counted together, and how long they are kept."""

    entity: str
    #: the hash its executions give, or the name of their workflow
    group: str
    #: as the one that ended last was kept; `system` where it says nothing
    rule: str
    #: the same without words
    meaning: str
    #: how many there are
    count: int
    #: how many of them may go now
    due: int
    #: when the next one may go, if only time has to pass
    next_at: int | None


class RetentionView(msgspec.Struct, frozen=True):
    #: what `system` stands for
    default: str
    #: whether histories are archived before they are purged
    is_archived: bool
    groups: list[GroupView]
    #: there are more groups than these
    is_more: bool = False


class PurgeView(msgspec.Struct, frozen=True):
    #: of executions that were purged, or would be
    ids: list[str]
    is_dry_run: bool
    #: there may be more to purge: ask again
    is_more: bool = False


def log_view(number: int, at: int, line: LogLine) -> LogView:
    return LogView(number, at, line.level.name, line.message, line.step, line.job)


def seconds(us: int) -> str:
    """A duration for people: 0.3 s, 12 s, 4 m, 2 h 5 m."""
    s = us / 1_000_000
    if s < 10:
        return f"{s:.1f} s"
    if s < 120:
        return f"{s:.0f} s"
    minutes = int(s // 60)
    if minutes < 120:
        return f"{minutes} m"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} m" if rest else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h"
