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
from .ledger import Entry
from .lifecycle import MOVING
from .model import Effect, Failure, JobKind, JobSpec, JobStatus, Status
from .state import FAR, Job, State
from .undoing import outcome_of

#: A worker lost this often with the same job in hand is blamed on the job.
LOSS_LIMIT = 5
#: Statuses in which jobs that are no steps of the workflow may be started.
_HOOKING = frozenset({Status.RUNNING, Status.ERROR, Status.ROLLBACK, Status.CANCELLING})
RUNS_IN: dict[JobKind, frozenset[Status]] = {
    JobKind.ACQUIRE: frozenset({Status.RESOURCE_DISCOVERY}),
    JobKind.VERIFY: _HOOKING,
    JobKind.ROLLBACK: _HOOKING,
}


def claim(state: State, id: int, worker: str) -> list[e.Event]:
    """What `ClaimJob` means. Nothing where somebody was faster or the execution was stopped: not an error."""
    job = state.jobs.get(id)
    if job is not None and job.status is JobStatus.SENT and _may_run(state, job):
        return [e.JobStarted(id, job.attempt + 1, worker)]
    return []


def _may_run(state: State, job: Job) -> bool:
    if job.kind is JobKind.EXECUTE:
        return state.status in MOVING or state.is_cleaning
    return state.status in RUNS_IN[job.kind]


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
        effect = ledgers.effect_of_success(self._spec(job), request.effect)
        if job.kind is not JobKind.EXECUTE:
            self.events.append(e.JobSucceeded(job.id, request.attempt, request.result))
            self._hook_ended(job, request.result, None, request.effect)
            return
        self.events.append(e.JobSucceeded(job.id, request.attempt, request.result, effect, request.changes))
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
        effect = self._effect_of_failure(job, spec, request.effect)
        if not self._is_wanted(job):
            if request.is_cancelled:
                self.events.append(e.JobCancelled(job.id, request.attempt, effect))
            else:
                self.events.append(e.JobFailed(job.id, request.attempt, request.failure, effect))
            self._drained(job, request.failure, spec.may_repeat or effect is Effect.NONE)
            return
        if request.retry_after is not None:
            # Polling is not a failure: the block itself says that nothing was done yet.
            due = self.now + request.retry_after
            said = Effect.NONE if request.effect is None or job.kind is not JobKind.EXECUTE else request.effect
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
        due = None if permanent else retry_at(spec.retry, self.state.id, job.id, job.failures + 1, self.now)
        # The guard: what may have happened and must not happen twice is never tried again by itself.
        if due is not None and (spec.may_repeat or effect is Effect.NONE):
            self.events.append(e.JobRescheduled(job.id, job.attempt, due, failure, effect, details))
        elif due is not None and effect is Effect.UNKNOWN and spec.has_verify:
            self._look(job, failure, details)
        else:
            self._end_job(job, spec, failure, effect)

    def _end_job(self, job: Job, spec: JobSpec, failure: Failure, effect: Effect) -> None:
        self.events.append(e.JobFailed(job.id, job.attempt, failure, effect))
        if job.kind is not JobKind.EXECUTE:
            self._hook_ended(job, None, failure)
            return
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
        is_wanted = self._is_wanted(job)
        if request.undelivered and is_wanted:
            self.events.append(e.JobReleased(job.id, undelivered=True))
            return
        failure = Failure(request.kind, request.message)
        effect = self._effect_of_failure(job, spec, None)
        if not is_wanted:
            if request.undelivered:
                effect = Effect.NONE
            self.events.append(e.JobFailed(job.id, job.attempt, failure, effect))
            self._drained(job, failure, spec.may_repeat or effect is Effect.NONE)
        elif not spec.may_repeat:
            if spec.has_verify:
                self._look(job, failure, request.details)
            else:
                self._end_job(job, spec, self._unknown(job, spec, request.message), Effect.UNKNOWN)
        elif request.kind == "timeout":
            self._retry_or_end(job, spec, failure, effect, False, request.details)
        elif job.losses + 1 >= LOSS_LIMIT:
            blamed = Failure(request.kind, f"{request.message}; {LOSS_LIMIT} workers were lost with this job")
            self._end_job(job, spec, blamed, effect)
        else:
            self.events.append(e.JobRescheduled(job.id, job.attempt, self.now, failure, effect, request.details))
            self.events.append(e.JobReleased(job.id))

    def _end_grace(self, request: r.EndGrace) -> None:
        """Cancelled, and some of what was told to stop has not answered: nobody waits for it any longer. Whatever it
        did counts as unknown, and whatever it says from now on comes too late."""
        if self.state.status is not Status.CANCELLING:
            return
        is_cleaning = self.state.is_cleaning
        left = [
            job
            for job in self.state.jobs.values()
            if job.status is JobStatus.STARTED
            and job.kind is not JobKind.VERIFY
            and (job.is_stopping or not is_cleaning)
        ]
        seconds = self.state.policy.grace / 1_000_000
        for job in left[:1] if is_cleaning else left:
            spec = self._spec(job)
            message = f"job {job.id} did not stop within {seconds:g} s of the cancel; nobody waits for it any longer"
            failure = Failure("abandoned", message, code="HF0743")
            effect = self._effect_of_failure(job, spec, None)
            self.events.append(e.JobFailed(job.id, job.attempt, failure, effect))
            if is_cleaning:
                self._drained(job, failure, spec.may_repeat or effect is Effect.NONE)
        if left and not is_cleaning:
            self._settle()

    def _is_wanted(self, job: Job) -> bool:
        """Somebody waits for what comes of it, and for another attempt if need be."""
        return _may_run(self.state, job) and not job.is_stopping

    def _effect_of_failure(self, job: Job, spec: JobSpec, said: Effect | None) -> Effect:
        if job.kind is not JobKind.EXECUTE:
            return Effect.NONE  # what a hook did is said of the job that it is about
        return ledgers.effect_of_failure(spec, said)

    def _unknown(self, job: Job, spec: JobSpec, message: str) -> Failure:
        return Failure(
            "outcome-unknown",
            f"job {job.id} (step {self._label(job.step)}, block {spec.block}): {message}; nobody can tell whether"
            " it took effect, and it may not run twice",
            code="HF0311",
        )

    # --- hooks -------------------------------------------------------------------------------------
    def _look(self, job: Job, failure: Failure, details: Any) -> None:
        """Nobody knows what came of the attempt, and its block can tell. The job waits for that."""
        self.events.append(e.JobRescheduled(job.id, job.attempt, FAR, failure, Effect.UNKNOWN, details))
        entry = Entry(job.id, job.step, job.spec, job.attempt, Effect.UNKNOWN, entity=job.entity, input=job.input)
        self._schedule(JobKind.VERIFY, entry)

    def _hook_ended(self, job: Job, result: Any, failure: Failure | None, said: Effect | None = None) -> None:
        match job.kind:
            case JobKind.VERIFY:
                self._verified(job, result, failure, said)
            case JobKind.ROLLBACK:
                self._undone(job, failure)
            case _:
                self._acquired(job, result, failure)

    def _acquired(self, job: Job, result: Any, failure: Failure | None) -> None:
        """An ACQUIRE job is over."""
        raise NotImplementedError

    def _verified(self, job: Job, result: Any, failure: Failure | None, said: Effect | None) -> None:
        """What it found is said as an effect, with the data that goes with it; or all in its result."""
        effect, data = Effect.UNKNOWN, None
        if said is not None:
            effect, data = said, result
        elif failure is None:
            effect, data = outcome_of(self.reads.load(self.state.id, result))
        entry = self.state.ledger.get(job.about)
        if entry is not None:
            self.events.append(e.EffectVerified(job.about, entry.attempt, effect))
        forward = self.state.jobs.get(job.about)
        if not self._is_moving:
            self._settle()
        elif forward is not None and forward.status is JobStatus.RESCHEDULED and forward.due == FAR:
            self._go_on_with(forward, effect, data)

    def _go_on_with(self, job: Job, effect: Effect, data: Any) -> None:
        """The job has waited for what somebody found out about its last attempt."""
        spec, failure = self._spec(job), job.failure
        assert failure is not None
        if effect is Effect.DONE:
            result = self.reads.keep(self.state.id, data)
            self.events.append(e.JobSucceeded(job.id, job.attempt, result, effect))
            self.advance(p.JobEnded(job.lane, job.id, job.step, result))
        elif effect is Effect.UNKNOWN:
            self._end_job(job, spec, self._unknown(job, spec, failure.message), effect)
        else:
            is_lost = failure.kind == "worker-lost"
            due = retry_at(spec.retry, self.state.id, job.id, job.failures, self.now) if not is_lost else self.now
            if due is None or job.losses >= LOSS_LIMIT:
                self._end_job(job, spec, failure, effect)
                return
            self.events.append(e.JobRescheduled(job.id, job.attempt, due, None, effect, job.details))
            if due <= self.now:
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
