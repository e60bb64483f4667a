"""A purge as an item of a turn: which of the executions that were chosen are still as they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.reads import HeaderKey, Key, Missing
from holdfast.store.records import Batch, Header

from .retention import is_forgettable


class Purge:
    """Forget these executions, each as it was at (version, log lines). Answers with the ids of those that are gone."""

    __slots__ = ("reply", "wanted")
    size = 0

    def __init__(self, wanted: dict[str, tuple[int, int]], reply: Callable[[Any, Exception | None], None]) -> None:
        self.wanted = wanted
        self.reply = reply

    def decide(self, rows: Mapping[Key, Any], asked: set[str], batch: Batch) -> list[str]:
        """`rows` are read under the executions' locks. Who was resumed or replayed since it was chosen stays, and so
        does whoever wrote a line, or is `asked` for something in this very turn."""
        keys = [HeaderKey(id) for id in self.wanted if id not in asked]
        if unread := [key for key in keys if key not in rows]:
            raise Missing(*unread)
        taken = {id for id, _ in batch.purged}
        gone: list[str] = []
        for key in keys:
            header: Header | None = rows[key]
            if header is None or header.id in taken or not is_forgettable(header):
                continue
            if (header.version, header.logs) == self.wanted[header.id]:
                batch.purged.append((header.id, header.version))
                gone.append(header.id)
        return gone
