"""Progress: where an execution is, as a tree of its steps, folded from the events the API shows.

Pure: events in, rows out; how they are drawn is the screen's business. Only steps that take time are rows
(blocks, sleeps, waits, and what runs in lanes of its own); `let` and `log` pass without being seen, and the steps
of a handler are seen once it is entered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import FINALLY, HANDLER, ROOT_LANE, WAITING, Op
from holdfast.core.state import FAR

from .fleet import Fleet

if TYPE_CHECKING:
    from holdfast.language import YamlProgram

SHOWN = frozenset(("block", "load", "sleep", "wait", "wait-signal", "approve"))
#: rows with others below them, because their steps run in lanes of their own
GROUPS = frozenset(("parallel", "graph", "workflow", "each", "foreach", "use", "invoke"))
#: a lane that rests at one of these waits
WAITS = frozenset(("sleep", "wait", "wait-signal", "approve"))
OVER = frozenset(("done", "failed", "handled", "skipped", "cancelled"))


@dataclass(slots=True)
class Work:
    """One job of a row."""

    state: str = "queued"
    attempt: int = 0
    worker: str = ""
    #: why the last attempt failed
    note: str = ""
    #: when a job in back-off tries again
    due: int = 0
    since: int = 0
    ended: int = 0
    lane: int = 0


@dataclass(slots=True)
class Row:
    """One line of the tree: a step, or a branch of a parallel step."""

    label: str
    depth: int
    kind: str
    step: int = -1
    #: set by lanes that come and go; what jobs say comes first
    passed: str = ""
    #: lanes that are here now
    lanes: set[int] = field(default_factory=set)
    jobs: dict[int, Work] = field(default_factory=dict)
    children: list[Row] = field(default_factory=list)
    began: int = 0
    ended: int = 0
    due: int = 0
    signal: str = ""
    #: the branch it stands in
    branch: str = ""
    #: of the steps of a handler: they are not seen before it is entered
    is_hidden: bool = False
    #: it failed, and that is being handled or was
    is_caught: bool = False
    #: how often the step was visited
    visit: int = 1
    #: lanes below it: all, those that are done, those that failed
    count: int = 0
    done: int = 0
    failed: int = 0

    @property
    def title(self) -> str:
        """Its name where no tree is drawn around it."""
        return f"{self.branch} › {self.label}" if self.branch else self.label

    @property
    def state(self) -> str:
        if self.kind == "branch":
            state = _together([child.state for child in self.children])
            return self.passed if self.passed and state == "running" else state
        if self.jobs:
            state = _together([work.state for work in self.jobs.values()])
            if state == "failed" and self.is_caught:
                return "retry" if self.lanes and self.due else "handled"
            return state
        if self.lanes:
            return "waiting" if self.kind in WAITS else "running"
        return self.passed or "pending"

    @property
    def work(self) -> Work | None:
        """The job worth talking about: one in trouble before one that runs before one that is done."""
        order = ("failed", "retry", "running", "queued", "cancelled", "done")
        return min(self.jobs.values(), key=lambda work: order.index(work.state), default=None)

    def times(self) -> tuple[int, int]:
        """When it began and ended, µs; 0 where it has not."""
        if self.kind == "branch":
            spans = [child.times() for child in self.children]
            began = min((start for start, _ in spans if start), default=0)
            return began, max((end for _, end in spans), default=0) if self.state in OVER else 0
        if self.jobs:
            began = min(work.since for work in self.jobs.values())
            is_over = all(work.ended for work in self.jobs.values())
            return began, max(work.ended for work in self.jobs.values()) if is_over else 0
        return self.began, self.ended


def _together(states: list[str]) -> str:
    """One state for many: trouble first, then what moves."""
    for state in ("failed", "retry", "running", "queued", "waiting", "cancelled"):
        if state in states:
            return state
    if all(state == "skipped" for state in states):
        return "skipped"
    if all(state in OVER for state in states):
        return "done"
    return "running" if "done" in states else "pending"


@dataclass(slots=True)
class _Frame:
    scope: int
    body: int
    position: int = 0


class Progress:
    """The fold. `program` may be missing; then there are rows only for what was heard of."""

    def __init__(self, program: YamlProgram | None, id: str = "") -> None:
        self.id = id
        self.program = program
        self.status = "NEW"
        self.seq = 0
        #: of the run that goes on, or was the last
        self.began = 0
        self.ended = 0
        self.error = ""
        self.retries = 0
        self.run = 1
        #: how each entity fares, of one that works upon entities
        self.fleet = Fleet(self._label)
        self._rows: list[Row] = []
        self._by_step: dict[int, Row] = {}
        self._jobs: dict[int, tuple[Row, Work]] = {}
        self._lanes: dict[int, list[_Frame]] = {}
        self._parents: dict[int, int] = {}
        self._marks: dict[tuple[int, int], list[_Frame]] = {}
        #: timer → lane, and when each lane's timer is due
        self._timers: dict[int, int] = {}
        self._due: dict[int, int] = {}
        if program is not None:
            self._plant((-1, 0), 0, self._rows)
            self._plant((-1, HANDLER), 0, self._rows, is_hidden=True)
            self._plant((-1, FINALLY), 0, self._rows)

    @property
    def rows(self) -> list[Row]:
        return [row for row in self._rows if not row.is_hidden or row.state != "pending"]

    # --- rows ---------------------------------------------------------------------------------------
    def _plant(
        self, key: tuple[int, int], depth: int, into: list[Row], branch: str = "", is_hidden: bool = False
    ) -> None:
        for step in self._steps(key):
            if step.index in self._by_step:
                continue  # a registered type that is used twice is shown where it is used first
            at, inner = len(into), depth
            if step.kind in SHOWN or step.kind in GROUPS:
                row = Row(step.label, depth, step.kind, step.index, branch=branch, is_hidden=is_hidden)
                self._by_step[step.index] = row
                into.append(row)
                inner += 1
            bodies = self._bodies(step)
            if step.kind in ("parallel", "graph"):
                self._plant_branches(step, bodies, depth, into, branch, is_hidden)
            else:
                for body in bodies:
                    self._plant(body, inner if step.kind in GROUPS else depth, into, branch, is_hidden)
            if step.kind in GROUPS and len(into) == at + 1:
                # Nothing in it takes time: neither does it.
                del into[at], self._by_step[step.index]
            self._plant((step.index, HANDLER), inner, into, branch, is_hidden=True)
            self._plant((step.index, FINALLY), inner, into, branch, is_hidden)

    def _plant_branches(
        self, step: Any, bodies: list[tuple[int, int]], depth: int, into: list[Row], branch: str, is_hidden: bool
    ) -> None:
        for number, body in enumerate(bodies):
            steps: list[Row] = []
            name = step.keys[number] if step.keys else f"branch {number + 1}"
            self._plant(body, depth + 2, steps, f"{branch} › {name}" if branch else name, is_hidden)
            direct = [child for child in steps if child.depth == depth + 2]
            if len(direct) > 1:
                into.append(Row(name, depth + 1, "branch", children=direct, is_hidden=is_hidden))
            for child in steps if len(direct) == 1 else ():
                # A branch of one step is that step, under the branch's name.
                child.depth -= 1
                child.branch = branch
                child.label = name if step.keys and child is direct[0] else child.label
            into.extend(steps)

    def _steps(self, key: tuple[int, int]) -> Any:
        return self.program.workflow.bodies.get(key, ()) if self.program is not None else ()

    def _bodies(self, step: Any) -> list[tuple[int, int]]:
        """Of a step, in order; handlers and `finally` are none of them."""
        assert self.program is not None
        scope = step.uses if step.uses >= 0 else step.index
        return [(scope, n) for n in range(max(step.bodies, 2)) if (scope, n) in self.program.workflow.bodies]

    def _row(self, step: int) -> Row:
        if step not in self._by_step:
            self._by_step[step] = Row(self._label(step), 0, "block", step)
            self._rows.append(self._by_step[step])
        return self._by_step[step]

    def _label(self, step: int) -> str:
        return self.program.label(step) if self.program is not None else f"step {step + 1}"

    # --- events -------------------------------------------------------------------------------------
    def apply(self, event: dict[str, Any]) -> Row | None:
        """Take one event in; the answer is the row that it is about, if any."""
        self.seq = max(self.seq, event["seq"])
        self.fleet.apply(event)
        at = event["at"]
        match event["type"]:
            case "ExecutionStarted":
                self.began = at
            case "PhasesPassed":
                self.status = event["statuses"][-1]
                if self.status == "RUNNING" and ROOT_LANE not in self._lanes:
                    self._lanes[ROOT_LANE] = [_Frame(-1, 0)]
                    self._arrive(ROOT_LANE, at)
            case "LaneAdvanced":
                self._advance(event["lane"], event["ops"], at)
                return self._at(event["lane"])
            case "JobScheduled":
                row, work = self._row(event["step"]), Work(since=at, lane=event.get("lane", 0))
                self._jobs[event["job"]] = (row, work)
                if event.get("kind", "EXECUTE") != "EXECUTE":
                    return row  # it looks at what the step did, or undoes it, and is no passage through it
                row.passed, row.is_caught, row.visit = "", False, event.get("visit", 1)
                # The lane visits the step anew, or was resumed there; its earlier passage is history.
                row.jobs = {id: x for id, x in row.jobs.items() if x.lane != work.lane or x.state not in OVER}
                row.jobs[event["job"]] = work
                return row
            case "TimerSet":
                if event.get("depth", WAITING) == WAITING:
                    self._timers[event["timer"]] = event["lane"]
                    self._due[event["lane"]] = event["due"]
                    if (rested := self._at(event["lane"])) is not None:
                        rested.due = event["due"]
                    return rested
            case "TimerFired" | "TimerCancelled":
                lane = self._timers.pop(event["timer"], 0)
                self._due.pop(lane, None)
                if (rested := self._at(lane)) is not None:
                    rested.due = 0
            case "CancelRequested":
                self.status = "CANCELLING"
            case "RollbackPlanned":
                self.status = "ROLLBACK"
            case "ErrorRaised":
                self.status, self.error = "ERROR", (event["failure"] or {}).get("message", "")
            case "ExecutionCompleted":
                self._end("COMPLETED", at)
            case "ExecutionFailed":
                self.error = (event.get("failure") or {}).get("message", "") or self.error
                self._end(event["status"], at)
            case "ExecutionCancelled":
                self._end("CANCELLED", at)
            case "ExecutionResumed" | "ExecutionReplayed":
                self._revive(event, at)
            case _ if "job" in event and event["job"] in self._jobs:
                row, work = self._jobs[event["job"]]
                self._job(work, event, at)
                return row
        return None

    def _job(self, work: Work, event: dict[str, Any], at: int) -> None:
        match event["type"]:
            case "JobStarted":
                work.state, work.attempt, work.worker = "running", event["attempt"], event["worker"]
            case "JobSucceeded":
                work.state, work.ended, work.attempt = "done", at, event["attempt"]
            case "JobFailed":
                work.state, work.ended, work.note = "failed", at, event["failure"]["message"]
            case "JobRescheduled":
                failure = event.get("failure")
                work.state, work.due = "retry", event["due"]
                work.note = failure["message"] if failure else ""
                # One that waits for a look at what came of it may never be tried again.
                self.retries += failure is not None and event["due"] < FAR
            case "JobReleased":
                work.state = "queued"
            case "JobCancelled":
                work.state, work.ended = "cancelled", at

    def _end(self, status: str, at: int) -> None:
        self.status, self.ended = status, at
        self._due.clear()
        self._timers.clear()
        for row in self._rows:
            row.due = 0
            if row.kind == "branch":
                row.passed = "done" if status == "COMPLETED" else "cancelled"
            elif row.lanes:
                row.passed = "done" if status == "COMPLETED" else "cancelled"
                row.ended = at
                row.lanes.clear()
            elif row.state == "pending" and status == "COMPLETED" and not row.is_hidden:
                row.passed = "skipped"

    def _revive(self, event: dict[str, Any], at: int) -> None:
        self.run += 1
        self.status, self.began, self.ended, self.error = "RUNNING", at, 0, ""
        for row in self._rows:
            if row.kind == "branch" or row.passed == "skipped":
                row.passed = ""
        if event["type"] == "ExecutionReplayed":
            mark = event.get("mark")
            frames = [_Frame(f["scope"], f["body"], f["position"]) for f in mark["frames"]] if mark else None
            self._go_back(ROOT_LANE, event.get("step", -1), frames)
        for lane in self._lanes:
            self._arrive(lane, at)

    # --- lanes --------------------------------------------------------------------------------------
    def _step_at(self, frame: _Frame) -> Any:
        body = self._steps((frame.scope, frame.body))
        return body[frame.position] if frame.position < len(body) else None

    def _at(self, lane: int) -> Row | None:
        """The innermost row in which a lane is."""
        for frame in reversed(self._lanes.get(lane, ())):
            step = self._step_at(frame)
            if step is not None and step.index in self._by_step:
                return self._by_step[step.index]
        return None

    def _advance(self, lane: int, ops: list[list[Any]], at: int) -> None:
        if lane not in self._lanes:
            return
        self._leave(lane)
        for op in ops:
            frames = self._lanes[lane]
            match op[0]:
                case Op.MOVE:
                    self._pass(frames[-1], op[1], at)
                case Op.PUSH:
                    frames.append(_Frame(op[1], op[2]))
                case Op.POP:
                    frames.pop()
                case Op.CUT:
                    del frames[op[1] :]
                case Op.HANDLE:
                    if op[2] == HANDLER and (row := self._at(lane)) is not None:
                        row.is_caught = True
                    frames.append(_Frame(op[1], op[2]))
                case Op.FAN:
                    if (row := self._at(lane)) is not None:
                        row.count, row.done, row.failed = op[2], 0, 0
                case Op.SPAWN:
                    self._lanes[op[1]] = [_Frame(op[3], op[4])]
                    self._parents[op[1]] = lane
                    self._arrive(op[1], at)
                case Op.LISTEN:
                    if (row := self._at(lane)) is not None:
                        row.signal = op[1]
                case Op.WAYPOINT:
                    if op[2]:
                        self._marks[lane, op[1]] = [_Frame(f.scope, f.body, f.position) for f in frames]
                case Op.REPLAY:
                    self._go_back(lane, op[1])
                case Op.DROP:
                    self._drop_below(lane)
                case Op.REOPEN:
                    self._count(lane, "failed", -1)
                case Op.FAIL:
                    row = self._at(lane)
                    if row is not None and not row.jobs:
                        row.passed, row.ended = "failed", at
                    elif row is not None:
                        row.is_caught = False
                    self._count(lane, "failed")
                    return
                case Op.END:
                    self._pass(frames[-1], frames[-1].position + 1, at)
                    self._count(lane, "done")
                    self._lanes.pop(lane, None)
                    return
        self._arrive(lane, at)

    def _count(self, lane: int, what: str, by: int = 1) -> None:
        row = self._at(self._parents.get(lane, 0))
        if row is not None:
            setattr(row, what, getattr(row, what) + by)

    def _leave(self, lane: int) -> None:
        row = self._at(lane)
        if row is not None:
            row.lanes.discard(lane)
            row.due = 0

    def _arrive(self, lane: int, at: int) -> None:
        """The lane rests here until something happens."""
        row = self._at(lane)
        if row is not None:
            if not row.lanes:
                row.began, row.ended, row.passed = row.began if row.passed == "" and row.began else at, 0, ""
            row.lanes.add(lane)
            row.due = self._due.get(lane, 0)

    def _pass(self, frame: _Frame, target: int, at: int) -> None:
        body = self._steps((frame.scope, frame.body))
        for position in range(frame.position, min(target, len(body))):
            row = self._by_step.get(body[position].index)
            if row is None:
                self._skip(body[position])
            elif not row.jobs:
                # A step where no lane ever rested was not done: its condition did not hold.
                row.passed = "done" if row.began or row.kind in ("wait-signal", "approve", "wait") else "skipped"
                row.ended = at
        for position in range(target, min(frame.position + 1, len(body)) if target < frame.position else target):
            self._reset(body[position])
        frame.position = target

    def _below(self, step: Any) -> Iterator[Any]:
        """All steps in its bodies, its handler and its `finally` too."""
        for body in (*self._bodies(step), (step.index, HANDLER), (step.index, FINALLY)):
            for inner in self._steps(body):
                yield inner
                yield from self._below(inner)

    def _skip(self, step: Any) -> None:
        """It was passed; what nobody entered in it was not done."""
        for inner in self._below(step):
            row = self._by_step.get(inner.index)
            if row is not None and row.state == "pending" and not row.is_hidden:
                row.passed = "skipped"

    def _reset(self, step: Any) -> None:
        """It will be passed anew."""
        for inner in (step, *self._below(step)):
            row = self._by_step.get(inner.index)
            if row is None:
                continue
            row.passed, row.began, row.ended, row.is_caught = "", 0, 0, False
            row.count = row.done = row.failed = 0
            if inner is not step and all(work.state in OVER for work in row.jobs.values()):
                row.jobs.clear()

    def _go_back(self, lane: int, step: int, frames: list[_Frame] | None = None) -> None:
        self._drop_below(lane)
        if frames is None:
            frames = self._marks.get((lane, step), [_Frame(-1, 0)])
        self._lanes[lane] = [_Frame(f.scope, f.body, f.position) for f in frames]
        for frame in frames:
            for ahead in self._steps((frame.scope, frame.body))[frame.position :]:
                self._reset(ahead)
                row = self._by_step.get(ahead.index)
                if row is not None and all(work.state in OVER for work in row.jobs.values()):
                    row.jobs.clear()

    def _drop_below(self, lane: int) -> None:
        for child in [child for child, parent in self._parents.items() if parent == lane and child in self._lanes]:
            self._drop_below(child)
            self._leave(child)
            self._lanes.pop(child, None)

    # --- looking ------------------------------------------------------------------------------------
    def waiting(self) -> Iterator[tuple[Row, int]]:
        """Rows that wait for a time, and until when."""
        for lane, due in self._due.items():
            row = self._at(lane)
            if row is not None:
                yield row, due

    def work(self, job: int) -> Work:
        return self._jobs[job][1]

    def row_of(self, lane: int) -> Row | None:
        """Where a lane is."""
        return self._at(lane)

    def due(self, row: Row) -> int:
        return max((self._due.get(lane, 0) for lane in row.lanes), default=0)

    @property
    def counts(self) -> tuple[int, int]:
        """Jobs done and known of."""
        works = [work for row in self._by_step.values() for work in row.jobs.values()]
        return sum(work.state in OVER for work in works), len(works)
