"""Who wants to hear when an execution moves."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.store.records import Header

#: Called in the engine's thread with the newest header, or with None where another engine may have moved it.
Watcher = Callable[[Header | None], None]


class Watchers:
    def __init__(self) -> None:
        self._by_execution: dict[str, list[Watcher]] = {}
        self._lock = threading.Lock()

    def add(self, execution: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` after each commit that touched the execution. Returns what ends it."""
        with self._lock:
            self._by_execution.setdefault(execution, []).append(watcher)

        def unwatch() -> None:
            with self._lock:
                watchers = self._by_execution.get(execution, [])
                if watcher in watchers:
                    watchers.remove(watcher)
                if not watchers:
                    self._by_execution.pop(execution, None)

        return unwatch

    def of(self, execution: str) -> int:
        """How many there are."""
        return len(self._by_execution.get(execution, ()))

    def tell(self, headers: dict[str, Header] | None) -> None:
        """What was just committed; None: anything may have been, elsewhere."""
        if not self._by_execution:
            return
        with self._lock:
            known = self._by_execution
            chosen = known if headers is None else [id for id in headers if id in known]
            calls = [(watcher, headers[id] if headers else None) for id in chosen for watcher in known[id]]
        for watcher, header in calls:
            watcher(header)
