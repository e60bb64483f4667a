"""The agenda in memory: what is due soon, and what could not be done because of a bug.

The table is the truth; this is only so as not to be late, nor to try the impossible without a pause.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.core.requests import Due
from holdfast.core.rows import AgendaRow

#: Rows due later than this from now stay in the table until the next look.
HORIZON = 60_000_000
#: µs of pause after the first bug; twice as long after each further one, up to the second number.
PAUSE, LONGEST_PAUSE = 1_000_000, 3600_000_000
#: Stumbles kept; beyond that the oldest is forgotten, and tried without a pause once.
STUMBLES = 10_000


class Stumble(NamedTuple):
    """An item that trips a bug each time it is tried."""

    tries: int
    #: not tried before then
    until: int
    why: str


class Agenda:
    def __init__(self) -> None:
        self._stumbles: dict[tuple[str, Due], Stumble] = {}
        self._heap: list[tuple[int, str, str, AgendaRow]] = []
        self._known: set[tuple[str, str]] = set()

    def add(self, rows: Iterable[AgendaRow], now: int) -> None:
        for row in rows:
            key = (row.execution, row.item)
            due = row.due
            if self._stumbles and (stumble := self.stumble(row)) is not None:
                due = max(due, min(stumble.until, now + LONGEST_PAUSE))  # the clock may have been set back
            if due <= now + HORIZON and key not in self._known:
                self._known.add(key)
                heapq.heappush(self._heap, (due, row.execution, row.item, row))

    def next_due(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take(self, now: int, limit: int = 256) -> list[AgendaRow]:
        """What is due. Taking is forgetting: if applying it fails, the next look finds it again."""
        taken: list[AgendaRow] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < limit:
            row = heapq.heappop(self._heap)[3]
            self._known.discard((row.execution, row.item))
            taken.append(row)
        return taken

    # --- bugs ---------------------------------------------------------------------------------------
    def stumbled(self, execution: str, request: Due, why: str, now: int) -> None:
        before = self._stumbles.pop((execution, request), None)
        tries = before.tries + 1 if before is not None else 1
        pause = min(LONGEST_PAUSE, PAUSE << min(tries - 1, 32))
        self._stumbles[execution, request] = Stumble(tries, now + pause, why)
        if len(self._stumbles) > STUMBLES:
            del self._stumbles[next(iter(self._stumbles))]

    def stumble(self, row: AgendaRow) -> Stumble | None:
        """From any thread."""
        return self._stumbles.get((row.execution, row.request))

    @property
    def has_stumbles(self) -> bool:
        return bool(self._stumbles)

    def went_well(self, asked: Iterable[tuple[str, object]]) -> None:
        for execution, request in asked:
            if isinstance(request, Due):
                self._stumbles.pop((execution, request), None)

    def __len__(self) -> int:
        return len(self._heap)
