"""States in memory between turns."""

from __future__ import annotations

from holdfast.core import events as e
from holdfast.core.state import State

#: µs without anything to do after which a state is not worth its memory.
SLEEP = 5_000_000
#: Lanes and ledger entries up to which reading a state again costs little. A wide or long one stays: what a
#: transition costs must not depend on how much there is.
SMALL = 64


class Cached:
    """A state in memory and what the store needs to know to go on from it."""

    __slots__ = ("digest", "events", "logs", "snapshot", "state", "summary")

    def __init__(self, state: State, digest: bytes, snapshot: int, logs: int) -> None:
        self.state = state
        self.digest = digest
        self.snapshot = snapshot
        self.logs = logs
        #: packed; None means it has to be packed again
        self.summary: bytes | None = None
        #: applied in the turn under way, not yet committed
        self.events: list[e.Event] = []


def is_asleep(state: State, now: int) -> bool:
    """Nothing of it moves for a while: whoever wakes it reads it again, and until then it costs no memory."""
    if state.jobs or state.is_turn_open or len(state.lanes) + len(state.ledger) > SMALL:
        return False
    return all(timer.due > now + SLEEP for timer in state.timers.values())
