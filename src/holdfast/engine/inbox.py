"""What waits for the committer, taken in fair bites: no execution may fill a whole commit while others wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from .items import Ask, Item

MAX_ITEMS = 512
MAX_BYTES = 1 << 20


class Inbox:
    def __init__(self) -> None:
        self._waiting: deque[Item] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def size(self) -> int:
        """Bytes of long values that wait."""
        return self._size

    def extend(self, items: Iterable[Item]) -> None:
        for item in items:
            self._waiting.append(item)
            self._size += item.size

    def put_back(self, items: Iterable[Item]) -> None:
        """In front, in their old order."""
        back = list(items)
        self._waiting.extendleft(reversed(back))
        self._size += sum(item.size for item in back)

    def take(self) -> list[Item]:
        waiting = self._waiting
        if len(waiting) <= MAX_ITEMS:
            taken = list(waiting)
            waiting.clear()
        else:
            taken = self._round_robin()
        if self._size:
            taken = self._bounded(taken)
            self._size -= sum(item.size for item in taken)
        return taken

    def _round_robin(self) -> list[Item]:
        """One item per execution in turn, oldest first, until the commit is full. Items of one execution
        keep their order."""
        lines: dict[str, deque[Item]] = {}
        for item in self._waiting:
            lines.setdefault(item.execution if isinstance(item, Ask) else "", deque()).append(item)
        taken: list[Item] = []
        chosen: set[int] = set()
        while len(taken) < MAX_ITEMS:
            for name in list(lines):
                line = lines[name]
                item = line.popleft()
                taken.append(item)
                chosen.add(id(item))
                if not line:
                    del lines[name]
                if len(taken) == MAX_ITEMS:
                    break
        self._waiting = deque(item for item in self._waiting if id(item) not in chosen)
        return taken

    def _bounded(self, taken: list[Item]) -> list[Item]:
        """Stop before the commit grows beyond MAX_BYTES of long values; at least one item goes."""
        size = 0
        for index, item in enumerate(taken):
            if item.size:
                size += item.size
                if size > MAX_BYTES and index:
                    self._waiting.extendleft(reversed(taken[index:]))
                    return taken[:index]
        return taken
