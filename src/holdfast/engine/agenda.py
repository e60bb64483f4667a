"""The agenda in memory: what is due soon. The table is the truth; this is only so as not to be late."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from holdfast.core.rows import AgendaRow

#: Rows due later than this from now stay in the table until the next look.
HORIZON = 60_000_000


class Agenda:
    def __init__(self) -> None:
        self._heap: list[tuple[int, str, str, AgendaRow]] = []
        self._known: set[tuple[str, str]] = set()

    def add(self, rows: Iterable[AgendaRow], now: int) -> None:
        for row in rows:
            key = (row.execution, row.item)
            if row.due <= now + HORIZON and key not in self._known:
                self._known.add(key)
                heapq.heappush(self._heap, (row.due, row.execution, row.item, row))

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

    def __len__(self) -> int:
        return len(self._heap)
