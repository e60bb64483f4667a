"""What a worker has to say and has not yet said: outcomes, signs of life, lines of log.

Nothing leaves it for good before the engine has answered: what could not be delivered is given back. It
knows neither links nor exchanges' numbers.
"""

from __future__ import annotations

from collections import deque

import msgspec

from holdfast.blocks import Context
from holdfast.transport.messages import Beat, Outcome, Parcel

from .runner import Key

#: how much goes into one exchange
OUTCOMES_LIMIT = 256
BYTES_LIMIT = 1024 * 1024
#: outcomes below this are not weighed: 256 of them stay within the limit anyway
SMALL = 4096


class Outbox:
    def __init__(self) -> None:
        self._outcomes: deque[Outcome] = deque()
        self._sizes: dict[Key, int] = {}
        self._beats: list[Beat] = []
        self._speaking: dict[Key, tuple[Parcel, Context]] = {}

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    @property
    def has_beats(self) -> bool:
        return bool(self._beats or self._speaking)

    def keys(self) -> list[Key]:
        return [(outcome.execution, outcome.job, outcome.attempt) for outcome in self._outcomes]

    def put(self, outcome: Outcome, size: int) -> None:
        """`size` is that of the value, encoded; negative if it was not measured."""
        if size < 0 or size > SMALL or outcome.logs or outcome.changes or outcome.failure is not None:
            size = len(msgspec.msgpack.encode(outcome))
            if size > SMALL:
                self._sizes[(outcome.execution, outcome.job, outcome.attempt)] = size
        if self._speaking:
            spoke = self._speaking.pop((outcome.execution, outcome.job, outcome.attempt), None)
            if spoke is not None and spoke[1].beaten is not spoke[0].details:
                # The next attempt is to find the last details: they go before the outcome that calls for one.
                self._beats.append(_beat(*spoke))
        self._outcomes.append(outcome)

    def speak(self, parcel: Parcel, context: Context) -> None:
        """The attempt has logged something or shown life; what, is asked when there is room to send it."""
        self._speaking[(parcel.execution, parcel.job, parcel.attempt)] = (parcel, context)

    def take(self) -> tuple[list[Outcome], list[Beat]]:
        """All beats, and as many outcomes as one exchange should carry."""
        beats, self._beats = self._beats, []
        beats += [_beat(parcel, context) for parcel, context in self._speaking.values()]
        self._speaking.clear()
        outcomes = self._outcomes
        if not self._sizes and len(outcomes) <= OUTCOMES_LIMIT:
            taken = list(outcomes)
            outcomes.clear()
            return taken, beats
        taken, room = [], BYTES_LIMIT
        while outcomes and len(taken) < OUTCOMES_LIMIT:
            first = outcomes[0]
            room -= self._sizes.get((first.execution, first.job, first.attempt), 0)
            if room < 0 and taken:
                break
            taken.append(outcomes.popleft())
            self._sizes.pop((first.execution, first.job, first.attempt), None)
        return taken, beats

    def give_back(self, outcomes: list[Outcome], beats: list[Beat]) -> None:
        """They were not accepted; they come first next time."""
        for outcome in reversed(outcomes):
            self._outcomes.appendleft(outcome)
            size = len(msgspec.msgpack.encode(outcome))
            if size > SMALL:
                self._sizes[(outcome.execution, outcome.job, outcome.attempt)] = size
        self._beats[:0] = beats


def _beat(parcel: Parcel, context: Context) -> Beat:
    lines = context.take_lines()
    return Beat(parcel.execution, parcel.job, parcel.attempt, parcel.token, context.beaten, lines)
