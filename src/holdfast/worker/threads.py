"""Threads for blocks that may not block the worker's loop but need not be killable.

They are daemons and as many as are busy at once: one that never comes back must neither hold up others
nor the end of the process. (An executor's threads would do both.)
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Call = Callable[[], None]


class Threads:
    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0

    def submit(self, call: Call) -> None:
        """Run `call` in a thread; it must not raise."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._count += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
        self._calls.put(call)

    def close(self) -> None:
        with self._lock:
            for _ in range(self._count):
                self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # what it refers to must not live on until the next one
            with self._lock:
                self._idle += 1
