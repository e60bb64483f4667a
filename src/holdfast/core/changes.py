"""What each op does to a lane, and to the state around it: one function per code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .lanes import BODY, Aside, Fan, Frame, Lane, Mark, Op, floor_of, with_retry
from .model import Failure, Wait
from .subjects import OUT, Progress

if TYPE_CHECKING:
    from .state import State

#: Lanes, jobs and ledger entries are snapshotted in groups of this many: 1 << GROUP_BITS.
GROUP_BITS = 6
LANES, JOBS, LEDGER, SUBJECTS = 0, 1, 2, 3


def part(kind: int, id: int) -> int:
    """The number of the snapshot part in which lane, job or ledger entry `id` is kept."""
    return id >> GROUP_BITS << 2 | kind


def change(state: State, id: int, ops: tuple[tuple[Any, ...], ...]) -> None:
    """Apply a lane's ops; see `Op` for what each carries. The three of every step come first."""
    lane = state.lanes[id]
    for op in ops:
        code = op[0]
        if code == 1:  # Op.MOVE
            lane.frames[-1].position = op[1]
        elif code == 5:  # Op.RESULT
            job = state.jobs.pop(op[1])
            state.dirty.add(op[1] >> GROUP_BITS << 2 | JOBS)
            _output(lane, job.result, op[2])
        elif code == 6:  # Op.WAIT
            lane.wait = _WAITS[op[1]]
        else:
            _CHANGE[code](state, lane, op)


def as_failure(value: Any) -> Failure | None:
    """A failure as it was, whether it comes from memory or from the store."""
    return value if value is None or isinstance(value, Failure) else msgspec.convert(value, Failure)


def copied(frame: Frame) -> Frame:
    """For a mark: whoever goes back there has no lanes below."""
    return Frame(
        frame.scope, frame.body, frame.position, dict(frame.variables), frame.error, frame.base, frame.is_matched,
        frame.then,
    )  # fmt: skip


