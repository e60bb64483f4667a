"""What a running block may use: who it runs for, logging, heartbeats, and whether it was asked to stop.

The same class serves all three isolations; how lines and beats travel is given by the runner as two
callables. It must not know workers, transports or the engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast.core.inventory import EntityChange
from holdfast.core.model import Effect, Level, LogLine

from .entities import Entity, Wishes
from .results import Cancelled
from .values import encode

#: characters kept of one log message
MESSAGE_LIMIT = 8192
#: lines that may wait to be sent; a block that logs faster loses the newest, and is told how many
LINES_LIMIT = 1000
#: encoded bytes of heartbeat details; they are remembered by the engine with every beat
DETAILS_LIMIT = 64 * 1024

_LEVELS = {level.name.lower(): level for level in Level}


def _nowhere() -> None:
    return None


class Context:
    """Take it by annotating a parameter: `async def deploy(host: str, ctx: Context)`."""

    def __init__(
        self,
        execution: str = "",
        job: int = 0,
        attempt: int = 1,
        *,
        step: str = "",
        workflow: str = "",
        entity: Entity | str = "",
        kind: str = "EXECUTE",
        fence: int = 0,
        idempotency_key: str = "",
        details: Any = None,
        on_line: Callable[[], None] = _nowhere,
        on_beat: Callable[[], None] = _nowhere,
    ) -> None:
        self.execution = execution
        self.job = job
        self.attempt = attempt
        self.step = step
        self.workflow = workflow
        #: what it is about, as the inventory had it; empty for a job that is about none
        self.entity = entity if isinstance(entity, Entity) else Entity(entity)
        #: EXECUTE, ACQUIRE, VERIFY or ROLLBACK
        self.kind = kind
        #: number under which the entity is held; it only grows, so who is given a lower one is late
        self.fence = fence
        self._wishes = Wishes()
        #: the same for every attempt of the visit: hand it to whatever can deduplicate
        self.idempotency_key = idempotency_key
        #: what the previous attempt last said in a heartbeat
        self.details = details
        #: what the next attempt will find as its `details`
        self.beaten = details
        self._on_line = on_line
        self._on_beat = on_beat
        # A deque, because the block may append in its thread while the worker's loop takes lines away.
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self._is_cancelled = False
        self._reason = ""
        self._stoppers: list[Callable[[], None]] = []

    # --- for the block --------------------------------------------------------------------------
    def log(self, message: str, level: Level | str = Level.INFO) -> None:
        """Say something; it is kept with the execution and shown as it happens."""
        if isinstance(level, str):
            try:
                level = _LEVELS[level.lower()]
            except KeyError:
                raise ValueError(f"unknown log level {level!r}; use one of {', '.join(_LEVELS)}") from None
        else:
            level = Level(level)
        if len(self._lines) >= LINES_LIMIT:
            self._dropped += 1
            return
        text = str(message)
        if not text.isascii():
            # Half a surrogate pair (a file name, often) is no UTF-8: it could not be sent, and would end the worker.
            text = text.encode(errors="replace").decode()
        if len(text) > MESSAGE_LIMIT:
            text = text[:MESSAGE_LIMIT] + f"... ({len(text) - MESSAGE_LIMIT} more characters)"
        self._lines.append(LogLine(text, level, self.step, self.job))
        self._on_line()

    def debug(self, message: str) -> None:
        self.log(message, Level.DEBUG)

    def info(self, message: str) -> None:
        self.log(message, Level.INFO)

    def warning(self, message: str) -> None:
        self.log(message, Level.WARNING)

    def error(self, message: str) -> None:
        self.log(message, Level.ERROR)

    def heartbeat(self, details: Any = None) -> None:
        """Show life and have `details` remembered: the next attempt finds them in `ctx.details`."""
        plain, size = encode(details)
        if size > DETAILS_LIMIT:
            raise ValueError(f"heartbeat details are {size} bytes encoded; the limit is {DETAILS_LIMIT}")
        self.beaten = plain
        self._on_beat()

    def update(
        self,
        id: str = "",
        *,
        facts: Mapping[str, Any] | None = None,
        labels: Mapping[str, str | None] | None = None,
        name: str | None = None,
        parent: str | None = None,
        groups: Iterable[str] | None = None,
    ) -> None:
        """Ask for a change of the entity the job is about, or of another one. Facts and labels are merged key by key; a
        value of `None` removes one. Done if this attempt succeeds and its execution completes."""
        self._wish(id or self.entity.id, "patch", facts=facts, labels=labels, name=name, parent=parent, groups=groups)

    def create(
        self,
        id: str,
        *,
        type: str,
        name: str | None = None,
        parent: str | None = None,
        groups: Iterable[str] | None = None,
        labels: Mapping[str, str | None] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Ask for a new entity; where it exists already, for its change."""
        self._wish(
            id, "create", type=type, facts=facts, labels=labels, name=name, parent=parent, groups=groups
        )  # fmt: skip

    def delete(self, id: str = "") -> None:
        """Ask for an entity to be taken out of the inventory."""
        self._wish(id or self.entity.id, "delete")

    def _wish(self, id: str, op: str, **parts: Any) -> None:
        if self.kind != "EXECUTE":
            raise RuntimeError(f"the inventory is changed by what a block does, not by its hook `{self.kind.lower()}`")
        if not id:
            raise ValueError("the job is about no entity: say which one is to be changed")
        self._wishes.add(id, op, **parts)

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def check_cancelled(self, effect: Effect | None = None) -> None:
        """Raise `Cancelled` if the attempt was asked to stop. Call it between steps that change things.

        `effect` says what was changed by then: `Effect.NONE` before the first of them.
        """
        if self._is_cancelled:
            raise Cancelled(self._reason, effect=effect)

    def on_cancel(self, stop: Callable[[], None]) -> None:
        """Have `stop` called, from another thread, when the attempt is asked to stop.

        For a thread that waits where it cannot look at `is_cancelled`: close the socket, set the event.
        """
        self._stoppers.append(stop)
        if self._is_cancelled:
            stop()

    # --- for the runner -------------------------------------------------------------------------
    def cancel(self, reason: str) -> None:
        self._reason = reason
        self._is_cancelled = True
        for stop in self._stoppers:
            try:
                stop()
            except Exception as error:
                self.warning(f"on_cancel callback failed: {error!r}")

    def hear(self, lines: list[LogLine]) -> None:
        """Lines that a child process said on behalf of this attempt."""
        self._lines.extend(lines)
        self._on_line()

    @property
    def changes(self) -> list[EntityChange]:
        return self._wishes.asked

    def take_lines(self) -> list[LogLine]:
        lines: list[LogLine] = []
        while self._lines:
            lines.append(self._lines.popleft())
        if self._dropped:
            lines.append(LogLine(f"{self._dropped} log lines dropped", Level.WARNING, self.step, self.job))
            self._dropped = 0
        return lines
