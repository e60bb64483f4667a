"""Progress: where an execution is, as a tree of its steps, folded from the events the API shows.

Pure: events in, rows out; how they are drawn is the screen's business. Only steps that take time are rows
(blocks, sleeps, signals, branches); `let` and `log` pass without being seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import ROOT_LANE, Op

if TYPE_CHECKING:
    from holdfast.language import YamlProgram

SHOWN = frozenset(("block", "sleep", "wait-signal", "parallel"))
OVER = frozenset(("done", "failed", "skipped", "cancelled"))


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
            return _together([work.state for work in self.jobs.values()])
        if self.lanes:
            return "waiting" if self.kind in ("sleep", "wait-signal") else "running"
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
        self.rows: list[Row] = []
        self.status = "NEW"
        self.seq = 0
        self.began = 0
        self.ended = 0
        self.error = ""
        self.retries = 0
        self._by_step: dict[int, Row] = {}
        self._jobs: dict[int, tuple[Row, Work]] = {}
        self._lanes: dict[int, list[_Frame]] = {}
        #: timer → lane, and when each lane's timer is due
        self._timers: dict[int, int] = {}
        self._due: dict[int, int] = {}
        if program is not None:
            self._plant((-1, 0), 0, self.rows)

    def _plant(self, key: tuple[int, int], depth: int, into: list[Row], branch: str = "") -> None:
        assert self.program is not None
        for step in self.program.workflow.bodies.get(key, ()):
            if step.kind not in SHOWN:
                continue
            row = Row(step.label, depth, step.kind, step.index, branch=branch)
            self._by_step[step.index] = row
            into.append(row)
            for body in range(step.bodies):
                steps: list[Row] = []
                name = step.keys[body] if step.keys else f"branch {body + 1}"
                self._plant((step.index, body), depth + 2, steps, f"{branch} › {name}" if branch else name)
                direct = [child for child in steps if child.depth == depth + 2]
                if len(direct) > 1:
                    into.append(Row(name, depth + 1, "branch", children=direct))
                for child in steps if len(direct) == 1 else ():
                    # A branch of one step is that step, under the branch's name.
                    child.depth -= 1
                    child.branch = branch
                    child.label = name if step.keys and child is direct[0] else child.label
                into.extend(steps)

    def _row(self, step: int) -> Row:
        if step not in self._by_step:
            self._by_step[step] = Row(f"step {step + 1}", 0, "block", step)
            self.rows.append(self._by_step[step])
        return self._by_step[step]

    # --- events -------------------------------------------------------------------------------------
    def apply(self, event: dict[str, Any]) -> Row | None:
        """Take one event in; the answer is the row that it is about, if any."""
        self.seq = max(self.seq, event["seq"])
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
            case "JobScheduled":
                row, work = self._row(event["step"]), Work(since=at)
                row.passed = ""
                if all(other.state in OVER for other in row.jobs.values()) and event.get("visit", 1) > 1:
                    row.jobs.clear()  # the step is visited anew; its earlier passage is history
                row.jobs[event["job"]] = work
                self._jobs[event["job"]] = (row, work)
                return row
            case "TimerSet":
                self._timers[event["timer"]] = event["lane"]
                self._due[event["lane"]] = event["due"]
                return self._at(event["lane"])
            case "TimerFired" | "TimerCancelled":
                self._due.pop(self._timers.pop(event["timer"], 0), None)
            case "CancelRequested":
                self.status = "CANCELLING"
            case "ErrorRaised":
                self.status, self.error = "ERROR", (event["failure"] or {}).get("message", "")
            case "ExecutionCompleted":
                self._end("COMPLETED", at)
            case "ExecutionFailed":
                self.error = (event.get("failure") or {}).get("message", "") or self.error
                self._end(event["status"], at)
            case "ExecutionCancelled":
                self._end("CANCELLED", at)
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
                self.retries += failure is not None
            case "JobReleased":
                work.state = "queued"
            case "JobCancelled":
                work.state, work.ended = "cancelled", at

    def _end(self, status: str, at: int) -> None:
        self.status, self.ended = status, at
        for row in self.rows:
            if row.kind == "branch":
                row.passed = "done" if status == "COMPLETED" else "cancelled"
            elif row.lanes:
                row.passed = "done" if status == "COMPLETED" else "cancelled"
                row.ended = at
                row.lanes.clear()
            elif not row.jobs and not row.passed and status == "COMPLETED":
                row.passed = "skipped"

    # --- lanes --------------------------------------------------------------------------------------
    def _body(self, frame: _Frame) -> Any:
        return self.program.workflow.bodies.get((frame.scope, frame.body), ()) if self.program else ()

    def _at(self, lane: int) -> Row | None:
        frames = self._lanes.get(lane)
        if not frames:
            return None
        body = self._body(frames[-1])
        position = frames[-1].position
        return self._by_step.get(body[position].index) if position < len(body) else None

    def _advance(self, lane: int, ops: list[list[Any]], at: int) -> None:
        if lane not in self._lanes:
            return
        self._leave(lane)
        for op in ops:
            frames = self._lanes.get(lane)
            if not frames:
                return
            match op[0]:
                case Op.MOVE:
                    self._pass(frames[-1], op[1], at)
                case Op.PUSH:
                    frames.append(_Frame(op[1], op[2]))
                case Op.POP:
                    frames.pop()
                case Op.SPAWN:
                    self._lanes[op[1]] = [_Frame(op[3], op[4])]
                    self._arrive(op[1], at)
                case Op.LISTEN:
                    row = self._at(lane)
                    if row is not None:
                        row.signal = op[1]
                case Op.END:
                    self._pass(frames[-1], frames[-1].position + 1, at)
                    self._lanes.pop(lane, None)
                    return
        self._arrive(lane, at)

    def _leave(self, lane: int) -> None:
        row = self._at(lane)
        if row is not None:
            row.lanes.discard(lane)

    def _arrive(self, lane: int, at: int) -> None:
        """The lane rests here until something happens."""
        row = self._at(lane)
        if row is not None:
            if not row.lanes:
                row.began, row.ended, row.passed = row.began if row.passed == "" and row.began else at, 0, ""
            row.lanes.add(lane)
            row.due = self._due.get(lane, 0)

    def _pass(self, frame: _Frame, target: int, at: int) -> None:
        body = self._body(frame)
        for position in range(frame.position, min(target, len(body))):
            row = self._by_step.get(body[position].index)
            if row is None or row.jobs:
                continue
            # A step where no lane ever rested was not done: its condition did not hold.
            row.passed = "done" if row.began or row.kind == "wait-signal" else "skipped"
            row.ended = at
        for position in range(target, min(frame.position + 1, len(body)) if target < frame.position else target):
            row = self._by_step.get(body[position].index)
            if row is not None:
                row.passed, row.began, row.ended = "", 0, 0
        frame.position = target

    # --- looking ------------------------------------------------------------------------------------
    def waiting(self) -> Iterator[tuple[Row, int]]:
        """Rows that wait for a time, and until when."""
        for lane, due in self._due.items():
            row = self._at(lane)
            if row is not None:
                yield row, due

    def due(self, row: Row) -> int:
        return max((self._due.get(lane, 0) for lane in row.lanes), default=0)

    @property
    def counts(self) -> tuple[int, int]:
        """Jobs done and known of."""
        works = [work for row in self._by_step.values() for work in row.jobs.values()]
        return sum(work.state in OVER for work in works), len(works)