# --- values ------------------------------------------------------------------------------------------
def _set(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.frames[0].variables[op[1]] = op[2]


def _unset(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.frames[0].variables.pop(op[1], None)


def _set_output(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.output = op[1]


def _step(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.outputs[op[1]] = op[2]


def _output(lane: Lane, value: Any, step: str) -> None:
    lane.output = value
    if step:
        lane.outputs[step] = value


def _visit(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.visits[op[1]] = op[2]


def _repeat(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    if op[2]:
        lane.repeats[op[1]] = op[2]
    else:
        lane.repeats.pop(op[1], None)


def _retry(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.retries[op[1]] = with_retry(lane.retries.get(op[1], ()), op[2])


def _subject(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    progress = Progress(op[2])
    reason = op[3] if len(op) > 3 else ""
    for index in range(op[1], (op[4] if len(op) > 4 else op[1]) + 1):
        subject = state.subjects[index]
        state.out += (progress in OUT) - (subject.progress in OUT)
        subject.progress, subject.reason = progress, reason
        subject.step = op[5] if len(op) > 5 else -1
        state.dirty.add(part(SUBJECTS, index))


# --- frames ------------------------------------------------------------------------------------------
def _push(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.frames.append(Frame(op[1], op[2], 0, dict(op[3])))


def _pop(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.frames.pop()


def _cut(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    gone = lane.frames[op[1] :]
    del lane.frames[op[1] :]
    if any(frame.aside is not None for frame in gone):
        # Only the lowest of them lies on what stands there now.
        aside = gone[0].aside or Aside(floor_of(lane.frames))
        drop_below(state, lane, aside.floor)
        lane.fan, lane.results, lane.failed = aside.fan, aside.results, aside.failed


def _handle(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    _, scope, body, base, failure, then, *floor = op
    made = Frame(scope, body, 0, {}, as_failure(failure), base, False, None if then is None else tuple(then))
    if floor:
        made.aside = Aside(floor[0], lane.fan, lane.results, lane.failed)
        lane.fan, lane.results, lane.failed = None, {}, 0
    lane.frames.append(made)


def _match(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.frames[-1].is_matched = True


def _phase(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.phase = op[1]


# --- waiting -----------------------------------------------------------------------------------------
def _listen(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.signal, lane.wait = op[1], Wait.SIGNAL


def _forget(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    state.jobs.pop(op[1], None)
    state.dirty.add(part(JOBS, op[1]))


def _consume(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    at = next(i for i, (name, _) in enumerate(state.signals) if name == op[1])
    lane.output = state.signals.pop(at)[1]
    lane.signal = ""


# --- lanes below -------------------------------------------------------------------------------------
def _spawn(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    _, child, branch, scope, body, variables, *more = op
    frames = [Frame(scope, body, 0, dict(variables))]
    made = Lane(child, lane.id, branch, frames, output=lane.output)
    if more:
        made.phase, made.entity = more[:2]
        if len(more) > 2:
            made.output = more[2]
    state.lanes[child] = made
    state.dirty.add(part(LANES, child))
    state.next_lane = child + 1
    lane.open += 1
    if lane.fan is not None:
        lane.fan.next += 1


def _end_lane(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    parent = state.lanes[lane.parent]
    state.dirty.add(part(LANES, parent.id))
    parent.open -= 1
    parent.results[lane.branch] = op[1]
    del state.lanes[lane.id]


def _gather(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    ordered = [lane.results[branch] for branch in sorted(lane.results)]
    lane.results, lane.fan = {}, None
    gathered = ordered if op[2] is None else dict(zip(op[2], ordered, strict=True))
    _output(lane, gathered, op[1])


def _take(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    (value,) = lane.results.values()
    lane.results, lane.fan = {}, None
    _output(lane, value, op[1])


def _fan(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    _, targets, count, limit, reducing = op
    lane.fan = Fan(targets, count, limit, 0, None if reducing is None else dict(reducing))


def _reduce(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    assert lane.fan is not None
    lane.fan.reducing = {**(lane.fan.reducing or {}), **op[1]}


def _drop(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    drop_below(state, lane, floor_of(lane.frames))


def drop_below(state: State, lane: Lane, floor: int = 0) -> None:
    """The lanes below, however deep, and what they left here."""
    lane.results, lane.fan, lane.open, lane.failed = {}, None, 0, 0
    if len(state.lanes) == 1:
        return
    gone = {lane.id}
    # A lane is always younger than its parent.
    for id in sorted(state.lanes):
        parent = state.lanes[id].parent
        if parent in gone and (parent != lane.id or id >= floor):
            gone.add(id)
    for id in gone - {lane.id}:
        state.dirty.add(part(LANES, id))
        del state.lanes[id]


# --- failing, stopping, going back -------------------------------------------------------------------
def _fail(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.failure = as_failure(op[1])
    lane.stop, lane.wait = None, Wait.STOPPED
    if lane.parent:
        parent = state.lanes[lane.parent]
        parent.open -= 1
        parent.failed += 1
        state.dirty.add(part(LANES, parent.id))


def _reopen(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.failure, lane.wait, lane.stop = None, Wait.NOTHING, None
    if lane.parent:
        parent = state.lanes[lane.parent]
        parent.open += 1
        parent.failed -= 1
        state.dirty.add(part(LANES, parent.id))


def _stop(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    lane.stop, lane.stop_base = as_failure(op[1]), op[2]


def _waypoint(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    _, step, mode = op
    if mode != 1:
        lane.waypoints = {}
    if mode:
        lane.waypoints.pop(step, None)  # so that it comes last
        lane.waypoints[step] = Mark([copied(frame) for frame in lane.frames], lane.output, dict(lane.outputs))


def _replay(state: State, lane: Lane, op: tuple[Any, ...]) -> None:
    restore_mark(state, lane, lane.waypoints[op[1]])


def restore_mark(state: State, lane: Lane, mark: Mark) -> None:
    """The lane as it was there. What it counts (visits, retries) goes on; locks stay."""
    drop_below(state, lane)
    lane.frames = [copied(frame) for frame in mark.frames]
    lane.output, lane.outputs = mark.output, dict(mark.outputs)
    lane.wait, lane.phase, lane.signal = Wait.NOTHING, BODY, ""
    lane.failure = lane.stop = None
    lane.repeats = {}
    lane.rounds += 1


_WAITS = {int(wait): wait for wait in Wait}
_CHANGE: dict[int, Callable[[State, Lane, tuple[Any, ...]], None]] = {
    Op.SET: _set,
    Op.OUTPUT: _set_output,
    Op.STEP: _step,
    Op.PUSH: _push,
    Op.POP: _pop,
    Op.SPAWN: _spawn,
    Op.END: _end_lane,
    Op.GATHER: _gather,
    Op.VISIT: _visit,
    Op.LISTEN: _listen,
    Op.UNSET: _unset,
    Op.FORGET: _forget,
    Op.CONSUME: _consume,
    Op.HANDLE: _handle,
    Op.MATCH: _match,
    Op.CUT: _cut,
    Op.WAYPOINT: _waypoint,
    Op.REPLAY: _replay,
    Op.RETRY: _retry,
    Op.FAN: _fan,
    Op.REDUCE: _reduce,
    Op.FAIL: _fail,
    Op.REOPEN: _reopen,
    Op.DROP: _drop,
    Op.PHASE: _phase,
    Op.REPEAT: _repeat,
    Op.STOP: _stop,
    Op.TAKE: _take,
    Op.SUBJECT: _subject,
}
_CODES = {code for name, code in vars(Op).items() if name.isupper()}
assert {1, 5, 6, *_CHANGE} == _CODES == set(range(1, len(_CODES) + 1)), "every op has its function"
