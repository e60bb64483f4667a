"""Rows that follow from events: the queue, the agenda and the log, written in the same commit.

`follow_up` is pure and looks at one event and the state after it. Nothing else creates work, so what the
tables hold can always be derived from the histories; `verify` does exactly that.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from . import events as e
from . import requests as r
from .model import LogLine
from .state import State


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


class JobGone(msgspec.Struct, array_like=True, gc=False):
    """Deleted in the same commit as its result: a crash between the two would run the job twice."""

    execution: str
    job: int


class AgendaRow(msgspec.Struct, array_like=True, gc=False):
    execution: str
    #: unique within the execution, derived from what it is about
    item: str
    due: int
    request: r.Due


class AgendaGone(msgspec.Struct, array_like=True, gc=False):
    execution: str
    item: str


class LogRow(msgspec.Struct, array_like=True, gc=False):
    execution: str
    #: 1, 2, 3 … within the execution; given when it is written, because workers' lines are not events
    number: int
    at: int
    line: LogLine


Row: TypeAlias = JobRow | JobGone | AgendaRow | AgendaGone | LogRow


def queued(state: State, id: int) -> JobRow:
    job = state.jobs[id]
    spec = state.specs[job.spec]
    return JobRow(state.id, id, spec.queue, spec.block, state.at, job.attempt, "", spec.timeout)


def follow_up(state: State, event: e.Event) -> list[Row]:
    match event:
        case e.LaneAdvanced(logs=logs):
            return [LogRow(state.id, 0, state.at, line) for line in logs]
        case e.JobScheduled(job=id):
            # The execution may have been stopped later in the same transition.
            return [queued(state, id)] if id in state.jobs else []
        case e.JobReleased(job=id):
            return [queued(state, id), AgendaGone(state.id, f"job/{id}")]
        case e.JobSucceeded(job=id) | e.JobFailed(job=id):
            return [JobGone(state.id, id)]
        case e.JobCancelled(job=id):
            return [JobGone(state.id, id), AgendaGone(state.id, f"job/{id}")]
        case e.JobRescheduled(job=id, attempt=attempt, due=due):
            return [JobGone(state.id, id), AgendaRow(state.id, f"job/{id}", due, r.ReleaseJob(id, attempt))]
        case e.TimerSet(timer=id, due=due):
            return [AgendaRow(state.id, f"timer/{id}", due, r.FireTimer(id))]
        case e.TimerFired(timer=id) | e.TimerCancelled(timer=id):
            return [AgendaGone(state.id, f"timer/{id}")]
        case e.TurnTaken(turn=turn, is_open=True):
            return [AgendaRow(state.id, f"turn/{turn}", state.at, r.TakeTurn(turn))]
        case e.TurnTaken(turn=turn):
            return [AgendaGone(state.id, f"turn/{turn}")]
        case e.ExecutionCompleted() | e.ExecutionFailed() | e.ExecutionCancelled() if state.is_turn_open:
            return [AgendaGone(state.id, f"turn/{state.turn}")]
        case _:
            return []
