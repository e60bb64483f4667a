"""Machines with an engine on them: the real `Engine` without its thread, stepped when it has something to do.

Each machine has a monotonic clock of its own, which begins anywhere, drifts, and stands still while the machine
is suspended. What an engine takes for the time is what it makes of that and of the store's clock. When it
sleeps, or waits inside of a commit, the rest of the world goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import Refused, StoreUnavailable
from holdfast.core.program import Program
from holdfast.engine.engine import Engine
from holdfast.engine.items import Item
from holdfast.engine.patience import Patience
from holdfast.language import program_from_bytes
from holdfast.store.records import Batch

from .base import MS, SECOND, Crash, Violation
from .memory import MemoryStore
from .models import LOCKED

if TYPE_CHECKING:
    from .world import World

#: what reaches an engine within this time is one turn
TOGETHER = 60 * MS
_programs: dict[bytes, Program] = {}


def compiled(data: bytes) -> Program:
    """Worlds share what never changes."""
    if data not in _programs:
        _programs[data] = LOCKED.get(data) or program_from_bytes(data)
    return _programs[data]


class HostTime:
    """Stands for the module `time` inside of the engine: the clock of the machine that is being stepped."""

    def __init__(self) -> None:
        self.host: Host | None = None

    def monotonic_ns(self) -> int:
        host = self.host
        assert host is not None, "an engine was run outside of its machine"
        return (host.world.now + host.ahead) * 1000

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        assert self.host is not None
        self.host.nap(int(seconds * 1e6))


TIME = HostTime()


class SimEngine(Engine):
    """A bug that the engine would survive by refusing one request is a find here."""

    def _isolate(self, items: list[Item], bug: Exception) -> None:
        raise Violation("BUG", f"a request was refused because of a bug: {type(bug).__name__}: {bug}") from bug


class Host:
    def __init__(self, world: World, n: int) -> None:
        self.world = world
        self.n = n
        self.engine: SimEngine | None = None
        self.lives = 0
        self.booted_at = 0
        self.has_begun = False
        self.is_busy = False
        self.paused_until = 0
        #: its connection that proves it lives is broken until then
        self.unseen_until = self.unseen_since = 0
        #: when it is going to be stepped; what lies in the heap for another moment is ignored
        self.wakes_at = -1
        #: µs its monotonic clock is ahead of virtual time
        self.ahead = int(world.random() * 1e12)
        #: µs it gains or loses with each step; in real life it would be with time
        self._drift = int(world.random() * 200) - 100
        self.store = MemoryStore(world.tables, world.store_now, world.living_engines, self.happen, world.committed)

    # --- time -----------------------------------------------------------------------------------------
    def pause(self, length: int, *, is_suspended: bool) -> None:
        """The process does not run; if the machine was suspended, its clock did not either."""
        self.paused_until = max(self.paused_until, self.world.now + length)
        if is_suspended:
            self.ahead -= length
        self.wake(self.paused_until)

    def nap(self, length: int) -> None:
        """In the middle of a step: the world goes on, and the process may be killed meanwhile."""
        engine, host = self.engine, TIME.host
        self.world.run_until(self.world.now + length)
        TIME.host = host
        if self.engine is not engine:
            raise Crash

    # --- life -----------------------------------------------------------------------------------------
    def boot(self) -> None:
        world = self.world
        if self.engine is not None:
            return
        before, TIME.host = TIME.host, self
        try:
            self.lives += 1
            id = f"e{self.n}-{self.lives}"
            self.engine = SimEngine(
                self.store,  # type: ignore[arg-type]
                compiled,
                key=b"k" * 32,
                id=id,
                name=id,
                lease=world.plan.lease / SECOND,
                beat=world.plan.lease / 3 / SECOND,
                patience=Patience(stuck=world.plan.stuck_after),
            )
            self.engine.committer.cache_size = world.plan.cache_size
        except Refused:
            # As a supervisor does: again, a little later.
            world.later(200 * MS, self.boot)
            return
        finally:
            TIME.host = before
        self.has_begun = False
        self.booted_at = world.now
        self.paused_until = 0
        self.wakes_at = -1
        self.wake(world.now)
        for worker in world.workers:
            if worker.home is self:
                worker.begin()

    def crash(self, down: int) -> bool:
        if self.engine is None:
            return False
        self.engine = None
        for worker in self.world.workers:
            if worker.home is self:
                worker.die()
        self.world.later(down, self.boot)
        return True

    # --- being stepped --------------------------------------------------------------------------------
    def wake(self, at: int) -> None:
        if self.wakes_at < self.world.now or at < self.wakes_at:
            self.wakes_at = at
            self.world.at(at, self.step)

    def has_mail(self) -> None:
        """Something came for the engine. It is taken a little later, so that what comes at about the same time
        is one commit."""
        self.wake(max(self.paused_until, (self.world.now // TOGETHER + 1) * TOGETHER))

    def step(self) -> None:
        world, engine = self.world, self.engine
        if engine is None or self.is_busy or world.now != self.wakes_at:
            return
        if world.now < self.paused_until:
            self.wakes_at = -1
            self.wake(self.paused_until)
            return
        before, TIME.host, self.is_busy = TIME.host, self, True
        self.ahead += self._drift
        pause = 0
        try:
            if not self.has_begun:
                self.has_begun = engine._guarded(engine.rounds.begin) is not None
            if self.has_begun:
                engine._collect(0.0)
                engine.step()
            if self.has_begun and not engine.pending:
                pause = int(engine.rounds.pause() * SECOND)
        except Crash:
            self.crash(int(world.random() * 3 * SECOND) + 100 * MS)
        finally:
            TIME.host, self.is_busy = before, False
        world.stepped(engine)
        if self.engine is engine:
            self.wakes_at = -1
            self.wake(max(self.paused_until, world.now + max(pause, MS)))

    def happen(self, moment: str, batch: Batch | None) -> None:
        """Told by the store what this engine is about to do with it."""
        world = self.world
        if world.now < world.away_until and moment != "after commit":
            raise StoreUnavailable("the store is away")
        if moment in world.armed:
            world.fire(moment, self, batch)
