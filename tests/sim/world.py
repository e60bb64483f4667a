"""The simulated world: engines, workers and a client on one store, virtual time, one seed for everything.

Engines are the real `Engine` without its thread; workers speak the real messages. What happens outside is
written by the workers into `effects`, which no engine sees.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any

from holdfast.core.errors import Refused, StoreUnavailable, UnknownWorker, WorkerSuperseded
from holdfast.core.ids import make_id
from holdfast.core.model import Actor, BlockOffer, Failure
from holdfast.core.program import Program
from holdfast.core.requests import CancelExecution
from holdfast.engine.engine import Engine
from holdfast.engine.wishes import Existing
from holdfast.language import canonical, compile_definition, program_from_bytes
from holdfast.store.port import CommitUnknown
from holdfast.transport.messages import Answer, Exchange, Hello, Holding, Outcome, Parcel

from .memory import MemoryStore, Tables

SECOND = 1_000_000
MS = 1_000
OFFERS = [BlockOffer("plain"), BlockOffer("again", idempotent=True), BlockOffer("pure", pure=True)]
FAULTS = ("engine crash", "worker crash", "lost answer", "lost request", "duplicate", "commit fails", "commit unknown",
          "crash around commit", "pause", "clock jump", "failover")  # fmt: skip

_programs: dict[bytes, Program] = {}


def _compiled(data: bytes) -> Program:
    if data not in _programs:
        _programs[data] = program_from_bytes(data)
    return _programs[data]


def _definitions() -> dict[str, tuple[bytes, Program]]:
    def steps(block: str) -> list[Any]:
        return [block, "let x = 1", {"parallel": [block, [block, "sleep 2s"], block]}, "sleep 1s", block, "return ${x}"]

    made = {}
    for block in ("plain", "again", "pure"):
        definition = {"name": block, "steps": steps(block)}
        data = canonical(definition)
        made[block] = (data, compile_definition(definition))
    return made


DEFINITIONS = _definitions()


class Crash(BaseException):
    """The process is gone, in the middle of whatever it did."""


class SimEngine(Engine):
    """An engine whose clock is the world's and which never sleeps."""

    def __init__(self, world: World, id: str) -> None:
        self._world = world
        self._jump = 0
        super().__init__(world.store_for(id), _compiled, key=b"k" * 32, id=id, name=id, lease=10.0, beat=3.0)

    def clock(self) -> int:
        return self._world.now

    def set_clock(self, now: int) -> None: ...

    def _rest(self, seconds: float) -> None: ...


