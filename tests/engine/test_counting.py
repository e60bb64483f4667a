"""Many executions add one to a sensor under a lock; with real engines, one or two on a store, nothing is lost."""

from __future__ import annotations

import time
from typing import Any

from holdfast.core import program as p
from holdfast.core.locks import ask, release
from holdfast.core.model import Actor, Status, Wait
from holdfast.core.reads import LockKey, SensorKey
from holdfast.core.sharing import heir_of
from holdfast.core.state import State
from holdfast.engine.engine import Engine
from holdfast.engine.items import committed, future_reply
from holdfast.engine.verify import verify
from holdfast.language import canonical, compile_definition
from holdfast.store.port import Store
from tests.core.puppets import Puppet
from tests.store.conftest import Backend

COUNT = SensorKey("default", "default", "sensor", "count")
LOCK = ("default", "counting")
ACTOR = Actor("tester")


class Counter(Puppet):
    """Takes the lock, looks, adds one, gives it back, ends. With two locks in `order`, it takes the second when it
    is told to, and ends when it has both or hears that it never will."""

    name = "counter"

    def __init__(self, order: tuple[str, ...] = ("counting",)) -> None:
        super().__init__()
        self.order = order
        self.seen: dict[str, int] = {}

    def advance(self, state: State, cause: p.Cause, now: int, reads: Any) -> list[p.Command]:
        match cause:
            case p.Begun():
                return self._take(state, self.order[0], now, reads)
            case p.LockGranted(name=name):
                return self._holding(state, name, now, reads, [])
            case p.TimerEnded():
                return self._write(state, reads)
            case p.LockBroken():
                return [p.Complete("gave way")]
            case p.SignalArrived() if state.lanes[1].wait is not Wait.LOCK:
                return self._take(state, self.order[1], now, reads)
            case _:
                return []

    def _take(self, state: State, name: str, now: int, reads: Any) -> list[p.Command]:
        row = reads.lock(LockKey(state.tenant, "default", name))
        seq, fence = ask(row, state.id, 1)
        taken: list[p.Command] = [p.TakeLock(1, "default", name, seq, fence, (1,))]
        return self._holding(state, name, now, reads, taken) if fence else taken

    def _holding(self, state: State, name: str, now: int, reads: Any, before: list[p.Command]) -> list[p.Command]:
        if len(self.order) > 1:
            return before if name == self.order[0] else [*before, p.Complete("both")]
        # Read in this transition and written in a later one: without the lock, counts would be lost.
        sensor = reads.sensor(COUNT)
        self.seen[state.id] = sensor.value if sensor is not None else 0
        return [*before, p.SetTimer(1, now)]

    def _write(self, state: State, reads: Any) -> list[p.Command]:
        row = reads.lock(LockKey(state.tenant, *LOCK))
        assert row.holder is not None
        assert row.holder.execution == state.id
        heir, fence = release(row, row.holder.seq)
        sensor = reads.sensor(COUNT)
        version = sensor.version + 1 if sensor is not None else 1
        value = self.seen[state.id] + 1
        return [
            p.SetSensor(1, "default", "sensor", "count", value, version),
            p.ReleaseLock(1, *LOCK, row.holder.seq, heir_of(heir), fence),
            p.Complete(value),
        ]


def engine_on(store: Store, program: Any) -> Engine:
    return Engine(store, lambda data: program, key=b"k" * 32).start()


def begin(engine: Engine, count: int, program: Any, name: str = "counter") -> list[Any]:
    futures = []
    data = canonical({"name": name, "steps": ["wait-signal never"]})
    compile_definition({"name": name, "steps": ["wait-signal never"]})
    for _ in range(count):
        future, reply = future_reply()
        engine.start_execution(definition=data, program=program, actor=ACTOR, reply=reply)
        futures.append(future)
    return futures


def until_ended(store: Store, ids: list[str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with store.reading() as queries:
            if all(header.status.is_ended for header in queries.headers_of(ids).values()):
                return
        time.sleep(0.05)
    raise AssertionError("they have not ended")


def count_with(stores: list[Store]) -> None:
    counter = Counter()
    running = [engine_on(store, counter) for store in stores]
    try:
        futures = [future for engine in running for future in begin(engine, 100 // len(running), counter)]
        ids = [committed(future).id for future in futures]
        until_ended(stores[0], ids)
    finally:
        for engine in running:
            engine.stop()
    with stores[0].reading() as queries:
        assert {header.status for header in queries.headers_of(ids).values()} == {Status.COMPLETED}
        watched = queries.shared(COUNT)
        assert (watched.row.value, watched.row.version) == (100, 100)
        row = queries.shared(LockKey("default", *LOCK))
        assert (row.fence, row.next_seq, row.holder, row.waiters) == (100, 101, None, ())
        assert queries.due(1 << 60) == []
    assert verify(stores[0]).findings == []


def test_every_increment_counts(backend: Backend) -> None:
    count_with([backend.open()])


def test_every_increment_counts_with_two_engines(pg_dsn: str) -> None:
    backend = Backend("postgres", pg_dsn)
    count_with([backend.open("one"), backend.open("two")])
    backend.close()


def test_an_engine_finds_a_cycle_and_lets_one_give_way(backend: Backend) -> None:
    store = backend.open()
    programs = {"forth": Counter(("a", "b")), "back": Counter(("b", "a"))}

    def compile(data: bytes) -> Any:
        return programs["forth" if b"forth" in data else "back"]

    engine = Engine(store, compile, key=b"k" * 32).start()
    try:
        ids = [committed(begin(engine, 1, programs[name], name)[0]).id for name in ("forth", "back")]
        for id in ids:
            future, reply = future_reply()
            engine.signal(id, "go", None, ACTOR, reply)
            committed(future)
        until_ended(store, ids)
    finally:
        engine.stop()
    with store.reading() as queries:
        assert [header.status for header in queries.headers_of(ids).values()] == [Status.COMPLETED] * 2
        assert queries.count("lock_queue") == 0
    assert verify(store).findings == []
