"""The jobs of an execution as its history tells them: a fold of the job events, for people to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from . import events as e
from .model import Effect, JobKind, JobSpec, JobStatus
from .views import JobView, error_view


class _Job(msgspec.Struct):
    job: int
    step: int
    spec: int
    visit: int
    input: Any
    scheduled_at: int
    status: JobStatus = JobStatus.SENT
    attempt: int = 0
    worker: str = ""
    effect: Effect = Effect.NONE
    result: Any = None
    failure: Any = None
    started_at: int = 0
    ended_at: int = 0
    entity: str = ""
    kind: JobKind = JobKind.EXECUTE
    about: int = 0


def fold_jobs(history: Iterable[tuple[int, tuple[e.Event, ...]]], label: Callable[[int], str]) -> list[JobView]:
    """`history` yields (time, events) per transition."""
    jobs: dict[int, _Job] = {}
    specs: tuple[JobSpec, ...] = ()
    for at, events in history:
        for event in events:
            match event:
                case e.BlocksPinned(specs=pinned):
                    specs = pinned
                case e.JobScheduled():
                    job = _Job(event.job, event.step, event.spec, event.visit, event.input, at)
                    job.entity, job.kind, job.about = event.entity, event.kind, event.about
                    jobs[event.job] = job
                case e.JobStarted():
                    job = jobs[event.job]
                    job.status, job.attempt, job.worker = JobStatus.STARTED, event.attempt, event.worker
                    job.started_at = job.started_at or at
                case e.JobSucceeded():
                    job = jobs[event.job]
                    job.status, job.result, job.effect, job.ended_at = (
                        JobStatus.SUCCEEDED,
                        event.result,
                        event.effect,
                        at,
                    )
                    job.failure = None
                case e.JobFailed():
                    job = jobs[event.job]
                    job.status, job.failure, job.effect, job.ended_at = (
                        JobStatus.FAILED,
                        event.failure,
                        event.effect,
                        at,
                    )
                case e.JobRescheduled():
                    job = jobs[event.job]
                    job.status, job.failure, job.effect = JobStatus.RESCHEDULED, event.failure, event.effect
                case e.JobReleased():
                    jobs[event.job].status = JobStatus.SENT
                case e.JobCancelled():
                    job = jobs[event.job]
                    job.status, job.effect, job.ended_at = JobStatus.CANCELLED, event.effect, at
                case _:
                    pass
    return [
        JobView(
            job.job,
            label(job.step),
            specs[job.spec].block,
            job.kind.name,
            job.status.name,
            job.attempt,
            job.visit,
            job.worker,
            job.effect.name,
            job.input,
            job.result,
            error_view(job.failure),
            job.scheduled_at,
            job.started_at or None,
            job.ended_at or None,
            job.entity,
            job.about,
        )
        for job in jobs.values()
    ]
