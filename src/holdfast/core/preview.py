"""What resuming or replaying would do, said before anything happens.

The request is really decided, and thrown away: whatever would be refused is refused here with the same words, and
what would be taken or waited for is in the events. What would run *again* is in the history, walked through once.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import events as e
from . import program as p
from . import requests as r
from .codec import plain
from .decide import decide
from .errors import Refused
from .folding import apply, fold
from .lanes import ROOT_LANE, START, Frame, Lane, Op
from .model import Effect
from .reads import LockKey, Missing, Need, Reads
from .snapshot import copy_state
from .state import State, open_state
from .views import PlanJob, PlanLane, PlanLock, PlanStep, PlanView, RefusalView


class Trace:
    """Where the lanes of an execution came by, in order, as its history tells it."""

    def __init__(self, program: p.Program, history: Iterable[tuple[int, tuple[e.Event, ...]]]) -> None:
        self._program = program
        #: (lane, step) of each arrival
        self.steps: list[tuple[int, int]] = []
        #: arrivals that a replay has taken back
        self.undone: set[int] = set()
        #: job → (lane, step, how many arrivals there were)
        self.jobs: dict[int, tuple[int, int, int]] = {}
        #: (entity, name) that were given back by the end
        self.released: list[tuple[str, str]] = []
        self._parents: dict[int, int] = {}
        self._places: dict[int, tuple[int, int, int]] = {}
        #: lane → its latest arrival
        self.last: dict[int, int] = {}
        self._marks: dict[tuple[int, int], int] = {}
        state = open_state("")
        for at, events in history:
            state.at = max(state.at, at)
            self.released = []
            for event in events:
                self._take(state, event)

    def _take(self, state: State, event: e.Event) -> None:
        if isinstance(event, e.LaneAdvanced):
            for op in event.ops:
                if op[0] == Op.REPLAY:
                    self._undo(event.lane, op[1])
                apply(state, e.LaneAdvanced(event.lane, (op,)))
                if op[0] == Op.SPAWN:
                    self._parents[op[1]] = event.lane
                    self._arrive(state, op[1])
                self._arrive(state, event.lane)
                if op[0] == Op.WAYPOINT and op[2]:
                    self._marks[event.lane, op[1]] = self.last[event.lane]
            return
        if isinstance(event, e.ExecutionReplayed):
            self._undo(ROOT_LANE, event.step)
        apply(state, event)
        if isinstance(event, e.JobScheduled):
            self.jobs[event.job] = (event.lane, event.step, len(self.steps))
        elif isinstance(event, e.LockReleased):
            self.released.append((event.entity, event.name))
        elif isinstance(event, (e.PhasesPassed, e.ExecutionReplayed)) and ROOT_LANE in state.lanes:
            self._arrive(state, ROOT_LANE, is_new=isinstance(event, e.ExecutionReplayed))
            if isinstance(event, e.ExecutionReplayed):
                self._marks[ROOT_LANE, event.step] = self.last.get(ROOT_LANE, 0)

    def _arrive(self, state: State, id: int, is_new: bool = False) -> None:
        lane = state.lanes.get(id)
        if lane is None:
            return
        frame = lane.frames[-1]
        place = (frame.scope, frame.body, frame.position)
        if is_new or self._places.get(id) != place:
            self._places[id] = place
            step = self._program.step_at(*place)
            if step is not None:
                self.last[id] = len(self.steps)
                self.steps.append((id, step))

    def _undo(self, lane: int, step: int) -> None:
        first = self.since(lane, step)
        self.undone.update(at for at in range(first, len(self.steps)) if self.is_within(self.steps[at][0], lane))

    def since(self, lane: int, step: int) -> int:
        """The arrival from which on everything is done again when that lane goes back to that step."""
        if step == START:
            return self._marks.get((lane, START), 0)
        mark = self._marks.get((lane, step))
        if mark is not None:
            return mark
        found = [at for at, arrival in enumerate(self.steps) if arrival == (lane, step)]
        return found[-1] if found else len(self.steps)

    def is_within(self, lane: int, outer: int) -> bool:
        """Whether a lane is that lane, or lies below it."""
        while lane and lane != outer:
            lane = self._parents.get(lane, 0)
        return lane == outer


def preview(state: State, request: r.ResumeExecution | r.ReplayExecution, now: int, reads: Reads) -> PlanView | Need:
    """`state` is of an execution that is there; it is not changed."""
    verb = "replay" if isinstance(request, r.ReplayExecution) and request.start != "end" else "resume"
    asked = request.start if isinstance(request, r.ReplayExecution) else "end"
    view = PlanView(state.id, verb, asked, state.status.name, state.run + 1, request.is_forced)
    try:
        decided = decide(state, request, now, reads)
    except Refused as refused:
        view.refusal = RefusalView(refused.code, refused.message)
        return view
    if isinstance(decided, Need):
        return decided
    try:
        program = reads.program(state.definition)
        assert program is not None
        trace = Trace(program, reads.history(state.id))
        _Plan(view, state, program, trace, reads).fill(decided, now)
    except Missing as missing:
        return Need(missing.keys)
    return view


class _Plan:
    def __init__(self, view: PlanView, state: State, program: p.Program, trace: Trace, reads: Reads) -> None:
        self.view = view
        self.state = state
        self.program = program
        self.trace = trace
        self.reads = reads

    def fill(self, decided: list[e.Event], now: int) -> None:
        view, trace = self.view, self.trace
        back = self._back(decided)
        onward = self._onward(decided, back)
        again = {
            at
            for lane, step in back.items()
            for at in range(trace.since(lane, step), len(trace.steps))
            if at not in trace.undone and trace.is_within(trace.steps[at][0], lane)
        }
        standing = {trace.last[lane.id] for lane in onward if lane.id in trace.last}
        held = {trace.last.get(lane.id, -1) for lane in self.state.lanes.values()} - standing
        view.again = self._counted(again | standing)
        view.kept = self._counted(set(range(len(trace.steps))) - trace.undone - again - standing - held)
        view.jobs = self._jobs(back, onward)
        view.lanes = [PlanLane(lane, self._label(step), True) for lane, step in sorted(back.items())]
        view.lanes += [PlanLane(lane.id, self._label(self._standing(lane)), False) for lane in onward]
        view.locks = self._locks(decided)
        if ROOT_LANE in back:
            view.step = self._label(back[ROOT_LANE])
        elif onward:
            view.step = self._label(self._standing(onward[0]))
        revived = fold(copy_state(self.state), now, decided)
        root = self._first_state(decided, now).lanes.get(ROOT_LANE) or revived.lanes.get(ROOT_LANE)
        variables = root.frames[0].variables if root is not None else {}
        view.variables = {name: plain(value) for name, value in variables.items()}

    def _first_state(self, decided: list[e.Event], now: int) -> State:
        """As it is before its first step is entered again."""
        state = copy_state(self.state)
        for event in decided:
            if isinstance(event, e.LaneAdvanced) and event.lane == ROOT_LANE:
                at = next((at for at, op in enumerate(event.ops) if op[0] == Op.REPLAY), None)
                if at is not None:
                    fold(state, now, [e.LaneAdvanced(ROOT_LANE, event.ops[: at + 1])])
                break
            fold(state, now, [event])
            if isinstance(event, e.ExecutionReplayed):
                break
        return state

    def _back(self, decided: list[e.Event]) -> dict[int, int]:
        """Lanes that go back, and to which step."""
        back: dict[int, int] = {}
        for event in decided:
            if isinstance(event, e.ExecutionReplayed):
                back[ROOT_LANE] = event.step
            elif isinstance(event, e.LaneAdvanced) and event.lane in self.state.lanes and ROOT_LANE not in back:
                for op in event.ops:
                    if op[0] == Op.REPLAY:
                        back[event.lane] = op[1]
        return back

    def _onward(self, decided: list[e.Event], back: dict[int, int]) -> list[Lane]:
        """Lanes that go on where they stand, but for those that only wait for others."""
        if self.view.verb == "replay":
            return []
        parents = {lane.parent for lane in self.state.lanes.values()}
        return [
            lane
            for lane in self.state.lanes.values()
            if lane.id not in parents and not any(self.trace.is_within(lane.id, other) for other in back)
        ]

    def _standing(self, lane: Lane) -> int:
        frame: Frame = lane.frames[-1]
        step = self.program.step_at(frame.scope, frame.body, frame.position)
        return START if step is None else step

    def _label(self, step: int) -> str:
        return "start" if step == START else self.program.label(step)

    def _counted(self, arrivals: set[int]) -> list[PlanStep]:
        counts: dict[int, int] = {}
        for at in sorted(arrivals):
            step = self.trace.steps[at][1]
            counts[step] = counts.get(step, 0) + 1
        return [PlanStep(self.program.label(step), count) for step, count in counts.items()]

    def _jobs(self, back: dict[int, int], onward: list[Lane]) -> list[PlanJob]:
        trace = self.trace
        here = {(lane.id, self._standing(lane)) for lane in onward}
        last = {place: max((id for id, job in trace.jobs.items() if job[:2] == place), default=0) for place in here}
        again = {
            trace.steps[at][1] for lane, step in back.items() for at in range(trace.since(lane, step), len(trace.steps))
        }
        found = []
        for id in sorted(self.state.ledger):
            entry = self.state.ledger[id]
            if not entry.is_residue:
                continue
            lane, step, at = trace.jobs[id]
            is_again = last.get((lane, step)) == id or any(
                trace.is_within(lane, outer)
                and (at > trace.since(outer, to) or (at - 1 in trace.undone and step in again))
                for outer, to in back.items()
            )
            if is_again:
                spec = self.state.specs[entry.spec]
                is_sure = entry.effect is Effect.DONE
                found.append(PlanJob(id, self.program.label(step), spec.block, is_sure, spec.may_repeat))
        return found

    def _locks(self, decided: list[e.Event]) -> list[PlanLock]:
        wanted = {(x.entity, x.name): None for x in decided if isinstance(x, (e.LockTaken, e.LockQueued))}
        if self.view.verb == "resume":
            wanted |= dict.fromkeys(self.trace.released)
        locks = []
        for entity, name in wanted:
            row = self.reads.lock(LockKey(self.state.tenant, entity, name))
            holder = row.holder
            waiting = len(row.waiters)
            who, since = (holder.execution, holder.since) if holder else ("", 0)
            locks.append(PlanLock(entity, name, who, since, waiting))
        return locks
