"""A workflow as the core sees it: something that, told what happened, says what it wants next.

The YAML interpreter and the code driver are both Programs. A Program decides nothing about statuses,
attempts or effects; it returns commands, and the core turns each into events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from .inventory import EntityRow
from .model import BlockOffer, Failure, Gate, JobSpec, LogLine, Policy, Problem

if TYPE_CHECKING:
    from .state import State
from .reads import Reads


# --- what happened ---------------------------------------------------------------------------------
class Begun(msgspec.Struct, frozen=True, gc=False):
    """First step to be entered."""


class JobEnded(msgspec.Struct, frozen=True, gc=False):
    """A job of the lane has a result, or failed for good (`failure` is set)."""

    lane: int
    job: int
    step: int
    result: Any = None
    failure: Failure | None = None
    #: of a failed one: nothing can have happened, or it may happen twice
    is_repeatable: bool = False


class TimerEnded(msgspec.Struct, frozen=True, gc=False):
    lane: int
    timer: int
    #: what it was for, see `Lane.timers`
    depth: int = -1


class SignalArrived(msgspec.Struct, frozen=True, gc=False):
    name: str
    value: Any = None


class TurnGranted(msgspec.Struct, frozen=True, gc=False):
    """More fuel: lanes that wait for a turn go on."""


class StopAsked(msgspec.Struct, frozen=True, gc=False):
    """The execution is being cancelled: what is in flight is stopped, `finally` runs, then `Stopped`."""

    reason: str = ""


class CarryOn(msgspec.Struct, frozen=True, gc=False):
    """Resumed after an end: every lane goes on where it stands."""

    is_forced: bool = False


class GoAgain(msgspec.Struct, frozen=True, gc=False):
    """Replayed: the root lane is where it was at the waypoint."""


class LockGranted(msgspec.Struct, frozen=True, gc=False):
    """The lock a lane waited for is its own now."""

    lane: int
    entity: str
    name: str


class LockBroken(msgspec.Struct, frozen=True, gc=False):
    """The lane no longer waits for the lock: it would have waited for ever. That is an error of kind `deadlock`."""

    lane: int
    entity: str
    name: str
    why: str


class SensorMoved(msgspec.Struct, frozen=True, gc=False):
    """Something the lane waits for has changed: it looks again. It goes on waiting until it says `LeaveSensor`."""

    lane: int


Cause: TypeAlias = (
    Begun
    | JobEnded
    | TimerEnded
    | SignalArrived
    | TurnGranted
    | StopAsked
    | CarryOn
    | GoAgain
    | LockGranted
    | LockBroken
    | SensorMoved
)


# --- what the workflow wants -----------------------------------------------------------------------
class Advance(msgspec.Struct, frozen=True, gc=False):
    """Change one lane by `ops` (see `core.lanes`); new lanes are made by the op SPAWN of their parent."""

    lane: int
    ops: tuple[tuple[Any, ...], ...]
    logs: tuple[LogLine, ...] = ()


class ScheduleJob(msgspec.Struct, frozen=True, gc=False):
    lane: int
    step: int
    #: index into the specs that `pin` returned
    spec: int
    input: Any = None
    visit: int = 1
    #: entity it is about; one the execution has locked
    entity: str = ""


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    lane: int
    #: absolute, µs UTC
    due: int
    #: what it is for, see `Lane.timers`
    depth: int = -1


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    timer: int


class StopJob(msgspec.Struct, frozen=True, gc=False):
    """Nobody waits for its result any more: cancel it, or tell its worker and report its end all the same."""

    job: int
    reason: str = ""


class KeepFor(msgspec.Struct, frozen=True, gc=False):
    """Retention, with `context` and `parent` already replaced by what they stand for."""

    rule: str
    hash: str = ""


class Tell(msgspec.Struct, frozen=True, gc=False):
    """A signal to another execution."""

    lane: int
    target: str
    name: str
    value: Any
    key: str


class TakeAnotherTurn(msgspec.Struct, frozen=True, gc=False):
    """Out of fuel."""


class Complete(msgspec.Struct, frozen=True, gc=False):
    output: Any = None


class Fail(msgspec.Struct, frozen=True, gc=False):
    failure: Failure
    step: str = ""


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """Everything that had to be done before the end of a cancelled execution is done."""


class TakeLock(msgspec.Struct, frozen=True, gc=False):
    """Seq and fence as `locks.ask` gave them; fence 0: the lane waits in the queue."""

    lane: int
    entity: str
    name: str
    seq: int
    fence: int
    #: the lane and all lanes it lies within, itself first
    path: tuple[int, ...]
    is_by_sensor: bool = False


class ReleaseLock(msgspec.Struct, frozen=True, gc=False):
    """Heir and fence as `locks.release` gave them. Also to leave the queue; nobody inherits then."""

    lane: int
    entity: str
    name: str
    seq: int
    heir: tuple[str, int, int] | None = None
    fence: int = 0


class ForceLock(msgspec.Struct, frozen=True, gc=False):
    """Take the lock from whoever has it; heir and fence as `locks.force` gave them."""

    entity: str
    name: str
    owner: str
    owner_seq: int
    heir: tuple[str, int, int] | None
    fence: int


class SetSensor(msgspec.Struct, frozen=True, gc=False):
    lane: int
    entity: str
    kind: str
    name: str
    value: Any
    #: 1 for a new one, else one more than it was
    version: int
    #: the core sees to it; whatever stands here is not looked at
    woken: tuple[Any, ...] = ()


class ClearSensor(msgspec.Struct, frozen=True, gc=False):
    lane: int
    entity: str
    kind: str
    name: str
    version: int = 0
    woken: tuple[Any, ...] = ()


class AwaitSensor(msgspec.Struct, frozen=True, gc=False):
    """Wake the lane whenever that sensor changes. A lane may wait for several."""

    lane: int
    entity: str
    kind: str
    name: str


class LeaveSensor(msgspec.Struct, frozen=True, gc=False):
    """The lane waits for no sensor any more."""

    lane: int


Command: TypeAlias = (
    Advance
    | ScheduleJob
    | SetTimer
    | CancelTimer
    | StopJob
    | KeepFor
    | Tell
    | TakeAnotherTurn
    | Complete
    | Fail
    | Stopped
    | TakeLock
    | ReleaseLock
    | ForceLock
    | SetSensor
    | ClearSensor
    | AwaitSensor
    | LeaveSensor
)


# --- what it works upon --------------------------------------------------------------------------------
class Wanted(msgspec.Struct, frozen=True):
    """Entities a workflow wants to work upon."""

    #: `ids`; `select`; or, of everything wanted before it, `children` (parts, of a type), `parent`, `members` (of the
    #: groups among them)
    kind: str
    ids: tuple[str, ...] = ()
    #: of `select`: equalities, (key, value), that an index answers: `type`, `parent`, `group`, `label.NAME`,
    #: `fact.NAME`; or `any.NAME` for a label or else a fact of that name
    terms: tuple[tuple[str, str], ...] = ()
    #: of `select`: what remains to be asked of each; nothing where the terms say it all
    test: Callable[[EntityRow], bool] | None = None
    #: as it was written, for messages
    text: str = ""
    #: only entities of that type; empty for all
    type: str = ""
    #: wanted in any case; otherwise only where the start names no entities
    is_added: bool = False


class Acquire(msgspec.Struct, frozen=True):
    """A step whose block is asked which entities it needs."""

    step: int
    spec: int
    input: Any = None


# --- what it would do ----------------------------------------------------------------------------------
class Outlined(msgspec.Struct, frozen=True):
    """A step with a block, as far as it is known before anything runs."""

    step: int
    spec: int
    #: of the entities it is done for; empty for once
    type: str = ""
    #: why it may not be done at all; empty if it will, unless something fails
    why: str = ""
    #: how often; 0 for as often as a loop goes round
    times: int = 1
    #: what a failure leads to instead of the end: `on-error`, `continue-on-error`; empty for the end
    handled: str = ""
    #: when it fails, everything before that place in the outline may have been done
    until: int = 0
    #: except these stretches: they are done instead of it
    excluded: tuple[tuple[int, int], ...] = ()


class Outline(msgspec.Struct, frozen=True):
    steps: tuple[Outlined, ...] = ()
    #: of the entities that any step is done for
    types: frozenset[str] = frozenset()
    #: sizes of the batches it goes through, as they were written; empty for all at once
    batches: tuple[str, ...] = ()
    #: failed entities that are put up with, as it was written; empty for none
    tolerance: str = ""
    #: there are more steps than these
    is_more: bool = False


class Program(Protocol):
    """One definition, compiled. Immutable and shared between executions."""

    @property
    def name(self) -> str: ...

    @property
    def blocks(self) -> Sequence[str]:
        """All blocks its steps may use, as they were written: `name`, or `name:version` with a whole or partial
        version."""
        ...

    def check_input(self, input: Any) -> tuple[Any, list[Problem]]:
        """The input with defaults filled in and types coerced, and everything wrong with it."""
        ...

    def pin(self, blocks: Mapping[str, BlockOffer]) -> tuple[tuple[JobSpec, ...], list[Problem]]:
        """Job specifications from steps and offers, and what does not fit (unknown input keys, …).
        `blocks` has, for everything in `self.blocks`, the version that was chosen for it; the core has already
        reported those that nobody registered."""
        ...

    @property
    def cleans_up(self) -> bool:
        """Whether it wants to be told when it is cancelled, because it has steps for that."""
        ...

    @property
    def retention(self) -> tuple[str, str]:
        """How long its executions are kept, and the hash they are counted under; empty: the defaults."""
        ...

    @property
    def policy(self) -> Policy: ...

    def gates(self, input: Any, now: int) -> tuple[Gate, ...]:
        """What the workflow wants to be so before it begins."""
        ...

    def wanted(self, input: Any) -> tuple[Wanted, ...]:
        """The entities it names by itself, in the order in which they are looked for."""
        ...

    def selector(self, text: str) -> Wanted:
        """A selector somebody gave with the start; refuses one it cannot read."""
        ...

    def acquires(self, input: Any, specs: Sequence[JobSpec]) -> tuple[Acquire, ...]:
        """Steps whose blocks have to be asked which entities they need."""
        ...

    def outline(self, specs: Sequence[JobSpec]) -> Outline:
        """The blocks it may use, in the order in which it comes to them."""
        ...

    def batches(self, total: int) -> list[int]:
        """Sizes of the batches in which it goes through so many entities; empty for all at once."""
        ...

    def label(self, step: int) -> str:
        """What people call that step."""
        ...

    def used_at(self, block: str) -> str:
        """Path in the definition of the first step that uses it, of those in `blocks`."""
        ...

    def find_step(self, name: str) -> int | None:
        """The index of a step by its id, or by its position in the workflow (`0`, `1`, …)."""
        ...

    def place(self, step: int) -> tuple[int, int, int] | None:
        """Scope, body and position of a step."""
        ...

    def step_at(self, scope: int, body: int, position: int) -> int | None:
        """The step at a place; nothing at the end of a body."""
        ...

    def limit_of(self, step: int) -> str | None:
        """The limit of a step that retries, as it was written; nothing for any other step."""
        ...

    @property
    def is_replayable(self) -> bool:
        """Whether people may replay it without force."""
        ...

    def may_resume(self, state: State) -> str:
        """Why it cannot carry on where it stands; empty if it can."""
        ...

    def advance(self, state: State, cause: Cause, now: int, reads: Reads) -> list[Command]:
        """Go as far as possible. Reads `state`, never changes it; same arguments, same answer."""
        ...