class SimWorker:
    """One worker: takes parcels, runs them for a while, repeats itself until it is heard."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.begin()

    def begin(self) -> None:
        self.life += 1
        self.incarnation = f"{self.name}-{self.life}"
        self.running: dict[tuple[str, int, int], Parcel] = {}
        self.done: list[Outcome] = []
        self.seen_attempts: set[tuple[str, int, int]] = set()
        self.number = 0
        self.seen = 0
        self.open: Exchange | None = None
        self.is_welcome = False
        self.greetings = 0
        self.paused_until = 0
        self.engine = self.world.chance.randrange(len(self.world.engines)) if self.world.engines else 0

    def act(self) -> None:
        if self.world.now < self.paused_until:
            return
        engine = self.world.engines[self.engine]
        if engine is None:
            self.engine = (self.engine + 1) % len(self.world.engines)
            return
        if not self.is_welcome:
            holding = [Holding(*key) for key in (*self.running, *((o.execution, o.job, o.attempt) for o in self.done))]
            greeting = self.greetings + 1
            hello = Hello(self.name, self.incarnation, OFFERS, slots=3, holding=holding, greeting=greeting)
            self.send(lambda reply: engine.hello(hello, reply), partial(self.greeted, greeting))
            return
        if self.open is None:
            self.number += 1
            self.open = Exchange(
                self.incarnation, self.number, list(self.done), seen=self.number - 1, greeting=self.greetings
            )
        exchange = self.open
        self.send(lambda reply: engine.exchange(exchange, reply), self.answered)

    def send(self, ask: Callable[[Any], None], heard: Callable[[Any, Exception | None], None]) -> None:
        """Over a network that loses, repeats and delays."""
        world, life = self.world, self.life
        times = 2 if world.happens("duplicate") else 1
        if world.happens("lost request"):
            return

        def reply(value: Any, error: Exception | None) -> None:
            if world.happens("lost answer"):
                return
            world.later(world.delay(), lambda: heard(value, error) if self.life == life else None)

        for _ in range(times):
            world.later(world.delay(), lambda: ask(reply))

    def greeted(self, greeting: int, value: Any, error: Exception | None) -> None:
        if error is None and greeting == self.greetings + 1:
            self.greetings, self.is_welcome = greeting, True

    def answered(self, answer: Answer | None, error: Exception | None) -> None:
        if isinstance(error, WorkerSuperseded | UnknownWorker):
            # The exchange is asked anew under a new number, as the real worker does.
            self.is_welcome, self.open = False, None
            return
        if error is not None or answer is None or self.open is None or answer.number != self.open.number:
            return
        told = {(o.execution, o.job, o.attempt) for o in self.open.outcomes}
        self.done = [o for o in self.done if (o.execution, o.job, o.attempt) not in told]
        self.open = None
        for parcel in answer.jobs:
            key = (parcel.execution, parcel.job, parcel.attempt)
            if key not in self.seen_attempts:
                self.seen_attempts.add(key)
                self.running[key] = parcel
                self.world.ran(parcel)
                life = self.life
                self.world.later(self.world.chance.randrange(1, 400) * MS, partial(self.finish, key, life))

    def finish(self, key: tuple[str, int, int], life: int) -> None:
        parcel = self.running.pop(key, None) if life == self.life else None
        if parcel is None:
            return
        failure = Failure("block-error", "bad luck") if self.world.chance.random() < 0.02 else None
        self.done.append(Outcome(*key, parcel.token, parcel.job, failure))


class World:
    def __init__(self, seed: int, *, engines: int = 2, workers: int = 3, executions: int = 4, faults: int = 6) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now = 1_000_000 * SECOND
        self.tables = Tables()
        self.engines: list[SimEngine | None] = []
        self.acked: dict[str, str] = {}
        self.effects: Counter[tuple[str, int]] = Counter()
        self.attempts: Counter[tuple[str, int, int]] = Counter()
        self.hit: Counter[str] = Counter()
        self.trace = blake2b(digest_size=16)
        self._heap: list[tuple[int, int, Callable[[], Any]]] = []
        self._order = 0
        self._armed: list[str] = []
        #: swarm: each seed has its own mix of faults
        self.enabled = [fault for fault in FAULTS if self.chance.random() < 0.6]
        self.executions = executions
        self.faults = faults
        self._made = 0
        for _ in range(engines):
            self.engines.append(None)
        self._lives = 0
        for n in range(engines):
            self.boot(n)
        self.workers = [SimWorker(self, f"w{n}") for n in range(workers)]

    # --- time and chance ------------------------------------------------------------------------------
    def later(self, delay: int, action: Callable[[], Any]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay, self._order, action))

    def delay(self) -> int:
        return self.chance.randrange(1, 40) * MS

    def happens(self, fault: str) -> bool:
        if self._armed and fault in self._armed:
            self._armed.remove(fault)
            self.hit[fault] += 1
            return True
        return False

    # --- engines --------------------------------------------------------------------------------------
    def store_for(self, id: str) -> Any:
        def fault(where: str) -> None:
            if where == "begin" and self.happens("commit fails"):
                raise StoreUnavailable("the store is away")
            if where == "before commit" and self.happens("crash around commit"):
                raise Crash
            if where == "after commit" and self.happens("commit unknown"):
                raise CommitUnknown
            if where == "after commit" and self.chance.random() < 0.5 and self.happens("crash around commit"):
                raise Crash

        return MemoryStore(self.tables, lambda: self.now, fault, lambda: [e.id for e in self.engines if e])

    def boot(self, n: int) -> None:
        self._lives += 1
        engine = SimEngine(self, f"e{n}-{self._lives}")
        self.engines[n] = engine
        engine.rounds.begin()

    def crash(self, n: int) -> None:
        if self.engines[n] is not None:
            self.engines[n] = None
            self.later(self.chance.randrange(100, 5000) * MS, lambda: self.boot(n))

    def step_engine(self, n: int) -> None:
        engine = self.engines[n]
        if engine is None:
            return
        try:
            engine._collect(0.0)
            engine.step()
        except Crash:
            self.crash(n)

    # --- the client -----------------------------------------------------------------------------------
    def start(self) -> None:
        engine = self.chance.choice(self.engines)
        if engine is None:
            self.later(self.delay(), self.start)
            return
        self._made += 1
        kind = self.chance.choice(("plain", "again", "pure"))
        id = make_id(self._made, blake2b(f"{self.seed}/{self._made}".encode(), digest_size=10).digest())
        data, program = DEFINITIONS[kind]

        def reply(value: Any, error: Exception | None) -> None:
            if error is None:
                assert not isinstance(value, Existing)
                self.acked[id] = kind

        try:
            engine.start_execution(definition=data, program=program, actor=Actor("client"), id=id, reply=reply)
        except Refused:
            self.later(self.delay(), self.start)

    def cancel(self) -> None:
        engine = self.chance.choice(self.engines)
        if engine is not None and self.acked:
            engine.ask(self.chance.choice(sorted(self.acked)), CancelExecution("sim"), lambda value, error: None)
            self.hit["cancel"] += 1

    def ran(self, parcel: Parcel) -> None:
        self.effects[parcel.execution, parcel.job] += 1
        self.attempts[parcel.execution, parcel.job, parcel.attempt] += 1
        self.trace.update(f"{self.now} {parcel.execution} {parcel.job} {parcel.attempt}\n".encode())

    # --- the run --------------------------------------------------------------------------------------
    def inject(self) -> None:
        fault = self.chance.choice(self.enabled)
        match fault:
            case "engine crash":
                self.hit[fault] += 1
                self.crash(self.chance.randrange(len(self.engines)))
            case "worker crash":
                self.hit[fault] += 1
                self.chance.choice(self.workers).begin()
            case "pause":
                self.hit[fault] += 1
                self.chance.choice(self.workers).paused_until = self.now + self.chance.randrange(1, 30) * SECOND
            case "failover":
                self.hit[fault] += 1
                worker = self.chance.choice(self.workers)
                worker.engine = (worker.engine + 1) % len(self.engines)
            case "clock jump":
                self.hit[fault] += 1
                self.now += self.chance.randrange(1, 20) * SECOND
            case _:
                self._armed.append(fault)

    def is_quiet(self) -> bool:
        return len(self.acked) >= self.executions and all(h.status.is_ended for h in self.tables.headers.values())

    def run(self, limit: int = 600 * SECOND) -> None:
        for _ in range(self.executions):
            self.later(self.chance.randrange(0, 3000) * MS, self.start)
        if self.enabled:
            for _ in range(self.faults):
                self.later(self.chance.randrange(0, 12_000) * MS, self.inject)
        if self.chance.random() < 0.3:
            self.later(self.chance.randrange(0, 8000) * MS, self.cancel)
        end = self.now + limit
        tick = 0
        while not self.is_quiet():
            assert self.now < end, f"seed {self.seed}: stuck: {self.open_ones()}"
            if tick % 2 == 0 and len(self.acked) + self.missing() < self.executions and not self._heap:
                self.start()
            tick += 1
            for n in range(len(self.engines)):
                self.step_engine(n)
            for worker in self.workers:
                if self.chance.random() < 0.5:
                    worker.act()
            until = self.now + 20 * MS
            while self._heap and self._heap[0][0] <= until:
                at, _, action = heapq.heappop(self._heap)
                self.now = max(self.now, at)
                action()
            self.now = max(self.now, until)

    def missing(self) -> int:
        """Starts nobody answered: the client asks again, as clients do."""
        if not self._heap and self._made < self.executions * 5:
            return 0
        return self.executions if self._made >= self.executions * 5 else 0

    def open_ones(self) -> list[str]:
        return [
            f"{h.id[:6]} {h.workflow} {h.status.name}" for h in self.tables.headers.values() if not h.status.is_ended
        ]
