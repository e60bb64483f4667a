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


class Subject(msgspec.Struct, array_like=True, gc=False):
    #: place in the sorted set, from 0
    index: int
    id: str
    type: str = ""
    mode: Mode = Mode.X
    progress: Progress = Progress.NEVER_REACHED
    #: why it failed
    reason: str = ""
    #: place of the one it is a part of; -1 where that is not among them
    parent: int = -1
