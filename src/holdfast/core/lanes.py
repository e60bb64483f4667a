"""Lanes: the interpreter's state as data, and the codes of the small operations that change it.

A lane is one sequential thread of steps. Its frames are the containers it is inside of, innermost last.
`LaneAdvanced.ops` is a tuple of ops; each op is a tuple that begins with its code. The program works
out what should happen; only `core.changes` makes it so, live and on rebuild alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .model import Failure, Wait

ROOT_LANE = 1

#: bodies of a step, or of the workflow, that are not walked by themselves
HANDLER = -1
FINALLY = -2

#: where a lane stands within a visit; BODY is the step's own work
BODY, ENTERING, DELAY, PAUSE = 0, 1, 2, 3
#: before a step that is entered again, so its condition is not asked; the same before what holds for the whole lane
AGAIN, REENTERING = 4, 5

#: the waypoint at the very beginning of a lane
START = -1


class Fan(msgspec.Struct, array_like=True, gc=False):
    """A step that runs its body for many targets."""

    #: a list, a reference to one, or ["range", first, last]; of entities ["ranges", first, last, first, last, …]
    targets: Any
    count: int
    #: lanes at the same time
    limit: int
    #: targets that have their lane, or had it
    next: int = 0
    reducing: dict[str, Any] | None = None


class Aside(msgspec.Struct, array_like=True, gc=False):
    """The lanes below the step that a handler or `finally` lies on: its own steps have lanes too, and must neither
    see nor wake those."""

    #: lanes below this number are set aside
    floor: int
    fan: Fan | None = None
    results: dict[int, Any] = {}
    failed: int = 0


class Frame(msgspec.Struct, array_like=True, gc=False):
    #: index of the step whose body is walked; -1 is the workflow itself
    scope: int
    #: which body of that step (a parallel step has one per branch)
    body: int = 0
    #: position within the body: the step that is being, or will next be, visited
    position: int = 0
    #: all variables of a lane are in its outermost frame
    variables: dict[str, Any] = {}
    #: of a handler or `finally`: what is being handled, or waits until the end
    error: Failure | None = None
    #: of a handler or `finally`: the frames below this many are those of the step it belongs to
    base: int = 0
    #: of a handler: a step of it matched
    is_matched: bool = False
    #: of `finally`: where the lane was going; ("goto", target) or ("return",)
    then: tuple[Any, ...] | None = None
    #: of a handler or `finally`: what waits here until it is left
    aside: Aside | None = None


class Mark(msgspec.Struct, array_like=True, gc=False):
    """A waypoint: the lane as it was on entry to a step."""

    frames: list[Frame]
    output: Any = None
    outputs: dict[str, Any] = {}


class Lane(msgspec.Struct, array_like=True, gc=False):
    id: int
    #: 0 for the root lane
    parent: int = 0
    #: which of its parent's lanes of the current step this is
    branch: int = 0
    frames: list[Frame] = []
    wait: Wait = Wait.NOTHING
    #: output of the previous step
    output: Any = None
    #: outputs of finished steps that have an id
    outputs: dict[str, Any] = {}
    #: passages through steps that can be passed more than once
    visits: dict[int, int] = {}
    #: lanes it waits for, still open
    open: int = 0
    #: outputs of the lanes it waits for, by branch
    results: dict[int, Any] = {}
    #: name of the signal it waits for
    signal: str = ""
    #: where its steps work; empty: where its parent's do
    entity: str = ""
    phase: int = BODY
    #: by index of their step, the last one reached last
    waypoints: dict[int, Mark] = {}
    #: when retries happened, by what they are counted under
    retries: dict[str, list[int]] = {}
    #: how often it went back to a waypoint
    rounds: int = 0
    #: step → passages through it by `repeat`
    repeats: dict[int, int] = {}
    fan: Fan | None = None
    #: it failed with this and stays until its parent has taken notice, or for good
    failure: Failure | None = None
    #: lanes below it that failed
    failed: int = 0
    #: it is being stopped with this: what is in flight is waited for
    stop: Failure | None = None
    #: the frames below this many stay then
    stop_base: int = 0
    #: running timers: for which visit (depth of its frame; -1 its own wait, -2 the whole lane) → timer
    timers: dict[int, int] = {}


def floor_of(frames: list[Frame]) -> int:
    """Lanes below a lane that have a lower number are set aside: they belong to what a handler lies on."""
    return next((frame.aside.floor for frame in reversed(frames) if frame.aside is not None), 0)


#: Retries remembered under one key. Beyond that the first and the last of them are: a loop must not grow for ever.
MAX_RETRIES = 10_000


def with_retry(times: Sequence[int], at: int) -> list[int]:
    return [*times, at] if len(times) < MAX_RETRIES else [times[0], *times[2:], at]


#: A lane that listens for a signal whose name begins so waits for a person's word,
APPROVAL = "approve/"
#: and has said so in a line that begins so.
ASKS = "needs approval: "

#: keys of `Lane.timers` that are no depth
WAITING, WHOLE = -1, -2


class Op:
    """Codes of ops. Plain numbers, because they are what is stored and there are several per step."""

    MOVE = 1  #: (position) in the innermost frame
    SET = 2  #: (name, value) variable of the lane
    OUTPUT = 3  #: (value)
    STEP = 4  #: (step id, value) remember the output of a step
    RESULT = 5  #: (job, step id or "") the job's result becomes the output; the job is forgotten
    WAIT = 6  #: (Wait)
    PUSH = 7  #: (scope, body, variables)
    POP = 8  #: ()
    SPAWN = 9  #: (lane, branch, scope, body, variables, [phase, entity, [output]]) open a lane below this one
    END = 10  #: (value) this lane has ended; its parent gets the value
    GATHER = 11  #: (step id or "", keys or None) results of the lanes below become the output, by branch
    VISIT = 12  #: (step, count)
    LISTEN = 13  #: (signal name) and wait for it
    UNSET = 14  #: (name)
    FORGET = 15  #: (job) the job's end was taken notice of
    CONSUME = 16  #: (name) the first kept signal of that name becomes the output
    HANDLE = 17  #: (scope, HANDLER or FINALLY, base, failure or None, then, [floor]) on top of what stands there
    MATCH = 18  #: () a step of the innermost handler matched
    CUT = 19  #: (depth) only so many frames stay
    WAYPOINT = 20  #: (step, 0 forget all | 1 add | 2 forget all and add)
    REPLAY = 21  #: (step) back to that waypoint; lanes below are gone
    RETRY = 22  #: (counted under, µs)
    FAN = 23  #: (targets, count, limit, reducing or None)
    REDUCE = 24  #: (values)
    FAIL = 25  #: (failure) the lane failed; it stays where it is
    REOPEN = 26  #: () the lane goes on where it failed
    DROP = 27  #: () the lanes below are gone, and what they left
    PHASE = 28  #: (phase)
    REPEAT = 29  #: (step, count; 0 forgets)
    STOP = 30  #: (failure, depth) wait for what is in flight, then fail with that
    TAKE = 31  #: (step id or "") the result of the one lane below becomes the output
    SUBJECT = 32  #: (index, Progress, [reason, [last index, [step]]]) how far an entity, or all up to the last, came
