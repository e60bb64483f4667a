"""Decide: what one request means for one execution. Returns facts; never acts, never waits.

The rules by which this file stays what it is: it reads the state and never changes it; time and shared
rows are arguments; everything it read ends up in the events; same arguments, same events. What the
caller may not do is raised as `Refused`; what it needs to know first is returned as `Need`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, get_args

from . import events as e
from . import ledger as ledgers
from . import program as p
from . import requests as r
from . import waypoints
from .backoff import retry_at
from .begin import begin
from .errors import (
    CannotResume,
    ExecutionEnded,
    PayloadTooLarge,
    Refused,
    StaleAttempt,
    UnknownExecution,
    WrongStatus,
)
from .granting import granting
from .ledger import Entry
from .lifecycle import MOVING, may
from .model import Actor, Effect, Failure, JobKind, JobSpec, JobStatus, Status
from .sharing import Waking, answer, closing, facts
from .snapshot import copy_state
from .state import Job, State, fold, open_state

#: A worker lost this often with the same job in hand is blamed on the job.
LOSS_LIMIT = 5


def decide(state: State, request: r.Request, now: int, reads: p.Reads) -> list[e.Event] | p.Need:
    """May refuse; never acts."""
    now = max(now, state.at)
    try:
        if isinstance(request, r.StartExecution):
            return _start(state, request, now, reads)
        if state.version == 0:
            raise UnknownExecution(f"no execution {state.id}")
        transition = _Transition(state, now, reads)
        _ANSWER[type(request)](transition, request)
        return closing(state, transition.events, now, reads)
    except p.Missing as missing:
        return p.Need(missing.keys)
    except p.TooLong as error:
        raise PayloadTooLarge(str(error)) from None


def claim(state: State, id: int, worker: str) -> list[e.Event]:
    """What `ClaimJob` means. Nothing where somebody was faster or the execution was stopped: not an error."""
    job = state.jobs.get(id)
    if job is not None and job.status is JobStatus.SENT and (state.status in MOVING or state.is_cleaning):
        return [e.JobStarted(id, job.attempt + 1, worker)]
    return []


def _start(state: State, request: r.StartExecution, now: int, reads: p.Reads) -> list[e.Event]:
    events, program = begin(state, request, reads)
    if program is None:
        return events
    # The program looks at a state in which the execution is already running.
    begun = fold(open_state(state.id), now, events)
    transition = _Transition(begun, now, reads)
    transition.advance(p.Begun(), program)
    return events + closing(begun, transition.events, now, reads)


class _Transition:
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
        return self.state.status in MOVING or self.state.is_cleaning

    @property
    def _is_cancelling(self) -> bool:
        """Whatever its last steps come to, it ends as cancelled."""
        return self.state.is_cleaning or any(type(event) is e.CancelRequested for event in self.events)

    # --- timers, turns -----------------------------------------------------------------------------
    def _fire(self, request: r.FireTimer) -> None:
        timer = self.state.timers.get(request.timer)
        if timer is not None and timer.due <= self.now and self._is_moving:
            self.events.append(e.TimerFired(timer.id))
            self.advance(p.TimerEnded(timer.lane, timer.id, timer.depth))

    def _take_turn(self, request: r.TakeTurn) -> None:
        if self.state.is_turn_open and self.state.turn == request.turn and self._is_moving:
            self.events.append(e.TurnTaken(request.turn, is_open=False))
            self.is_turn_open = False
            self.advance(p.TurnGranted())

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

    # --- signals and stopping ----------------------------------------------------------------------
    def _signal(self, request: r.SendSignal) -> None:
        if not may("signal", self.state.status):
            raise ExecutionEnded(f"execution {self.state.id} is {self.state.status.name}; it takes no more signals")
        if request.key and request.key in self.state.signal_keys:
            return
        self.events.append(e.SignalReceived(request.name, request.value, request.actor, request.key))
        if self._is_moving:
            self.advance(p.SignalArrived(request.name, request.value))

    def _deliver(self, request: r.DeliverSignal) -> None:
        """From another execution; nobody waits for an answer."""
        state = self.state
        if request.tenant and request.tenant != state.tenant:
            return  # for them it does not exist
        if may("signal", state.status) and request.key not in state.signal_keys:
            actor = Actor(f"execution {request.sender}", state.tenant)
            # It came whole, for a reference means something only in its own execution.
            value = self.reads.keep(state.id, request.value)
            self._signal(r.SendSignal(request.name, value, request.key, actor))

    def _cancel(self, request: r.CancelExecution) -> None:
        if self.state.status in (Status.CANCELLING, Status.CANCELLED):
            # Asked again, perhaps because the first answer was lost: the same answer.
            return
        if not may("cancel", self.state.status):
            raise WrongStatus(f"execution {self.state.id} is {self.state.status.name}; it cannot be cancelled")
        if self.state.status in MOVING and self._cleans_up():
            self.events.append(e.CancelRequested(request.actor, request.reason, cleans_up=True))
            self.advance(p.StopAsked(request.reason))
            return
        self.events.append(e.CancelRequested(request.actor, request.reason))
        self._drop_waiting()
        self._settle()

    def _cleans_up(self) -> bool:
        try:
            program = self.reads.program(self.state.definition)
        except Refused:
            return False
        return program is not None and program.cleans_up

    # --- going on after an end -----------------------------------------------------------------------
    def _resume(self, request: r.ResumeExecution) -> None:
        program = self._ended("resume")
        if not request.is_forced:
            why = program.may_resume(self.state)
            if why:
                raise CannotResume(f"execution {self.state.id} cannot carry on: {why}")
        self.events.append(e.ExecutionResumed(request.actor, request.reason, request.is_forced))
        self._go_on(p.CarryOn(request.is_forced), program)

    def _replay(self, request: r.ReplayExecution) -> None:
        program = self._ended("replay")
        if request.start == "end":
            self._resume(r.ResumeExecution(request.reason, request.is_forced, request.actor))
            return
        step, mark = waypoints.choose(self.state, program, request.start, request.is_forced, self.reads)
        self.events.append(e.ExecutionReplayed(request.actor, request.reason, request.is_forced, step, mark))
        self._go_on(p.GoAgain(), program)

    def _ended(self, verb: str) -> p.Program:
        status = self.state.status
        if not status.is_ended or not may(verb, status):
            raise WrongStatus(f"execution {self.state.id} is {status.name}; {verb} needs one that has {_NEEDS[verb]}")
        if not self.state.lanes and verb == "resume":
            raise CannotResume(f"execution {self.state.id} never began, or ended before Holdfast kept where it stood")
        if not self.state.started_at:
            raise CannotResume(f"execution {self.state.id} never began: start it again")
        program = self.reads.program(self.state.definition)
        assert program is not None, "the definition of an execution is kept as long as the execution"
        return program

    def _go_on(self, cause: p.Cause, program: p.Program) -> None:
        """The program looks at a state in which the execution is already running again."""
        running = fold(copy_state(self.state), self.now, self.events)
        transition = _Transition(running, self.now, self.reads)
        transition.advance(cause, program)
        self.events += transition.events

    # --- what it shares with others -------------------------------------------------------------------
    def _wake(self, request: Waking) -> None:
        made, cause = answer(self.state, request, self.reads)
        self.events += made
        if cause is not None and self._is_moving:
            self.advance(cause)

    # --- the workflow's wishes -----------------------------------------------------------------------
    def advance(self, cause: p.Cause, program: p.Program | None = None) -> None:
        try:
            program = program or self.reads.program(self.state.definition)
            assert program is not None, "the definition of an execution is kept as long as the execution"
            commands = program.advance(self.state, cause, self.now, self.reads)
        except p.Missing:
            raise
        except Refused as refused:
            # A definition that no longer compiles, after an upgrade: this execution ends, no other suffers.
            commands = [p.Fail(Failure("program-error", refused.message, code=refused.code))]
        except p.TooLong as error:
            commands = [p.Fail(Failure("value-too-large", str(error), code="HF0701"))]
        except Exception as bug:
            # One execution's program must not stop the engine, nor leave the execution hanging.
            text = "".join(traceback.format_exception(bug))[-2000:]
            commands = [p.Fail(Failure("program-error", f"{type(bug).__name__}: {bug}", traceback=text))]
        for command in commands:
            if isinstance(command, p.Advance):
                self.events.append(e.LaneAdvanced(command.lane, command.ops, command.logs))
            elif isinstance(command, p.ScheduleJob):
                self.events.append(
                    e.JobScheduled(
                        self.next_job, command.lane, command.step, command.spec, command.input, command.visit
                    )
                )
                self.next_job += 1
            else:
                self._obey(command)
                if self.is_broken:
                    return  # whatever else it wanted

    def _obey(self, command: Any) -> None:
        match command:
            case p.SetTimer(lane=lane, due=due, depth=depth):
                self.events.append(e.TimerSet(self.next_timer, lane, max(due, self.now), depth))
                self.next_timer += 1
            case p.CancelTimer(timer=timer):
                self.events.append(e.TimerCancelled(timer))
            case p.StopJob(job=id, reason=reason):
                job = self.state.jobs[id]
                if job.status is JobStatus.STARTED:
                    self.events.append(e.JobStopAsked(id, reason))
                else:
                    self.events.append(e.JobCancelled(id, job.attempt))
            case p.KeepFor(rule=rule, hash=hash):
                self.events.append(e.RetentionSet(rule, hash))
            case p.Tell(lane=lane, target=target, name=name, value=value, key=key):
                self.events.append(e.SignalSent(lane, target, name, value, key))
            case p.Stopped():
                self._drop_waiting()
                self._settle()
            case p.TakeAnotherTurn():
                # One turn is enough for all lanes that wait for one.
                if not self.is_turn_open:
                    self.events.append(e.TurnTaken(self.state.turn + 1, is_open=True))
                    self.is_turn_open = True
            case p.Complete() if self._is_cancelling:
                self._obey(p.Stopped())
            case p.Complete(output=output):
                try:
                    kept = self.reads.keep(self.state.id, output)
                except p.TooLong as error:
                    self._obey(p.Fail(Failure("value-too-large", f"the output: {error}", code="HF0701")))
                    return
                granted = granting(self.state, self.events, self.now, self.reads)
                if isinstance(granted, Failure):
                    self._obey(p.Fail(granted))
                    return
                self._drop_waiting()
                self.events += granted
                self.events.append(e.ExecutionCompleted(kept))
            case p.Fail(failure=failure, step=step):
                if self._is_cancelling:
                    # A bug while cleaning up: it is cancelled all the same.
                    self._drop_waiting()
                    self._settle()
                    return
                self.events.append(e.ErrorRaised(failure, step))
                self._drop_waiting()
                self._settle()
            case _:
                made = facts(command, self.state, self.events, self.reads)
                if isinstance(made, Failure):
                    self.is_broken = True
                    self._obey(p.Fail(made))
                else:
                    self.events += made

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


_NEEDS = {"resume": "failed or was cancelled", "replay": "ended"}
_ANSWER: dict[type, Callable[[_Transition, Any], None]] = {
    r.CompleteJob: _Transition._complete,
    r.ClaimJob: _Transition._claim,
    r.FailJob: _Transition._fail,
    r.LoseJob: _Transition._lose,
    r.FireTimer: _Transition._fire,
    r.ReleaseJob: _Transition._release,
    r.TakeTurn: _Transition._take_turn,
    r.SendSignal: _Transition._signal,
    r.CancelExecution: _Transition._cancel,
    r.ResumeExecution: _Transition._resume,
    r.ReplayExecution: _Transition._replay,
    r.DeliverSignal: _Transition._deliver,
    **dict.fromkeys(get_args(Waking), _Transition._wake),
}
# The contract's placeholders; each goes when its answer is there.
for _kind in (r.CheckGates, r.TryLocks, r.TimeOutLocks, r.AwaitEnd, r.HearEnd, r.AckExecution, r.RollBack, r.GiveUp,
              r.MeetGate, r.FreeEntity):  # fmt: skip
    _ANSWER.setdefault(_kind, lambda transition, request: None)
assert {*_ANSWER, r.StartExecution} == set(get_args(r.Request)), "every request has its answer"
