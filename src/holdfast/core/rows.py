"""Rows that follow from events: the queue, the agenda and the log, written in the same commit.

What follows from an event depends on it and on the state after it, on nothing else. Nothing else creates
work, so what the tables hold can always be derived from the histories; `verify` does exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from . import events as e
from . import requests as r
from .model import JobStatus, LogLine
from .state import State, apply


class JobRow(msgspec.Struct, array_like=True, gc=False):
    """A job that waits in its queue, or is claimed (`incarnation` set)."""

    execution: str
    job: int
    queue: str
    block: str
    #: µs; when it came into the queue, or was claimed
    since: int
    attempt: int = 0
    incarnation: str = ""
    #: µs after `since` at which a claimed job is stuck; 0 = the engine's default
    timeout: int = 0


class AgendaRow(msgspec.Struct, array_like=True, gc=False):
    execution: str
    #: unique within the execution, derived from what it is about
    item: str
    due: int
    request: r.Due


class LogRow(msgspec.Struct, array_like=True, gc=False):
    execution: str
    #: 1, 2, 3 … within the execution; given when it is written, because workers' lines are not events
    number: int
    at: int
    line: LogLine


class Rows:
    """What the tables have to hold after some events. The last word about a row counts; `None`: it is gone."""

    __slots__ = ("agenda", "jobs", "logs", "stopping")

    def __init__(self) -> None:
        #: A job's row goes in the same commit as its result: a crash between the two would run the job twice.
        self.jobs: dict[tuple[str, int], JobRow | None] = {}
        self.agenda: dict[tuple[str, str], AgendaRow | None] = {}
        self.logs: list[LogRow] = []
        #: claimed jobs whose workers have to be told to stop
        self.stopping: list[tuple[str, int]] = []


def transit(state: State, at: int, events: Sequence[e.Event], rows: Rows) -> None:
    """Apply a transition and note what follows from it: `fold` for the live path."""
    if state.at < at:
        state.at = at
    for event in events:
        apply(state, event)
        follow = _FOLLOW.get(type(event))
        if follow is not None:
            follow(state, event, rows)


def queued(state: State, id: int) -> JobRow:
    job = state.jobs[id]
    spec = state.specs[job.spec]
    return JobRow(state.id, id, spec.queue, spec.block, state.at, job.attempt, "", spec.timeout)


# --- one function per kind of fact that has consequences -----------------------------------------------
def _lane_advanced(state: State, event: e.LaneAdvanced, rows: Rows) -> None:
    if event.logs:
        rows.logs += [LogRow(state.id, 0, state.at, line) for line in event.logs]


def _job_scheduled(state: State, event: e.JobScheduled, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = queued(state, event.job)


def _job_released(state: State, event: e.JobReleased, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = queued(state, event.job)
    rows.agenda[state.id, f"job/{event.job}"] = None


def _job_over(state: State, event: e.JobSucceeded | e.JobFailed, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = None


def _job_cancelled(state: State, event: e.JobCancelled, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = None
    rows.agenda[state.id, f"job/{event.job}"] = None


def _job_rescheduled(state: State, event: e.JobRescheduled, rows: Rows) -> None:
    rows.jobs[state.id, event.job] = None
    item = f"job/{event.job}"
    rows.agenda[state.id, item] = AgendaRow(state.id, item, event.due, r.ReleaseJob(event.job, event.attempt))


def _timer_set(state: State, event: e.TimerSet, rows: Rows) -> None:
    item = f"timer/{event.timer}"
    rows.agenda[state.id, item] = AgendaRow(state.id, item, event.due, r.FireTimer(event.timer))


def _timer_gone(state: State, event: e.TimerFired | e.TimerCancelled, rows: Rows) -> None:
    rows.agenda[state.id, f"timer/{event.timer}"] = None


def _turn_taken(state: State, event: e.TurnTaken, rows: Rows) -> None:
    item = f"turn/{event.turn}"
    due = AgendaRow(state.id, item, state.at, r.TakeTurn(event.turn)) if event.is_open else None
    rows.agenda[state.id, item] = due


def _job_stop_asked(state: State, event: e.JobStopAsked, rows: Rows) -> None:
    rows.stopping.append((state.id, event.job))


def _cancel_requested(state: State, event: e.CancelRequested, rows: Rows) -> None:
    if not event.cleans_up:
        started = [id for id, job in state.jobs.items() if job.status is JobStatus.STARTED]
        rows.stopping += [(state.id, id) for id in started]


def _signal_sent(state: State, event: e.SignalSent, rows: Rows) -> None:
    item = f"signal/{event.key}"
    request = r.DeliverSignal(event.name, event.value, event.key, state.id)
    rows.agenda[event.target, item] = AgendaRow(event.target, item, state.at, request)


def _ended(state: State, event: e.Event, rows: Rows) -> None:
    if state.is_turn_open:
        rows.agenda[state.id, f"turn/{state.turn}"] = None


_FOLLOW: dict[type, Callable[[State, Any, Rows], None]] = {
    e.LaneAdvanced: _lane_advanced,
    e.JobScheduled: _job_scheduled,
    e.JobReleased: _job_released,
    e.JobSucceeded: _job_over,
    e.JobFailed: _job_over,
    e.JobCancelled: _job_cancelled,
    e.JobRescheduled: _job_rescheduled,
    e.TimerSet: _timer_set,
    e.TimerFired: _timer_gone,
    e.TimerCancelled: _timer_gone,
    e.TurnTaken: _turn_taken,
    e.JobStopAsked: _job_stop_asked,
    e.CancelRequested: _cancel_requested,
    e.SignalSent: _signal_sent,
    e.ExecutionCompleted: _ended,
    e.ExecutionFailed: _ended,
    e.ExecutionCancelled: _ended,
}
