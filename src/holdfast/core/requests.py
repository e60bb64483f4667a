"""What the outside asks of one execution; `decide` answers with events or refuses.

Requests from people and programs, from workers (through the engine), and from the agenda are the same
thing. The agenda stores its requests, so those classes are tagged and array-like.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from .inventory import EntityChange
from .model import Actor, Effect, Failure, Gate, LogLine


class _Request(msgspec.Struct, frozen=True, gc=False):
    pass


class StartExecution(_Request, frozen=True):
    #: the id the execution will have; made by whoever asks
    execution: str
    input: Any = None
    #: published name with optional `:version`; or
    workflow: str = ""
    #: digest of an inline definition that travels with the request
    definition: bytes = b""
    labels: dict[str, str] = {}
    actor: Actor = Actor()
    #: what it works upon; empty for the tenant's default entity
    entity: str = ""
    #: entities to run on, by id and by selector
    entities: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    #: in the lock queue; nothing: what the workflow says
    priority: int | None = None
    #: execution it does again for what failed there
    retry_of: str = ""
    #: exactly these entities, whatever the workflow and its blocks name by themselves
    is_exact: bool = False


class ClaimJob(_Request, frozen=True):
    """Hand the job to a worker; asked by dispatch only."""

    job: int
    worker: str
    incarnation: str


class CompleteJob(_Request, frozen=True):
    job: int
    attempt: int
    result: Any = None
    effect: Effect | None = None
    logs: tuple[LogLine, ...] = ()
    changes: tuple[EntityChange, ...] = ()


class FailJob(_Request, frozen=True):
    job: int
    attempt: int
    failure: Failure
    effect: Effect | None = None
    is_permanent: bool = False
    #: stopped on a cancel notice
    is_cancelled: bool = False
    #: µs to wait before another attempt although nothing failed
    retry_after: int | None = None
    #: what the attempt last said in a heartbeat
    details: Any = None
    logs: tuple[LogLine, ...] = ()


class LoseJob(_Request, frozen=True):
    """Nobody will answer for that attempt any more: its worker is gone or its time is over."""

    job: int
    attempt: int
    kind: str
    message: str
    #: the parcel never left the engine, so nothing can have happened
    undelivered: bool = False
    #: what the attempt last said in a heartbeat
    details: Any = None


class SendSignal(_Request, frozen=True):
    name: str
    value: Any = None
    key: str = ""
    actor: Actor = Actor()


class CancelExecution(_Request, frozen=True):
    reason: str = ""
    actor: Actor = Actor()


class ResumeExecution(_Request, frozen=True):
    """Carry on where it failed or was stopped."""

    reason: str = ""
    #: also where nobody knows whether something ran, or it may not run twice
    is_forced: bool = False
    actor: Actor = Actor()
    #: also where others have changed its entities since
    accepts_changes: bool = False


class ReplayExecution(_Request, frozen=True):
    #: a step's id or index, `start`, `last`, or `end` (which is to resume)
    start: str
    reason: str = ""
    #: also from a step that is no waypoint
    is_forced: bool = False
    actor: Actor = Actor()
    #: of `end`: also where others have changed its entities since
    accepts_changes: bool = False


class AckExecution(_Request, frozen=True):
    """Somebody has seen how it ended."""

    note: str = ""
    actor: Actor = Actor()


class RollBack(_Request, frozen=True):
    """Of an execution that waits in ERROR for a decision: undo what it did."""

    actor: Actor = Actor()
    reason: str = ""


class GiveUp(_Request, frozen=True):
    """Of an execution that waits in ERROR for a decision: end it as it is."""

    actor: Actor = Actor()
    reason: str = ""


class MeetGate(_Request, frozen=True):
    """A person's word on an `approval` gate."""

    is_approved: bool = True
    note: str = ""
    #: which one, from 0; -1 for the first that waits for a word
    gate: int = -1
    actor: Actor = Actor()


class FreeEntity(_Request, frozen=True):
    """Take an entity from this execution, which holds it; asked by people."""

    entity: str
    #: under which it is held, so that nobody else loses it by mistake
    fence: int
    by: str = ""


class FreeLock(_Request, frozen=True):
    """Take a lock from this execution, which holds it; asked by people."""

    entity: str
    name: str
    #: of the claim that holds it, so that nobody else loses it by mistake
    seq: int
    by: str = ""


# --- on the agenda ---------------------------------------------------------------------------------
class FireTimer(msgspec.Struct, frozen=True, array_like=True, tag=1):
    timer: int


class ReleaseJob(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The back-off of a rescheduled job is over."""

    job: int
    attempt: int


class TakeTurn(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Go on where the fuel ran out."""

    turn: int


class DeliverSignal(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A signal that another execution sent."""

    name: str
    value: Any
    key: str
    sender: str
    #: of the sender
    tenant: str = ""


class CheckGates(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """It may be time to begin, or too late for it."""


class TryLocks(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """An entity that the execution waits for may be free."""


class TimeOutLocks(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """It has waited long enough for its entities."""

    ticket: int


class AwaitEnd(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Another execution wants to know when this one has ended."""

    execution: str
    tenant: str = ""


class HearEnd(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """An execution this one waits for has ended."""

    execution: str
    status: int = 0


class EndGrace(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """It was cancelled, and what was told to stop then has had its time."""


class WakeLock(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The lane that waited for that lock has it."""

    entity: str
    name: str
    lane: int
    seq: int


class WakeSensor(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A sensor the lane waits for has changed."""

    lane: int


class BreakLock(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The lane must stop waiting for that lock: it would wait for ever."""

    entity: str
    name: str
    lane: int
    seq: int
    why: str


class LoseLock(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The lock was taken away from this execution."""

    entity: str
    name: str
    seq: int
    #: the fence after it
    fence: int
    by: str = ""


Due: TypeAlias = (
    FireTimer
    | ReleaseJob
    | TakeTurn
    | DeliverSignal
    | CheckGates
    | TryLocks
    | TimeOutLocks
    | AwaitEnd
    | HearEnd
    | EndGrace
    | WakeLock
    | WakeSensor
    | BreakLock
    | LoseLock
)
Request: TypeAlias = (
    StartExecution
    | ClaimJob
    | CompleteJob
    | FailJob
    | LoseJob
    | SendSignal
    | CancelExecution
    | ResumeExecution
    | ReplayExecution
    | FireTimer
    | ReleaseJob
    | TakeTurn
    | DeliverSignal
    | CheckGates
    | TryLocks
    | TimeOutLocks
    | AwaitEnd
    | HearEnd
    | EndGrace
    | AckExecution
    | RollBack
    | GiveUp
    | MeetGate
    | FreeEntity
    | FreeLock
    | WakeLock
    | WakeSensor
    | BreakLock
    | LoseLock
)
