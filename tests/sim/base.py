"""Words everybody here uses: units of virtual time, how a process dies, how a promise is seen to be broken."""

from __future__ import annotations

SECOND = 1_000_000
MS = 1_000


class Crash(BaseException):
    """The process is gone, in the middle of whatever it did."""


class Violation(BaseException):
    """A promise was broken. Not an `Exception`: no engine may take it for a fault of a request and go on."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
        #: where in the schedule; set by whoever drives it
        self.seed = 0
        self.step = 0
