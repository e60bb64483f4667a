"""The values everything else is made of: statuses, jobs' specifications, failures, references.

Events, requests, state and the API all speak in these. Nothing here knows a clock, a store or a wire.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import Any

import msgspec

#: Values longer than this (encoded) live in a blob and travel by reference.
INLINE_LIMIT = 1024
#: No single value may be longer than this; see error HF0701.
PAYLOAD_LIMIT = 2 * 1024 * 1024
#: The number each execution carries so that old histories fold for ever.
FORMAT = 1
#: Where an execution without an entity of its own keeps its sensors and locks; every tenant has it.
DEFAULT_ENTITY = "default"


class Status(IntEnum):
    """Lifecycle label of an execution; `lifecycle.EDGES` says how they follow each other."""

    NEW = 1
    VALID = 2
    BLOCKED_WAITING = 3
    READY = 4
    RESOURCE_DISCOVERY = 5
    RESOURCES_DISCOVERED = 6
    SCHEDULED = 7
    LOCKING = 8
    LOCKED = 9
    RUNNING = 10
    ERROR = 11
    ROLLBACK = 12
    CANCELLING = 13
    FORCE_CANCELLING = 14
    KILLING = 15
    COMPLETED = 20
    FAILED_SAFE = 21
    FAILED_UNSAFE = 22
    CANCELLED = 23
    COMPLETED_ACK = 24
    FAILED_SAFE_ACK = 25
    FAILED_UNSAFE_ACK = 26
    CANCELLED_ACK = 27

    @property
    def is_ended(self) -> bool:
        return self >= Status.COMPLETED


class JobStatus(IntEnum):
    PENDING = 1
    SENDING = 2
    SENT = 3
    STARTED = 4
    SUCCEEDED = 5
    FAILED = 6
    RESCHEDULED = 7
    CANCELLED = 8

    @property
    def is_final(self) -> bool:
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


class JobKind(IntEnum):
    EXECUTE = 1
    ACQUIRE = 2
    VERIFY = 3
    ROLLBACK = 4


class Effect(IntEnum):
    """What an attempt did to the world outside."""

    NONE = 0
    DONE = 1
    UNKNOWN = 2
    UNDONE = 3


class Undo(IntEnum):
    """What rollback made of an entry of the ledger."""

    NOT_TRIED = 0
    UNDONE = 1
    ROLLBACK_FAILED = 2
    NOT_COMPENSABLE = 3
    SKIPPED_BELOW_FAILURE = 4


class Mode(IntEnum):
    """How an execution holds an entity. The first two are intentions: something inside of it is held so."""

    IS = 1
    IX = 2
    S = 3
    X = 4


class Wait(IntEnum):
    """What a lane is waiting for; NOTHING means it has ended or is about to move."""

    NOTHING = 0
    JOB = 1
    TIMER = 2
    LANES = 3
    SIGNAL = 4
    LOCK = 5
    TURN = 6  #: out of fuel; goes on in the next transition
    SENSOR = 7
    STOPPED = 8  #: it failed, or waits for what is in flight before it does


class Level(IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class BlobRef:
    """Stands in an event or a state for a value kept in the blobs of the execution."""

    __slots__ = ("digest", "size")

    def __init__(self, digest: bytes, size: int) -> None:
        self.digest = digest
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlobRef) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"BlobRef({self.digest.hex()[:12]}, {self.size} bytes)"


def blob_digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


class Actor(msgspec.Struct, frozen=True, array_like=True):
    """Who asked. The tenant comes from the token, never from a body."""

    name: str = "system"
    tenant: str = "default"


class Retry(msgspec.Struct, frozen=True, array_like=True):
    """How often and how patiently attempts of one job follow each other. Times in µs."""

    #: attempts in all, the first included; 1 means no retry
    attempts: int = 1
    delay: int = 1_000_000
    factor: float = 2.0
    max_delay: int = 60_000_000
    #: share of the delay that may be added, 0..1; derived from ids, not from chance
    jitter: float = 0.1


class JobSpec(msgspec.Struct, frozen=True, array_like=True):
    """Everything about a job that its visits have in common, pinned when the execution starts."""

    block: str
    version: str = ""
    queue: str = "default"
    pure: bool = False
    idempotent: bool = False
    #: µs an attempt may take from its claim; 0 leaves it to the engine's stuck limit
    timeout: int = 0
    retry: Retry = Retry()
    kind: JobKind = JobKind.EXECUTE
    #: type of the entities it runs on, one job for each; empty or `global`: once
    run_on: str = ""
    has_acquire: bool = False
    has_verify: bool = False
    has_rollback: bool = False
    #: its rollback is right even where nobody knows whether there is anything to undo
    accepts_unknown: bool = False
    #: point of no return: never undone
    is_pivot: bool = False

    @property
    def may_repeat(self) -> bool:
        """A second attempt within one visit breaks no promise."""
        return self.pure or self.idempotent


class BlockOffer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says about a block when it registers; also the registry's row."""

    name: str
    version: str = "1.0.0"
    description: str = ""
    pure: bool = False
    idempotent: bool = False
    timeout: int = 0
    retry: Retry = Retry()
    isolation: str = "async"
    #: JSON Schema of the parameters (an object) and of the result
    parameters: dict[str, Any] = {}
    result: dict[str, Any] = {}
    #: of its source; the same name and version with another one is other code
    digest: str = ""
    #: type of the entities it runs on by default; empty: whatever the step says
    run_on: str = ""
    #: hooks it has
    has_acquire: bool = False
    has_verify: bool = False
    has_rollback: bool = False
    accepts_unknown: bool = False
    is_pivot: bool = False


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """What a workflow says about its entities, its locks and the way back. Pinned when the execution starts."""

    #: it discovers and locks entities before its first step
    works_on_entities: bool = False
    #: `auto`, `manual` (stays in ERROR until somebody decides) or `none`
    rollback: str = "auto"
    #: what becomes of entities left in doubt: `release` (suspect) or `quarantine` (nobody may lock them) until ACK
    on_unsafe: str = "release"
    #: its entity locks are shared; every block is pure then
    is_shared: bool = False
    #: µs to wait for the locks; 0 for ever
    lock_timeout: int = 0
    #: `wait` or `fail`
    on_conflict: str = "wait"
    #: refuse entities that are suspect
    requires_clean: bool = False
    #: no entity at all is an error
    requires_entities: bool = False
    #: in the lock queue; the higher goes first
    priority: int = 0
    #: µs that jobs have to stop once the execution is cancelled; whatever they say after that comes too late
    grace: int = 30_000_000


