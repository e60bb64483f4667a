"""Coming to an end: what is in flight is drained, what is in doubt is looked at, then the verdict.

The foundation of a transition: the state it begins at, and the events it has made so far. What those events will have
changed is worked out here where it matters; the state itself is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from . import events as e
from . import ledger as ledgers
from . import requests as r
from . import undoing
from .errors import NoteMissing, NothingToUndo, Refused, WrongStatus
from .ledger import Entry
from .lifecycle import ACKED, MOVING, may
from .model import Actor, Effect, Failure, JobKind, JobSpec, JobStatus, Status, Undo
from .reads import FlaggedKey, Reads
from .state import HOOKS, Job, State, entry_of, in_doubt, spec_of
from .undoing import Standing

#: with which steps for a cancel are over anyway
_AFTER_CLEANUP = (e.ExecutionCancelled, e.RollbackPlanned)


class Ending:
    """One request's events in the making."""

    __slots__ = ("events", "is_broken", "is_turn_open", "next_job", "next_timer", "now", "reads", "state")

    def __init__(self, state: State, now: int, reads: Reads) -> None:
        self.state = state
        self.now = now
        self.reads = reads
        self.events: list[e.Event] = []
        self.next_job = state.next_job
        self.next_timer = state.next_timer
        self.is_turn_open = state.is_turn_open
        #: a command could not be obeyed
        self.is_broken = False

    @property
    def _is_moving(self) -> bool:
        return self.state.status in MOVING or self.state.is_cleaning

    @property
    def _is_cancelling(self) -> bool:
        """Whatever its last steps come to, it ends as cancelled."""
        return self.state.is_cleaning or any(type(event) is e.CancelRequested for event in self.events)

    # --- coming to an end ----------------------------------------------------------------------------
    def _drop_waiting(self) -> None:
        """Cancel what has not started: jobs in queues or in back-off, and timers."""
        scheduled: dict[int, int] = {}
        over = set()
        timers = dict.fromkeys(self.state.timers)
        for event in self.events:
            match event:
                case e.JobScheduled(job=id):
                    scheduled[id] = 0
                case e.JobSucceeded(job=id) | e.JobFailed(job=id) | e.JobCancelled(job=id):
                    over.add(id)
                case e.TimerSet(timer=id):
                    timers[id] = None
                case e.TimerFired(timer=id) | e.TimerCancelled(timer=id):
                    timers.pop(id, None)
                case _:
                    pass
        waiting = {
            id: job.attempt
            for id, job in self.state.jobs.items()
            if job.status in (JobStatus.SENT, JobStatus.PENDING, JobStatus.RESCHEDULED)
        }
        for id, attempt in (waiting | scheduled).items():
            if id not in over:
                self.events.append(e.JobCancelled(id, attempt))
        self.events += [e.TimerCancelled(timer) for timer in timers]

    def _drop_looking(self) -> None:
        """Nobody wants to know any more what came of jobs that the workflow itself gave up."""
        if self.state.hooks:
            over = {event.job for event in self.events if isinstance(event, e.JobSucceeded | e.JobFailed)}
            self.events += [
                e.JobCancelled(id, job.attempt)
                for id, job in self.state.jobs.items()
                if job.kind is JobKind.VERIFY and job.status is JobStatus.STARTED and id not in over
            ]

    def _settle(self) -> None:
        """Once nothing is in flight: look at what is in doubt, go back, or say the verdict."""
        status, in_flight = self._afterwards()
        if in_flight or status not in (Status.ERROR, Status.CANCELLING):
            return
        ledger = self._ledger()
        if self.state.subjects and not self.state.fence:
            # Resumed, and stopped before it had its entities again: nothing is touched that is not held.
            self._end(ledgers.residue(ledger), status is Status.CANCELLING)
            return
        doubtful = undoing.doubtful(ledger, self.state.specs, self.state.lost)
        if doubtful:
            for job in doubtful:
                self._schedule(JobKind.VERIFY, ledger[job])
            return
        left = ledgers.residue(ledger)
        mode = self.state.policy.rollback
        if left and mode == "manual" and status is Status.ERROR:
            return  # somebody has to say `rollback` or `fail`
        if not (left and mode == "auto" and self._go_back(ledger)):
            self._end(left, status is Status.CANCELLING)

    def _stopped(self) -> None:
        """It is being cancelled, and its own steps for that are over."""
        self._drop_waiting()
        so_far = len(self.events)
        self._settle()
        if not any(isinstance(event, _AFTER_CLEANUP) for event in self.events[so_far:]):
            # Who answers from now on answers to nobody but the verdict. Without it, the last of them would be told to a
            # workflow that is over, and nobody would ever say the verdict.
            self.events.insert(so_far, e.CleanupEnded())

    def _afterwards(self) -> tuple[Status, int]:
        """The status after the events of this decision, and how many jobs may still say something."""
        state = self.state
        status, running, hooks = state.status, state.running, state.hooks
        for event in self.events:
            match event:
                case e.JobSucceeded() | e.JobFailed() | e.JobCancelled():
                    job = state.jobs.get(event.job)
                    if job is not None:
                        running -= job.status is JobStatus.STARTED
                        hooks -= job.kind in HOOKS
                case e.JobScheduled(kind=kind) if kind in HOOKS:
                    hooks += 1
                case e.ErrorRaised():
                    status = Status.ERROR
                case e.CancelRequested():
                    status = Status.CANCELLING
                case _:
                    pass
        return status, running + hooks

    def _ledger(self) -> dict[int, Entry]:
        """As it is after the events of this decision. The entries are the caller's own."""
        ledger = {job: copy(entry) for job, entry in self.state.ledger.items()}
        for event in self.events:
            match event:
                case e.JobSucceeded() | e.JobFailed() | e.JobCancelled():
                    job = self.state.jobs.get(event.job)
                    is_forward = job is not None and job.kind is JobKind.EXECUTE
                    if job is not None and is_forward and (event.effect is not Effect.NONE or job.id in ledger):
                        spec = self._spec(job)
                        ledgers.record(ledger, entry_of(job, event.attempt, event.effect, spec), spec)
                case e.EffectVerified(job=id, effect=effect) if id in ledger:
                    ledger[id].is_verified = True
                    ledgers.verify(ledger, ledger[id], effect)
                case _:
                    pass
        return ledger

    def _schedule(self, kind: JobKind, entry: Entry) -> None:
        self.events.append(undoing.hook(self.next_job, kind, entry))
        self.next_job += 1

    def _end(self, left: tuple[int, ...], is_cancelled: bool, actor: Actor | None = None, reason: str = "") -> None:
        if is_cancelled:
            self.events.append(e.ExecutionCancelled(left))
        else:
            verdict = Status.FAILED_UNSAFE if left else Status.FAILED_SAFE
            self.events.append(e.ExecutionFailed(verdict, left, actor=actor, reason=reason))

    # --- going back ----------------------------------------------------------------------------------
    def _go_back(self, ledger: dict[int, Entry], actor: Actor | None = None, reason: str = "") -> bool:
        """Begin to undo; not at all where nothing of it can be."""
        first = undoing.link(ledger, self.state.subjects)
        walk = self._walk(ledger, Standing())
        walk.begin(first)
        if not walk.is_moving:
            return False
        plan = tuple(undoing.planned(ledger, first))
        self.events.append(e.RollbackPlanned(plan, actor or Actor(), reason))
        self._take(walk)
        return True

    def _undone(self, job: Job, failure: Failure | None) -> None:
        """A ROLLBACK job is over: go on to what waited for it; after the last of them comes the verdict."""
        walk = self._walk(self.state.ledger, self.state.undoing)
        walk.settled(job.about, Undo.ROLLBACK_FAILED if failure is not None else Undo.UNDONE, failure)
        self._take(walk)
        if walk.is_over:
            undone = {x.job for x in self.events if isinstance(x, e.EntrySettled) and x.outcome is Undo.UNDONE}
            left = tuple(id for id in ledgers.residue(self.state.ledger) if id not in undone)
            self._end(left, self.state.is_cancelled)

    def _walk(self, ledger: Mapping[int, Entry], standing: Standing) -> undoing.Walk:
        return undoing.Walk(ledger, self.state.specs, standing, self.next_job, self.state.lost)

    def _take(self, walk: undoing.Walk) -> None:
        self.events += walk.events
        self.next_job = walk.next_job

    # --- what people say -----------------------------------------------------------------------------
    def _roll_back(self, request: r.RollBack) -> None:
        self._waits_for_word("rollback")
        if not self._go_back(self._ledger(), request.actor, request.reason):
            raise NothingToUndo(
                f"execution {self.state.id}: nothing of what it left can be undone; `holdfast ledger {self.state.id}`"
                f" says why, `holdfast fail {self.state.id}` ends it as it is"
            )

    def _give_up(self, request: r.GiveUp) -> None:
        self._waits_for_word("fail")
        self._end(ledgers.residue(self.state.ledger), False, request.actor, request.reason)

    def _waits_for_word(self, verb: str) -> None:
        state = self.state
        if not may(verb, state.status):
            raise WrongStatus(
                f"execution {state.id} is {state.status.name}; {verb} is for one that waits in ERROR for a decision"
            )
        if state.running or state.hooks:
            raise WrongStatus(
                f"execution {state.id}: {state.running + state.hooks} of its jobs have not ended yet; ask again then"
            )

    def _ack(self, request: r.AckExecution) -> None:
        state = self.state
        if state.status in ACKED.values():
            return  # the same answer; whoever was first is kept
        if not may("ack", state.status):
            raise WrongStatus(f"execution {state.id} is {state.status.name}; only an end can be acknowledged")
        doubts = in_doubt(state)
        note = request.note.strip()
        if doubts and not note:
            raise NoteMissing(
                f"execution {state.id} left {len(doubts)} effect{'s' if len(doubts) > 1 else ''} that nobody undid;"
                " say in a note what was done about that"
            )
        self.events.append(e.ExecutionAcked(request.actor, note, self._let_in()))

    def _let_in(self) -> tuple[str, ...]:
        """Who waits for what the ended execution has quarantined; its flags go now."""
        state = self.state
        is_shut = state.policy.on_unsafe == "quarantine" and state.status not in ACKED.values()
        if is_shut and any(state.ledger[job].entity for job in in_doubt(state)):
            return self.reads.flagged(FlaggedKey(state.tenant, state.id))
        return ()

    def _spec(self, job: Job) -> JobSpec:
        return spec_of(self.state, job)

    def _label(self, step: int) -> str:
        try:
            program = self.reads.program(self.state.definition)
        except Refused:
            return str(step)
        return program.label(step) if program else str(step)
