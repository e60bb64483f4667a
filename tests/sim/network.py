"""The wire between workers or clients and engines: it delays, loses, repeats, reorders and breaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import ServerUnreachable
from holdfast.engine.items import Reply

from .base import MS

if TYPE_CHECKING:
    from .hosts import Host, SimEngine
    from .world import World

Ask = Callable[["SimEngine", Reply], None]
Heard = Callable[[Any, Exception | None], None]


class Message:
    """One message under way; faults may change what becomes of it."""

    __slots__ = ("copies", "delay")

    def __init__(self, delay: int) -> None:
        self.delay = delay
        #: 0 means that it is lost
        self.copies = 1


class Network:
    def __init__(self, world: World) -> None:
        self._world = world
        #: (who, machine) → until when nothing gets through
        self.cut: dict[tuple[str, int], int] = {}

    def _message(self, moment: str, source: str, host: Host) -> Message:
        world = self._world
        message = Message(int(world.random() * 12 * MS) + MS)
        if self.cut.get((source, host.n), 0) > world.now:
            world.reach("message lost in a partition")
            message.copies = 0
        elif moment in world.armed:
            world.fire(moment, message, None)
        return message

    def call(self, source: str, host: Host, ask: Ask, heard: Heard) -> None:
        world = self._world
        if "request" not in world.armed and not self.cut:
            world.later(int(world.random() * 12 * MS) + MS, partial(self._arrive, source, host, ask, heard))
            return
        message = self._message("request", source, host)
        for copy in range(message.copies):
            # The second copy takes its own time, so copies overtake each other and what was sent later.
            delay = message.delay if not copy else message.delay + int(world.random() * 200 * MS)
            world.later(delay, partial(self._arrive, source, host, ask, heard))

    def _arrive(self, source: str, host: Host, ask: Ask, heard: Heard) -> None:
        if host.engine is None:
            heard(None, ServerUnreachable("nobody listens there"))
            return
        ask(host.engine, partial(self._answer, source, host, heard))
        host.has_mail()

    def _answer(self, source: str, host: Host, heard: Heard, value: Any, error: Exception | None) -> None:
        world = self._world
        if "answer" not in world.armed and not self.cut:
            world.later(int(world.random() * 12 * MS) + MS, partial(heard, value, error))
            return
        message = self._message("answer", source, host)
        for copy in range(message.copies):
            world.later(message.delay * (copy + 1), partial(heard, value, error))
