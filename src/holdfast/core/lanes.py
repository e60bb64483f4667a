"""Lanes: the interpreter's state as data, and the small operations that change it.

A lane is one sequential thread of steps. Its frames are the containers it is inside of, innermost last.
`LaneAdvanced.ops` is a tuple of ops; each op is a tuple that begins with its code. The program works
out what should happen; only `change` here makes it so, live and on rebuild alike.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .model import Wait

ROOT_LANE = 1


class Frame(msgspec.Struct, array_like=True, gc=False):
    #: index of the step whose body is walked; -1 is the workflow itself
    scope: int
    #: which body of that step (a parallel step has one per branch)
    body: int = 0
    #: position within the body: the step that is being, or will next be, visited
    position: int = 0
    variables: dict[str, Any] = {}


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
    #: passages through steps that were passed more than once
    visits: dict[int, int] = {}
    #: lanes it waits for, still open
    open: int = 0
    #: outputs of the lanes it waits for, by branch
    results: dict[int, Any] = {}
    #: name of the signal it waits for
    signal: str = ""


class Op:
    """Codes of ops. Plain numbers, because they are what is stored and there are several per step."""

    MOVE = 1  #: (position) in the innermost frame
    SET = 2  #: (name, value) variable in the innermost frame that has it, else in the innermost
    OUTPUT = 3  #: (value)
    STEP = 4  #: (step id, value) remember the output of a step
    RESULT = 5  #: (job, step id or "") the job's result becomes the output; the job is forgotten
    WAIT = 6  #: (Wait)
    PUSH = 7  #: (scope, body, variables)
    POP = 8  #: ()
    SPAWN = 9  #: (lane, branch, scope, body, variables) open a lane below this one
    END = 10  #: (value) this lane has ended; its parent gets the value
    GATHER = 11  #: (step id or "", keys or None) results of the lanes below become the output, by branch
    VISIT = 12  #: (step, count)
    LISTEN = 13  #: (signal name) and wait for it
    UNSET = 14  #: (name)
    FORGET = 15  #: (job) the job's failure was handled
    CONSUME = 16  #: (name) the first kept signal of that name becomes the output


def find_frame(lane: Lane, name: str) -> Frame:
    """The frame a variable lives in: the innermost that has it, else the innermost."""
    for frame in reversed(lane.frames):
        if name in frame.variables:
            return frame
    return lane.frames[-1]
