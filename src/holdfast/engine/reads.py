"""Shared rows for the decisions of one turn, and caches of what never changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core import events as e
from holdfast.core import locks, sensors
from holdfast.core.codec import pack, unpack, unpack_events
from holdfast.core.errors import Refused
from holdfast.core.locks import LOCK_EVENTS, LockEvent, LockRow
from holdfast.core.model import INLINE_LIMIT, PAYLOAD_LIMIT, BlobRef, BlockOffer, blob_digest
from holdfast.core.program import Program
from holdfast.core.reads import (
    BlobKey,
    BlockKey,
    ContentionKey,
    DefinitionKey,
    EntityKey,
    HistoryKey,
    Key,
    LockKey,
    Missing,
    Published,
    SensorKey,
    TooLong,
    WorkflowKey,
)
from holdfast.core.rows import Rows
from holdfast.core.sensors import SENSOR_EVENTS, SensorEvent, SensorRow, Watched
from holdfast.core.sharing import SHARED
from holdfast.core.state import State

from .cached import Cached
from .entity_reads import EntityReads

#: Compiled programs kept; a program is shared by all executions of its definition.
PROGRAMS = 512
#: Bytes of long values that stay unpacked between turns. A step with many targets asks for its list at every one.
UNPACKED = 4 << 20
#: A lock of which fewer waiters than this are left, though more wait, is read again with more of them.
FEW = 8


class TurnReads(EntityReads):
    """Implements `core.program.Reads` over rows the shell has read. One per engine, cleared per turn."""

    def __init__(self, compile: Callable[[bytes], Program], is_shared: bool) -> None:
        super().__init__()
        self._compile = compile
        self._programs: dict[bytes, Program] = {}
        self._is_shared = is_shared
        #: offers and published versions stay known between turns while nobody else can change them
        self._offers: dict[str, tuple[BlockOffer, ...]] = {}
        self._workflows: dict[WorkflowKey, Published] = {}
        #: blobs made in this turn: (execution, digest) → data
        self.fresh: dict[tuple[str, bytes], bytes] = {}
        #: long values by what they are, so they are right for ever, with their size; the oldest goes first
        self._unpacked: dict[tuple[str, bytes], tuple[Any, int]] = {}
        self._unpacked_size = 0
        #: locks and sensors as the decisions of this turn have left them
        self._locks: dict[LockKey, LockRow] = {}
        self._sensors: dict[SensorKey, Watched] = {}
        #: what the decisions of this turn did to each lock, should more of it have to be read
        self._moves: dict[LockKey, list[tuple[str, LockEvent, int]]] = {}
        self._windows: dict[LockKey, int] = {}

    def begin_turn(self, rows: Rows, states: Mapping[str, Cached]) -> None:
        """`rows` is what follows from what is decided in it, `states` what it may look at; both grow with it."""
        self.rows.clear()
        self.begin_entities(rows, states)
        self.fresh.clear()
        self._locks.clear()
        self._sensors.clear()
        self._moves.clear()
        self._windows.clear()
        if self._is_shared:
            self.forget()

    def learn(self, rows: dict[Key, Any]) -> None:
        for key, row in rows.items():
            if isinstance(key, DefinitionKey):
                if row is None:
                    self.rows[key] = None
                    continue
                try:
                    self.adopt(key.digest, self._compile(row))
                except Refused as refused:
                    # Kept as this key's answer: only those who need it are refused, not the whole turn.
                    self.rows[key] = refused
            elif isinstance(key, BlockKey):
                self._offers[key.name] = row
            elif isinstance(key, WorkflowKey) and row is not None:
                if len(self._workflows) >= PROGRAMS:
                    self._workflows.clear()
                self.rows[key] = self._workflows[key] = row
            elif isinstance(key, LockKey):
                self._learn_lock(key, row)
            elif isinstance(key, SensorKey):
                self._sensors.setdefault(key, row)
            elif isinstance(key, ContentionKey):
                self.learn_contention(key, row)
                if self._is_shared:
                    # Locked only now: what was read of them before may have been changed by others since.
                    for id in key.ids:
                        if (entity := EntityKey(key.tenant, id)) not in rows:
                            self.rows.pop(entity, None)
            else:
                self.rows[key] = row

    def _learn_lock(self, key: LockKey, row: LockRow) -> None:
        lock = _plain(key)
        if key.window <= self._windows.get(lock, 0):
            return
        self._windows[lock] = key.window
        for execution, event, at in self._moves.get(lock, ()):
            row = locks.after(row, execution, event, at)
        self._locks[lock] = row

    def follow(self, state: State, decided: Sequence[e.Event], now: int) -> None:
        """Later decisions of the turn see what earlier ones did to what is shared."""
        for event in decided:
            if type(event) not in SHARED:
                continue
            if isinstance(event, LOCK_EVENTS):
                lock = LockKey(state.tenant, event.entity, event.name)
                self._moves.setdefault(lock, []).append((state.id, event, now))
                if lock in self._locks:
                    self._locks[lock] = locks.after(self._locks[lock], state.id, event, now)
            elif isinstance(event, SENSOR_EVENTS):
                self._follow_sensor(state, event, now)

    def _follow_sensor(self, state: State, event: SensorEvent, now: int) -> None:
        if isinstance(event, e.SensorLeft):
            keys = list(self._sensors)
        else:
            keys = [SensorKey(state.tenant, event.entity, event.kind, event.name)]
        for key in keys:
            if key in self._sensors:
                self._sensors[key] = sensors.after(self._sensors[key], state.id, event, now)

    def put_sensor(self, key: SensorKey, row: SensorRow | None) -> None:
        """Somebody from outside has set or cleared it."""
        self._sensors[key] = Watched(row, self._sensors[key].waiters)

    def adopt(self, digest: bytes, program: Program) -> None:
        if digest not in self._programs:
            if len(self._programs) >= PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[digest] = program

    def forget(self) -> None:
        """What is stored may be something else from now on."""
        self._offers.clear()
        self._workflows.clear()

    # --- core.program.Reads -------------------------------------------------------------------------
    def workflow(self, key: WorkflowKey) -> Published | None:
        if key in self.rows:
            row: Published | None = self.rows[key]
            return row
        known = self._workflows.get(key)
        if known is None:
            raise Missing(key)
        return known

    def program(self, digest: bytes) -> Program | None:
        program = self._programs.get(digest)
        if program is None:
            key = DefinitionKey(digest)
            if key not in self.rows:
                raise Missing(key)
            if self.rows[key] is not None:
                raise self.rows[key]
        return program

    def history(self, execution: str) -> Sequence[tuple[int, tuple[Any, ...]]]:
        key = HistoryKey(execution)
        if key not in self.rows:
            raise Missing(key)
        return [(row.at, unpack_events(row.body)) for row in self.rows[key]]

    def label(self, digest: bytes, step: int) -> str:
        """What people call a step; its number where the definition does not compile any more."""
        try:
            program = self.program(digest)
        except Refused:
            return str(step)
        return program.label(step) if program else ""

    def offers(self, name: str) -> tuple[BlockOffer, ...]:
        if name not in self._offers:
            raise Missing(BlockKey(name))
        return self._offers[name]

    def lock(self, key: LockKey) -> LockRow:
        lock = _plain(key)
        window = self._windows.get(lock, 0)
        if window < key.window:
            raise Missing(key)
        row = self._locks[lock]
        if not row.is_whole and len(row.waiters) < FEW:
            raise Missing(LockKey(key.tenant, key.entity, key.name, 2 * window))
        return row

    def sensor(self, key: SensorKey) -> SensorRow | None:
        return self._watched(key).row

    def waiters(self, key: SensorKey) -> tuple[tuple[str, int], ...]:
        return self._watched(key).waiters

    def _watched(self, key: SensorKey) -> Watched:
        if key not in self._sensors:
            raise Missing(key)
        return self._sensors[key]

    def load(self, execution: str, value: Any) -> Any:
        """References are followed however deep they lie, but never to more than PAYLOAD_LIMIT in all: a
        reference to references could stand for anything."""
        if type(value) not in _DEEP:
            return value
        if type(value) is not BlobRef:
            return self.unpacked(execution, value)
        key = (execution, value.digest)
        if key not in self._unpacked:
            made, left = resolve(value, lambda ref: self._blob(execution, ref), PAYLOAD_LIMIT)
            self._unpacked[key] = (made, PAYLOAD_LIMIT - left)
            self._unpacked_size += PAYLOAD_LIMIT - left
            while self._unpacked_size > UNPACKED:
                self._unpacked_size -= self._unpacked.pop(next(iter(self._unpacked)))[1]
            return made
        return self._unpacked[key][0]

    def unpacked(self, execution: str, value: Any) -> Any:
        """The same for whoever may change it: nothing in it belongs to anybody else."""
        return resolve(value, lambda ref: self._blob(execution, ref), PAYLOAD_LIMIT)[0]

    def _blob(self, execution: str, ref: BlobRef) -> bytes:
        data = self.fresh.get((execution, ref.digest))
        if data is None:
            key = BlobKey(execution, ref.digest)
            if key not in self.rows:
                raise Missing(key)
            data = self.rows[key]
            assert data is not None, f"blob {ref} of {execution} is gone although it is referred to"
        return data

    def keep(self, execution: str, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in _SHORT or kind is BlobRef or not value:
            return value
        if kind is str and len(value) * 4 <= INLINE_LIMIT:
            return value
        data = pack(value)
        if len(data) <= INLINE_LIMIT:
            return value
        if len(data) > PAYLOAD_LIMIT:
            raise TooLong(f"a value of {len(data):,} bytes is over the limit of {PAYLOAD_LIMIT:,}")
        digest = blob_digest(data)
        self.fresh[execution, digest] = data
        return BlobRef(digest, len(data))


def _plain(key: LockKey) -> LockKey:
    """The lock, however much of it was asked for."""
    return key if key.window == locks.WINDOW else LockKey(key.tenant, key.entity, key.name)


def resolve(value: Any, blob: Callable[[BlobRef], bytes], budget: int) -> tuple[Any, int]:
    """The value with every reference in it replaced by what it stands for, and what is left of the budget."""
    kind = type(value)
    if kind is BlobRef:
        budget -= value.size
        if budget < 0:
            raise TooLong(f"a value with all it refers to is over the limit of {PAYLOAD_LIMIT:,} bytes")
        return resolve(unpack(blob(value)), blob, budget)
    if kind is list and any(type(item) in _DEEP for item in value):
        items = []
        for item in value:
            loaded, budget = resolve(item, blob, budget)
            items.append(loaded)
        return items, budget
    if kind is dict and any(type(item) in _DEEP for item in value.values()):
        pairs = {}
        for name, item in value.items():
            pairs[name], budget = resolve(item, blob, budget)
        return pairs, budget
    return value, budget


_SHORT = (int, bool, float)
_DEEP = (BlobRef, list, dict)
