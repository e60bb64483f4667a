"""The entities an execution works upon, and how far each has come."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from .model import Mode


class Progress(IntEnum):
    NEVER_REACHED = 0
    REACHED = 1
    #: through all steps that are for it
    DONE = 2
    FAILED = 3
    #: taken away by force; nothing it says counts any more
    LOST = 4


#: Nothing more is done for those.
OUT = frozenset((Progress.FAILED, Progress.LOST))


class Subject(msgspec.Struct, array_like=True, gc=False):
    #: place in the sorted set, from 0
    index: int
    id: str
    type: str = ""
    mode: Mode = Mode.X
    progress: Progress = Progress.NEVER_REACHED
    #: why it failed
    reason: str = ""
    #: the outermost entity it is a part of; empty if none
    within: str = ""
    #: index of the step it failed in; -1 where it has not failed
    step: int = -1
    #: the next subject it is a part of, where that lies between it and the outermost entity
    above: str = ""


_RANKS = {"group": 0, "device": 1, "interface": 2}


def order_of(type: str, id: str) -> tuple[int, str, str]:
    """What subjects are sorted by: the whole before its parts, those of one type side by side."""
    rank = _RANKS.get(type, 3)
    return rank, type if rank == 3 else "", id
