"""Following one execution: its events and log lines, in order, onto a screen, until it has ended.

A thread listens; the caller's thread shows, keeps the deadline and can be interrupted. What to do when the
server goes away is the caller's business: the screen knows how far it has come.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import TimedOut
from holdfast.core.views import ExecutionView, LogView

from .screens import Screen

if TYPE_CHECKING:
    from holdfast.client.verbs import Verbs

#: seconds between looks for log lines while nothing else happens
LOOK = 0.5


class Feed:
    """Events of one execution, listened for in a thread of its own."""

    def __init__(self, verbs: Verbs, id: str, after: int) -> None:
        self._verbs, self._id, self._after = verbs, id, after
        self.queue: queue.SimpleQueue[dict[str, Any] | Exception | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="holdfast-feed", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for event in self._verbs.follow(self._id, self._after):
                self.queue.put(event)
            self.queue.put(None)
        except Exception as error:
            self.queue.put(error)

    def take(self, timeout: float) -> tuple[list[dict[str, Any]], bool]:
        """What has come, and whether it was the last; raises what ended the listening."""
        events: list[dict[str, Any]] = []
        try:
            item = self.queue.get(timeout=timeout)
            while True:
                if isinstance(item, Exception):
                    if events:
                        self.queue.put(item)
                        return events, False
                    raise item
                if item is None:
                    return events, True
                events.append(item)
                item = self.queue.get_nowait()
        except queue.Empty:
            return events, False


class Follower:
    """Shows an execution on a screen. Can be continued through other verbs after a failure."""

    def __init__(self, id: str, screen: Screen, logs: int = 0) -> None:
        self.id = id
        self.screen = screen
        #: number of the last log line that was shown
        self._logs = logs
        self._trouble = ""

    def until_ended(self, verbs: Verbs, deadline: float | None = None) -> ExecutionView:
        """`TimedOut` when the deadline (monotonic) passes; whatever `verbs` raises passes through."""
        feed = Feed(verbs, self.id, self.screen.progress.seq)
        is_over = False
        while not is_over:
            left = LOOK if deadline is None else min(LOOK, deadline - time.monotonic())
            if left <= 0:
                raise TimedOut(f"execution {self.id[:8]} has not ended in the time given; it goes on")
            events, is_over = feed.take(left)
            self._show(events, self._new_logs(verbs))
            self.tell(getattr(verbs, "trouble", ""))
            self.screen.tick()
        return verbs.show(self.id)

    def tell(self, trouble: str) -> None:
        """Why nothing is committed just now; empty when all is well again."""
        if bool(trouble) != bool(self._trouble):
            self.screen.note(f"  waiting: {trouble}" if trouble else "  the store is well again; going on")
        self._trouble = trouble

    def _new_logs(self, verbs: Verbs) -> list[LogView]:
        lines: list[LogView] = []
        while page := verbs.logs(self.id, self._logs):
            lines += page
            self._logs = page[-1].number
            if len(page) < 500:
                break
        return lines

    def _show(self, events: list[dict[str, Any]], lines: list[LogView]) -> None:
        # Two lists that are each in order become one. At the same time, what a block said comes before its end,
        # what a `log` step says after whatever led to it.
        waiting = iter(lines)
        line = next(waiting, None)
        for event in events:
            while line is not None and (line.at < event["at"] or (line.at == event["at"] and line.job)):
                self.screen.log(line)
                line = next(waiting, None)
            self.screen.event(event)
        while line is not None:
            self.screen.log(line)
            line = next(waiting, None)
