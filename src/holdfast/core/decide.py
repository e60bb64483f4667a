"""Decide: what one request means for one execution. Returns facts; never acts, never waits.

The rules by which this file stays what it is: it reads the state and never changes it; time and shared
rows are arguments; everything it read ends up in the events; same arguments, same events. What the
caller may not do is raised as `Refused`; what it needs to know first is returned as `Need`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, get_args

from . import acquiring, waypoints
from . import events as e
from . import program as p
from . import requests as r
from .attempts import Attempts
from .begin import begin
from .errors import (
    CannotResume,
    ExecutionEnded,
    PayloadTooLarge,
    Refused,
    UnknownExecution,
    WrongStatus,
)
from .folding import fold
from .granting import granting
from .lifecycle import MOVING, may
from .model import Actor, Failure, JobStatus, Status
from .reads import Missing, Need, Reads, TooLong
from .sharing import Waking, answer, closing, facts
from .snapshot import copy_state
from .state import Job, State, open_state


def decide(state: State, request: r.Request, now: int, reads: Reads) -> list[e.Event] | Need:
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
    except Missing as missing:
        return Need(missing.keys)
    except TooLong as error:
        raise PayloadTooLarge(str(error)) from None


def _start(state: State, request: r.StartExecution, now: int, reads: Reads) -> list[e.Event]:
    events, program = begin(state, request, now, reads)
    if program is None:
        return events
    # The program looks at a state in which the execution is already running.
    begun = fold(open_state(state.id), now, events)
    transition = _Transition(begun, now, reads)
    transition.advance(p.Begun(), program)
    return events + closing(begun, transition.events, now, reads)


class _Transition(Attempts):
    """One request's events in the making."""

    __slots__ = ()

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
        is_going_back = self.state.status is Status.ROLLBACK and self.state.is_cancelled
        if is_going_back or self.state.status in (Status.CANCELLING, Status.CANCELLED):
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
        if self.state.has_undone:
            raise CannotResume(
                f"execution {self.state.id} was rolled back: there is nothing to carry on from; replay or retry it"
            )
        if not request.accepts_changes:
            acquiring.refuse_if_changed(self.state, self.reads)
        if not request.is_forced:
            why = program.may_resume(self.state)
            if why:
                raise CannotResume(f"execution {self.state.id} cannot carry on: {why}")
        self.events.append(
            e.ExecutionResumed(
                request.actor, request.reason, request.is_forced, self._let_in(), not request.accepts_changes
            )
        )
        # One that was replayed, and never got its entities, is still to go again.
        self._go_on(p.GoAgain() if self.state.go_on == "again" else p.CarryOn(request.is_forced), program)

    def _replay(self, request: r.ReplayExecution) -> None:
        program = self._ended("replay")
        if request.start == "end":
            resume = r.ResumeExecution(request.reason, request.is_forced, request.actor, request.accepts_changes)
            self._resume(resume)
            return
        step, mark = waypoints.choose(self.state, program, request.start, request.is_forced, self.reads)
        woken = self._let_in()
        self.events.append(e.ExecutionReplayed(request.actor, request.reason, request.is_forced, step, mark, woken))
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

    def _go_on(self, cause: p.Cause, program: p.Program | None = None) -> None:
        """The program looks at a state in which the execution is already running again."""
        running = fold(copy_state(self.state), self.now, self.events)
        if running.status is Status.SCHEDULED:
            road = acquiring.Road(running, self.now, self.reads)
            road.lock_again()
            self.events += road.events
            if not acquiring.is_running(road.events):
                return
            running = fold(running, self.now, road.events)
        transition = _Transition(running, self.now, self.reads)
        transition.advance(cause, program)
        self.events += transition.events

    # --- before it runs ------------------------------------------------------------------------------
    def _begin(self, request: acquiring.Beginning) -> None:
        self._set_forth(acquiring.answer(self.state, request, self.now, self.reads))

    def _set_forth(self, made: list[e.Event]) -> None:
        self.events += made
        if acquiring.is_running(made):
            self._go_on(acquiring.cause_of(self.state))

    def _acquired(self, job: Job, result: Any, failure: Failure | None) -> None:
        if self.state.status is Status.RESOURCE_DISCOVERY:
            self._set_forth(acquiring.acquired(self.state, job, result, failure, self.now, self.reads))
        else:
            self._settle()

    def _free_entity(self, request: r.FreeEntity) -> None:
        made, failure, undoing = acquiring.take_away(self.state, request, self.reads)
        self.events += made
        # What follows looks at a state in which the entity is lost: nothing is undone or looked at there any more.
        after = _Transition(fold(copy_state(self.state), self.now, made), self.now, self.reads)
        if after._is_moving:
            after._obey(p.Fail(failure))
        else:
            after._settle()
        self.events += after.events
        for job in undoing:
            after = _Transition(fold(after.state, self.now, after.events), self.now, self.reads)
            after._undone(job, failure)
            self.events += after.events

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
        except Missing:
            raise
        except Refused as refused:
            # A definition that no longer compiles, after an upgrade: this execution ends, no other suffers.
            commands = [p.Fail(Failure("program-error", refused.message, code=refused.code))]
        except TooLong as error:
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
                        self.next_job,
                        command.lane,
                        command.step,
                        command.spec,
                        command.input,
                        command.visit,
                        command.entity,
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
                self._stopped()
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
                except TooLong as error:
                    self._obey(p.Fail(Failure("value-too-large", f"the output: {error}", code="HF0701")))
                    return
                granted = granting(self.state, self.events, self.now, self.reads)
                if isinstance(granted, Failure):
                    self._obey(p.Fail(granted))
                    return
                self._drop_waiting()
                self._drop_looking()
                self.events += granted
                self.events.append(e.ExecutionCompleted(kept))
            case p.Fail(failure=failure, step=step):
                if self._is_cancelling:
                    # A bug while cleaning up: it is cancelled all the same.
                    self._stopped()
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
    r.AckExecution: _Transition._ack,
    r.RollBack: _Transition._roll_back,
    r.GiveUp: _Transition._give_up,
    r.FreeEntity: _Transition._free_entity,
    r.EndGrace: _Transition._end_grace,
    **dict.fromkeys(get_args(acquiring.Beginning), _Transition._begin),
    **dict.fromkeys(get_args(Waking), _Transition._wake),
}
assert {*_ANSWER, r.StartExecution} == set(get_args(r.Request)), "every request has its answer"
