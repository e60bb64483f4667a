"""What becomes of an attempt at a job: its result, its failure, its loss; and whether another one follows."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from . import events as e
from . import ledger as ledgers
from . import program as p
from . import requests as r
from .backoff import retry_at
from .ending import Ending
from .errors import StaleAttempt
from .lifecycle import TRYING
from .model import Effect, Failure, JobKind, JobSpec, JobStatus
from .state import Job, State

#: A worker lost this often with the same job in hand is blamed on the job.
LOSS_LIMIT = 5


def claim(state: State, id: int, worker: str) -> list[e.Event]:
    """What `ClaimJob` means. Nothing where somebody was faster or the execution was stopped: not an error."""
    job = state.jobs.get(id)
    if job is not None and job.status is JobStatus.SENT and (state.status in TRYING or state.is_cleaning):
        return [e.JobStarted(id, job.attempt + 1, worker)]
    return []


class Attempts(Ending):
    """The half of a transition that answers workers."""

    __slots__ = ()

    @abstractmethod
    def advance(self, cause: p.Cause, program: p.Program | None = None) -> None:
        """Tell the workflow, and turn what it wants into events."""

    # --- jobs --------------------------------------------------------------------------------------
    def _claim(self, request: r.ClaimJob) -> None:
        self.events += claim(self.state, request.job, request.worker)

    def _release(self, request: r.ReleaseJob) -> None:
        job = self.state.jobs.get(request.job)
        is_waiting = job is not None and job.status is JobStatus.RESCHEDULED and job.attempt == request.attempt
        if job is not None and is_waiting and job.due <= self.now:
            self.events.append(e.JobReleased(job.id))

    def _complete(self, request: r.CompleteJob) -> None:
        job = self._current(request.job, request.attempt)
        if job is None:
            self._refuse(request.job, request.attempt, request.result, None)
            return
        effect = ledgers.effect_of_success(self.state.specs[job.spec], request.effect)
        changes = request.changes if job.kind is JobKind.EXECUTE else ()
        self.events.append(e.JobSucceeded(job.id, request.attempt, request.result, effect, changes))
        if self._is_moving:
            self.advance(p.JobEnded(job.lane, job.id, job.step, request.result))
        else:
            self._settle()

    def _fail(self, request: r.FailJob) -> None:
        job = self._current(request.job, request.attempt)
        if job is None:
            self._refuse(request.job, request.attempt, None, request.failure)
            return
        spec = self._spec(job)
        effect = ledgers.effect_of_failure(spec, request.effect)
        if not self._is_moving or job.is_stopping:
            if request.is_cancelled:
                self.events.append(e.JobCancelled(job.id, request.attempt, effect))
            else:
                self.events.append(e.JobFailed(job.id, request.attempt, request.failure, effect))
            self._drained(job, request.failure, spec.may_repeat or effect is Effect.NONE)
            return
        if request.retry_after is not None:
            # Polling is not a failure: the block itself says that nothing was done yet.
            due = self.now + request.retry_after
            said = Effect.NONE if request.effect is None else request.effect
            self.events.append(e.JobRescheduled(job.id, request.attempt, due, None, said, request.details))
            return
        self._retry_or_end(job, spec, request.failure, effect, request.is_permanent, request.details)

    def _retry_or_end(
        self,
        job: Job,
        spec: JobSpec,
        failure: Failure,
        effect: Effect,
        permanent: bool,
        details: Any = None,
    ) -> None:
        # The guard: what may have happened and must not happen twice is never tried again by itself.
        allowed = not permanent and (spec.may_repeat or effect is Effect.NONE)
        due = retry_at(spec.retry, self.state.id, job.id, job.failures + 1, self.now) if allowed else None
        if due is not None:
            self.events.append(e.JobRescheduled(job.id, job.attempt, due, failure, effect, details))
            return
        self.events.append(e.JobFailed(job.id, job.attempt, failure, effect))
        repeatable = spec.may_repeat or effect is Effect.NONE
        self.advance(p.JobEnded(job.lane, job.id, job.step, failure=failure, is_repeatable=repeatable))

    def _drained(self, job: Job, failure: Failure, repeatable: bool) -> None:
        """A job that nobody waits for any more has ended."""
        if self._is_moving:
            self.advance(p.JobEnded(job.lane, job.id, job.step, failure=failure, is_repeatable=repeatable))
        else:
            self._settle()

    def _lose(self, request: r.LoseJob) -> None:
        job = self._current(request.job, request.attempt)
        if job is None:
            return
        spec = self._spec(job)
        if request.undelivered and self._is_moving and not job.is_stopping:
            self.events.append(e.JobReleased(job.id, undelivered=True))
            return
        failure = Failure(request.kind, request.message)
        if not self._is_moving or job.is_stopping:
            effect = Effect.NONE if request.undelivered else ledgers.effect_of_failure(spec, None)
            self.events.append(e.JobFailed(job.id, job.attempt, failure, effect))
            self._drained(job, failure, spec.may_repeat or effect is Effect.NONE)
        elif not spec.may_repeat:
            label = self._label(job.step)
            unknown = Failure(
                "outcome-unknown",
                f"job {job.id} (step {label}, block {spec.block}): {request.message}; nobody can tell whether"
                " it took effect, and it may not run twice",
                code="HF0311",
            )
            self._retry_or_end(job, spec, unknown, Effect.UNKNOWN, permanent=True)
        elif request.kind == "timeout":
            self._retry_or_end(job, spec, failure, ledgers.effect_of_failure(spec, None), False, request.details)
        elif job.losses + 1 >= LOSS_LIMIT:
            blamed = Failure(request.kind, f"{request.message}; {LOSS_LIMIT} workers were lost with this job")
            self._retry_or_end(job, spec, blamed, ledgers.effect_of_failure(spec, None), permanent=True)
        else:
            effect = ledgers.effect_of_failure(spec, None)
            self.events.append(e.JobRescheduled(job.id, job.attempt, self.now, failure, effect, request.details))
            self.events.append(e.JobReleased(job.id))

    def _current(self, id: int, attempt: int) -> Job | None:
        job = self.state.jobs.get(id)
        if job is not None and job.status is JobStatus.STARTED and job.attempt == attempt:
            return job
        return None

    def _refuse(self, id: int, attempt: int, value: Any, failure: Failure | None) -> None:
        """A late answer changes nothing; where the outcome was unknown, or another attempt is out, it
        is evidence worth keeping."""
        if not 0 < id < self.state.next_job:
            raise StaleAttempt(f"execution {self.state.id} has no job {id}; discard this result")
        entry = self.state.ledger.get(id)
        job = self.state.jobs.get(id)
        doubtful = entry is not None and entry.effect is Effect.UNKNOWN and entry.attempt == attempt
        superseded = job is not None and not job.status.is_final and attempt <= job.attempt
        if doubtful or superseded:
            self.events.append(e.ResultRefused(id, attempt, failure is None, value, failure))
