"""A lane while it is walked: a thin overlay over the lane in the state; `scope` is what its expressions see of it.

It notes the ops that would make the same change, and answers lookups through them. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from holdfast.core.lanes import BODY, WAITING, Aside, Fan, Frame, Lane, Mark, Op, floor_of, with_retry
from holdfast.core.model import Failure, LogLine, Wait
from holdfast.core.program import CancelTimer, SetTimer

from .compiled import Step
from .evaluate import ABSENT
from .evaluate import FUEL as EXPRESSION_FUEL
from .facts import FACTS
from .names import Value
from .scope import LaneScope

if TYPE_CHECKING:
    from .interpret import Run

#: types that are never worth a reference
SMALL = frozenset((int, float, bool, type(None)))
_NONE: dict[Any, Any] = {}


class Walk(LaneScope):
    # One is made for every step that is taken, so what most of them never touch is a default of the class. What is
    # shared like this is replaced before it is changed.
    run: Run
    output: Any
    #: nothing while the state does not have it yet
    lane: Lane | None
    #: copies of the frames, made when one of them is added or taken away
    stack: list[Frame] | None = None
    #: what became of the variables during this call (ABSENT: removed)
    changed: dict[str, Any] | None = None
    #: outputs of steps that came in during this call
    outputs: dict[str, Any] = _NONE
    #: the results in the state were gathered during this call
    is_emptied = False
    visits: dict[int, int] = _NONE
    repeats: dict[int, int] = _NONE
    retries: dict[str, list[int]] = _NONE
    _marks: dict[int, Mark] | None = None
    _fan: Fan | None = None
    _timers: dict[int, int] | None = None
    #: the step is entered again, so its condition is not asked
    is_resuming = False
    #: the same of the step that is being visited
    was_resuming = False
    #: the step's own input while its expressions are evaluated
    local: dict[str, Any] | None = None
    #: the same while a condition or `output` is evaluated: only what is asked for
    asking: dict[str, Value] | None = None
    fuel = EXPRESSION_FUEL

    def __init__(self, run: Run, lane: Lane) -> None:
        self.run = run
        self.lane = self.own = lane
        self.id = lane.id
        self.parent = lane.parent
        self.branch = lane.branch
        self.site = lane.entity
        self.wait = lane.wait
        self.phase = lane.phase
        self.output = lane.output
        self.open = lane.open
        self.failed = lane.failed
        self.stop = lane.stop
        self.stop_base = lane.stop_base
        self.rounds = lane.rounds
        frame = lane.frames[-1]
        #: position in the state, and where the walk is now
        self.at = self.position = frame.position
        self.body = run.workflow.bodies[frame.scope, frame.body]
        #: variables and outputs of steps as they are in the state
        self.base: Mapping[str, Any] = lane.frames[0].variables
        self.before: Mapping[str, Any] = lane.outputs
        #: results of lanes that ended during this call
        self.results: dict[int, Any] = {}
        self.ops: list[tuple[Any, ...]] = []
        self.logs: list[LogLine] = []

    @classmethod
    def spawned(
        cls, run: Run, id: int, parent: Walk, branch: int, scope: int, body: int, variables: dict[str, Any],
        phase: int = BODY, entity: str = "",
    ) -> Walk:  # fmt: skip
        """A lane that this call has opened; the state does not have it yet."""
        lane = Lane(id, parent.id, branch, [Frame(scope, body, 0, variables)], output=parent.output)
        lane.phase, lane.entity = phase, entity
        walk = cls(run, lane)
        walk.lane = None
        return walk

    # --- frames ------------------------------------------------------------------------------------
    @property
    def frames(self) -> list[Frame]:
        """Not to be changed; the innermost may be behind `position`."""
        return self.own.frames if self.stack is None else self.stack

    @property
    def depth(self) -> int:
        return len(self.frames)

    @property
    def floor(self) -> int:
        return floor_of(self.frames)

    def here(self) -> Step:
        return self.body[self.position]

    def step_at(self, depth: int) -> Step:
        """The step that is being visited in that frame."""
        frame = self.frames[depth]
        position = self.position if depth == len(self.frames) - 1 else frame.position
        return self.run.workflow.bodies[frame.scope, frame.body][position]

    def _own_stack(self) -> list[Frame]:
        if self.stack is None:
            self.stack = [
                Frame(f.scope, f.body, f.position, _NONE, f.error, f.base, f.is_matched, f.then, f.aside)
                for f in self.own.frames
            ]
        self.settle_position()
        return self.stack

    def _enter_frame(self) -> None:
        frame = self.frames[-1]
        self.at = self.position = frame.position
        self.body = self.run.workflow.bodies[frame.scope, frame.body]

    def push(self, scope: int, body: int) -> None:
        stack = self._own_stack()
        self.ops.append((Op.PUSH, scope, body, {}))
        stack.append(Frame(scope, body))
        self._enter_frame()

    def handle(self, scope: int, kind: int, base: int, failure: Failure | None, then: tuple[Any, ...] | None) -> None:
        stack = self._own_stack()
        frame = Frame(scope, kind, 0, _NONE, failure, base, False, then)
        if self.failed or self.fan is not None or self.results or self._all_results():
            floor = self.run.next_lane
            frame.aside = Aside(floor, self.fan, {**self._all_results(), **self.results}, self.failed)
            self.results, self.is_emptied, self.failed, self._fan = {}, True, 0, _NO_FAN
            self.ops.append((Op.HANDLE, scope, kind, base, failure, then, floor))
        else:
            self.ops.append((Op.HANDLE, scope, kind, base, failure, then))
        stack.append(frame)
        self._enter_frame()

    def match(self) -> None:
        stack = self._own_stack()
        if not stack[-1].is_matched:
            self.ops.append((Op.MATCH,))
            stack[-1].is_matched = True

    def cut(self, depth: int) -> None:
        """Only so many frames stay."""
        if depth < self.depth:
            stack = self._own_stack()
            self.ops.append((Op.CUT, depth))
            gone = stack[depth:]
            del stack[depth:]
            if any(frame.aside is not None for frame in gone):
                aside = gone[0].aside or Aside(self.floor)
                self.run.drop_below(self.id, aside.floor)
                self.results, self.is_emptied, self.failed = dict(aside.results), True, aside.failed
                fan = aside.fan
                self._fan = _NO_FAN if fan is None else Fan(fan.targets, fan.count, fan.limit, fan.next, fan.reducing)
            self._enter_frame()
            self._stop_timers(depth)

    def settle_position(self) -> None:
        if self.position != self.at:
            self.ops.append((Op.MOVE, self.position))
            self.at = self.position
        if self.stack is not None:
            self.stack[-1].position = self.position

    # --- changes -----------------------------------------------------------------------------------
    def put(self, *op: Any) -> None:
        self.ops.append(op)

    def set_phase(self, phase: int) -> None:
        if self.phase != phase:
            self.ops.append((Op.PHASE, phase))
            self.phase = phase

    def set_wait(self, wait: Wait) -> None:
        if self.wait is not wait:
            self.ops.append((Op.WAIT, int(wait)))
            self.wait = wait

    def set(self, name: str, value: Any) -> None:
        self.ops.append((Op.SET, name, value))
        self._change(name, value)

    def unset(self, name: str) -> None:
        self.ops.append((Op.UNSET, name))
        self._change(name, ABSENT)

    def _change(self, name: str, value: Any) -> None:
        if self.changed is None:
            self.changed = {}
        self.changed[name] = value

    def set_output(self, value: Any) -> None:
        self.ops.append((Op.OUTPUT, value))
        self.output = value

    def keep_output(self, id: str) -> None:
        """Under the step's id, if anything asks for it."""
        if id:
            self.ops.append((Op.STEP, id, self.output))
            self.remember(id, self.output)

    def remember(self, id: str, value: Any) -> None:
        if self.outputs is _NONE:
            self.outputs = {}
        self.outputs[id] = value

    def log(self, message: str, step: Step) -> None:
        self.logs.append(LogLine(message, step.level, step.label))

    # --- counting ----------------------------------------------------------------------------------
    def visit(self, step: int) -> int:
        """How often the step has been passed, this time included."""
        count = self.visits.get(step) or self.own.visits.get(step, 0)
        count += 1
        if self.visits is _NONE:
            self.visits = {}
        self.visits[step] = count
        self.ops.append((Op.VISIT, step, count))
        return count

    def visited(self, step: int) -> int:
        return self.visits.get(step) or self.own.visits.get(step) or 1 + self.rounds

    def repeated(self, step: int) -> int:
        if step in self.repeats:
            return self.repeats[step]
        return self.own.repeats.get(step, 0)

    def set_repeats(self, step: int, count: int) -> None:
        if self.repeated(step) != count:
            if self.repeats is _NONE:
                self.repeats = {}
            self.repeats[step] = count
            self.ops.append((Op.REPEAT, step, count))

    def retried(self, key: str) -> list[int]:
        return self.retries.get(key) or self.own.retries.get(key) or []

    def note_retry(self, key: str, now: int) -> None:
        times = with_retry(self.retried(key), now)
        if self.retries is _NONE:
            self.retries = {}
        self.retries[key] = times
        self.ops.append((Op.RETRY, key, now))

    # --- waypoints ---------------------------------------------------------------------------------
    @property
    def waypoints(self) -> dict[int, Mark]:
        return self.own.waypoints if self._marks is None else self._marks

    def waypoint(self, step: int, mode: int) -> None:
        self.settle_position()
        self.ops.append((Op.WAYPOINT, step, mode))
        marks = {} if mode != 1 else dict(self.waypoints)
        if mode:
            marks.pop(step, None)
            frames = [
                Frame(f.scope, f.body, f.position, _NONE, f.error, f.base, f.is_matched, f.then) for f in self.frames
            ]
            frames[-1].position = self.position
            frames[0].variables = self.all_variables()
            marks[step] = Mark(frames, self.output, {**self.before, **self.outputs})
        self._marks = marks

    def replay(self, step: int) -> None:
        """Back to where it was; what is counted goes on."""
        mark = self.waypoints[step]
        # What it is still inside of then goes on being timed.
        pairs = zip(self.frames[:-1], mark.frames[:-1], strict=False)
        same = (a.scope == b.scope and a.body == b.body and a.position == b.position for a, b in pairs)
        self._stop_timers(sum(1 for _ in takewhile(bool, same)))
        self.ops.append((Op.REPLAY, step))
        self.stack = [
            Frame(f.scope, f.body, f.position, _NONE, f.error, f.base, f.is_matched, f.then) for f in mark.frames
        ]
        self.base, self.changed = mark.frames[0].variables, None
        self.before, self.outputs = mark.outputs, _NONE
        self.output = mark.output
        self.forget_lanes()  # also those that were set aside: its frames hold none
        self.repeats = dict.fromkeys((*self.own.repeats, *self.repeats), 0)
        self.wait, self.phase = Wait.NOTHING, BODY
        self.stop = None
        self.rounds += 1
        self._enter_frame()

    # --- lanes below -------------------------------------------------------------------------------
    def forget_lanes(self) -> None:
        self.results, self.is_emptied, self.open, self.failed = {}, True, 0, 0
        self._fan = _NO_FAN
        self.run.drop_below(self.id, self.floor)

    def drop(self) -> None:
        """Lanes below, and what they left."""
        if self.open or self.failed or self.fan is not None or self.results or (self._all_results()):
            self.ops.append((Op.DROP,))
            self.forget_lanes()

    @property
    def fan(self) -> Fan | None:
        if self._fan is None:
            fan = self.own.fan if self.lane is not None else None
            if fan is None:
                return None
            self._fan = Fan(fan.targets, fan.count, fan.limit, fan.next, fan.reducing)
        return None if self._fan is _NO_FAN else self._fan

    def set_fan(self, targets: Any, count: int, limit: int, reducing: dict[str, Any] | None) -> None:
        self.ops.append((Op.FAN, targets, count, limit, reducing))
        self._fan = Fan(targets, count, limit, 0, reducing)

    def reduce(self, values: dict[str, Any]) -> None:
        fan = self.fan
        assert fan is not None
        self.ops.append((Op.REDUCE, values))
        fan.reducing = {**(fan.reducing or {}), **values}

    def _all_results(self) -> Mapping[int, Any]:
        return self.lane.results if self.lane is not None and not self.is_emptied else _NONE

    def has_result(self, branch: int) -> bool:
        return branch in self.results or branch in self._all_results()

    def result(self, branch: int) -> Any:
        return self.results[branch] if branch in self.results else self._all_results()[branch]

    def gathered(self) -> list[Any]:
        """Outputs of the lanes below, in the order of their branches. Afterwards there are none."""
        merged = {**self._all_results(), **self.results}
        self.results, self.is_emptied, self._fan = {}, True, _NO_FAN
        return [merged[branch] for branch in sorted(merged)]

    # --- timers ------------------------------------------------------------------------------------
    @property
    def timers(self) -> dict[int, int]:
        if self._timers is None:
            self._timers = dict(self.own.timers) if self.lane is not None else {}
        return self._timers

    def set_timer(self, due: int, depth: int = WAITING) -> None:
        run = self.run
        self.timers[depth] = run.next_timer
        run.next_timer += 1
        run.commands.append(SetTimer(self.id, due, depth))

    def cancel_timer(self, depth: int = WAITING) -> None:
        if (self._timers or self.own.timers) and depth in self.timers:
            self.run.commands.append(CancelTimer(self.timers.pop(depth)))

    def _stop_timers(self, depth: int) -> None:
        """Those of visits in that frame and above: the lane is no longer there."""
        if self._timers or self.own.timers:
            for each in [each for each in self.timers if each >= depth]:
                self.cancel_timer(each)

    def timer_gone(self, depth: int) -> None:
        self.timers.pop(depth, None)

    def about(self, key: str) -> Any:
        """What `workflow.` knows; for expressions, beside the rest of their scope."""
        get = FACTS.get(key)
        return ABSENT if get is None else get(self)


#: stands for "none any more", where nothing means "not looked at yet"
_NO_FAN = Fan(None, 0, 0)
