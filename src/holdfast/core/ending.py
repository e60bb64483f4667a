"""Coming to an end: what is in flight is drained, what is in doubt is looked at, then the verdict.

The foundation of a transition: the state it begins at, and the events it has made so far. What those events will have
changed is worked out here where it matters; the state itself is never touched.
"""

from __future__ import annotations

from . import events as e
from . import ledger as ledgers
from . import program as p
from .errors import Refused
from .ledger import Entry
from .lifecycle import TRYING
from .model import Effect, JobSpec, JobStatus, Status
from .state import Job, State


class Ending:
    """One request's events in the making."""

    __slots__ = ("events", "is_broken", "is_turn_open", "next_job", "next_timer", "now", "reads", "state")

    def __init__(self, state: State, now: int, reads: p.Reads) -> None:
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
        return self.state.status in TRYING or self.state.is_cleaning

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

    def _settle(self) -> None:
        """The verdict, once nothing is in flight."""
        running = self.state.running
        status = self.state.status
        ended = []
        for event in self.events:
            match event:
                case e.JobSucceeded() | e.JobFailed() | e.JobCancelled():
                    job = self.state.jobs.get(event.job)
                    if job is not None:
                        running -= job.status is JobStatus.STARTED
                        ended.append((job, event))
                case e.ErrorRaised():
                    status = Status.ERROR
                case e.CancelRequested():
                    status = Status.CANCELLING
                case _:
                    pass
        if running:
            return
        ledger = dict(self.state.ledger)
        for job, event in ended:
            if event.effect is not Effect.NONE:
                entry = Entry(job.id, job.step, job.spec, event.attempt, event.effect)
                ledgers.record(ledger, entry, self._spec(job))
        left = ledgers.residue(ledger)
        if status is Status.CANCELLING:
            self.events.append(e.ExecutionCancelled(left))
        elif status is Status.ERROR:
            verdict = Status.FAILED_UNSAFE if left else Status.FAILED_SAFE
            self.events.append(e.ExecutionFailed(verdict, left))

    def _spec(self, job: Job) -> JobSpec:
        return self.state.specs[job.spec]

    def _label(self, step: int) -> str:
        try:
            program = self.reads.program(self.state.definition)
        except Refused:
            return str(step)
        return program.label(step) if program else str(step)
