"""Where an execution may be replayed from, and how it was there.

A waypoint keeps its lane in the state, so replaying from one reads nothing. Any other step is found by walking
through the history once: rare, and only when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import events as e
from .changes import copied
from .errors import CannotReplay, UnknownStep
from .folding import apply
from .lanes import ROOT_LANE, START, Frame, Lane, Mark
from .state import open_state

if TYPE_CHECKING:
    from .program import Program
    from .reads import Reads
    from .state import State

Place = tuple[int, int, int]


class Entry:
    """The last time the root lane stood at a place."""

    __slots__ = ("mark", "waypoints")

    def __init__(self, mark: Mark, waypoints: tuple[int, ...]) -> None:
        self.mark = mark
        #: those that were valid then, the last one last
        self.waypoints = waypoints


def choose(state: State, program: Program, start: str, is_forced: bool, reads: Reads) -> tuple[int, Mark | None]:
    """The step to replay from, and the lane on entry to it where it is no waypoint."""
    root = state.lanes.get(ROOT_LANE) or Lane(ROOT_LANE, frames=[Frame(-1)])
    word = start.strip().lower()
    if not is_forced and not program.is_replayable:
        raise CannotReplay("the workflow says `replayable: disabled`; `--force` replays all the same")
    if word == "last":
        if not root.waypoints:
            raise CannotReplay(f"there is no waypoint to replay from; {_WAY_OUT}")
        return next(reversed(root.waypoints)), None
    if word == "start":
        if START in root.waypoints or is_forced:
            return START, root.waypoints.get(START) or Mark([Frame(-1)])
        raise CannotReplay(f"the start is not a waypoint (`replayable: from start` makes it one); {_WAY_OUT}")
    step = program.find_step(start.strip())
    if step is None:
        raise UnknownStep(f"there is no step {start!r}; give a step's id, its number from 0, `start`, `last` or `end`")
    if step in root.waypoints and not is_forced:
        return step, None
    place = program.place(step)
    found = entries(reads.history(state.id)).get(place) if place else None
    if found is None:
        raise CannotReplay(f"step `{program.label(step)}` has not run in the workflow itself")
    if is_forced:
        return step, found.mark
    valid = [point for point in found.waypoints if point in root.waypoints]
    if not valid:
        raise CannotReplay(
            f"step `{program.label(step)}` is no waypoint, and none was passed on the way to it; {_WAY_OUT}"
        )
    return valid[-1], None


def entries(history: Iterable[tuple[int, tuple[e.Event, ...]]]) -> dict[Place, Entry]:
    """For each place of the root lane, how it was entered last."""
    state = open_state("")
    found: dict[Place, Entry] = {}
    for at, events in history:
        state.at = max(state.at, at)
        for event in events:
            if isinstance(event, e.LaneAdvanced) and event.lane == ROOT_LANE:
                for op in event.ops:
                    apply(state, e.LaneAdvanced(ROOT_LANE, (op,)))
                    _note(state.lanes[ROOT_LANE], found)
            else:
                apply(state, event)
                if isinstance(event, (e.PhasesPassed, e.ExecutionReplayed)) and ROOT_LANE in state.lanes:
                    _note(state.lanes[ROOT_LANE], found)
    return found


def _note(lane: Lane, found: dict[Place, Entry]) -> None:
    """Only where the lane has just come: what happens while it stands there is not its entry."""
    frame = lane.frames[-1]
    place = (frame.scope, frame.body, frame.position)
    last = next(reversed(found), None)
    if place != last:
        found.pop(place, None)
        mark = Mark([copied(each) for each in lane.frames], lane.output, dict(lane.outputs))
        found[place] = Entry(mark, tuple(lane.waypoints))


_WAY_OUT = "`--force` replays from any step, whatever it did"