class Gate(msgspec.Struct, frozen=True, array_like=True):
    """Something that has to be so before an execution begins. All gates are met together, or it waits."""

    #: `not-before`, `window`, `approval` or `after`
    kind: str
    #: what is asked, when the window is, or which execution must have ended
    what: str = ""
    #: µs; of `not-before`, and the next opening of a `window`
    due: int = 0
    #: µs; past it the execution fails safe; 0 for never
    deadline: int = 0
    is_met: bool = False
    #: who met it, with which words
    by: str = ""
    note: str = ""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Why something did not work, as a value inside an event. It is data, not an exception."""

    #: short kebab-case kind: `block-error`, `timeout`, `outcome-unknown`, `invalid`, `fail`, …
    kind: str
    message: str
    code: str = ""
    #: Python type or other name given by the block
    type: str = ""
    traceback: str = ""
    details: Any = None
    #: label of the step it came from
    step: str = ""
    #: the failure that was being handled when this one arose
    cause: Failure | None = None
    #: what failed had no effect, or may have it twice: the step can be entered again
    is_repeatable: bool = False


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with a file or a request: positioned, coded, with a way out."""

    code: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    #: how many columns the caret underlines
    width: int = 1
    #: the offending source line
    source: str = ""
    #: what stands right of the caret
    label: str = ""
    help: str = ""
    #: where in a JSON document, e.g. `$.steps[2].input`
    path: str = ""
    warning: bool = False


class LogLine(msgspec.Struct, frozen=True, array_like=True):
    message: str
    level: Level = Level.INFO
    #: label of the step that spoke, empty for the engine
    step: str = ""
    job: int = 0
