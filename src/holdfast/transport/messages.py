"""What workers and engine say to each other, the same in-process, over HTTP and over a broker.

One verb, *exchange*: a worker sends finished outcomes and beats; it gets jobs and cancel notices. The
engine counts what a worker holds against its slots, so capacity is not said again each time. Exchanges
are numbered from 1 within an incarnation; two may be in flight (one that pushes outcomes and returns
when they are committed, one that waits for jobs). An answer lost on the way is asked for again under
the same number and sent again, never decided again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.inventory import EntityChange
from holdfast.core.model import BlockOffer, Effect, Failure, LogLine


class Holding(msgspec.Struct, frozen=True, array_like=True):
    """An attempt the worker has in hand, named when it (re)connects."""

    execution: str
    job: int
    attempt: int


class Hello(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker introduces itself; the same incarnation may do so again after a reconnect."""

    name: str
    incarnation: str
    blocks: list[BlockOffer] = []
    slots: int = 16
    queues: list[str] = msgspec.field(default_factory=lambda: ["default"])
    host: str = ""
    pid: int = 0
    holding: list[Holding] = []
    #: how often this incarnation has said hello, this time included, to whichever engine and answered or not
    greeting: int = 1


class Welcome(msgspec.Struct, frozen=True):
    """Leases travel as durations (µs): clocks differ."""

    lease: int
    beat: int
    #: what whoever started the worker should know
    warnings: list[str] = []


class Forward(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job that a VERIFY or ROLLBACK job is about; its input is the parcel's own."""

    job: int
    attempt: int
    #: DONE or UNKNOWN
    effect: str
    result: Any = None


class Parcel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt at a job, handed to a worker."""

    execution: str
    job: int
    attempt: int
    token: str
    block: str
    input: Any = None
    #: µs this attempt may take; 0 = no own limit
    timeout: int = 0
    #: the same for every attempt of the visit; offered to blocks and sent by `http`
    idempotency_key: str = ""
    workflow: str = ""
    step: str = ""
    entity: str = ""
    #: what the previous attempt last said in a heartbeat
    details: Any = None
    #: exact version of the block
    version: str = ""
    #: EXECUTE, ACQUIRE, VERIFY or ROLLBACK
    kind: str = "EXECUTE"
    #: under which the entity is held
    fence: int = 0
    #: of VERIFY and ROLLBACK: what became of the job they are about
    forward: Forward | None = None
    #: the entity as the inventory has it: type, name, parent, groups, labels, facts
    context: dict[str, Any] = {}


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an attempt. Success has no failure."""

    execution: str
    job: int
    attempt: int
    token: str = ""
    value: Any = None
    failure: Failure | None = None
    #: what the block says it did; None lets the engine infer it from purity
    effect: Effect | None = None
    #: µs after which to try again although nothing failed (poll again later)
    retry_after: int | None = None
    #: the failure is for good, whatever the retry policy says
    is_permanent: bool = False
    #: stopped because a cancel notice asked for it
    is_cancelled: bool = False
    logs: list[LogLine] = []
    #: wishes for the inventory
    changes: list[EntityChange] = []


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sign of life of one attempt, with what it wants remembered."""

    execution: str
    job: int
    attempt: int
    token: str = ""
    details: Any = None
    logs: list[LogLine] = []


class CancelNotice(msgspec.Struct, frozen=True, array_like=True):
    """Stop that attempt; what it says afterwards still counts unless its token is stale."""

    execution: str
    job: int
    attempt: int
    reason: str = "cancelled"


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    incarnation: str
    number: int
    outcomes: list[Outcome] = []
    beats: list[Beat] = []
    #: answers up to and including this number have all arrived; the engine may forget them
    seen: int = 0
    #: µs the engine may hold the answer back while there is nothing to say
    wait: int = 0
    #: no more jobs, please; the worker is going away
    drain: bool = False
    #: number of the last hello that was answered. An engine that knows another one has not heard what the
    #: worker holds since it was elsewhere: it asks for a new hello instead of answering
    greeting: int = 1


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    number: int
    jobs: list[Parcel] = []
    cancels: list[CancelNotice] = []
    #: outcomes that changed nothing, as (execution, job, attempt, code)
    refused: list[tuple[str, int, int, str]] = []
